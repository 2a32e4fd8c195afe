//! `cargo xtask interop`: the HTTP door against programs that others wrote.
//!
//! Their packages are installed below `target/interop`, by the package managers' own means, and stay there for the next time.

use crate::shell::{Failure, Result, Trying as _, cargo, on_path, program, root};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Whom the door is tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interop {
    Schemathesis,
    Browser,
}

impl Interop {
    pub const ALL: [Self; 2] = [Self::Schemathesis, Self::Browser];

    pub fn name(self) -> &'static str {
        match self {
            Self::Schemathesis => "schemathesis",
            Self::Browser => "browser",
        }
    }
}

/// Runs one, or all.
pub fn run(which: Option<Interop>) -> Result<()> {
    cargo(["build", "--locked", "--package", "palyra-daemon", "--package", "palyra-cli"]).run("the build")?;
    let kept = root().join("target/interop");
    std::fs::create_dir_all(&kept).trying("making target/interop")?;
    for interop in Interop::ALL.into_iter().filter(|known| which.is_none_or(|which| which == *known)) {
        println!("\n=== {} ===", interop.name());
        let host = Host::start(&kept)?;
        match interop {
            Interop::Schemathesis => schemathesis(&kept, &host)?,
            Interop::Browser => browser(&kept, &host)?,
        }
    }
    Ok(())
}

/// What a tool's input must be depends on the tool, which no OpenAPI document can say: an input that does not fit is
/// refused though the document allows it. Every other check counts.
fn schemathesis(kept: &Path, host: &Host) -> Result<()> {
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

fn browser(kept: &Path, host: &Host) -> Result<()> {
    if !on_path("chromium") || !on_path("npm") {
        return Err(Failure("this needs Chromium and npm: apt-get install chromium npm".to_owned()));
    }
    let package = kept.join("node_modules/playwright-core");
    if !package.exists() {
        program("npm", ["install", "--silent", "--no-save", "--prefix", &kept.to_string_lossy(), "playwright-core"])
            .run("installing playwright-core")?;
    }
    let script = root().join("xtask/browser/foreign_page.mjs");
    let words = [script.as_os_str(), package.as_os_str(), "/usr/bin/chromium".as_ref(), host.url.as_ref()];
    let mut words: Vec<_> = words.into_iter().collect();
    words.push(host.token.as_ref());
    program("node", words).run("the browser test")
}

/// A daemon of its own, which dies with it.
struct Host {
    daemon: Child,
    dir: PathBuf,
    url: String,
    token: String,
}

impl Host {
    fn start(kept: &Path) -> Result<Self> {
        let dir = kept.join(format!("host-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("workspace")).trying("making a workspace")?;
        let state = dir.join("state");
        let programs = root().join("target/debug");
        let mut daemon = Command::new(programs.join("palyrad"))
            .env("PALYRA_HTTP_PORT", "0")
            .env("PALYRA_LOG", "error")
            .arg("--state-dir")
            .arg(&state)
            .arg("--workspace")
            .arg(dir.join("workspace"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .trying("palyrad cannot be started")?;
        let mut word = String::new();
        if let Some(stdout) = daemon.stdout.take() {
            BufReader::new(stdout).read_line(&mut word).trying("palyrad said nothing")?;
        }
        let mut host = Self { daemon, dir, url: String::new(), token: String::new() };
        if !word.starts_with("ready ") {
            return Err(Failure("palyrad did not start".to_owned()));
        }
        host.url = std::fs::read_to_string(state.join("http.url")).trying("the door's address")?.trim().to_owned();
        let scopes = "tool.list,tool.execute,call.read,call.cancel,approval.list,approval.decide";
        let words = ["--output", "json", "access", "token", "create", "user:local", "--role", "owner"];
        let mut make = program(programs.join("palyra"), words).into_command();
        let made = make.args(["--rate", "100000", "--scope", scopes]).env("PALYRA_STATE_DIR", &state).output();
        let made: Value = serde_json::from_slice(&made.trying("making a token")?.stdout).trying("making a token")?;
        host.token = made["token"].as_str().unwrap_or_default().to_owned();
        Ok(host)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
