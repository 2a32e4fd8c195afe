//! `[vault]`: where secrets are, and what opens them. No key, passphrase or value is ever written here.

use super::ConfigError;
use palyra_engine::vault::{BackendChoice, BackendKind, KeyCommand, VaultSettings};
use palyra_protocol::Custody;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The section as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawVault {
    backend: RawBackend,
    key_file: Option<PathBuf>,
    passphrase_file: Option<PathBuf>,
    keyring: bool,
    commands: BTreeMap<String, RawCommand>,
}

/// Where a new vault keeps its secrets. A vault that is there keeps what it was made with: `palyra vault migrate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawBackend {
    #[default]
    Files,
    Detect,
    SecretService,
    Keychain,
    CredentialManager,
}

/// A command that wraps a key: for key services and hardware.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCommand {
    argv: Vec<String>,
    #[serde(default)]
    environment: Vec<String>,
}

impl RawVault {
    pub(super) fn validate(self, state_dir: &Path, custody: &dyn Custody) -> Result<VaultSettings, ConfigError> {
        let absolute = |key: &'static str, path: Option<PathBuf>| match path {
            Some(path) if !path.is_absolute() => Err(ConfigError::value(key, "write an absolute path")),
            Some(path) => {
                custody.vouch(&path).map_err(|source| ConfigError::InReach { what: "a key of the vault", source })?;
                Ok(Some(path))
            }
            None => Ok(None),
        };
        let key_file = absolute("vault.key_file", self.key_file)?;
        let passphrase_file = absolute("vault.passphrase_file", self.passphrase_file)?;
        let commands = self.commands.into_iter().map(|(name, command)| command.validate(&name, custody));
        Ok(VaultSettings {
            directory: Some(state_dir.join("vault")),
            key_file: key_file.unwrap_or_else(|| state_dir.join("vault.key")),
            backend: self.backend.into(),
            keyring: self.keyring,
            passphrase_file,
            commands: commands.collect::<Result<_, _>>()?,
        })
    }
}

impl RawCommand {
    fn validate(self, name: &str, custody: &dyn Custody) -> Result<KeyCommand, ConfigError> {
        let (program, arguments) = match self.argv.split_first() {
            Some((program, arguments)) if program.starts_with('/') => (PathBuf::from(program), arguments.to_vec()),
            _ => return Err(ConfigError::value("vault.commands", "`argv` begins with a program's absolute path")),
        };
        custody.vouch(&program).map_err(|source| ConfigError::InReach { what: "a key command", source })?;
        Ok(KeyCommand::new(name, program, arguments).with_environment(self.environment))
    }
}

impl From<RawBackend> for BackendChoice {
    fn from(raw: RawBackend) -> Self {
        match raw {
            RawBackend::Files => Self::Default,
            RawBackend::Detect => Self::Detect,
            RawBackend::SecretService => Self::Explicit(BackendKind::SecretService),
            RawBackend::Keychain => Self::Explicit(BackendKind::Keychain),
            RawBackend::CredentialManager => Self::Explicit(BackendKind::CredentialManager),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::RawConfig;

    #[test]
    fn the_section_is_checked() {
        let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let validated = |text: &str| {
            let raw: RawConfig = toml::from_str(text).unwrap();
            raw.validate(Some(workspace.path().to_owned()), state.path()).map(|config| config.vault)
        };
        let settings = validated("").unwrap();
        assert_eq!(settings.directory.as_deref(), Some(state.path().join("vault").as_path()));
        assert_eq!(settings.key_file, state.path().join("vault.key"));
        let reach = workspace.path().join("key");
        for (text, said) in [
            ("[vault]\nkey_file = \"key\"".to_owned(), "absolute"),
            (format!("[vault]\nkey_file = {reach:?}"), "a key of the vault"),
            (format!("[vault]\npassphrase_file = {reach:?}"), "a key of the vault"),
            ("[vault.commands.kms]\nargv = [\"kms\"]".to_owned(), "absolute path"),
            ("[vault.commands.kms]\nargv = []".to_owned(), "absolute path"),
            (format!("[vault.commands.kms]\nargv = [{reach:?}]"), "a key command"),
        ] {
            let refused = validated(&text).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains(said), "{text}: {refused}");
        }
        assert!(toml::from_str::<RawConfig>("[vault]\npassphrase = \"x\"").is_err(), "no key is written here");
    }
}
