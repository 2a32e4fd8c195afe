//! `Cargo.lock`.

use super::lock::{HashAlgorithm, LockError, LockKind, Package, PackageHash, malformed_toml};
use crate::purl::PackageUrl;
use serde::Deserialize;

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
}

/// The packages that come from elsewhere. Those without a source are the skill's own code, which its components hold.
pub(super) fn packages(text: &str) -> Result<Vec<Package>, LockError> {
    let lock: Lock = toml::from_str(text).map_err(|e| malformed_toml(LockKind::Cargo, text, &e))?;
    let foreign = lock.package.into_iter().filter(|package| package.source.is_some());
    Ok(foreign
        .map(|Locked { name, version, checksum, .. }| Package {
            purl: PackageUrl::new("cargo", "", &name, Some(&version)),
            hashes: checksum.iter().filter_map(|c| PackageHash::new(HashAlgorithm::Sha256, c)).collect(),
            name,
            version,
            is_excluded: false,
        })
        .collect())
}
