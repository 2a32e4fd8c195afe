//! Running compilers.

use crate::error::BuildError;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How much of a compiler's words an error repeats.
const MOST_OUTPUT: usize = 16 << 10;

/// Runs a compiler and returns what it wrote to standard output.
pub(crate) fn run(tool: &'static str, command: &mut Command) -> Result<Vec<u8>, BuildError> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| {
        let path = PathBuf::from(command.get_program());
        BuildError::Io { action: "start", path, source }
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said[said.len().saturating_sub(MOST_OUTPUT)..]).trim().to_owned();
    Err(BuildError::Compiler { tool, output: if said.is_empty() { output.status.to_string() } else { said } })
}

/// A program on the path.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// The first of these that is there.
pub(crate) fn first_file<'a>(paths: impl IntoIterator<Item = Option<&'a Path>>) -> Option<PathBuf> {
    paths.into_iter().flatten().find(|path| path.is_file()).map(Path::to_owned)
}
