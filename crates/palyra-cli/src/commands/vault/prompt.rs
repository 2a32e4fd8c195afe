//! Asking a person on the terminal, without showing what they type.

use crate::exit::{FAILED, Failure};
use crate::output::note;
use palyra_protocol::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};

/// A terminal that does not show what is typed. It shows it again when this is dropped.
struct Quiet<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Quiet<'t> {
    fn new(terminal: &'t File) -> std::io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        quiet.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(self.terminal, OptionalActions::Flush, &self.before) {
            note!("the terminal does not show what you type; `stty echo` mends it: {error}");
        }
    }
}

fn terminal() -> Result<File, Failure> {
    let opened = File::options().read(true).write(true).open("/dev/tty");
    opened.map_err(|e| Failure::io("there is no terminal to ask on", &e))
}

fn asked(question: &str) -> Result<Secret, Failure> {
    let failed = |e: std::io::Error| Failure::io("the terminal", &e);
    let mut tty = terminal()?;
    write!(tty, "{question}: ").and_then(|()| tty.flush()).map_err(failed)?;
    let quiet = Quiet::new(&tty).map_err(failed)?;
    let mut line = Vec::new();
    BufReader::new(quiet.terminal).read_until(b'\n', &mut line).map_err(failed)?;
    while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(Secret::new(line))
}

/// Asks once.
pub fn once(what: &str) -> Result<Secret, Failure> {
    asked(what)
}

/// Asks twice: nobody sees a typing error.
pub fn twice(what: &str) -> Result<Secret, Failure> {
    let first = asked(what)?;
    let again = asked("the same again")?;
    if first.expose() == again.expose() {
        Ok(first)
    } else {
        Err(Failure::new(FAILED, "not_the_same", "the two are not the same; nothing was changed", None))
    }
}

/// Whether a person says yes.
pub fn confirmed(question: &str) -> Result<bool, Failure> {
    let failed = |e: std::io::Error| Failure::io("the terminal", &e);
    let mut tty = terminal()?;
    write!(tty, "{question} Type `yes`: ").and_then(|()| tty.flush()).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(&tty).read_line(&mut line).map_err(failed)?;
    Ok(line.trim() == "yes")
}
