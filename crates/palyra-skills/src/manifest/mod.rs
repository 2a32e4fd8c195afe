//! `skill.toml`: what a skill is, which tools it has, what it asks for, what it runs on.
//!
//! [`Manifest::parse`] is the only way to a [`Manifest`]: unknown keys, ids that could lead somewhere, paths that leave
//! their directory, wildcards without a reason and schemas that are none are refused with the place where they stand.

mod capabilities;
mod error;
pub mod hosts;
mod raw;
#[cfg(test)]
mod tests;
mod tools;

pub use capabilities::{Capabilities, Quotas, RootPath, SecretRequest, WildcardCapability, WildcardOptIn};
pub use error::{ManifestError, ManifestFault};
pub(crate) use tools::is_module;
pub use tools::{Tool, ToolCode};

use crate::constants::{FORMAT, MAX_MANIFEST_BYTES};
use crate::ids::{PublisherId, SkillId, SkillVersion};
use crate::text::Position;
use error::Placed;
use palyra_protocol::{RiskLevel, ToolCapability, display};
use raw::{RawCompat, RawKind, RawManifest, RawMetadata, Text};
use semver::Version;
use serde::Serialize;
use std::collections::BTreeSet;

/// The longest name, license or homepage, in characters.
const MAX_LINE: usize = 200;
/// The longest description of a skill, in characters.
const MAX_DESCRIPTION: usize = 2000;

/// What kind of code an artifact holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillKind {
    /// WASM components, which run in Tier A.
    Component,
    /// An Agent Skills folder: `SKILL.md`, and scripts that run as sandboxed processes.
    Instructions,
}

impl SkillKind {
    /// The name in manifests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Instructions => "instructions",
        }
    }
}

/// Who made a skill, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Metadata {
    /// Its id, which begins with the publisher.
    pub skill_id: SkillId,
    /// Its version.
    pub version: SkillVersion,
    /// Who signs it.
    pub publisher: PublisherId,
    /// Its name for people.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Its license.
    pub license: Option<String>,
    /// Where to read more.
    pub homepage: Option<String>,
}

/// What a skill runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compat {
    /// The major version of the WIT world that its components implement.
    pub required_protocol_major: u32,
    /// The oldest Palyra that runs it.
    pub min_palyra_version: Version,
}

/// A manifest that was checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Manifest {
    /// What kind of code it holds.
    pub kind: SkillKind,
    /// Who made it.
    pub metadata: Metadata,
    /// Its tools.
    pub tools: Vec<Tool>,
    /// What it asks for.
    pub capabilities: Capabilities,
    /// What it runs on.
    pub compat: Compat,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(ManifestError::whole(ManifestFault::TooLarge { limit: MAX_MANIFEST_BYTES }));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::whole(ManifestFault::NotText))?;
        let raw: RawManifest = toml::from_str(text).map_err(|e| ManifestError::of_toml(text, &e))?;
        checked(&raw).map_err(|(place, fault)| ManifestError { position: Position::of(text, place.start), fault })
    }

    /// What its tools can do to the world, as policies see it.
    #[must_use]
    pub fn tool_capabilities(&self) -> BTreeSet<ToolCapability> {
        let asked = &self.capabilities;
        let has = [
            (self.kind == SkillKind::Instructions, ToolCapability::ProcessExec),
            (!asked.egress.is_empty(), ToolCapability::Network),
            (!asked.secrets.is_empty(), ToolCapability::SecretsRead),
            (!asked.write_roots.is_empty(), ToolCapability::FilesystemWrite),
        ];
        has.into_iter().filter(|(has, _)| *has).map(|(_, capability)| capability).collect()
    }

    /// The least risk that a tool with these capabilities can have.
    #[must_use]
    pub fn least_risk(&self) -> RiskLevel {
        let of = |capability: &ToolCapability| match capability {
            ToolCapability::SecretsRead => RiskLevel::Critical,
            ToolCapability::ProcessExec | ToolCapability::Network => RiskLevel::High,
            ToolCapability::FilesystemWrite => RiskLevel::Medium,
        };
        self.tool_capabilities().iter().map(of).max().unwrap_or(RiskLevel::Low)
    }

    /// A tool's risk as policy should see it: what the publisher says, but never less than its capabilities mean.
    #[must_use]
    pub fn risk_of(&self, tool: &Tool) -> RiskLevel {
        tool.risk.max(self.least_risk())
    }

    /// The entries that hold the code of its tools, each once.
    #[must_use]
    pub fn code_entries(&self) -> BTreeSet<&str> {
        self.tools.iter().map(|tool| tool.code.entry()).collect()
    }
}

fn checked(raw: &RawManifest) -> Result<Manifest, Placed> {
    let format = *raw.format.get_ref();
    if format != FORMAT {
        return Err((raw.format.span(), ManifestFault::Format { found: format }));
    }
    let kind = match raw.kind {
        RawKind::Component => SkillKind::Component,
        RawKind::Instructions => SkillKind::Instructions,
    };
    let metadata = metadata(&raw.metadata)?;
    let tools = tools::tools(&raw.entrypoints, raw.kind)?;
    if tools.is_empty() && kind == SkillKind::Component {
        let message = "a component without a tool does nothing; add `[[entrypoints.tools]]`";
        return Err((raw.metadata.skill_id.span(), ManifestFault::value("entrypoints.tools", message)));
    }
    let capabilities = capabilities::capabilities(&raw.capabilities)?;
    if kind == SkillKind::Instructions && !(capabilities.secrets.is_empty() && capabilities.storage_bytes == 0) {
        let message = "scripts get neither secrets nor storage; only components do";
        return Err((raw.metadata.skill_id.span(), ManifestFault::value("capabilities", message)));
    }
    Ok(Manifest { kind, metadata, tools, capabilities, compat: compat(&raw.compat)? })
}

fn metadata(raw: &RawMetadata) -> Result<Metadata, Placed> {
    fn named<T: std::str::FromStr<Err = crate::ids::NameError>>(key: &'static str, text: &Text) -> Result<T, Placed> {
        text.get_ref().parse().map_err(|e| (text.span(), ManifestFault::name(key, &e)))
    }
    let publisher: PublisherId = named("metadata.publisher", &raw.publisher)?;
    let skill_id: SkillId = named("metadata.skill_id", &raw.skill_id)?;
    // INVARIANT (a_skill_belongs_to_its_publisher): no key can sign a skill whose id belongs to somebody else.
    if skill_id.publisher() != publisher.as_str() {
        let fault = ManifestFault::ForeignId { skill_id: skill_id.to_string(), publisher: publisher.to_string() };
        return Err((raw.skill_id.span(), fault));
    }
    Ok(Metadata {
        skill_id,
        version: named("metadata.version", &raw.version)?,
        publisher,
        name: line("metadata.name", &raw.name)?,
        description: raw.description.as_ref().map(|text| paragraph("metadata.description", text)).transpose()?,
        license: raw.license.as_ref().map(|text| line("metadata.license", text)).transpose()?,
        homepage: raw.homepage.as_ref().map(|text| line("metadata.homepage", text)).transpose()?,
    })
}

/// One line that shows everything that it holds.
fn line(key: &'static str, text: &Text) -> Result<String, Placed> {
    let line = text.get_ref().trim();
    if line.is_empty() || line.chars().count() > MAX_LINE || line.chars().any(display::deceives) {
        let message = format!("one line of 1 to {MAX_LINE} visible characters");
        return Err((text.span(), ManifestFault::value(key, message)));
    }
    Ok(line.to_owned())
}

/// A longer text; what it hides is the audit's to find.
fn paragraph(key: &'static str, text: &Text) -> Result<String, Placed> {
    let trimmed = text.get_ref().trim();
    if trimmed.is_empty() || trimmed.chars().count() > MAX_DESCRIPTION {
        return Err((text.span(), ManifestFault::value(key, format!("1 to {MAX_DESCRIPTION} characters"))));
    }
    Ok(trimmed.to_owned())
}

fn compat(raw: &RawCompat) -> Result<Compat, Placed> {
    let major = *raw.required_protocol_major.get_ref();
    if major == 0 {
        let message = "a number from 1";
        return Err((
            raw.required_protocol_major.span(),
            ManifestFault::value("compat.required_protocol_major", message),
        ));
    }
    let text = raw.min_palyra_version.get_ref();
    let version = Version::parse(text).ok().filter(|_| text.len() <= SkillVersion::MAX);
    let version = version.ok_or_else(|| {
        let message = format!("`{}` is not a SemVer version", crate::text::excerpt(text));
        (raw.min_palyra_version.span(), ManifestFault::name("compat.min_palyra_version", &message))
    })?;
    Ok(Compat { required_protocol_major: major, min_palyra_version: version })
}
