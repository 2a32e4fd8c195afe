//! `palyrad sandbox`: what this host can enforce, what a command would get, and trying it. No daemon, no journal.
//!
//! `palyra sandbox` becomes this. Everything that is said about a command is safe to show on a terminal.

mod detect;
mod explain;
mod policy;
mod run;
mod streams;

use crate::printing::{say, tell};
use crate::serve::{DaemonError, Setup};
use palyra_api::command_line::{Format, REFUSED, Sandbox, SandboxCommand};
use palyra_protocol::display::safe;
use palyra_sandbox::SandboxError;
use serde::Serialize;
use std::process::ExitCode;

/// Does what was asked. Every refusal is told on standard error and ends with the same code.
pub fn command(setup: &Setup, sandbox: Sandbox) -> ExitCode {
    let format = sandbox.output;
    let done = match sandbox.command {
        SandboxCommand::Detect(detect) => detect::detect(setup, &detect, format),
        SandboxCommand::Explain(explain) => explain::explain(setup, &explain, format),
        SandboxCommand::Run(run) => run::run(setup, run, format),
    };
    done.unwrap_or_else(|refused| {
        refused.tell(format);
        ExitCode::from(REFUSED)
    })
}

/// Why nothing was done.
#[derive(Debug, Serialize)]
struct Refused {
    code: &'static str,
    message: String,
    hint: Option<String>,
}

impl Refused {
    fn new(code: &'static str, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self { code, message: message.into(), hint: hint.map(str::to_owned) }
    }

    fn io(what: &str, error: &std::io::Error) -> Self {
        Self::new("io", format!("{what}: {error}"), None)
    }

    fn tell(&self, format: Format) {
        if format == Format::Json {
            return tell(&serde_json::json!({ "error": self }).to_string());
        }
        tell(&format!("palyra: {}", safe(&self.message)));
        if let Some(hint) = &self.hint {
            tell(&format!("\nhint: {}", safe(hint)));
        }
        tell(&format!("code: {}", self.code));
    }
}

impl From<DaemonError> for Refused {
    fn from(error: DaemonError) -> Self {
        Self::new(error.code(), error.to_string(), error.hint())
    }
}

impl From<SandboxError> for Refused {
    fn from(error: SandboxError) -> Self {
        let hint = match &error {
            SandboxError::InterpreterDenied { name, .. } => Some(format!("allow it: `--allow-interpreter {name}`")),
            SandboxError::ExecutableNotVisible { .. } => Some("show it its directory: `--read DIR`".to_owned()),
            SandboxError::ArgumentOutside { .. } => {
                Some("stay within the workspace, or give a further directory: `--read DIR`, `--write DIR`".to_owned())
            }
            SandboxError::EgressNeedsTierC => {
                Some("use `--tier c`, or share the host's network: `--egress none`, `--egress preflight`".to_owned())
            }
            error => error.hint(),
        };
        Self { code: error.code(), message: with_causes(&error), hint }
    }
}

/// An error and what it came from, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    message
}

fn say_json<T: Serialize>(value: &T) -> Result<(), Refused> {
    let text = serde_json::to_string(value).map_err(|e| Refused::new("internal", e.to_string(), None))?;
    say(&text);
    Ok(())
}
