//! Printing: data on standard output, everything else on standard error, colour only on a terminal.

use crate::args::Format;
use crate::exit::Failure;
use anstyle::{AnsiColor, Style};
use palyra_protocol::Timestamp;
use serde::Serialize;

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

/// Writes a line to standard output. A reader that has gone away ends the program quietly, as `head` expects.
pub fn line(text: &str) {
    use std::io::Write as _;
    if writeln!(anstream::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// Writes a line to standard error.
pub fn side_line(text: &str) {
    use std::io::Write as _;
    // There is nobody left to tell.
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Prints a document as one line of JSON.
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|e| Failure::bug(&e))?;
    line(&text);
    Ok(())
}

/// Prints the failure in the format that was asked for.
pub fn failure(format: Format, failure: &Failure) {
    if format == Format::Json {
        let document = serde_json::json!({ "error": failure.error() });
        side_line(&document.to_string());
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
    match now.until(until).as_secs() {
        0 => "now".to_owned(),
        s if s < 120 => format!("{s} s"),
        s if s < 7200 => format!("{} min", s / 60),
        s if s < 172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
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
