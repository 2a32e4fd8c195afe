//! The libraries' refusals as the engine's errors: code, message, and what to do next.

use crate::error::{EngineError, ErrorKind};
use palyra_plugins::{Fault, PluginError};
use palyra_protocol::Problem;
use palyra_skills::trust::StoreError;
use palyra_skills::unpack::UnpackError;
use palyra_skills::{ArtifactError, SkillId, SkillVersion, TrustRefusal};
use std::error::Error;

/// An error and its cause in one sentence.
fn with_cause(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn refused(kind: ErrorKind, code: &str, message: String, hint: Option<String>) -> EngineError {
    EngineError::new(kind, Problem { hint, ..Problem::plain(code, message) })
}

pub(super) fn plugin(error: &PluginError) -> EngineError {
    let kind = match error.fault() {
        Fault::Guest | Fault::Policy | Fault::Caller => ErrorKind::Invalid,
        Fault::Host => ErrorKind::Unavailable,
    };
    refused(kind, error.code(), with_cause(error), error.hint())
}

pub(super) fn artifact(error: &ArtifactError) -> EngineError {
    let hint = "get the artifact again from its publisher; `palyra skills package verify FILE` says more";
    refused(ErrorKind::Invalid, error.code(), error.to_string(), Some(hint.to_owned()))
}

pub(super) fn unpack(error: &UnpackError) -> EngineError {
    let kind = match error {
        UnpackError::Disk { .. } | UnpackError::Source(_) => ErrorKind::Unavailable,
        UnpackError::NotInstalled { .. } => ErrorKind::NotFound,
        UnpackError::Occupied { .. } | UnpackError::Artifact(_) | UnpackError::Drift { .. } => ErrorKind::Conflict,
    };
    refused(kind, error.code(), with_cause(error), None)
}

pub(super) fn trust(refusal: &TrustRefusal) -> EngineError {
    let hint = match refusal {
        TrustRefusal::UnknownPublisher { publisher, .. } => format!(
            "compare the key with the publisher's own word; then `palyra skills trust add {publisher} KEY`, or install with \
             `--allow-tofu`"
        ),
        other => other.hint().to_owned(),
    };
    refused(ErrorKind::Forbidden, refusal.code(), refusal.to_string(), Some(hint))
}

pub(super) fn store(error: &StoreError) -> EngineError {
    let (kind, hint) = match error {
        StoreError::Disk { .. } | StoreError::Ledger { .. } => (ErrorKind::Unavailable, None),
        StoreError::Tampered { .. } | StoreError::Flaw(_) => (
            ErrorKind::Unavailable,
            Some(
                "put the file back from a backup, or begin again with an empty trust store: `palyra skills trust reset`",
            ),
        ),
        StoreError::Change(_) | StoreError::Stale => (ErrorKind::Conflict, None),
    };
    refused(kind, error.code(), with_cause(error), hint.map(str::to_owned))
}

pub(super) fn not_installed(skill: &SkillId, version: Option<&SkillVersion>) -> EngineError {
    let which = version.map_or_else(|| format!("`{skill}`"), |version| format!("`{skill}` {version}"));
    let message = format!("{which} is not installed");
    refused(ErrorKind::NotFound, "skill_not_installed", message, Some("`palyra skills list` shows what is".to_owned()))
}

pub(super) fn conflict(code: &str, message: String, hint: &str) -> EngineError {
    refused(ErrorKind::Conflict, code, message, Some(hint.to_owned()))
}
