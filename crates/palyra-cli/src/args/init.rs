//! `palyra init`: what can be typed.

use super::connect::Client;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra init                                   # asks a few questions, shows what it writes
  palyra init --yes                             # takes what it finds
  palyra init --yes --workspace ~/project --client claude-code --exclusive
  palyra init --print                           # shows what it would write
  palyra init --undo                            # takes everything back

It writes palyra.toml and a policy in ~/.config/palyra, starts the daemon, connects your
agents, and runs one command in the sandbox to prove that it works. Running it again is safe and keeps your edits.")]
pub struct Init {
    /// Take what is found, and ask nothing
    #[arg(long, short)]
    pub yes: bool,
    /// The directory that agents work in [default: the git repository around this directory, or this directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// A client to connect; may be repeated [default: those that are installed]
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub client: Vec<Client>,
    /// Connect no client
    #[arg(long, conflicts_with = "client")]
    pub no_client: bool,
    /// Switch the client's own ways to act off, so that it can act only through Palyra (Claude Code, Codex)
    #[arg(long)]
    pub exclusive: bool,
    /// A toolchain that runs may see; may be repeated [default: those that are installed]
    #[arg(long, value_name = "NAME")]
    pub toolchain: Vec<String>,
    /// Show runs no toolchain of the home directory
    #[arg(long, conflicts_with = "toolchain")]
    pub no_toolchain: bool,
    /// The name that agents commit by [default: git's `user.name`]
    #[arg(long, value_name = "NAME", requires = "git_email")]
    pub git_name: Option<String>,
    /// The address that agents commit by [default: git's `user.email`]
    #[arg(long, value_name = "EMAIL", requires = "git_name")]
    pub git_email: Option<String>,
    /// Print what would be written, and change nothing
    #[arg(long)]
    pub print: bool,
    /// Take back all that `init` did. The journal stays
    #[arg(long, conflicts_with_all = ["workspace", "client", "toolchain", "git_name", "print", "exclusive"])]
    pub undo: bool,
}
