//! What can be typed.

pub mod access;
pub mod connect;
mod policy;

use clap::{Args, Parser, Subcommand, ValueEnum};
pub use palyra_api::command_line::Format;
use palyra_api::command_line::{Sandbox, duration};
use palyra_protocol::{ApprovalId, CallId, GrantId, IdempotencyKey, Principal, PublicKey, RunId, SessionId};
use std::path::PathBuf;
use std::time::Duration;

pub use policy::{Policy, PolicyDirectory, Simulate, Suggest};

const EXIT_CODES: &str = "Exit codes:
  0   success
  1   the tool ran and failed, or the command failed
  2   the command line was not understood
  3   denied: by policy, by a person, or because the run's budget is spent
  4   the approval expired
  5   cancelled, or interrupted with Ctrl-C
  6   not a call: unknown tool or invalid input
  7   the daemon cannot be reached
  8   verification failed
  9   indeterminate: the daemon stopped in the middle of the call
  10  refused: not found, not allowed, or too late";

/// Let AI agents act on this machine without being trusted.
///
/// An agent proposes a tool call. Palyra decides by policy, asks you where the policy says so, runs it in a sandbox,
/// attests what really happened, and records it all in a journal that cannot be rewritten quietly.
///
/// Start with `palyra up`, then `palyra call palyra.echo --input '{"text":"hello"}'`.
#[derive(Debug, Parser)]
#[command(name = "palyra", version, about, long_about, after_long_help = EXIT_CODES)]
pub struct Cli {
    /// Where the daemon keeps its state and its socket [default: ~/.local/state/palyra]
    #[arg(long, env = "PALYRA_STATE_DIR", value_name = "DIR", global = true)]
    pub state_dir: Option<PathBuf>,

    /// How to print: for people, or as JSON with a stable shape
    #[arg(long, short, value_enum, default_value_t = Format::Text, global = true, value_name = "FORMAT")]
    pub output: Format,

    /// Act in an agent's name, as its owner may: `agent:demo`
    #[arg(long = "as", value_name = "AGENT", global = true)]
    pub act_as: Option<Principal>,

    /// Speak with a token, as whom it was issued to, instead of as the daemon's own user
    #[arg(long, env = "PALYRA_TOKEN", value_name = "TOKEN", global = true, hide_env_values = true)]
    pub token: Option<String>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the daemon in the background, if it is not running
    Up(Up),
    /// Stop the daemon: executions finish or are cancelled, open questions stay open
    Down,
    /// Show how the daemon is doing
    Status,
    /// Check everything that calls depend on, and say how to fix what is missing
    Doctor,
    /// See which tools there are
    #[command(subcommand)]
    Tools(Tools),
    /// Propose a tool call and wait for its end; Ctrl-C withdraws it
    Call(Call),
    /// Look at calls, follow them, cancel them
    #[command(subcommand)]
    Calls(Calls),
    /// See and answer what waits for a person
    #[command(subcommand)]
    Approvals(Approvals),
    /// See and withdraw standing answers
    #[command(subcommand)]
    Grants(Grants),
    /// Check, try, compare and replay rules; ask what they would decide
    #[command(subcommand, long_about = policy::ABOUT)]
    Policy(Policy),
    /// Say who may come in, as what: tokens, members, agents, groups
    #[command(subcommand)]
    Access(access::Access),
    /// Put an agent that you already run behind Palyra: Claude Code, Codex, Cursor, any MCP client
    Connect(connect::Connect),
    /// Take back all that `connect` did
    Disconnect(connect::Disconnect),
    /// Speak MCP with an agent
    #[command(subcommand)]
    Mcp(connect::Mcp),
    /// Read, verify and export the journal
    #[command(subcommand)]
    Journal(Journal),
    /// Check attestations
    #[command(subcommand)]
    Attest(Attest),
    Sandbox(Box<Sandbox>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub struct Up {
    /// The directory that tools work in [default: the one last given, or `workspace_root` of the configuration, or this
    /// directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// The configuration file [default: that of the last start, or ~/.config/palyra/palyra.toml, if it exists]
    #[arg(long, env = "PALYRA_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Forget what the last start was given
    #[arg(long)]
    pub fresh: bool,
}

#[derive(Debug, Subcommand)]
pub enum Tools {
    /// List every tool
    List,
    /// Show one tool: what it takes, what it gives, what it may do
    Show {
        /// The tool's name, like `palyra.fs.read`
        tool: String,
    },
}

/// A proposed call.
#[derive(Debug, Args)]
pub struct Proposed {
    /// The tool's name, like `palyra.fs.read`
    pub tool: String,
    /// The input: JSON, or `@FILE`, or `-` for standard input
    #[arg(long, short, value_name = "JSON", default_value = "{}")]
    pub input: String,
    /// The session the call belongs to [default: a new one, for this call alone]
    #[arg(long, value_name = "NAME")]
    pub session: Option<SessionId>,
    /// The run whose budget the call counts against [default: the session's own]
    #[arg(long, value_name = "NAME")]
    pub run: Option<RunId>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  palyra call palyra.process.run --input '{\"argv\":[\"git\",\"status\"]}' --session work")]
pub struct Call {
    #[command(flatten)]
    pub proposed: Proposed,
    /// The same key gives the same outcome, never a second run
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// Return as soon as the call is recorded; follow it with `palyra calls follow ID`
    #[arg(long)]
    pub detach: bool,
}

#[derive(Debug, Subcommand)]
pub enum Calls {
    /// Show where a call stands and how it ended
    Show { call: CallId },
    /// Wait until a call ends; Ctrl-C stops waiting and leaves the call alone
    Follow { call: CallId },
    /// Withdraw a call that waits, or end one that runs
    Cancel { call: CallId },
}

#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// List what waits for an answer
    List {
        /// Also those that have ended
        #[arg(long)]
        all: bool,
    },
    /// Show one question: exactly what would run, and why it is asked
    Show { approval: ApprovalId },
    /// Answer a question
    Decide(Decide),
    /// Show questions as they come and as they end, until Ctrl-C
    Watch,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra approvals decide apr_01K… allow
  palyra approvals decide apr_01K… allow --scope session --match argv-prefix --words 2
  palyra approvals decide apr_01K… allow --scope window --for 30m
  palyra approvals decide apr_01K… deny --reason 'not on a Friday'")]
pub struct Decide {
    /// The question, from `palyra approvals list`
    pub approval: ApprovalId,
    /// Yes or no
    #[arg(value_enum)]
    pub decision: Decision,
    /// How long a yes holds
    #[arg(long, value_enum, default_value_t = Scope::Once)]
    pub scope: Scope,
    /// For `--scope window`: how long, like `30m`, `2h`, `90s`
    #[arg(long = "for", value_name = "TIME", value_parser = duration, required_if_eq("scope", "window"))]
    pub window: Option<Duration>,
    /// How wide a yes is
    #[arg(long = "match", value_enum, default_value_t = Matcher::Exact)]
    pub matcher: Matcher,
    /// For `--match argv-prefix`: how many of the shown command's words must be the same
    #[arg(long, value_name = "N", required_if_eq("matcher", "argv-prefix"))]
    pub words: Option<usize>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Decision {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// This call alone
    Once,
    /// The rest of the session
    Session,
    /// A time, given with `--for`
    Window,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Matcher {
    /// Exactly this call again
    Exact,
    /// Commands that begin with the same words
    ArgvPrefix,
    /// Any call of this tool
    Tool,
}

#[derive(Debug, Subcommand)]
pub enum Grants {
    /// List standing answers
    List,
    /// Withdraw a standing answer
    Revoke { grant: GrantId },
}

#[derive(Debug, Subcommand)]
pub enum Journal {
    /// Show the newest events
    Tail {
        /// How many
        #[arg(long, short = 'n', default_value_t = 20)]
        last: u32,
        /// Also those still to come, until Ctrl-C
        #[arg(long, short)]
        follow: bool,
    },
    /// Show one event, or every event of a call
    Show {
        /// An event's number or a call's id
        what: String,
    },
    /// Follow the whole chain and name the first event that does not fit
    Verify {
        /// Compare with a checkpoint that was kept elsewhere: detects truncation, rewriting and roll-back
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
        /// Verify an export instead of the daemon's journal; needs no daemon
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
        /// With `--export` and `--against`: the daemon's public key, from elsewhere. Without it a checkpoint vouches for itself alone
        #[arg(long, value_name = "HEX", requires = "export", requires = "against")]
        key: Option<PublicKey>,
    },
    /// Print every event as one JSON document a line
    Export {
        /// The file to write [default: standard output]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Print a signed checkpoint, to be kept where this machine cannot change it
    Checkpoint,
}

#[derive(Debug, Subcommand)]
pub enum Attest {
    /// Recompute an attestation from what the caller received
    #[command(after_help = "Example:
  palyra -o json call palyra.echo --input '{\"text\":\"hi\"}' > result.json
  palyra attest verify result.json")]
    Verify {
        /// The result, as `palyra --output json call` printed it, or `-`
        file: PathBuf,
        /// The daemon's public key, if you have it from elsewhere [default: ask the daemon]
        #[arg(long, value_name = "HEX")]
        key: Option<PublicKey>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
