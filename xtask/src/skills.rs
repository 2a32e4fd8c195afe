//! `cargo xtask skills`: the examples of every language, as components below `target/skills`.
//!
//! Compilers for Python and JavaScript come from their package registries into a cache; those for Rust and C from the
//! system. What is newer than its sources is not built again, so that `test` can always begin with it.

use crate::setup;
use crate::shell::{Built, Result, Trying as _, program, programs, root};
use std::ffi::OsString;
use std::path::Path;

const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";
const COMPONENTIZE_JS: &str = "@bytecodealliance/componentize-js@0.23.0";

/// Builds what has changed.
pub fn run(built: Built) -> Result<()> {
    setup::skills()?;
    let output = root().join("target/skills");
    let tools = output.join("tools");
    std::fs::create_dir_all(&tools).trying("making a place for compilers")?;
    install(&tools)?;
    let builder = programs(built, &["palyra-plugins-build"])?.join("palyra-plugins-build");
    let mut words: Vec<OsString> = vec![root().join("examples/skills").into()];
    words.extend([output.into(), "--python".into(), tools.join("python").into(), "--node".into(), tools.into()]);
    program(builder, words).run("building the skills")
}

/// Compilers that no package of the system brings. Another version is installed over the one before.
fn install(tools: &Path) -> Result<()> {
    let python = tools.join("python");
    once(&tools.join("python.installed"), COMPONENTIZE_PY, || {
        program("python3", [OsString::from("-m"), "venv".into(), python.clone().into()])
            .run("making an environment for Python")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", COMPONENTIZE_PY];
        program(python.join("bin/python"), pip).run("installing componentize-py")
    })?;
    once(&tools.join("node.installed"), COMPONENTIZE_JS, || {
        let mut words: Vec<OsString> = ["install", "--no-fund", "--no-audit", "--prefix"].map(Into::into).into();
        words.extend([tools.into(), COMPONENTIZE_JS.into()]);
        program("npm", words).run("installing componentize-js")
    })
}

/// Does something unless it was done for this version.
fn once(mark: &Path, version: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    if std::fs::read_to_string(mark).is_ok_and(|done| done == version) {
        return Ok(());
    }
    work()?;
    std::fs::write(mark, version).trying("remembering what is installed")
}
