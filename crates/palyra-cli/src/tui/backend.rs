//! The terminal that the screen is drawn on, by the few sequences that every terminal knows.
//!
//! Keys are read elsewhere, so that drawing is all it does. What it draws was made safe before: cells hold single
//! characters.

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Error, Write as _};

/// A terminal.
#[derive(Debug)]
pub struct AnsiBackend {
    tty: File,
    /// What is written with the next flush.
    out: String,
}

/// The full screen, without a cursor.
pub const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// The screen that was there before, with its cursor.
pub const LEAVE: &str = "\x1b[0m\x1b[?1049l\x1b[?25h";

impl AnsiBackend {
    pub fn new(tty: File) -> Self {
        Self { tty, out: String::new() }
    }

    fn put(&mut self, sequence: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _infallible = self.out.write_fmt(sequence);
    }
}

impl Backend for AnsiBackend {
    type Error = Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> Result<(), Error> {
        for (x, y, cell) in content {
            let colour = match cell.fg {
                Color::Red => 31,
                Color::Green => 32,
                Color::Yellow => 33,
                Color::Cyan => 36,
                _ => 39,
            };
            self.put(format_args!("\x1b[{};{}H\x1b[0;{colour}m", y + 1, x + 1));
            for (modifier, code) in [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)] {
                if cell.modifier.contains(modifier) {
                    self.put(format_args!("\x1b[{code}m"));
                }
            }
            self.put(format_args!("{}", cell.symbol()));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Error> {
        self.put(format_args!("\x1b[?25l"));
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Error> {
        self.put(format_args!("\x1b[?25h"));
        Ok(())
    }

    /// The screen is full, so that nothing depends on where the cursor was.
    fn get_cursor_position(&mut self) -> Result<Position, Error> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Error> {
        let Position { x, y } = position.into();
        self.put(format_args!("\x1b[{};{}H", y + 1, x + 1));
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> Result<(), Error> {
        self.put(format_args!(
            "{}",
            match region {
                ClearType::All => "\x1b[0m\x1b[2J",
                ClearType::AfterCursor => "\x1b[0J",
                ClearType::BeforeCursor => "\x1b[1J",
                ClearType::CurrentLine => "\x1b[2K",
                ClearType::UntilNewLine => "\x1b[0K",
            }
        ));
        Ok(())
    }

    fn size(&self) -> Result<Size, Error> {
        let size = rustix::termios::tcgetwinsize(&self.tty)?;
        Ok(Size::new(size.ws_col.max(1), size.ws_row.max(1)))
    }

    fn window_size(&mut self) -> Result<WindowSize, Error> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::new(0, 0) })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.tty.write_all(std::mem::take(&mut self.out).as_bytes())?;
        self.tty.flush()
    }
}
