//! `workspace_root`: the directory that tools work in.

use super::error::ConfigError;
use std::path::{Path, PathBuf};

const KEY: &str = "workspace_root";

/// The workspace, free of links.
///
/// INVARIANT (state_is_not_workspace): a tool can never reach the daemon's keys or journal, because the two directories
/// do not overlap.
pub(super) fn validate(given: Option<PathBuf>, state_dir: &Path) -> Result<PathBuf, ConfigError> {
    let value = |message: String| ConfigError::value(KEY, message);
    let given = match given {
        Some(path) => path,
        None => std::env::current_dir().map_err(|e| value(format!("the current directory is gone: {e}")))?,
    };
    let root = given
        .canonicalize()
        .map_err(|e| value(format!("`{}` cannot be used: {e}; name an existing directory", given.display())))?;
    if !root.is_dir() {
        return Err(value(format!("`{}` is not a directory", root.display())));
    }
    if state_dir.starts_with(&root) || root.starts_with(state_dir) {
        return Err(ConfigError::Overlap { workspace: root, state: state_dir.to_owned() });
    }
    Ok(root)
}
