//! `skills package audit`.

use super::refusal::{NOT_VERIFIED, Refusal};
use super::trust::Trusted;
use super::{MAX_FILE, read_file, say_json, show};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::PackageAudit;
use palyra_skills::audit::DEFAULT_POLICY;
use palyra_skills::constants::PROTOCOL_MAJOR;
use palyra_skills::{Advisories, AuditContext, AuditPolicy, HostVersion, TrustQuestion, package};
use std::process::ExitCode;

/// The largest audit policy or advisory file.
const MAX_SIDE_FILE: u64 = 64 << 20;

/// Audits an artifact. A check that fails is the exit code's matter, not an error.
pub(super) fn audit(audit: &PackageAudit, format: Format) -> Result<ExitCode, Refusal> {
    let Some(file) = &audit.file else {
        crate::printing::say(DEFAULT_POLICY.trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    let policy = match &audit.policy {
        None => DEFAULT_POLICY.as_bytes().to_vec(),
        Some(path) => read_file(path, MAX_SIDE_FILE)?,
    };
    let policy =
        AuditPolicy::parse(&policy).map_err(|error| Refusal::refused(error.code(), error.to_string(), None))?;
    let advisories = match &audit.advisories {
        None => Advisories::default(),
        Some(path) => Advisories::read(path)
            .map_err(|error| Refusal::refused(error.code(), format!("`{}`: {error}", path.display()), None))?,
    };
    let palyra = env!("CARGO_PKG_VERSION").parse().map_err(|error| Refusal::bug(&error))?;
    let host = HostVersion { palyra, protocol_major: PROTOCOL_MAJOR };
    let trusted = if Trusted::is_given(&audit.trust) { Some(Trusted::read(&audit.trust)?) } else { None };
    let trust = trusted.as_ref().map(|trusted| TrustQuestion { document: &trusted.document, request: trusted.request });
    let bytes = read_file(file, MAX_FILE)?;
    let report = package::audit(&bytes, &AuditContext { policy: &policy, advisories: &advisories, host, trust });
    if format == Format::Json {
        say_json(&report)?;
    } else {
        show::audit(&report);
    }
    Ok(if report.is_eligible() { ExitCode::SUCCESS } else { ExitCode::from(NOT_VERIFIED) })
}
