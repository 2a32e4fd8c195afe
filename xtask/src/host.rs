//! A daemon for programs that others wrote to try, with its HTTP door on a free port.

use crate::shell::{Failure, Result, Trying as _, program, root};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A daemon of its own, which dies with it.
#[derive(Debug)]
pub struct Host {
    daemon: Child,
    dir: PathBuf,
    /// The address of its HTTP door.
    pub url: String,
    /// A token of its owner.
    pub token: String,
}

impl Host {
    /// Starts one, with what it keeps in a directory of its own below `kept`.
    pub fn start(kept: &Path) -> Result<Self> {
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
