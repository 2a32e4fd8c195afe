//! Reading a folder: the sources of a package, or an unpacked artifact.
//!
//! A folder is read once, through no link and within limits. What is neither a directory nor a regular file is refused,
//! because nobody can say what somebody else will find there.

use super::PackageSource;
use crate::archive::names::{NameFault, check_name};
use crate::archive::{ArchiveLimits, Entry};
use crate::constants::{
    ASSETS_FOLDER, MANIFEST_ENTRY, MAX_MANIFEST_BYTES, MODULES_FOLDER, PROVENANCE_ENTRY, SBOM_ENTRY, SIGNATURE_ENTRY,
};
use crate::files::read_regular;
use crate::manifest::{Manifest, SkillKind};
use crate::sbom::{LockFile, LockKind};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// All files of a folder together.
pub const MAX_FOLDER_BYTES: u64 = 128 << 20;
/// The largest lock file or bill of materials.
const MAX_SIDE_BYTES: u64 = 16 << 20;

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The disk failed.
    #[error("`{}` cannot be read: {source}", path.display())]
    Disk {
        /// What was read.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A name that no entry may have.
    #[error("`{}` cannot be packed: {fault}", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// Why.
        fault: NameFault,
    },
    /// A link, a pipe, a device.
    #[error("`{}` is neither a directory nor a regular file", path.display())]
    Special {
        /// What was found.
        path: PathBuf,
    },
    /// A file that must be there.
    #[error("`{}` is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// More files or bytes than an artifact may have.
    #[error("`{}` has more files or bytes than an artifact may have", path.display())]
    TooMuch {
        /// The folder.
        path: PathBuf,
    },
}

impl SourceError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk { .. } => "source_disk",
            Self::Name { .. } => "source_name",
            Self::Special { .. } => "source_special_file",
            Self::Missing { .. } => "source_missing",
            Self::TooMuch { .. } => "source_too_much",
        }
    }
}

impl PackageSource {
    /// Reads the sources of a package: `skill.toml`, `modules/`, `assets/`, lock files, and a bill of materials if
    /// there is one. Everything else in the folder is left alone, unless the manifest is of kind `instructions`: then
    /// every file belongs to it.
    ///
    /// # Errors
    /// Something cannot be read or cannot be packed.
    pub fn read_folder(folder: &Path) -> Result<Self, super::PackageError> {
        let manifest = side_file(folder, MANIFEST_ENTRY, MAX_MANIFEST_BYTES as u64)?
            .ok_or_else(|| SourceError::Missing { path: folder.join(MANIFEST_ENTRY) })?;
        let mut reader = FolderReader::new(folder);
        if Manifest::parse(&manifest)?.kind == SkillKind::Instructions {
            reader.add("")?;
            let own = [MANIFEST_ENTRY, SBOM_ENTRY, PROVENANCE_ENTRY, SIGNATURE_ENTRY];
            reader.entries.retain(|entry| !own.contains(&entry.name.as_str()));
        } else {
            reader.add_if_there(MODULES_FOLDER.trim_end_matches('/'))?;
            reader.add_if_there(ASSETS_FOLDER.trim_end_matches('/'))?;
        }
        let mut locks = Vec::new();
        for kind in LockKind::ALL {
            if let Some(bytes) = side_file(folder, kind.file_name(), MAX_SIDE_BYTES)? {
                locks.push(LockFile::parse(kind, &bytes)?);
            }
        }
        let sbom = side_file(folder, SBOM_ENTRY, MAX_SIDE_BYTES)?;
        Ok(Self { manifest, files: reader.entries, locks, sbom, ..Self::default() })
    }
}

fn side_file(folder: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, SourceError> {
    let path = folder.join(name);
    read_regular(&path, limit).map_err(|source| SourceError::Disk { path, source })
}

/// Reads files below a folder into entries.
pub(crate) struct FolderReader<'a> {
    folder: &'a Path,
    pub(crate) entries: Vec<Entry>,
    bytes_left: u64,
    names_left: usize,
}

impl<'a> FolderReader<'a> {
    pub(crate) fn new(folder: &'a Path) -> Self {
        let names_left = 2 * ArchiveLimits::default().entries;
        Self { folder, entries: Vec::new(), bytes_left: MAX_FOLDER_BYTES, names_left }
    }

    /// Adds everything below a path relative to the folder; the folder itself for an empty one.
    pub(crate) fn add(&mut self, start: &str) -> Result<(), SourceError> {
        let mut open = vec![start.to_owned()];
        while let Some(name) = open.pop() {
            let path = if name.is_empty() { self.folder.to_owned() } else { self.folder.join(&name) };
            let disk = |source| SourceError::Disk { path: path.clone(), source };
            let kind = path.symlink_metadata().map_err(disk)?.file_type();
            if kind.is_file() {
                self.file(name, &path)?;
            } else if kind.is_dir() {
                for child in std::fs::read_dir(&path).map_err(disk)? {
                    let child = child.map_err(disk)?.file_name();
                    let named = child.to_str().ok_or(NameFault::Characters);
                    let named = named.map_err(|fault| SourceError::Name { path: path.join(&child), fault })?;
                    open.push(if name.is_empty() { named.to_owned() } else { format!("{name}/{named}") });
                    let counted = self.names_left.checked_sub(1);
                    self.names_left = counted.ok_or_else(|| SourceError::TooMuch { path: self.folder.to_owned() })?;
                }
            } else {
                return Err(SourceError::Special { path });
            }
        }
        self.entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    fn add_if_there(&mut self, start: &str) -> Result<(), SourceError> {
        let path = self.folder.join(start);
        match path.symlink_metadata() {
            Ok(_) => self.add(start),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(SourceError::Disk { path, source }),
        }
    }

    fn file(&mut self, name: String, path: &Path) -> Result<(), SourceError> {
        check_name(name.as_bytes()).map_err(|fault| SourceError::Name { path: path.to_owned(), fault })?;
        let read = read_regular(path, self.bytes_left).map_err(|source| match source.kind() {
            ErrorKind::FileTooLarge => SourceError::TooMuch { path: self.folder.to_owned() },
            _ => SourceError::Disk { path: path.to_owned(), source },
        })?;
        let content = read.ok_or_else(|| SourceError::Missing { path: path.to_owned() })?;
        self.bytes_left = self.bytes_left.saturating_sub(content.len() as u64);
        self.entries.push(Entry::new(name, content));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::package::{PackageSource, build};
    use crate::testing::{component, key, manifest};
    use std::fs;
    use std::path::Path;

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    fn built(dir: &Path) -> Result<Vec<u8>, &'static str> {
        let source = PackageSource::read_folder(dir).map_err(|e| e.code())?;
        build(&source, &key(1)).map(|built| built.bytes).map_err(|e| e.code())
    }

    #[test]
    fn a_folder_becomes_an_artifact_and_the_same_one_again() {
        let text = manifest("1.0.0");
        let dir = folder(&[
            ("skill.toml", text.as_bytes()),
            ("modules/echo.wasm", &component(&[])),
            ("assets/a/b.txt", b"b"),
            ("src/main.rs", b"not packed"),
            ("requirements.txt", b"attrs==25.1.0"),
        ]);
        let bytes = built(dir.path()).unwrap();
        assert_eq!(built(dir.path()).unwrap(), bytes);
        let artifact = crate::Artifact::open(&bytes).unwrap();
        assert!(artifact.entry("assets/a/b.txt").is_some() && artifact.entry("src/main.rs").is_none());
        let sbom = crate::sbom::Sbom::parse(&artifact.entry("sbom.cdx.json").unwrap().content).unwrap();
        assert_eq!(sbom.components().len(), 2);
        // A bill of materials by another tool is taken, if it is about this artifact.
        fs::write(dir.path().join("sbom.cdx.json"), b"{}").unwrap();
        assert_eq!(built(dir.path()), Err("sbom_schema"));
    }

    #[test]
    fn folders_that_cannot_be_packed_are_refused() {
        let text = manifest("1.0.0");
        assert_eq!(built(folder(&[]).path()), Err("source_missing"));
        let bare = folder(&[("skill.toml", text.as_bytes())]);
        assert_eq!(built(bare.path()), Err("artifact_code_missing"));
        let odd = folder(&[("skill.toml", text.as_bytes()), ("assets/a:b", b"")]);
        assert_eq!(built(odd.path()), Err("source_name"));
        let linked = folder(&[("skill.toml", text.as_bytes()), ("assets/a", b"")]);
        std::os::unix::fs::symlink("/etc/hostname", linked.path().join("assets/link")).unwrap();
        assert_eq!(built(linked.path()), Err("source_special_file"));
        let unpinned = folder(&[("skill.toml", text.as_bytes()), ("requirements.txt", b"attrs")]);
        assert_eq!(built(unpinned.path()), Err("lock_not_pinned"));
    }

    #[test]
    fn an_imported_folder_can_be_edited_and_built_again() {
        let dir = folder(&[("SKILL.md", b"---\nname: x\ndescription: y\n---\n"), ("scripts/a.sh", b"echo a")]);
        let request = crate::instructions::ImportRequest {
            publisher: "acme".parse().unwrap(),
            version: "1.0.0".parse().unwrap(),
            read_roots: vec![],
            write_roots: vec![],
            egress: vec![],
            min_palyra_version: semver::Version::new(0, 1, 0),
        };
        let source = crate::instructions::import_folder(dir.path(), &request).unwrap();
        let imported = build(&source, &key(1)).unwrap().bytes;
        fs::write(dir.path().join("skill.toml"), &source.manifest).unwrap();
        assert_eq!(built(dir.path()).unwrap(), imported);
    }
}
