//! C: a module for WASI's first preview, with the bindings of `sdk/c`.

use crate::command::{on_path, run};
use crate::error::BuildError;
use crate::project::{read_bytes, write_text};
use crate::templates::C_SDK;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles every C file of the project and returns the module.
pub(crate) fn build(project: &Path, work: &Path) -> Result<Vec<u8>, BuildError> {
    let clang = on_path("clang").filter(|_| on_path("wasm-ld").is_some()).ok_or(BuildError::MissingTool {
        tool: "clang for WebAssembly",
        fix: "on Debian: `apt-get install clang lld wasi-libc libclang-rt-14-dev-wasm32`; elsewhere the WASI SDK",
    })?;
    // A project may bring its own copy of the bindings; otherwise it gets ours.
    for (name, text) in C_SDK {
        write_text(&work.join(name), text)?;
    }
    let mut sources = sources(project)?;
    let missing = |name: &&str| name.ends_with(".c") && !project.join(name).is_file();
    sources.extend(C_SDK.iter().map(|(name, _)| *name).filter(missing).map(|name| work.join(name)));
    let module = work.join("skill.core.wasm");
    let mut command = Command::new(clang);
    command.args(["--target=wasm32-wasi", "-O2", "-mexec-model=reactor", "-Wall"]);
    command.arg("-I").arg(project).arg("-I").arg(work).args(sources).arg("-o").arg(&module);
    run("clang", &mut command)?;
    read_bytes(&module)
}

fn sources(project: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |source| BuildError::Io { action: "read", path: project.to_owned(), source };
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(project).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}
