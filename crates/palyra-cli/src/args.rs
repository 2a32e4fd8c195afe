//! What can be typed.

pub mod access;
pub mod connect;
pub mod console;
pub mod devices;
pub mod effects;
pub mod hook;
pub mod init;
pub mod managed_skills;
pub mod memory;
mod policy;
pub mod routines;
pub mod runs;
pub mod skills;
pub mod vault;
pub mod workspaces;

use crate::completing;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
pub use palyra_api::command_line::Format;
use palyra_api::command_line::{Sandbox, duration};
use palyra_protocol::{CallId, CallState, GrantId, IdempotencyKey, Principal, PublicKey, RunId, SessionId};
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

/// The heading, in every help, of the options that all commands have.
const EVERYWHERE: &str = "Options of every command";

/// Let AI agents act on this machine without being trusted.
///
/// An agent proposes a tool call. Palyra decides by policy, asks you where the policy says so, runs it in a sandbox,
/// attests what really happened, and records it all in a journal that cannot be rewritten quietly.
///
/// Start with `palyra init`; `palyra up` starts the daemon alone.
#[derive(Debug, Parser)]
#[command(name = "palyra", version, after_long_help = EXIT_CODES)]
pub struct Cli {
    /// Where the daemon keeps its state and its socket [default: ~/.local/state/palyra]
    #[arg(long, env = "PALYRA_STATE_DIR", value_name = "DIR", global = true, help_heading = EVERYWHERE)]
    pub state_dir: Option<PathBuf>,

    /// How to print: for people, or as JSON with a stable shape
    #[arg(long, short, value_enum, default_value_t = Format::Text, global = true, help_heading = EVERYWHERE, value_name = "FORMAT")]
    pub output: Format,

    /// Act in an agent's name, as its owner may: `agent:demo`
    #[arg(long = "as", value_name = "AGENT", global = true, help_heading = EVERYWHERE, add = ArgValueCandidates::new(completing::principals))]
    pub act_as: Option<Principal>,

    /// Use a token: speak as the principal it was issued to, instead of as the daemon's own user
    #[arg(long, env = "PALYRA_TOKEN", value_name = "TOKEN", global = true, help_heading = EVERYWHERE, hide_env_values = true)]
    pub token: Option<String>,

    /// Speak with a daemon that this machine was paired with; `local` for this machine's own [default: `palyra hosts
    /// use`]. Comes before the command
    #[arg(long, env = "PALYRA_HOST", value_name = "PROFILE")]
    pub host: Option<String>,

    /// Work in this workspace, named by its directory or its id [default: the one that this directory lies in]. Comes
    /// before the command
    #[arg(long, env = "PALYRA_WORKSPACE", value_name = "WORKSPACE", id = "in_workspace")]
    pub workspace: Option<String>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set everything up for coding agents: configuration, policy, daemon, clients
    Init(init::Init),
    /// Start the daemon in the background, if it is not running
    Up(Up),
    /// Stop the daemon: calls that run finish or are cancelled, open approvals stay open
    Down,
    /// Show how the daemon is doing
    Status,
    /// Check everything that calls depend on, and say how to fix what is missing
    Doctor,
    /// Say in which directories agents may work: register, list, remove
    #[command(subcommand, long_about = workspaces::ABOUT)]
    Workspaces(workspaces::Workspaces),
    /// See which tools there are
    #[command(subcommand)]
    Tools(Tools),
    /// Propose a tool call and wait for its end; Ctrl-C withdraws it
    Call(Call),
    /// Propose to run a program in the sandbox: `palyra exec -- git status`
    Exec(Exec),
    Run(runs::Run),
    Chat(runs::Chat),
    /// Look at agent runs, follow them, end them, carry them on
    #[command(subcommand)]
    Runs(runs::Runs),
    /// See which models there are, and whether they answer
    #[command(subcommand)]
    Models(runs::Models),
    /// Look at calls, follow them, cancel them
    #[command(subcommand)]
    Calls(Calls),
    /// See and answer approvals: calls that wait for a person
    #[command(subcommand)]
    Approvals(Approvals),
    /// See what calls changed in the workspace, and which changes wait for an approval
    #[command(subcommand)]
    Effects(effects::Effects),
    Undo(effects::Undo),
    /// Work on a full screen: open approvals, calls with their output, grants
    Tui(Tui),
    Console(console::Console),
    /// See and withdraw grants and standing denials: answers that hold for later calls too
    #[command(subcommand)]
    Grants(Grants),
    /// Check, try, compare and replay rules; ask what they would decide
    #[command(subcommand, long_about = policy::ABOUT)]
    Policy(Policy),
    /// Manage who may use the daemon, in which role: tokens, members, agents, groups
    #[command(subcommand)]
    Access(access::Access),
    /// Search, add and delete what agents remember
    #[command(subcommand)]
    Memory(memory::Memory),
    /// Call tools on a schedule, in an agent's name
    #[command(subcommand)]
    Routines(routines::Routines),
    /// Keep secrets that agents use and never see
    #[command(subcommand)]
    Vault(vault::Vault),
    /// Let a phone, a laptop or another machine in: make a pairing code
    #[command(subcommand)]
    Pairing(devices::Pairing),
    /// Pair this machine with a daemon elsewhere
    Pair(devices::Pair),
    /// See, rename, rotate and revoke the devices that were let in
    #[command(subcommand)]
    Devices(devices::Devices),
    /// See the daemons that this machine was paired with, and choose one
    #[command(subcommand)]
    Hosts(devices::Hosts),
    /// Put an agent that you already run behind Palyra: Claude Code, Codex, Cursor, any MCP client
    Connect(connect::Connect),
    /// Take back all that `connect` did
    Disconnect(connect::Disconnect),
    /// Speak MCP with an agent
    #[command(subcommand)]
    Mcp(connect::Mcp),
    /// Answer a connected client that asks before it uses a tool; `palyra connect --hooks` has clients run this
    #[command(hide = true)]
    Hook(hook::Hook),
    /// Start the command that a hook's ticket was made for; connected clients run this
    #[command(hide = true)]
    Redeem(hook::Redeem),
    /// See where the configuration is, what it says, and whether the daemon would start on it
    #[command(subcommand)]
    Config(Config),
    /// Read, verify and export the journal
    #[command(subcommand)]
    Journal(Journal),
    /// Check attestations
    #[command(subcommand)]
    Attest(Attest),
    /// Write, try, package and verify skills: tools that run as WebAssembly and get only what they were granted
    #[command(subcommand)]
    Skills(Box<skills::Skills>),
    Sandbox(Box<Sandbox>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub struct Up {
    /// The directory that tools work in, which is registered as a workspace [default: the one last given, or
    /// `workspace_root` of the configuration, or this directory]
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
        #[arg(add = ArgValueCandidates::new(completing::tools))]
        tool: String,
    },
}

/// A proposed call.
#[derive(Debug, Args)]
pub struct Proposed {
    /// The tool's name, like `palyra.fs.read`
    #[arg(add = ArgValueCandidates::new(completing::tools))]
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

#[derive(Debug, Args)]
#[command(after_help = "Example:
  palyra exec --session work -- cargo test --workspace")]
pub struct Exec {
    /// The directory to run in, relative to the workspace [default: its root]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// A further environment variable, `NAME=VALUE`; may be given several times
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// The session the call belongs to [default: a new one, for this call alone]
    #[arg(long, value_name = "NAME")]
    pub session: Option<SessionId>,
    /// Return as soon as the call is recorded; follow it with `palyra calls follow ID`
    #[arg(long)]
    pub detach: bool,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Which calls.
#[derive(Debug, Args)]
pub struct CallFilter {
    /// Only those made in this name, like `agent:demo`
    #[arg(long, value_name = "WHO", add = ArgValueCandidates::new(completing::principals))]
    pub principal: Option<Principal>,
    /// Only those of this tool
    #[arg(long, value_name = "TOOL", add = ArgValueCandidates::new(completing::tools))]
    pub tool: Option<String>,
    /// Only those of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<SessionId>,
    /// Only those in this state: `executing`, `awaiting_approval`, `succeeded`, `failed`, `denied` …
    #[arg(long, value_name = "STATE", value_parser = call_state)]
    pub state: Option<CallState>,
    /// Only those since then: a date, a time with its zone, or how long ago like `2h`
    #[arg(long, value_name = "WHEN", value_parser = policy::since)]
    pub since: Option<u64>,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub last: u32,
}

fn call_state(text: &str) -> Result<CallState, String> {
    let names = || CallState::ALL.map(CallState::as_str).join(", ");
    CallState::parse(text).ok_or_else(|| format!("the states are {}", names()))
}

#[derive(Debug, Subcommand)]
pub enum Calls {
    /// List calls, newest last
    List(CallFilter),
    /// Show a call: what it was given, what it changed, what held it, how it ended
    Show {
        /// The call's id, like `call_01K…`
        #[arg(add = ArgValueCandidates::new(completing::calls))]
        call: CallId,
    },
    /// Wait until a call ends; Ctrl-C stops waiting and leaves the call alone
    Follow {
        /// The call's id, like `call_01K…`
        #[arg(add = ArgValueCandidates::new(completing::calls))]
        call: CallId,
    },
    /// Withdraw a call that waits, or end one that runs
    Cancel {
        /// The call's id, like `call_01K…`
        #[arg(add = ArgValueCandidates::new(completing::calls))]
        call: CallId,
    },
}

#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// List open approvals
    List {
        /// Also those that have ended
        #[arg(long)]
        all: bool,
    },
    /// Show one approval: exactly what would run, what would change, and why it is asked
    Show {
        /// Its id, the beginning or the end of it, its number in the last list, or `latest`
        #[arg(add = ArgValueCandidates::new(completing::approvals))]
        approval: String,
    },
    /// Answer an approval
    Decide(Decide),
    /// Show approvals as they come, and answer each with one key; without a terminal, only show them
    #[command(after_help = WATCH_KEYS)]
    Watch(Watch),
    /// Print how many approvals are open
    Count {
        /// Print it again whenever it changes, for status bars
        #[arg(long)]
        watch: bool,
    },
}

const WATCH_KEYS: &str = "Keys, for the approval that is on screen and was shown to its end:
  y  yes, this once               n  no, with a reason that the agent reads
  s  yes, exactly this again,     N  no, also when exactly this is asked again,
     for the session                 for the session
  p  yes, commands that begin     d  details: the whole input, every id
     alike, for the session       g  show all that are alike, to answer them together
  w  yes, files under this        l  later
     directory, for the session   u  take a yes back, within two seconds
  h  yes, this host and method,   q  quit
     for the session
Enter answers nothing. Keys typed before an approval appeared do not count. A yes is
sent after two seconds, or at once when its key is pressed again.";

#[derive(Debug, Args)]
pub struct Tui {
    /// For screen readers: plain lines instead of a screen, as `palyra approvals watch --reader`
    #[arg(long)]
    pub reader: bool,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// Ring the terminal's bell when a new one comes
    #[arg(long)]
    pub bell: bool,
    /// Notify the desktop when a new one comes: by the terminal's own sequence, and by `notify-send` if it is installed
    #[arg(long)]
    pub notify: bool,
    /// For screen readers: plain lines, nothing that is written is written over
    #[arg(long)]
    pub reader: bool,
    /// Only show, also at a terminal
    #[arg(long)]
    pub plain: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra approvals decide apr_01K… allow
  palyra approvals decide apr_01K… allow --scope session --match argv-prefix --words 2
  palyra approvals decide 1 allow --scope window --for 30m
  palyra approvals decide latest allow --scope session --match path-prefix
  palyra approvals decide 2 deny --scope session --match argv-prefix --words 2 --reason 'never push'
  palyra approvals decide apr_01K… deny --reason 'not on a Friday'")]
pub struct Decide {
    /// Its id, the beginning or the end of it, its number in the last list, or `latest`
    #[arg(add = ArgValueCandidates::new(completing::approvals))]
    pub approval: String,
    /// Yes or no
    #[arg(value_enum)]
    pub decision: Decision,
    /// How long the answer holds; a no that holds denies later calls without asking
    #[arg(long, value_enum, default_value_t = Scope::Once)]
    pub scope: Scope,
    /// For `--scope window`: how long, like `30m`, `2h`, `90s`
    #[arg(long = "for", value_name = "TIME", value_parser = duration, required_if_eq("scope", "window"))]
    pub window: Option<Duration>,
    /// How wide the answer is
    #[arg(long = "match", value_enum, default_value_t = Matcher::Exact)]
    pub matcher: Matcher,
    /// For `--match argv-prefix`: how many of the shown command's words must be the same
    #[arg(long, value_name = "N", required_if_eq("matcher", "argv-prefix"))]
    pub words: Option<usize>,
    /// For `--match path-prefix`: the directory, relative to the workspace [default: that of the file]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<String>,
    /// Why; the agent reads it
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
    /// Calls of this tool that touch only files under a directory, hidden ones excepted
    PathPrefix,
    /// Calls of this tool to the same host with the same method
    Host,
    /// Any call of this tool
    Tool,
}

#[derive(Debug, Subcommand)]
pub enum Grants {
    /// List grants and standing denials
    List,
    /// Show one, with the calls that it answered
    Show {
        /// The grant's id, like `grant_01K…`
        #[arg(add = ArgValueCandidates::new(completing::grants))]
        grant: GrantId,
    },
    /// Withdraw a grant or a standing denial
    Revoke {
        /// The grant's id, like `grant_01K…`
        #[arg(add = ArgValueCandidates::new(completing::grants))]
        grant: GrantId,
    },
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print which file is used: the one that is named, the running daemon's, or the one that a start would read
    Path {
        /// The configuration file
        #[arg(long, env = "PALYRA_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print the configuration
    Show {
        /// The configuration file
        #[arg(long, env = "PALYRA_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check whether the daemon would start with it; exit code 1 if not
    Check {
        /// The configuration file
        #[arg(long, env = "PALYRA_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
        /// The directory that the daemon would work in [default: the one of its last start, or this one]
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Journal {
    /// Show the newest events
    Tail(Tail),
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
        /// With `--export` and `--against`: the daemon's public key, from elsewhere. Without it a checkpoint vouches
        /// for itself alone
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

#[derive(Debug, Args)]
pub struct Tail {
    /// How many
    #[arg(long, short = 'n', default_value_t = 20)]
    pub last: u32,
    /// Also those still to come, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// Only those about calls made in this name, like `agent:demo`
    #[arg(long, value_name = "WHO", add = ArgValueCandidates::new(completing::principals))]
    pub principal: Option<Principal>,
    /// Only those about calls of this tool
    #[arg(long, value_name = "TOOL", add = ArgValueCandidates::new(completing::tools))]
    pub tool: Option<String>,
    /// Only those since then: a date, a time with its zone, or how long ago like `2h`
    #[arg(long, value_name = "WHEN", value_parser = policy::since)]
    pub since: Option<u64>,
    /// Only those about calls that policy decided so
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verdict {
    Allow,
    NeedsApproval,
    Deny,
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

    /// A newcomer reads what each word stands for; no example or table is broken by a terminal of 100 columns.
    #[test]
    fn every_argument_and_command_says_what_it_is() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path} says nothing about itself");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let said = argument.get_help().or(argument.get_long_help()).is_some();
                assert!(said, "{path}: `{}` says nothing about itself", argument.get_id());
            }
            for line in command.get_after_help().map(ToString::to_string).unwrap_or_default().lines() {
                // Examples are copied, not read.
                let most = if line.starts_with("  ") { 112 } else { 100 };
                assert!(line.chars().count() <= most, "{path}: too wide: {line}");
            }
            command.get_subcommands().for_each(|below| check(below, &path));
        }
        check(&Cli::command(), "");
    }
}
