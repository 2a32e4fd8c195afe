//! Agent Skills folders (`SKILL.md` and scripts), imported as artifacts.
//!
//! Such a folder has neither a signature nor a word about what it needs. Importing it pins every file of it: the result
//! is an artifact of kind `instructions`, signed by whoever imports it, whose scripts are tools with the same rules as
//! any other. Its manifest asks for nothing but what the importer says.

mod front_matter;

use crate::archive::Entry;
use crate::constants::{
    FORMAT, INSTRUCTIONS_ENTRY, INSTRUCTIONS_TOOL, MANIFEST_ENTRY, MAX_INSTRUCTIONS_FILES, MAX_TOOLS, PROTOCOL_MAJOR,
    PROVENANCE_ENTRY, SBOM_ENTRY, SCRIPTS_FOLDER, SIGNATURE_ENTRY,
};
use crate::ids::{PublisherId, SkillId, SkillVersion, ToolId};
use crate::package::{FolderReader, PackageSource, SourceError};
use crate::sbom::{LockError, LockFile, LockKind};
use crate::text::Position;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// The longest description that the format of such folders allows, in characters.
const MAX_DESCRIPTION: usize = 1024;

/// What an imported script may use: interpreters of large languages do not start with less.
const SCRIPT_MEMORY_BYTES: u64 = 512 << 20;
const SCRIPT_WALL_CLOCK_MS: u64 = 120_000;

/// Why a folder cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum InstructionsError {
    /// The folder cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A lock file cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no `SKILL.md`.
    #[error("the folder has no `SKILL.md`")]
    Missing,
    /// `SKILL.md` is not text.
    #[error("`SKILL.md` is not UTF-8 text")]
    NotText,
    /// `SKILL.md` does not begin with a head.
    #[error("`SKILL.md` does not begin with a head between two lines of `---`")]
    NoHead,
    /// The head cannot be read.
    #[error("`SKILL.md`, {position}: {reason}")]
    Head {
        /// Where.
        position: Position,
        /// Why.
        reason: String,
    },
    /// The head lacks a key, or the key has no usable value.
    #[error("the head of `SKILL.md` has no usable `{key}`: {wanted}")]
    Key {
        /// The key.
        key: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A file that an artifact has for itself.
    #[error("the folder has a file `{entry}`, which is the artifact's own; take it out")]
    Reserved {
        /// The file.
        entry: String,
    },
    /// More files than a run can be given.
    #[error("the folder has more than {MAX_INSTRUCTIONS_FILES} files")]
    TooManyFiles,
    /// More scripts than a skill may have tools.
    #[error("the folder has more than {MAX_TOOLS} scripts")]
    TooManyScripts,
}

impl InstructionsError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Source(e) => e.code(),
            Self::Lock(e) => e.code(),
            Self::Missing => "instructions_missing",
            Self::NotText => "instructions_not_text",
            Self::NoHead => "instructions_no_head",
            Self::Head { .. } => "instructions_head",
            Self::Key { .. } => "instructions_key",
            Self::Reserved { .. } => "instructions_reserved",
            Self::TooManyFiles => "instructions_too_many_files",
            Self::TooManyScripts => "instructions_too_many_scripts",
        }
    }
}

/// Under which name a folder is imported, and what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRequest {
    /// Who imports it, and signs.
    pub publisher: PublisherId,
    /// The version; such folders have none of their own.
    pub version: SkillVersion,
    /// Directories of the workspace that its scripts may read.
    pub read_roots: Vec<String>,
    /// Directories of the workspace that its scripts may write.
    pub write_roots: Vec<String>,
    /// Hosts that its scripts may reach.
    pub egress: Vec<String>,
    /// The oldest Palyra that it runs on.
    pub min_palyra_version: semver::Version,
}

/// Reads a folder and writes a manifest for it. The result is built and signed like any package.
///
/// # Errors
/// The folder cannot be read, or its `SKILL.md` is none.
pub fn import_folder(folder: &Path, request: &ImportRequest) -> Result<PackageSource, InstructionsError> {
    let mut reader = FolderReader::new(folder);
    reader.add("")?;
    import_files(reader.entries, request)
}

/// The same from files in memory.
///
/// # Errors
/// There is no usable `SKILL.md` among them.
pub fn import_files(files: Vec<Entry>, request: &ImportRequest) -> Result<PackageSource, InstructionsError> {
    let own = [MANIFEST_ENTRY, SIGNATURE_ENTRY, SBOM_ENTRY, PROVENANCE_ENTRY];
    if let Some(file) = files.iter().find(|file| own.contains(&file.name.as_str())) {
        return Err(InstructionsError::Reserved { entry: file.name.clone() });
    }
    if files.len() > MAX_INSTRUCTIONS_FILES {
        return Err(InstructionsError::TooManyFiles);
    }
    let skill = files.iter().find(|file| file.name == INSTRUCTIONS_ENTRY).ok_or(InstructionsError::Missing)?;
    let text = std::str::from_utf8(&skill.content).map_err(|_| InstructionsError::NotText)?;
    let head = front_matter::front_matter(text)?;
    let name = head.get("name").map(|name| name.trim()).filter(|name| is_skill_name(name));
    let wanted = "1 to 64 lower-case letters, digits and `-`";
    let name = name.ok_or(InstructionsError::Key { key: "name", wanted })?;
    let description = head.get("description").map(|text| text.trim());
    let description = description.filter(|text| (1..=MAX_DESCRIPTION).contains(&text.chars().count()));
    let wanted = "1 to 1024 characters";
    let description = description.ok_or(InstructionsError::Key { key: "description", wanted })?;
    let manifest = manifest(name, description, &files, request)?;
    let mut locks = Vec::new();
    for kind in LockKind::ALL {
        let Some(file) = files.iter().find(|file| file.name == kind.file_name()) else { continue };
        match LockFile::parse(kind, &file.content) {
            // Such folders name what they need without pinning it; a list of wishes is no lock file.
            Err(LockError::NotPinned { .. }) => {}
            read => locks.push(read?),
        }
    }
    Ok(PackageSource { manifest: manifest.into_bytes(), files, locks, ..PackageSource::default() })
}

/// The names that the format of such folders allows.
fn is_skill_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.starts_with(|c: char| c.is_ascii_lowercase())
}

fn manifest(
    name: &str,
    description: &str,
    files: &[Entry],
    request: &ImportRequest,
) -> Result<String, InstructionsError> {
    let wanted = "a name that is not too long for a skill id";
    let skill_id: SkillId = format!("{}.{}", request.publisher, name.replace('-', "_"))
        .parse()
        .map_err(|_| InstructionsError::Key { key: "name", wanted })?;
    let tools = tools(name, description, files)?;
    let document = json!({
        "format": FORMAT,
        "kind": "instructions",
        "metadata": {
            "skill_id": skill_id,
            "version": request.version,
            "publisher": request.publisher,
            "name": name,
            "description": description,
        },
        "entrypoints": { "tools": tools },
        "capabilities": {
            "filesystem": { "read_roots": request.read_roots, "write_roots": request.write_roots },
            "http": { "egress": request.egress },
            "quotas": { "max_memory_bytes": SCRIPT_MEMORY_BYTES, "wall_clock_ms": SCRIPT_WALL_CLOCK_MS },
        },
        "compat": {
            "required_protocol_major": PROTOCOL_MAJOR,
            "min_palyra_version": request.min_palyra_version,
        },
    });
    // A value of texts, numbers, lists and tables always has a TOML form.
    Ok(toml::to_string_pretty(&document).unwrap_or_default())
}

/// One tool for each script that some program can read.
fn tools(name: &str, description: &str, files: &[Entry]) -> Result<Vec<Value>, InstructionsError> {
    let mut taken: BTreeSet<ToolId> = INSTRUCTIONS_TOOL.parse().into_iter().collect();
    let mut tools = Vec::new();
    for file in files.iter().filter(|file| file.name.starts_with(SCRIPTS_FOLDER)) {
        let Some(interpreter) = interpreter(file) else { continue };
        let Some(id) = tool_id(&file.name, &taken) else { continue };
        if tools.len() == MAX_TOOLS {
            return Err(InstructionsError::TooManyScripts);
        }
        tools.push(json!({
            "id": id,
            "description": format!("Runs `{}` of the skill `{name}`. {description}", file.name),
            "risk": "high",
            "script": file.name,
            "interpreter": interpreter,
            "input_schema": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "args": { "type": "array", "maxItems": 64, "items": { "type": "string", "maxLength": 4096 } },
                    "stdin": { "type": "string", "maxLength": 524_288 },
                },
            },
            "output_schema": {
                "type": "object",
                "required": ["exit_code", "stdout", "stderr"],
                "properties": {
                    "exit_code": { "type": "integer" },
                    "stdout": { "type": "string" },
                    "stderr": { "type": "string" },
                },
            },
        }));
        taken.insert(id);
    }
    Ok(tools)
}

/// The program that reads a script, by its first line or by its name; nothing for a file that is no script.
fn interpreter(file: &Entry) -> Option<Vec<String>> {
    let base = file.name.rsplit('/').next().unwrap_or_default();
    // Parts of a package, not programs.
    if base.starts_with(['_', '.']) {
        return None;
    }
    let first = file.content.split(|byte| *byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok());
    if let Some(line) = first.and_then(|line| line.strip_prefix("#!")) {
        let mut words = line.split_whitespace();
        let program = words.next()?.rsplit('/').next()?;
        let program = if program == "env" { words.find(|word| !word.starts_with('-'))? } else { program };
        return Some(vec![program.to_owned()]);
    }
    let program = match base.rsplit_once('.')?.1 {
        "py" => "python3",
        "sh" => "sh",
        "bash" => "bash",
        "js" | "mjs" | "cjs" => "node",
        "rb" => "ruby",
        "pl" => "perl",
        _ => return None,
    };
    Some(vec![program.to_owned()])
}

/// A tool id from a script's path: `scripts/fill-form.py` becomes `fill_form`; a second one of that name gets a number.
fn tool_id(path: &str, taken: &BTreeSet<ToolId>) -> Option<ToolId> {
    let short = path.strip_prefix(SCRIPTS_FOLDER).unwrap_or(path);
    let stem = short.rsplit_once('.').map_or(short, |(stem, _)| stem);
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let stem: String = stem.chars().map(word).collect();
    let stem = stem.trim_matches('_');
    let stem = if stem.starts_with(|c: char| c.is_ascii_lowercase()) { stem.to_owned() } else { format!("run_{stem}") };
    let stem: String = stem.chars().take(ToolId::MAX - 4).collect();
    let mut candidates = std::iter::once(stem.clone()).chain((2..=MAX_TOOLS).map(|n| format!("{stem}_{n}")));
    candidates.find_map(|id| id.parse().ok().filter(|id| !taken.contains(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Manifest, ToolCode};

    fn request() -> ImportRequest {
        ImportRequest {
            publisher: "acme".parse().unwrap(),
            version: "1.0.0".parse().unwrap(),
            read_roots: vec!["forms".to_owned()],
            write_roots: vec![],
            egress: vec![],
            min_palyra_version: semver::Version::new(0, 1, 0),
        }
    }

    fn files(extra: &[(&str, &str)]) -> Vec<Entry> {
        let skill = "---\nname: pdf-forms\ndescription: |\n  Fills \"forms\".\n---\nRead the form first.\n";
        let all = [("SKILL.md", skill)].into_iter().chain(extra.iter().copied());
        let mut files: Vec<_> = all.map(|(name, text)| Entry::new(name, text.as_bytes().to_vec())).collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    }

    #[test]
    fn scripts_become_tools() {
        let files = files(&[
            ("scripts/fill-form.py", "print(1)"),
            ("scripts/sub/fill_form.sh", "#!/usr/bin/env -S bash -e\n"),
            ("scripts/fill_form.sh", "#!/bin/bash\n"),
            ("scripts/_helper.py", ""),
            ("scripts/data.json", "{}"),
            ("reference.md", "more"),
        ]);
        let source = import_files(files, &request()).unwrap();
        let manifest = Manifest::parse(&source.manifest).unwrap();
        let shown: Vec<_> = manifest
            .tools
            .iter()
            .map(|tool| match &tool.code {
                ToolCode::Script { path, interpreter } => format!("{} {path} {}", tool.id, interpreter.join(" ")),
                ToolCode::Module(_) => String::new(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "fill_form scripts/fill-form.py python3",
                "fill_form_2 scripts/fill_form.sh bash",
                "sub_fill_form scripts/sub/fill_form.sh bash"
            ]
        );
        assert_eq!(manifest.metadata.skill_id.as_str(), "acme.pdf_forms");
        assert_eq!(manifest.capabilities.read_roots[0].as_str(), "forms");
    }

    #[test]
    fn folders_that_are_none_are_refused() {
        let code = |files| import_files(files, &request()).unwrap_err().code();
        assert_eq!(code(vec![]), "instructions_missing");
        assert_eq!(code(vec![Entry::new("SKILL.md", vec![0xff])]), "instructions_not_text");
        assert_eq!(code(files(&[("skill.toml", "")])), "instructions_reserved");
        let head = |text: &str| vec![Entry::new("SKILL.md", text.as_bytes().to_vec())];
        assert_eq!(code(head("---\nname: x\n---\n")), "instructions_key");
        assert_eq!(code(head("---\nname: ../x\ndescription: y\n---\n")), "instructions_key");
        assert_eq!(code(files(&[("package-lock.json", "{")])), "lock_malformed");
        let wishes = files(&[("requirements.txt", "unpinned")]);
        assert_eq!(import_files(wishes, &request()).unwrap().locks, []);
    }
}
