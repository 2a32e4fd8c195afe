//! `sandbox`: a command line that two programs share.
//!
//! `palyra sandbox …` needs the sandbox, which the client does not link, so it hands over to `palyrad sandbox …`. Both
//! parse this one definition: the help, the completions and the mistakes are the same whichever is typed.

pub mod skills;

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The exit code of every `sandbox` command for: Palyra refuses, or this host cannot. A command's own codes are passed
/// on.
pub const REFUSED: u8 = 125;

/// The exit code of `palyrad` when another daemon holds the state directory: whoever starts one may wait and look
/// again.
pub const STATE_HELD: u8 = 75;

/// What `palyrad` writes to its standard output, before its socket's path, once all its doors are open.
pub const READY: &str = "ready";

const RUN_EXIT_CODES: &str = "Exit codes:
  the command's own, or 128 + n when signal n ended it: 137 mostly means a limit, 130 Ctrl-C, 141 that the
  reader of its output went away
  2    this command line was not understood
  125  refused: by the policy, or because this host cannot enforce it; nothing ran";

const EXPLAIN_EXIT_CODES: &str = "Exit codes:
  0    it would run
  2    this command line was not understood
  125  it would be refused";

const DETECT_EXIT_CODES: &str = "Exit codes:
  0    the tier can be had
  2    this command line was not understood
  125  it cannot; processes would be refused";

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// As JSON with a stable shape.
    Json,
}

/// See what the sandbox can do here, what it would do, and try it; needs no daemon
#[derive(Debug, Args)]
pub struct Sandbox {
    /// How to print: for people, or as JSON with a stable shape
    #[arg(long, short, value_enum, default_value_t = Format::Text, global = true, value_name = "FORMAT", overrides_with = "output")]
    pub output: Format,

    /// What to do.
    #[command(subcommand)]
    pub command: SandboxCommand,
}

/// What can be done with a sandbox.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Say what this host can enforce, what is missing, and how to get it
    #[command(after_help = DETECT_EXIT_CODES)]
    Detect(Detect),
    /// Say what a command would get: program, files, network, environment, limits, walls; runs nothing
    #[command(after_help = EXPLAIN_EXIT_CODES)]
    Explain(Explain),
    /// Run a command in the sandbox, its output live, its exit code passed on
    ///
    /// The policy is that of the configuration file's `[process_runner]`, or the defaults, changed by the options.
    /// Nothing is recorded, no approval is asked for, and nothing is left behind. Standard input is passed on unless
    /// it is a terminal.
    #[command(after_help = RUN_EXIT_CODES)]
    Run(Run),
}

/// `sandbox detect`.
#[derive(Debug, Args)]
pub struct Detect {
    /// The tier that must be there [default: that of the configuration]
    #[arg(long, value_enum, ignore_case = true)]
    pub tier: Option<Tier>,
}

/// `sandbox explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The policy and the command.
    #[command(flatten)]
    pub attempt: Attempt,
}

/// `sandbox run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Tell at the end what really held the command, on standard error or in a file; `-o json` tells it too
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub report: Option<PathBuf>,
    /// The policy and the command.
    #[command(flatten)]
    pub attempt: Attempt,
}

/// How strong the walls are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    /// A confined child process with the host's network: limits, Landlock, seccomp
    B,
    /// A container of namespaces without a network: bubblewrap
    C,
}

/// What holds the command back from other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Egress {
    /// The kernel: no network but the allowed hosts (tier c)
    Strict,
    /// Nothing but a comparison of the hosts that its arguments name
    Preflight,
    /// Nothing: it has the host's network
    None,
}

/// A policy to try, and a command to try it on. What is not given is as in the configuration.
#[derive(Debug, Args)]
pub struct Attempt {
    /// How strong the walls are; never weakened by what this host lacks
    #[arg(long, value_enum, ignore_case = true)]
    pub tier: Option<Tier>,
    /// The directory that the command works in [default: `workspace_root` of the configuration, or this directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Keep the workspace from change
    #[arg(long)]
    pub read_only: bool,
    /// A further directory that may be read and executed from
    #[arg(long, value_name = "DIR")]
    pub read: Vec<PathBuf>,
    /// A further directory that may be read and written
    #[arg(long, value_name = "DIR")]
    pub write: Vec<PathBuf>,
    /// What holds it back from other hosts
    #[arg(long, value_enum, ignore_case = true)]
    pub egress: Option<Egress>,
    /// A host that may be reached, through the filtering proxy (tier c)
    #[arg(long, value_name = "RULE")]
    pub allow_host: Vec<String>,
    /// A shell or interpreter that may run: `python3`, `bash`
    #[arg(long, value_name = "NAME")]
    pub allow_interpreter: Vec<String>,
    /// Memory, like `512M`, `2G`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// CPU time of any one process, like `500ms`, `30s`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub cpu: Option<Duration>,
    /// Time from start to end, like `30s`, `10m`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// How much of each output stream is passed on, like `64M`; sixteen times as much ends the command
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_output: Option<u64>,
    /// A variable of this environment that is passed on
    #[arg(long, value_name = "NAME", value_parser = variable)]
    pub env: Vec<String>,
    /// The program and its arguments, after `--`
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub argv: Vec<OsString>,
}

/// A time with its unit: `90s`, `30m`, `2h`, `250ms`.
///
/// # Errors
/// It is none, or too long to be meant.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| "write a number and a unit, like `30m`".to_owned())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("the unit is `ms`, `s`, `m`, `h` or `d`, like `30m`".to_owned()),
    };
    match number.checked_mul(milliseconds) {
        Some(0) => Err("must be more than 0".to_owned()),
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => Err("that is too long".to_owned()),
    }
}

/// A number of bytes: `4096`, `512K`, `64M`, `2G`.
///
/// # Errors
/// It is none, or too large to be meant.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 =
        number.parse().map_err(|_| "write a number of bytes, or one with a unit, like `512M`".to_owned())?;
    let bytes = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err("the unit is `K`, `M` or `G`, like `512M`".to_owned()),
    };
    match number.checked_mul(bytes) {
        Some(0) => Err("must be more than 0".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err("that is too large".to_owned()),
    }
}

fn variable(text: &str) -> Result<String, String> {
    if text.contains('=') {
        return Err(
            "give the variable's name alone, and its value before the command: `NAME=value palyra …`".to_owned()
        );
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if text.is_empty() || !text.chars().all(plain) || text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("a variable's name is letters, digits and `_`".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2d"), Ok(Duration::from_secs(172_800)));
        for bad in ["", "30", "m", "1w", "-1s", "0s", "99999999999999999999s", "9999999999999999999h", "1 s", "٣s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_bytes() {
        for (text, bytes) in [("1", 1), ("512M", 512 << 20), ("2G", 2 << 30), ("4K", 4096)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for bad in ["", "M", "1T", "-1", "0", "0G", "99999999999999999999", "99999999999999G", "1.5G", "1k"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_are_named_not_set() {
        assert!(variable("LANG").is_ok());
        for bad in ["", "A=b", "1A", "A B", "A\n"] {
            assert!(variable(bad).is_err(), "{bad}");
        }
    }
}
