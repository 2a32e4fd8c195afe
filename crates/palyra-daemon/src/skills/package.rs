//! `skills package build|verify|inspect`.

use super::refusal::Refusal;
use super::trust::Trusted;
use super::{MAX_FILE, for_people, keys, read_file, say_json, show, write_new};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::{PackageBuild, PackageVerify};
use palyra_protocol::display::safe;
use palyra_skills::package::{self, BuiltPackage, Inspection, PackageSource, VerifyError};
use palyra_skills::provenance::BuildFacts;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Packs and signs a skill's directory.
pub(super) fn build(build: &PackageBuild, format: Format) -> Result<ExitCode, Refusal> {
    let key = keys::read(&build.key)?;
    let mut source = PackageSource::read_folder(&build.directory)?;
    source.facts = facts(build);
    let built = package::build(&source, &key)?;
    if let Some(stale) = super::build::stale_module(&build.directory, built.artifact.manifest()) {
        crate::printing::tell(&format!(
            "warning: `{}` is older than the sources; `palyra skills build` makes it anew",
            safe(&stale)
        ));
    }
    written(&built, build.out.as_deref(), format)
}

fn facts(build: &PackageBuild) -> BuildFacts {
    let mut facts = BuildFacts::default();
    if let Some(builder) = &build.builder {
        facts.builder.clone_from(builder);
    }
    facts.source = build.source.clone().zip(build.commit.clone());
    facts
}

/// Writes an artifact and says what it is.
pub(super) fn written(built: &BuiltPackage, out: Option<&Path>, format: Format) -> Result<ExitCode, Refusal> {
    let path = out.map_or_else(|| PathBuf::from(built.file_name()), Path::to_owned);
    write_new(&path, &built.bytes)?;
    let metadata = &built.artifact.manifest().metadata;
    let key_id = &built.artifact.signature().key_id;
    if format == Format::Json {
        say_json(&json!({
            "file": path,
            "skill_id": metadata.skill_id,
            "version": metadata.version,
            "publisher": metadata.publisher,
            "key_id": key_id,
            "artifact_sha256": built.digest,
            "content_sha256": built.artifact.content_digest(),
            "bytes": built.bytes.len(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = safe(&path.display().to_string());
    for_people(
        format,
        &format!("{shown}: {} {}, {}", metadata.skill_id, metadata.version, show::size(built.bytes.len())),
    );
    for_people(format, &format!("signed by   {} with the key {key_id}", metadata.publisher));
    for_people(format, &format!("sha256      {}", built.digest));
    Ok(ExitCode::SUCCESS)
}

/// Verifies an artifact with the keys that were given.
pub(super) fn verify(verify: &PackageVerify, format: Format) -> Result<ExitCode, Refusal> {
    let trusted = Trusted::read(&verify.trust)?;
    let bytes = read_file(&verify.file, MAX_FILE)?;
    let (artifact, verification) = package::verify(&bytes, &trusted.document, &trusted.request).map_err(refused)?;
    let changes: Vec<String> = verification.changes.iter().map(ToString::to_string).collect();
    if format == Format::Json {
        say_json(&json!({
            "decision": verification.decision,
            "why": verification.why,
            "publisher": verification.publisher,
            "key_id": verification.key_id,
            "skill_id": verification.skill_id,
            "version": verification.version,
            "content_sha256": verification.content_sha256,
            "would_record": changes,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let metadata = &artifact.manifest().metadata;
    let name = safe(&metadata.name);
    for_people(format, &format!("verified: {} {} ({name})", metadata.skill_id, metadata.version));
    for_people(format, &format!("{}: {}", verification.decision.as_str(), safe(&verification.why)));
    Ok(ExitCode::SUCCESS)
}

/// A refusal says here what to type.
fn refused(error: VerifyError) -> Refusal {
    let mut refusal = Refusal::from(error);
    if refusal.code == "trust_publisher_unknown" {
        refusal.hint = Some(
            "ask the publisher for the public key, then give it: `--trust PUBLISHER=KEY`; \
             or accept what you see first: `--allow-tofu`"
                .to_owned(),
        );
    }
    refusal
}

/// Shows what is in an artifact.
pub(super) fn inspect(file: &Path, format: Format) -> Result<ExitCode, Refusal> {
    let bytes = read_file(file, MAX_FILE)?;
    let inspection: Inspection = package::inspect(&bytes).map_err(|error| Refusal::from(VerifyError::from(error)))?;
    if format == Format::Json {
        say_json(&inspection)?;
    } else {
        show::inspection(&inspection);
    }
    Ok(ExitCode::SUCCESS)
}
