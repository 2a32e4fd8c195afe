//! Who the command runs as.
//!
//! An ordinary daemon runs it as itself. A root daemon must not: whatever walls stand, a process of root's owns root's
//! files (`bwrap` maps 0 to 0). It becomes the workspace's owner if that is an ordinary user, and `nobody` otherwise;
//! then the workspace is attached with its owner mapped, so that files it creates belong to root like the rest.
//! INVARIANT (no root): the command never runs as uid 0.

use super::grants::Roots;
use super::plan::User;
use super::view::{self, Needs, Rest, View};
use crate::error::SandboxError;
use crate::hidden_files::Hidden;
use crate::policy::SandboxTier;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The user that owns nothing.
pub(super) const NOBODY: User = User { uid: 65534, gid: 65534 };

/// Whom to become, and how the file tree has to look for them.
#[derive(Debug)]
pub(super) struct Identity {
    /// `None`: the daemon's own user.
    pub(super) user: Option<User>,
    /// The uid that the command has, as the host counts.
    pub(super) uid: u32,
    /// `None`: the host's own.
    pub(super) view: Option<Arc<View>>,
}

/// Chooses the user for a run, and a file tree without what is hidden.
pub(super) fn choose(
    roots: &Roots,
    tier: SandboxTier,
    hidden: &Arc<Hidden>,
    needs: Needs,
) -> Result<Identity, SandboxError> {
    let own = rustix::process::geteuid();
    let rest = match tier {
        SandboxTier::B => Rest::read_only()?,
        SandboxTier::C => Rest::AsItIs,
    };
    if !own.is_root() {
        return Ok(Identity { user: None, uid: own.as_raw(), view: view::for_ordinary(roots, (rest, needs), hidden)? });
    }
    let owner = owner_of(&roots.workspace)?;
    let user = if owner.uid == 0 { NOBODY } else { User { uid: owner.uid, gid: primary_group(owner.uid) } };
    Ok(Identity { user: Some(user), uid: user.uid, view: view::for_user(roots, user, (rest, needs), hidden)? })
}

pub(super) fn owner_of(path: &Path) -> Result<User, SandboxError> {
    let metadata =
        fs::metadata(path).map_err(|source| SandboxError::WorkspaceUnavailable { path: path.to_owned(), source })?;
    Ok(User { uid: metadata.uid(), gid: metadata.gid() })
}

/// The group of a user as `/etc/passwd` has it. Never that of the workspace, which may be a powerful one.
fn primary_group(uid: u32) -> u32 {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?))
        })
        .find(|(user, gid)| *user == uid && *gid != 0)
        .map_or(NOBODY.gid, |(_, gid)| gid)
}

/// The outermost directory on the way to `path` that the user may not pass through.
pub(super) fn first_blocked_ancestor(path: &Path, user: User) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
    ancestors.reverse();
    ancestors.into_iter().find(|ancestor| !permits(ancestor, user, 0o1)).map(Path::to_owned)
}

pub(super) fn readable(path: &Path, user: User) -> bool {
    permits(path, user, 0o5)
}

/// Whether the mode bits give the user `bits`. Access lists may say otherwise; then the kernel refuses later.
fn permits(path: &Path, user: User, bits: u32) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let shift = if metadata.uid() == user.uid {
        6
    } else if metadata.gid() == user.gid {
        3
    } else {
        0
    };
    (metadata.mode() >> shift) & bits == bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_gets_the_group_that_owns_nothing() {
        assert_eq!(primary_group(4_000_000_000), NOBODY.gid);
        assert_eq!(primary_group(0), NOBODY.gid);
    }
}
