//! `palyra vault`: what can be typed. No argument takes a value: values come from standard input, a file or a prompt.

use super::duration;
use clap::{Args, Subcommand, ValueEnum};
use palyra_protocol::{BindingId, SecretRef, SecretRefError, VaultScope};
use std::path::PathBuf;
use std::time::Duration;

fn reference(text: &str) -> Result<SecretRef, SecretRefError> {
    SecretRef::from_operator(text)
}

#[derive(Debug, Subcommand)]
#[command(after_help = "A secret is named SCOPE/NAME, in calls `vault://SCOPE/NAME`. Scopes:
  global                every caller that policy permits
  principal:agent:demo  calls of one principal
  channel:mcp           calls that came through one door
  skill:acme.weather    calls of one skill

Example, a token that agents use and never see:
  palyra vault put global/github
  palyra vault bind global/github --host api.example.com --header 'Authorization: Bearer {}'
  palyra call palyra.process.run --input '{\"argv\":[\"curl\",\"-s\",\"https://api.example.com/user\"],
    \"secrets\":[{\"ref\":\"vault://global/github\",\"as\":\"proxy\"}]}'
  palyra vault blame global/github")]
pub enum Vault {
    /// Put a secret in; the value comes from a prompt, standard input or a file
    Put(Put),
    /// Print a secret's value; on a terminal only after you have confirmed
    Get(Get),
    /// List secrets, without their values
    List {
        /// Only those of one scope, like `global` or `principal:agent:demo`
        #[arg(long, value_name = "SCOPE")]
        scope: Option<VaultScope>,
    },
    /// Delete a secret with all its versions and bindings
    Delete {
        /// The secret, like `global/github`
        #[arg(value_name = "SCOPE/NAME", value_parser = reference)]
        secret: SecretRef,
    },
    /// Show a secret's versions, or end the grace of one
    Versions {
        /// The secret, like `global/github`
        #[arg(value_name = "SCOPE/NAME", value_parser = reference)]
        secret: SecretRef,
        /// End the grace of this old version now
        #[arg(long, value_name = "VERSION")]
        end: Option<u64>,
    },
    /// Replace a secret's value; the old one stays readable by its version for a while
    Rotate(Rotate),
    /// Give the vault another key-encryption key; goes on where it was interrupted
    Rekey(Passphrase),
    /// See, add and remove what opens the vault
    Slots {
        #[command(subcommand)]
        command: Option<Slots>,
    },
    /// Say which requests a secret is attached to, by the daemon's proxy
    Bind(Bind),
    /// Remove a binding
    Unbind {
        /// The binding, from `palyra vault bindings`
        binding: BindingId,
    },
    /// List the bindings
    Bindings,
    /// Show what the vault is, and what its key slots protect from
    Status,
    /// Open the vault with a passphrase, until the daemon ends
    Unlock(Passphrase),
    /// Move all secrets to another backend; at no moment is one in neither
    Migrate {
        /// Where to
        #[arg(value_enum)]
        to: Backend,
    },
    /// Write all secrets to a file that a passphrase seals
    Export {
        /// The file to write; it must not be there
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        #[command(flatten)]
        passphrase: Passphrase,
    },
    /// Read secrets from a file that `export` wrote
    Import {
        /// The file
        file: PathBuf,
        /// What becomes of secrets that are there already
        #[arg(long, value_enum, default_value_t = Conflict::Refuse)]
        conflict: Conflict,
        #[command(flatten)]
        passphrase: Passphrase,
    },
    /// Show every use of a secret: call, program, endpoint, decision
    Blame {
        /// The secret, like `global/github`
        #[arg(value_name = "SCOPE/NAME", value_parser = reference)]
        secret: SecretRef,
    },
}

/// Where a value comes from.
#[derive(Debug, Args)]
pub struct Source {
    /// Read the value from this file, as it is [default: a prompt on a terminal, standard input otherwise]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Keep the line end after a value from standard input
    #[arg(long, conflicts_with = "file")]
    pub raw: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra vault put global/github                     # asks, without showing what you type
  pass show github | palyra vault put global/github
  palyra vault put global/deploy-key --file ~/.ssh/deploy_ed25519")]
pub struct Put {
    /// The secret, like `global/github`
    #[arg(value_name = "SCOPE/NAME", value_parser = reference)]
    pub secret: SecretRef,
    #[command(flatten)]
    pub source: Source,
    /// Refuse to replace a secret that is there
    #[arg(long)]
    pub new: bool,
}

#[derive(Debug, Args)]
pub struct Rotate {
    /// The secret, like `global/github`; it must be there
    #[arg(value_name = "SCOPE/NAME", value_parser = reference)]
    pub secret: SecretRef,
    #[command(flatten)]
    pub source: Source,
    /// How long the old value stays readable by its version, like `10m`, `1h`, `2d`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub grace: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct Get {
    /// The secret, like `global/github`
    #[arg(value_name = "SCOPE/NAME", value_parser = reference)]
    pub secret: SecretRef,
    /// An older version, while its grace lasts
    #[arg(long, value_name = "VERSION")]
    pub version: Option<u64>,
}

/// Where a passphrase comes from.
#[derive(Debug, Args)]
pub struct Passphrase {
    /// Read the passphrase from this file [default: a prompt on a terminal, standard input otherwise]
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Slots {
    /// List the key slots
    List,
    /// Add a key slot; any slot opens the vault
    Add {
        /// What opens it
        #[arg(value_enum)]
        kind: Slot,
        /// Of a key file: its absolute path. Of a command: its name in `[vault.commands]`
        #[arg(required_if_eq_any([("kind", "key-file"), ("kind", "command")]))]
        name: Option<String>,
        /// What to call it
        #[arg(long, value_name = "TEXT", default_value = "")]
        label: String,
        #[command(flatten)]
        passphrase: Passphrase,
    },
    /// Remove a key slot; the last one stays
    Remove {
        /// Its number, from `palyra vault slots`
        slot: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Slot {
    /// A file that only you may read
    KeyFile,
    /// A passphrase: the vault waits for `palyra vault unlock`
    Passphrase,
    /// The system's keyring
    Keyring,
    /// A command of the configuration, for key services and hardware
    Command,
}

impl Slot {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyFile => "key_file",
            Self::Passphrase => "passphrase",
            Self::Keyring => "keyring",
            Self::Command => "command",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Encrypted files in the state directory
    Files,
    /// The Secret Service of a Linux desktop
    SecretService,
    /// The Keychain of macOS
    Keychain,
    /// The Credential Manager of Windows
    CredentialManager,
}

impl Backend {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::SecretService => "secret_service",
            Self::Keychain => "keychain",
            Self::CredentialManager => "credential_manager",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Conflict {
    /// Nothing is imported
    Refuse,
    /// They stay as they are
    Skip,
    /// The imported value becomes their new version
    Replace,
}

impl Conflict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Skip => "skip",
            Self::Replace => "replace",
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "`{}` in the header stands for the value; `{basic:USER}` for USER and the value as Basic credentials.

Examples:
  palyra vault bind global/github --host api.example.com --header 'Authorization: Bearer {}'
  palyra vault bind global/git --host git.example.com --header 'Authorization: Basic {basic:me}' --program git
  palyra vault bind global/api --host api.example.com --header 'X-Key: {}' --method GET,POST --path '/repos/*'"
)]
pub struct Bind {
    /// The secret, like `global/github`; it may be put in later
    #[arg(value_name = "SCOPE/NAME", value_parser = reference)]
    pub secret: SecretRef,
    /// The host it goes to, over TLS; `host:port`; `http://host:port` for plain HTTP
    #[arg(long = "host", value_name = "HOST", required = true)]
    pub hosts: Vec<String>,
    /// The header it goes in
    #[arg(long, value_name = "TEMPLATE")]
    pub header: String,
    /// Only requests of this program, by the content of its file
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
    /// Only these methods
    #[arg(long = "method", value_name = "METHOD", value_delimiter = ',')]
    pub methods: Vec<String>,
    /// Only this path, or everything below it: `/repos/*`
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
}
