//! Python: `componentize-py` puts an interpreter and the project into one component.
//!
//! It imports everything that its world names, so the world is made from what the sources use.

use crate::command::{first_file, on_path, run};
use crate::error::BuildError;
use crate::project::{Toolchains, read_bytes, read_text, write_text};
use crate::templates::PYTHON_SDK;
use crate::world::{INTERFACES, world_text};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Builds the component.
pub(crate) fn build(project: &Path, work: &Path, toolchains: &Toolchains) -> Result<Vec<u8>, BuildError> {
    let in_environment = |environment: &Path| environment.join("bin/componentize-py");
    let own = in_environment(&project.join(".venv"));
    let given = toolchains.python_environment.as_deref().map(in_environment);
    let tool = first_file([Some(own.as_path()), given.as_deref()]).or_else(|| on_path("componentize-py"));
    let tool = tool.ok_or(BuildError::MissingTool {
        tool: "componentize-py",
        fix: "run `python3 -m venv .venv && .venv/bin/pip install componentize-py==0.25.1` in the project",
    })?;
    let (library, wit) = (work.join("library"), work.join("wit"));
    for directory in [&library, &wit] {
        std::fs::create_dir_all(directory).map_err(|source| BuildError::Io {
            action: "create",
            path: directory.clone(),
            source,
        })?;
    }
    let interfaces = used(&read_text(&project.join("app.py"))?);
    write_text(&wit.join("skill.wit"), &world_text(&interfaces))?;
    let component = work.join("skill.wasm");
    let mut command = Command::new(tool);
    command.arg("--quiet").arg("-d").arg(&wit).args(["-w", "built", "componentize", "app", "-p"]).arg(project);
    // A project may bring its own copy of the helper; otherwise it gets ours.
    if !project.join("palyra_skill.py").is_file() {
        write_text(&library.join("palyra_skill.py"), PYTHON_SDK)?;
        command.arg("-p").arg(&library);
    }
    // The world's imports are what the sources name; packages of the machine are not part of a skill.
    command.env_remove("VIRTUAL_ENV").env("PYTHONDONTWRITEBYTECODE", "1");
    run("componentize-py", command.arg("-o").arg(&component))?;
    read_bytes(&component)
}

/// The interfaces that a source imports: `from palyra_skill import http`, or the bindings themselves.
fn used(source: &str) -> BTreeSet<&'static str> {
    let imports: Vec<&str> = source.lines().map(str::trim).filter(|line| is_import(line)).collect();
    let names = |interface: &str| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        imports.iter().any(|line| line.split(|c| !is_word(c)).any(|word| word == interface))
    };
    INTERFACES.into_iter().filter(|interface| names(interface)).collect()
}

fn is_import(line: &str) -> bool {
    ["from palyra_skill import", "from wit_world.imports", "import wit_world.imports", "from wit_world import imports"]
        .iter()
        .any(|beginning| line.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_what_a_source_names() {
        let source =
            "import json, http\nfrom palyra_skill import tool, log\n  from wit_world.imports import storage\n# http\n";
        assert_eq!(used(source), BTreeSet::from(["log", "storage"]));
        assert_eq!(used("from wit_world.imports.secrets import read\n"), BTreeSet::from(["secrets"]));
    }
}
