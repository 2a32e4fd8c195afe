//! What can be typed after `cargo xtask`, and the texts that teach it.

use crate::demo::End;
use crate::interop;
use crate::test::Step;
use std::path::PathBuf;

pub const OVERVIEW: &str = "\
Usage: cargo xtask COMMAND

  demo [--once]   Walk one tool call from proposal to verified journal, with the real programs
  test [STEP]     Check everything that must hold before a change is merged
  tidy            Check the rules of the house that the compiler does not know
  setup           Install the system packages that building, demo and tests need (demo and test do this first)
  skills          Build the example skills of every language
  cross-check     Type-check the sandbox for macOS and Windows
  interop [PART]  Let clients that others wrote complete calls: SDKs, Claude Code, Codex
  attention       Count how often a coding agent's work asks a person, and what dangerous calls are let through
  bench [ARGS]    Measure, each figure beside the raw limit of this machine

`cargo xtask COMMAND --help` says more.";

const DEMO: &str = "\
Usage: cargo xtask demo [--once]

Builds `palyra` and `palyrad`, starts a daemon in a directory of its own under the system's temporary directory, and
walks through it: a call that policy allows, calls that it denies, a call that waits for you, the sandbox, the
attestation, the journal. Every command is shown as you would type it, and its result is checked.

On a terminal the daemon stays, so that you can go on by hand; Ctrl-C before that leaves nothing behind.

  --once   Stop the daemon and remove the directory at the end. Also so when the output is not a terminal.";

const TEST: &str = "\
Usage: cargo xtask test [STEP]

Runs every step in this order and stops at the first that fails:

  setup    what this machine lacks is installed
  fmt      the sources are formatted
  tidy     the rules of the house hold (`cargo xtask tidy --help`)
  clippy   no warnings
  build    the binaries that end-to-end tests start
  skills   the example skills that tests call (`cargo xtask skills --help`)
  unit     every test of the workspace
  browser  pages of other origins, in Chromium, reach not a single route of the HTTP door
  demo     the demo, once

With STEP only that step, and what it needs. The last line says how many tests passed and failed.";

const TIDY: &str = "\
Usage: cargo xtask tidy

Checks the rules that the compiler does not know: which crates may use which, a module doc in every file, witnesses
made in one place, no package hosts and no paths of one machine, size of files and functions, `unsafe` in two places
only, no unfinished code, named invariants with their tests, a wire that grows and does not change. Each check is a file in xtask/src/tidy with its reasons.";

const SETUP: &str = "\
Usage: cargo xtask setup

Looks for the programs that building, demo and tests need, and installs what is missing with apt-get (as root, or with
sudo). Elsewhere than on Debian and Ubuntu it names the packages. Does nothing when nothing is missing.";

const SKILLS: &str = "\
Usage: cargo xtask skills

Builds the examples of `examples/skills` as components below `target/skills`. What they need from the system is installed first, as for
`setup`; compilers for Python and JavaScript are fetched with pip and npm into the build directory. What has not changed is
not built again. The first time, Rust's standard library is compiled for WebAssembly, which takes a minute or two of one processor.";

const CROSS_CHECK: &str = "\
Usage: cargo xtask cross-check

Type-checks `palyra-sandbox`, with warnings denied, for aarch64-apple-darwin and x86_64-pc-windows-msvc. Checking needs
no linker, but it needs a standard library for those targets: Debian's Rust with its sources is installed for that with
apt-get (packages rustc-web, cargo-web, rust-web-src), and the library is checked from source. The first time that
takes a few minutes of one processor, so it is no step of `test`. Nothing is run: what those systems do is not tested.";

const INTEROP: &str = "\
Usage: cargo xtask interop [PART]

Installs programs that others wrote below `target/interop` and lets each try a daemon of its own:

  python         the official Python SDK, over both transports, in both revisions
  conformance    the scenarios of the upstream suite that apply
  inspector      the MCP Inspector's command line
  claude-code    the real Claude Code, with a scripted model, without a network
  codex          the real Codex, likewise
  schemathesis   generates requests from `/openapi.json`; no answer may be a server error or undocumented

With PART only that one. Not part of `cargo xtask test`: they need package registries.";

const ATTENTION: &str = "\
Usage: cargo xtask attention [--data DIR] [ARGS]

Decides recorded calls of real coding agents, and dangerous ones, by the coding policy and the configuration that
`palyra init` writes, and prints how many questions a session costs. Nothing is executed. The calls lie in
`../shared/attention` beside the repository, or in DIR; ARGS go to its `run.py` (`--reasons`, `--let-through`).";

const BENCH: &str = "\
Usage: cargo xtask bench [ARGS]

Builds and runs the benchmarks of `palyra-bench` in release mode and hands ARGS on. What they need from the system is
installed first, as for `setup`; other sandboxes to compare with are fetched with npm into the build directory.";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    Help(&'static str),
    Setup,
    Demo(End),
    Test(Option<Step>),
    Tidy,
    Skills,
    CrossCheck,
    Interop(Option<&'static str>),
    Attention {
        data: Option<PathBuf>,
        rest: Vec<String>,
    },
    Bench(Vec<String>),
    /// Not for people: the demo starts it, so that nothing stays behind when the demo is interrupted.
    CleanUpAfterDemo {
        palyra: PathBuf,
        dir: PathBuf,
    },
}

/// Understands the words, or says what is wrong with them.
pub fn parse(words: &[String]) -> Result<Request, String> {
    let Some((command, rest)) = words.split_first() else { return Ok(Request::Help(OVERVIEW)) };
    let help = match command.as_str() {
        "demo" => DEMO,
        "test" => TEST,
        "tidy" => TIDY,
        "setup" => SETUP,
        "skills" => SKILLS,
        "cross-check" => CROSS_CHECK,
        "interop" => INTEROP,
        "attention" => ATTENTION,
        "bench" => BENCH,
        "help" | "-h" | "--help" => return Ok(Request::Help(OVERVIEW)),
        "clean-up-after-demo" => OVERVIEW,
        other => return Err(format!("there is no command `{other}`")),
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    if command != "bench" && rest.iter().any(|word| matches!(*word, "-h" | "--help")) {
        return Ok(Request::Help(help));
    }
    match (command.as_str(), rest.as_slice()) {
        ("demo", []) => Ok(Request::Demo(End::KeepOnTerminal)),
        ("demo", ["--once"]) => Ok(Request::Demo(End::Once)),
        ("test", []) => Ok(Request::Test(None)),
        ("test", [step]) => match Step::ALL.into_iter().find(|known| known.name() == *step) {
            Some(step) => Ok(Request::Test(Some(step))),
            None => Err(format!("there is no step `{step}`; see `cargo xtask test --help`")),
        },
        ("tidy", []) => Ok(Request::Tidy),
        ("setup", []) => Ok(Request::Setup),
        ("skills", []) => Ok(Request::Skills),
        ("cross-check", []) => Ok(Request::CrossCheck),
        ("interop", []) => Ok(Request::Interop(None)),
        ("interop", [part]) => match interop::PARTS.into_iter().find(|known| known == part) {
            Some(part) => Ok(Request::Interop(Some(part))),
            None => Err(format!("there is no part `{part}`; see `cargo xtask interop --help`")),
        },
        ("attention", ["--data", data, rest @ ..]) => {
            Ok(Request::Attention { data: Some(PathBuf::from(data)), rest: owned(rest) })
        }
        ("attention", rest) => Ok(Request::Attention { data: None, rest: owned(rest) }),
        ("bench", ["-h" | "--help"]) => Ok(Request::Help(BENCH)),
        ("bench", rest) => Ok(Request::Bench(owned(rest))),
        ("clean-up-after-demo", [palyra, dir]) => {
            Ok(Request::CleanUpAfterDemo { palyra: PathBuf::from(palyra), dir: PathBuf::from(dir) })
        }
        (command, rest) => Err(format!("`{command}` does not take `{}`", rest.join(" "))),
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_command_is_understood_and_explained() {
        assert_eq!(parsed(""), Ok(Request::Help(OVERVIEW)));
        assert_eq!(parsed("demo --once"), Ok(Request::Demo(End::Once)));
        assert_eq!(parsed("test unit"), Ok(Request::Test(Some(Step::Unit))));
        assert_eq!(parsed("bench --quick"), Ok(Request::Bench(vec!["--quick".to_owned()])));
        for (command, text) in [
            ("demo", DEMO),
            ("test", TEST),
            ("tidy", TIDY),
            ("setup", SETUP),
            ("skills", SKILLS),
            ("cross-check", CROSS_CHECK),
            ("interop", INTEROP),
            ("attention", ATTENTION),
            ("bench", BENCH),
        ] {
            assert_eq!(parsed(&format!("{command} --help")), Ok(Request::Help(text)));
            assert!(OVERVIEW.contains(&format!("\n  {command} ")), "{command}");
        }
        for step in Step::ALL {
            assert!(TEST.contains(&format!("\n  {} ", step.name())), "{step:?}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(parsed("dmeo"), Err("there is no command `dmeo`".to_owned()));
        assert_eq!(parsed("demo --twice"), Err("`demo` does not take `--twice`".to_owned()));
        assert!(parsed("test everything").is_err());
    }
}
