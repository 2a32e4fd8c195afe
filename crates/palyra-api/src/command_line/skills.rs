//! `skills`: what an author of skills does without a daemon, as a command line that two programs share.
//!
//! `palyra skills new|build|dev|try|package|import` needs compilers, the WebAssembly host and the format of packages,
//! which the client does not link, so it hands over to `palyrad skills …`. Both parse this one definition.

use super::Format;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes:
  0   success
  1   it failed; the tool answered with an error or was stopped
  2   this command line was not understood
  5   interrupted with Ctrl-C
  6   not a call: unknown tool, or an input that its schema refuses
  8   not verified: the artifact, its signature, its publisher or a check of the audit
  10  refused: a file that is missing, there already, or not fit for this";

/// The options and the command of `palyrad skills`.
#[derive(Debug, Args)]
pub struct SkillsAuthor {
    /// How to print: for people, or as JSON with a stable shape
    #[arg(long, short, value_enum, default_value_t = Format::Text, global = true, value_name = "FORMAT", overrides_with = "output")]
    pub output: Format,

    /// What to do.
    #[command(subcommand)]
    pub command: AuthorCommand,
}

/// What an author of skills can do without a daemon.
#[derive(Debug, Subcommand)]
pub enum AuthorCommand {
    /// Write a new skill that builds at the first try: `palyra skills new --lang python my-skill`
    #[command(after_help = EXIT_CODES)]
    New(New),
    /// Turn the sources of a skill into the component that its manifest names
    #[command(after_help = EXIT_CODES)]
    Build(Build),
    /// Build and call a tool again whenever a source changes; shows grants, denials and host calls
    #[command(after_help = EXIT_CODES)]
    Dev(Dev),
    /// Call a tool once in a throw-away place, and compare what it used with what its manifest asks for
    ///
    /// The guest gets what the manifest asks for, in an empty workspace and an empty storage that are removed
    /// afterwards. Nothing is recorded and no approval is asked for.
    #[command(after_help = EXIT_CODES)]
    Try(Try),
    /// Build, verify, look into and audit signed packages
    #[command(subcommand)]
    Package(Package),
    /// Make a signed package of an Agent Skills folder (`SKILL.md` and scripts)
    #[command(after_help = EXIT_CODES)]
    Import(Import),
}

/// The language of a new skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Rust,
    Python,
    Js,
    C,
    /// WebAssembly text, without a compiler
    Wat,
}

/// `skills new`.
#[derive(Debug, Args)]
pub struct New {
    /// The name: lower-case letters, digits and hyphens
    pub name: String,
    /// The language
    #[arg(long, value_enum)]
    pub lang: Language,
    /// Who will sign it: a lower-case word, with which the skill's id begins
    #[arg(long, default_value = "local", value_name = "NAME")]
    pub publisher: String,
    /// Where to put it [default: a directory of that name]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Where compilers are, and where they work.
#[derive(Debug, Clone, Args)]
pub struct Compilers {
    /// Compilers that several skills share: a directory with `python/`, an environment that has componentize-py, or
    /// with `node_modules/`, which has componentize-js [default: those of the skill itself, and the PATH]
    #[arg(long, env = "PALYRA_SKILL_TOOLS", value_name = "DIR")]
    pub tools: Option<PathBuf>,
    /// Where compilers leave what they make [default: `target/palyra` in the skill's directory]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
}

/// `skills build`.
#[derive(Debug, Args)]
pub struct Build {
    /// The skill's directory
    #[arg(default_value = ".")]
    pub directory: PathBuf,
    /// Compilers.
    #[command(flatten)]
    pub compilers: Compilers,
}

/// What is called, with what, and what is open to it.
#[derive(Debug, Clone, Args)]
pub struct Trial {
    /// The tool [default: the skill's only one]
    pub tool: Option<String>,
    /// The input: JSON, or `@FILE`, or `-` for standard input
    #[arg(long, short, value_name = "JSON", default_value = "{}")]
    pub input: String,
    /// A directory whose files the tool may see: what the manifest's roots name of it is copied, and the copy is thrown
    /// away
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Send requests to the hosts that the manifest asks for; without it they fail
    #[arg(long)]
    pub network: bool,
    /// Answer requests to a host with a file, as `api.example.org=reply.json`; may be given several times
    #[arg(long, value_name = "HOST=FILE")]
    pub reply: Vec<String>,
    /// The value of a secret, from a file, as `global/token=token.txt`; may be given several times
    #[arg(long, value_name = "SCOPE/KEY=FILE")]
    pub secret: Vec<String>,
}

/// `skills try`.
#[derive(Debug, Args)]
pub struct Try {
    /// The skill's directory, which is built first, or a `.palyra-skill` file
    pub skill: PathBuf,
    /// The call.
    #[command(flatten)]
    pub trial: Trial,
    /// Write the tighter manifest into the skill's directory
    #[arg(long)]
    pub write: bool,
    /// Compilers.
    #[command(flatten)]
    pub compilers: Compilers,
}

/// `skills dev`.
#[derive(Debug, Args)]
pub struct Dev {
    /// The skill's directory
    pub directory: PathBuf,
    /// The call.
    #[command(flatten)]
    pub trial: Trial,
    /// Compilers.
    #[command(flatten)]
    pub compilers: Compilers,
}

/// What can be done with packages.
#[derive(Debug, Subcommand)]
pub enum Package {
    /// Make a publisher's key: a file that only you can read
    #[command(after_help = EXIT_CODES)]
    Keygen {
        /// The file to write; it must not be there
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Pack and sign a skill's manifest, modules and assets
    #[command(after_help = EXIT_CODES)]
    Build(PackageBuild),
    /// Check a package: its form, its signature, and whether its publisher's key is trusted
    #[command(after_help = EXIT_CODES)]
    Verify(PackageVerify),
    /// Show what is in a package; its signature is checked, its publisher's key is not
    #[command(after_help = EXIT_CODES)]
    Inspect {
        /// The `.palyra-skill` file
        file: PathBuf,
    },
    /// Make a registry of a directory of packages: a signed list that says what there is, and what was withdrawn
    #[command(after_help = EXIT_CODES)]
    Index(PackageIndex),
    /// Let a new key follow a publisher's old one: a statement that both sign, for `palyra skills trust rotate`
    #[command(after_help = EXIT_CODES)]
    Rotate(PackageRotate),
    /// Examine a package against an audit policy and advisories
    #[command(after_help = EXIT_CODES)]
    Audit(PackageAudit),
}

/// The publisher's key.
#[derive(Debug, Args)]
pub struct SigningKey {
    /// The file with the publisher's key, or `-` for standard input; made by `palyra skills package keygen`
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
}

/// `skills package build`.
#[derive(Debug, Args)]
#[command(after_help = "With the key in the vault:
  palyra vault get global/publisher-key | palyra skills package build my-skill --key -")]
pub struct PackageBuild {
    /// The skill's directory
    #[arg(default_value = ".")]
    pub directory: PathBuf,
    /// The key.
    #[command(flatten)]
    pub key: SigningKey,
    /// The file to write; it must not be there [default: `<skill id>-<version>.palyra-skill` in this directory]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Where the sources are, for the provenance: a URI
    #[arg(long, value_name = "URI", requires = "commit")]
    pub source: Option<String>,
    /// The commit of the sources, for the provenance
    #[arg(long, value_name = "COMMIT", requires = "source")]
    pub commit: Option<String>,
    /// Who builds, for the provenance: a URI [default: `urn:palyra:builder:local`]
    #[arg(long, value_name = "URI")]
    pub builder: Option<String>,
}

/// `skills package index`.
#[derive(Debug, Args)]
pub struct PackageIndex {
    /// The directory with the packages
    pub directory: PathBuf,
    /// The registry's name; it stays the same
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// The registry's key.
    #[command(flatten)]
    pub key: SigningKey,
    /// How many days the list is believed
    #[arg(long, default_value_t = 30, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=3650))]
    pub days: u64,
    /// A version that should not be installed any more, as `acme.weather@1.2.0`; may be given several times
    #[arg(long, value_name = "SKILL@VERSION")]
    pub withdraw: Vec<String>,
}

/// `skills package rotate`.
#[derive(Debug, Args)]
pub struct PackageRotate {
    /// The publisher
    #[arg(long, value_name = "NAME")]
    pub publisher: String,
    /// The file with the old key
    #[arg(long, value_name = "FILE")]
    pub old: PathBuf,
    /// The file with the new key
    #[arg(long, value_name = "FILE")]
    pub new: PathBuf,
    /// The statement to write; it must not be there
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Whom to trust.
#[derive(Debug, Args)]
pub struct Trust {
    /// A key to trust for a publisher, as `acme=<64 hexadecimal digits>`; may be given several times
    #[arg(long, value_name = "PUBLISHER=KEY")]
    pub trust: Vec<String>,
    /// A file with a trust store
    #[arg(long, value_name = "FILE")]
    pub trust_store: Option<PathBuf>,
    /// Accept the key of a publisher that is new here
    #[arg(long)]
    pub allow_tofu: bool,
}

/// `skills package verify`.
#[derive(Debug, Args)]
pub struct PackageVerify {
    /// The `.palyra-skill` file
    pub file: PathBuf,
    /// Whom to trust.
    #[command(flatten)]
    pub trust: Trust,
}

/// `skills package audit`.
#[derive(Debug, Args)]
pub struct PackageAudit {
    /// The `.palyra-skill` file
    #[arg(required_unless_present = "print_policy")]
    pub file: Option<PathBuf>,
    /// The audit policy [default: the one that comes with Palyra]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Advisories in OSV format
    #[arg(long, value_name = "FILE")]
    pub advisories: Option<PathBuf>,
    /// Print the audit policy that comes with Palyra, to begin one of your own with
    #[arg(long, exclusive = true)]
    pub print_policy: bool,
    /// Whom to trust.
    #[command(flatten)]
    pub trust: Trust,
}

/// `skills import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The folder with `SKILL.md`
    pub directory: PathBuf,
    /// The key.
    #[command(flatten)]
    pub key: SigningKey,
    /// Who signs: a lower-case word
    #[arg(long, value_name = "NAME")]
    pub publisher: String,
    /// The version; such folders have none of their own
    #[arg(long, default_value = "1.0.0", value_name = "VERSION")]
    pub version: String,
    /// A directory of the workspace that its scripts may read
    #[arg(long, value_name = "DIR")]
    pub read: Vec<String>,
    /// A directory of the workspace that its scripts may write
    #[arg(long, value_name = "DIR")]
    pub write: Vec<String>,
    /// A host that its scripts may reach
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
    /// The file to write; it must not be there [default: `<skill id>-<version>.palyra-skill` in this directory]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
