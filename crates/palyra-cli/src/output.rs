//! Printing: data on standard output, everything else on standard error, colour only on a terminal.
//!
//! Text for people goes through `anstream`, which takes colours away where nobody sees them. Documents do not: they
//! arrive whole or the command fails. In both, nothing that a stranger wrote reaches a terminal as more than text.

use crate::args::Format;
use crate::exit::Failure;
use anstyle::{AnsiColor, Style};
use palyra_protocol::Timestamp;
use palyra_protocol::display::deceives;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::sync::OnceLock;

/// How a failure to print is printed: known once the command line is read.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Says in which format this command answers.
pub fn answer_in(format: Format) {
    // The first word counts, and there is only one.
    FORMAT.get_or_init(|| format);
}

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default();
pub const WARN: Style = AnsiColor::Yellow.on_default();

/// A piece of text in a style.
#[must_use]
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints one line of an answer.
macro_rules! say {
    ($($part:tt)*) => { $crate::output::line(&format!($($part)*)) };
}
pub(crate) use say;

/// Prints one line of what accompanies an answer.
macro_rules! note {
    ($($part:tt)*) => { $crate::output::side_line(&format!($($part)*)) };
}
pub(crate) use note;

/// Writes a line for people to standard output.
pub fn line(text: &str) {
    if let Err(error) = writeln!(anstream::stdout(), "{text}") {
        unwritten(&error);
    }
}

/// Ends the program because its answer cannot be written. A reader that has gone away ends it quietly, as `head`
/// expects; anything else is a failure, because an answer that is cut off is none.
pub fn unwritten(error: &std::io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let unwritten = Failure::io("the answer cannot be written", error);
    failure(FORMAT.get().copied().unwrap_or(Format::Text), &unwritten);
    std::process::exit(unwritten.exit.into());
}

/// Writes a line to standard error.
pub fn side_line(text: &str) {
    // There is nobody left to tell.
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Prints a document as one line of JSON.
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let mut text = document(value)?;
    text.push('\n');
    bytes(text.as_bytes());
    Ok(())
}

/// Writes to standard output exactly what is given.
pub fn bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        unwritten(&error);
    }
}

/// A document on one line, in which what could deceive a terminal is escaped: to whoever reads JSON, the same document.
pub fn document<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(|e| Failure::bug(&e))?;
    if !text.chars().any(deceives) {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if deceives(c) {
            // Outside its strings a document has no such characters.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    Ok(escaped)
}

/// Prints the failure in the format that was asked for.
pub fn failure(format: Format, failure: &Failure) {
    if format == Format::Json {
        let error = serde_json::json!({ "error": failure.error() });
        if let Ok(text) = document(&error) {
            // There is nobody left to tell.
            drop(writeln!(std::io::stderr(), "{text}"));
        }
        return;
    }
    let Failure { code, message, hint, .. } = failure;
    note!("{} {}", styled(BAD.bold(), "error:"), crate::text::safe(message));
    if let Some(hint) = hint {
        note!("\n{} {}", styled(BOLD, "hint:"), crate::text::safe(hint));
    }
    note!("{}", styled(DIM, format!("code: {code}")));
}

/// A time of day for people, with the date when it is not today.
#[must_use]
pub fn when(at: Timestamp) -> String {
    let Ok(ms) = i64::try_from(at.unix_ms()) else { return at.to_string() };
    let Ok(stamp) = jiff::Timestamp::from_millisecond(ms) else { return at.to_string() };
    let zoned = stamp.to_zoned(jiff::tz::TimeZone::system());
    let today = jiff::Zoned::now().date() == zoned.date();
    zoned.strftime(if today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" }).to_string()
}

/// How long until then, for people.
#[must_use]
pub fn remaining(until: Timestamp) -> String {
    let now = palyra_protocol::Clock::now(&palyra_protocol::SystemClock);
    span(now.until(until).as_secs())
}

/// A time in the largest unit that there are two of, to the nearest.
fn span(seconds: u64) -> String {
    let nearest = |unit: u64| (seconds + unit / 2) / unit;
    match seconds {
        0 => "now".to_owned(),
        s if s < 120 => format!("{s} s"),
        s if s < 7200 => format!("{} min", nearest(60)),
        s if s < 172_800 => format!("{} h", nearest(3600)),
        _ => format!("{} days", nearest(86_400)),
    }
}

/// Prints rows with their columns aligned; the last column is not padded.
pub fn table(headers: &[&str], rows: &[Vec<String>]) {
    let widths: Vec<usize> = (0..headers.len())
        .map(|i| rows.iter().map(|row| row[i].chars().count()).chain([headers[i].len()]).max().unwrap_or(0))
        .collect();
    let aligned = |cells: Vec<&str>| {
        let last = cells.len() - 1;
        let padded = cells.iter().enumerate().map(|(i, cell)| {
            let gap = if i == last { 0 } else { widths[i] - cell.chars().count() };
            format!("{cell}{}", " ".repeat(gap))
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    say!("{}", styled(BOLD, aligned(headers.to_vec())));
    for row in rows {
        say!("{}", aligned(row.iter().map(String::as_str).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_time_is_told_to_the_nearest() {
        let day = 86_400;
        for (seconds, told) in
            [(0, "now"), (119, "119 s"), (3599, "60 min"), (90 * day - 1, "90 days"), (2 * day, "2 days")]
        {
            assert_eq!(span(seconds), told);
        }
    }

    #[test]
    fn a_document_is_the_same_document_and_nothing_in_it_is_obeyed() {
        let value = json!({ "a\u{7f}\u{9b}": "\u{202e}\u{1b}\u{e0041}\u{61c}grüße\n" });
        let text = document(&value).unwrap();
        assert_eq!(text, r#"{"a\u007f\u009b":"\u202e\u001b\udb40\udc41\u061cgrüße\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
