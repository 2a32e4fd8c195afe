//! The audit: static analysis of an artifact against an operator's policy.
//!
//! [`audit_skill_artifact_security`] looks at bytes and answers with one line for each check; it never stops at the
//! first fault, it never executes anything, and the same input gives the same answer. A check that cannot be made
//! because another failed is absent from the report, and the verdict is then a failure.

mod advisories;
mod checks;
mod component;
mod deception;
mod imports;
mod known_bad;
mod policy;
mod report;
#[cfg(test)]
mod tests;
mod versions;
mod world;

pub use advisories::{Advisories, AdvisoryError, AdvisoryMatch};
pub use component::{ComponentFacts, ComponentFault, features};
pub use imports::{ImportClass, NeededCapability, classify};
pub use policy::{AuditLimits, AuditPolicy, DEFAULT_POLICY, PolicyError, PolicyFault, Severity};
pub use report::{AuditReport, AuditSubjectNames, Check, CheckId, CheckStatus};
pub use world::WorldFault;

use crate::archive::{Archive, Entry};
use crate::artifact::{Artifact, check_layout, code, find, modules};
use crate::constants::{MANIFEST_ENTRY, PROVENANCE_ENTRY, SBOM_ENTRY};
use crate::ids::{PublisherId, SkillId};
use crate::manifest::{Manifest, ManifestFault};
use crate::provenance::Provenance;
use crate::sbom::{Sbom, SbomSubject};
use crate::signature::{SignatureDocument, content_digest};
use crate::trust::{TrustDocument, VerifyRequest, verify_skill_artifact};
use palyra_protocol::{Digest, DigestBuilder};
use report::Finding;
use semver::Version;

/// Grows whenever a check is added or changed, so that skills are audited again by the new ones.
const AUDITOR: u64 = 1;

/// What runs skills here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVersion {
    /// The version of Palyra.
    pub palyra: Version,
    /// The major version of the WIT world.
    pub protocol_major: u32,
}

/// The trust store and how to ask it.
#[derive(Debug, Clone, Copy)]
pub struct TrustQuestion<'a> {
    /// The trust store.
    pub document: &'a TrustDocument,
    /// How to ask.
    pub request: VerifyRequest,
}

/// Everything that an audit depends on besides the artifact.
#[derive(Debug, Clone)]
pub struct AuditContext<'a> {
    /// The operator's policy.
    pub policy: &'a AuditPolicy,
    /// The operator's advisories.
    pub advisories: &'a Advisories,
    /// What runs skills here.
    pub host: HostVersion,
    /// Whom to trust. Without a trust store the audit says so in a warning: it is then a publisher's audit of its own
    /// work.
    pub trust: Option<TrustQuestion<'a>>,
}

impl AuditContext<'_> {
    /// Changes whenever the audit of this skill could come to another answer although the artifact is the same. A
    /// scheduler that keeps it beside the last report audits again only what may have changed.
    #[must_use]
    pub fn fingerprint(&self, publisher: &PublisherId, skill_id: &SkillId) -> Digest {
        let digest = DigestBuilder::new("palyra.skill.audit.v1")
            .number(AUDITOR)
            .field(self.policy.digest().as_bytes())
            .field(self.advisories.digest().as_bytes())
            .field(self.host.palyra.to_string().as_bytes())
            .number(self.host.protocol_major.into());
        let Some(trust) = &self.trust else { return digest.number(0).finish() };
        let keys = trust.document.publisher(publisher).map(|record| record.keys.as_slice()).unwrap_or_default();
        let digest = keys.iter().fold(digest.number(keys.len() as u64), |digest, key| {
            let expired = key.expires_at.is_some_and(|end| end <= trust.request.now);
            digest.field(format!("{key:?}").as_bytes()).number(expired.into())
        });
        let admitted = trust.document.skill(skill_id).map(|record| format!("{record:?}"));
        digest.optional(admitted.as_deref().map(str::as_bytes)).finish()
    }
}

/// What an audit looks at.
pub(crate) struct Subject {
    entries: Vec<Entry>,
    signature: Vec<u8>,
    /// The digest of the archive before the signature; nothing for an unpacked artifact.
    archive: Option<Digest>,
    content: Digest,
    artifact_digest: Option<Digest>,
    artifact_bytes: Option<u64>,
}

/// Audits the bytes of a `.palyra-skill` file.
#[must_use]
pub fn audit_skill_artifact_security(bytes: &[u8], context: &AuditContext<'_>) -> AuditReport {
    let artifact_digest = Some(Digest::of(bytes));
    let mut form = Finding::new(CheckId::ArchiveForm);
    let archive = match Archive::read(bytes) {
        Ok(archive) => archive,
        Err(error) => {
            form.fail(format!("{}: {error}", error.code()));
            let mut checks = vec![form.done()];
            // Somebody may have reported the file, whatever it is.
            if let Some(reason) = artifact_digest.and_then(|digest| context.policy.bad_digests.get(&digest)) {
                let mut known = Finding::new(CheckId::KnownBadDigest);
                known.fail(format!("the artifact is known: {reason}"));
                checks.push(known.done());
            }
            return AuditReport::new(
                AuditSubjectNames { artifact_sha256: artifact_digest, ..Default::default() },
                checks,
            );
        }
    };
    form.note(format!("{} entries in the one form that artifacts have", archive.entries.len() + 1));
    let subject = Subject {
        content: content_digest(&archive.entries),
        entries: archive.entries,
        signature: archive.signature,
        archive: Some(archive.digest),
        artifact_digest,
        artifact_bytes: Some(bytes.len() as u64),
    };
    audit(subject, vec![form.done()], context)
}

/// Audits an unpacked artifact: its entries, sorted by name, and its signature.
#[must_use]
pub fn audit_unpacked_skill(entries: Vec<Entry>, signature: Vec<u8>, context: &AuditContext<'_>) -> AuditReport {
    let content = content_digest(&entries);
    let subject = Subject { entries, signature, archive: None, content, artifact_digest: None, artifact_bytes: None };
    audit(subject, Vec::new(), context)
}

fn audit(subject: Subject, mut checks: Vec<Check>, context: &AuditContext<'_>) -> AuditReport {
    let (signed, finding) = signature(&subject);
    checks.push(finding.done());
    checks.push(checks::size(&subject, context).done());
    let manifest = manifest(&subject, &mut checks);
    let (sbom, findings) = materials(manifest.as_ref(), &subject, context);
    checks.extend(findings.into_iter().map(Finding::done));
    checks.push(known_bad::digests(&subject, sbom.as_ref(), context).done());
    let own = manifest.as_ref().map(|manifest| (&manifest.metadata.skill_id, &manifest.metadata.version));
    checks.push(known_bad::packages(own, sbom.as_ref(), context).done());
    let components = components(&subject, &mut checks);
    let components: Vec<_> = components.iter().map(|(name, facts)| (name.as_str(), facts)).collect();
    checks.push(checks::imports(&components, context).done());
    checks.push(checks::exports(&components).done());
    let mut names = AuditSubjectNames {
        artifact_sha256: subject.artifact_digest,
        content_sha256: Some(subject.content),
        ..Default::default()
    };
    if let Some(manifest) = manifest {
        names.skill_id = Some(manifest.metadata.skill_id.clone());
        names.version = Some(manifest.metadata.version.clone());
        let findings = [
            checks::quotas(&manifest, context),
            checks::memory(&manifest, &components),
            checks::wildcards(&manifest, context),
            checks::forbidden(&manifest, context),
            checks::unused(&manifest, &components),
            checks::undeclared(&manifest, &components, context),
            checks::risk(&manifest),
        ];
        checks.extend(findings.into_iter().map(Finding::done));
        checks.extend(checks::compat(&manifest, context).into_iter().map(Finding::done));
        checks.extend(checks::texts(&manifest, &subject, context).into_iter().map(Finding::done));
        checks.extend(layout_and_trust(manifest, subject.entries, signed, context).into_iter().map(Finding::done));
    }
    AuditReport::new(names, checks)
}

/// Checks the signature; the document, if it holds.
fn signature(subject: &Subject) -> (Option<SignatureDocument>, Finding) {
    let mut finding = Finding::new(CheckId::SignatureValid);
    let held = SignatureDocument::parse(&subject.signature)
        .and_then(|document| document.verify(&subject.content, subject.archive.as_ref()).map(|()| document));
    match &held {
        Ok(document) => finding.note(format!("signed by `{}` with the key {}", document.publisher, document.key_id)),
        Err(fault) => finding.fail(format!("{}: {fault}", fault.code())),
    }
    (held.ok(), finding)
}

/// Reads the manifest. Paths and wildcards are checked by the same parser and reported as checks of their own.
fn manifest(subject: &Subject, checks: &mut Vec<Check>) -> Option<Manifest> {
    let mut form = Finding::new(CheckId::ManifestValid);
    let Some(entry) = find(&subject.entries, MANIFEST_ENTRY) else {
        form.fail("the artifact has no `skill.toml`");
        checks.push(form.done());
        return None;
    };
    let read = Manifest::parse(&entry.content);
    let mut paths = Finding::new(CheckId::CapabilitiesPaths);
    match &read {
        Ok(manifest) => form.note(format!("{} tools", manifest.tools.len())),
        Err(error) => {
            let evidence = format!("{}: {error}", error.code());
            match error.fault {
                ManifestFault::Path { .. } | ManifestFault::Name { .. } | ManifestFault::ForeignId { .. } => {
                    paths.fail(evidence.clone());
                }
                ManifestFault::Wildcard { .. } => {
                    let mut wildcards = Finding::new(CheckId::CapabilitiesWildcards);
                    wildcards.fail(evidence.clone());
                    checks.push(wildcards.done());
                }
                _ => {}
            }
            form.fail(evidence);
        }
    }
    checks.push(form.done());
    checks.push(paths.done());
    read.ok()
}

/// The bill of materials and the provenance, each by itself and against the artifact.
fn materials(
    manifest: Option<&Manifest>,
    subject: &Subject,
    context: &AuditContext<'_>,
) -> (Option<Sbom>, Vec<Finding>) {
    let mut valid = Finding::new(CheckId::SbomValid);
    let mut hashes = Finding::new(CheckId::SbomHashes);
    let mut built = Finding::new(CheckId::ProvenanceValid);
    let sbom = match find(&subject.entries, SBOM_ENTRY).map(|entry| Sbom::parse(&entry.content)) {
        None => Err("the artifact has no `sbom.cdx.json`".to_owned()),
        Some(read) => read.map_err(|e| format!("{}: {e}", e.code())),
    };
    let sbom = sbom.map_err(|evidence| valid.fail(evidence)).ok();
    let provenance = match find(&subject.entries, PROVENANCE_ENTRY).map(|entry| Provenance::parse(&entry.content)) {
        None => Err("the artifact has no `provenance.json`".to_owned()),
        Some(read) => read.map_err(|e| format!("{}: {e}", e.code())),
    };
    let provenance = provenance.map_err(|evidence| built.fail(evidence)).ok();
    if let Some(sbom) = &sbom {
        valid.note(format!("{} components", sbom.components().len()));
        for component in sbom.components().iter().filter(|component| component.has_odd_purl) {
            let name = crate::text::excerpt(&component.name);
            valid.fail(format!("`{name}` has a package URL that cannot be read, so no advisory would be found"));
        }
        for component in sbom.components().iter().filter(|component| !component.has_hash) {
            let name = crate::text::excerpt(&component.name);
            hashes.add(context.policy.missing_hashes.into(), format!("`{name}` has no hash"));
        }
    }
    if let Some(manifest) = manifest {
        let metadata = &manifest.metadata;
        let about = SbomSubject { skill_id: &metadata.skill_id, version: &metadata.version, name: &metadata.name };
        let own_code = || code(&subject.entries, manifest.kind);
        if let Some(Err(error)) = sbom.as_ref().map(|sbom| sbom.check(&about, own_code(), &subject.entries)) {
            valid.fail(format!("{}: {error}", error.code()));
        }
        match provenance.as_ref().map(|provenance| (provenance, provenance.check(own_code()))) {
            Some((_, Err(error))) => built.fail(format!("{}: {error}", error.code())),
            Some((provenance, Ok(()))) => {
                built.note(format!("built by {}", crate::text::excerpt(&provenance.builder)));
            }
            None => {}
        }
    }
    (sbom, vec![valid, hashes, built])
}

/// Validates every module.
fn components(subject: &Subject, checks: &mut Vec<Check>) -> Vec<(String, ComponentFacts)> {
    let mut finding = Finding::new(CheckId::WasmValid);
    let mut components = Vec::new();
    for module in modules(&subject.entries) {
        match ComponentFacts::read(&module.content) {
            Ok(facts) => {
                finding.note(format!("`{}` is a component of {} modules", module.name, facts.core_modules));
                components.push((module.name.clone(), facts));
            }
            Err(fault) => finding.fail(format!("`{}`: {}: {fault}", module.name, fault.code())),
        }
    }
    checks.push(finding.done());
    components
}

/// Checks the layout and, where the signature holds, asks whether its key is trusted.
fn layout_and_trust(
    manifest: Manifest,
    entries: Vec<Entry>,
    signed: Option<SignatureDocument>,
    context: &AuditContext<'_>,
) -> Vec<Finding> {
    let mut layout = Finding::new(CheckId::ArtifactLayout);
    let Some(signed) = signed else {
        if let Err(fault) = check_layout(&manifest, &entries) {
            layout.fail(format!("{}: {fault}", fault.code()));
        }
        return vec![layout];
    };
    let artifact = match Artifact::from_verified(manifest, entries, signed) {
        Ok(artifact) => artifact,
        Err(error) => {
            layout.fail(format!("{}: {error}", error.code()));
            return vec![layout];
        }
    };
    let mut trusted = Finding::new(CheckId::TrustPublisher);
    match &context.trust {
        None => trusted.warn("no trust store was asked"),
        Some(question) => match verify_skill_artifact(&artifact, question.document, &question.request) {
            Ok(verification) => trusted.note(verification.why),
            Err(refusal) => trusted.fail(format!("{}: {refusal}", refusal.code())),
        },
    }
    vec![layout, trusted]
}
