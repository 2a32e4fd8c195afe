//! What a run came to, and what really held it.
//!
//! [`Enforcement`] is evidence: it goes into a signed attestation. Every layer in it is there because a system call
//! succeeded, or because the child reported that one did. It must never be filled from configuration.

use crate::policy::{EgressEnforcementMode, SandboxTier};
use palyra_egress::{Denials, EgressRecord};
use serde::Serialize;
use std::io::PipeReader;
use std::path::PathBuf;
use std::time::Duration;

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receives what happens while the process runs. Only bytes that are kept arrive here, so a flood cannot drown the
/// receiver.
pub trait OutputSink {
    /// Takes the next bytes of `stream`.
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]);

    /// Where further input comes from when the request's own is used up; asked once, at the start. Read as the process
    /// reads, so that it may be endless.
    fn input(&mut self) -> Option<PipeReader> {
        None
    }

    /// Takes a connection through the filtering proxy, allowed or denied, when it is over.
    fn egress(&mut self, record: &EgressRecord) {
        let _nobody_asks = record;
    }
}

/// Nobody is watching.
impl OutputSink for () {
    fn chunk(&mut self, _stream: OutputStream, _bytes: &[u8]) {}
}

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessExit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it. Bubblewrap reports signal n as code 128 + n, as shells do, and nothing tells it from a
    /// code that the command chose: in Tier C it stays that code.
    Signal(i32),
}

impl ProcessExit {
    /// Whether it exited with code 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

/// The limit that ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitHit {
    /// `wall_clock_limit_ms`.
    WallClock,
    /// `cpu_time_limit_ms`.
    CpuTime,
    /// `memory_limit_bytes`.
    Memory,
    /// Output went on far beyond `max_output_bytes`.
    Output,
    /// `max_file_size_bytes`.
    FileSize,
    /// `max_processes` was reached while it ran; it may have ended by itself.
    Processes,
    /// A system call that the seccomp profile answers with the end of the process.
    Seccomp,
    /// Somebody cancelled it.
    Cancelled,
}

/// What was kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedStream {
    /// The first bytes, exactly as written, no more than `max_output_bytes`.
    pub bytes: Vec<u8>,
    /// How many bytes were written in all.
    pub total_bytes: u64,
    /// Whether `bytes` is less than what was written.
    pub truncated: bool,
}

/// A process may write this many times its limit before it is ended; in between, output is only dropped.
const FLOOD_FACTOR: u64 = 16;
/// How long a killed tree may take to be gone.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(10);

impl CapturedStream {
    /// Takes the next bytes: keeps and passes on what fits, counts everything.
    pub(crate) fn keep(&mut self, which: OutputStream, bytes: &[u8], limit: u64, sink: &mut dyn OutputSink) {
        self.total_bytes += bytes.len() as u64;
        let room = limit.saturating_sub(self.bytes.len() as u64);
        let kept = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        self.truncated |= kept.len() < bytes.len();
        if !kept.is_empty() {
            self.bytes.extend_from_slice(kept);
            sink.chunk(which, kept);
        }
    }

    /// Whether so much was written beyond the limit that the process is ended for it.
    pub(crate) fn is_flood(&self, limit: u64) -> bool {
        self.total_bytes > limit.saturating_mul(FLOOD_FACTOR)
    }
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOutcome {
    /// How the process ended.
    pub exit: ProcessExit,
    /// The limit that ended it, if one did.
    pub ended_by: Option<LimitHit>,
    /// What it wrote to standard output.
    pub stdout: CapturedStream,
    /// What it wrote to standard error.
    pub stderr: CapturedStream,
    /// From start to the end of its last descendant.
    pub duration: Duration,
    /// CPU time of the whole tree.
    pub cpu_time: Duration,
    /// Peak memory: of the whole tree where a control group counted it, of the largest process otherwise.
    pub peak_memory_bytes: u64,
    /// Connections through the filtering proxy.
    pub egress: EgressCount,
    /// Guarded paths that it created, under the names they have now: `.envrc.held`.
    pub set_aside: Vec<PathBuf>,
    /// Guarded paths that it created or changed and that could not be set aside: they are still there.
    pub not_set_aside: Vec<PathBuf>,
    /// What it seems to have lacked because nobody allowed it.
    pub missing_programs: Option<MissingPrograms>,
    /// What really held it.
    pub enforcement: Enforcement,
}

/// Programs that are hidden from a process that failed. A guess, made from how it ended and what it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingPrograms {
    /// Those that it seems to have asked for; none when its exit code alone says that some program could not be
    /// started.
    pub names: Vec<String>,
    /// How many names are hidden from it.
    pub hidden: usize,
}

impl MissingPrograms {
    /// What to tell whoever ran it: `allow` says how a program is allowed.
    #[must_use]
    pub fn hint(&self, allow: &str) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        match names.len() {
            0 => {
                format!("Palyra hides {} interpreters that are not allowed here; if it needs one, {allow}", self.hidden)
            }
            1 => format!("{} is not allowed here, so Palyra hides it; {allow}", names.join("")),
            _ => format!("{} are not allowed here, so Palyra hides them; {allow}", names.join(", ")),
        }
    }
}

/// The connections that a process made through the filtering proxy. Many clients hide what a denied one was told, so it
/// is kept here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EgressCount {
    /// How many a rule allows.
    pub allowed: u64,
    /// How many none does.
    pub denied: u64,
    /// What those were told.
    #[serde(flatten)]
    pub denials: Denials,
}

/// One wall, and whether it stood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Its stable name: `landlock`, `seccomp`, `network_namespace`, …
    pub name: String,
    /// What it did, or why it is missing, for people.
    pub detail: String,
    /// Whether it was in force.
    pub applied: bool,
}

impl Layer {
    pub(crate) fn applied(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), detail: detail.into(), applied: true }
    }

    pub(crate) fn missing(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), detail: detail.into(), applied: false }
    }
}

/// One rule of the seccomp profile, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SeccompRule {
    /// The number of the system call on this architecture.
    pub system_call: i64,
    /// The error that the caller gets.
    pub errno: i32,
    /// Whether it depends on the arguments.
    pub conditional: bool,
    /// Arguments that it refuses.
    pub example: [u64; 6],
    /// Why the call is refused.
    pub reason: &'static str,
}

/// What really held a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Enforcement {
    /// The tier it ran in.
    pub tier: SandboxTier,
    /// What built the walls: `linux-process`, `bubblewrap`, `sandbox-exec`, `job-object`.
    pub backend: &'static str,
    /// Every wall, those that are missing too.
    pub layers: Vec<Layer>,
    /// What really held it back from the network.
    pub egress: EgressEnforcementMode,
    /// The user it ran as, as the host counts users; on Windows the last part of the user's security identifier.
    pub uid: u32,
}

impl Enforcement {
    /// Whether the layer of this name was in force.
    #[must_use]
    pub fn has(&self, layer: &str) -> bool {
        self.layers.iter().any(|l| l.applied && l.name == layer)
    }
}
