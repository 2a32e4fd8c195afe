//! The load: calls of every kind at once, and the hand that kills the daemon in the middle of them.

use crate::{LATEST, Random};
use palyra_api::ApiError;
use palyra_api::v1::{CallUpdate, TailRequest};
use palyra_e2e::{Caller, Host, Proposal};
use palyra_protocol::ApprovalState;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How many callers there are at once.
const CALLERS: u64 = 6;

/// What a call would do to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Echo,
    /// A new file of its own.
    File,
    /// A line of its own, appended to the one log.
    Line,
    /// Likewise, after a person's yes.
    ApprovedLine,
}

/// A call that a client has tried to make.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Its idempotency key, which also names its file or line.
    pub(crate) key: String,
    pub(crate) effect: Effect,
    /// Its id, if the client learned it.
    pub(crate) call_id: Option<String>,
    /// Its outcome, if the client was told.
    pub(crate) outcome: Option<CallUpdate>,
}

impl Attempt {
    pub(crate) fn proposal(&self) -> Proposal {
        let key = &self.key;
        let line = json!({ "argv": ["tee", "-a", "lines"], "stdin": format!("{key}\n"), "workspace": "live" });
        let proposal = match self.effect {
            Effect::Echo => Proposal::new("palyra.echo", &json!({ "text": key })),
            Effect::File => {
                let path = format!("files-{key}");
                Proposal::new("palyra.fs.write", &json!({ "path": path, "content": key, "must_not_exist": true }))
            }
            Effect::Line | Effect::ApprovedLine => Proposal::new("palyra.process.run", &line),
        };
        let session = if self.effect == Effect::ApprovedLine { "asked" } else { "load" };
        proposal.session(session).key(key)
    }
}

/// Counts what was seen, and says when it is enough.
#[derive(Debug)]
struct Fuse {
    left: AtomicU64,
    burnt: Notify,
}

impl Fuse {
    fn seen(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.burnt.notify_one();
        }
    }
}

/// Where the numbering of calls stands.
#[derive(Debug, Default)]
pub(crate) struct Load {
    next: Arc<AtomicU64>,
}

impl Load {
    /// Calls from all sides until the daemon is killed; returns what was tried.
    pub(crate) async fn until_killed(&mut self, host: &mut Host, random: &mut Random, round: u32) -> Vec<Attempt> {
        let fuse = Arc::new(Fuse { left: AtomicU64::new(1 + random.below(LATEST)), burnt: Notify::new() });
        let owner = host.owner().await;
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let random = Random(random.below(u64::MAX));
            callers.spawn(call_on(owner.clone(), Arc::clone(&self.next), Arc::clone(&fuse), random, round));
        }
        let approver = tokio::spawn(approve_all(owner.clone()));
        let reader = tokio::spawn(read_along(owner, Arc::clone(&fuse)));
        fuse.burnt.notified().await;
        host.kill();
        approver.await.unwrap();
        reader.await.unwrap();
        callers.join_all().await.into_iter().flatten().collect()
    }
}

/// One caller: call after call until the daemon is gone.
async fn call_on(owner: Caller, next: Arc<AtomicU64>, fuse: Arc<Fuse>, mut random: Random, round: u32) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    loop {
        let effect = match random.below(8) {
            0..3 => Effect::Echo,
            3..6 => Effect::File,
            6 => Effect::Line,
            _ => Effect::ApprovedLine,
        };
        let key = format!("{round}-{}", next.fetch_add(1, Ordering::Relaxed));
        let mut attempt = Attempt { key, effect, call_id: None, outcome: None };
        let ended = follow(&owner, &mut attempt, &fuse).await;
        let gone = attempt.outcome.is_none();
        if let Err(error) = ended {
            let expected = ["daemon_unreachable", "transport"].contains(&error.code.as_str());
            assert!(expected, "{attempt:?} failed while the daemon was alive: {error:?}");
        }
        attempts.push(attempt);
        if gone {
            return attempts;
        }
    }
}

async fn follow(owner: &Caller, attempt: &mut Attempt, fuse: &Fuse) -> Result<(), ApiError> {
    let mut call = owner.propose(attempt.proposal()).await?;
    while let Some(update) = call.next().await? {
        attempt.call_id = Some(update.call_id.clone());
        if !update.outcome_json.is_empty() {
            attempt.outcome = Some(update);
        }
        fuse.seen();
    }
    Ok(())
}

/// A person who says yes to everything.
async fn approve_all(owner: Caller) {
    let Ok(mut questions) = owner.watch().await else { return };
    while let Ok(question) = questions.next().await {
        if question.state == ApprovalState::Pending {
            // It may have been answered in an earlier life, or the daemon is gone.
            drop(owner.allow(question.approval_id.as_str()).await);
        }
    }
}

/// Reads the journal as it grows: its events come between the states that callers see.
async fn read_along(owner: Caller, fuse: Arc<Fuse>) {
    let request = TailRequest { first: 0, last: 0, follow: true };
    let Ok(events) = owner.0.journal().tail(request).await else { return };
    let mut events = events.into_inner();
    while let Ok(Some(_)) = events.message().await {
        fuse.seen();
    }
}
