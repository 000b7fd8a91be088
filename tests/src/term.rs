//! A person's terminal: a pseudo-terminal with `glrs` in it and a screen that can be read.
//!
//! Owns the reader thread, the parsed screen, what has scrolled off it, and the answers a real
//! terminal gives to queries (cursor position, device attributes). Waits are woken by output.

use crate::exe;
use crate::home::Home;
use crate::process::Proc;
use crate::wait::{PATIENCE, Watched};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Writer = Arc<Mutex<Option<Box<dyn Write + Send>>>>;

/// A terminal with `glrs` running in it. Dropping it hangs up and ends that `glrs`.
pub struct Term {
    screen: Arc<Watched<Screen>>,
    writer: Writer,
    master: Option<Box<dyn MasterPty + Send>>,
    child: Box<dyn Child + Send + Sync>,
    process: Proc,
}

struct Screen {
    parser: vt100::Parser,
    scan: Scan,
    scrolled: Vec<String>,
    raw: Vec<u8>,
    closed: bool,
}

impl Term {
    /// Starts `glrs ARGS` in a terminal of `cols` × `rows`, in the home's working directory.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(home: &Home, args: &[&str], cols: u16, rows: u16) -> Self {
        Self::spawn_in(home, &home.work(), args, cols, rows)
    }

    /// Starts it in another directory.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn_in(home: &Home, cwd: &Path, args: &[&str], cols: u16, rows: u16) -> Self {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(exe());
        command.args(args);
        command.env_clear();
        for (name, value) in home.env() {
            command.env(name, value);
        }
        command.cwd(cwd);
        let child = pair.slave.spawn_command(command).expect("the glrs executable");
        drop(pair.slave);
        let pid = child.process_id().expect("a process id");
        let process = Proc::open(pid).expect("a child can be waited for");
        let mut output = pair.master.try_clone_reader().expect("the terminal's output");
        let writer: Writer = Arc::new(Mutex::new(Some(pair.master.take_writer().expect("the terminal's input"))));
        let screen = Arc::new(Watched::new(Screen {
            parser: vt100::Parser::new(rows, cols, 0),
            scan: Scan::default(),
            scrolled: Vec::new(),
            raw: Vec::new(),
            closed: false,
        }));
        let (shared, answers) = (Arc::clone(&screen), Arc::clone(&writer));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                let say = shared.update(|s| s.take(&bytes[..n]));
                if !say.is_empty() {
                    write(&answers, &say);
                }
            }
            shared.update(|s| s.closed = true);
        });
        Self { screen, writer, master: Some(pair.master), child, process }
    }

    /// Types.
    pub fn send(&self, keys: &str) {
        write(&self.writer, keys.as_bytes());
    }

    /// Types a line and presses enter.
    pub fn enter(&self, line: &str) {
        self.send(line);
        self.send("\r");
    }

    /// Waits until the screen's text fits, and returns it.
    ///
    /// # Panics
    /// When it does not in time; everything shown is printed.
    #[track_caller]
    pub fn wait_for(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let look = |s: &mut Screen| Some(s.parser.screen().contents()).filter(|text| fits(text));
        self.screen.wait_for(PATIENCE, look).unwrap_or_else(|| self.fail(what))
    }

    /// Waits until everything ever shown (scrolled off or on the screen) fits, and returns it.
    ///
    /// # Panics
    /// When it does not in time; everything shown is printed.
    #[track_caller]
    pub fn wait_text(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let look = |s: &mut Screen| Some(s.all()).filter(|text| fits(text));
        self.screen.wait_for(PATIENCE, look).unwrap_or_else(|| self.fail(what))
    }

    #[track_caller]
    fn fail<T>(&self, what: &str) -> T {
        let screen = self.screen.lock();
        panic!("waited in vain for: {what}; closed: {}; shown:\n{}", screen.closed, screen.all());
    }

    /// What is on the screen.
    pub fn screen_text(&self) -> String {
        self.screen.lock().parser.screen().contents()
    }

    /// What has scrolled off, then what is on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().all()
    }

    /// Every byte that came.
    pub fn raw(&self) -> Vec<u8> {
        self.screen.lock().raw.clone()
    }

    /// Process id of the `glrs` in it.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Changes the size.
    ///
    /// # Panics
    /// When the terminal is closed.
    pub fn resize(&self, cols: u16, rows: u16) {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        self.screen.update(|s| s.parser.screen_mut().set_size(rows, cols));
        self.master.as_ref().expect("an open terminal").resize(size).expect("a resize");
    }

    /// Waits until `glrs` has ended by itself and returns its exit code.
    ///
    /// # Panics
    /// When it has not after `timeout`.
    #[track_caller]
    pub fn wait_exit(&mut self, timeout: Duration) -> u32 {
        if !self.process.wait(timeout) {
            return self.fail("glrs to end");
        }
        self.child.wait().expect("an exit status").exit_code()
    }

    /// Closes the terminal under it, as closing a window does.
    pub fn hang_up(&mut self) {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.process.signal(Signal::HUP);
        self.master.take();
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE);
        let _ = self.child.wait();
    }
}

fn write(to: &Writer, bytes: &[u8]) {
    if let Some(writer) = to.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        // A glrs that has ended takes nothing; whoever waits for an effect says so.
        let _ = writer.write_all(bytes).and_then(|()| writer.flush());
    }
}

impl Screen {
    /// Parses output and returns what a terminal answers to it.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.raw.extend_from_slice(bytes);
        let mut say = Vec::new();
        for byte in bytes {
            let control = self.scan.byte(*byte);
            let rows = self.parser.screen().size().0;
            let bottom = self.scan.region.map_or(rows, |(_, b)| b);
            let top = self.scan.region.map_or(1, |(t, _)| t);
            let lost = match control {
                Control::ScrollUp(n) if top == 1 => n,
                Control::LineFeed if top == 1 && self.parser.screen().cursor_position().0 + 1 == bottom => 1,
                _ => 0,
            };
            if lost > 0 && !self.parser.screen().alternate_screen() {
                let width = self.parser.screen().size().1;
                let gone: Vec<String> = self.parser.screen().rows(0, width).take(lost.into()).collect();
                self.scrolled.extend(gone);
            }
            self.parser.process(std::slice::from_ref(byte));
            match control {
                Control::AskCursor => {
                    let (row, col) = self.parser.screen().cursor_position();
                    say.extend(format!("\x1b[{};{}R", row + 1, col + 1).into_bytes());
                }
                Control::AskDevice => say.extend(b"\x1b[?62;c"),
                _ => {}
            }
        }
        say
    }

    fn all(&self) -> String {
        let mut text = self.scrolled.join("\n");
        text.push('\n');
        text.push_str(&self.parser.screen().contents());
        text
    }
}

/// What a byte completes, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Nothing,
    LineFeed,
    ScrollUp(u16),
    AskCursor,
    AskDevice,
}

#[derive(Debug, Default)]
enum At {
    #[default]
    Ground,
    Escape,
    Csi,
    /// Inside OSC, DCS and the like: up to BEL or ESC.
    Text,
}

/// Follows just enough of the control language to know what scrolls off the top. The screen parser
/// forgets lines that leave a scroll region which starts at the top; a real terminal keeps them.
#[derive(Debug, Default)]
struct Scan {
    at: At,
    params: String,
    /// Top and bottom of the scroll region, from 1, while one is set.
    region: Option<(u16, u16)>,
}

impl Scan {
    fn byte(&mut self, byte: u8) -> Control {
        match (&self.at, byte) {
            (_, 0x1b) => {
                self.at = At::Escape;
                Control::Nothing
            }
            (At::Escape, b'[') => {
                self.params.clear();
                self.at = At::Csi;
                Control::Nothing
            }
            (At::Escape, b']' | b'P' | b'_' | b'^' | b'X') => {
                self.at = At::Text;
                Control::Nothing
            }
            (At::Escape, _) | (At::Text, 0x07) => {
                self.at = At::Ground;
                Control::Nothing
            }
            (At::Csi, 0x40..=0x7e) => {
                self.at = At::Ground;
                self.csi(byte)
            }
            (At::Csi, _) => {
                self.params.push(char::from(byte));
                Control::Nothing
            }
            (At::Ground, b'\n') => Control::LineFeed,
            _ => Control::Nothing,
        }
    }

    fn csi(&mut self, last: u8) -> Control {
        let number = |text: Option<&str>| text.and_then(|t| t.parse::<u16>().ok());
        let mut parts = self.params.split(';');
        match last {
            b'r' => {
                let (top, bottom) = (number(parts.next()), number(parts.next()));
                self.region = bottom.map(|b| (top.unwrap_or(1).max(1), b));
                Control::Nothing
            }
            b'S' => Control::ScrollUp(number(parts.next()).unwrap_or(1).max(1)),
            b'n' if self.params == "6" => Control::AskCursor,
            b'c' if self.params.is_empty() || self.params == "0" => Control::AskDevice,
            _ => Control::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen() -> Screen {
        Screen {
            parser: vt100::Parser::new(3, 10, 0),
            scan: Scan::default(),
            scrolled: Vec::new(),
            raw: Vec::new(),
            closed: false,
        }
    }

    #[test]
    fn lines_that_leave_at_the_top_are_kept() {
        let mut plain = screen();
        plain.take(b"a\r\nb\r\nc\r\nd");
        assert_eq!(plain.all(), "a\nb\nc\nd");
        let mut region = screen();
        region.take(b"a\r\nb\r\nbox\x1b[1;2r\x1b[2S\x1b[r\x1b[1;1Hc");
        assert_eq!(region.scrolled, ["a", "b"]);
        assert_eq!(region.parser.screen().contents(), "c\n\nbox");
    }

    #[test]
    fn queries_are_answered_as_a_terminal_does() {
        assert_eq!(screen().take(b"ab\x1b[6n"), b"\x1b[1;3R");
        assert_eq!(screen().take(b"\x1b[?u\x1b[c\x1b]0;title\x07"), b"\x1b[?62;c");
    }

    #[test]
    fn a_program_in_the_terminal_is_typed_to_and_read() {
        crate::set_exe("/bin/sh");
        let home = Home::new();
        let script = "printf 'name? '; read -r name; echo \"hello $name in $(stty size)\"; exit 3";
        let mut term = Term::spawn(&home, &["-c", script], 40, 10);
        term.wait_for("the question", |t| t.contains("name?"));
        term.enter("ann");
        term.wait_text("the answer", |t| t.contains("hello ann in 10 40"));
        assert_eq!(term.wait_exit(PATIENCE), 3);
    }

    #[test]
    fn hanging_up_ends_the_program() {
        crate::set_exe("/bin/sh");
        let home = Home::new();
        let mut term = Term::spawn(&home, &["-c", "echo up; read -r line"], 40, 10);
        term.wait_for("it runs", |t| t.contains("up"));
        term.hang_up();
        term.wait_exit(PATIENCE);
    }
}
