//! `palyra sandbox`: handed over to `palyrad`, which has the sandbox.
//!
//! This program becomes that one: streams, signals and the exit code are passed on because nothing stands between.

use super::up::daemon_binary;
use crate::args::Cli;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Arg, ArgMatches, CommandFactory as _};
use palyra_api::command_line::REFUSED;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes `palyrad sandbox` with the words that were typed after `sandbox`. They were parsed already, so they are well formed.
pub fn hand_over(context: &Context) -> Result<(), Failure> {
    // Not to be taken for the code of a command that never ran.
    let refused = |failure| Failure { exit: REFUSED, ..failure };
    let binary = daemon_binary().map_err(refused)?;
    let mut command = Command::new(&binary);
    command.arg("--state-dir").arg(&context.state_dir).arg("sandbox");
    command.args(["--output", if context.json() { "json" } else { "text" }]);
    command.args(words(std::env::args_os()));
    let error = command.exec();
    Err(refused(Failure::io(&format!("`{}` cannot be started", binary.display()), &error)))
}

/// The words after `sandbox`, told by the same parser that read the options before it.
fn words(typed: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let rest = Arg::new("rest")
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_parser(clap::value_parser!(OsString));
    let outer = Cli::command().mut_subcommand("sandbox", |_| clap::Command::new("sandbox").arg(rest));
    let matches = outer.get_matches_from(typed);
    let rest = matches.subcommand_matches("sandbox").and_then(|m: &ArgMatches| m.get_many::<OsString>("rest"));
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
        ] {
            let words = words(typed.split(' ').map(OsString::from));
            assert_eq!(words.join(" ".as_ref()), expect, "{typed}");
        }
    }
}
