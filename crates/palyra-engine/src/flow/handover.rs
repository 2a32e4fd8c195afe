//! Handing over: calls of clients that keep their own tools and ask Palyra by a hook.
//!
//! Two kinds of calls end otherwise than the rest of the path, and neither has a path of its own:
//!
//! - A call **by ticket** is a process. It is decided, approved and recorded while the hook waits; then it stands at
//!   [`StartGate`] until the client starts the wrapped command, which shows the ticket ([`Engine::redeem`]). A client
//!   that does not start it, because a person said no there, leaves a call that did not run.
//! - A call **by the client** is the client's own file tool or fetch. It is resolved, decided, approved and recorded
//!   like a call of the tool that it resembles. Its job is [`HandedOver`], which does nothing: the attestation says
//!   that the client carries it out.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::flow::execute::{Executed, Running};
use crate::flow::resolve::Refusal;
use crate::live::{CallUpdate, LiveCall, Withdrawal};
use crate::output::OutputWatcher;
use crate::tools::{Executing, Input, Job, Place};
use palyra_protocol::{
    ByClient, CallId, CallRecord, CallState, Carrier, EffectPath, ExecutorKind, Facets, IdempotencyKey, JournalEvent,
    Problem, Ticket, ToolDefinition,
};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a permitted call waits for its ticket: long enough for a person at a dialog of the client's own.
const TICKET_TIME: Duration = Duration::from_secs(600);
/// The largest file whose old content is compared.
const MAX_OLD: u64 = 1 << 20;
/// How much of a client's report is kept.
const MAX_REPORT: usize = 500;

/// Where a call by ticket waits until it may start.
#[derive(Debug)]
pub(crate) struct StartGate {
    ticket: Ticket,
    redeemed: AtomicBool,
    opened: Notify,
}

impl StartGate {
    pub(crate) fn new(ticket: Ticket) -> Self {
        Self { ticket, redeemed: AtomicBool::new(false), opened: Notify::new() }
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Opens the gate; false where somebody has done so already.
    fn redeem(&self) -> bool {
        let first = !self.redeemed.swap(true, Ordering::AcqRel);
        if first {
            self.opened.notify_one();
        }
        first
    }
}

/// Waits until a call may start. One that is not by ticket may at once.
pub(crate) async fn may_start(live: &LiveCall) -> Result<(), Executed> {
    let Some(gate) = live.gate() else { return Ok(()) };
    tokio::select! {
        biased;
        () = live.cancel().cancelled() => {
            let problem = Problem::plain("cancelled", "the call was cancelled before the client started it; nothing ran");
            Err(Executed { state: CallState::Cancelled, ..Executed::not_run(problem) })
        }
        () = gate.opened.notified() => Ok(()),
        () = tokio::time::sleep(TICKET_TIME) => Err(Executed::not_run(Problem::new(
            "ticket_not_redeemed",
            "the client did not start the command that was allowed; nothing ran",
            "a person may have said no in the client; run it again if it is still wanted",
        ))),
    }
}

/// What is left to do of a call that the client carries out: nothing.
#[derive(Debug)]
struct HandedOver;

impl Job for HandedOver {
    fn execute<'r>(self: Box<Self>, _run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async {
            let mut handed = Executed::in_daemon(Ok(json!({ "carried_out_by": "client" })));
            handed.enforcement = json!({ "backend": "client", "layers": [], "tier": "none" });
            handed
        })
    }
}

/// Makes a prepared call the client's: its facets say so, with the guarded paths that it would write.
pub(crate) fn to_client(
    tool: &ToolDefinition,
    input: Input<'_>,
    place: &Place<'_>,
    facets: &mut Facets,
) -> Result<Box<dyn Job>, Refusal> {
    if tool.executor != ExecutorKind::Builtin {
        let message = format!("`{}` is carried out by Palyra alone", tool.name);
        return Err(Problem::new("not_for_clients", message, "propose it without handing it over").into());
    }
    let content = input.optional("/content").map(str::as_bytes);
    facets.by_client = Some(ByClient { guarded: guarded(place, facets, content) });
    Ok(Box::new(HandedOver))
}

/// The paths that nothing writes without consent. Where the new content is not known, a file that is judged by it
/// counts as one.
fn guarded(place: &Place<'_>, facets: &Facets, content: Option<&[u8]>) -> Vec<String> {
    let Some(effects) = place.effects else { return Vec::new() };
    let counts = |path: &&String| match path.parse::<EffectPath>() {
        Ok(file) => {
            let old = content.and_then(|_| held(&place.workspace.root().join(path.as_str())));
            effects.guard().guards_file(&file, old.as_deref(), content.unwrap_or_default())
        }
        Err(_) => true,
    };
    facets.paths_written.iter().filter(counts).cloned().collect()
}

/// What a file holds; nothing for one that is too large, or is none. Nothing waits here for a pipe.
fn held(path: &Path) -> Option<Vec<u8>> {
    let file = std::fs::symlink_metadata(path).ok()?;
    if !file.is_file() || file.len() > MAX_OLD {
        return None;
    }
    std::fs::read(path).ok()
}

/// A call whose ticket was redeemed.
#[derive(Debug)]
pub struct RedeemedCall {
    /// The call.
    pub call_id: CallId,
    /// What its process writes.
    pub output: OutputWatcher,
}

impl Engine {
    /// Starts the call that a ticket was made for. The ticket is the authority: whoever the door admits may show it,
    /// once.
    ///
    /// # Errors
    /// There is no such ticket, or it was shown before.
    pub fn redeem(&self, ticket: &Ticket) -> Result<RedeemedCall, EngineError> {
        let unknown = || {
            let message = "this ticket starts nothing: it was used already, its call was withdrawn, or it is none";
            let hint = "let the agent run its command again";
            EngineError::new(ErrorKind::Conflict, Problem::new("ticket_void", message, hint))
        };
        let (call_id, live) = self.live().by_ticket(ticket).ok_or_else(unknown)?;
        let output = live.output().watch();
        let redeemed = live.gate().is_some_and(StartGate::redeem);
        if redeemed { Ok(RedeemedCall { call_id, output }) } else { Err(unknown()) }
    }

    /// Waits for the end of a call that was started by its ticket.
    ///
    /// # Errors
    /// Its end cannot be told.
    pub async fn redeemed_end(&self, call: &CallId) -> Result<CallUpdate, EngineError> {
        self.end_of(call, |_| {}).await
    }

    /// Ends a call because the command that started it has gone: a client's shell that is killed takes its command
    /// along.
    pub fn abandon(&self, peer: &VerifiedPeer, call: &CallId) {
        if let Some(live) = self.live().get(call) {
            live.withdraw(Withdrawal::By(peer.effective().clone()));
        }
    }

    /// Records how a call ended that the client carried out itself.
    ///
    /// # Errors
    /// There is no such call of this peer's, or nothing could be recorded.
    pub async fn client_reported(
        &self,
        peer: &VerifiedPeer,
        key: &IdempotencyKey,
        (succeeded, message): (bool, &str),
    ) -> Result<(), EngineError> {
        let principal = peer.effective();
        let found = self.journal().call_by_key(principal, key).await?;
        let record = found.as_ref().and_then(|call| call.record.as_ref());
        let here = |record: &&CallRecord| self.is_here(peer, Some(&self.id_of_root(&record.workspace_root)));
        let record = record.filter(|record| record.origin.carrier == Carrier::Client).filter(here);
        let Some(record) = record else {
            let problem = Problem::plain("not_found", "no call of this name was handed to this client");
            return Err(EngineError::new(ErrorKind::NotFound, problem));
        };
        let message = message.chars().filter(|c| !c.is_control() || *c == '\n').take(MAX_REPORT).collect();
        let (call_id, by) = (record.call_id.clone(), principal.clone());
        self.journal().note(&JournalEvent::ClientReported { call_id, by, succeeded, message }).await?;
        Ok(())
    }
}

/// Makes the gate of a call that is started by its ticket.
pub(crate) fn gate_of(carrier: Carrier) -> Result<Option<Arc<StartGate>>, Problem> {
    match carrier {
        Carrier::Daemon | Carrier::Client => Ok(None),
        Carrier::Ticket => match Ticket::mint() {
            Ok(ticket) => Ok(Some(Arc::new(StartGate::new(ticket)))),
            Err(error) => Err(Problem::plain("internal", error.to_string())),
        },
    }
}
