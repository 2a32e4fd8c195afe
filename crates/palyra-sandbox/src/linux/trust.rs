//! What only one run has: its secrets as files, the files of the package whose script it runs, and certificates that it
//! trusts because its proxy speaks for bound hosts.
//!
//! The run's authority is added to every place where programs look for the system's certificates, by mounts over them:
//! bundles in PEM, those that Python's `certifi` brings along, and Java's key store. Node has its own in its program,
//! so it is told by a variable. Nothing of this is written on the host, and nothing outside the run sees it.

use super::tier_c::sealed;
use crate::error::SandboxError;
use crate::layout;
use crate::policy::{Package, ProcessRequest};
use crate::roots::Roots;
use palyra_egress::InspectionAuthority;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What a run without it is told.
pub(super) const LAYER: &str = "private_files";
/// Where a run's secrets are.
const SECRETS: &str = "/run/secrets";
/// The authority by itself, for programs that add to what they trust.
const AUTHORITY: &str = "/run/palyra/authority.pem";
/// The largest bundle that is read.
const MAX_BUNDLE: u64 = 16 << 20;

/// Bundles of the system's certificates, and those that Python packages bring along. `*` stands for one name.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/usr/lib/ssl/cert.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/usr/lib/python3/dist-packages/certifi/cacert.pem",
    "/usr/lib/python3/dist-packages/pip/_vendor/certifi/cacert.pem",
    "/usr/lib/*/site-packages/certifi/cacert.pem",
    "/usr/lib/*/site-packages/pip/_vendor/certifi/cacert.pem",
    "/usr/local/lib/*/dist-packages/certifi/cacert.pem",
    "/usr/local/lib/*/site-packages/certifi/cacert.pem",
    "/usr/local/lib/*/site-packages/pip/_vendor/certifi/cacert.pem",
];

/// Java's key stores.
const KEY_STORES: &[&str] = &[
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/usr/lib/jvm/*/lib/security/cacerts",
    "/usr/lib/jvm/*/jre/lib/security/cacerts",
];

/// A file that only one run has.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) path: PathBuf,
    pub(super) content: OwnedFd,
    pub(super) mode: &'static str,
}

/// The files of a run, and what its environment says of them.
pub(super) fn files(
    request: &ProcessRequest,
    roots: &Roots,
    environment: &mut BTreeMap<OsString, OsString>,
) -> Result<Vec<Private>, SandboxError> {
    let (secrets, mut files) = (&request.secrets, Vec::new());
    for (name, content) in request.package.iter().flat_map(|package| &package.files) {
        let path = Path::new(Package::PLACE).join(name);
        files.push(Private { path, content: sealed(content)?, mode: "0555" });
    }
    for file in &secrets.files {
        let path = Path::new(SECRETS).join(&file.name);
        files.push(Private { path, content: sealed(file.content.expose())?, mode: "0400" });
    }
    let Some(authority) = secrets.credentials.as_ref().and_then(|credentials| credentials.authority()) else {
        return Ok(files);
    };
    let of_system = |path: &Path| layout::ETC_DIRECTORIES.iter().any(|directory| path.starts_with(directory));
    let shown = |path: &Path| of_system(path) || layout::is_system_path(path) || roots.contain(path);
    let mut system = String::new();
    for path in found(BUNDLES).filter(|path| shown(path)) {
        let Some(bundle) = text_of(&path) else { continue };
        if bundle.len() > system.len() {
            system.clone_from(&bundle);
        }
        let whole = format!("{bundle}\n{}", authority.pem());
        files.push(Private { path, content: sealed(whole.as_bytes())?, mode: "0444" });
    }
    for path in found(KEY_STORES).filter(|path| shown(path)) {
        files.push(Private { path, content: sealed(&key_store(&system, authority))?, mode: "0444" });
    }
    files.push(Private { path: AUTHORITY.into(), content: sealed(authority.pem().as_bytes())?, mode: "0444" });
    // Node's own certificates are part of its program; this adds to them.
    environment.entry("NODE_EXTRA_CA_CERTS".into()).or_insert_with(|| AUTHORITY.into());
    Ok(files)
}

/// The files that patterns lead to, each once, free of links.
fn found(patterns: &'static [&'static str]) -> impl Iterator<Item = PathBuf> {
    let named = patterns.iter().flat_map(|pattern| match pattern.split_once('*') {
        None => vec![PathBuf::from(pattern)],
        Some((before, behind)) => {
            let entries = fs::read_dir(before).into_iter().flatten().flatten();
            entries.map(|entry| entry.path().join(behind.trim_start_matches('/'))).collect()
        }
    });
    let real = named.filter_map(|path| fs::canonicalize(path).ok()).filter(|path| path.is_file());
    real.collect::<BTreeSet<_>>().into_iter()
}

fn text_of(path: &Path) -> Option<String> {
    let small = fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_BUNDLE);
    if small { fs::read_to_string(path).ok() } else { None }
}

/// A key store with the certificates of a bundle and the authority's, in the format that every Java reads.
fn key_store(bundle: &str, authority: &InspectionAuthority) -> Vec<u8> {
    use sha1::{Digest as _, Sha1};
    const MAGIC: u32 = 0xfeed_feed;
    const VERSION: u32 = 2;
    const TRUSTED: u32 = 2;
    /// What Java's own stores are sealed with; it is no secret.
    const PASSWORD: &str = "changeit";
    let mut certificates: Vec<Vec<u8>> = bundle.split("-----BEGIN CERTIFICATE-----").skip(1).filter_map(der).collect();
    certificates.push(authority.der().to_vec());
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
        out.extend(text.as_bytes());
    };
    let mut store = Vec::new();
    store.extend(MAGIC.to_be_bytes());
    store.extend(VERSION.to_be_bytes());
    store.extend(u32::try_from(certificates.len()).unwrap_or(0).to_be_bytes());
    for (number, certificate) in certificates.iter().enumerate() {
        store.extend(TRUSTED.to_be_bytes());
        text(&mut store, &format!("c{number}"));
        store.extend(0_u64.to_be_bytes());
        text(&mut store, "X.509");
        store.extend(u32::try_from(certificate.len()).unwrap_or(0).to_be_bytes());
        store.extend(certificate);
    }
    let mut seal = Sha1::new();
    seal.update(PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>());
    seal.update(b"Mighty Aphrodite");
    seal.update(&store);
    store.extend(seal.finalize());
    store
}

/// The bytes of a certificate in PEM, from behind its first line.
fn der(pem: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = pem.split("-----END").next()?.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.chunks(4) {
        let mut number = 0_u32;
        let padded = four.iter().filter(|b| **b == b'=').count();
        for byte in four {
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'=' => 0,
                _ => return None,
            };
            number = number << 6 | u32::from(digit);
        }
        if four.len() != 4 || padded > 2 {
            return None;
        }
        bytes.extend(&number.to_be_bytes()[1..4 - padded]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_read_back_from_its_text() {
        let authority = InspectionAuthority::for_hosts(["api.example.com"]).unwrap();
        let text = authority.pem().split("-----BEGIN CERTIFICATE-----").nth(1).unwrap();
        assert_eq!(der(text).as_deref(), Some(authority.der()));
        assert_eq!(der("!!!!"), None);
        let store = key_store(authority.pem(), &authority);
        assert_eq!(store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
    }
}
