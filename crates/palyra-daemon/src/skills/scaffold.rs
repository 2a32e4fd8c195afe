//! `skills new`: a skill that builds at the first try, and what to type next.

use super::refusal::Refusal;
use super::{for_people, say_json};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::{Language as Wanted, New};
use palyra_plugins_build::{Language, NewSkill, Project};
use palyra_protocol::display::safe;
use palyra_skills::{PublisherId, SkillId};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) fn new(new: &New, format: Format) -> Result<ExitCode, Refusal> {
    let language = match new.lang {
        Wanted::Rust => Language::Rust,
        Wanted::Python => Language::Python,
        Wanted::Js => Language::JavaScript,
        Wanted::C => Language::C,
        Wanted::Wat => Language::Text,
    };
    let name_refused = |error: palyra_skills::ids::NameError| Refusal::refused("skill_name", error.to_string(), None);
    let publisher: PublisherId = new.publisher.parse().map_err(name_refused)?;
    let directory = new.directory.clone().unwrap_or_else(|| PathBuf::from(&new.name));
    let skill = NewSkill { name: &new.name, publisher: publisher.as_str(), palyra_version: env!("CARGO_PKG_VERSION") };
    // The name is checked by the project; what it makes of the id is checked here, before anything is written.
    let id: Result<SkillId, _> = format!("{publisher}.{}", new.name.replace('-', "_")).parse();
    if palyra_plugins_build::is_skill_name(&new.name) {
        id.as_ref().map_err(|error| Refusal::refused("skill_name", error.to_string(), None))?;
    }
    Project::create(&directory, &skill, language)?;
    let id = id.map_err(name_refused)?;
    let shown = safe(&directory.display().to_string());
    let (tool, input) = match language {
        Language::Text => ("run", r#"{"name":"Ada"}"#),
        _ => ("greet", r#"{"name":"Ada"}"#),
    };
    let mut next: Vec<String> = installs(language, &shown).into_iter().collect();
    next.push(format!("palyra skills try {shown} {tool} --input '{input}'"));
    next.push(format!("palyra skills dev {shown} {tool} --input '{input}'"));
    if format == Format::Json {
        say_json(&json!({ "skill_id": id, "directory": directory, "language": language.word(), "next": next }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for_people(
        format,
        &format!("{id} is in {shown}. What it does is in {}, what it asks for in skill.toml.", main_file(language)),
    );
    for_people(format, "\nTry it, then change it and watch:");
    for line in &next {
        for_people(format, &format!("  {line}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn main_file(language: Language) -> &'static str {
    match language {
        Language::Rust => "src/lib.rs",
        other => other.file(),
    }
}

/// The compiler that no package of the system brings, installed into the project.
fn installs(language: Language, directory: &str) -> Option<String> {
    match language {
        Language::Python => Some(format!(
            "(cd {directory} && python3 -m venv .venv && .venv/bin/pip install --quiet -r requirements.txt)"
        )),
        Language::JavaScript => Some(format!("(cd {directory} && npm install --silent)")),
        _ => None,
    }
}
