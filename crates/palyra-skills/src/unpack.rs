//! The `skills-managed` directory: artifacts unpacked, each version in a directory of its own.
//!
//! An installation appears whole or not at all. Files are written into a staging directory and made durable; then the
//! directory is renamed into its place, which is one step for everybody who looks. What a crash leaves behind is a
//! staging directory, which nobody reads and [`ManagedDirectory::clean`] removes. Nothing here trusts what it finds: an
//! unpacked skill is read like a stranger's artifact, and its content digest is computed anew.

use crate::archive::Entry;
use crate::artifact::{Artifact, ArtifactError};
use crate::constants::SIGNATURE_ENTRY;
use crate::files::{read_regular, sync_directory};
use crate::ids::{SkillId, SkillVersion};
use crate::package::{FolderReader, MAX_FOLDER_BYTES, SourceError};
use palyra_protocol::Digest;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{Error, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How the names of directories begin that are not installations.
const STAGING: &str = ".staging-";
const REMOVED: &str = ".removed-";

/// Why a skill cannot be unpacked, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The disk failed; nothing is half installed.
    #[error("`{}` cannot be {what}: {source}", path.display())]
    Disk {
        /// What was read or written.
        path: PathBuf,
        /// `read`, `written` or `removed`.
        what: &'static str,
        /// Why.
        source: Error,
    },
    /// Something else is there already.
    #[error("{skill} is installed already with another content")]
    Occupied {
        /// The skill and its version.
        skill: String,
    },
    /// It is not installed.
    #[error("{skill} is not installed")]
    NotInstalled {
        /// The skill and its version.
        skill: String,
    },
    /// A file of it cannot be read, or is no regular file.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It is not an artifact any more.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// It is not the content that was admitted.
    #[error("{skill} was changed on the disk: its content is {found}, admitted was {expected}")]
    Drift {
        /// The skill and its version.
        skill: String,
        /// What is there.
        found: Digest,
        /// What was admitted.
        expected: Digest,
    },
}

impl UnpackError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk { .. } => "unpack_disk",
            Self::Occupied { .. } => "unpack_occupied",
            Self::NotInstalled { .. } => "unpack_not_installed",
            Self::Source(e) => e.code(),
            Self::Artifact(e) => e.code(),
            Self::Drift { .. } => "unpack_drift",
        }
    }

    /// Whether what is on the disk differs from what was admitted, as opposed to a disk that cannot be read.
    #[must_use]
    pub fn is_drift(&self) -> bool {
        match self {
            Self::Drift { .. } | Self::Artifact(_) | Self::NotInstalled { .. } => true,
            Self::Source(e) => !matches!(e, SourceError::Disk { .. }),
            Self::Disk { .. } | Self::Occupied { .. } => false,
        }
    }
}

/// An installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Where its files are.
    pub path: PathBuf,
    /// The digest of its content.
    pub content_sha256: Digest,
    /// Whether it was there before.
    pub was_there: bool,
}

/// The directory of installed skills.
#[derive(Debug, Clone)]
pub struct ManagedDirectory {
    root: PathBuf,
}

impl ManagedDirectory {
    /// Opens the directory, which only its owner may enter; makes it if it is not there.
    ///
    /// # Errors
    /// The disk fails.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, UnpackError> {
        let root = root.into();
        make_directory(&root, 0o700).map_err(|source| disk(&root, "written", source))?;
        Ok(Self { root })
    }

    /// Where a version is, if it is installed.
    #[must_use]
    pub fn path_of(&self, skill_id: &SkillId, version: &SkillVersion) -> PathBuf {
        self.root.join(skill_id.as_str()).join(version.to_string())
    }

    /// Unpacks an artifact. Installing the same content again changes nothing.
    ///
    /// # Errors
    /// Another content is there under this version, or the disk fails; then nothing has changed.
    pub fn install(&self, artifact: &Artifact) -> Result<Installed, UnpackError> {
        let metadata = &artifact.manifest().metadata;
        let (skill_id, version) = (&metadata.skill_id, &metadata.version);
        let path = self.path_of(skill_id, version);
        let content_sha256 = *artifact.content_digest();
        let there = |was_there| Installed { path: path.clone(), content_sha256, was_there };
        if self.is_same(skill_id, version, &content_sha256)? {
            return Ok(there(true));
        }
        let staging = self.fresh(STAGING)?;
        let written = write_all(&staging, artifact).and_then(|()| self.put_in_place(&staging, skill_id, &path));
        if let Err(source) = written {
            // What is left over is removed by the next cleaning.
            drop(fs::remove_dir_all(&staging));
            if matches!(source.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) {
                // Somebody else was faster.
                let same = self.is_same(skill_id, version, &content_sha256)?;
                let skill = shown(skill_id, version);
                return if same { Ok(there(true)) } else { Err(UnpackError::Occupied { skill }) };
            }
            return Err(disk(&path, "written", source));
        }
        Ok(there(false))
    }

    /// Whether this content is installed.
    ///
    /// # Errors
    /// Another content is.
    fn is_same(&self, skill_id: &SkillId, version: &SkillVersion, content: &Digest) -> Result<bool, UnpackError> {
        match self.load(skill_id, version) {
            Ok(installed) if installed.content_digest() == content => Ok(true),
            Err(UnpackError::NotInstalled { .. }) => Ok(false),
            Err(error @ UnpackError::Disk { .. }) => Err(error),
            _ => Err(UnpackError::Occupied { skill: shown(skill_id, version) }),
        }
    }

    fn put_in_place(&self, staging: &Path, skill_id: &SkillId, path: &Path) -> std::io::Result<()> {
        let parent = self.root.join(skill_id.as_str());
        make_directory(&parent, 0o755)?;
        sync_directory(&self.root)?;
        // One step for everybody who looks; it fails if an installation is there already.
        fs::rename(staging, path)?;
        sync_directory(&parent)?;
        sync_directory(&self.root)
    }

    /// Reads an installation as an artifact: every file, and the signature over them.
    ///
    /// # Errors
    /// It is not installed, or not what was signed.
    pub fn load(&self, skill_id: &SkillId, version: &SkillVersion) -> Result<Artifact, UnpackError> {
        let (entries, signature) = self.load_entries(skill_id, version)?;
        Ok(Artifact::assemble(entries, &signature, None)?)
    }

    /// The files of an installation, sorted by name, and its signature; for an audit, which looks at broken ones too.
    ///
    /// # Errors
    /// It is not installed, or holds something that is no regular file.
    pub fn load_entries(
        &self,
        skill_id: &SkillId,
        version: &SkillVersion,
    ) -> Result<(Vec<Entry>, Vec<u8>), UnpackError> {
        let path = self.path_of(skill_id, version);
        if let Err(error) = path.symlink_metadata() {
            return Err(match error.kind() {
                ErrorKind::NotFound => UnpackError::NotInstalled { skill: shown(skill_id, version) },
                _ => disk(&path, "read", error),
            });
        }
        let mut reader = FolderReader::new(&path);
        reader.add("")?;
        let mut entries = reader.entries;
        let signature = entries.iter().position(|entry| entry.name == SIGNATURE_ENTRY);
        let signature = signature.map(|at| entries.remove(at).content).unwrap_or_default();
        Ok((entries, signature))
    }

    /// Compares an installation with the content that was admitted.
    ///
    /// # Errors
    /// It differs, is gone, or cannot be read.
    pub fn check(
        &self,
        skill_id: &SkillId,
        version: &SkillVersion,
        expected: &Digest,
    ) -> Result<Artifact, UnpackError> {
        let artifact = self.load(skill_id, version)?;
        let found = *artifact.content_digest();
        if found == *expected {
            return Ok(artifact);
        }
        Err(UnpackError::Drift { skill: shown(skill_id, version), found, expected: *expected })
    }

    /// Reads one file of an installation and compares it with the digest that was admitted: what is returned is what
    /// was admitted, whatever happens to the file afterwards.
    ///
    /// # Errors
    /// It differs, is gone, or cannot be read.
    pub fn read_entry(
        &self,
        skill_id: &SkillId,
        version: &SkillVersion,
        name: &str,
        expected: &Digest,
    ) -> Result<Vec<u8>, UnpackError> {
        let path = self.path_of(skill_id, version).join(name);
        let read = read_regular(&path, MAX_FOLDER_BYTES).map_err(|source| disk(&path, "read", source))?;
        let skill = shown(skill_id, version);
        let Some(content) = read else { return Err(UnpackError::NotInstalled { skill }) };
        match Digest::of(&content) {
            found if found == *expected => Ok(content),
            found => Err(UnpackError::Drift { skill, found, expected: *expected }),
        }
    }

    /// Every version that is installed, by its directory's name. No file of it is opened.
    ///
    /// # Errors
    /// The disk fails.
    pub fn list(&self) -> Result<Vec<(SkillId, SkillVersion)>, UnpackError> {
        let mut found = Vec::new();
        for skill in names_in(&self.root)? {
            let Ok(skill_id) = skill.parse::<SkillId>() else { continue };
            for version in names_in(&self.root.join(&skill))? {
                if let Ok(version) = version.parse::<SkillVersion>() {
                    found.push((skill_id.clone(), version));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes a version. It is gone in one step; its files follow.
    ///
    /// # Errors
    /// It is not installed, or the disk fails.
    pub fn remove(&self, skill_id: &SkillId, version: &SkillVersion) -> Result<(), UnpackError> {
        let path = self.path_of(skill_id, version);
        let aside = self.fresh(REMOVED)?;
        fs::rename(&path, &aside).map_err(|error| {
            drop(fs::remove_dir(&aside));
            match error.kind() {
                ErrorKind::NotFound => UnpackError::NotInstalled { skill: shown(skill_id, version) },
                _ => disk(&path, "removed", error),
            }
        })?;
        let parent = self.root.join(skill_id.as_str());
        sync_directory(&parent).map_err(|source| disk(&parent, "removed", source))?;
        // The last version takes the skill's directory with it; while there are others this fails, as it should.
        drop(fs::remove_dir(&parent));
        fs::remove_dir_all(&aside).map_err(|source| disk(&aside, "removed", source))?;
        sync_directory(&self.root).map_err(|source| disk(&self.root, "removed", source))
    }

    /// Removes what crashes have left behind; tells how many directories that were. Nobody may be installing meanwhile.
    ///
    /// # Errors
    /// The disk fails.
    pub fn clean(&self) -> Result<usize, UnpackError> {
        let mut removed = 0;
        for name in names_in(&self.root)? {
            if name.starts_with(STAGING) || name.starts_with(REMOVED) {
                let path = self.root.join(&name);
                fs::remove_dir_all(&path).map_err(|source| disk(&path, "removed", source))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// A new empty directory of our own.
    fn fresh(&self, prefix: &str) -> Result<PathBuf, UnpackError> {
        for number in 0..10_000 {
            let path = self.root.join(format!("{prefix}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(source) => return Err(disk(&path, "written", source)),
            }
        }
        Err(disk(&self.root, "written", Error::other("there are too many unfinished installations")))
    }
}

fn shown(skill_id: &SkillId, version: &SkillVersion) -> String {
    format!("`{skill_id}` {version}")
}

fn disk(path: &Path, what: &'static str, source: Error) -> UnpackError {
    UnpackError::Disk { path: path.to_owned(), what, source }
}

/// Makes a directory unless it is there; a link to one is not.
fn make_directory(path: &Path, mode: u32) -> std::io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.symlink_metadata()?.is_dir() => Ok(()),
        other => other,
    }
}

fn names_in(path: &Path) -> Result<Vec<String>, UnpackError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|source| disk(path, "read", source))? {
        let entry = entry.map_err(|source| disk(path, "read", source))?;
        let is_directory = entry.file_type().map_err(|source| disk(path, "read", source))?.is_dir();
        names.extend(entry.file_name().into_string().ok().filter(|_| is_directory));
    }
    Ok(names)
}

/// Writes every entry and the signature below a directory; durable when it returns.
fn write_all(staging: &Path, artifact: &Artifact) -> std::io::Result<()> {
    let signature = artifact.signature().bytes().map_err(Error::other)?;
    let mut directories = vec![staging.to_owned()];
    let all = artifact.entries().iter().map(|entry| (entry.name.as_str(), entry.content.as_slice()));
    for (name, content) in all.chain([(SIGNATURE_ENTRY, signature.as_slice())]) {
        let mut parent = staging.to_owned();
        let (folders, _) = name.rsplit_once('/').unwrap_or(("", name));
        for folder in folders.split('/').filter(|folder| !folder.is_empty()) {
            parent.push(folder);
            if !directories.contains(&parent) {
                DirBuilder::new().mode(0o755).create(&parent)?;
                directories.push(parent.clone());
            }
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(staging.join(name))?;
        file.write_all(content)?;
        file.sync_all()?;
    }
    directories.iter().rev().try_for_each(|directory| sync_directory(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sample, signed_by};

    fn managed() -> (tempfile::TempDir, ManagedDirectory, Artifact) {
        let dir = tempfile::tempdir().unwrap();
        let managed = ManagedDirectory::open(dir.path().join("skills-managed")).unwrap();
        (dir, managed, sample("1.0.0").artifact)
    }

    fn names(artifact: &Artifact) -> (&SkillId, &SkillVersion) {
        (&artifact.manifest().metadata.skill_id, &artifact.manifest().metadata.version)
    }

    #[test]
    fn what_is_unpacked_is_the_artifact() {
        let (_dir, managed, artifact) = managed();
        let installed = managed.install(&artifact).unwrap();
        assert!(!installed.was_there);
        assert!(managed.install(&artifact).unwrap().was_there);
        let (skill_id, version) = names(&artifact);
        let read = managed.check(skill_id, version, artifact.content_digest()).unwrap();
        assert_eq!(read, artifact);
        assert_eq!(managed.list().unwrap(), [(skill_id.clone(), version.clone())]);
        let module = artifact.modules().next().unwrap();
        assert_eq!(managed.read_entry(skill_id, version, &module.name, &module.digest).unwrap(), module.content);
        managed.install(&sample("2.0.0").artifact).unwrap();
        assert_eq!(managed.list().unwrap().len(), 2);
        managed.remove(skill_id, version).unwrap();
        assert_eq!(managed.remove(skill_id, version).unwrap_err().code(), "unpack_not_installed");
        assert_eq!(managed.list().unwrap().len(), 1);
    }

    #[test]
    fn another_content_does_not_take_the_place() {
        let (_dir, managed, artifact) = managed();
        managed.install(&artifact).unwrap();
        let other = signed_by("1.0.0", 2).artifact;
        assert_eq!(other.content_digest(), artifact.content_digest(), "the same content, signed by another key");
        let mut source = crate::testing::source(&crate::testing::manifest("1.0.0"), vec![]);
        source.files[0] = Entry::new("modules/echo.wasm", b"other".to_vec());
        let other = crate::package::build(&source, &crate::testing::key(1)).unwrap().artifact;
        assert_eq!(managed.install(&other).unwrap_err().code(), "unpack_occupied");
        let (skill_id, version) = names(&artifact);
        assert_eq!(managed.load(skill_id, version).unwrap(), artifact);
    }

    #[test]
    fn drift_is_found_whatever_it_is() {
        let (_dir, managed, artifact) = managed();
        let (skill_id, version) = names(&artifact);
        let module = artifact.modules().next().unwrap();
        let drifted = |change: &dyn Fn(&Path)| {
            managed.install(&artifact).unwrap();
            change(&managed.path_of(skill_id, version));
            let error = managed.check(skill_id, version, artifact.content_digest()).unwrap_err();
            assert!(error.is_drift(), "{error}");
            fs::remove_dir_all(managed.path_of(skill_id, version)).unwrap();
            error.code()
        };
        assert_eq!(drifted(&|path| fs::write(path.join(&module.name), b"x").unwrap()), "signature_content");
        assert_eq!(drifted(&|path| fs::write(path.join("assets/more"), b"x").unwrap()), "signature_content");
        assert_eq!(drifted(&|path| fs::remove_file(path.join("assets/note.txt")).unwrap()), "signature_content");
        assert_eq!(drifted(&|path| fs::remove_file(path.join("signature.json")).unwrap()), "signature_form");
        let link = |path: &Path| {
            fs::remove_file(path.join("assets/note.txt")).unwrap();
            std::os::unix::fs::symlink("/etc/hostname", path.join("assets/note.txt")).unwrap();
        };
        assert_eq!(drifted(&link), "source_special_file");
        // A whole other artifact, signed as well as the first.
        let other = |path: &Path| {
            let newer = managed.install(&sample("9.0.0").artifact).unwrap().path;
            fs::remove_dir_all(path).unwrap();
            fs::rename(newer, path).unwrap();
        };
        assert_eq!(drifted(&other), "unpack_drift");
        managed.install(&artifact).unwrap();
        let wrong = managed.read_entry(skill_id, version, &module.name, &Digest::of(b"x")).unwrap_err();
        assert_eq!(wrong.code(), "unpack_drift");
    }

    #[test]
    fn a_crash_in_the_middle_leaves_nothing_that_counts() {
        let (_dir, managed, artifact) = managed();
        let staging = managed.fresh(STAGING).unwrap();
        fs::create_dir(staging.join("modules")).unwrap();
        fs::write(staging.join("modules/echo.wasm"), b"half").unwrap();
        assert_eq!(managed.list().unwrap(), []);
        managed.install(&artifact).unwrap();
        assert_eq!(managed.clean().unwrap(), 1);
        assert_eq!(managed.clean().unwrap(), 0);
        let (skill_id, version) = names(&artifact);
        assert!(managed.load(skill_id, version).is_ok());
    }

    #[test]
    fn a_disk_that_fails_leaves_nothing_behind() {
        let (dir, managed, artifact) = managed();
        // A file where the skill's directory should be stands for every failure of the disk.
        fs::write(dir.path().join("skills-managed/acme.echo"), b"").unwrap();
        let error = managed.install(&artifact).unwrap_err();
        assert_eq!((error.code(), error.is_drift()), ("unpack_disk", false));
        assert_eq!(managed.clean().unwrap(), 0, "the staging directory is gone");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert_eq!(ManagedDirectory::open(&link).unwrap_err().code(), "unpack_disk");
    }
}
