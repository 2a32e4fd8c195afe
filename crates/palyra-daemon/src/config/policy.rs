//! `policy_dir`: the operator's rules.

use super::error::ConfigError;
use palyra_engine::Rehearsal;
use palyra_policy::{Membership, PolicyLoader};
use palyra_protocol::Custody;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory as it is named, made absolute. Links in it are followed anew whenever the rules are read, so that a
/// link that is switched is noticed.
///
/// INVARIANT (rules_are_not_workspace): what an agent may write is never read as a rule. The rules' loader asks
/// `custody` about every file that it reads; this check says so before anything else is started.
pub(super) fn validate(given: &Path, workspace: &Path, custody: &dyn Custody) -> Result<PathBuf, ConfigError> {
    let dir = named(given)?;
    let in_reach = |source| ConfigError::InReach { what: "`policy_dir`", source };
    let Some(real) = custody.vouch(&dir).map_err(in_reach)? else {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(ConfigError::Unreadable { path: given.to_owned(), source });
    };
    if workspace.starts_with(&real) {
        let message = format!(
            "`{}` holds the workspace `{}`; keep the rules in a directory of their own",
            real.display(),
            workspace.display()
        );
        return Err(ConfigError::value("policy_dir", message));
    }
    Ok(dir)
}

/// The directory, absolute, whoever might write there: for those who only look.
pub(super) fn named(given: &Path) -> Result<PathBuf, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: given.to_owned(), source };
    std::fs::metadata(given).map_err(unreadable)?;
    std::path::absolute(given).map_err(unreadable)
}

/// How the rules are read.
pub(super) fn loader(
    directory: Option<PathBuf>,
    membership: Membership,
    custody: Option<Arc<dyn Custody>>,
) -> PolicyLoader {
    PolicyLoader { directory, membership, tools: Some(Arc::new(Rehearsal::default())), custody }
}
