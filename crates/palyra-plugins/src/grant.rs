//! A grant: what one skill gets, as a value that can be shown, recorded and compared.
//!
//! It is made by [`crate::WasmPluginRunnerPolicy::grant`] and nowhere else; read back from a record it serves replay,
//! where no door exists. Host functions ask it before they ask a door.

use crate::hosts::{Host, HostPattern};
use crate::limits::Limits;
use crate::names::{SecretPattern, WorkspacePath};
use palyra_protocol::{Digest, DigestBuilder};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

/// What a skill gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    http: Vec<HostPattern>,
    secrets: Vec<SecretPattern>,
    read: Vec<WorkspacePath>,
    write: Vec<WorkspacePath>,
    storage_bytes: u64,
    limits: Limits,
    /// What was asked for and not granted. It explains the grant and is no part of its digest.
    withheld: Vec<Withheld>,
}

/// Something that was asked for and is not in the grant, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withheld {
    /// `http`, `secrets`, `read`, `write`, `storage_bytes`, or the name of a limit.
    pub kind: String,
    /// What was asked for.
    pub asked: String,
    /// What is granted of it; empty for nothing.
    pub granted: Vec<String>,
}

impl Withheld {
    pub(crate) fn narrowed(kind: &str, asked: &impl Display, granted: &[impl Display]) -> Self {
        let granted = granted.iter().map(ToString::to_string).collect();
        Self { kind: kind.to_owned(), asked: asked.to_string(), granted }
    }

    pub(crate) fn lowered(kind: &str, asked: u64, granted: u64) -> Self {
        Self { kind: kind.to_owned(), asked: asked.to_string(), granted: vec![granted.to_string()] }
    }
}

impl Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.asked.bytes().all(|b| b.is_ascii_digit());
        let show = |text: &String| if number { text.clone() } else { format!("`{text}`") };
        let asked = show(&self.asked);
        match self.granted.as_slice() {
            [] => write!(f, "{}: {asked} is not allowed", self.kind),
            some => {
                let some: Vec<_> = some.iter().map(show).collect();
                write!(f, "{}: of {asked} only {} is allowed", self.kind, some.join(", "))
            }
        }
    }
}

/// Which of our interfaces a grant links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interfaces {
    pub(crate) http: bool,
    pub(crate) secrets: bool,
    pub(crate) storage: bool,
}

impl Grant {
    pub(crate) fn new(
        http: Vec<HostPattern>,
        secrets: Vec<SecretPattern>,
        (read, write): (Vec<WorkspacePath>, Vec<WorkspacePath>),
        storage_bytes: u64,
        (limits, withheld): (Limits, Vec<Withheld>),
    ) -> Self {
        Self { http, secrets, read, write, storage_bytes, limits, withheld }
    }

    /// Hosts that the guest may reach.
    #[must_use]
    pub fn http(&self) -> &[HostPattern] {
        &self.http
    }

    /// Secrets that the guest may read.
    #[must_use]
    pub fn secrets(&self) -> &[SecretPattern] {
        &self.secrets
    }

    /// Parts of the workspace that the guest may read.
    #[must_use]
    pub fn read_roots(&self) -> &[WorkspacePath] {
        &self.read
    }

    /// Parts of the workspace that the guest may write.
    #[must_use]
    pub fn write_roots(&self) -> &[WorkspacePath] {
        &self.write
    }

    /// The quota of the private storage; 0 for no storage.
    #[must_use]
    pub fn storage_bytes(&self) -> u64 {
        self.storage_bytes
    }

    /// The limits of each call.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was asked for and not granted.
    #[must_use]
    pub fn withheld(&self) -> &[Withheld] {
        &self.withheld
    }

    /// Whether the guest may reach this host.
    #[must_use]
    pub fn allows_host(&self, host: &Host, port: u16) -> bool {
        self.http.iter().any(|pattern| pattern.allows(host, port))
    }

    /// Whether the guest may read this secret.
    #[must_use]
    pub fn allows_secret(&self, scope: &str, key: &str) -> bool {
        self.secrets.iter().any(|pattern| pattern.allows(scope, key))
    }

    /// Whether the guest may read this path.
    #[must_use]
    pub fn allows_reading(&self, path: &WorkspacePath) -> bool {
        self.read.iter().any(|root| path.is_within(root))
    }

    /// Whether the guest may change what is at this path.
    #[must_use]
    pub fn allows_writing(&self, path: &WorkspacePath) -> bool {
        self.write.iter().any(|root| path.is_within(root))
    }

    /// Every root that the guest sees as a directory of its own, without repetition.
    #[must_use]
    pub fn roots(&self) -> Vec<WorkspacePath> {
        let mut roots: Vec<_> = self.read.iter().chain(&self.write).cloned().collect();
        roots.sort();
        roots.dedup();
        roots
    }

    /// Which of our interfaces it links.
    #[must_use]
    pub fn interfaces(&self) -> Interfaces {
        Interfaces { http: !self.http.is_empty(), secrets: !self.secrets.is_empty(), storage: self.storage_bytes > 0 }
    }

    /// The digest of everything that the guest gets.
    #[must_use]
    pub fn digest(&self) -> Digest {
        fn list(digest: DigestBuilder, items: &[impl Display]) -> DigestBuilder {
            items
                .iter()
                .fold(digest.number(items.len() as u64), |digest, item| digest.field(item.to_string().as_bytes()))
        }
        let digest = DigestBuilder::new("palyra.plugins.grant.v1");
        let digest = list(list(digest, &self.http), &self.secrets);
        let digest = list(list(digest, &self.read), &self.write).number(self.storage_bytes);
        let rows = self.limits.rows();
        rows.iter().fold(digest, |digest, (name, value)| digest.field(name.as_bytes()).number(*value)).finish()
    }
}
