//! What a skill asks for: files, hosts, secrets, storage, and how much of the machine.

use super::error::{ManifestFault, Placed};
use super::hosts::EgressHost;
use super::raw::{RawCapabilities, RawQuotas, RawSecret, RawWildcard, Text};
use crate::text::excerpt;
use palyra_protocol::display;
use serde::{Deserialize, Serialize};
use std::fmt;
use toml::Spanned;

/// The most entries of one list.
const MAX_LIST: usize = 64;
const MAX_ROOT: usize = 240;
const MAX_REASON: usize = 240;
/// The largest number that every JSON reader agrees about.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// What a skill asks for. Nothing is granted by asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Directories of the workspace that it reads; `*` is all of it.
    pub read_roots: Vec<RootPath>,
    /// Directories of the workspace that it writes; `*` is all of it.
    pub write_roots: Vec<RootPath>,
    /// Hosts that it reaches over HTTP.
    pub egress: Vec<EgressHost>,
    /// Secrets that it uses.
    pub secrets: Vec<SecretRequest>,
    /// Bytes of private storage; none for a skill that keeps nothing.
    pub storage_bytes: u64,
    /// How much of the machine one call may use.
    pub quotas: Quotas,
    /// The wildcards among all this, each with its reason.
    pub wildcards: Vec<WildcardOptIn>,
}

/// A directory of the workspace: a relative path, or `*` for all of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RootPath(String);

impl RootPath {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the whole workspace.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.0 == "*"
    }

    /// The path as tools write it: `.` is the whole workspace.
    #[must_use]
    pub fn workspace_path(&self) -> &str {
        if self.is_wildcard() { "." } else { &self.0 }
    }

    /// Whether everything below `other` is below this path too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let below = other.0.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.is_wildcard() || below
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "*" {
            return Ok(Self(text.to_owned()));
        }
        if text.is_empty() || text.len() > MAX_ROOT {
            return Err("is empty or too long");
        }
        if text.chars().any(display::deceives) {
            return Err("has characters that cannot be seen");
        }
        if text.contains('*') {
            return Err("has a `*` in it; a wildcard is `*` alone");
        }
        if text.contains(['\\', ':']) || text.starts_with('~') {
            return Err("has a backslash, a colon or a `~`; write it with `/`, relative to the workspace");
        }
        if text.starts_with('/') {
            return Err("is absolute; roots are relative to the workspace");
        }
        if text.split('/').any(|part| part == "..") {
            return Err("leads out of the workspace");
        }
        if text.split('/').any(|part| part.is_empty() || part == ".") {
            return Err("has an empty part or `.`; the whole workspace is `*`");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RootPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A secret by scope and key; `*` is every key of the scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SecretRequest {
    /// The vault's scope.
    pub scope: String,
    /// The key within the scope.
    pub key: String,
}

impl SecretRequest {
    /// Whether it stands for every key of its scope.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.key == "*"
    }
}

impl fmt::Display for SecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.key)
    }
}

/// How much of the machine one call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quotas {
    /// Instructions, roughly.
    pub fuel_budget: u64,
    /// Memory of the guest.
    pub max_memory_bytes: u64,
    /// Time until the call is ended.
    pub wall_clock_ms: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { fuel_budget: 2_000_000_000, max_memory_bytes: 256 << 20, wall_clock_ms: 30_000 }
    }
}

/// A capability that can be asked for by a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WildcardCapability {
    /// Directories that are read.
    #[serde(rename = "filesystem.read_roots")]
    ReadRoots,
    /// Directories that are written.
    #[serde(rename = "filesystem.write_roots")]
    WriteRoots,
    /// Hosts.
    #[serde(rename = "http.egress")]
    Egress,
    /// Secrets.
    #[serde(rename = "secrets")]
    Secrets,
}

impl WildcardCapability {
    /// The name in manifests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadRoots => "filesystem.read_roots",
            Self::WriteRoots => "filesystem.write_roots",
            Self::Egress => "http.egress",
            Self::Secrets => "secrets",
        }
    }
}

/// A wildcard, written out, with the reason why the skill needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WildcardOptIn {
    /// Which list it is in.
    pub capability: WildcardCapability,
    /// The entry.
    pub pattern: String,
    /// Why.
    pub reason: String,
}

/// The wildcards that a manifest uses, with the place of each.
type Used = Vec<(WildcardCapability, String, std::ops::Range<usize>)>;

pub(super) fn capabilities(raw: &RawCapabilities) -> Result<Capabilities, Placed> {
    let mut used = Used::new();
    let read_roots = roots("capabilities.filesystem.read_roots", &raw.filesystem.read_roots)?;
    let write_roots = roots("capabilities.filesystem.write_roots", &raw.filesystem.write_roots)?;
    let egress = list("capabilities.http.egress", &raw.http.egress, |text| {
        EgressHost::parse(text).map_err(|why| ManifestFault::value("capabilities.http.egress", host_message(text, why)))
    })?;
    let secrets = secrets(&raw.secrets)?;
    for (capability, places, list) in [
        (WildcardCapability::ReadRoots, &raw.filesystem.read_roots, &read_roots),
        (WildcardCapability::WriteRoots, &raw.filesystem.write_roots, &write_roots),
    ] {
        let wild = list.iter().zip(places).filter(|(root, _)| root.is_wildcard());
        used.extend(wild.map(|(root, place)| (capability, root.to_string(), place.span())));
    }
    let wild = egress.iter().zip(&raw.http.egress).filter(|(host, _)| host.is_wildcard());
    used.extend(wild.map(|(host, place)| (WildcardCapability::Egress, host.to_string(), place.span())));
    let wild = secrets.iter().zip(&raw.secrets).filter(|(secret, _)| secret.is_wildcard());
    used.extend(wild.map(|(secret, place)| (WildcardCapability::Secrets, secret.to_string(), place.key.span())));
    let wildcards = wildcards(&raw.wildcards, &used)?;
    let storage_bytes = match &raw.storage.max_bytes {
        Some(bytes) => number("capabilities.storage.max_bytes", bytes)?,
        None => 0,
    };
    Ok(Capabilities {
        read_roots,
        write_roots,
        egress,
        secrets,
        storage_bytes,
        quotas: quotas(&raw.quotas)?,
        wildcards,
    })
}

fn host_message(text: &str, why: &str) -> String {
    format!("`{}` is no host: {why}", excerpt(text))
}

/// Reads every entry of a list; none may appear twice.
fn list<T: PartialEq + fmt::Display>(
    key: &'static str,
    raw: &[Text],
    parse: impl Fn(&str) -> Result<T, ManifestFault>,
) -> Result<Vec<T>, Placed> {
    let mut read: Vec<T> = Vec::with_capacity(raw.len().min(MAX_LIST));
    for text in raw {
        if read.len() == MAX_LIST {
            return Err((text.span(), ManifestFault::value(key, format!("at most {MAX_LIST} entries"))));
        }
        let value = parse(text.get_ref()).map_err(|fault| (text.span(), fault))?;
        if read.contains(&value) {
            return Err((text.span(), ManifestFault::Duplicate { key, value: value.to_string() }));
        }
        read.push(value);
    }
    Ok(read)
}

fn roots(key: &'static str, raw: &[Text]) -> Result<Vec<RootPath>, Placed> {
    list(key, raw, |text| RootPath::parse(text).map_err(|why| ManifestFault::Path { key, path: excerpt(text), why }))
}

fn secrets(raw: &[RawSecret]) -> Result<Vec<SecretRequest>, Placed> {
    let mut read: Vec<SecretRequest> = Vec::new();
    for RawSecret { scope, key } in raw {
        let good = |text: &str, max: usize| {
            (1..=max).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':'))
                && !text.contains("..")
        };
        let fault =
            |name, what| ManifestFault::value(name, format!("{what} is letters, digits, `_`, `-`, `.` and `:`"));
        if !good(scope.get_ref(), 64) {
            return Err((scope.span(), fault("capabilities.secrets.scope", "a scope of at most 64 characters")));
        }
        if key.get_ref() != "*" && !good(key.get_ref(), 128) {
            return Err((key.span(), fault("capabilities.secrets.key", "a key of at most 128 characters, or `*`,")));
        }
        let secret = SecretRequest { scope: scope.get_ref().clone(), key: key.get_ref().clone() };
        if read.len() == MAX_LIST || read.contains(&secret) {
            return Err((
                key.span(),
                ManifestFault::Duplicate { key: "capabilities.secrets", value: secret.to_string() },
            ));
        }
        read.push(secret);
    }
    Ok(read)
}

/// Holds every wildcard that is used to an entry that gives a reason, and every entry to a use.
fn wildcards(raw: &[RawWildcard], used: &Used) -> Result<Vec<WildcardOptIn>, Placed> {
    let mut read: Vec<WildcardOptIn> = Vec::new();
    for RawWildcard { capability, pattern, reason } in raw {
        let key = "capabilities.wildcards";
        let opt_in = WildcardOptIn {
            capability: *capability.get_ref(),
            pattern: pattern.get_ref().clone(),
            reason: reason.get_ref().trim().to_owned(),
        };
        if opt_in.reason.is_empty() || opt_in.reason.len() > MAX_REASON {
            let message = format!("a reason has 1 to {MAX_REASON} characters");
            return Err((reason.span(), ManifestFault::value(key, message)));
        }
        if !used.iter().any(|(c, p, _)| *c == opt_in.capability && *p == opt_in.pattern) {
            let name = opt_in.capability.as_str();
            let message = format!("`{name}` does not ask for `{}`", excerpt(&opt_in.pattern));
            return Err((pattern.span(), ManifestFault::value(key, message)));
        }
        if read.iter().any(|r| r.capability == opt_in.capability && r.pattern == opt_in.pattern) {
            return Err((pattern.span(), ManifestFault::Duplicate { key, value: opt_in.pattern }));
        }
        read.push(opt_in);
    }
    // INVARIANT (every_wildcard_is_opted_in): a manifest with a wildcard that gives no reason does not exist as a
    // value.
    let missing = used.iter().find(|(c, p, _)| !read.iter().any(|r| r.capability == *c && r.pattern == *p));
    match missing {
        Some((capability, pattern, place)) => {
            let capability = capability.as_str();
            Err((place.clone(), ManifestFault::Wildcard { capability, pattern: pattern.clone() }))
        }
        None => Ok(read),
    }
}

fn quotas(raw: &RawQuotas) -> Result<Quotas, Placed> {
    let standard = Quotas::default();
    let or = |key, value: &Option<Spanned<u64>>, standard| value.as_ref().map_or(Ok(standard), |v| number(key, v));
    Ok(Quotas {
        fuel_budget: or("capabilities.quotas.fuel_budget", &raw.fuel_budget, standard.fuel_budget)?,
        max_memory_bytes: or("capabilities.quotas.max_memory_bytes", &raw.max_memory_bytes, standard.max_memory_bytes)?,
        wall_clock_ms: or("capabilities.quotas.wall_clock_ms", &raw.wall_clock_ms, standard.wall_clock_ms)?,
    })
}

fn number(key: &'static str, value: &Spanned<u64>) -> Result<u64, Placed> {
    match *value.get_ref() {
        number @ 1..=MAX_NUMBER => Ok(number),
        _ => Err((value.span(), ManifestFault::value(key, "a number from 1 to 2^53-1"))),
    }
}
