//! What was reported: files by digest, packages by name and version.

use super::report::{CheckId, Finding};
use super::{AuditContext, Subject};
use crate::ids::{SkillId, SkillVersion};
use crate::purl::PackageUrl;
use crate::sbom::{Sbom, SbomComponent};
use palyra_protocol::Digest;

/// Looks for the digests of the artifact, its content, its entries and the components of its bill of materials.
pub(super) fn digests(subject: &Subject, sbom: Option<&Sbom>, context: &AuditContext<'_>) -> Finding {
    let mut finding = Finding::new(CheckId::KnownBadDigest);
    let bad = &context.policy.bad_digests;
    let mut look = |what: &str, digest: &Digest| {
        if let Some(reason) = bad.get(digest) {
            finding.fail(format!("{what} has the digest {digest}: {reason}"));
        }
    };
    if let Some(digest) = &subject.artifact_digest {
        look("the artifact", digest);
    }
    look("the content", &subject.content);
    for entry in &subject.entries {
        look(&format!("`{}`", entry.name), &entry.digest);
    }
    for component in sbom.map_or(&[][..], Sbom::components) {
        component.sha256.iter().for_each(|digest| look(&format!("`{}`", shown(component)), digest));
    }
    finding
}

/// Looks for the packages of the bill of materials, and for the skill itself.
pub(super) fn packages(
    skill: Option<(&SkillId, &SkillVersion)>,
    sbom: Option<&Sbom>,
    context: &AuditContext<'_>,
) -> Finding {
    let mut finding = Finding::new(CheckId::KnownBadPackage);
    let own = skill.map(|(id, version)| PackageUrl::new("palyra-skill", "", id.as_str(), Some(&version.to_string())));
    if let Some(own) = &own {
        look(&mut finding, own, false, context);
    }
    for component in sbom.map_or(&[][..], Sbom::components) {
        if let Some(package) = &component.purl {
            look(&mut finding, package, component.is_excluded, context);
        }
    }
    finding
}

fn look(finding: &mut Finding, package: &PackageUrl, is_excluded: bool, context: &AuditContext<'_>) {
    let mut report = |evidence: String| match is_excluded {
        // It took part in the build or its tests and is not in the artifact.
        true => finding.warn(format!("{evidence} (only used to build or test)")),
        false => finding.fail(evidence),
    };
    for (bad, reason) in &context.policy.bad_packages {
        let same_version = bad.version().is_none_or(|version| package.version() == Some(version));
        if bad.key() == package.key() && same_version {
            report(format!("`{package}`: {reason}"));
        }
    }
    for advisory in context.advisories.about(package) {
        let doubt = if advisory.is_certain { "" } else { " (its versions cannot be compared)" };
        report(format!("`{package}`: {} {}{doubt}", advisory.id, advisory.summary));
    }
}

fn shown(component: &SbomComponent) -> String {
    component.purl.as_ref().map_or_else(|| crate::text::excerpt(&component.name), ToString::to_string)
}
