//! Keys from the terminal, as they are typed: one thread reads them, and what was typed together stays together.
//!
//! The terminal is left in a mode in which keys arrive at once and are not echoed; [`Keys`] puts the old mode back when
//! it goes, also when the program panics.

use crate::exit::Failure;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C, where the terminal does not turn it into a signal, or Ctrl-D.
    Quit,
    /// Something else.
    Other,
}

/// What was typed at once.
#[derive(Debug, Clone)]
pub struct Typed {
    pub at: Instant,
    pub keys: Vec<Key>,
}

impl Typed {
    /// The key, if it was only one. A paste, or hammered keys, are no answer.
    #[must_use]
    pub fn only(&self) -> Option<Key> {
        match self.keys.as_slice() {
            [key] => Some(*key),
            _ => None,
        }
    }
}

/// The keys of a terminal.
#[derive(Debug)]
pub struct Keys {
    terminal: Arc<OwnedFd>,
    before: Termios,
    typed: mpsc::UnboundedReceiver<Typed>,
    /// Dropping it ends the thread.
    _stop: OwnedFd,
}

impl Keys {
    /// Takes the keys of the terminal that this program belongs to.
    pub fn take() -> Result<Self, Failure> {
        let io = |e: rustix::io::Errno| Failure::io("the terminal's keys cannot be read", &e.into());
        let terminal =
            Arc::new(open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).map_err(io)?);
        let before = tcgetattr(&terminal).map_err(io)?;
        let (wake, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io)?;
        let mut mode = before.clone();
        mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        tcsetattr(&terminal, OptionalActions::Flush, &mode).map_err(io)?;
        let (sender, typed) = mpsc::unbounded_channel();
        let reading = Arc::clone(&terminal);
        std::thread::spawn(move || read_keys(&reading, &wake, &sender));
        Ok(Self { terminal, before, typed, _stop: stop })
    }

    /// What is typed next; nothing any more when the terminal is gone.
    pub async fn next(&mut self) -> Option<Typed> {
        self.typed.recv().await
    }

    /// Forgets what was typed until now.
    pub fn forget(&mut self) {
        // What cannot be thrown away is read, and is too early to count.
        let _unflushed = tcflush(&*self.terminal, QueueSelector::IFlush);
        while self.typed.try_recv().is_ok() {}
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // There is no other way to put it back.
        let _unrestored = tcsetattr(&*self.terminal, OptionalActions::Flush, &self.before);
    }
}

fn read_keys(terminal: &OwnedFd, wake: &OwnedFd, sender: &mpsc::UnboundedSender<Typed>) {
    let mut partial = Vec::new();
    loop {
        let mut ready = [PollFd::new(terminal, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        let mut bytes = [0; 1024];
        match rustix::io::read(terminal, &mut bytes) {
            Ok(0) => return,
            Ok(read) => {
                let at = Instant::now();
                partial.extend_from_slice(&bytes[..read]);
                let keys = parse(&mut partial);
                if !keys.is_empty() && sender.send(Typed { at, keys }).is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// The keys that these bytes are. A character whose end has not come yet is left for the next ones.
fn parse(bytes: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes.as_slice();
    while let [first, tail @ ..] = rest {
        let taken = match (*first, tail) {
            (0x1b, [b'[' | b'O', ..]) => {
                let (key, length) = sequence(rest);
                keys.push(key);
                length
            }
            (0x1b, []) => {
                keys.push(Key::Escape);
                1
            }
            // Alt and a key is no key of ours.
            (0x1b, [_, ..]) => {
                keys.push(Key::Other);
                2
            }
            (b'\r' | b'\n', _) => push(&mut keys, Key::Enter),
            (b'\t', _) => push(&mut keys, Key::Tab),
            (0x7f | 0x08, _) => push(&mut keys, Key::Backspace),
            (0x03 | 0x04, _) => push(&mut keys, Key::Quit),
            (byte, _) if byte < 0x20 => push(&mut keys, Key::Other),
            (byte, _) => {
                let length = match byte {
                    0xc0..=0xdf => 2,
                    0xe0..=0xef => 3,
                    0xf0..=0xf7 => 4,
                    _ => 1,
                };
                let Some(character) = rest.get(..length) else { break };
                let character = std::str::from_utf8(character).ok().and_then(|text| text.chars().next());
                keys.push(character.map_or(Key::Other, Key::Char));
                length
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    *bytes = rest.to_vec();
    keys
}

fn push(keys: &mut Vec<Key>, key: Key) -> usize {
    keys.push(key);
    1
}

/// An escape sequence: its key, and how long it is.
fn sequence(bytes: &[u8]) -> (Key, usize) {
    let end = bytes.iter().skip(2).position(|byte| (0x40..=0x7e).contains(byte));
    let length = end.map_or(bytes.len(), |end| end + 3);
    let key = match bytes.get(2..length).unwrap_or_default() {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"H" | b"1~" => Key::Home,
        b"F" | b"4~" => Key::End,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        _ => Key::Other,
    };
    (key, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys() {
        let keys = |text: &[u8]| parse(&mut text.to_vec());
        assert_eq!(keys(b"y"), [Key::Char('y')]);
        assert_eq!(keys(b"\r\x1b"), [Key::Enter, Key::Escape]);
        assert_eq!(
            keys("\u{1b}[A\u{1b}[6~\u{1b}[1;5Cü".as_bytes()),
            [Key::Up, Key::PageDown, Key::Other, Key::Char('ü')]
        );
        assert_eq!(keys(b"\x03\x7f\x1by\xff"), [Key::Quit, Key::Backspace, Key::Other, Key::Other]);
        let mut cut = "ü".as_bytes()[..1].to_vec();
        assert_eq!(parse(&mut cut), []);
        cut.extend_from_slice(&"ü".as_bytes()[1..]);
        assert_eq!(parse(&mut cut), [Key::Char('ü')]);
    }
}
