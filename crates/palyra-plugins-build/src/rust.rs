//! Rust: a core module for `wasm32-unknown-unknown`.
//!
//! A toolchain of rustup needs the target once (`rustup target add wasm32-unknown-unknown`). Debian's compiler brings
//! the sources of the standard library instead, from which it is built along; a compiler of that kind refuses unstable
//! options unless it is told to act as if it were a nightly one.

use crate::command::run;
use crate::error::BuildError;
use crate::project::read_bytes;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";
const DEBIAN_SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std";

/// Compiles the project and returns its module.
pub(crate) fn build(project: &Path, work: &Path) -> Result<Vec<u8>, BuildError> {
    let mut cargo = cargo()?;
    cargo.current_dir(project).args(["build", "--release", "--quiet", "--message-format", "json-render-diagnostics"]);
    cargo.arg("--target").arg(TARGET).arg("--target-dir").arg(work);
    let said = run("cargo", &mut cargo)?;
    let module = module_of(&String::from_utf8_lossy(&said));
    let module = module.ok_or_else(|| BuildError::Component("cargo made no module: is it a `cdylib`?".to_owned()))?;
    read_bytes(&module)
}

/// The module among the files that cargo says it made.
fn module_of(said: &str) -> Option<PathBuf> {
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let artifacts = messages.filter(|message| message["reason"] == "compiler-artifact");
    let files = artifacts.flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    files
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .rfind(|file| file.extension().is_some_and(|e| e == "wasm"))
}

/// A cargo that can compile for the target.
fn cargo() -> Result<Command, BuildError> {
    if has_target("rustc") {
        return Ok(clean("cargo"));
    }
    let debian = Path::new(DEBIAN_SOURCES).is_dir() && Path::new("/usr/bin/rustc").is_file();
    if debian && Path::new("/usr/bin/cargo").is_file() {
        let mut cargo = clean("/usr/bin/cargo");
        cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1");
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld");
        cargo.arg("-Zbuild-std=std,panic_abort");
        return Ok(cargo);
    }
    Err(BuildError::MissingTool {
        tool: "Rust for WebAssembly",
        fix: "run `rustup target add wasm32-unknown-unknown`; on Debian: `apt-get install rustc-web cargo-web rust-web-src lld`",
    })
}

/// Whether this compiler has the target's standard library.
fn has_target(rustc: &str) -> bool {
    let sysroot = clean(rustc).args(["--print", "sysroot"]).output();
    let sysroot = sysroot.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    sysroot.is_some_and(|path| {
        Path::new(String::from_utf8_lossy(&path).trim()).join("lib/rustlib").join(TARGET).join("lib").is_dir()
    })
}

/// A program without what a cargo that started us has set.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let ours = text.starts_with("CARGO") || text.starts_with("RUST");
        if ours && !matches!(&*text, "CARGO_HOME" | "RUSTUP_HOME" | "RUSTUP_TOOLCHAIN") {
            command.env_remove(&name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_in_what_cargo_says() {
        let said = r#"{"reason":"compiler-artifact","filenames":["/t/libsdk.rlib"]}
{"reason":"compiler-message","filenames":["/t/not.wasm"]}
{"reason":"compiler-artifact","filenames":["/t/skill.wasm"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(module_of(said), Some(PathBuf::from("/t/skill.wasm")));
        assert_eq!(module_of("nonsense"), None);
    }
}
