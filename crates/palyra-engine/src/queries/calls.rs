//! Calls: where one stands, how it ends, what its process writes; and withdrawing one.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::live::{CallUpdate, Withdrawal};
use crate::output::OutputWatcher;
use palyra_journal::{CallFilter, CallSummary, CallView, JournalError, Listing};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::{CallId, CallRecord, Problem, WorkspaceId};
use std::sync::Arc;
use tokio::sync::broadcast;

/// The most calls of one list.
const MOST_LISTED: u32 = 250;

/// A call that somebody watches.
#[derive(Debug)]
pub struct CallWatch {
    /// Where it stands.
    pub now: CallUpdate,
    /// What follows; none for a call that is not under way.
    pub news: Option<broadcast::Receiver<CallUpdate>>,
    /// What its process writes; none for a call that is not under way.
    pub output: Option<OutputWatcher>,
}

impl Engine {
    /// Waits for the end of a call, wherever it stands, and tells where it stands until then.
    pub(crate) async fn end_of(&self, call_id: &CallId, tell: impl Fn(&CallUpdate)) -> Result<CallUpdate, EngineError> {
        // The one that is under way is asked first, so that an end between the two questions is not missed.
        let live = self.live().get(call_id);
        let stored = self.call_update(call_id).await?;
        if stored.state.is_terminal() {
            return Ok(stored);
        }
        if let Some(live) = live {
            let (now, mut news) = live.follow();
            drop(live);
            let mut next = Ok(now);
            while let Ok(update) = next {
                if let Some(error) = update.unrecorded() {
                    return Err(error);
                }
                if update.outcome.is_some() {
                    return Ok(update);
                }
                tell(&update);
                next = news.recv().await;
            }
        }
        self.call_update(call_id).await
    }

    /// A call as the journal knows it.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn call(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        self.call_update(call_id).await
    }

    /// The proposal of a call as it was recorded; none for one that never became a call.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn call_record(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<Option<CallRecord>, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        Ok(self.journal().call(call_id).await?.record)
    }

    /// Calls, newest first, each of which is asked about by itself; and where to go on.
    ///
    /// # Errors
    /// The peer may see none at all, or they cannot be read.
    pub async fn calls(
        &self,
        peer: &VerifiedPeer,
        mut filter: CallFilter,
    ) -> Result<(Listing<CallSummary>, Option<CallId>), EngineError> {
        // Who may not see calls of their own may see none.
        let own = PolicyRequestContext { owned_by: Some(peer.effective().clone()), ..self.at_door(peer) };
        self.authorize(peer, PolicyAction::CallRead, PolicyResource::Call("own".to_owned()), Some(own))?;
        filter.most = filter.most.clamp(1, MOST_LISTED);
        let (mut page, last) = self.journal().calls(filter).await?;
        page.records.retain(|call| {
            if !self.is_here(peer, call.workspace.as_deref().map(|root| self.id_of_root(root)).as_ref()) {
                return false;
            }
            let context = PolicyRequestContext { owned_by: Some(call.principal.clone()), ..self.at_door(peer) };
            let resource = PolicyResource::Call(call.call_id.to_string());
            self.would_allow(peer, PolicyAction::CallRead, resource, &context)
        });
        Ok((page, last))
    }

    /// Waits until a call ends and returns its end.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn follow(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        self.end_of(call_id, |_| {}).await
    }

    /// What a call's process writes, from the oldest part that is still buffered; nothing for a call that is not under
    /// way.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn watch_output(
        &self,
        peer: &VerifiedPeer,
        call_id: &CallId,
    ) -> Result<Option<OutputWatcher>, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        Ok(self.live().get(call_id).map(|live| live.output().watch()))
    }

    /// Where a call stands, and all that follows.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn watch_call(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallWatch, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        // Listening begins before the call is looked at, so that nothing happens in between.
        let live = self.live().get(call_id);
        let (news, output) = live.map(|live| (live.follow().1, live.output().watch())).unzip();
        let now = self.call_update(call_id).await?;
        Ok(CallWatch { now, news, output })
    }

    /// Withdraws a call that waits, or ends one that runs; returns its end.
    ///
    /// # Errors
    /// There is none, the peer may not, or it has ended already.
    pub async fn cancel(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        self.authorize_call(peer, PolicyAction::CallCancel, call_id).await?;
        let now = self.call_update(call_id).await?;
        if now.state.is_terminal() {
            let message = format!("the call has ended already: {}", now.state.as_str());
            return Err(EngineError::new(ErrorKind::Conflict, Problem::plain("call_moved", message)));
        }
        if let Some(live) = self.live().get(call_id) {
            live.withdraw(Withdrawal::By(peer.effective().clone()));
        }
        self.end_of(call_id, |_| {}).await
    }

    async fn authorize_call(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        call_id: &CallId,
    ) -> Result<(), EngineError> {
        // Whoever may not do this to any call does not learn whether there is this one.
        self.admit(peer, action, None)?;
        let known = self.journal().call(call_id).await?;
        let workspace = self.workspace_of_call(&known);
        if !self.is_here(peer, workspace.as_ref()) {
            return Err(unknown_call(call_id));
        }
        let context = PolicyRequestContext { owned_by: Some(known.principal), ..self.at_door(peer) };
        let context = self.placed_at(workspace.as_ref(), context);
        let call = PolicyResource::Call(call_id.to_string());
        let asked = self.authorize(peer, action, call.clone(), Some(context.clone()));
        asked.map_err(|error| {
            let known = self.would_allow(peer, PolicyAction::CallRead, call, &context);
            // A call that is not the caller's to know about looks like one that does not exist.
            if known || error.kind != ErrorKind::Forbidden { error } else { unknown_call(call_id) }
        })
    }

    /// The workspace of a call: the one it named, or by the path that was recorded before several could be named.
    pub(crate) fn workspace_of_call(&self, call: &CallView) -> Option<WorkspaceId> {
        let of_root = || call.record.as_ref().map(|record| self.id_of_root(&record.workspace_root));
        call.workspace.clone().or_else(of_root)
    }

    async fn call_update(&self, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        let view = self.journal().call(call_id).await?;
        let approval = match self.journal().approval_of_call(call_id).await {
            Ok(approval) => Some(Arc::new(approval)),
            Err(JournalError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(CallUpdate {
            call_id: view.call_id,
            state: view.state,
            tool: view.tool,
            session: view.session,
            run: view.run,
            decision: None,
            approval,
            outcome: view.outcome.map(Arc::new),
            unrecorded: None,
            replayed: false,
        })
    }
}

fn unknown_call(call_id: &CallId) -> EngineError {
    JournalError::NotFound { what: "call", id: call_id.to_string() }.into()
}
