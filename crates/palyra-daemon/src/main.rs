//! `palyrad`: the daemon. It reads its configuration, takes its state, opens its doors, and holds no rules of its own.

#![expect(unreachable_pub, reason = "a binary exports nothing; `pub` here means: used by other files")]

mod access;
#[cfg(test)]
mod changing_tools;
mod config;
mod console;
mod custody;
mod devices;
mod doors;
mod ending;
mod grpc;
mod http;
mod keys;
mod mcp;
mod mtls;
mod policy;
mod printing;
mod rights;
mod sandbox;
mod serve;
mod skill_watch;
mod skills;
mod state;
mod verify;
mod workspaces;

use clap::{Parser, Subcommand};
use palyra_api::command_line::skills::SkillsAuthor;
use palyra_api::command_line::{REFUSED, STATE_HELD, Sandbox};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The Palyra daemon: decides, asks, runs, attests and records what agents propose.
///
/// Usually started by `palyra up`. In the foreground it logs to standard error and ends on SIGTERM or Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "palyrad", version, about, long_about)]
struct Args {
    /// Where the daemon keeps its journal, keys and socket
    #[arg(long, env = "PALYRA_STATE_DIR", value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,

    /// The configuration file [default: ~/.config/palyra/palyra.toml, if it exists]
    #[arg(long, env = "PALYRA_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    /// The directory that tools work in [default: `workspace_root` of the configuration, or the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,

    /// The port of the HTTP door on 127.0.0.1, 0 for any free one [default: `port` in `[http]` of the configuration]
    #[arg(long, env = "PALYRA_HTTP_PORT", value_name = "PORT")]
    http_port: Option<u16>,

    /// The port for paired devices, in place of the configuration's; 0 for any free one. Pairing takes the one after it
    #[arg(long, env = "PALYRA_REMOTE_PORT", value_name = "PORT")]
    remote_port: Option<u16>,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Verify the journal in the state directory, without serving
    Verify {
        /// A checkpoint to compare with, as `palyra journal checkpoint` printed it
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
    },
    /// Check the configuration and the policies, without serving
    Check,
    /// Say which toolchains this user has that runs could be shown, as JSON
    Toolchains,
    Sandbox(Box<Sandbox>),
    /// Write, try, package and verify skills, without serving; `palyra skills` is the friendlier door to this
    Skills(Box<SkillsAuthor>),
    /// Work on a policy directory, without serving; `palyra policy` is the friendlier door to this
    #[command(subcommand)]
    Policy(policy::Command),
    /// Deal with a signing key that the daemon does not start on
    #[command(subcommand)]
    Key(Key),
    /// Deal with a journal that was lost
    #[command(subcommand)]
    Journal(Journal),
    /// Deal with an access registry that the daemon does not start on
    #[command(subcommand)]
    Access(Access),
    /// Deal with a device registry that lets no device in
    #[command(subcommand)]
    Devices(Devices),
}

#[derive(Debug, Subcommand)]
enum Key {
    /// Go on with the key that is in the state directory, or with a new one if none is. Attestations of the old key
    /// stay valid as the old key's
    Accept,
}

#[derive(Debug, Subcommand)]
enum Journal {
    /// Begin another journal where the old one was lost: all grants, idempotency keys, budgets and history are given up
    Begin,
}

#[derive(Debug, Subcommand)]
enum Access {
    /// Accept `access_registry.json` as it stands, though the daemon did not write it. Read it first: whoever is in it
    /// has the rights it says
    Accept,
    /// Put the registry aside and start over: no tokens, and `user:local` as the only owner
    Reset,
}

#[derive(Debug, Subcommand)]
enum Devices {
    /// Put the registry aside and start over: every device has to be paired again
    Reset,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return misread(&error),
    };
    let started = std::time::Instant::now();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PALYRA_LOG").unwrap_or_else(|_| "info,rmcp=error".into()),
        )
        .init();
    let format = match &args.command {
        Some(Command::Policy(command)) => command.format(),
        _ => policy::Format::Text,
    };
    let tries_a_command = matches!(args.command, Some(Command::Sandbox(_)));
    let result =
        match serve::Setup::new(args.state_dir, args.config, args.workspace, (args.http_port, args.remote_port)) {
            Ok(setup) => match args.command {
                None => serve::run(setup, started),
                Some(Command::Verify { against }) => verify::run(&setup, against.as_deref()),
                Some(Command::Check) => serve::check(&setup),
                Some(Command::Toolchains) => Ok(toolchains()),
                Some(Command::Sandbox(command)) => Ok(sandbox::command(&setup, *command)),
                Some(Command::Skills(command)) => Ok(skills::command(*command)),
                Some(Command::Policy(command)) => policy::run(&setup, command),
                Some(Command::Key(Key::Accept)) => keys::accept(&setup),
                Some(Command::Journal(Journal::Begin)) => keys::begin_journal(&setup),
                Some(Command::Access(Access::Accept)) => access::accept(&setup),
                Some(Command::Access(Access::Reset)) => access::reset(&setup),
                Some(Command::Devices(Devices::Reset)) => devices::reset(&setup),
            },
            Err(error) => Err(error),
        };
    match result {
        Ok(code) => code,
        Err(error) => {
            report(&error, format);
            match error {
                // Not to be taken for the code of a command that never ran.
                _ if tries_a_command => ExitCode::from(REFUSED),
                serve::DaemonError::State(state::StateError::Locked { .. }) => ExitCode::from(STATE_HELD),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Prints the toolchains that are installed, and those that are known.
fn toolchains() -> ExitCode {
    let home = std::env::home_dir().unwrap_or_default();
    let at = palyra_sandbox::Whereabouts { home: &home, variable: |name| std::env::var(name).ok() };
    let installed = palyra_sandbox::installed_toolchains(at);
    let document = serde_json::json!({ "installed": installed, "known": palyra_sandbox::toolchain_names() });
    match writeln!(std::io::stdout(), "{document}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says what the parser has to say: help that cannot be written is a failure, unless its reader has gone away.
fn misread(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(why) if !error.use_stderr() && why.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX)),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a program that does not start")]
fn report(error: &serve::DaemonError, format: policy::Format) {
    if format == policy::Format::Json {
        let error = serde_json::json!({ "code": error.code(), "message": error.to_string(), "hint": error.hint() });
        eprintln!("{}", serde_json::json!({ "error": error }));
        return;
    }
    let mut said = error.to_string();
    eprintln!("error: {said}");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        // Many an error speaks its cause's words already.
        let text = inner.to_string();
        if !said.contains(&text) {
            eprintln!("  because: {text}");
            said = text;
        }
        cause = inner.source();
    }
}
