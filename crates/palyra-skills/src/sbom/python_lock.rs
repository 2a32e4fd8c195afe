//! `pylock.toml` (PEP 751) and pinned `requirements.txt`.

use super::lock::{HashAlgorithm, LockError, LockKind, Package, PackageHash, malformed, malformed_toml};
use crate::purl::PackageUrl;
use crate::text::excerpt;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Pylock {
    lock_version: String,
    #[serde(default)]
    packages: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: Option<String>,
    #[serde(default)]
    wheels: Vec<Hashed>,
    sdist: Option<Hashed>,
    archive: Option<Hashed>,
}

#[derive(Deserialize)]
struct Hashed {
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

/// The packages of a `pylock.toml`. Those without a version are directories of the skill's own code.
pub(super) fn pylock(text: &str) -> Result<Vec<Package>, LockError> {
    let lock: Pylock = toml::from_str(text).map_err(|e| malformed_toml(LockKind::Pylock, text, &e))?;
    if !lock.lock_version.starts_with("1.") {
        let reason = format!("lock-version `{}` is not 1.x", excerpt(&lock.lock_version));
        return Err(malformed(LockKind::Pylock, String::new(), reason));
    }
    let pinned = lock.packages.into_iter().filter_map(|locked| {
        let version = locked.version?;
        let files = locked.wheels.iter().chain(&locked.sdist).chain(&locked.archive);
        let hashes = files.flat_map(|file| &file.hashes);
        let hashes = hashes.filter_map(|(name, digits)| PackageHash::new(HashAlgorithm::of_name(name)?, digits));
        Some(package(&locked.name, &version, hashes.collect()))
    });
    Ok(pinned.collect())
}

fn package(name: &str, version: &str, hashes: Vec<PackageHash>) -> Package {
    Package {
        purl: PackageUrl::new("pypi", "", name, Some(version)),
        name: name.to_owned(),
        version: version.to_owned(),
        hashes,
        is_excluded: false,
    }
}

/// The packages of a `requirements.txt`: `NAME==VERSION`, with extras, markers and hashes. What is not pinned is
/// refused, since nobody can say what it stands for, and so is what leads to other files.
pub(super) fn requirements(text: &str) -> Result<Vec<Package>, LockError> {
    let mut packages = Vec::new();
    for (line, logical) in logical_lines(text) {
        let requirement = logical.split(" #").next().unwrap_or(&logical).trim();
        if requirement.is_empty() || requirement.starts_with('#') {
            continue;
        }
        // Options about where packages come from say nothing about which they are.
        let harmless =
            ["--index-url", "--extra-index-url", "--find-links", "--no-index", "--only-binary", "--no-binary"];
        if ["-i ", "-f "].iter().chain(&harmless).any(|option| requirement.starts_with(option))
            || ["--require-hashes", "--prefer-binary", "--pre"].contains(&requirement)
        {
            continue;
        }
        let file = LockKind::Requirements.file_name();
        let read = pinned(requirement);
        packages.push(read.ok_or_else(|| LockError::NotPinned { file, line, what: excerpt(requirement) })?);
    }
    Ok(packages)
}

fn pinned(requirement: &str) -> Option<Package> {
    let (specifier, options) = requirement.split_once(" --").unwrap_or((requirement, ""));
    let specifier = specifier.split(';').next()?.trim();
    let (name, version) = specifier.split_once("==")?;
    let version = version.trim_start_matches('=').trim();
    let name = name.split('[').next()?.trim();
    let named = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let one = !version.is_empty() && !version.contains(['*', ',', ' ', '<', '>', '!', '~', '/', '@']);
    let hash = |word: &str| {
        let (algorithm, digits) = word.trim_start_matches("--").strip_prefix("hash=")?.split_once(':')?;
        PackageHash::new(HashAlgorithm::of_name(algorithm)?, digits)
    };
    (named && one).then(|| package(name, version, options.split_whitespace().filter_map(hash).collect()))
}

/// Lines, with those that end in a backslash joined to the next; each with the number of its first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut joined = false;
    for (at, line) in text.lines().enumerate() {
        let (part, goes_on) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| joined) {
            Some((_, logical)) => {
                logical.push(' ');
                logical.push_str(part.trim());
            }
            None => lines.push((at + 1, part.trim().to_owned())),
        }
        joined = goes_on;
    }
    lines
}
