//! `package-lock.json`, as npm 7 and later write it.

use super::lock::{HashAlgorithm, LockError, LockKind, MAX_LOCK_BYTES, Package, PackageHash, malformed};
use crate::purl::PackageUrl;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_protocol::json::check_result;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lock {
    lockfile_version: u32,
    #[serde(default)]
    packages: BTreeMap<String, Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: Option<String>,
    version: Option<String>,
    integrity: Option<String>,
    #[serde(default)]
    link: bool,
    #[serde(default)]
    dev: bool,
}

pub(super) fn packages(bytes: &[u8]) -> Result<Vec<Package>, LockError> {
    let refuse = |reason: String| malformed(LockKind::Npm, String::new(), reason);
    check_result(bytes, MAX_LOCK_BYTES, 0).map_err(|e| refuse(e.to_string()))?;
    let lock: Lock = serde_json::from_slice(bytes).map_err(|e| refuse(e.to_string()))?;
    if !(2..=3).contains(&lock.lockfile_version) {
        let version = lock.lockfile_version;
        return Err(refuse(format!("lockfileVersion {version} is not 2 or 3; write it again with npm 7 or later")));
    }
    // Keys are paths; what is not below `node_modules/` is the skill's own code.
    let installed = lock.packages.into_iter().filter(|(_, package)| !package.link);
    Ok(installed
        .filter_map(|(path, package)| {
            let (_, folder) = path.rsplit_once("node_modules/")?;
            let name = package.name.unwrap_or_else(|| folder.to_owned());
            let version = package.version?;
            let (scope, short) = name.rsplit_once('/').unwrap_or(("", &name));
            Some(Package {
                purl: PackageUrl::new("npm", scope, short, Some(&version)),
                hashes: package.integrity.iter().flat_map(|text| hashes(text)).collect(),
                name,
                version,
                is_excluded: package.dev,
            })
        })
        .collect())
}

/// `sha512-BASE64`, one or several.
fn hashes(integrity: &str) -> Vec<PackageHash> {
    let read = |word: &str| {
        let (algorithm, base64) = word.split_once('-')?;
        let digits = hex::encode(STANDARD.decode(base64.split('?').next()?).ok()?);
        PackageHash::new(HashAlgorithm::of_name(algorithm)?, &digits)
    };
    integrity.split_whitespace().filter_map(read).collect()
}
