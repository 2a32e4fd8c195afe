//! `palyra approvals`: what waits for a person, shown exactly as it would run.

use super::read;
use crate::args::{Approvals, Decide, Decision, Matcher, Scope};
use crate::context::Context;
use crate::exit::{Failure, REFUSED};
use crate::output::{self, BAD, BOLD, DIM, GOOD, WARN, note, remaining, say, styled, when};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{self, Approval, DecideRequest, GetApprovalRequest, ListApprovalsRequest, WatchApprovalsRequest};
use palyra_protocol::{ApprovalRecord, ApprovalScope, ApprovalState, Card, RiskLevel, speaker};

pub async fn run(context: &Context, command: Approvals) -> Result<(), Failure> {
    if let Approvals::Decide(answer) = &command {
        check(answer)?;
    }
    let connection = context.connect().await?;
    match command {
        Approvals::List { all } => {
            let approvals = every_page(&connection, all).await?;
            list(context, &approvals)
        }
        Approvals::Show { approval } => card(context, &fetch(&connection, approval.as_str()).await?),
        Approvals::Decide(answer) => decide(context, &connection, answer).await,
        Approvals::Watch => watch(context, &connection).await,
    }
}

/// Every question: the daemon tells them page by page, because one can be large.
async fn every_page(connection: &Connection, all: bool) -> Result<Vec<ApprovalRecord>, Failure> {
    let mut approvals: Vec<ApprovalRecord> = Vec::new();
    loop {
        let after = approvals.last().map_or_else(String::new, |last| last.approval_id.to_string());
        let page = connection.approvals().list(ListApprovalsRequest { all, after }).await?.into_inner();
        for Approval { approval_json } in &page.approvals {
            approvals.push(read(approval_json)?);
        }
        if !page.more {
            return Ok(approvals);
        }
    }
}

async fn fetch(connection: &Connection, id: &str) -> Result<ApprovalRecord, Failure> {
    let request = GetApprovalRequest { approval_id: id.to_owned() };
    read(&connection.approvals().get(request).await?.into_inner().approval_json)
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
        .map(|a| {
            let left = if a.state == ApprovalState::Pending { remaining(a.expires_at) } else { String::new() };
            vec![
                a.approval_id.to_string(),
                a.state.as_str().to_owned(),
                a.risk.to_string(),
                a.principal.to_string(),
                left,
                short(a),
            ]
        })
        .collect();
    output::table(&["APPROVAL", "STATE", "RISK", "WHO", "LEFT", "WHAT"], &rows);
    Ok(())
}

/// What would run, on one line.
fn short(approval: &ApprovalRecord) -> String {
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

/// A question, whole: nothing of what would run is left out.
fn card(context: &Context, approval: &ApprovalRecord) -> Result<(), Failure> {
    if context.json() {
        return output::json(approval);
    }
    let risk = match approval.risk {
        RiskLevel::Low => styled(GOOD, "low"),
        RiskLevel::Medium => styled(WARN, "medium"),
        RiskLevel::High | RiskLevel::Critical => styled(BAD, approval.risk),
    };
    say!("{}  {}  risk {risk}", styled(BOLD, &approval.approval_id), styled(BOLD, &approval.tool));
    let card = Card::of(approval);
    if let Some(command) = &card.command {
        say!("\n    {}\n", styled(BOLD, command));
    }
    let more = [
        ("asked", Some(when(approval.requested_at))),
        ("needs", (approval.people > 1 || approval.fresh).then(|| people(approval))),
        ("state", Some(state(approval))),
        ("digest", Some(styled(DIM, approval.call_digest))),
    ];
    let more = more.into_iter().filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in card.facts.into_iter().chain(more) {
        say!("  {}{}{value}", styled(BOLD, name), " ".repeat(13 - name.len()));
    }
    let heading = if approval.subject.is_call() { "input" } else { approval.subject.kind() };
    say!("\n{}\n{}", styled(BOLD, heading), card.input);
    if approval.state == ApprovalState::Pending {
        note!("\n{}", styled(DIM, format!("palyra approvals decide {} allow|deny", approval.approval_id)));
    }
    Ok(())
}

/// Who has to approve this very call, and who has.
fn people(approval: &ApprovalRecord) -> String {
    if approval.people == 1 && !approval.subject.is_call() {
        return "an answer about just what is shown".to_owned();
    }
    if approval.people == 1 {
        return "an answer about this very call, which no grant covers".to_owned();
    }
    let given: Vec<_> = approval.given.iter().map(|given| speaker(&given.by, given.token.as_ref())).collect();
    let given = if given.is_empty() { "nobody".to_owned() } else { given.join(", ") };
    format!("{} different people; approved so far by {given}", approval.people)
}

fn state(approval: &ApprovalRecord) -> String {
    match &approval.resolution {
        None => format!("{} for another {}", approval.state.as_str(), remaining(approval.expires_at)),
        Some(end) => {
            let scope = match end.scope {
                _ if approval.state != ApprovalState::Allowed => String::new(),
                ApprovalScope::Once => ", once".to_owned(),
                ApprovalScope::Session => format!(", for the session: {}", safe(&end.matcher.describe())),
                ApprovalScope::Window { ms } => format!(", for {} min: {}", ms / 60_000, safe(&end.matcher.describe())),
            };
            let reason = end.reason.as_deref().map_or_else(String::new, |r| format!(" ({})", safe(r)));
            format!("{} by {} at {}{scope}{reason}", approval.state.as_str(), end.by, when(end.at))
        }
    }
}

/// An option that would take no effect was meant to take one.
fn check(answer: &Decide) -> Result<(), Failure> {
    if answer.window.is_some() && answer.scope != Scope::Window {
        return Err(Failure::usage("`--for` says how long a window is", "add `--scope window`, or leave `--for` out"));
    }
    if answer.words.is_some() && answer.matcher != Matcher::ArgvPrefix {
        return Err(Failure::usage(
            "`--words` says how long an argv prefix is",
            "add `--match argv-prefix`, or leave `--words` out",
        ));
    }
    Ok(())
}

async fn decide(context: &Context, connection: &Connection, answer: Decide) -> Result<(), Failure> {
    let argv_prefix = match (answer.matcher, answer.words) {
        (Matcher::ArgvPrefix, Some(words)) => {
            let asked = fetch(connection, answer.approval.as_str()).await?;
            let argv = asked.facets.argv;
            if argv.is_empty() {
                return Err(Failure::new(
                    REFUSED,
                    "approval_scope",
                    format!("a call of `{}` runs no command, so there are no words to compare", asked.tool),
                    Some("choose `--match exact` or `--match tool`"),
                ));
            }
            if words == 0 || words > argv.len() {
                let message = format!("the command that was shown has {} words", argv.len());
                return Err(Failure::new(
                    REFUSED,
                    "approval_scope",
                    message,
                    Some("choose `--words` between 1 and that"),
                ));
            }
            argv[..words].to_vec()
        }
        _ => Vec::new(),
    };
    let request = DecideRequest {
        approval_id: answer.approval.to_string(),
        allow: answer.decision == Decision::Allow,
        reason: answer.reason.unwrap_or_default(),
        scope: match answer.scope {
            Scope::Once => v1::Scope::Once,
            Scope::Session => v1::Scope::Session,
            Scope::Window => v1::Scope::Window,
        }
        .into(),
        window_ms: answer.window.map_or(0, |w| u64::try_from(w.as_millis()).unwrap_or(u64::MAX)),
        matcher: match answer.matcher {
            Matcher::Exact => v1::Matcher::ExactCall,
            Matcher::ArgvPrefix => v1::Matcher::ArgvPrefix,
            Matcher::Tool => v1::Matcher::Tool,
        }
        .into(),
        argv_prefix,
    };
    let record: ApprovalRecord = read(&connection.approvals().decide(request).await?.into_inner().approval_json)?;
    if context.json() {
        return output::json(&record);
    }
    let mark = match record.state {
        ApprovalState::Allowed => styled(GOOD, "✔"),
        ApprovalState::Pending => styled(WARN, "●"),
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Cancelled => styled(BAD, "✘"),
    };
    say!("{mark} {}: {}", record.approval_id, state(&record));
    if record.state == ApprovalState::Pending {
        say!("  your yes is recorded; it needs {}", people(&record));
    }
    if let Some(grant) = record.resolution.and_then(|end| end.grant) {
        note!("{}", styled(DIM, format!("this left a standing answer; withdraw it: palyra grants revoke {grant}")));
    }
    Ok(())
}

async fn watch(context: &Context, connection: &Connection) -> Result<(), Failure> {
    let mut stream = connection.approvals().watch(WatchApprovalsRequest {}).await?.into_inner();
    if !context.json() {
        note!("{}", styled(DIM, "watching; Ctrl-C ends"));
    }
    loop {
        let approval = tokio::select! {
            approval = stream.message() => approval?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(approval) = approval else { return Err(Failure::daemon_ended()) };
        let record: ApprovalRecord = read(&approval.approval_json)?;
        if context.json() {
            output::json(&record)?;
        } else if record.state == ApprovalState::Pending {
            card(context, &record)?;
        } else {
            say!("{}  {}", record.approval_id, state(&record));
        }
    }
}
