//! With and without the index: the same lists, the same hits, whatever happens to files and index.

use super::*;
use crate::host::Paths;
use glrs_protocol::types::Mode;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

struct Home {
    _dir: tempfile::TempDir,
    paths: Paths,
    store: Store,
    /// Grows with each write, so that no two are of the same size.
    writes: usize,
}

impl Home {
    fn new() -> Self {
        let shm = Path::new("/dev/shm");
        let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
        let paths = Paths::scratch(dir.path());
        fs::create_dir_all(&paths.legacy).unwrap();
        let store = Store::open(paths.clone()).unwrap();
        Self { _dir: dir, paths, store, writes: 0 }
    }

    /// The same files, read without an index.
    fn plain(&self) -> Store {
        Store::open_read_only(self.paths.clone())
    }

    fn path(&self, n: u8, legacy: bool) -> PathBuf {
        let dir = if legacy { self.paths.legacy.clone() } else { self.paths.sessions() };
        dir.join(format!("{}.json", id(n)))
    }

    fn write(&mut self, n: u8, legacy: bool, text: &str, minute: u8, dir: u8) {
        self.writes += 1;
        let at = format!("2026-01-01T00:{:02}:00.000Z", minute % 60);
        // Some do tasks of others; which are theirs, and whether those are there, varies.
        let (task, count) = match n % 4 {
            1 => {
                let data = format!("{{\"parent\":\"{}\",\"callId\":\"c\"}}", id(n / 4));
                let line =
                    format!("{{\"type\":\"custom\",\"custom\":\"glrs:parent\",\"data\":{data},\"at\":\"{at}\"}}");
                (format!(",{line}\n"), 4)
            }
            _ => (String::new(), 3),
        };
        let body = format!(
            "{{\"schema\":2,\"id\":\"{}\",\"createdAt\":\"{at}\",\"cwd\":\"/dir{}\",\"events\":[\n\
             {{\"type\":\"user\",\"text\":{},\"at\":\"{at}\"}}\n\
             ,{{\"type\":\"tool\",\"name\":\"{}\",\"at\":\"{at}\"}}\n\
             ,{{\"type\":\"assistant\",\"text\":\"Answer to {n} ÄÖ\",\"at\":\"{at}\"}}\n\
             {task}],\"updatedAt\":\"{at}\",\"contextTokens\":1,\"entries\":{count},\"synced\":90}}",
            id(n),
            dir % 3,
            serde_json::Value::from(text),
            "x".repeat(self.writes),
        );
        fs::write(self.path(n, legacy), body).unwrap();
    }

    /// Lists and searches are the same with and without the index.
    fn compare(&self, live: &[SessionInfo]) {
        let plain = self.plain();
        let filters = [
            Filter::default(),
            Filter { cwd: Some("/dir1/"), ..Filter::default() },
            Filter { title: Some("WORD"), ..Filter::default() },
            Filter { state: Some(StateName::Broken), ..Filter::default() },
            Filter { state: Some(StateName::Idle), cwd: Some("/dir2"), ..Filter::default() },
            Filter { state: Some(StateName::Unloaded), title: Some("i"), ..Filter::default() },
            Filter { children: Children::All, ..Filter::default() },
            Filter { children: Children::Of("aaaa0001"), ..Filter::default() },
        ];
        for f in &filters {
            for (skip, most) in [(0, usize::MAX), (0, 2), (3, 4), (40, 1)] {
                assert_eq!(page(&self.store, live, f, skip, most), page(&plain, live, f, skip, most));
            }
        }
        for needle in ["word", "ÄÖ", "x", "wer to 1", "\"quo\"", "no such text", "words in", "\u{0}ul", "straße"] {
            for cwd in [None, Some("/dir0")] {
                let hits = |s: &Store| {
                    let hits = search(s, live, needle, cwd, 5).into_iter();
                    hits.map(|h| (h.session, h.n, h.excerpt)).collect::<Vec<_>>()
                };
                assert_eq!(hits(&self.store), hits(&plain), "{needle}");
            }
        }
    }
}

fn id(n: u8) -> SessionId {
    format!("aaaa00{n:02x}").parse().unwrap()
}

fn live(n: u8, minute: u8) -> SessionInfo {
    SessionInfo {
        sandbox: None,
        id: id(n),
        title: format!("live words {n}"),
        renamed: false,
        cwd: format!("/dir{}", n % 3),
        created_at: String::new(),
        updated_at: format!("2026-01-01T00:{:02}:00.000Z", minute % 60),
        entries: 1,
        model: String::new(),
        variant: None,
        mode: Mode::Ask,
        state: StateName::Idle,
        needs_you: false,
        clients: 1,
        queued: 0,
        context_tokens: 0,
        window: 0,
        saved: true,
        parent: (n % 4 == 2).then(|| id(n / 4).to_string()),
        child: n % 4 == 2,
        why: None,
        legacy: false,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { n: u8, legacy: bool, text: String, minute: u8, dir: u8 },
    Own { n: u8, text: String },
    Break(u8),
    Remove(u8),
    Live(u8, u8),
    DropIndex,
    Damage(u32, u8),
    Cut(u32),
    Rest,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = || prop_oneof![3 => "[a-z ]{0,12}( words? in)?", 1 => Just("a \"quoted\" \u{0}ul Straße".to_owned())];
    let n = 0..12u8;
    let step = prop_oneof![
        8 => (n.clone(), any::<bool>(), text(), any::<u8>(), any::<u8>())
            .prop_map(|(n, legacy, text, minute, dir)| Step::Write { n, legacy, text, minute, dir }),
        3 => (n.clone(), text()).prop_map(|(n, text)| Step::Own { n, text }),
        1 => n.clone().prop_map(Step::Break),
        2 => n.clone().prop_map(Step::Remove),
        1 => (n, any::<u8>()).prop_map(|(n, m)| Step::Live(n, m)),
        1 => Just(Step::DropIndex),
        1 => (any::<u32>(), any::<u8>()).prop_map(|(at, b)| Step::Damage(at, b)),
        1 => any::<u32>().prop_map(Step::Cut),
        2 => Just(Step::Rest),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_index_changes_nothing_but_the_time_it_takes(steps in steps()) {
        let mut home = Home::new();
        let mut in_memory: Vec<SessionInfo> = Vec::new();
        for step in steps {
            let index = home.paths.index();
            match step {
                Step::Write { n, legacy, text, minute, dir } => home.write(n, legacy, &text, minute, dir),
                Step::Own { n, text } => {
                    let mut log = home.store.load(&id(n)).unwrap_or_else(|_| home.store.create(&id(n), "/dir1", "t"));
                    let at = "2026-01-01T01:00:00.000Z";
                    let entry = Entry::User(entry::User { text, at: at.into(), ..entry::User::default() });
                    // A damaged file may refuse; then nothing changed.
                    let _ = log.append(&[entry.to_raw().unwrap()], None);
                    home.store.index_touched(&id(n));
                }
                Step::Break(n) => fs::write(home.path(n, false), "no session").unwrap(),
                Step::Remove(n) => { let _ = home.store.delete(&id(n)); }
                Step::Live(n, minute) => {
                    in_memory.retain(|i| i.id != id(n));
                    in_memory.push(live(n, minute));
                }
                Step::DropIndex => { let _ = fs::remove_file(&index); }
                Step::Damage(at, b) => {
                    home.store.index_rest();
                    if let Ok(mut bytes) = fs::read(&index) {
                        // A page, as a failing disk loses it.
                        let from = at as usize % bytes.len() / 4096 * 4096;
                        let to = (from + 4096).min(bytes.len());
                        bytes[from..to].fill(b);
                        fs::write(&index, bytes).unwrap();
                    }
                }
                Step::Cut(at) => {
                    home.store.index_rest();
                    if let Ok(bytes) = fs::read(&index) {
                        fs::write(&index, &bytes[..at as usize % (bytes.len() + 1)]).unwrap();
                    }
                }
                Step::Rest => home.store.index_rest(),
                Step::Restart => {
                    home.store.index_rest();
                    let paths = home.paths.clone();
                    home.store = home.plain();
                    home.store = Store::open(paths).unwrap();
                }
            }
            home.compare(&in_memory);
        }
        home.store.index_rest();
        home.compare(&in_memory);
    }
}

#[test]
fn the_index_answers_once_it_is_filled_and_leaves_no_trace_of_nothing() {
    let mut home = Home::new();
    home.compare(&[]);
    home.store.index_rest();
    assert!(!home.paths.index().exists());
    for n in 0..12 {
        home.write(n, n % 4 == 0, "some words in here", n, n);
    }
    home.compare(&[]);
    home.store.index_rest();
    let want = Want { most: 3, children: Children::All, ..Want::default() };
    let (slots, total) = home.store.list_page(&want).unwrap();
    assert_eq!((slots.len(), total), (3, 12));
    let found = home.store.search_index("wer to 11 ä", None).unwrap();
    assert_eq!(found.into_iter().map(|c| c.entries).collect::<Vec<_>>(), [Some(vec![3])]);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(home.paths.index()).unwrap().permissions().mode() & 0o777, 0o600);
    home.store.index_rest();
    let beside = home.paths.root.join("index.sqlite-wal");
    assert!(!beside.exists() || fs::metadata(beside).unwrap().permissions().mode() & 0o777 == 0o600);
}

#[test]
fn texts_that_a_daemon_before_left_out_are_filled_in() {
    let mut home = Home::new();
    home.write(1, false, "some words in here", 1, 1);
    home.compare(&[]);
    home.store.index_rest();
    rusqlite::Connection::open(home.paths.index()).unwrap().execute("UPDATE session SET texts = 0", []).unwrap();
    let paths = home.paths.clone();
    home.store = home.plain();
    home.store = Store::open(paths).unwrap();
    let entries = || home.store.search_index("words", None).map(|c| c[0].entries.clone());
    // The store's own thread fills it at its leisure: until then its log is read, never "no hit".
    let soon = entries();
    assert!(matches!(soon, None | Some(None)) || soon == Some(Some(vec![1])), "{soon:?}");
    home.store.index_rest();
    assert_eq!(entries(), Some(Some(vec![1])));
}

#[test]
fn an_index_that_cannot_be_written_costs_nothing_but_time() {
    let mut home = Home::new();
    home.write(1, false, "some words in here", 1, 1);
    // A directory in its place: it can neither be opened nor deleted.
    fs::create_dir_all(home.paths.index().join("x")).unwrap();
    home.compare(&[]);
    home.store.index_rest();
    home.compare(&[]);
}
