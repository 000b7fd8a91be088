//! The terminal itself: modes, the lines at the bottom, and what goes into its scrollback.
//!
//! Owns every byte that is written to the terminal and its state before and after. Must not know
//! what is shown.

use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange, KeyboardEnhancementFlags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Size};
use ratatui::style::Color;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{self, Stdout, Write as _};
use std::sync::Once;

/// Lines given to the terminal in one piece.
const CHUNK: usize = 200;

/// A backend that knows where the cursor and how large the terminal is, instead of asking: the
/// terminal's answers would have to be picked from between the keys.
struct Tracked {
    inner: CrosstermBackend<Stdout>,
    cursor: Position,
    size: Size,
}

impl Tracked {
    fn new(cursor: Position, size: Size) -> Self {
        Self { inner: CrosstermBackend::new(io::stdout()), cursor, size }
    }
}

impl Backend for Tracked {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.inner.draw(content)
    }

    fn append_lines(&mut self, n: u16) -> io::Result<()> {
        self.inner.append_lines(n)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.inner.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        self.inner.set_cursor_position(self.cursor)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.inner.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.inner.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.inner)
    }

    fn scroll_region_up(&mut self, region: std::ops::Range<u16>, n: u16) -> io::Result<()> {
        self.inner.scroll_region_up(region, n)
    }

    fn scroll_region_down(&mut self, region: std::ops::Range<u16>, n: u16) -> io::Result<()> {
        self.inner.scroll_region_down(region, n)
    }
}

/// Puts the terminal into the modes we need, and back when it is dropped or the program panics.
pub struct Modes(());

impl Modes {
    /// Sets the modes.
    ///
    /// # Errors
    /// When this is no terminal.
    pub fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
            }));
        });
        enable_raw_mode()?;
        let modes = Self(());
        // 22;2t keeps the title for later.
        io::stdout().write_all(b"\x1b[22;2t")?;
        execute!(
            io::stdout(),
            EnableBracketedPaste,
            EnableFocusChange,
            PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES)
        )?;
        Ok(modes)
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back. What cannot be written any more does not matter any more.
fn restore() {
    let mut out = io::stdout();
    let _ = execute!(
        out,
        EndSynchronizedUpdate,
        PopKeyboardEnhancementFlags,
        DisableFocusChange,
        DisableBracketedPaste,
        crossterm::cursor::Show
    );
    let _ = out.write_all(b"\x1b[23;2t").and_then(|()| out.flush());
    let _ = disable_raw_mode();
}

/// The terminal in use: a few lines at the bottom, everything else in its scrollback.
pub struct Screen {
    terminal: Terminal<Tracked>,
    height: u16,
    size: Size,
    colour: bool,
    tmux: bool,
    title: String,
}

impl Screen {
    /// Takes the place where the cursor is. The modes have to be set, and nobody may read keys
    /// yet: the terminal is asked where its cursor is.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn new(colour: bool, tmux: bool) -> io::Result<Self> {
        let (columns, rows) = crossterm::terminal::size()?;
        let size = Size::new(columns.max(4), rows.max(2));
        // A terminal that does not tell where its cursor is gets the bottom of the screen.
        let (x, mut y) = crossterm::cursor::position().unwrap_or((0, size.height - 1));
        if x > 0 {
            io::stdout().write_all(b"\r\n")?;
            y += 1;
        }
        let at = Position::new(0, y.min(size.height - 1));
        let height = 3.min(size.height - 1);
        Ok(Self { terminal: inline(at, size, height)?, height, size, colour, tmux, title: String::new() })
    }

    /// Columns and rows.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Writes lines above the bottom ones, once, and then draws the bottom ones.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn show(&mut self, above: &[Line<'_>], bottom: &[Line<'_>], cursor: Option<(u16, u16)>) -> io::Result<()> {
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        let wanted = u16::try_from(bottom.len()).unwrap_or(u16::MAX).clamp(1, self.size.height - 1);
        self.set_height(wanted)?;
        self.insert(above)?;
        let colour = self.colour;
        self.terminal.draw(|frame| {
            let area = frame.area();
            for (line, y) in bottom.iter().zip(area.y..area.bottom()) {
                frame.buffer_mut().set_line(area.x, y, line, area.width);
            }
            if !colour {
                uncolour(frame.buffer_mut());
            }
            if let Some((row, column)) = cursor {
                let x = (area.x + column).min(area.right().saturating_sub(1));
                let y = (area.y + row).min(area.bottom().saturating_sub(1));
                frame.set_cursor_position(Position::new(x, y));
            }
        })?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    fn insert(&mut self, lines: &[Line<'_>]) -> io::Result<()> {
        for chunk in lines.chunks(CHUNK) {
            let colour = self.colour;
            self.terminal.insert_before(chunk.len() as u16, |buffer: &mut Buffer| {
                let area = buffer.area;
                for (line, y) in chunk.iter().zip(area.y..) {
                    buffer.set_line(area.x, y, line, area.width);
                }
                if !colour {
                    uncolour(buffer);
                }
            })?;
        }
        Ok(())
    }

    fn top(&mut self) -> u16 {
        self.terminal.get_frame().area().y
    }

    fn set_height(&mut self, height: u16) -> io::Result<()> {
        if height == self.height {
            return Ok(());
        }
        let at = Position::new(0, self.top());
        let mut backend = Tracked::new(at, self.size);
        backend.set_cursor_position(at)?;
        backend.clear_region(ClearType::AfterCursor)?;
        self.terminal = inline(at, self.size, height)?;
        self.height = height;
        Ok(())
    }

    /// Begins anew on a cleared screen of this size. Terminals reflow what is on the screen each
    /// in their own way; drawing all of it again is the one thing that is right in all of them.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn restart(&mut self, columns: u16, rows: u16) -> io::Result<()> {
        self.size = Size::new(columns.max(4), rows.max(2));
        let at = Position::new(0, 0);
        let mut backend = Tracked::new(at, self.size);
        backend.set_cursor_position(at)?;
        backend.clear_region(ClearType::AfterCursor)?;
        self.height = self.height.min(self.size.height - 1);
        self.terminal = inline(at, self.size, self.height)?;
        Ok(())
    }

    /// Draws a whole screen of its own, leaving the other as it is. Dropping it ends it.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn full(colour: bool) -> io::Result<Full> {
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(Full { colour })
    }

    /// The title of the terminal's window.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn set_title(&mut self, title: &str) -> io::Result<()> {
        let title = crate::text::one_line(title);
        if title == self.title {
            return Ok(());
        }
        let mut out = io::stdout();
        write!(out, "\x1b]2;{title}\x07")?;
        self.title = title;
        out.flush()
    }

    /// Calls for attention: the bell, and a notification where the terminal has them.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn notify(&self, words: &str) -> io::Result<()> {
        let words = crate::text::one_line(words);
        let mut out = io::stdout();
        if self.tmux {
            write!(out, "\x1bPtmux;\x1b\x1b]9;{words}\x07\x1b\\\x07")?;
        } else {
            write!(out, "\x1b]9;{words}\x07\x07")?;
        }
        out.flush()
    }

    /// Clears the bottom lines and leaves the cursor where they began.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn finish(mut self) -> io::Result<()> {
        let at = Position::new(0, self.top());
        let mut backend = Tracked::new(at, self.size);
        backend.set_cursor_position(at)?;
        backend.clear_region(ClearType::AfterCursor)?;
        Backend::flush(&mut backend)
    }
}

/// A whole screen of its own, until it is dropped.
pub struct Full {
    colour: bool,
}

impl Full {
    /// Draws lines from the top, with the cursor at a row and column.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn show(&mut self, lines: &[Line<'_>], cursor: (u16, u16)) -> io::Result<()> {
        let (columns, rows) = crossterm::terminal::size()?;
        let area = ratatui::layout::Rect::new(0, 0, columns, rows);
        let mut buffer = Buffer::empty(area);
        for (line, y) in lines.iter().zip(0..rows) {
            line.render(ratatui::layout::Rect::new(0, y, columns, 1), &mut buffer);
        }
        if !self.colour {
            uncolour(&mut buffer);
        }
        let mut backend = CrosstermBackend::new(io::stdout());
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        backend.clear_region(ClearType::All)?;
        backend.draw(Buffer::empty(area).diff(&buffer).into_iter())?;
        backend.set_cursor_position(Position::new(cursor.1, cursor.0))?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen);
    }
}

fn inline(at: Position, size: Size, height: u16) -> io::Result<Terminal<Tracked>> {
    let options = TerminalOptions { viewport: Viewport::Inline(height) };
    let mut backend = Tracked::new(at, size);
    backend.set_cursor_position(at)?;
    Terminal::with_options(backend, options)
}

/// Takes the colours out; bold, dim and reversed stay.
fn uncolour(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.fg = Color::Reset;
        cell.bg = Color::Reset;
    }
}
