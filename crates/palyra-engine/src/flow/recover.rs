//! Recovery: what a start does about the calls that the last end left open.
//!
//! An intent without an outcome becomes `indeterminate` and never runs again; the temporary files that it left are
//! removed. A question that is still open is waited for
//! again. A call that was approved but not started is started, if it is still the call that was shown.

use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::flow::resolve::ResolvedCall;
use crate::flow::stop::Stop;
use crate::live::LiveCall;
use crate::workspaces::WorkspaceEngine;
use palyra_journal::CallView;
use palyra_protocol::{ApprovalRecord, ApprovalState, CallRecord, CallState, Problem, ToolOutcome, ToolProposal};
use palyra_workspace::Leftovers;
use std::sync::Arc;
use tokio::sync::oneshot;

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
    /// Takes care of every call that has not ended. Called once, when every source has brought its tools and before any
    /// door opens.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub async fn recover(&self) -> Result<Recovered, EngineError> {
        let mut found = Recovered::default();
        self.recover_effects().await?;
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
        found.waiting += self.resume_requests().await?;
        self.reconsider().await;
        Ok(found)
    }

    async fn mark_indeterminate(&self, call: &CallView) -> Result<(), EngineError> {
        let kept = self.remove_leftovers(call);
        let mut hint = "look at what it was about to change, then propose it anew if it is still wanted".to_owned();
        if call.tool == "palyra.process.run" {
            hint.push_str(&format!("; `palyra effects show {}` says what of its changes counts", call.call_id));
        }
        if !kept.is_empty() {
            hint.push_str(&format!("; what was there before may be in `{}`", kept.join("`, `")));
        }
        let problem = Problem::new(
            "indeterminate",
            "the daemon stopped while the call ran; how far it got is not known, and it is not run again",
            hint,
        );
        self.journal().end_call(&call.call_id, CallState::Executing, CallState::Indeterminate, problem).await?;
        Ok(())
    }

    /// Removes the temporary files of a call that was cut off; gives those that may hold an original and stay. Before
    /// the call's end is recorded: a start that is cut off here does it again.
    fn remove_leftovers(&self, call: &CallView) -> Vec<String> {
        let Some(record) = &call.record else { return Vec::new() };
        if record.facets.paths_written.is_empty() {
            return Vec::new();
        }
        let Ok(here) = self.where_called(record) else { return Vec::new() };
        match here.workspace().remove_leftovers(&call.call_id, &record.facets.paths_written) {
            Ok(Leftovers { kept, .. }) => kept,
            // Untidy, and no reason not to start.
            Err(error) => {
                tracing::warn!(call = %call.call_id, error = &error as &dyn std::error::Error, "temporary files were left");
                Vec::new()
            }
        }
    }

    async fn resume(&self, view: CallView) -> Result<(), EngineError> {
        let approval = self.journal().approval_of_call(&view.call_id).await?;
        if let Some(problem) =
            self.token_gone(approval.token.as_ref()).filter(|_| approval.state == ApprovalState::Pending)
        {
            return self.give_up(&approval, problem).await;
        }
        let Some(record) = view.record else {
            return Err(EngineError::new(
                ErrorKind::Internal,
                Problem::plain("internal", format!("the proposal of `{}` is not in the journal", view.call_id)),
            ));
        };
        if !record.origin.carrier.is_daemon() {
            return self.give_up(&approval, client_gone()).await;
        }
        let here = match self.where_called(&record) {
            Ok(here) => here,
            Err(problem) => return self.give_up(&approval, problem).await,
        };
        let proposal = proposal_of(record);
        let resolved = here.resolver().resolve(view.call_id.clone(), &proposal);
        match resolved {
            Ok(resolved) if resolved.call.digest() == view.digest => {
                here.go_on(resolved, Arc::new(approval), proposal, view.state);
                Ok(())
            }
            Ok(_) | Err(_) => {
                let problem = Problem::new(
                    "call_changed",
                    "after a restart of the daemon, what would run is no longer what was shown: a file or program it names, \
                     or the workspace, is another",
                    "propose the call again",
                );
                self.give_up(&approval, problem).await
            }
        }
    }

    /// Ends a call that waits for an answer, or that was approved and has not started.
    async fn give_up(&self, approval: &ApprovalRecord, problem: Problem) -> Result<(), EngineError> {
        if approval.state == ApprovalState::Pending {
            self.settle_approval(self.cancelled(approval, problem), None).await?;
        } else {
            let (from, state) = (CallState::Approved, CallState::Cancelled);
            self.journal().end_call(&approval.call_id, from, state, problem).await?;
        }
        Ok(())
    }
}

impl WorkspaceEngine {
    fn go_on(&self, resolved: ResolvedCall, approval: Arc<ApprovalRecord>, proposal: ToolProposal, state: CallState) {
        let id = resolved.call.id().clone();
        // What was asked before the restart is not refused after it, but counts.
        let (live, _) = self.live().enter(&id, (&proposal.tool, state), &proposal.origin, None);
        if approval.state == ApprovalState::Pending
            && let Err(problem) = self.count_approval(&approval, None)
        {
            tracing::warn!(call = %id, problem = problem.message, "an approval is not counted");
        }
        live.update(|now| now.approval = Some(Arc::clone(&approval)));
        let answer = self.await_approval(&approval.approval_id);
        let engine = self.clone();
        tokio::spawn(async move {
            let end = engine.finish_approved(resolved, approval, answer, &live).await;
            if let Err(error) = engine.conclude(&id, &proposal, &live, end).await {
                tracing::warn!(call = %id, error = &error as &dyn std::error::Error, "a resumed call did not go on");
            }
        });
    }

    /// The rest of the path of a call that was asked about before the restart.
    async fn finish_approved(
        &self,
        call: ResolvedCall,
        approval: Arc<ApprovalRecord>,
        answer: oneshot::Receiver<Arc<ApprovalRecord>>,
        live: &LiveCall,
    ) -> Result<Box<ToolOutcome>, Stop> {
        let permit = match approval.state {
            ApprovalState::Pending => self.after_answer(call, approval, answer, live).await?,
            _ => self.start_approved(call, &approval).await?,
        };
        self.carry_out(permit, live).await
    }
}

/// Why a call that a client's hook asked about does not go on: the hook waits no longer.
fn client_gone() -> Problem {
    Problem::new(
        "client_gone",
        "the daemon was restarted, and the client's hook that asked about this call waits no longer; nothing ran",
        "let the agent try it again",
    )
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
