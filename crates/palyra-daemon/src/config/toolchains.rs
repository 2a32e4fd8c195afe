//! `toolchains` and `[git]`: what processes find in their home directory.

use super::error::ConfigError;
use palyra_sandbox::{GitIdentity, RunHome, SandboxTier, Whereabouts, home_with, toolchain_names};
use serde::Deserialize;
use std::path::PathBuf;

/// The longest name or address of a person.
const MOST_CHARACTERS: usize = 256;

/// Who commits, as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawGit {
    name: Option<String>,
    email: Option<String>,
}

impl RawGit {
    pub(super) fn validate(self) -> Result<Option<GitIdentity>, ConfigError> {
        let (Some(name), Some(email)) = (&self.name, &self.email) else {
            return match (self.name, self.email) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(ConfigError::value("git.email", "is missing: git commits with both or neither")),
                (None, _) => Err(ConfigError::value("git.name", "is missing: git commits with both or neither")),
            };
        };
        for (key, value) in [("git.name", name), ("git.email", email)] {
            let length = value.chars().count();
            if length == 0 || length > MOST_CHARACTERS || value.chars().any(char::is_control) {
                let message = format!("must be one line of 1 to {MOST_CHARACTERS} characters");
                return Err(ConfigError::value(key, message));
            }
        }
        Ok(Some(GitIdentity { name: name.clone(), email: email.clone() }))
    }
}

/// The home directory of runs with these toolchains, beside the directories that they may write.
pub(super) fn validate(names: &[String], tier: SandboxTier, writable: &[PathBuf]) -> Result<RunHome, ConfigError> {
    let key = "process_runner.toolchains";
    let known = toolchain_names();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let message = format!("there is no toolchain `{unknown}`; known are {}", known.join(", "));
        return Err(ConfigError::value(key, message));
    }
    if names.is_empty() {
        return Ok(RunHome::default());
    }
    if tier == SandboxTier::B {
        let message =
            "are shown to processes of tier c alone, which have a home directory of their own; set `tier = \"c\"`";
        return Err(ConfigError::value(key, message));
    }
    let Some(home) = std::env::home_dir().filter(|home| home.is_absolute()) else {
        return Err(ConfigError::value(key, "lie in a home directory, and this user has none; set HOME"));
    };
    let real: Vec<PathBuf> = writable.iter().filter_map(|root| root.canonicalize().ok()).collect();
    Ok(home_with(names, Whereabouts { home: &home, variable: |name| std::env::var(name).ok() }, &real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_values_are_refused() {
        let refused = |names: &[&str], tier| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            validate(&names, tier, &[]).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused(&["cobol"], SandboxTier::C).contains("no toolchain `cobol`; known are"));
        assert!(refused(&["rust"], SandboxTier::B).contains("tier c alone"));
        assert_eq!(refused(&["rust"], SandboxTier::C), "");
        let git = |name: &str, email: Option<&str>| {
            let raw = RawGit { name: Some(name.to_owned()), email: email.map(str::to_owned) };
            raw.validate().err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(git("Ada", None).contains("both or neither"));
        assert!(git("Ada\nx", Some("a@b")).contains("one line"));
        assert_eq!(git("Ada", Some("a@b")), "");
    }
}
