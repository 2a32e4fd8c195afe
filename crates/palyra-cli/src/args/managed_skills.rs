//! What can be typed after `palyra skills` that needs the daemon.

use clap::{Args, Subcommand};
use palyra_protocol::CallId;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Manage {
    /// Install a signed skill: verify its key, audit it, compile it, and list its tools
    #[command(after_help = "Examples:
  palyra skills install acme.weather-1.2.0.palyra-skill
  palyra skills install acme.weather-1.2.0.palyra-skill --allow-tofu
  palyra skills install acme.weather@^1.2 --from ./packages
  palyra skills install acme.weather --registry /srv/skills --registry-key KEY

The key of a publisher that is new here is refused, unless you trust it first
(`palyra skills trust add`) or allow trust on first use. A skill's tools can be called once
`allowed_tools` in palyra.toml names them.")]
    Install(Install),
    /// Replace the version that runs by a newer one; shows what changes and asks if it may do more
    #[command(
        after_help = "A version that may do more, or tells models something else, waits for a person: here on the terminal, or
wherever approvals are answered."
    )]
    Update(Update),
    /// List what a directory of packages or a registry offers
    #[command(after_help = "Examples:
  palyra skills available --from ./packages
  palyra skills available --registry /srv/skills")]
    Available {
        #[command(flatten)]
        source: Source,
    },
    /// List installed skills: status, eligibility, trust, publisher, last audit
    List,
    /// Show everything about a skill: status and why, tools, what it asks for, what it is granted and what is withheld
    Info(Named),
    /// Audit every installed skill now, with policy and advisories as they are on the disk
    Check,
    /// Show every check of a skill's last audit, or audit a file that is not installed
    #[command(after_help = "Examples:
  palyra skills audit acme.weather
  palyra skills audit ./acme.weather-1.2.0.palyra-skill")]
    Audit {
        /// An installed skill, or a file
        #[arg(value_name = "SKILL|FILE")]
        what: String,
        /// The version; the one that runs where none is named
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
    /// Show what a file would change of the version that runs, or what one installed version changes of another
    #[command(after_help = "Examples:
  palyra skills diff ./acme.weather-1.3.0.palyra-skill
  palyra skills diff acme.weather 1.2.0 1.3.0")]
    Diff {
        /// A file, or an installed skill
        #[arg(value_name = "FILE|SKILL")]
        what: String,
        /// The version before
        #[arg(requires = "to")]
        from: Option<String>,
        /// The version after
        to: Option<String>,
    },
    /// Take a skill out of use at once
    Quarantine {
        #[command(flatten)]
        named: Named,
        /// Why, for the journal and for everybody who looks
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Audit a quarantined skill again and let it run
    #[command(after_help = "A check that still fails must be named, with your reason; that is recorded:
  palyra skills release acme.weather --reason \"reviewed by hand\" --override capabilities.unused")]
    Release {
        #[command(flatten)]
        named: Named,
        /// Why, for the journal
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// A failed check that you let pass for this version; may be repeated
        #[arg(long = "override", value_name = "CHECK")]
        overrides: Vec<String>,
    },
    /// Make another installed version the one that runs
    Use {
        /// The skill
        skill: String,
        /// The version
        version: String,
    },
    /// Remove a skill, or one version of it
    Remove(Named),
    /// Run a recorded call of a skill again, offline, and compare with what was attested
    Replay {
        /// The call
        #[arg(value_name = "CALL")]
        call: CallId,
    },
    /// Say which publishers' keys are trusted
    #[command(subcommand)]
    Trust(Trust),
}

#[derive(Debug, Args)]
pub struct Install {
    /// The artifact; `-` reads standard input. With a source: the skill, as `acme.weather` or `acme.weather@^1.2`
    #[arg(value_name = "FILE|SKILL")]
    pub what: String,
    #[command(flatten)]
    pub source: Source,
    /// Pin the key of a publisher that is new here
    #[arg(long)]
    pub allow_tofu: bool,
    /// Accept that the new version may do more than the one that runs
    #[arg(long)]
    pub accept_changes: bool,
}

#[derive(Debug, Args)]
pub struct Update {
    /// The artifact; `-` reads standard input. With a source: the skill, as `acme.weather` or `acme.weather@^1.2`
    #[arg(value_name = "FILE|SKILL")]
    pub what: String,
    #[command(flatten)]
    pub source: Source,
    /// Accept what widens without being asked
    #[arg(long)]
    pub accept_changes: bool,
}

/// Where skills are found by their names.
#[derive(Debug, Args)]
pub struct Source {
    /// A directory with packages
    #[arg(long, value_name = "DIR", conflicts_with = "registry")]
    pub from: Option<PathBuf>,
    /// A registry: a directory whose list is signed
    #[arg(long, value_name = "DIR")]
    pub registry: Option<PathBuf>,
    /// The registry's public key, in hexadecimal digits; needed once
    #[arg(long, value_name = "KEY", requires = "registry")]
    pub registry_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct Named {
    /// The skill: `acme.weather`
    pub skill: String,
    /// The version; the one that runs where none is named
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Trust {
    /// List the keys that the trust store knows, and how each stands
    List,
    /// Trust a publisher's key
    Add {
        /// The publisher: `acme`
        publisher: String,
        /// The public key, in hexadecimal digits
        #[arg(value_name = "KEY")]
        public_key: String,
        /// Until then only, in milliseconds since 1970
        #[arg(long, value_name = "UNIX_MS")]
        expires_at: Option<u64>,
    },
    /// Take a key out; what it signed is quarantined. A revoked key stays
    Remove {
        /// The key's id, as `trust list` shows it
        key_id: String,
    },
    /// Revoke a key for good; what it signed is quarantined at once
    Revoke {
        /// The key's id, as `trust list` shows it
        key_id: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Let a publisher's new key follow its old one, by a statement that both have signed
    Rotate {
        /// The statement
        #[arg(value_name = "FILE")]
        statement: PathBuf,
    },
    /// Let a skill begin again at any version, after a publisher lost control of its versions
    ResetVersions {
        /// The skill
        skill: String,
    },
    /// Begin again with an empty trust store, where it was lost or changed outside of Palyra
    Reset {
        /// Every skill is quarantined by this
        #[arg(long)]
        yes: bool,
    },
}
