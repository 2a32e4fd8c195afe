//! A place for one trial: a workspace with copies of what the manifest's roots name, and an empty storage. It is
//! removed at the end.

use super::refusal::Refusal;
use palyra_plugins::Grant;
use palyra_protocol::Digest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 256 << 20;
const MAX_FILES: usize = 10_000;

pub(super) struct Place {
    directory: tempfile::TempDir,
    before: BTreeMap<String, Digest>,
}

impl Place {
    /// Makes a place with the roots of a grant, filled from a workspace if there is one.
    pub(super) fn new(grant: &Grant, workspace: Option<&Path>) -> Result<Self, Refusal> {
        let failed = |error: std::io::Error| Refusal::io("a place for the trial cannot be made", &error);
        let directory = tempfile::Builder::new().prefix("palyra-try-").tempdir().map_err(failed)?;
        let mut place = Self { directory, before: BTreeMap::new() };
        std::fs::create_dir(place.workspace()).map_err(failed)?;
        let mut room = (MAX_BYTES, MAX_FILES);
        for root in grant.roots() {
            let root = root.to_string();
            let target = place.workspace().join(&root);
            std::fs::create_dir_all(&target).map_err(failed)?;
            if let Some(workspace) = workspace.filter(|workspace| is_free_of_links(workspace, &root)) {
                copy(&workspace.join(&root), &target, &mut room)?;
            }
        }
        place.before = place.files()?;
        Ok(place)
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(super) fn storage(&self) -> PathBuf {
        self.directory.path().join("storage")
    }

    /// Files that the guest created, changed or removed.
    pub(super) fn changed(&self) -> Result<Vec<String>, Refusal> {
        let after = self.files()?;
        let mut changed: Vec<String> = after
            .iter()
            .filter(|(path, digest)| self.before.get(*path) != Some(digest))
            .map(|(path, _)| path.clone())
            .chain(self.before.keys().filter(|path| !after.contains_key(*path)).map(|path| format!("{path} (removed)")))
            .collect();
        changed.sort();
        Ok(changed)
    }

    fn files(&self) -> Result<BTreeMap<String, Digest>, Refusal> {
        let base = self.workspace();
        let mut files = BTreeMap::new();
        let mut open = vec![base.clone()];
        while let Some(directory) = open.pop() {
            for (path, kind) in entries(&directory)? {
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_file() {
                    let read = std::fs::read(&path).map_err(|error| unreadable(&path, &error))?;
                    let name = path.strip_prefix(&base).unwrap_or(&path).display().to_string();
                    files.insert(name, Digest::of(&read));
                }
            }
        }
        Ok(files)
    }
}

/// Whether the way to a root leads through no link: the daemon would not follow one either.
fn is_free_of_links(workspace: &Path, root: &str) -> bool {
    let mut here = workspace.to_owned();
    root.split('/').filter(|name| *name != ".").all(|name| {
        here.push(name);
        here.symlink_metadata().is_ok_and(|status| status.is_dir())
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Refusal {
    Refusal::io(&format!("`{}` cannot be read", path.display()), error)
}

fn entries(directory: &Path) -> Result<Vec<(PathBuf, std::fs::FileType)>, Refusal> {
    let read = std::fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
    let one = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.map_err(|error| unreadable(directory, &error))?;
        let kind = entry.file_type().map_err(|error| unreadable(&entry.path(), &error))?;
        Ok((entry.path(), kind))
    };
    read.map(one).collect()
}

/// Copies directories and files, within limits; links and everything else stay behind.
fn copy(from: &Path, to: &Path, room: &mut (u64, usize)) -> Result<(), Refusal> {
    if !from.symlink_metadata().is_ok_and(|status| status.is_dir()) {
        return Ok(());
    }
    let mut open = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = open.pop() {
        std::fs::create_dir_all(&to).map_err(|error| unreadable(&to, &error))?;
        for (path, kind) in entries(&from)? {
            let Some(name) = path.file_name() else { continue };
            let target = to.join(name);
            if kind.is_dir() {
                open.push((path, target));
            } else if kind.is_file() {
                let bytes = path.metadata().map_err(|error| unreadable(&path, &error))?.len();
                *room = match (room.0.checked_sub(bytes), room.1.checked_sub(1)) {
                    (Some(bytes), Some(files)) => (bytes, files),
                    _ => {
                        let limits = format!("{} MiB and {MAX_FILES} files", MAX_BYTES >> 20);
                        return Err(Refusal::refused(
                            "trial_workspace_too_large",
                            format!("the roots of `{}` have more than {limits}", from.display()),
                            Some("try it with a smaller directory".to_owned()),
                        ));
                    }
                };
                std::fs::copy(&path, &target).map_err(|error| unreadable(&path, &error))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_plugins::{RequestedCapabilities, WasmPluginRunnerPolicy};
    use std::os::unix::fs::symlink;

    #[test]
    fn only_the_roots_are_copied_and_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let (workspace, outside) = (place.path().join("w"), place.path().join("outside"));
        for directory in [&workspace.join("data/inner"), &workspace.join("other"), &outside.join("below")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        for file in ["w/data/a", "w/data/inner/b", "w/other/c", "outside/below/secret"] {
            std::fs::write(place.path().join(file), file).unwrap();
        }
        symlink(outside.join("below/secret"), workspace.join("data/link")).unwrap();
        symlink(&outside, workspace.join("way")).unwrap();
        let roots = vec!["data".parse().unwrap(), "way/below".parse().unwrap()];
        let asked = RequestedCapabilities { read_roots: roots.clone(), ..RequestedCapabilities::default() };
        let policy = WasmPluginRunnerPolicy { allowed_read_roots: roots, ..WasmPluginRunnerPolicy::default() };
        let trial = Place::new(&policy.grant(&asked), Some(&workspace)).unwrap();
        assert_eq!(trial.before.keys().collect::<Vec<_>>(), ["data/a", "data/inner/b"]);
        assert_eq!(trial.changed().unwrap(), Vec::<String>::new());
        std::fs::write(trial.workspace().join("data/a"), "changed").unwrap();
        std::fs::remove_file(trial.workspace().join("data/inner/b")).unwrap();
        assert_eq!(trial.changed().unwrap(), ["data/a", "data/inner/b (removed)"]);
        assert_eq!(std::fs::read_to_string(workspace.join("data/a")).unwrap(), "w/data/a");
    }
}
