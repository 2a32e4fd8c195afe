//! What a guest did through its host: counted by kind, and which hosts, secrets and paths it asked for.
//!
//! Counts go into the attestation. The names are what "observed against declared" is made of: bounded lists, since a
//! guest chooses what it asks for.

use crate::hosts::Host;
use crate::names::WorkspacePath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// How many names of a kind are kept.
const MOST_NAMES: usize = 64;

/// What a host call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HostCallKind {
    /// Lines for the log.
    Log,
    /// HTTP requests and their parts.
    Http,
    /// Secrets.
    Secrets,
    /// The private storage.
    Storage,
    /// Files of the workspace.
    Files,
    /// The time.
    Clock,
    /// Random numbers.
    Random,
    /// Streams and waiting.
    Io,
    /// The environment of a program: arguments, variables, exit.
    Cli,
    /// Interfaces that are always denied, such as sockets.
    Denied,
}

impl HostCallKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Log,
        Self::Http,
        Self::Secrets,
        Self::Storage,
        Self::Files,
        Self::Clock,
        Self::Random,
        Self::Io,
        Self::Cli,
        Self::Denied,
    ];
}

/// How many host calls of each kind a guest made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCalls {
    counts: [u64; HostCallKind::ALL.len()],
    total: u64,
}

impl HostCalls {
    /// Counts one and returns how many there are of all kinds.
    pub(crate) fn add(&mut self, kind: HostCallKind) -> u64 {
        self.counts[kind as usize] += 1;
        self.total += 1;
        self.total
    }

    /// How many of one kind.
    #[must_use]
    pub fn of(&self, kind: HostCallKind) -> u64 {
        self.counts[kind as usize]
    }

    /// How many of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Those that there were.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<HostCallKind, u64> {
        HostCallKind::ALL.into_iter().map(|kind| (kind, self.of(kind))).filter(|(_, count)| *count > 0).collect()
    }
}

impl Serialize for HostCalls {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_kind().serialize(serializer)
    }
}

/// What a guest asked for by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// `host:port` that a request went to.
    pub hosts: BTreeSet<String>,
    /// `scope/key` that was read.
    pub secrets: BTreeSet<String>,
    /// Paths that were opened for reading.
    pub read: BTreeSet<String>,
    /// Paths that were opened for writing, or changed.
    pub written: BTreeSet<String>,
    /// What was asked for and is not granted, as `kind name`.
    pub denied: BTreeSet<String>,
}

impl Observed {
    pub(crate) fn reached(&mut self, host: &Host, port: u16) {
        note(&mut self.hosts, || format!("{host}:{port}"));
    }

    pub(crate) fn secret(&mut self, scope: &str, key: &str) {
        note(&mut self.secrets, || format!("{scope}/{key}"));
    }

    pub(crate) fn read(&mut self, path: &WorkspacePath) {
        note(&mut self.read, || path.to_string());
    }

    pub(crate) fn written(&mut self, path: &WorkspacePath) {
        note(&mut self.written, || path.to_string());
    }

    pub(crate) fn denied(&mut self, kind: &str, name: &str) {
        note(&mut self.denied, || format!("{kind} {}", name.chars().take(200).collect::<String>()));
    }
}

fn note(names: &mut BTreeSet<String>, name: impl FnOnce() -> String) {
    if names.len() < MOST_NAMES {
        names.insert(name());
    }
}
