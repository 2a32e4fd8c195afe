//! Outside the workspace: what file tools read and change there, and where commands run, if the configuration lets calls
//! ask for that.
//!
//! A path outside is named in facets of its own (`outside`), so that no rule about the workspace's paths covers it by
//! mistake; the rules that ship have a person asked each time. What is found is opened when the call is resolved: what
//! was shown is what is read or changed. Whether something is there is not told before the answer. The daemon's own files
//! are never touched. A command's directory is shown to it read-only; what is changed outside cannot be undone.
//!
//! The notes of an agent's own client (`client_notes.txt`) are the exception: they are the agent's,
//! and no rule that ships asks about them.

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
        let shown = vec![self.shown.clone()];
        match is_note(&self.shown) {
            true => Facets { notes: shown, ..Facets::default() },
            false => Facets { outside: shown, ..Facets::default() },
        }
    }

    /// The facets of a call that would write it.
    pub(super) fn written(&self) -> Facets {
        let shown = vec![self.shown.clone()];
        match is_note(&self.shown) {
            true => Facets { notes: shown.clone(), outside_written: shown, ..Facets::default() },
            false => Facets { outside: shown.clone(), outside_written: shown, ..Facets::default() },
        }
    }

    /// Where to read, and what or that nothing is there; nothing is looked for in `instead`.
    pub(crate) fn open(self, instead: &Arc<Workspace>) -> (Arc<Workspace>, Result<ResolvedPath, FileError>) {
        match self.opened {
            Some((directory, path)) => (directory, Ok(path)),
            None => (Arc::clone(instead), Err(FileError::NotFound { path: self.shown })),
        }
    }

    /// A file to be written, in a directory that is there.
    fn to_write(text: &str, protected: &[PathBuf]) -> Option<Self> {
        let named = Path::new(text);
        let name = named.file_name()?.to_str()?;
        let parent = Self::at(named.parent()?.to_str()?, protected)?;
        let (directory, _) = parent.opened?;
        let path = directory.resolve(name).ok()?;
        let shown = directory.root().join(path.as_str());
        // A link in the directory may lead further, and no answer opens what is the daemon's own.
        let allowed = Self::at(shown.to_str()?, protected)?;
        (allowed.shown.as_str() == shown.to_str()?)
            .then_some(Self { shown: allowed.shown, opened: Some((directory, path)) })
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

/// The notes that agents' clients keep for their agents.
const NOTES: &str = include_str!("client_notes.txt");

/// Whether a path is one of them, in the daemon's own home directory.
fn is_note(path: &str) -> bool {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    let below = home.as_ref().and_then(|home| Path::new(path).strip_prefix(home).ok()).and_then(Path::to_str);
    let fits = |pattern: &str, path: &str| {
        let (mut names, mut parts) = (pattern.split('/'), path.split('/'));
        let all = names.by_ref().all(|name| parts.next().is_some_and(|part| one_fits(name, part)));
        all && parts.next().is_none()
    };
    let lines = || NOTES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    below.is_some_and(|path| lines().any(|pattern| fits(pattern, path)))
}

/// Whether a name fits, where `*` stands for any beginning that is not hidden.
fn one_fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => name.ends_with(end) && name.len() > end.len() && !name.starts_with('.'),
        None => pattern == name,
    }
}

impl Place<'_> {
    /// A file outside the workspace that an input's text names, to be written, where calls may ask for that.
    pub(super) fn outside_to_write(&self, text: &str) -> Option<Elsewhere> {
        let asks = self.config.outside_paths == OutsidePaths::Ask;
        asks.then(|| Elsewhere::to_write(text, &self.config.process_runner.protected_paths)).flatten()
    }

    /// A directory outside the workspace that a command would run in, where calls may ask for that. Not one that holds
    /// the home directory: nobody can see what they would show.
    pub(super) fn directory_outside(&self, text: &str) -> Option<PathBuf> {
        let asks = self.config.outside_paths == OutsidePaths::Ask;
        let found = asks.then(|| Elsewhere::at(text, &self.config.process_runner.protected_paths)).flatten()?;
        let directory = PathBuf::from(found.shown);
        let holds = |path: Option<PathBuf>| path.is_some_and(|path| path.starts_with(&directory));
        let too_much = holds(std::env::home_dir().and_then(|home| home.canonicalize().ok()))
            || self.workspace.root().starts_with(&directory);
        (directory.is_dir() && !too_much).then_some(directory)
    }

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
    fn notes_are_those_of_clients_and_nothing_beside_them() {
        let home = std::env::home_dir().unwrap().canonicalize().unwrap();
        let note = |path: &str| is_note(home.join(path).to_str().unwrap());
        assert!(note(".claude/plans/a-b.md") && note(".claude/projects/-w/s-1/tool-results/x.txt"));
        for path in [".claude/settings.json", ".claude/plans/.x.md", ".claude/plans/a/b.md", ".ssh/id_rsa", "a.md", ""]
        {
            assert!(!note(path), "{path}");
        }
        assert!(!is_note("/elsewhere/.claude/plans/a.md"));
    }

    #[test]
    fn a_file_is_written_where_it_was_shown_and_never_among_the_daemons_own() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["state", "other"] {
            std::fs::create_dir(top.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(top.join("state/key"), top.join("other/link")).unwrap();
        let protected = [top.join("state")];
        let at = |name: &str| Elsewhere::to_write(top.join(name).to_str().unwrap(), &protected);
        for name in ["state/key", "other/link", "missing/file", "other/..", "other/../state/x"] {
            assert!(at(name).is_none(), "{name}");
        }
        let found = at("other/new").unwrap();
        assert_eq!(found.written().outside_written, [top.join("other/new").to_str().unwrap()]);
    }

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
