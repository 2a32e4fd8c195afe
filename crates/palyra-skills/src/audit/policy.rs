//! The audit policy: what an operator lets a skill be. A file, read and checked as a whole.
//!
//! No key turns a check off. An operator can tighten limits, forbid more, and choose for a few checks whether they warn
//! or fail.

use super::report::CheckStatus;
use super::world::interface;
use crate::constants::FORMAT;
use crate::manifest::hosts::EgressHost;
use crate::purl::PackageUrl;
use crate::text::{Position, excerpt, unknown_word};
use palyra_protocol::{Digest, DigestBuilder};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// The largest policy.
const MAX_BYTES: usize = 4 << 20;
/// The largest number that a limit may be.
const MAX_NUMBER: u64 = 1 << 53;

/// The policy that comes with this program, with a comment on every key.
pub const DEFAULT_POLICY: &str = include_str!("default_policy.toml");

/// Why an audit policy is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the audit policy, {position}: {fault}")]
pub struct PolicyError {
    /// Where.
    pub position: Position,
    /// Why.
    pub fault: PolicyFault,
}

/// What is wrong with an audit policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFault {
    /// More bytes than a policy may have, or no text.
    #[error("a policy is UTF-8 text of at most {} MiB", MAX_BYTES >> 20)]
    NotText,
    /// Not TOML, a missing key, or a value of another type.
    #[error("{message}")]
    Syntax {
        /// What the parser says.
        message: String,
    },
    /// A key or value that does not exist.
    #[error("there is no {what} `{word}`{hint}")]
    UnknownWord {
        /// `key` or `value`.
        what: &'static str,
        /// The word.
        word: String,
        /// The nearest word that exists.
        hint: String,
    },
    /// Another form.
    #[error("the policy has format {found}; this version reads format {FORMAT}")]
    Format {
        /// The form.
        found: u32,
    },
    /// A value that makes no sense.
    #[error("`{key}`: {message}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong and what to write.
        message: String,
    },
}

impl PolicyError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.fault {
            PolicyFault::NotText => "audit_policy_not_text",
            PolicyFault::Syntax { .. } => "audit_policy_syntax",
            PolicyFault::UnknownWord { what: "key", .. } => "audit_policy_unknown_key",
            PolicyFault::UnknownWord { .. } => "audit_policy_unknown_value",
            PolicyFault::Format { .. } => "audit_policy_format",
            PolicyFault::Value { .. } => "audit_policy_value",
        }
    }
}

/// Whether something warns or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A person should look.
    Warn,
    /// The skill is not eligible.
    Fail,
}

impl From<Severity> for CheckStatus {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Warn => Self::Warn,
            Severity::Fail => Self::Fail,
        }
    }
}

/// The most that any skill may be or ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditLimits {
    /// The largest artifact.
    pub max_artifact_bytes: u64,
    /// The largest component.
    pub max_module_bytes: u64,
    /// The most tools.
    pub max_tools: u64,
    /// The most fuel of one call.
    pub max_fuel_budget: u64,
    /// The most memory of one call.
    pub max_memory_bytes: u64,
    /// The most time of one call.
    pub max_wall_clock_ms: u64,
    /// The most private storage.
    pub max_storage_bytes: u64,
}

impl Default for AuditLimits {
    fn default() -> Self {
        Self {
            max_artifact_bytes: 64 << 20,
            max_module_bytes: 64 << 20,
            max_tools: 64,
            max_fuel_budget: 50_000_000_000,
            max_memory_bytes: 1 << 30,
            max_wall_clock_ms: 300_000,
            max_storage_bytes: 64 << 20,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    format: Spanned<u32>,
    #[serde(default)]
    limits: Option<Spanned<AuditLimits>>,
    #[serde(default)]
    capabilities: RawCapabilities,
    #[serde(default)]
    imports: RawImports,
    #[serde(default)]
    text: RawText,
    #[serde(default)]
    sbom: RawSbom,
    #[serde(default)]
    known_bad: Vec<RawKnownBad>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCapabilities {
    wildcards: Option<Severity>,
    forbidden_hosts: Vec<Spanned<String>>,
    forbidden_secret_scopes: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawImports {
    forbidden: Vec<Spanned<String>>,
    undeclared: Option<Severity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawText {
    instructions: Option<Severity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawSbom {
    missing_hashes: Option<Severity>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKnownBad {
    sha256: Option<Spanned<String>>,
    package: Option<Spanned<String>>,
    reason: Spanned<String>,
}

/// An audit policy that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPolicy {
    /// The most that any skill may be or ask for.
    pub limits: AuditLimits,
    /// What a wildcard with a reason is.
    pub wildcards: Severity,
    /// Hosts that no skill may ask for.
    pub forbidden_hosts: Vec<EgressHost>,
    /// Secret scopes that no skill may ask for.
    pub forbidden_secret_scopes: Vec<String>,
    /// Interfaces, or packages as `wasi:sockets/*`, that no component may import.
    pub forbidden_imports: Vec<String>,
    /// What a WASI import without its capability is.
    pub undeclared_imports: Severity,
    /// What orders to a model are.
    pub model_instructions: Severity,
    /// What a package without a hash is.
    pub missing_hashes: Severity,
    /// Files that are known to be bad, with the reason.
    pub bad_digests: BTreeMap<Digest, String>,
    /// Packages that are known to be bad, with the reason; all versions where none is named.
    pub bad_packages: Vec<(PackageUrl, String)>,
    digest: Digest,
}

impl AuditPolicy {
    /// Reads a policy.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        let whole = |fault| PolicyError { position: Position { line: 1, column: 1 }, fault };
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_BYTES);
        let text = text.ok_or_else(|| whole(PolicyFault::NotText))?;
        let raw: RawPolicy = toml::from_str(text).map_err(|e| {
            let fault = match unknown_word(e.message()) {
                Some(word) => PolicyFault::UnknownWord { what: word.what, word: word.word, hint: word.hint },
                None => PolicyFault::Syntax { message: excerpt(e.message()) },
            };
            PolicyError { position: Position::of(text, e.span().unwrap_or_default().start), fault }
        })?;
        let digest = DigestBuilder::new("palyra.skill.audit-policy.v1").field(bytes).finish();
        checked(raw, digest).map_err(|(at, fault)| PolicyError { position: Position::of(text, at), fault })
    }

    /// Changes whenever the policy does.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Whether an import is forbidden by its interface or its package.
    #[must_use]
    pub fn forbids_import(&self, import: &str) -> bool {
        let name = interface(import);
        let package = name.split('/').next().unwrap_or(name);
        self.forbidden_imports.iter().any(|forbidden| match forbidden.strip_suffix("/*") {
            Some(whole) => whole == package,
            None => forbidden == name,
        })
    }
}

type Placed = (usize, PolicyFault);

fn value(at: &Spanned<String>, key: &'static str, message: impl Into<String>) -> Placed {
    (at.span().start, PolicyFault::Value { key, message: message.into() })
}

fn checked(raw: RawPolicy, digest: Digest) -> Result<AuditPolicy, Placed> {
    let format = *raw.format.get_ref();
    if format != FORMAT {
        return Err((raw.format.span().start, PolicyFault::Format { found: format }));
    }
    let limits = match raw.limits {
        Some(limits) => {
            let at = limits.span().start;
            check_limits(limits.into_inner()).map_err(|key| {
                let message = "a number from 1 to 2^53".to_owned();
                (at, PolicyFault::Value { key, message })
            })?
        }
        None => AuditLimits::default(),
    };
    let mut policy = AuditPolicy {
        limits,
        wildcards: raw.capabilities.wildcards.unwrap_or(Severity::Warn),
        forbidden_hosts: Vec::new(),
        forbidden_secret_scopes: raw.capabilities.forbidden_secret_scopes,
        forbidden_imports: Vec::new(),
        undeclared_imports: raw.imports.undeclared.unwrap_or(Severity::Warn),
        model_instructions: raw.text.instructions.unwrap_or(Severity::Fail),
        missing_hashes: raw.sbom.missing_hashes.unwrap_or(Severity::Warn),
        bad_digests: BTreeMap::new(),
        bad_packages: Vec::new(),
        digest,
    };
    for text in &raw.capabilities.forbidden_hosts {
        let host = EgressHost::parse(text.get_ref());
        policy.forbidden_hosts.push(host.map_err(|why| value(text, "capabilities.forbidden_hosts", why))?);
    }
    for text in &raw.imports.forbidden {
        let name = text.get_ref();
        let whole = name.strip_suffix("/*").is_some_and(|package| package.contains(':') && !package.contains('/'));
        let one = name
            .split_once('/')
            .is_some_and(|(package, rest)| package.contains(':') && !rest.contains(['/', '@', '*']));
        if !whole && !one {
            let message = "an interface as `wasi:http/types`, without a version, or a package as `wasi:sockets/*`";
            return Err(value(text, "imports.forbidden", message));
        }
        policy.forbidden_imports.push(name.clone());
    }
    raw.known_bad.into_iter().try_for_each(|bad| add_known_bad(bad, &mut policy))?;
    Ok(policy)
}

fn add_known_bad(bad: RawKnownBad, policy: &mut AuditPolicy) -> Result<(), Placed> {
    let reason = bad.reason.get_ref().trim().to_owned();
    if reason.is_empty() {
        return Err(value(&bad.reason, "known_bad.reason", "say why: the report shows it"));
    }
    match (bad.sha256, bad.package) {
        (Some(text), None) => {
            let digest = text.get_ref().parse::<Digest>();
            policy.bad_digests.insert(digest.map_err(|e| value(&text, "known_bad.sha256", e.to_string()))?, reason);
        }
        (None, Some(text)) => {
            let package = text.get_ref().parse::<PackageUrl>();
            policy.bad_packages.push((package.map_err(|e| value(&text, "known_bad.package", e.to_string()))?, reason));
        }
        _ => return Err(value(&bad.reason, "known_bad", "name either a `sha256` or a `package`")),
    }
    Ok(())
}

fn check_limits(limits: AuditLimits) -> Result<AuditLimits, &'static str> {
    let all = [
        ("limits.max_artifact_bytes", limits.max_artifact_bytes),
        ("limits.max_module_bytes", limits.max_module_bytes),
        ("limits.max_tools", limits.max_tools),
        ("limits.max_fuel_budget", limits.max_fuel_budget),
        ("limits.max_memory_bytes", limits.max_memory_bytes),
        ("limits.max_wall_clock_ms", limits.max_wall_clock_ms),
        ("limits.max_storage_bytes", limits.max_storage_bytes),
    ];
    let odd = all.into_iter().find(|(_, number)| !(1..=MAX_NUMBER).contains(number));
    odd.map_or(Ok(limits), |(key, _)| Err(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_that_comes_with_us_says_the_defaults() {
        let shipped = AuditPolicy::parse(DEFAULT_POLICY.as_bytes()).unwrap();
        let bare = AuditPolicy::parse(b"format = 1").unwrap();
        assert_eq!(AuditPolicy { digest: bare.digest, ..shipped }, bare);
    }

    #[test]
    fn faults_have_a_place() {
        for (text, code, place) in [
            ("format = 2", "audit_policy_format", "line 1, column 10"),
            ("", "audit_policy_syntax", "line 1, column 1"),
            ("format = 1\n[limit]\n", "audit_policy_unknown_key", "line 2, column 2"),
            ("format = 1\n[limits]\nmax_tool = 1\n", "audit_policy_unknown_key", "line 3, column 1"),
            ("format = 1\n[limits]\nmax_tools = 0\n", "audit_policy_value", "line 2, column 1"),
            ("format = 1\n[capabilities]\nwildcards = \"off\"\n", "audit_policy_unknown_value", "line 3, column 13"),
            ("format = 1\n[capabilities]\nforbidden_hosts = [\"*\"]\n", "audit_policy_value", "line 3, column 20"),
            ("format = 1\n[imports]\nforbidden = [\"wasi\"]\n", "audit_policy_value", "line 3, column 14"),
            ("format = 1\n[[known_bad]]\nreason = \"x\"\n", "audit_policy_value", "line 3, column 10"),
            ("format = 1\n[[known_bad]]\nsha256 = \"00\"\nreason = \"x\"\n", "audit_policy_value", "line 3, column 10"),
            ("format = 1\n[[known_bad]]\npackage = \"x\"\nreason = \"x\"\n", "audit_policy_value", "line 3, column 11"),
        ] {
            let error = AuditPolicy::parse(text.as_bytes()).unwrap_err();
            assert_eq!((error.code(), error.position.to_string().as_str()), (code, place), "{text}: {error}");
        }
        assert_eq!(AuditPolicy::parse(&[0xff]).unwrap_err().code(), "audit_policy_not_text");
    }

    #[test]
    fn imports_are_forbidden_by_interface_or_package() {
        let policy =
            AuditPolicy::parse(b"format = 1\n[imports]\nforbidden = [\"wasi:sockets/*\", \"wasi:http/types\"]")
                .unwrap();
        for (import, forbidden) in [
            ("wasi:sockets/tcp@0.2.0", true),
            ("wasi:http/types@0.2.0", true),
            ("wasi:http/outgoing-handler@0.2.0", false),
            ("wasi:socketsx/tcp@0.2.0", false),
        ] {
            assert_eq!(policy.forbids_import(import), forbidden, "{import}");
        }
    }
}
