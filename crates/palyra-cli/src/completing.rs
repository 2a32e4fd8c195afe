//! What a shell completes that only the daemon knows: approvals, calls, grants, tools, principals.
//!
//! The shell runs this program for every Tab, so that it answers soon or not at all, and never with an error on the
//! screen.

use crate::context::Context;
use clap_complete::CompletionCandidate;
use palyra_api::Connection;
use palyra_api::v1::{ListAgentsRequest, ListCallsRequest, ListGrantsRequest, ListMembersRequest, ListToolsRequest};
use serde_json::Value;
use std::time::Duration;

/// How long a daemon may take.
const PATIENCE: Duration = Duration::from_millis(800);

/// Asks the daemon; nothing where it does not answer.
fn ask<F: Future<Output = Option<Vec<CompletionCandidate>>>>(
    question: impl FnOnce(Connection) -> F,
) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let asked = async {
        let token = std::env::var("PALYRA_TOKEN").ok();
        let context = Context::new(state_dir(), crate::args::Format::Json, None, token).ok()?;
        question(context.connect().await.ok()?).await
    };
    // The time limit needs the runtime that it counts in.
    let answered = runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await });
    answered.ok().flatten().unwrap_or_default()
}

/// The state directory as the words before the cursor say it, or the environment.
fn state_dir() -> Option<std::path::PathBuf> {
    let words: Vec<_> = std::env::args_os().collect();
    let named = words.iter().position(|word| word == "--state-dir").and_then(|at| words.get(at + 1)).cloned();
    named.or_else(|| std::env::var_os("PALYRA_STATE_DIR")).map(Into::into)
}

fn candidate(value: impl Into<String>, help: &str) -> CompletionCandidate {
    let help: String = crate::text::safe(help).chars().take(60).collect();
    CompletionCandidate::new(value.into()).help(Some(help.into()))
}

pub fn approvals() -> Vec<CompletionCandidate> {
    ask(|connection| async move {
        let waiting = crate::commands::approvals::every_page(&connection, false).await.ok()?;
        let told = |record: &_| crate::commands::approvals::short(record);
        let mut found: Vec<_> = waiting.iter().map(|r| candidate(r.approval_id.to_string(), &told(r))).collect();
        found.push(candidate("latest", "the newest that waits"));
        Some(found)
    })
}

pub fn grants() -> Vec<CompletionCandidate> {
    ask(|connection| async move {
        let reply = connection.grants().list(ListGrantsRequest::default()).await.ok()?.into_inner();
        let grants = reply.grants.iter().filter_map(|grant| serde_json::from_str::<Value>(&grant.grant_json).ok());
        Some(grants.filter_map(|grant| Some(candidate(grant["grant_id"].as_str()?, grant["tool"].as_str()?))).collect())
    })
}

pub fn calls() -> Vec<CompletionCandidate> {
    ask(|connection| async move {
        let request = ListCallsRequest { most: 30, ..ListCallsRequest::default() };
        let reply = connection.calls().list(request).await.ok()?.into_inner();
        let calls = reply.calls_json.iter().filter_map(|call| serde_json::from_str::<Value>(call).ok());
        Some(calls.filter_map(|call| Some(candidate(call["call_id"].as_str()?, call["what"].as_str()?))).collect())
    })
}

pub fn tools() -> Vec<CompletionCandidate> {
    ask(|connection| async move {
        let reply = connection.tools().list(ListToolsRequest {}).await.ok()?.into_inner();
        Some(reply.tools.iter().map(|tool| candidate(tool.name.clone(), &tool.summary)).collect())
    })
}

pub fn principals() -> Vec<CompletionCandidate> {
    ask(|connection| async move {
        let mut documents =
            connection.access().list_agents(ListAgentsRequest {}).await.ok()?.into_inner().documents_json;
        if let Ok(members) = connection.access().list_members(ListMembersRequest {}).await {
            documents.extend(members.into_inner().documents_json);
        }
        let read = documents.iter().filter_map(|document| serde_json::from_str::<Value>(document).ok());
        Some(read.filter_map(|who| Some(candidate(who["principal"].as_str()?, ""))).collect())
    })
}
