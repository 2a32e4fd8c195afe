//! `palyra redeem`: starts the command that a hook's ticket was made for, and behaves like it: its output, its exit
//! code, its end when this program is ended.

use super::hook;
use super::live::{self, Live};
use super::read_optional;
use crate::args::hook::Redeem;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::note;
use palyra_api::Connection;
use palyra_api::v1::RedeemRequest;
use palyra_protocol::{CallState, ToolOutcome};
use serde_json::Value;
use std::io::Write as _;
use std::process::ExitCode;

/// As shells and `timeout` say it: a limit ended it, nothing ran because Palyra did not, it could not be started.
const LIMITED: u8 = 124;
const NOT_ASKED: u8 = 125;
const NOT_RUN: u8 = 126;

pub async fn redeem(context: &Context, redeem: Redeem) -> ExitCode {
    match run(context, &redeem).await {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let hint = failure.hint.map_or_else(String::new, |hint| format!(" ({hint})"));
            note!("palyra: {}{hint}", failure.message);
            ExitCode::from(NOT_ASKED)
        }
    }
}

async fn run(context: &Context, redeem: &Redeem) -> Result<u8, Failure> {
    let Some(ticket) = redeem.ticket() else {
        return Err(Failure::usage("this is no ticket", "tickets are made by `palyra hook` for one command each"));
    };
    let connection = Connection::open(&context.socket(), None).await?.at(context.place())?;
    let request = RedeemRequest { ticket: ticket.expose().to_owned() };
    let mut updates = connection.calls().redeem(request).await?.into_inner();
    let mut live = Live::new();
    loop {
        let Some(update) = updates.message().await? else {
            return Err(Failure::usage("the daemon ended before the command did", "see `palyra journal tail`"));
        };
        if let Some(piece) = &update.output {
            live.show(piece).await;
        }
        let Some(outcome) = read_optional::<ToolOutcome>(&update.outcome_json)? else { continue };
        let output = outcome.output.clone().unwrap_or_default();
        if live::is_process(&output) {
            live.finish(&output, &update.call_id).await?;
        }
        told(&outcome, &output);
        if let (Some(fd), Some(directory)) = (redeem.directory_fd, output["final_directory"].as_str()) {
            tell_directory(fd, directory)?;
        }
        return Ok(exit_code(&outcome, &output));
    }
}

/// Says what the command itself does not know: that Palyra ended it, or kept it from the network.
fn told(outcome: &ToolOutcome, output: &Value) {
    if let Some(problem) =
        outcome.problem.as_ref().filter(|problem| problem.code != "nonzero_exit" || problem.hint.is_some())
    {
        let hint = problem.hint.as_deref().map_or_else(String::new, |hint| format!(" ({hint})"));
        note!("palyra: {}{hint}", problem.message);
    }
    if output["egress"]["denied"].as_u64().is_some_and(|denied| denied > 0) {
        let hosts = hook::HOSTS;
        note!("palyra: a command reaches the hosts that it begins with: `{hosts}example.org COMMAND`");
    }
    for note in output["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        note!("palyra: {note}");
    }
}

fn exit_code(outcome: &ToolOutcome, output: &Value) -> u8 {
    let number = |name: &str| output[name].as_i64().and_then(|number| u8::try_from(number).ok());
    match (outcome.state, number("exit_code"), number("signal")) {
        (CallState::Succeeded, code, _) => code.unwrap_or(0),
        _ if output["ended_by"].is_string() => LIMITED,
        (_, Some(code), _) if code > 0 => code,
        (_, _, Some(signal)) => signal.saturating_add(128),
        _ => NOT_RUN,
    }
}

/// Writes a directory to a descriptor that the shell around this program reads.
fn tell_directory(fd: i32, directory: &str) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io("the shell cannot be told its directory", &e);
    let mut shell = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{fd}")).map_err(failed)?;
    shell.write_all(directory.as_bytes()).map_err(failed)
}
