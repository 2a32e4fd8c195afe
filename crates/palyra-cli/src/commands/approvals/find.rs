//! Which approval is meant: its id, the beginning or the end of it, its number in the last list, or `latest`.
//!
//! A number means what the last list on this machine showed under it, whatever came or went since: an answer is never
//! about another approval than the one that was read.

use super::{every_page, fetch};
use crate::answering::Shown;
use crate::context::Context;
use crate::exit::{Failure, REFUSED};
use crate::text::safe;
use palyra_api::Connection;
use palyra_protocol::{ApprovalId, ApprovalRecord, Digest};
use std::path::PathBuf;

/// The fewest characters of an id's beginning or end.
const LEAST: usize = 4;

/// Refuses what can be no approval, before anybody is asked: the id of something else, say.
pub fn check(meant: &str) -> Result<(), Failure> {
    let is_other = meant.split_once('_').is_some_and(|(kind, _)| !kind.eq_ignore_ascii_case("apr"));
    let is_word = !meant.is_empty() && meant.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_word && !is_other {
        return Ok(());
    }
    let message = format!("`{}` is not the id of an approval", safe(meant));
    Err(Failure::usage(
        message,
        "give its id, the beginning or the end of it, its number in `palyra approvals list`, or `latest`",
    ))
}

/// The approval that is meant, as the daemon has it now.
pub async fn approval(context: &Context, connection: &Connection, meant: &str) -> Result<Shown, Failure> {
    let id = match meant.parse::<ApprovalId>() {
        Ok(id) => id,
        Err(_) => named(context, connection, meant).await?,
    };
    fetch(connection, id.as_str()).await
}

async fn named(context: &Context, connection: &Connection, meant: &str) -> Result<ApprovalId, Failure> {
    if let Ok(number) = meant.parse::<usize>()
        && meant.len() < LEAST
    {
        return numbered(context, number);
    }
    let pending = every_page(connection, false).await?;
    if meant == "latest" {
        return latest(context, &pending);
    }
    match alike(&pending, meant).as_slice() {
        [] => {}
        [only] => return Ok(only.clone()),
        several => return Err(ambiguous(meant, several)),
    }
    let all = every_page(connection, true).await?;
    match alike(&all, meant).as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(refused(
            "not_found",
            format!("there is no approval `{}`", safe(meant)),
            "give its id, the beginning or the end of it, its number in `palyra approvals list`, or `latest`",
        )),
        several => Err(ambiguous(meant, several)),
    }
}

fn alike(approvals: &[ApprovalRecord], meant: &str) -> Vec<ApprovalId> {
    let ids = approvals.iter().map(|record| &record.approval_id);
    let fits = |id: &&ApprovalId| {
        let (id, meant) = (id.as_str().to_ascii_lowercase(), meant.to_ascii_lowercase());
        meant.len() >= LEAST && (id.starts_with(&meant) || id.ends_with(&meant))
    };
    ids.filter(fits).cloned().collect()
}

fn ambiguous(meant: &str, ids: &[ApprovalId]) -> Failure {
    let ids: Vec<_> = ids.iter().take(5).map(ToString::to_string).collect();
    let message = format!("`{}` is {} approvals: {}", safe(meant), ids.len(), ids.join(", "));
    refused("ambiguous_id", message, "give more of the id; its last characters differ most")
}

/// The newest that waits, unless it came after the last list: then it was not read.
fn latest(context: &Context, pending: &[ApprovalRecord]) -> Result<ApprovalId, Failure> {
    let Some(newest) = pending.last().map(|record| record.approval_id.clone()) else {
        return Err(refused(
            "not_found",
            "nothing waits for an answer".to_owned(),
            "see all: `palyra approvals list --all`",
        ));
    };
    match listed(context) {
        Some(seen) if !seen.is_empty() && !seen.contains(&newest) && pending.len() > 1 => Err(refused(
            "not_listed",
            format!("`{newest}` came after the last list"),
            "look again: `palyra approvals list`",
        )),
        _ => Ok(newest),
    }
}

fn numbered(context: &Context, number: usize) -> Result<ApprovalId, Failure> {
    let listed = listed(context).unwrap_or_default();
    let found = number.checked_sub(1).and_then(|at| listed.get(at)).cloned();
    found.ok_or_else(|| {
        let message = format!("there was no number {number} in the last list");
        refused("not_listed", message, "look again: `palyra approvals list`")
    })
}

fn refused(code: &str, message: String, hint: &str) -> Failure {
    Failure::new(REFUSED, code, message, Some(hint))
}

/// Where the last list is kept: by the daemon that it came from.
fn place(context: &Context) -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".cache")))?;
    let mut daemon = context.state_dir.as_os_str().as_encoded_bytes().to_vec();
    daemon.extend(context.host().into_iter().flat_map(|host| [b"\0", host.as_str().as_bytes()].concat()));
    let daemon = Digest::of(&daemon);
    Some(base.join("palyra").join(format!("approvals-{}.json", daemon.short())))
}

/// Remembers what a list showed. One that cannot be remembered has no numbers afterwards.
pub fn remember(context: &Context, approvals: &[ApprovalRecord]) {
    let Some(path) = place(context) else { return };
    let ids: Vec<_> = approvals.iter().map(|record| &record.approval_id).collect();
    let Ok(text) = serde_json::to_vec(&ids) else { return };
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
    if written.is_err() {
        // An older list under these numbers would mean others.
        drop(std::fs::remove_file(&path));
    }
}

fn listed(context: &Context) -> Option<Vec<ApprovalId>> {
    let text = std::fs::read(place(context)?).ok()?;
    serde_json::from_slice(&text).ok()
}
