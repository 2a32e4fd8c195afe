//! `palyra grants`: standing answers.

use super::read;
use crate::args::Grants;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, GOOD, remaining, say, styled};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{GetGrantRequest, Grant, ListGrantsRequest, RevokeGrantRequest};
use palyra_protocol::{Clock as _, GrantEffect, GrantMatcher, GrantRecord, SystemClock};
use serde_json::{Value, json};

pub async fn run(context: &Context, command: Grants) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Grants::List => {
            let mut grants = every_page(&connection).await?;
            // The newest last, where the eye is.
            grants.reverse();
            list(context, &grants)
        }
        Grants::Show { grant } => show(context, &connection, grant.as_str()).await,
        Grants::Revoke { grant } => {
            let request = RevokeGrantRequest { grant_id: grant.into() };
            let grant: GrantRecord = read(&connection.grants().revoke(request).await?.into_inner().grant_json)?;
            if context.json() {
                return output::json(&grant);
            }
            say!("{} {} is withdrawn; the next call asks again", styled(GOOD, "✔"), grant.grant_id);
            Ok(())
        }
    }
}

/// One, with what it let through or denied.
async fn show(context: &Context, connection: &Connection, id: &str) -> Result<(), Failure> {
    let reply = connection.grants().get(GetGrantRequest { grant_id: id.to_owned() }).await?.into_inner();
    let grant: GrantRecord = read(&reply.grant_json)?;
    let calls = reply.calls_json.iter().map(|call| read(call)).collect::<Result<Vec<Value>, _>>()?;
    if context.json() {
        return output::json(&json!({ "grant": grant, "calls": calls }));
    }
    let word = if grant.effect == GrantEffect::Deny { "denies" } else { "lets through" };
    say!("{}  {word} {}", grant.grant_id, covers(&grant));
    say!("holds: {}; given by {}; used {} times", holds(&grant), grant.granted_by, grant.uses);
    super::call_list::table(&calls);
    Ok(())
}

/// Every standing answer, newest first: the daemon tells them page by page.
async fn every_page(connection: &Connection) -> Result<Vec<GrantRecord>, Failure> {
    let mut grants: Vec<GrantRecord> = Vec::new();
    loop {
        let before = grants.last().map_or_else(String::new, |last| last.grant_id.to_string());
        let page = connection.grants().list(ListGrantsRequest { before }).await?.into_inner();
        for Grant { grant_json } in &page.grants {
            grants.push(read(grant_json)?);
        }
        if !page.more {
            return Ok(grants);
        }
    }
}

/// Whether and how long it holds.
fn holds(grant: &GrantRecord) -> String {
    if let Some(why) = &grant.void {
        return format!("void: {}", safe(why));
    }
    match (grant.revoked_at, grant.expires_at, &grant.session) {
        (Some(_), _, _) => "revoked".to_owned(),
        (None, Some(at), _) if at <= SystemClock.now() => "expired".to_owned(),
        (None, Some(at), Some(session)) => format!("{}, session {session}", remaining(at)),
        (None, Some(at), None) => remaining(at),
        (None, None, Some(session)) => format!("session {session}"),
        (None, None, None) => "always".to_owned(),
    }
}

/// What it covers: how wide it is, and what was shown when it was given.
fn covers(grant: &GrantRecord) -> String {
    let no = if grant.effect == GrantEffect::Deny { "no to " } else { "" };
    let mut what = format!("{no}{}: {}", grant.tool, safe(&grant.matcher.describe()));
    if let Some(shown) = &grant.shown {
        if grant.matcher == GrantMatcher::ExactCall && !shown.what.is_empty() {
            what.push_str(&format!(": {}", safe(&shown.what)));
        }
        if grant.matcher != GrantMatcher::Tool {
            let place = [("runs", &shown.executable), ("in", &shown.working_directory)];
            for (word, value) in place {
                if let Some(value) = value {
                    what.push_str(&format!(", {word} {}", safe(value)));
                }
            }
        }
    }
    if let Some(workspace) = &grant.workspace {
        what.push_str(&format!(", workspace {}", safe(workspace)));
    }
    what
}

fn list(context: &Context, grants: &[GrantRecord]) -> Result<(), Failure> {
    if context.json() {
        return output::json(&grants);
    }
    if grants.is_empty() {
        say!("No grants and no standing denials.");
        return Ok(());
    }
    let rows: Vec<_> = grants
        .iter()
        .map(|grant| {
            vec![
                grant.grant_id.to_string(),
                holds(grant),
                grant.uses.to_string(),
                grant.principal.to_string(),
                covers(grant),
            ]
        })
        .collect();
    output::table(&["GRANT", "HOLDS", "USES", "WHOSE", "WHAT"], &rows);
    Ok(())
}
