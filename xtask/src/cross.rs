//! `cargo xtask cross-check`: does the sandbox compile where it is not built here?
//!
//! A toolchain knows every target but brings the standard library of few. Debian packages a compiler together with the
//! sources of its library, from which cargo can check both at once. A compiler of that kind refuses unstable options
//! unless it is told to act as if it were a nightly one; that is for this check alone, nothing of it is ever shipped.

use crate::setup;
use crate::shell::{Result, Trying as _, program, root};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// One of each family that has a runner and is not Linux. For Windows the target without a dependency on GNU's tools.
const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"];

/// Stands in for the C compiler and the librarian of a target: makes the library that it is told to, empty. Build
/// scripts want to compile C; a check links nothing, so nobody misses what is in it.
const STAND_IN: &str = "#!/bin/sh
for word; do
    case $word in
        -out:* | /out:* | -OUT:* | /OUT:*) : > \"${word#*:}\" ;;
    esac
done
";

/// Checks every target.
pub fn run() -> Result<()> {
    setup::cross()?;
    let stand_in = stand_in()?;
    for target in TARGETS {
        println!("\n=== {target} ===");
        let stands_in = ["CC", "CXX", "AR"].map(|tool| format!("{tool}_{}={stand_in}", target.replace('-', "_")));
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

/// Where the stand-in is.
fn stand_in() -> Result<String> {
    let directory = root().join("target/cross");
    let path = directory.join("stand-in");
    fs::create_dir_all(&directory).trying("making target/cross")?;
    fs::write(&path, STAND_IN).trying("writing the stand-in for a C compiler")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).trying("making it executable")?;
    Ok(path.display().to_string())
}
