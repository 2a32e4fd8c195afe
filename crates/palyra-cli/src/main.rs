//! `palyra`: the command line. It is a client of the daemon and knows nothing of its rooms.

#![expect(unreachable_pub, reason = "a binary exports nothing; `pub` here means: used by other files")]

mod answering;
mod args;
mod commands;
mod completing;
mod context;
mod delegate;
mod device_keys;
mod exit;
mod hosts;
mod output;
mod review;
mod text;
mod tui;
mod usage;

use args::connect::Mcp;
use args::{Cli, Command};
use clap::{CommandFactory as _, Parser as _};
use context::Context;
use exit::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A shell that asks for completions gets them, and nothing else is done.
    clap_complete::CompleteEnv::with_factory(Cli::command).var(commands::COMPLETE).complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::answer(&error),
    };
    let format = cli.output;
    output::answer_in(format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(begin(cli));
            // A write that nobody reads must not hold the end up.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::io("the runtime did not start", &error)),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            output::failure(format, &failure);
            ExitCode::from(failure.exit)
        }
    }
}

/// Refuses what is about this machine alone where another was named.
fn about_this_machine(context: &Context, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Init(_) => context.must_be_local("init"),
        Command::Up(_) => context.must_be_local("up"),
        Command::Down => context.must_be_local("down"),
        Command::Connect(_) => context.must_be_local("connect"),
        Command::Disconnect(_) => context.must_be_local("disconnect"),
        Command::Console(_) => context.must_be_local("console"),
        Command::Sandbox(_) => context.must_be_local("sandbox"),
        _ => Ok(()),
    }
}

/// What is the same wherever it is typed: these commands start and end the daemon, or say themselves which workspace they
/// are about.
fn is_about_the_daemon(command: &Command) -> bool {
    matches!(
        command,
        Command::Init(_)
            | Command::Up(_)
            | Command::Down
            | Command::Workspaces(_)
            | Command::Connect(_)
            | Command::Disconnect(_)
    )
}

/// What clients run ends as they expect; everything else as people do.
async fn begin(cli: Cli) -> Result<ExitCode, Failure> {
    let for_client = matches!(cli.command, Command::Hook(_) | Command::Redeem(_));
    let host = if for_client { Some(hosts::LOCAL.to_owned()) } else { cli.host };
    let context = Context::new(cli.state_dir, cli.output, cli.act_as, cli.token)?.at(host)?;
    let context = context.working_in(cli.workspace.as_deref());
    match cli.command {
        Command::Hook(hook) => Ok(commands::hook::hook(&context, hook).await),
        Command::Redeem(redeem) => Ok(commands::redeem::redeem(&context, redeem).await),
        command => run(context, command).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn run(context: Context, command: Command) -> Result<(), Failure> {
    about_this_machine(&context, &command)?;
    let context = if is_about_the_daemon(&command) { context.anywhere() } else { context };
    match command {
        // Answered before.
        Command::Hook(_) | Command::Redeem(_) => Ok(()),
        Command::Init(init) => commands::init::init(&context, init).await,
        Command::Up(up) => commands::up::up(&context, up).await,
        Command::Down => commands::up::down(&context).await,
        Command::Status => commands::status::status(&context).await,
        Command::Doctor => commands::doctor::doctor(&context).await,
        Command::Workspaces(command) => commands::workspaces::run(&context, command).await,
        Command::Tools(command) => commands::tools::run(&context, command).await,
        Command::Call(call) => commands::call::call(&context, call).await,
        Command::Exec(exec) => commands::call::exec(&context, exec).await,
        Command::Run(run) => commands::runs::run(&context, run).await,
        Command::Chat(chat) => commands::runs::chat(&context, chat).await,
        Command::Runs(command) => commands::runs::runs(&context, command).await,
        Command::Models(command) => commands::models::run(&context, command).await,
        Command::Calls(command) => commands::call::calls(&context, command).await,
        Command::Approvals(command) => commands::approvals::run(&context, command).await,
        Command::Effects(command) => commands::effects::run(&context, command).await,
        Command::Undo(undo) => commands::effects::undo(&context, undo).await,
        Command::Tui(options) => tui::run(&context, &options).await,
        Command::Console(console) => commands::console::run(&context, console).await,
        Command::Grants(command) => commands::grants::run(&context, command).await,
        Command::Policy(command) => commands::policy::run(&context, command).await,
        Command::Access(command) => commands::access::run(&context, command).await,
        Command::Memory(command) => commands::memory::run(&context, command).await,
        Command::Routines(command) => commands::routines::run(&context, command).await,
        Command::Vault(command) => commands::vault::run(&context, command).await,
        Command::Pairing(command) => commands::pairing::run(&context, command).await,
        Command::Pair(pair) => commands::pair::pair(&context, pair).await,
        Command::Devices(command) => commands::devices::run(&context, command).await,
        Command::Skills(command) => commands::skills::run(&context, *command).await,
        Command::Hosts(command) => commands::hosts::run(&context, command).await,
        Command::Connect(request) => commands::connect::connect(&context, request).await,
        Command::Disconnect(request) => commands::connect::disconnect(&context, request).await,
        Command::Mcp(Mcp::Serve(serve)) => commands::mcp::serve(&context, serve).await,
        Command::Mcp(Mcp::Guard) => commands::mcp::guard(),
        Command::Config(command) => commands::config::run(&context, command).await,
        Command::Journal(command) => commands::journal::run(&context, command).await,
        Command::Attest(command) => commands::attest::run(&context, command).await,
        Command::Sandbox(_) => commands::sandbox::hand_over(&context),
        Command::Completions { shell } => commands::completions(shell),
    }
}
