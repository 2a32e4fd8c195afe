//! `skills package index|rotate`: what a publisher signs besides packages.

use super::refusal::Refusal;
use super::{for_people, keys, say_json, write_new};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::{PackageIndex, PackageRotate, SigningKey};
use palyra_protocol::display::safe;
use palyra_protocol::{Clock as _, SystemClock};
use palyra_skills::registry::{RegistryError, write_index};
use palyra_skills::trust::RotationStatement;
use palyra_skills::{PublisherId, SkillId, SkillVersion};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn refused(error: &RegistryError) -> Refusal {
    Refusal::refused(error.code(), error.to_string(), None)
}

/// Reads `acme.weather@1.2.0`.
fn version(text: &str) -> Result<(SkillId, SkillVersion), Refusal> {
    let parsed = text.split_once('@').and_then(|(skill, version)| Some((skill.parse().ok()?, version.parse().ok()?)));
    parsed.ok_or_else(|| {
        Refusal::usage(format!("`{}` is no version of a skill", safe(text)), "write it as `acme.weather@1.2.0`")
    })
}

/// Signs a list of the packages in a directory and writes it there.
pub(super) fn index(index: &PackageIndex, format: Format) -> Result<ExitCode, Refusal> {
    let key = keys::read(&index.key)?;
    let withdrawn = index.withdraw.iter().map(|text| version(text)).collect::<Result<Vec<_>, _>>()?;
    let days = DAY.saturating_mul(u32::try_from(index.days).unwrap_or(u32::MAX));
    let expires_at = SystemClock.now().plus(days);
    let written = write_index(&index.directory, &index.name, expires_at, &withdrawn, &key).map_err(|e| refused(&e))?;
    if format == Format::Json {
        say_json(&json!({
            "name": written.name, "revision": written.revision, "expires_at": written.expires_at,
            "artifacts": written.artifacts.len(), "public_key": key.public().to_string(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let count = written.artifacts.len();
    for_people(format, &format!("{}, list {}: {count} package(s)", written.name, written.revision));
    for_people(format, "\nPeople install from it with:");
    let directory = safe(&index.directory.display().to_string());
    for_people(
        format,
        &format!("  palyra skills install SKILL --registry {directory} --registry-key {}", key.public()),
    );
    Ok(ExitCode::SUCCESS)
}

/// Writes a statement by which a new key follows an old one.
pub(super) fn rotate(rotate: &PackageRotate, format: Format) -> Result<ExitCode, Refusal> {
    let publisher: PublisherId = rotate.publisher.parse().map_err(|_| {
        Refusal::usage(format!("`{}` is no publisher", safe(&rotate.publisher)), "a lower-case word, as in skill ids")
    })?;
    let read = |file: &std::path::Path| keys::read(&SigningKey { key: file.to_owned() });
    let statement = RotationStatement::create(&publisher, &read(&rotate.old)?, &read(&rotate.new)?);
    let bytes = serde_json::to_vec_pretty(&statement).map_err(|error| Refusal::bug(&error))?;
    write_new(&rotate.out, &bytes)?;
    if format == Format::Json {
        say_json(&json!({ "file": rotate.out, "old": statement.old_id(), "new": statement.new_id() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for_people(
        format,
        &format!(
            "{}: the key {} follows {}",
            safe(&rotate.out.display().to_string()),
            statement.new_id(),
            statement.old_id()
        ),
    );
    for_people(format, "People who trust the old one take it up with `palyra skills trust rotate FILE`.");
    Ok(ExitCode::SUCCESS)
}
