//! `cargo xtask attention`: how often a person is asked when real coding agents work, and what of dangerous calls is
//! let through.
//!
//! The calls are not part of this repository: they lie in a directory beside it, with the program that counts
//! (`run.py`). It is given the coding policy and the configuration that `palyra init` writes; nothing is executed.

use crate::shell::{Failure, Result, Trying as _, cargo, program, root};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where the calls are, unless a flag says otherwise: beside the repository.
const BESIDE: &str = "../shared/attention";
const MODES: [&str; 3] = ["simple", "shell", "adapted"];

pub fn run(data: Option<PathBuf>, rest: &[String]) -> Result<()> {
    let data = data.unwrap_or_else(|| root().join(BESIDE));
    let script = data.join("run.py");
    if !script.is_file() {
        let said =
            format!("`{}` is not there; say where the calls are: `cargo xtask attention --data DIR`", script.display());
        return Err(Failure(said));
    }
    cargo(["build", "--locked", "--package", "palyra-cli", "--package", "palyra-daemon"]).run("the build")?;
    let palyra = root().join("target/debug/palyra");
    let config = root().join("target/attention.toml");
    std::fs::write(&config, configuration(&palyra)?).trying("the configuration")?;
    let mut words = vec![script.display().to_string(), "--palyra".into(), palyra.display().to_string()];
    words.extend(["--policy".into(), "policies/examples/coding".into()]);
    words.extend(["--config".into(), config.display().to_string()]);
    words.extend(MODES.iter().flat_map(|mode| ["--mode".to_owned(), (*mode).to_owned()]));
    words.extend(rest.iter().cloned());
    program("python3", words).run("the count")
}

/// What `palyra init` would write, without where this machine's workspace and policy are.
fn configuration(palyra: &Path) -> Result<String> {
    let workspace = empty_workspace()?;
    let place = workspace.display().to_string();
    let words = ["--output", "json", "init", "--print", "--no-client", "--workspace", &place];
    let printed = program(palyra, words).read("palyra init --print");
    std::fs::remove_dir(&workspace).trying("a workspace")?;
    let document: Value = serde_json::from_str(&printed?).trying("palyra init --print")?;
    let files = document["files"].as_array().into_iter().flatten();
    let written = files.filter(|file| file["path"].as_str().is_some_and(|path| path.ends_with("palyra.toml")));
    let text = written.filter_map(|file| file["content"].as_str()).next_back();
    let text = text.ok_or_else(|| Failure("palyra init prints no palyra.toml".into()))?;
    let elsewhere = |line: &&str| !line.starts_with("workspace_root") && !line.starts_with("policy_dir");
    Ok(text.lines().filter(elsewhere).map(|line| format!("{line}\n")).collect())
}

/// A directory that holds nothing, for `init` to take for a workspace.
fn empty_workspace() -> Result<PathBuf> {
    let path = root().join(format!("target/attention-{}", std::process::id()));
    std::fs::create_dir_all(&path).trying("a workspace")?;
    Ok(path)
}
