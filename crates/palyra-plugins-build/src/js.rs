//! JavaScript: `componentize-js` puts an engine and the project into one component.
//!
//! Its command line does not work everywhere, so its function is called from a script. Like Python's, it imports
//! everything that its world names; and it brings parts of WASI only where the source uses what needs them.

use crate::command::{on_path, run};
use crate::error::BuildError;
use crate::project::{Toolchains, read_bytes, read_text, write_text};
use crate::templates::{JS_BUILD, JS_SDK};
use crate::world::{INTERFACES, world_text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "node_modules/@bytecodealliance/componentize-js/src/componentize.js";

const HELPER: &str = "palyra-skill.js";

/// Builds the component.
pub(crate) fn build(project: &Path, work: &Path, toolchains: &Toolchains) -> Result<Vec<u8>, BuildError> {
    let node =
        on_path("node").ok_or(BuildError::MissingTool { tool: "Node.js", fix: "install Node.js 20 or newer" })?;
    let places = [Some(project), toolchains.node_directory.as_deref()];
    let package = places.into_iter().flatten().map(|place| place.join(PACKAGE)).find(|package| package.is_file());
    let package = package.ok_or(BuildError::MissingTool {
        tool: "componentize-js",
        fix: "run `npm install` in the project, or `npm install @bytecodealliance/componentize-js@0.23`",
    })?;
    let sources = staged(project, work)?;
    let texts = sources.iter().map(|path| read_text(path)).collect::<Result<Vec<_>, _>>()?.join("\n");
    let wit = work.join("skill.wit");
    write_text(&wit, &world_text(&used(&texts)))?;
    let (script, component) = (work.join("build.mjs"), work.join("skill.wasm"));
    write_text(&script, JS_BUILD)?;
    let mut command = Command::new(node);
    command.arg(&script).arg(package).arg(work.join("source/skill.js")).arg(&wit).arg(unused_features(&texts));
    run("componentize-js", command.arg(&component))?;
    read_bytes(&component)
}

/// Copies the sources, and the helper if the project has no copy of it.
fn staged(project: &Path, work: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Io { action: "copy", path, source }
    };
    let directory = work.join("source");
    std::fs::create_dir_all(&directory).map_err(failed(&directory))?;
    write_text(&directory.join(HELPER), JS_SDK)?;
    let mut staged = Vec::new();
    for entry in std::fs::read_dir(project).map_err(failed(project))? {
        let path = entry.map_err(failed(project))?.path();
        if path.extension().is_some_and(|extension| extension == "js")
            && let Some(name) = path.file_name()
        {
            std::fs::copy(&path, directory.join(name)).map_err(failed(&path))?;
            // A copy of the helper speaks of every interface and uses none.
            if name != HELPER {
                staged.push(directory.join(name));
            }
        }
    }
    Ok(staged)
}

/// The interfaces that sources import by their full names.
fn used(sources: &str) -> BTreeSet<&'static str> {
    let names = |interface: &&str| sources.contains(&format!("palyra:skill/{interface}@"));
    INTERFACES.into_iter().filter(names).collect()
}

/// The parts of WASI that the engine can do without.
fn unused_features(sources: &str) -> String {
    let uses = |words: &[&str]| words.iter().any(|word| sources.contains(word));
    let fetches = uses(&["fetch("]);
    let features = [
        ("http", fetches),
        ("fetch-event", fetches),
        ("stdio", uses(&["console."])),
        ("random", uses(&["Math.random", "crypto."])),
        ("clocks", fetches || uses(&["Date", "setTimeout", "setInterval", "performance."])),
    ];
    let unused: Vec<&str> = features.iter().filter(|(_, used)| !used).map(|(name, _)| *name).collect();
    unused.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::{Language, NewSkill, Project};

    #[test]
    fn a_copy_of_the_helper_uses_no_interface() {
        let place = tempfile::tempdir().unwrap();
        let (project, work) = (place.path().join("project"), place.path().join("work"));
        let skill = NewSkill { name: "new", publisher: "acme", palyra_version: "0.1.0" };
        Project::create(&project, &skill, Language::JavaScript).unwrap();
        let sources = staged(&project, &work).unwrap();
        assert_eq!(sources, [work.join("source/skill.js")]);
        assert!(work.join("source").join(HELPER).is_file());
        assert_eq!(used(&read_text(&sources[0]).unwrap()), BTreeSet::new());
    }

    #[test]
    fn features_follow_the_sources() {
        assert_eq!(unused_features("let x = 1"), "http,fetch-event,stdio,random,clocks");
        assert_eq!(unused_features("await fetch(url)"), "stdio,random");
        let source = "import { send } from 'palyra:skill/http@1.0.0';";
        assert_eq!(used(source), BTreeSet::from(["http"]));
    }
}
