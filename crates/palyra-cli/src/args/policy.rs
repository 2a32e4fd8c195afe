//! What can be typed after `palyra policy`.

use super::Proposed;
use clap::{Args, Subcommand};
use std::path::PathBuf;

pub const ABOUT: &str = "Check, try, compare and replay rules; ask what they would decide.

Rules are Cedar files in a directory of yours (`policy_dir` of the configuration); they add to
those that Palyra ships. Cases are in `*.cases.toml` or `cases/*.toml`, groups in `groups.toml`.
The usual steps:

  palyra policy check DIR          does it parse, fit the schema, answer its cases?
  palyra policy diff DIR           what would be different from now?
  palyra policy simulate --candidate DIR --since 7d
                                   what would have been decided otherwise?
  palyra policy reload             take it up; saving the files in `policy_dir` does so as well

A set that does not pass never replaces the running one. Ready sets to start from are in
`policies/examples`.";

const CHECK_CODES: &str = "Exit codes:
  0  the set may run
  8  it may not; every flaw is printed with its place";

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Say what would be decided about a call, and why; nothing is recorded or run
    #[command(after_help = "Example:
  palyra policy explain palyra.process.run --input '{\"argv\":[\"git\",\"push\"]}' --as agent:demo")]
    Explain {
        #[command(flatten)]
        proposed: Proposed,
        /// Decide by the rules of this directory instead of by those in force; its cases are not run
        #[arg(long, value_name = "DIR")]
        candidate: Option<PathBuf>,
    },
    /// Parse, validate, look twice at and try a set of rules; needs no daemon
    #[command(after_help = CHECK_CODES)]
    Check(PolicyDirectory),
    /// Run the cases of a set of rules; needs no daemon
    #[command(after_help = CHECK_CODES)]
    Test(PolicyDirectory),
    /// Decide a stream of calls, one JSON document a line; needs no daemon, nothing is executed
    #[command(after_help = "Each line is a call, resolved in the workspace:
  {\"tool\": \"palyra.process.run\", \"input\": {\"argv\": [\"git\", \"status\"]}, \"principal\": \"agent:demo\"}
or a question, asked as it stands:
  {\"principal\": \"agent:demo\", \"action\": \"tool.execute\", \"resource\": \"tool:x\", \"context\": {\"channel\": \"cli\"}}
An `id` comes back with the answer. Lines of more than 2 MiB are refused.

Exit codes:
  0  every line was decided
  1  the set may not run
  6  some line was no call; the others were decided")]
    Decide {
        /// The policy directory [default: `policy_dir` of the configuration]
        #[arg(long, value_name = "DIR")]
        candidate: Option<PathBuf>,
        /// The directory that calls are resolved in [default: as `palyra up`]
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// The configuration file [default: ~/.config/palyra/palyra.toml, if it exists]
        #[arg(long, env = "PALYRA_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
        /// One JSON document a line, in and out: the only form there is
        #[arg(long, required = true)]
        jsonl: bool,
    },
    /// Replay the journal's decisions against another set: newly allowed, newly denied, newly asking
    #[command(after_help = "Example:
  palyra policy simulate --since 7d --candidate ./policies

Exit codes:
  0   replayed; see the report
  10  the candidate may not run, or you may not")]
    Simulate(Simulate),
    /// Show what another set would add, remove and change; exit code 1 if anything
    Diff {
        /// The policy directory [default: the daemon's own, as it is on the disk]
        directory: Option<PathBuf>,
    },
    /// Show the rules in force, or one of them with its text
    Show {
        /// The rule's id
        id: Option<String>,
    },
    /// Read the rules anew; exit code 8 if the set may not run and the one before goes on
    Reload,
    /// Suggest the narrowest rules that would have spared you approvals; nothing is applied
    Suggest(Suggest),
}

#[derive(Debug, Args)]
pub struct PolicyDirectory {
    /// The policy directory [default: `policy_dir` of the configuration]
    pub directory: Option<PathBuf>,
    /// The configuration file [default: ~/.config/palyra/palyra.toml, if it exists]
    #[arg(long, env = "PALYRA_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Simulate {
    /// How far back: a time like `2026-01-31` or `2026-01-31T12:00:00Z`, or how long ago like `7d`, `12h`, `30m`
    #[arg(long, value_name = "WHEN", value_parser = since, default_value = "7d")]
    pub since: u64,
    /// The policy directory to try
    #[arg(long, value_name = "DIR")]
    pub candidate: PathBuf,
}

#[derive(Debug, Args)]
pub struct Suggest {
    /// How far back, as for `simulate`
    #[arg(long, value_name = "WHEN", value_parser = since, default_value = "30d")]
    pub since: u64,
    /// How many approvals a rule must have spared
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub least: u32,
    /// Write each rule and its cases into this directory, which must exist; files that are there are not replaced
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
}

/// A time in the past, as milliseconds since 1970.
pub(super) fn since(text: &str) -> Result<u64, String> {
    let wrong = || "write a date, a time with its zone, or how long ago: `7d`, `12h`, `30m`".to_owned();
    let ms = |stamp: jiff::Timestamp| u64::try_from(stamp.as_millisecond()).map_err(|_| wrong());
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
        let unit = match &text[number.len()..] {
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let ago = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)?;
        return ms(jiff::Timestamp::now()).map(|now| now.saturating_sub(ago));
    }
    if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        return ms(stamp);
    }
    let date: jiff::civil::Date = text.parse().map_err(|_| wrong())?;
    ms(date.to_zoned(jiff::tz::TimeZone::system()).map_err(|_| wrong())?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::since;

    #[test]
    fn times_are_dates_or_ages() {
        assert_eq!(since("1970-01-01T00:00:01Z"), Ok(1_000));
        assert!(since("2026-01-31").is_ok());
        let week = since("7d").unwrap();
        assert!(since("8d").unwrap() < week && week < since("1h").unwrap());
        for bad in ["", "7", "d", "yesterday", "-1d", "7w", "99999999999999999999d", "1960-01-01T00:00:00Z"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}
