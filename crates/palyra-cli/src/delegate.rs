//! Commands that need a room which only the daemon has: this program becomes `palyrad`, which does them.
//!
//! Streams, signals and the exit code are passed on because nothing stands between.

use crate::args::Cli;
use crate::commands::up::daemon_binary;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Arg, ArgMatches, CommandFactory as _};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes `palyrad` with these words; comes back only if that fails.
pub fn become_daemon(context: &Context, words: Vec<OsString>) -> Failure {
    let binary = match daemon_binary() {
        Ok(binary) => binary,
        Err(failure) => return failure,
    };
    let error = Command::new(&binary).arg("--state-dir").arg(&context.state_dir).args(words).exec();
    Failure::io(&format!("`{}` cannot be started", binary.display()), &error)
}

/// The words after a command's name, told by the same parser that read the options before it. They were parsed already,
/// so they are well formed.
pub fn words_after(command: &'static str, typed: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let rest = Arg::new("rest")
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_parser(clap::value_parser!(OsString));
    let outer = Cli::command().mut_subcommand(command, |_| clap::Command::new(command).arg(rest));
    let matches = outer.get_matches_from(typed);
    let rest = matches.subcommand_matches(command).and_then(|m: &ArgMatches| m.get_many::<OsString>("rest"));
    rest.into_iter().flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_passed_on_as_it_was_typed() {
        for (typed, expect) in [
            ("palyra sandbox detect", "detect"),
            ("palyra --state-dir sandbox -o json sandbox detect --tier b", "detect --tier b"),
            ("palyra sandbox run --report -- ls -l -o json -- x", "run --report -- ls -l -o json -- x"),
            ("palyra sandbox -o json explain -- ls", "explain -- ls"),
            ("palyra sandbox run -o json --env A -- ls --as agent:x", "run -o json --env A -- ls --as agent:x"),
            ("palyra skills new --lang c sandbox", "new --lang c sandbox"),
            ("palyra -o json skills package verify -o text x", "package verify -o text x"),
        ] {
            let command = if typed.contains("skills") { "skills" } else { "sandbox" };
            let words = words_after(command, typed.split(' ').map(OsString::from));
            assert_eq!(words.join(" ".as_ref()), expect, "{typed}");
        }
    }
}
