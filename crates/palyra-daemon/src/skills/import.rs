//! `skills import`: an Agent Skills folder becomes a signed, pinned artifact.

use super::refusal::Refusal;
use super::{keys, package};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::Import;
use palyra_skills::instructions::{ImportRequest, import_folder};
use palyra_skills::package as packages;
use std::process::ExitCode;

pub(super) fn import(import: &Import, format: Format) -> Result<ExitCode, Refusal> {
    let key = keys::read(&import.key)?;
    let name = |error: palyra_skills::ids::NameError| Refusal::refused("skill_name", error.to_string(), None);
    let request = ImportRequest {
        publisher: import.publisher.parse().map_err(name)?,
        version: import.version.parse().map_err(name)?,
        read_roots: import.read.clone(),
        write_roots: import.write.clone(),
        egress: import.allow_host.clone(),
        min_palyra_version: env!("CARGO_PKG_VERSION").parse().map_err(|error| Refusal::bug(&error))?,
    };
    let source = import_folder(&import.directory, &request)
        .map_err(|error| Refusal::refused(error.code(), error.to_string(), None))?;
    let built = packages::build(&source, &key)?;
    package::written(&built, import.out.as_deref(), format)
}
