//! A real pseudo-terminal with one of our programs on it: what is typed, what is seen, and how large it is.

use crate::{Host, PATIENCE};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What the program has written so far.
#[derive(Default)]
struct Written {
    /// Without what moves or colours.
    text: String,
    /// The screen as it is now.
    screen: Option<vt100::Parser>,
    bells: usize,
    ended: bool,
}

/// A program on a terminal. It dies with this.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    child: Child,
    written: Arc<(Mutex<Written>, Condvar)>,
    /// How far what was written has been looked at.
    seen: usize,
}

impl Terminal {
    /// Starts `palyra` on a terminal of so many columns and rows.
    #[must_use]
    pub fn start(host: &Host, args: &[&str], (columns, rows): (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("it can be granted");
        unlockpt(&master).expect("it can be unlocked");
        let name = ptsname(&master, Vec::new()).expect("it has a name").into_string().expect("of text");
        let open = || File::options().read(true).write(true).open(&name).expect("the terminal opens");
        resize(&master, columns, rows);
        // `setsid --ctty` makes it the terminal that the program belongs to.
        let program = host.command("palyra");
        let mut command = std::process::Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program.get_program()).args(program.get_args()).args(args);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("XDG_CACHE_HOME");
        let child = command
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()))
            .spawn()
            .expect("`setsid` is installed");
        let written = Arc::new((Mutex::new(Written::default()), Condvar::new()));
        written.0.lock().expect("no panic").screen = Some(vt100::Parser::new(some(rows), some(columns), 0));
        let reading = File::from(master.try_clone().expect("another handle"));
        let into = Arc::clone(&written);
        std::thread::spawn(move || collect(reading, &into));
        Self { master: File::from(master), child, written, seen: 0 }
    }

    /// Waits until this is written, after all that was seen before; then that has been seen too.
    pub fn sees(&mut self, text: &str) {
        let found = self.wait(|written, seen| {
            written.text.get(seen..).and_then(|rest| rest.find(text)).map(|at| seen + at + text.len())
        });
        self.seen = found.unwrap_or_else(|all| panic!("`{text}` was not seen after {}:\n{all}", self.seen));
    }

    /// Waits until this is on the screen as it is now.
    pub fn shows(&self, text: &str) {
        let on_screen = |written: &Written, _| written.screen().contains(text).then_some(());
        if let Err(all) = self.wait(on_screen) {
            panic!("`{text}` is not on the screen:\n{}\nall of it:\n{all}", self.screen());
        }
    }

    /// The screen as it is now.
    #[must_use]
    pub fn screen(&self) -> String {
        self.written.0.lock().expect("no panic").screen()
    }

    /// All that was written until now.
    #[must_use]
    pub fn text(&self) -> String {
        self.written.0.lock().expect("no panic").text.clone()
    }

    /// Whether the terminal was asked to ring.
    #[must_use]
    pub fn rang(&self) -> bool {
        self.written.0.lock().expect("no panic").bells > 0
    }

    fn wait<T>(&self, fits: impl Fn(&Written, usize) -> Option<T>) -> Result<T, String> {
        let until = Instant::now() + PATIENCE;
        let (lock, news) = &*self.written;
        let mut written = lock.lock().expect("no panic");
        loop {
            if let Some(found) = fits(&written, self.seen) {
                return Ok(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if written.ended || left == Duration::ZERO {
                return Err(written.text.clone());
            }
            written = news.wait_timeout(written, left).expect("no panic").0;
        }
    }

    /// Whether the program has the whole screen for itself now.
    #[must_use]
    pub fn is_full_screen(&self) -> bool {
        self.written.0.lock().expect("no panic").is_full()
    }

    /// Waits until the program has given the screen back.
    pub fn left_full_screen(&self) {
        let left = self.wait(|written, _| (!written.is_full()).then_some(()));
        assert!(left.is_ok() || !self.is_full_screen(), "the screen was not given back");
    }

    /// Types.
    pub fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("the terminal takes it");
    }

    /// Makes the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        if let Some(screen) = &mut self.written.0.lock().expect("no panic").screen {
            screen.screen_mut().set_size(some(rows), some(columns));
        }
        resize(&self.master, columns, rows);
    }

    /// Waits for the program's end; its exit code.
    #[must_use]
    pub fn ends(mut self) -> i32 {
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Written").field("text", &self.text).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Written {
    fn is_full(&self) -> bool {
        self.screen.as_ref().is_some_and(|screen| screen.screen().alternate_screen())
    }

    fn screen(&self) -> String {
        self.screen.as_ref().map(|screen| screen.screen().contents()).unwrap_or_default()
    }
}

fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a terminal has columns and rows")
}

fn resize(master: &impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("a terminal has a size");
}

fn collect(mut from: File, into: &(Mutex<Written>, Condvar)) {
    let mut bytes = [0; 4096];
    let mut raw = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        raw.extend_from_slice(&bytes[..read]);
        let mut written = into.0.lock().expect("no panic");
        if let Some(screen) = &mut written.screen {
            screen.process(&bytes[..read]);
        }
        written.bells += bytes[..read].iter().filter(|byte| **byte == 0x07).count();
        let (text, rest) = plain(&raw);
        written.text.push_str(&text);
        drop(written);
        raw = rest;
        into.1.notify_all();
    }
    into.0.lock().expect("no panic").ended = true;
    into.1.notify_all();
}

/// What people read of it, and what has not come whole yet.
fn plain(raw: &[u8]) -> (String, Vec<u8>) {
    let mut text = Vec::new();
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        if *byte != 0x1b {
            text.push(*byte);
            at += 1;
            continue;
        }
        let end = match raw.get(at + 1) {
            Some(b'[') => raw.iter().skip(at + 2).position(|b| (0x40..=0x7e).contains(b)).map(|n| at + 3 + n),
            Some(b']') => raw.iter().skip(at + 2).position(|b| matches!(b, 0x07 | b'\\')).map(|n| at + 3 + n),
            Some(_) => Some(at + 2),
            None => None,
        };
        match end {
            Some(end) => at = end,
            None => break,
        }
    }
    // A character may be cut in two as well.
    let valid = match std::str::from_utf8(&text) {
        Err(error) if error.error_len().is_none() && at >= raw.len() => error.valid_up_to(),
        _ => text.len(),
    };
    let mut rest = text.split_off(valid);
    rest.extend_from_slice(raw.get(at..).unwrap_or_default());
    (String::from_utf8_lossy(&text).into_owned(), rest)
}
