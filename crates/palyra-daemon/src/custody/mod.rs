//! What agents can write, and whether a file that decides lies there.
//!
//! File tools write in the workspace, runs write in the workspace and in `write_roots`. A file that decides must not
//! lie there, and neither may a link or a directory that leads to it: an agent could put something else in its place.
//! Names are followed as the kernel follows them, one by one, because a canonical path does not tell through which
//! directories it was found. Two further ways to one file are looked at: other mounts of its directory ([`mounts`]),
//! and other names of the file itself.
//!
//! INVARIANT (what_decides_is_out_of_reach): whatever is vouched for could be written by no agent at that time.

mod mounts;
mod way;

use mounts::Mounts;
use palyra_protocol::{Custody, CustodyError};
use palyra_sandbox::SandboxProcessRunnerPolicy;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
pub(crate) use way::Way;

/// The directories that agents can write: those of every registered workspace, as they come and go.
#[derive(Debug)]
pub struct AgentReach {
    /// Free of links.
    roots: RwLock<Vec<PathBuf>>,
}

impl AgentReach {
    /// What file tools and runs can write under a policy. Both share the workspace, whatever access runs have to it.
    #[must_use]
    pub fn of(policy: &SandboxProcessRunnerPolicy) -> Self {
        Self::new(std::iter::once(&policy.workspace_root).chain(&policy.write_roots))
    }

    fn new<'p>(roots: impl IntoIterator<Item = &'p PathBuf>) -> Self {
        // A root that is not there cannot be given to a run; should it appear, it is this one.
        let real = |root: &PathBuf| root.canonicalize().unwrap_or_else(|_| root.clone());
        Self { roots: RwLock::new(roots.into_iter().map(real).collect()) }
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.roots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Agents can write there too, from now on.
    pub(crate) fn grow(&self, root: &Path) {
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        if !roots.iter().any(|known| known == root) {
            roots.push(root.to_owned());
        }
    }

    /// Agents cannot write there any more.
    pub(crate) fn shrink(&self, root: &Path) {
        self.roots.write().unwrap_or_else(PoisonError::into_inner).retain(|known| known != root);
    }

    /// The root that a real path can be written through, if any.
    fn holds(&self, path: &Path, mounts: &Mounts) -> Option<PathBuf> {
        let (roots, lies_in) = (self.roots(), |root: &&PathBuf| path.starts_with(root));
        roots.iter().find(lies_in).cloned().or_else(|| mounts.other_way(path, &roots))
    }
}

impl Custody for AgentReach {
    fn vouch(&self, path: &Path) -> Result<Option<PathBuf>, CustodyError> {
        let mounts = Mounts::now().map_err(|source| CustodyError::Unreadable { path: Mounts::file(), source })?;
        let way = Way::to(path).map_err(|(path, source)| CustodyError::Unreadable { path, source })?;
        let in_reach = |at: &Path, root| CustodyError::InReach { path: path.to_owned(), at: at.to_owned(), root };
        for name in &way.names {
            // Whoever can write the directory that a name is looked up in can put something else under that name.
            let root = name.parent().and_then(|directory| self.holds(directory, &mounts));
            root.map_or(Ok(()), |root| Err(in_reach(name, root)))?;
        }
        let Some((real, metadata)) = way.end else { return Ok(None) };
        if let Some(root) = self.holds(&real, &mounts) {
            return Err(in_reach(&real, root));
        }
        if self.may_have_other_names(&metadata) {
            return Err(CustodyError::OtherNames { path: path.to_owned(), names: metadata.nlink() });
        }
        Ok(Some(real))
    }
}

impl AgentReach {
    /// Whether a file could be written by another name: it has one, on a file system where agents can write, and the
    /// daemon's user, as whom runs may act, could write it.
    fn may_have_other_names(&self, file: &Metadata) -> bool {
        let writable = file.uid() == rustix::process::geteuid().as_raw() || file.mode() & 0o022 != 0;
        let near = |root: &PathBuf| root.metadata().is_ok_and(|root| root.dev() == file.dev());
        file.is_file() && file.nlink() > 1 && writable && self.roots().iter().any(near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Place {
        _dir: tempfile::TempDir,
        top: PathBuf,
        reach: AgentReach,
    }

    /// A workspace, a write root, and a place for rules.
    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["work/sub", "out/deep", "rules/cases"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        for name in ["work/file", "out/deep/file", "rules/file", "rules/cases/file"] {
            fs::write(top.join(name), "x").unwrap();
        }
        let reach = AgentReach::new([&top.join("work"), &top.join("out")]);
        Place { _dir: dir, top, reach }
    }

    #[test]
    fn what_decides_is_out_of_reach() {
        let Place { _dir, top, reach } = place();
        let link = |target: PathBuf, name: &str| symlink(target, top.join(name)).unwrap();
        link(top.join("work/file"), "rules/into-workspace");
        link(top.join("out/deep"), "rules/into-root");
        link(top.join("rules"), "work/out-again");
        link(top.join("work/out-again/file"), "rules/there-and-back");
        link(PathBuf::from("file"), "rules/alias");
        link(top.join("rules/loop"), "rules/loop");
        link(top.join("rules/not-yet"), "rules/dangling");
        link(top.join("work/not-yet"), "rules/dangling-into-workspace");
        for (path, at) in [
            ("work", "work"),
            ("work/file", "work/file"),
            ("work/nothing", "work/nothing"),
            ("out/deep/file", "out/deep"),
            ("rules/into-workspace", "work/file"),
            ("rules/into-root/file", "out/deep"),
            ("work/out-again/file", "work/out-again"),
            ("rules/there-and-back", "work/out-again"),
            ("rules/dangling-into-workspace", "work/not-yet"),
            ("rules/../work/file", "work/file"),
        ] {
            match reach.vouch(&top.join(path)) {
                Err(CustodyError::InReach { at: found, .. }) => assert_eq!(found, top.join(at), "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
        for (path, real) in [
            ("rules", Some("rules")),
            ("rules/file", Some("rules/file")),
            ("rules/alias", Some("rules/file")),
            ("work/../rules/cases/file", Some("rules/cases/file")),
            ("rules/nothing", None),
            ("rules/nothing/at/all", None),
            ("rules/dangling", None),
        ] {
            assert_eq!(reach.vouch(&top.join(path)).unwrap(), real.map(|real| top.join(real)), "{path}");
        }
        assert!(matches!(reach.vouch(&top.join("rules/loop")), Err(CustodyError::Unreadable { .. })));
    }

    #[test]
    fn a_file_with_another_name_is_not_vouched_for() {
        let Place { _dir, top, reach } = place();
        fs::hard_link(top.join("rules/file"), top.join("work/hard")).unwrap();
        let refused = reach.vouch(&top.join("rules/file")).unwrap_err();
        assert!(matches!(refused, CustodyError::OtherNames { names: 2, .. }), "{refused}");
        assert_eq!(refused.code(), "agents_could_write");
    }
}
