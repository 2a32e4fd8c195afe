//! Running programs: where the repository is, which cargo to use, and failures that say what was tried.

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a command of ours did not succeed: a sentence for the developer.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(pub String);

/// What every command of ours returns.
pub type Result<T> = std::result::Result<T, Failure>;

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self(message)
    }
}

/// Turns an error into a failure that says what was tried.
pub trait Trying<T> {
    fn trying(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> Trying<T> for std::result::Result<T, E> {
    fn trying(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let ours = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&ours).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A program with its arguments, run in the root of the repository.
#[derive(Debug)]
pub struct Program(Command);

/// The cargo that runs us.
pub fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Program {
    program(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")), args)
}

/// Any program.
pub fn program<S: AsRef<OsStr>>(name: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Program {
    let mut command = Command::new(name);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    Program(command)
}

impl Program {
    /// Runs with our own output streams; fails unless it succeeds.
    pub fn run(mut self, what: &str) -> Result<()> {
        let status = self.0.status().trying(format!("{what}: `{}` cannot be started", self.name()))?;
        if status.success() { Ok(()) } else { Err(Failure(format!("{what} failed ({status})"))) }
    }

    /// Runs and returns what it wrote to standard output.
    pub fn read(mut self, what: &str) -> Result<String> {
        self.0.stderr(Stdio::inherit());
        let output = self.0.output().trying(format!("{what}: `{}` cannot be started", self.name()))?;
        if !output.status.success() {
            return Err(Failure(format!("{what} failed ({})", output.status)));
        }
        String::from_utf8(output.stdout).trying(format!("{what}: the output is not text"))
    }

    /// For callers that need the process itself.
    pub fn into_command(self) -> Command {
        self.0
    }

    /// A password prompt or a question needs the terminal.
    pub fn with_terminal(mut self) -> Self {
        self.0.stdin(Stdio::inherit());
        self
    }

    fn name(&self) -> String {
        self.0.get_program().to_string_lossy().into_owned()
    }
}

/// Whether the whole workspace was built just now. Building single packages gives them fewer features of what they
/// share, so that cargo would compile most of it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Built {
    All,
    NotYet,
}

/// Builds the packages that are needed, unless everything is there, and returns the directory with their programs.
pub fn programs(built: Built, packages: &[&str]) -> Result<PathBuf> {
    if built == Built::NotYet {
        println!("Building {} (the first time this takes some minutes)", packages.join(" and "));
        let words = packages.iter().flat_map(|package| ["--package", package]);
        cargo(["build", "--locked"].into_iter().chain(words)).run("the build")?;
    }
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str().ok_or("no target directory").trying("cargo metadata")?;
    Ok(Path::new(target).join("debug"))
}

/// What cargo knows of the workspace.
pub fn metadata() -> Result<Value> {
    let text = cargo(["metadata", "--no-deps", "--format-version", "1", "--locked"]).read("cargo metadata")?;
    serde_json::from_str(&text).trying("cargo metadata is not understood")
}

/// The same with every package that the workspace depends on.
pub fn whole_metadata() -> Result<Value> {
    let text = cargo(["metadata", "--format-version", "1", "--locked"]).read("cargo metadata")?;
    serde_json::from_str(&text).trying("cargo metadata is not understood")
}

/// Whether a program of this name is on the path.
pub fn on_path(name: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
