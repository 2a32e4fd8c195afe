//! `palyra approvals`: what waits for a person, shown exactly as it would run, and answered.

mod decide;
mod find;
mod watch;

pub use watch::watch;

use super::read;
use crate::answering::Shown;
use crate::args::Approvals;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, DIM, note, remaining, say, styled, when};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{Approval, GetApprovalRequest, ListApprovalsRequest};
use palyra_protocol::{ApprovalRecord, ApprovalScope, ApprovalState, speaker};

pub async fn run(context: &Context, command: Approvals) -> Result<(), Failure> {
    match &command {
        Approvals::Decide(answer) => decide::check(answer)?,
        Approvals::Show { approval } => find::check(approval)?,
        _ => {}
    }
    match command {
        Approvals::List { all } => {
            let approvals = every_page(&context.connect().await?, all).await?;
            find::remember(context, &approvals);
            list(context, &approvals)
        }
        Approvals::Show { approval } => {
            let connection = context.connect().await?;
            show(context, &find::approval(context, &connection, &approval).await?)
        }
        Approvals::Decide(answer) => decide::decide(context, &context.connect().await?, answer).await,
        Approvals::Watch(options) => watch(context, &options).await,
        Approvals::Count { watch } => watch::count(context, watch).await,
    }
}

/// Every approval: the daemon tells them page by page, because one can be large.
pub async fn every_page(connection: &Connection, all: bool) -> Result<Vec<ApprovalRecord>, Failure> {
    let mut approvals: Vec<ApprovalRecord> = Vec::new();
    loop {
        let after = approvals.last().map_or_else(String::new, |last| last.approval_id.to_string());
        let page = connection.approvals().list(ListApprovalsRequest { all, after }).await?.into_inner();
        for Approval { approval_json, .. } in &page.approvals {
            approvals.push(read(approval_json)?);
        }
        if !page.more {
            return Ok(approvals);
        }
    }
}

/// An approval with its review, as the daemon has it now.
pub async fn fetch(connection: &Connection, id: &str) -> Result<Shown, Failure> {
    let request = GetApprovalRequest { approval_id: id.to_owned() };
    Shown::read(&connection.approvals().get(request).await?.into_inner())
}

fn list(context: &Context, approvals: &[ApprovalRecord]) -> Result<(), Failure> {
    if context.json() {
        return output::json(&approvals);
    }
    if approvals.is_empty() {
        say!("Nothing waits for you.");
        return Ok(());
    }
    let rows: Vec<_> = approvals
        .iter()
        .enumerate()
        .map(|(n, a)| {
            let left = if a.state == ApprovalState::Pending { remaining(a.expires_at) } else { String::new() };
            vec![
                (n + 1).to_string(),
                a.approval_id.to_string(),
                a.state.as_str().to_owned(),
                a.risk.to_string(),
                a.principal.to_string(),
                left,
                short(a),
            ]
        })
        .collect();
    output::table(&["#", "APPROVAL", "STATE", "RISK", "WHO", "LEFT", "WHAT"], &rows);
    note!("{}", styled(DIM, "answer here: palyra approvals watch; one: palyra approvals decide NUMBER allow|deny"));
    Ok(())
}

/// What would run, on one line.
pub fn short(approval: &ApprovalRecord) -> String {
    let facets = &approval.facets;
    let what = match approval.subject.headline().or_else(|| facets.command_line()) {
        Some(what) => what,
        None if !facets.paths_written.is_empty() => facets.paths_written.join(", "),
        None => approval.input.to_string(),
    };
    let what = safe(&what);
    let cut: String = what.chars().take(100).collect();
    let more = if cut.len() < what.len() { "…" } else { "" };
    format!("{} {cut}{more}", approval.tool)
}

/// An approval, whole: nothing of what would run is left out.
fn show(context: &Context, shown: &Shown) -> Result<(), Failure> {
    if context.json() {
        return output::json(&document(shown));
    }
    crate::review::print(&shown.review);
    if shown.record.state == ApprovalState::Pending {
        note!("\n{}", styled(DIM, format!("palyra approvals decide {} allow|deny", shown.record.approval_id)));
    }
    Ok(())
}

/// The record, and while it can be answered the review beside its fields.
fn document(shown: &Shown) -> serde_json::Value {
    let mut document = serde_json::json!(shown.record);
    if shown.record.state == ApprovalState::Pending {
        document["review"] = serde_json::json!(shown.review);
    }
    document
}

/// Who else has to approve.
fn people(approval: &ApprovalRecord) -> String {
    let given: Vec<_> = approval.given.iter().map(|given| speaker(&given.by, given.token.as_ref())).collect();
    let given = if given.is_empty() { "none yet".to_owned() } else { given.join(", ") };
    format!("{} different people; approved so far by {given}", approval.people)
}

/// How an approval stands.
pub fn state(approval: &ApprovalRecord) -> String {
    let Some(end) = &approval.resolution else {
        return format!("{} for another {}", approval.state.as_str(), remaining(approval.expires_at));
    };
    let width = safe(&end.matcher.describe());
    let scope = match (approval.state, end.scope) {
        (ApprovalState::Allowed, ApprovalScope::Once) => ", once".to_owned(),
        (ApprovalState::Allowed | ApprovalState::Denied, ApprovalScope::Session) => {
            format!(", for the session: {width}")
        }
        (ApprovalState::Allowed | ApprovalState::Denied, ApprovalScope::Window { ms }) => {
            format!(", for {} min: {width}", ms / 60_000)
        }
        _ => String::new(),
    };
    let reason = end.reason.as_deref().map_or_else(String::new, |r| format!(" ({})", safe(r)));
    format!("{} by {} at {}{scope}{reason}", approval.state.as_str(), end.by, when(end.at))
}
