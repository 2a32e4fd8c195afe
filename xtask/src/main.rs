//! `cargo xtask`: what one does with this repository besides compiling it.
//!
//! Set-up, demo, test, tidy, cross-check and benchmarks in one small program, so that a fresh machine needs Rust and
//! nothing else to begin. It is a tool for developers: it starts the real binaries and looks at the real tree, and no
//! crate of ours is linked into it.

#![expect(unreachable_pub, reason = "a binary exports nothing; `pub` here means: used by other files")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer's tool talks to the developer")]

mod args;
mod attention;
mod browser;
mod cross;
mod demo;
mod host;
mod interop;
mod quote;
mod setup;
mod shell;
mod skills;
mod test;
mod tidy;

use args::Request;
use shell::{Built, Failure, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args::parse(&words) {
        Ok(request) => run(request),
        Err(message) => {
            eprintln!("error: {message}\n\n{}", args::OVERVIEW);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("\nerror: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(request: Request) -> Result<ExitCode> {
    let done = match request {
        Request::Help(text) => {
            println!("{text}");
            Ok(())
        }
        Request::Setup => {
            if !setup::run()? {
                println!("Everything is here already.");
            }
            Ok(())
        }
        Request::Demo(end) => {
            setup::demo()?;
            demo::run(end, Built::NotYet)
        }
        Request::Test(step) => return Ok(test::run(step)),
        Request::Tidy => tidy::run(),
        Request::CrossCheck => cross::run(),
        Request::Skills => skills::run(Built::NotYet),
        Request::Interop(part) => interop::run(part),
        Request::Attention { data, rest } => attention::run(data, &rest),
        Request::Bench(words) => {
            setup::bench()?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let fixed = ["run", "--release", "--locked", "--package", "palyra-bench", "--"];
            shell::cargo([&fixed, &words[..]].concat()).run("the benchmarks")
        }
        Request::CleanUpAfterDemo { palyra, dir } => demo::janitor::work(&palyra, &dir).map_err(Failure::from),
    };
    done.map(|()| ExitCode::SUCCESS)
}
