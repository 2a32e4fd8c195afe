//! The log of one call: lines that the guest writes, and what it prints to its standard output and error.

use crate::error::Stop;
use crate::limits::Limit;
use serde::{Deserialize, Serialize};

/// What a line costs beside its text, so that empty lines are not free.
const LINE_COST: u64 = 16;

/// How much a line matters, or where it was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// For the author.
    Debug,
    /// For whoever reads along.
    Info,
    /// Something is odd.
    Warning,
    /// Something failed.
    Error,
    /// A line of standard output.
    Stdout,
    /// A line of standard error.
    Stderr,
}

/// One line. Its text is the guest's: show it with `palyra_protocol::display`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// What it says.
    pub text: String,
}

/// Which of the two streams of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The log, bounded.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Vec<LogLine>,
    /// The lines of the two streams that have not ended yet.
    open: [Vec<u8>; 2],
    used: u64,
    limit: u64,
}

impl Log {
    pub(crate) fn new(limit: u64) -> Self {
        Self { lines: Vec::new(), open: [Vec::new(), Vec::new()], used: 0, limit }
    }

    /// Adds a line.
    pub(crate) fn write(&mut self, level: LogLevel, text: String) -> Result<(), Stop> {
        self.charge(text.len() as u64 + LINE_COST)?;
        self.lines.push(LogLine { level, text });
        Ok(())
    }

    /// Adds what a guest prints.
    pub(crate) fn print(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Stop> {
        let newlines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.charge(bytes.len() as u64 + newlines * LINE_COST)?;
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.open_line(stream).extend_from_slice(&rest[..end]);
            self.end_line(stream);
            rest = &rest[end + 1..];
        }
        self.open_line(stream).extend_from_slice(rest);
        Ok(())
    }

    /// Everything that was written.
    pub(crate) fn finish(mut self) -> Vec<LogLine> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !self.open_line(stream).is_empty() {
                self.end_line(stream);
            }
        }
        self.lines
    }

    fn open_line(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stdout => &mut self.open[0],
            Stream::Stderr => &mut self.open[1],
        }
    }

    fn end_line(&mut self, stream: Stream) {
        let level = match stream {
            Stream::Stdout => LogLevel::Stdout,
            Stream::Stderr => LogLevel::Stderr,
        };
        let line = std::mem::take(self.open_line(stream));
        self.lines.push(LogLine { level, text: String::from_utf8_lossy(&line).into_owned() });
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Stop> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.limit { Err(Stop::Limit(Limit::LogBytes, self.limit)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_pieces_become_lines() {
        let mut log = Log::new(1000);
        log.print(Stream::Stdout, b"one\ntw").unwrap();
        log.print(Stream::Stderr, b"oops").unwrap();
        log.print(Stream::Stdout, b"o\n\xff").unwrap();
        log.write(LogLevel::Info, "three".into()).unwrap();
        let lines: Vec<_> = log.finish().into_iter().map(|line| (line.level, line.text)).collect();
        let expected = [
            (LogLevel::Stdout, "one"),
            (LogLevel::Stdout, "two"),
            (LogLevel::Info, "three"),
            (LogLevel::Stdout, "\u{fffd}"),
            (LogLevel::Stderr, "oops"),
        ];
        assert_eq!(lines, expected.map(|(level, text)| (level, text.to_owned())));
    }

    #[test]
    fn empty_lines_are_not_free() {
        let mut log = Log::new(100);
        let written = (0..1000).take_while(|_| log.print(Stream::Stdout, b"\n").is_ok()).count();
        assert_eq!(written, 5);
        assert_eq!(log.finish().len(), 5);
    }
}
