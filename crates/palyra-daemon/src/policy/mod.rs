//! `palyrad policy`: what can be done with a policy directory and no daemon; and watching one, with a daemon.
//!
//! Everything here asks the same loader that the daemon starts with, so that what passes here runs there.

mod decide;
pub mod watch;

use crate::serve::{DaemonError, Setup};
use clap::{Args, Subcommand, ValueEnum};
use palyra_policy::{CheckedSet, Flaw, PolicyLoader, RefusedSet};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// A set that may not run, or cases that come out otherwise.
const REFUSED: u8 = 8;
/// Lines that are no calls.
const REJECTED: u8 = 6;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Parse, validate, look twice at and try a set of rules; exit code 8 if it may not run
    Check(Where),
    /// Run the cases of a set of rules; exit code 8 if one comes out otherwise
    Test(Where),
    /// Decide a stream of calls, one JSON document a line, from standard input to standard output; nothing is executed
    Decide(Decide),
}

#[derive(Debug, Args)]
pub struct Where {
    /// The policy directory [default: `policy_dir` of the configuration]
    pub directory: Option<PathBuf>,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct Decide {
    /// The policy directory [default: `policy_dir` of the configuration]
    #[arg(long, value_name = "DIR")]
    pub candidate: Option<PathBuf>,
    /// One JSON document a line, in and out: the only form there is
    #[arg(long)]
    pub jsonl: bool,
    /// How to print what keeps it from deciding
    #[arg(long, short, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

impl Command {
    /// How to print, also what goes wrong.
    pub fn format(&self) -> Format {
        match self {
            Self::Check(at) | Self::Test(at) => at.output,
            Self::Decide(decide) => decide.output,
        }
    }
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Runs a command.
///
/// # Errors
/// The configuration is not usable, or a stream broke off.
pub fn run(setup: &Setup, command: Command) -> Result<ExitCode, DaemonError> {
    match command {
        Command::Check(at) => checked(setup, &at, told_check),
        Command::Test(at) => checked(setup, &at, told_test),
        Command::Decide(options) => decide::run(setup, &options),
    }
}

/// The rules of a directory, or else of the configuration, for the members that the configuration names.
pub(crate) fn loader(setup: &Setup, directory: Option<PathBuf>) -> Result<PolicyLoader, DaemonError> {
    let mut loader = setup.rules()?;
    if let Some(directory) = directory {
        loader.directory = Some(directory);
    }
    Ok(loader)
}

fn checked(
    setup: &Setup,
    at: &Where,
    told: fn(&Result<CheckedSet, RefusedSet>, Format) -> String,
) -> Result<ExitCode, DaemonError> {
    let loaded = loader(setup, at.directory.clone())?.load();
    let text = told(&loaded, at.output);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(DaemonError::Stream)?;
    Ok(if loaded.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

fn told_check(loaded: &Result<CheckedSet, RefusedSet>, format: Format) -> String {
    match (loaded, format) {
        (loaded, Format::Json) => document(loaded),
        (Ok(set), Format::Text) => {
            let engine = &set.engine;
            let mut text = format!(
                "✔ {} rules, {} of them yours, and {} cases come out as they should\npolicy {}",
                engine.rules().count(),
                engine.operator_rules().count(),
                set.cases,
                engine.policy_hash().short()
            );
            for note in &set.notes {
                text.push_str(&format!("\n– {}: `{}`: {}", note.at, note.rule, note.message));
            }
            text
        }
        (Err(refused), Format::Text) => format!("{}\n✘ this set may not run", rendered(refused)),
    }
}

fn told_test(loaded: &Result<CheckedSet, RefusedSet>, format: Format) -> String {
    match (loaded, format) {
        (Ok(set), Format::Text) => format!("✔ {} cases come out as they should", set.cases),
        (Err(refused), Format::Text) => format!("{}\n✘ the cases do not hold", rendered(refused)),
        (loaded, Format::Json) => document(loaded),
    }
}

fn document(loaded: &Result<CheckedSet, RefusedSet>) -> String {
    let document = match loaded {
        Ok(set) => json!({
            "ok": true,
            "policy_hash": set.engine.policy_hash(),
            "files": set.files,
            "rules": set.engine.rules().count(),
            "operator_rules": set.engine.operator_rules().count(),
            "cases": set.cases,
            "notes": set.notes,
            "flaws": [],
        }),
        Err(refused) => json!({
            "ok": false,
            "files": refused.files,
            "summary": refused.to_string(),
            "flaws": refused.error.flaws(),
        }),
    };
    document.to_string()
}

/// Everything that is wrong with a set, each with its place and its line.
pub(crate) fn rendered(refused: &RefusedSet) -> String {
    match refused.error.flaws() {
        [] => refused.to_string(),
        flaws => flaws.iter().map(Flaw::render).collect::<Vec<_>>().join("\n\n"),
    }
}
