//! Files that come with a message: what they are, whether they can go along, what the model gets.
//!
//! Owns the limits and the words. What a file is its bytes tell, never its name. A message that
//! cannot be taken as asked is refused when it is sent ([`check`]); what changed until its turn
//! begins is said to the person and to the model ([`read`]). Must not know sessions or providers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use glrs_protocol::entry::Attachment;
use glrs_protocol::message::Part;
use glrs_protocol::{ErrorKind, RpcError};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most bytes of one image: what the strictest provider takes.
pub const IMAGE_MAX: usize = 5 * 1024 * 1024;
/// Most bytes of all images that start a turn: with the rest of the turn they fit one line of the
/// wire.
pub const IMAGES_MAX: usize = 10 * 1024 * 1024;
/// Most bytes of one attached text file that are sent.
pub const TEXT_MAX: usize = 256 * 1024;
/// How much of a file says what it is.
const HEAD: usize = 4096;
/// What is taken, for people.
const TAKEN: &str = "image/png, image/jpeg, image/gif, image/webp, application/pdf or text/…";

/// Why a message is refused for what came with it. The words say what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such file.
    #[error("{path}: there is no such file in the session's directory: correct the path, or send without it")]
    Missing {
        /// As the person gave it.
        path: String,
    },
    /// It cannot be read.
    #[error("{path} cannot be read: {why}")]
    Unreadable {
        /// As the person gave it.
        path: String,
        /// The operating system's reason.
        why: String,
    },
    /// An image that no provider would take.
    #[error("{path}: an image of {bytes} bytes is too large, the most is {IMAGE_MAX} (5 MiB): scale it down")]
    ImageTooLarge {
        /// As the person gave it.
        path: String,
        /// How large it is.
        bytes: u64,
    },
    /// Too much together.
    #[error(
        "the images are too large together, the most is {IMAGES_MAX} bytes (10 MiB): send them in several messages"
    )]
    TooLargeTogether,
    /// Inline data that is none.
    #[error("{path}: its data is not valid base64 (the standard alphabet with padding, no line ends, no data: prefix)")]
    NotBase64 {
        /// Its name.
        path: String,
    },
    /// Inline data that is something else than it says.
    #[error("{path} says it is {declared}, but its bytes are {found}: correct mediaType or the data")]
    Mismatch {
        /// Its name.
        path: String,
        /// What it says.
        declared: String,
        /// What it is.
        found: &'static str,
    },
    /// Inline data of a kind no model is given.
    #[error("{path}: {declared} cannot be attached: what can is {TAKEN}")]
    Kind {
        /// Its name.
        path: String,
        /// What it says.
        declared: String,
    },
}

impl From<Refused> for RpcError {
    fn from(why: Refused) -> Self {
        let limit = |what: &str, max: usize| ErrorKind::Limit { what: what.to_owned(), max: max as u64 };
        let kind = match &why {
            Refused::Missing { .. } => ErrorKind::NotFound,
            Refused::Unreadable { .. } => ErrorKind::Forbidden,
            Refused::ImageTooLarge { .. } => limit("image bytes", IMAGE_MAX),
            Refused::TooLargeTogether => limit("image bytes of a message", IMAGES_MAX),
            Refused::NotBase64 { .. } | Refused::Mismatch { .. } | Refused::Kind { .. } => ErrorKind::InvalidParams,
        };
        Self::new(kind, why.to_string())
    }
}

/// What a turn takes along of one attachment.
#[derive(Debug, Default)]
pub struct Taken {
    /// Rides behind the words, as text.
    pub text: String,
    /// Stands in the message itself: an image, or a document.
    pub part: Option<Part>,
    /// What the person is told, where it is not as they asked.
    pub notice: Option<String>,
}

impl Taken {
    fn text(path: &str, text: &str) -> Self {
        Self { text: block(path, text), ..Self::default() }
    }

    /// The disk it lies on does not answer.
    pub fn unread(path: &str) -> Self {
        Self::left_out(path, "its disk does not answer")
    }

    /// It does not go along; both sides are told.
    fn left_out(path: &str, why: &str) -> Self {
        let notice = Some(format!("({path} does not go along: {why})"));
        Self { notice, ..Self::text(path, &format!("[{why}]")) }
    }

    fn part(path: &str, kind: &'static str, media_type: &str, data: String, bytes: usize) -> Self {
        let text = block(path, &format!("[{media_type}, {bytes} bytes: it is in this message]"));
        let part = Some(Part::File { kind, media_type: media_type.to_owned(), data });
        Self { text, part, notice: None }
    }
}

fn block(path: &str, text: &str) -> String {
    format!("<file path=\"{path}\">\n{text}\n</file>")
}

/// Whether all that comes with a message can go along. What only is of no use as it is (a directory,
/// a long text, a binary file) can: the model is told what there is.
///
/// # Errors
/// [`Refused`] for the first that cannot.
pub fn check(cwd: &Path, attachments: &[Attachment]) -> Result<(), Refused> {
    // Without its directory no turn begins; that is said then, and of more than this file.
    let here = cwd.is_dir();
    let mut room = IMAGES_MAX as u64;
    for a in attachments {
        let bytes = match &a.data {
            Some(data) => inline(a, data)?.counted(),
            None if here => image_at(cwd, &a.path)?,
            None => 0,
        };
        room = room.checked_sub(bytes).ok_or(Refused::TooLargeTogether)?;
    }
    Ok(())
}

/// How many bytes of image a path adds to its message.
fn image_at(cwd: &Path, path: &str) -> Result<u64, Refused> {
    let full = cwd.join(path);
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Refused::Missing { path: path.to_owned() },
        _ => Refused::Unreadable { path: path.to_owned(), why: e.to_string() },
    };
    let meta = std::fs::metadata(&full).map_err(failed)?;
    // Opening a pipe would wait for whoever writes into it.
    if !meta.is_file() {
        return Ok(0);
    }
    let mut head = Vec::with_capacity(HEAD);
    File::open(&full).and_then(|f| f.take(HEAD as u64).read_to_end(&mut head)).map_err(failed)?;
    match image_type(&head) {
        Some(_) if meta.len() > IMAGE_MAX as u64 => {
            Err(Refused::ImageTooLarge { path: path.to_owned(), bytes: meta.len() })
        }
        Some(_) => Ok(meta.len()),
        None => Ok(0),
    }
}

/// Inline data that can go along.
enum Inline {
    Text(String),
    Data { kind: &'static str, media_type: &'static str, bytes: usize },
}

impl Inline {
    fn counted(&self) -> u64 {
        match self {
            Self::Text(_) => 0,
            Self::Data { bytes, .. } => *bytes as u64,
        }
    }
}

fn inline(a: &Attachment, data: &str) -> Result<Inline, Refused> {
    let path = || a.path.clone();
    let bytes = STANDARD.decode(data).map_err(|_| Refused::NotBase64 { path: path() })?;
    let declared = a.media_type.as_deref().unwrap_or("text/plain").trim().to_ascii_lowercase();
    let essence = declared.split(';').next().unwrap_or_default().trim();
    let essence = if essence == "image/jpg" { "image/jpeg" } else { essence };
    let found = media_type(&bytes);
    let mismatch = || Refused::Mismatch {
        path: path(),
        declared: declared.clone(),
        found: found.unwrap_or(if plain(&bytes) { "text" } else { "of another kind" }),
    };
    match essence {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "application/pdf" => {
            let media_type = found.filter(|f| *f == essence).ok_or_else(mismatch)?;
            if bytes.len() > IMAGE_MAX {
                return Err(Refused::ImageTooLarge { path: path(), bytes: bytes.len() as u64 });
            }
            let kind = if media_type.starts_with("image/") { "image" } else { "file" };
            Ok(Inline::Data { kind, media_type, bytes: bytes.len() })
        }
        text if text.starts_with("text/") || text == "application/json" => {
            if !plain(&bytes) {
                return Err(mismatch());
            }
            Ok(Inline::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => Err(Refused::Kind { path: path(), declared }),
    }
}

/// What a message takes along, as it is found now. `room` is how many bytes of images the turn still
/// has room for.
pub fn read(cwd: &Path, attachments: &[Attachment], room: &mut usize) -> Vec<Taken> {
    attachments
        .iter()
        .map(|a| match &a.data {
            Some(data) => match inline(a, data) {
                Ok(Inline::Text(text)) => {
                    long(&a.path, text.len() as u64).unwrap_or_else(|| Taken::text(&a.path, &text))
                }
                Ok(Inline::Data { kind, media_type, bytes }) => {
                    fit(&a.path, bytes, room, || Taken::part(&a.path, kind, media_type, data.clone(), bytes))
                }
                Err(why) => Taken::left_out(&a.path, &why.to_string()),
            },
            None => from_file(cwd, &a.path, room),
        })
        .collect()
}

fn fit(path: &str, bytes: usize, room: &mut usize, taken: impl FnOnce() -> Taken) -> Taken {
    match room.checked_sub(bytes) {
        Some(left) => {
            *room = left;
            taken()
        }
        None => Taken::left_out(path, "the images that start this turn are too large together"),
    }
}

fn long(path: &str, bytes: u64) -> Option<Taken> {
    (bytes > TEXT_MAX as u64)
        .then(|| Taken::left_out(path, &format!("{bytes} bytes: too large to attach; use read with offset and limit")))
}

fn from_file(cwd: &Path, path: &str, room: &mut usize) -> Taken {
    let full = cwd.join(path);
    let failed = |e: std::io::Error| Taken::left_out(path, &format!("could not be read: {e}"));
    let meta = match std::fs::metadata(&full) {
        Ok(meta) if meta.is_dir() => return Taken::text(path, "[a directory; use glob to look into it]"),
        Ok(meta) if !meta.is_file() => return Taken::left_out(path, "neither a file nor a directory"),
        Ok(meta) => meta,
        Err(e) => return failed(e),
    };
    let mut bytes = Vec::new();
    let mut file = match File::open(&full) {
        Ok(file) => file.take(IMAGE_MAX as u64 + 1),
        Err(e) => return failed(e),
    };
    // The head first: of a file that is not sent no more is read.
    if let Err(e) = file.by_ref().take(HEAD as u64).read_to_end(&mut bytes) {
        return failed(e);
    }
    let image = image_type(&bytes).is_some();
    if let Some(long) = long(path, meta.len()).filter(|_| !image) {
        return long;
    }
    if let Err(e) = file.read_to_end(&mut bytes) {
        return failed(e);
    }
    if image && let Some(media_type) = image_type(&bytes) {
        if bytes.len() > IMAGE_MAX {
            let why = Refused::ImageTooLarge { path: path.to_owned(), bytes: meta.len().max(bytes.len() as u64) };
            return Taken::left_out(path, &why.to_string());
        }
        return fit(path, bytes.len(), room, || {
            Taken::part(path, "image", media_type, STANDARD.encode(&bytes), bytes.len())
        });
    }
    if bytes.contains(&0) {
        return Taken::left_out(path, "a binary file");
    }
    Taken::text(path, &String::from_utf8_lossy(&bytes))
}

/// Whether bytes are text: UTF-8 (cut anywhere) without a NUL.
fn plain(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).map_or_else(|e| e.error_len().is_none(), |_| true)
}

/// The media type of an image that models take.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    media_type(bytes).filter(|t| t.starts_with("image/"))
}

fn media_type(bytes: &[u8]) -> Option<&'static str> {
    let known = match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        [b'%', b'P', b'D', b'F', b'-', ..] => return Some("application/pdf"),
        _ => return None,
    };
    // A text may begin like one of these.
    (!plain(bytes)).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    fn named(path: &str) -> Attachment {
        Attachment { path: path.into(), media_type: None, data: None }
    }

    fn data(media_type: Option<&str>, bytes: &[u8]) -> Attachment {
        Attachment { path: "x".into(), media_type: media_type.map(str::to_owned), data: Some(STANDARD.encode(bytes)) }
    }

    #[test]
    fn bytes_tell_what_a_file_is() {
        for (bytes, kind) in [
            (PNG, Some("image/png")),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", Some("image/jpeg")),
            (b"GIF89a\x01\0\x01\0", Some("image/gif")),
            (b"GIF89a is how one begins", None),
            (b"RIFF\x1a\0\0\0WEBPVP8L", Some("image/webp")),
            (b"RIFF\x1a\0\0\0WAVEfmt ", None),
            (b"", None),
            (b"\x89PN", None),
        ] {
            assert_eq!(image_type(bytes), kind, "{bytes:?}");
        }
    }

    #[test]
    fn files_are_taken_by_what_they_are_and_what_is_wrong_is_said_to_both() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
        put("notes.png", b"only text");
        put("image.txt", PNG);
        put("data.bin", b"a\0b");
        put("long.txt", &vec![b'x'; TEXT_MAX + 1]);
        let mut huge = PNG.to_vec();
        huge.resize(IMAGE_MAX + 1, 0);
        put("huge.png", &huge);
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();

        let one = |name: &str| read(dir.path(), &[named(name)], &mut IMAGES_MAX.clone()).pop().unwrap();
        assert!(one("notes.png").text.contains("only text") && one("notes.png").part.is_none());
        let image = one("image.txt");
        assert!(matches!(&image.part, Some(Part::File { kind: "image", media_type, data })
            if media_type == "image/png" && STANDARD.decode(data).unwrap() == PNG));
        assert!(image.notice.is_none() && image.text.contains("image.txt"));
        for (name, word) in [
            ("data.bin", "binary"),
            ("long.txt", "too large"),
            ("huge.png", "5 MiB"),
            ("gone", "read"),
            ("pipe", "neither"),
        ] {
            let taken = one(name);
            assert!(taken.part.is_none() && taken.text.contains(word), "{name}: {taken:?}");
            assert!(taken.notice.unwrap().contains(word), "{name}");
        }
        assert!(one("sub").text.contains("a directory") && one("sub").notice.is_none());

        let asked = |name: &str| check(dir.path(), &[named(name)]);
        for fine in ["notes.png", "image.txt", "data.bin", "long.txt", "sub", "pipe"] {
            assert_eq!(asked(fine), Ok(()), "{fine}");
        }
        assert!(matches!(asked("gone"), Err(Refused::Missing { .. })));
        assert!(matches!(asked("notes.png/x"), Err(Refused::Unreadable { .. })));
        assert!(matches!(asked("huge.png"), Err(Refused::ImageTooLarge { bytes, .. }) if bytes == huge.len() as u64));
        assert_eq!(check(&dir.path().join("no-cwd"), &[named("gone")]), Ok(()), "said when a turn begins");

        huge.truncate(IMAGE_MAX);
        put("big.png", &huge);
        let three = [named("big.png"), named("big.png"), named("big.png")];
        assert_eq!(check(dir.path(), &three), Err(Refused::TooLargeTogether));
        let taken = read(dir.path(), &three, &mut IMAGES_MAX.clone());
        assert_eq!(taken.iter().map(|t| t.part.is_some()).collect::<Vec<_>>(), [true, true, false]);
        assert!(taken[2].notice.is_some());
    }

    #[test]
    fn inline_data_is_what_it_says_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let asked = |a: Attachment| check(dir.path(), &[a]);
        assert_eq!(asked(data(Some("image/png"), PNG)), Ok(()));
        assert_eq!(asked(data(Some("IMAGE/JPG"), b"\xff\xd8\xff\xe0\0")), Ok(()));
        assert_eq!(asked(data(Some("text/plain; charset=utf-8"), "ä".as_bytes())), Ok(()));
        assert_eq!(asked(data(None, b"text")), Ok(()));
        assert!(matches!(asked(data(Some("image/jpeg"), PNG)), Err(Refused::Mismatch { found: "image/png", .. })));
        assert!(matches!(asked(data(Some("image/png"), b"text")), Err(Refused::Mismatch { found: "text", .. })));
        assert!(matches!(asked(data(Some("image/png"), b"")), Err(Refused::Mismatch { .. })));
        assert!(matches!(asked(data(None, PNG)), Err(Refused::Mismatch { .. })));
        assert!(matches!(asked(data(Some("image/tiff"), b"II*\0")), Err(Refused::Kind { .. })));
        for bad in ["not base64", "QUJ", "QUJD\n", "data:image/png;base64,QUJD", "QUI_"] {
            let a = Attachment { data: Some(bad.into()), media_type: Some("image/png".into()), path: "x".into() };
            assert!(matches!(asked(a), Err(Refused::NotBase64 { .. })), "{bad}");
        }
        let text = read(dir.path(), &[data(None, b"inline words")], &mut IMAGES_MAX.clone()).pop().unwrap();
        assert!(text.text.contains("inline words") && text.part.is_none());
        let pdf = read(dir.path(), &[data(Some("application/pdf"), b"%PDF-1.7 x")], &mut IMAGES_MAX.clone());
        assert!(matches!(pdf[0].part, Some(Part::File { kind: "file", .. })));
    }
}
