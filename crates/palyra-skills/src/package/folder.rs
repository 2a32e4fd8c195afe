//! Reading a folder: the sources of a package, or an unpacked artifact.
//!
//! A folder is read once, through no link and within limits. What is neither a directory nor a regular file is refused, because nobody
//! can say what somebody else will find there.

use super::PackageSource;
use crate::archive::names::{NameFault, check_name};
use crate::archive::{ArchiveLimits, Entry};
use crate::constants::{ASSETS_FOLDER, MANIFEST_ENTRY, MAX_MANIFEST_BYTES, MODULES_FOLDER, SBOM_ENTRY};
use crate::files::read_regular;
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
    /// Reads the sources of a package of components: `skill.toml`, `modules/`, `assets/`, lock files, and a bill of materials if there is
    /// one. Everything else in the folder is left alone.
    ///
    /// # Errors
    /// Something cannot be read or cannot be packed.
    pub fn read_folder(folder: &Path) -> Result<Self, super::PackageError> {
        let manifest = side_file(folder, MANIFEST_ENTRY, MAX_MANIFEST_BYTES as u64)?
            .ok_or_else(|| SourceError::Missing { path: folder.join(MANIFEST_ENTRY) })?;
        let mut reader = FolderReader::new(folder);
        for part in [MODULES_FOLDER, ASSETS_FOLDER] {
            let part = part.trim_end_matches('/');
            match folder.join(part).symlink_metadata() {
                Ok(_) => reader.add(part)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(SourceError::Disk { path: folder.join(part), source }.into()),
            }
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
