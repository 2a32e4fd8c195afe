//! Recovery: what a start does about the calls that the last end left open.
//!
//! An intent without an outcome becomes `indeterminate` and never runs again. A question that is still open is waited for
//! again. A call that was approved but not started is started, if it is still the call that was shown.

use crate::clear::Cleared;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::resolve::ResolvedCall;
use crate::tool_flow::Ending;
use palyra_journal::CallView;
use palyra_protocol::{ApprovalState, CallRecord, CallState, Problem, ToolProposal};

/// What a start found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Calls of which nobody knows whether they ran.
    pub indeterminate: usize,
    /// Questions that are waited for again.
    pub waiting: usize,
    /// Approved calls that go on.
    pub resumed: usize,
}

impl Engine {
    /// Takes care of every call that has not ended. Called once, before any door opens.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub async fn recover(&self) -> Result<Recovered, EngineError> {
        let mut found = Recovered::default();
        for call in self.journal().open_calls().await? {
            match call.state {
                CallState::Executing => {
                    self.mark_indeterminate(&call).await?;
                    found.indeterminate += 1;
                }
                CallState::AwaitingApproval => {
                    self.resume(call).await?;
                    found.waiting += 1;
                }
                CallState::Approved => {
                    self.resume(call).await?;
                    found.resumed += 1;
                }
                _ => {}
            }
        }
        self.reconsider().await;
        Ok(found)
    }

    async fn mark_indeterminate(&self, call: &CallView) -> Result<(), EngineError> {
        let problem = Problem::new(
            "indeterminate",
            "the daemon stopped between the intent and the outcome; nobody knows how far the call got, and it is not run again",
            "look at what it was about to change (`.palyra-tmp-…` files beside it are what a write left), then propose it anew if it is still wanted",
        );
        Ok(self.journal().end_call(&call.call_id, CallState::Executing, CallState::Indeterminate, problem).await?)
    }

    async fn resume(&self, view: CallView) -> Result<(), EngineError> {
        let approval = self.journal().approval_of_call(&view.call_id).await?;
        if approval.state == ApprovalState::Pending && self.token_gone(approval.token.as_ref()).is_some() {
            return self.end_question(&approval, ApprovalState::Cancelled).await.map(drop);
        }
        let Some(record) = view.record else {
            return Err(EngineError::new(
                ErrorKind::Internal,
                Problem::plain("internal", format!("the proposal of `{}` is not in the journal", view.call_id)),
            ));
        };
        let proposal = proposal_of(record);
        let resolved = self.resolver().resolve(view.call_id.clone(), &proposal);
        let resolved = match resolved {
            Ok(resolved) if resolved.call.digest() == view.digest => resolved,
            Ok(_) | Err(_) if approval.state == ApprovalState::Pending => {
                return self.end_question(&approval, ApprovalState::Cancelled).await.map(drop);
            }
            Ok(_) | Err(_) => {
                let problem = Problem::new(
                    "call_changed",
                    "what would run is no longer what was shown and approved",
                    "propose the call again",
                );
                return Ok(self
                    .journal()
                    .end_call(&view.call_id, CallState::Approved, CallState::Cancelled, problem)
                    .await?);
            }
        };
        self.go_on(resolved, approval, &proposal, view.state);
        Ok(())
    }

    fn go_on(
        &self,
        resolved: ResolvedCall,
        approval: palyra_protocol::ApprovalRecord,
        proposal: &ToolProposal,
        state: CallState,
    ) {
        let id = resolved.call.id().clone();
        let live = self.live().enter(&id, &proposal.tool, &proposal.origin, state);
        live.update(|now| now.approval = Some(std::sync::Arc::new(approval.clone())));
        let answer = self.await_approval(&approval.approval_id);
        let engine = self.clone();
        tokio::spawn(async move {
            let cleared = match approval.state {
                ApprovalState::Pending => engine.after_answer(resolved, approval, answer, &live).await,
                _ => engine.start_approved(resolved, &approval).await,
            };
            let ending = match cleared {
                Ok(Cleared::Permitted(permit)) => engine.carry_out(permit, &live).await.map(Ending::own),
                Ok(Cleared::Ended(outcome)) => Ok(Ending::Own(outcome)),
                Ok(Cleared::Earlier(call_id)) => Ok(Ending::Earlier(call_id)),
                Err(error) => Err(error),
            };
            if let Err(error) = engine.conclude(&id, &live, ending).await {
                tracing::warn!(call = %id, error = &error as &dyn std::error::Error, "a resumed call did not go on");
            }
        });
    }
}

/// The proposal that a recorded call came from.
pub(crate) fn proposal_of(record: CallRecord) -> ToolProposal {
    ToolProposal {
        tool: record.tool.to_string(),
        input: record.input.to_string().into_bytes(),
        idempotency_key: record.idempotency_key,
        origin: record.origin,
    }
}
