//! `cargo xtask cross-check`: does the sandbox compile where it is not built here?
//!
//! A toolchain knows every target but brings the standard library of few. Debian packages a compiler together with the sources
//! of its library, from which cargo can check both at once. A compiler of that kind refuses unstable options unless it is
//! told to act as if it were a nightly one; that is for this check alone, nothing of it is ever shipped.

use crate::setup;
use crate::shell::{Result, program};

/// One of each family that has a runner and is not Linux. For Windows the target without a dependency on GNU's tools.
const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"];

/// A program that succeeds and does nothing. Build scripts want to compile C for the target; a check links nothing, so nobody
/// misses the result.
const NO_COMPILER: &str = "/bin/true";

/// Checks every target.
pub fn run() -> Result<()> {
    setup::cross()?;
    for target in TARGETS {
        println!("\n=== {target} ===");
        let stands_in = ["CC", "CXX", "AR"].map(|tool| format!("{tool}_{}={NO_COMPILER}", target.replace('-', "_")));
        let words = [
            &[stands_in[0].as_str(), &stands_in[1], &stands_in[2]][..],
            &["RUSTC_BOOTSTRAP=1", "RUSTC=/usr/bin/rustc", "/usr/bin/cargo", "check", "--locked"],
            &["--package", "palyra-sandbox", "--lib", "--target", target, "--target-dir", "target/cross"],
            &["-Zbuild-std=std,panic_abort", "-Zwarnings", "--config", "build.warnings=\"deny\""],
        ]
        .concat();
        program("env", words).run(&format!("the check for {target}"))?;
    }
    Ok(())
}
