//! `palyra run`, `palyra chat` and `palyra runs`.

mod follow;
mod print;

use super::read;
use crate::args::runs::{Chat, Run, Runs, Who};
use crate::context::Context;
use crate::exit::{CANCELLED, Failure};
use crate::output::{self, DIM, note, say, styled};
use crate::text::safe;
use follow::{Following, Interrupt};
use palyra_api::v1::{
    CancelRunRequest, GetRunRequest, ListRunsRequest, ResumeRunRequest, StartRunRequest, StreamRunRequest,
};
use print::ended;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use tokio::signal::unix::{SignalKind, signal};

/// The longest prompt.
const MAX_PROMPT: u64 = 1 << 20;

pub async fn run(context: &Context, run: Run) -> Result<(), Failure> {
    let prompt = match run.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().take(MAX_PROMPT).read_to_string(&mut text);
            read.map_err(|e| Failure::io("the prompt cannot be read", &e))?;
            text
        }
        text => text.to_owned(),
    };
    let connection = context.connect().await?;
    let updates = connection.runs().start(request(prompt, &run.who)).await?.into_inner();
    let mut following = Following::new(context, connection, updates, Interrupt::Cancels);
    if run.detach {
        let run = following.opened().await?;
        if context.json() {
            return output::json(&serde_json::json!({ "run": run }));
        }
        say!("{run}");
        note!("{}", styled(DIM, format!("follow it: palyra runs follow {run}")));
        return Ok(());
    }
    following.follow_to_end().await
}

fn request(prompt: String, who: &Who) -> StartRunRequest {
    StartRunRequest {
        prompt,
        model: who.model.clone().unwrap_or_default(),
        agent: who.agent.clone().unwrap_or_default(),
        session: who.session.clone().map_or_else(String::new, String::from),
    }
}

/// Talks until the person ends it. A run that fails ends that run, not the chat.
pub async fn chat(context: &Context, chat: Chat) -> Result<(), Failure> {
    if context.json() {
        return Err(Failure::usage("a chat is for people", "use `palyra run --session NAME --output json`"));
    }
    let mut who = chat.who;
    note!("{}", styled(DIM, "an empty line ends the chat; Ctrl-C ends what is under way"));
    while let Some(prompt) = typed().await? {
        let connection = context.connect().await?;
        let updates = connection.runs().start(request(prompt, &who)).await?.into_inner();
        let mut following = Following::new(context, connection, updates, Interrupt::Cancels);
        if let Err(failure) = following.follow_to_end().await {
            output::failure(palyra_api::command_line::Format::Text, &failure);
        }
        if let Some(session) = following.session() {
            who.session = Some(session);
        }
    }
    if let Some(session) = &who.session {
        note!("{}", styled(DIM, format!("go on: palyra chat --session {session}")));
    }
    Ok(())
}

/// A line that a person typed; nothing at the end. Nothing else reads the terminal meanwhile.
async fn typed() -> Result<Option<String>, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let mut err = std::io::stderr();
        drop(write!(err, "> ").and_then(|()| err.flush()));
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|e| Failure::io("Ctrl-C cannot be heard", &e))?;
    let line = tokio::select! {
        line = read => line.map_err(|e| Failure::bug(&e))?.map_err(|e| Failure::io("the line cannot be read", &e))?,
        _ = interrupted.recv() => return Err(Failure::new(CANCELLED, "interrupted", "interrupted", None)),
    };
    let line = line.trim().to_owned();
    Ok(Some(line).filter(|line| !line.is_empty()))
}

pub async fn runs(context: &Context, command: Runs) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Runs::List { most } => {
            let told = connection.runs().list(ListRunsRequest { before: 0, most }).await?.into_inner();
            let runs: Vec<Value> = told.runs_json.iter().map(|run| read(run)).collect::<Result<_, _>>()?;
            if context.json() {
                return output::json(&runs);
            }
            print::list(&runs);
            Ok(())
        }
        Runs::Show { run } => {
            let told = connection.runs().get(GetRunRequest { run: run.into() }).await?.into_inner();
            let shown: Value = read(&told.run_json)?;
            if context.json() {
                return output::json(&shown);
            }
            print::show(&shown);
            Ok(())
        }
        Runs::Follow { run } => {
            let updates = connection.runs().stream(StreamRunRequest { run: run.into() }).await?.into_inner();
            Following::new(context, connection, updates, Interrupt::Leaves).follow_to_end().await
        }
        Runs::Cancel { run } => {
            let told = connection.runs().cancel(CancelRunRequest { run: run.into() }).await?.into_inner();
            let shown: Value = read(&told.run_json)?;
            if context.json() {
                return output::json(&shown);
            }
            say!(
                "{}  {}",
                safe(shown["run"].as_str().unwrap_or_default()),
                safe(shown["state"].as_str().unwrap_or(""))
            );
            Ok(())
        }
        Runs::Resume { run } => {
            // Followed from before it goes on, so that nothing is missed.
            let id = String::from(run);
            connection.runs().resume(ResumeRunRequest { run: id.clone() }).await?;
            let updates = connection.runs().stream(StreamRunRequest { run: id }).await?.into_inner();
            Following::new(context, connection, updates, Interrupt::Leaves).follow_to_end().await
        }
    }
}

/// How a run that has ended ends this program.
fn outcome(state: &str, problem: &Value) -> Result<(), Failure> {
    ended(state, problem).map_or(Ok(()), Err)
}
