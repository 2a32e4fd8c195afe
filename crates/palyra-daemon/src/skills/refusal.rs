//! Why a command about skills did not do what was asked, with the code, the hint and the exit code of `palyra`.

use crate::printing::tell;
use palyra_api::command_line::Format;
use palyra_plugins::PluginError;
use palyra_plugins_build::BuildError;
use palyra_protocol::display::{safe, safe_lines};
use palyra_skills::ManifestError;
use palyra_skills::package::{PackageError, SourceError, VerifyError};
use palyra_skills::signature::KeyError;
use serde::Serialize;
use std::error::Error;

pub(super) const FAILED: u8 = 1;
pub(super) const USAGE: u8 = 2;
pub(super) const INTERRUPTED: u8 = 5;
pub(super) const NOT_A_CALL: u8 = 6;
pub(super) const NOT_VERIFIED: u8 = 8;
pub(super) const REFUSED: u8 = 10;

/// The code of what compilers say about an author's own sources, in several lines.
const COMPILER: &str = "build_compiler";

/// Why nothing, or not all, was done.
#[derive(Debug, Serialize)]
pub(super) struct Refusal {
    #[serde(skip)]
    pub(super) exit: u8,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Refusal {
    pub(super) fn new(exit: u8, code: &'static str, message: impl Into<String>, hint: Option<String>) -> Self {
        Self { exit, code, message: message.into(), hint }
    }

    pub(super) fn refused(code: &'static str, message: impl Into<String>, hint: Option<String>) -> Self {
        Self::new(REFUSED, code, message, hint)
    }

    pub(super) fn usage(message: impl Into<String>, hint: &str) -> Self {
        Self::new(USAGE, "usage", message, Some(hint.to_owned()))
    }

    pub(super) fn io(what: &str, error: &std::io::Error) -> Self {
        Self::new(REFUSED, "io", format!("{what}: {error}"), None)
    }

    pub(super) fn bug(error: &dyn Error) -> Self {
        Self::new(FAILED, "internal", with_causes(error), None)
    }

    pub(super) fn interrupted() -> Self {
        Self::new(INTERRUPTED, "interrupted", "interrupted", None)
    }

    /// Tells it on standard error.
    pub(super) fn tell(&self, format: Format) {
        if format == Format::Json {
            return tell(&serde_json::json!({ "error": self }).to_string());
        }
        // A guest's words stay on one line, where they cannot pass for ours.
        let message = if self.code == COMPILER { safe_lines(&self.message) } else { safe(&self.message) };
        tell(&format!("error: {message}"));
        if let Some(hint) = &self.hint {
            tell(&format!("\nhint: {}", safe(hint)));
        }
        tell(&format!("code: {}", self.code));
    }
}

/// An error and what it came from, on one line.
fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    message
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        let exit = match error {
            BuildError::Compiler { .. } | BuildError::Component(_) => FAILED,
            _ => REFUSED,
        };
        let hint = match &error {
            BuildError::Exists(_) => Some("choose another name or `--directory`".to_owned()),
            error => error.hint().map(str::to_owned),
        };
        Self::new(exit, error.code(), with_causes(&error), hint)
    }
}

impl From<PackageError> for Refusal {
    fn from(error: PackageError) -> Self {
        let hint = match &error {
            PackageError::Layout(_) => Some("build the module first: `palyra skills build DIR`".to_owned()),
            PackageError::Source(SourceError::Missing { .. }) => {
                Some("a skill's directory has a `skill.toml`; begin with `palyra skills new`".to_owned())
            }
            PackageError::Lock(_) => {
                Some("the bill of materials is made from lock files: pin every package to one version".to_owned())
            }
            _ => None,
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

impl From<ManifestError> for Refusal {
    fn from(error: ManifestError) -> Self {
        let hint = "mend `skill.toml` there; `docs/formats/skill.md` lists every key".to_owned();
        Self::refused(error.code(), format!("skill.toml, {error}"), Some(hint))
    }
}

impl From<VerifyError> for Refusal {
    fn from(error: VerifyError) -> Self {
        let hint = match &error {
            VerifyError::Artifact(_) => "do not use this file; get it again from its publisher".to_owned(),
            VerifyError::Trust(refusal) => refusal.hint().to_owned(),
        };
        Self::new(NOT_VERIFIED, error.code(), error.to_string(), Some(hint))
    }
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        let hint = "make a key with `palyra skills package keygen --out FILE`".to_owned();
        Self::refused(error.code(), error.to_string(), Some(hint))
    }
}

impl From<PluginError> for Refusal {
    fn from(error: PluginError) -> Self {
        Self::new(FAILED, error.code(), with_causes(&error), error.hint())
    }
}
