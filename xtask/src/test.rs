//! `cargo xtask test`: everything that must hold, one step after the other, ending at the first that does not.

use crate::browser;
use crate::demo;
use crate::setup;
use crate::shell::{Built, Failure, Result, Trying as _, cargo};
use crate::skills;
use crate::tidy;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

/// One thing that must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Setup,
    Fmt,
    Tidy,
    Clippy,
    Build,
    Skills,
    Unit,
    Browser,
    Demo,
}

/// How many tests there were.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

impl Step {
    pub const ALL: [Self; 9] = [
        Self::Setup,
        Self::Fmt,
        Self::Tidy,
        Self::Clippy,
        Self::Build,
        Self::Skills,
        Self::Unit,
        Self::Browser,
        Self::Demo,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Fmt => "fmt",
            Self::Tidy => "tidy",
            Self::Clippy => "clippy",
            Self::Build => "build",
            Self::Skills => "skills",
            Self::Unit => "unit",
            Self::Browser => "browser",
            Self::Demo => "demo",
        }
    }

    /// The step with what it needs, in order.
    fn with_needs(self) -> Vec<Self> {
        match self {
            Self::Unit => vec![Self::Setup, Self::Build, Self::Skills, self],
            Self::Skills | Self::Browser | Self::Demo => vec![Self::Setup, Self::Build, self],
            Self::Setup => vec![Self::Setup],
            other => vec![Self::Setup, other],
        }
    }

    fn run(self, tally: &mut Tally) -> Result<()> {
        match self {
            Self::Setup => setup::run().and_then(|_| setup::components()),
            Self::Fmt => {
                cargo(["fmt", "--all", "--check"]).run("the check of the formatting (`cargo fmt --all` mends it)")
            }
            Self::Tidy => tidy::run(),
            Self::Clippy => {
                cargo(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]).run("clippy")
            }
            Self::Build => cargo(["build", "--workspace", "--locked"]).run("the build").and_then(|()| fuzz_lock()),
            Self::Skills => skills::run(Built::All),
            Self::Unit => unit(tally),
            Self::Browser => browser::run(),
            Self::Demo => demo::run(demo::End::Once, Built::All),
        }
    }
}

/// The fuzz targets are a workspace of their own, which takes a minute to compile for nothing: the tests call the same
/// functions. That its lock file still fits is seen without compiling.
fn fuzz_lock() -> Result<()> {
    let fuzz = ["tree", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--depth", "0"];
    cargo(fuzz)
        .run("the check of fuzz/Cargo.lock (`cargo update --workspace --manifest-path fuzz/Cargo.toml` mends it)")
}

/// Runs one step, or all of them. The last line says how many tests passed and failed, whatever happened.
pub fn run(only: Option<Step>) -> ExitCode {
    let steps = only.map_or_else(|| Step::ALL.to_vec(), Step::with_needs);
    let mut tally = Tally::default();
    let mut code = ExitCode::SUCCESS;
    let mut times = Vec::new();
    for step in &steps {
        println!("\n=== {} ===", step.name());
        let started = Instant::now();
        let result = step.run(&mut tally);
        times.push(format!("{} {:.1} s", step.name(), started.elapsed().as_secs_f64()));
        if let Err(why) = result {
            // A step that failed counts even when no single test did: the last line never says that all is well.
            tally.failed = tally.failed.max(1);
            code = ExitCode::FAILURE;
            eprintln!("\nerror: step `{}`: {why}", step.name());
            break;
        }
    }
    println!("\n{}", times.join(", "));
    println!("{} passed, {} failed", tally.passed, tally.failed);
    code
}

/// Runs every test of the workspace; shows the output as it comes and counts along.
fn unit(tally: &mut Tally) -> Result<()> {
    let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]).into_command();
    let mut child = command.stdout(Stdio::piped()).spawn().trying("cargo test cannot be started")?;
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).trying("reading what the tests say")? > 0 {
            // Whoever watches may have gone; the tests go on.
            drop(std::io::stdout().write_all(&line));
            tally.add(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    let status = child.wait().trying("waiting for cargo test")?;
    if status.success() && tally.failed == 0 { Ok(()) } else { Err(Failure(format!("the tests failed ({status})"))) }
}

impl Tally {
    /// Adds what a test binary says at its end.
    fn add(&mut self, line: &str) {
        if !line.starts_with("test result: ") {
            return;
        }
        let counted = |what: &str| {
            let (before, _) = line.split_once(what)?;
            before.rsplit(' ').next()?.parse::<u64>().ok()
        };
        self.passed += counted(" passed;").unwrap_or(0);
        self.failed += counted(" failed;").unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_and_nothing_else_is() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests\n",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s\n",
            "the user typed: test result: ok. 9 passed; 9 failed;\n",
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n",
        ] {
            tally.add(line);
        }
        assert_eq!(tally, Tally { passed: 16, failed: 2 });
    }
}
