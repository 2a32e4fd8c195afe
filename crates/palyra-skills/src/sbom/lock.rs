//! Lock files: which packages a skill was built from, with their hashes.

use super::{cargo_lock, npm_lock, python_lock};
use crate::purl::PackageUrl;
use palyra_protocol::Digest;
use std::collections::BTreeMap;

/// The largest lock file.
pub(super) const MAX_LOCK_BYTES: usize = 16 << 20;
/// The most packages of one lock file.
pub(super) const MAX_PACKAGES: usize = 10_000;
/// The most hashes of one package: a release may consist of many files.
const MAX_HASHES: usize = 128;

/// Which lock file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKind {
    /// `Cargo.lock`.
    Cargo,
    /// `pylock.toml`, PEP 751.
    Pylock,
    /// `requirements.txt` with pinned versions.
    Requirements,
    /// `package-lock.json` of npm 7 or later.
    Npm,
}

impl LockKind {
    /// Every kind, in the order in which a folder is searched.
    pub const ALL: [Self; 4] = [Self::Cargo, Self::Pylock, Self::Requirements, Self::Npm];

    /// The file's name.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Cargo => "Cargo.lock",
            Self::Pylock => "pylock.toml",
            Self::Requirements => "requirements.txt",
            Self::Npm => "package-lock.json",
        }
    }
}

/// A lock file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockFile {
    /// Which it is.
    pub kind: LockKind,
    /// SHA-256 of the file.
    pub digest: Digest,
    /// The packages that it pins.
    pub packages: Vec<Package>,
}

/// One package that a lock file pins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name and version.
    pub purl: PackageUrl,
    /// Its name, as its registry writes it.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The hashes of its files.
    pub hashes: Vec<PackageHash>,
    /// Whether it is only used to build or test.
    pub is_excluded: bool,
}

/// The hash of one file of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackageHash {
    /// How it was made.
    pub algorithm: HashAlgorithm,
    /// Lower-case hexadecimal digits.
    pub digits: String,
}

/// The algorithms that lock files use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashAlgorithm {
    /// SHA-1, which old npm packages have.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl HashAlgorithm {
    /// The name in CycloneDX.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            "sha1" => Some(Self::Sha1),
            "sha256" => Some(Self::Sha256),
            "sha384" => Some(Self::Sha384),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }
}

impl PackageHash {
    /// A hash, if the digits are those of the algorithm.
    #[must_use]
    pub fn new(algorithm: HashAlgorithm, digits: &str) -> Option<Self> {
        let good = digits.len() == algorithm.digits() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| Self { algorithm, digits: digits.to_ascii_lowercase() })
    }
}

/// Why a lock file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// It is too large or has too many packages.
    #[error("`{file}` has more than {} MiB or more than {MAX_PACKAGES} packages", MAX_LOCK_BYTES >> 20)]
    TooLarge {
        /// The file.
        file: &'static str,
    },
    /// It cannot be read.
    #[error("`{file}`{place}: {reason}")]
    Malformed {
        /// The file.
        file: &'static str,
        /// Where: `, line 7`, or nothing.
        place: String,
        /// Why.
        reason: String,
    },
    /// A package is not pinned to one version.
    #[error("`{file}`, line {line}: `{what}` is not pinned; write `NAME==VERSION`, best with `--hash=sha256:…`")]
    NotPinned {
        /// The file.
        file: &'static str,
        /// Where.
        line: usize,
        /// What stands there.
        what: String,
    },
}

impl LockError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "lock_too_large",
            Self::Malformed { .. } => "lock_malformed",
            Self::NotPinned { .. } => "lock_not_pinned",
        }
    }
}

impl LockFile {
    /// Reads a lock file.
    ///
    /// # Errors
    /// It is too large, cannot be read, or does not pin its packages.
    pub fn parse(kind: LockKind, bytes: &[u8]) -> Result<Self, LockError> {
        let file = kind.file_name();
        if bytes.len() > MAX_LOCK_BYTES {
            return Err(LockError::TooLarge { file });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| malformed(kind, String::new(), "it is not UTF-8 text"))?;
        let found = match kind {
            LockKind::Cargo => cargo_lock::packages(text)?,
            LockKind::Pylock => python_lock::pylock(text)?,
            LockKind::Requirements => python_lock::requirements(text)?,
            LockKind::Npm => npm_lock::packages(bytes)?,
        };
        if found.len() > MAX_PACKAGES {
            return Err(LockError::TooLarge { file });
        }
        Ok(Self { kind, digest: Digest::of(bytes), packages: merged(found) })
    }
}

pub(super) fn malformed(kind: LockKind, place: String, reason: impl ToString) -> LockError {
    LockError::Malformed { file: kind.file_name(), place, reason: crate::text::excerpt(&reason.to_string()) }
}

pub(super) fn malformed_toml(kind: LockKind, text: &str, error: &toml::de::Error) -> LockError {
    let position = crate::text::Position::of(text, error.span().unwrap_or_default().start);
    malformed(kind, format!(", {position}"), error.message())
}

/// Packages by name and version, each once, with all its hashes in order. A package that is needed anywhere is needed.
fn merged(found: Vec<Package>) -> Vec<Package> {
    let mut merged: BTreeMap<PackageUrl, Package> = BTreeMap::new();
    for package in found {
        match merged.get_mut(&package.purl) {
            Some(known) => {
                known.hashes.extend(package.hashes);
                known.is_excluded &= package.is_excluded;
            }
            None => {
                merged.insert(package.purl.clone(), package);
            }
        }
    }
    let tidy = |mut package: Package| {
        package.hashes.sort();
        package.hashes.dedup();
        package.hashes.truncate(MAX_HASHES);
        package
    };
    merged.into_values().map(tidy).collect()
}
