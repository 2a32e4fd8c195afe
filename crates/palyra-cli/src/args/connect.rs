//! `palyra connect`, `palyra disconnect` and `palyra mcp`: what can be typed.

use super::duration;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra connect claude-code --project ~/project
  palyra connect claude-code --hooks
  palyra connect codex --exclusive
  palyra connect generic --print

The token lies in a file of its own, outside the project; no configuration file holds it.
`palyra disconnect NAME` takes everything back.")]
pub struct Connect {
    /// The program to put behind Palyra
    #[arg(value_enum)]
    pub client: Client,
    /// The project whose configuration is written [default: this directory]
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// The connection's name; the agent is `agent:NAME` [default: the client's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Switch the client's own ways to act off, so that it can act only through Palyra (Claude Code, Codex)
    #[arg(long)]
    pub exclusive: bool,
    /// Leave the client its own tools, and have it ask Palyra before each: commands run in Palyra's sandbox (Claude
    /// Code, Codex)
    #[arg(long, conflicts_with = "exclusive")]
    pub hooks: bool,
    /// Print what would be written, and change nothing
    #[arg(long)]
    pub print: bool,
    /// How long the token holds, like `12h`, `30d`; at most 366 days
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "90d")]
    pub expires: Duration,
}

#[derive(Debug, Args)]
pub struct Disconnect {
    /// The connection, as `palyra connect` named it
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Claude Code: `.mcp.json` and `.claude/settings.local.json` of the project
    ClaudeCode,
    /// Codex: `config.toml` in `$CODEX_HOME` or `~/.codex`
    Codex,
    /// Cursor: `.cursor/mcp.json` of the project
    Cursor,
    /// Any other MCP client: the configuration is printed for you to paste
    Generic,
}

impl Client {
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::Generic => "generic",
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// Speak MCP on standard input and output; starts the daemon if it is not running
    ///
    /// The client speaks with the token in `--token-file` or `PALYRA_TOKEN`, as the agent it was issued to. Without one
    /// it is an agent of yours, `agent:mcp` unless `--as` names another: an MCP client is never the owner.
    Serve(Serve),
    /// Read a hook's question about a tool on standard input, and refuse every tool that acts past Palyra
    #[command(hide = true)]
    Guard,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// A file that holds the token and nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "act_as")]
    pub token_file: Option<PathBuf>,
    /// The workspace that the client was connected in; it works in no other. A daemon that never ran is started with it
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}
