//! Programs that speak OpenAI's API, against the compat door.

use crate::shell::{Result, Trying as _, program};
use std::path::Path;

const PACKAGES: [&str; 3] = ["openai", "openai-agents", "langchain-openai"];

/// Runs the clients against a daemon of their own.
pub fn run(root: &Path, cache: &Path) -> Result<()> {
    let python = cache.join("venv-openai/bin/python");
    if !python.exists() {
        let venv = cache.join("venv-openai").display().to_string();
        program("python3", ["-m", "venv", &venv]).run("making a place for OpenAI's clients")?;
        let words = ["-m", "pip", "install", "--quiet"].into_iter().chain(PACKAGES);
        program(&python, words).run("installing OpenAI's clients")?;
    }
    // Short: a socket lies in it.
    let work = std::env::temp_dir().join(format!("pal-openai-{}", std::process::id()));
    let script = root.join("xtask/interop/openai_clients.py");
    let codex = cache.join("npm/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex");
    let words = [script.as_path(), &root.join("target/debug"), work.as_path(), codex.as_path()];
    program(&python, words).run("OpenAI's clients")?;
    std::fs::remove_dir_all(&work).trying("tidying up")
}
