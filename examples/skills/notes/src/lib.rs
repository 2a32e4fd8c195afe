//! Keeps short notes in the private storage of the skill.

use palyra_plugins_sdk::{Tool, ToolError, skill, storage};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Add {
    title: String,
    text: String,
}

#[derive(Deserialize)]
struct Show {
    title: String,
}

#[derive(Deserialize)]
struct Nothing {}

#[derive(Serialize)]
struct Titles {
    titles: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    text: String,
}

fn key(title: &str) -> String {
    format!("note/{title}")
}

fn add(input: Add) -> Result<Titles, ToolError> {
    storage::write_json(&key(&input.title), &Note { text: input.text })?;
    list(Nothing {})
}

fn list(_: Nothing) -> Result<Titles, ToolError> {
    let keys = storage::keys("note/")?;
    Ok(Titles { titles: keys.iter().filter_map(|key| key.strip_prefix("note/")).map(str::to_owned).collect() })
}

fn show(input: Show) -> Result<Note, ToolError> {
    let note = storage::read_json(&key(&input.title))?;
    note.ok_or_else(|| ToolError::new("not_found", format!("there is no note `{}`", input.title)))
}

fn tools() -> Vec<Tool> {
    vec![
        Tool::new("add", "Keeps a note under a title.", add).input(
            r#"{"type":"object","properties":{"title":{"type":"string"},"text":{"type":"string"}},"required":["title","text"]}"#,
        ),
        Tool::new("list", "Lists the titles of all notes.", list).input(r#"{"type":"object"}"#),
        Tool::new("show", "Shows one note.", show)
            .input(r#"{"type":"object","properties":{"title":{"type":"string"}},"required":["title"]}"#),
    ]
}

skill!(tools);
