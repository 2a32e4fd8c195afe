//! `palyra`: the command line. It is a client of the daemon and knows nothing of its rooms.

#![expect(unreachable_pub, reason = "a binary exports nothing; `pub` here means: used by other files")]

mod args;
mod commands;
mod context;
mod delegate;
mod exit;
mod output;
mod text;
mod usage;

use args::connect::Mcp;
use args::{Cli, Command};
use clap::Parser as _;
use context::Context;
use exit::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::answer(&error),
    };
    let format = cli.output;
    output::answer_in(format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(run(cli));
            // A write that nobody reads must not hold the end up.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::io("the runtime did not start", &error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::failure(format, &failure);
            ExitCode::from(failure.exit)
        }
    }
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let context = Context::new(cli.state_dir, cli.output, cli.act_as, cli.token)?;
    match cli.command {
        Command::Up(up) => commands::up::up(&context, up).await,
        Command::Down => commands::up::down(&context).await,
        Command::Status => commands::status::status(&context).await,
        Command::Doctor => commands::doctor::doctor(&context).await,
        Command::Tools(command) => commands::tools::run(&context, command).await,
        Command::Call(call) => commands::call::call(&context, call).await,
        Command::Calls(command) => commands::call::calls(&context, command).await,
        Command::Approvals(command) => commands::approvals::run(&context, command).await,
        Command::Grants(command) => commands::grants::run(&context, command).await,
        Command::Policy(command) => commands::policy::run(&context, command).await,
        Command::Access(command) => commands::access::run(&context, command).await,
        Command::Connect(request) => commands::connect::connect(&context, request).await,
        Command::Disconnect(request) => commands::connect::disconnect(&context, request).await,
        Command::Mcp(Mcp::Serve(serve)) => commands::mcp::serve(&context, serve).await,
        Command::Mcp(Mcp::Guard) => commands::mcp::guard(),
        Command::Journal(command) => commands::journal::run(&context, command).await,
        Command::Attest(command) => commands::attest::run(&context, command).await,
        Command::Sandbox(_) => commands::sandbox::hand_over(&context),
        Command::Completions { shell } => {
            commands::completions(shell);
            Ok(())
        }
    }
}
