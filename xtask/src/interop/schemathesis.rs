//! `cargo xtask interop schemathesis`: the HTTP door against requests that its own description leads to.

use crate::host::Host;
use crate::shell::{Failure, Result, Trying as _, program};
use std::path::Path;

/// What a tool's input must be depends on the tool, which no OpenAPI document can say: an input that does not fit is
/// refused though the document allows it. Every other check counts.
pub fn run(kept: &Path) -> Result<()> {
    let host = Host::start(kept)?;
    let venv = kept.join("schemathesis");
    let st = venv.join("bin/st");
    if !st.exists() {
        program("python3", [Path::new("-m"), Path::new("venv"), &venv]).run("making a Python environment")?;
        program(venv.join("bin/pip"), ["install", "--quiet", "schemathesis"]).run("installing schemathesis")?;
    }
    let description = format!("{}/openapi.json", host.url);
    let token = format!("Authorization: Bearer {}", host.token);
    let checks = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"];
    let words = [&["run", &description, "--header", &token, "--max-examples", "100"], &checks[..]].concat();
    let mut command = program(st, words).into_command();
    let status = command.current_dir(kept).status().trying("schemathesis cannot be started")?;
    if status.success() { Ok(()) } else { Err(Failure(format!("schemathesis found something ({status})"))) }
}
