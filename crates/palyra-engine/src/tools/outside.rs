//! Reading outside the workspace, where the configuration lets calls ask for that.
//!
//! A path outside is named in facets of its own (`outside`), so that no rule about the workspace's paths covers it by
//! mistake; the rules that ship have a person asked each time. What is found is opened when the call is resolved: what
//! was shown is what is read. Whether something is there is not told before the answer. The daemon's own files are
//! never read.

use super::{Input, Place};
use crate::config::OutsidePaths;
use crate::flow::resolve::Refusal;
use palyra_protocol::Facets;
use palyra_workspace::{FileError, ResolvedPath, Workspace};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// File systems that show the machine and not files.
const NO_FILES: &[&str] = &["/proc", "/sys", "/dev"];

/// Where a file tool reads.
#[derive(Debug)]
pub(super) enum Spot {
    /// In the workspace.
    Inside(ResolvedPath),
    /// Somewhere else.
    Outside(Elsewhere),
}

/// Something outside the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    /// Absolute, free of links as far as it exists.
    pub(super) shown: String,
    /// The directory that holds it, or that it is, and its path there; none where nothing can be opened.
    pub(super) opened: Option<(Arc<Workspace>, ResolvedPath)>,
}

impl Elsewhere {
    pub(super) fn facets(&self) -> Facets {
        Facets { outside: vec![self.shown.clone()], ..Facets::default() }
    }

    /// Where to read, and what or that nothing is there; nothing is looked for in `instead`.
    pub(crate) fn open(self, instead: &Arc<Workspace>) -> (Arc<Workspace>, Result<ResolvedPath, FileError>) {
        match self.opened {
            Some((directory, path)) => (directory, Ok(path)),
            None => (Arc::clone(instead), Err(FileError::NotFound { path: self.shown })),
        }
    }

    /// What an absolute path names, unless it is one that no answer opens.
    fn at(text: &str, protected: &[PathBuf]) -> Option<Self> {
        let named = Path::new(text);
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !named.is_absolute() || !named.components().all(plain) || text.contains('\0') {
            return None;
        }
        let real = named.canonicalize().ok();
        let path = real.clone().unwrap_or_else(|| named.to_owned());
        let own = protected.iter().map(|own| own.canonicalize().unwrap_or_else(|_| own.clone()));
        // A tree that holds the daemon's own files is not read either.
        let exposes = |own: &PathBuf| path.starts_with(own) || own.starts_with(&path);
        if own.into_iter().any(|own| exposes(&own)) || NO_FILES.iter().any(|kernel| path.starts_with(kernel)) {
            return None;
        }
        let shown = path.to_str()?.to_owned();
        let opened = real.and_then(|real| opened(&real));
        Some(Self { shown, opened })
    }
}

fn opened(real: &Path) -> Option<(Arc<Workspace>, ResolvedPath)> {
    let (directory, name) = match real.is_dir() {
        true => (real, "."),
        false => (real.parent()?, real.file_name()?.to_str()?),
    };
    let directory = Workspace::open(directory).ok()?;
    let path = directory.resolve(name).ok()?;
    Some((Arc::new(directory), path))
}

impl Place<'_> {
    /// Like [`Place::path`], for what is only read: outside the workspace too, where calls may ask for that.
    pub(super) fn spot(&self, input: Input<'_>, pointer: &str) -> Result<Spot, Refusal> {
        match self.path(input, pointer, |facets, path| facets.paths_read.push(path)) {
            Ok(path) => Ok(Spot::Inside(path)),
            Err(refusal) => {
                let asks = self.config.outside_paths == OutsidePaths::Ask;
                let is_outside = refusal.problem.code == "path_outside_workspace";
                let elsewhere = (asks && is_outside)
                    .then(|| Elsewhere::at(input.optional(pointer)?, &self.config.process_runner.protected_paths));
                elsewhere.flatten().map(Spot::Outside).ok_or(refusal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_daemons_own_or_no_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["state", "other"] {
            std::fs::create_dir(top.join(name)).unwrap();
            std::fs::write(top.join(name).join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(top.join("state"), top.join("other/link")).unwrap();
        let protected = [top.join("state")];
        let at = |name: &str| Elsewhere::at(top.join(name).to_str().unwrap(), &protected);
        for name in ["state", "state/file", "other/link", "other/link/file", "", "other/../state/file", "state/not-yet"]
        {
            assert!(at(name).is_none(), "{name}");
        }
        for name in ["/proc/self/environ", "relative", "/dev/null"] {
            assert!(Elsewhere::at(name, &protected).is_none(), "{name}");
        }
        let found = at("other/file").unwrap();
        assert_eq!(found.facets().outside, [top.join("other/file").to_str().unwrap()]);
        let instead = Arc::new(Workspace::open(&top.join("other")).unwrap());
        assert!(found.open(&instead).1.is_ok() && at("other").unwrap().open(&instead).1.is_ok());
        // Whether it is there is told after the answer.
        assert!(matches!(at("other/missing").unwrap().open(&instead).1, Err(FileError::NotFound { .. })));
    }
}
