//! Approvals that are about no call that waits to run: effects, a device, a skill.
//!
//! Whoever needs one hands in an [`ApprovalRequest`] and gets a [`RequestedApproval`]: the record that people are
//! shown, and a way to wait for its end. Such an approval is listed, answered, expired and withdrawn like any other,
//! and leaves no grant. One that waits when the daemon ends waits again after the next start, except for a device,
//! whose connection is gone.

use crate::engine::Engine;
use crate::error::EngineError;
use palyra_journal::JournalError;
use palyra_protocol::access::ShownToken;
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalState, ApprovalSubject, CallId, DecisionId, Digest, Facets, Principal, Problem,
    RiskLevel, SessionId, ToolName, WorkspaceId,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What people are asked about.
#[derive(Debug, Clone)]
pub struct ApprovalRequest {
    /// The subject; not a call.
    pub subject: ApprovalSubject,
    /// Its name in groups of approvals: `effects:palyra.process.run`, `device:phone`, `skill:acme.weather`.
    pub subject_id: String,
    /// The tool whose call made it necessary; for what no tool did, the name of the act, like `palyra.device.pair`.
    pub tool: ToolName,
    /// The digest of what is shown. An answer is about this and nothing else.
    pub digest: Digest,
    /// How bad a wrong yes can be.
    pub risk: RiskLevel,
    /// In whose name it is wanted.
    pub principal: Principal,
    /// Who asked for it.
    pub proposed_by: Principal,
    /// The token they showed; when it is withdrawn, the approval ends.
    pub token: Option<ShownToken>,
    /// The workspace that it is about; none for what is about none.
    pub workspace: Option<WorkspaceId>,
    /// The session it belongs to.
    pub session: SessionId,
    /// What programs are shown of it.
    pub input: serde_json::Value,
    /// What it would touch.
    pub facets: Facets,
    /// Why people are asked.
    pub why: String,
    /// How many people have to say yes.
    pub people: u32,
    /// How long it waits; the configured time where this is none.
    pub patience: Option<Duration>,
}

/// An approval that waits.
#[derive(Debug)]
pub struct RequestedApproval {
    /// What people are shown.
    pub record: Arc<ApprovalRecord>,
    /// How it ends. It fails when the daemon ends first; the approval stays pending then.
    pub end: oneshot::Receiver<Arc<ApprovalRecord>>,
}

impl Engine {
    /// Asks people about something that is no call that waits to run.
    ///
    /// # Errors
    /// Too many approvals wait already, or it could not be recorded.
    pub async fn request_approval(&self, request: ApprovalRequest) -> Result<RequestedApproval, EngineError> {
        self.request_approval_as(ApprovalId::mint(), request).await
    }

    /// The same under an id that the caller has written down already.
    pub(crate) async fn request_approval_as(
        &self,
        id: ApprovalId,
        request: ApprovalRequest,
    ) -> Result<RequestedApproval, EngineError> {
        let record = Arc::new(self.approval_requested(id, request));
        let bytes = self.record_size(&record)?;
        let limits = &self.config().limits;
        self.live().ask_by_itself(&record.principal, bytes, Some(limits)).map_err(EngineError::crowded)?;
        let answer = self.await_approval(&record.approval_id);
        if let Err(error) = self.journal().request_approval(Arc::clone(&record)).await {
            self.forget_approval(&record.approval_id);
            self.live().answered_by_itself(&record.principal, bytes);
            return Err(error.into());
        }
        drop(self.approval_news().send(Arc::clone(&record)));
        Ok(self.follow_request(record, answer, bytes))
    }

    /// Takes an approval back; nothing happens where somebody was faster.
    ///
    /// # Errors
    /// It could not be recorded.
    pub async fn withdraw_request(&self, record: &ApprovalRecord, problem: Problem) -> Result<(), EngineError> {
        match self.settle_approval(self.cancelled(record, problem), None).await {
            Ok(_) | Err(JournalError::AlreadyResolved { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits again for the approvals of an earlier start that are about no call.
    pub(crate) async fn resume_requests(&self) -> Result<usize, EngineError> {
        let mut waiting = 0;
        for record in self.pending_approvals().await? {
            match record.subject {
                ApprovalSubject::ToolCall => continue,
                // Its connection ended with the daemon.
                ApprovalSubject::DevicePairing(_) => {
                    let problem = Problem::new(
                        "daemon_restarted",
                        "the daemon was restarted while the device waited",
                        "pair the device again",
                    );
                    self.withdraw_request(&record, problem).await?;
                }
                ApprovalSubject::Effects(_) | ApprovalSubject::SkillChange(_) => {
                    let record = Arc::new(record);
                    let bytes = self.record_size(&record)?;
                    // What was asked before the restart is not refused after it, but counts.
                    self.live().ask_by_itself(&record.principal, bytes, None).map_err(EngineError::crowded)?;
                    let answer = self.await_approval(&record.approval_id);
                    let asked = self.follow_request(Arc::clone(&record), answer, bytes);
                    match &record.subject {
                        ApprovalSubject::Effects(effects) => {
                            let view = effects.call_id.to_string();
                            if let Some(here) = self.where_view_is(&view) {
                                here.follow_waiting(view, asked);
                            }
                        }
                        _ => self.follow_skill_change(asked),
                    }
                    waiting += 1;
                }
            }
        }
        Ok(waiting)
    }

    fn record_size(&self, record: &ApprovalRecord) -> Result<usize, EngineError> {
        let bytes = serde_json::to_vec(record).map_err(|e| EngineError::internal(e.to_string()))?;
        Ok(bytes.len())
    }

    /// Follows an approval to its end, in a task of its own.
    fn follow_request(
        &self,
        record: Arc<ApprovalRecord>,
        answer: oneshot::Receiver<Arc<ApprovalRecord>>,
        bytes: usize,
    ) -> RequestedApproval {
        let (ended, end) = oneshot::channel();
        let (engine, asked) = (self.clone(), Arc::clone(&record));
        tokio::spawn(async move {
            let Some(end) = engine.end_of_request(&asked, answer).await else { return };
            engine.live().answered_by_itself(&asked.principal, bytes);
            // Whoever asked may have gone; what follows from the answer does not depend on them.
            drop(ended.send(end));
        });
        RequestedApproval { record, end }
    }

    /// Waits until an approval has ended; none where the daemon ends first.
    async fn end_of_request(
        &self,
        asked: &ApprovalRecord,
        mut answer: oneshot::Receiver<Arc<ApprovalRecord>>,
    ) -> Option<Arc<ApprovalRecord>> {
        let mut pause = Duration::from_millis(100);
        loop {
            let left = self.clock().now().until(asked.expires_at);
            tokio::select! {
                answered = &mut answer => return match answered {
                    Ok(record) => Some(record),
                    Err(_) => self.journal().approval(&asked.approval_id).await.ok().map(Arc::new),
                },
                () = tokio::time::sleep(left) => {}
                () = self.closing().cancelled() => return None,
            }
            match self.settle_approval(self.expired(asked), None).await {
                Ok(ended) => return Some(ended),
                Err(JournalError::AlreadyResolved { .. }) => {
                    return self.journal().approval(&asked.approval_id).await.ok().map(Arc::new);
                }
                // No room on the disk: nobody can answer it any more, and that is recorded as soon as there is room.
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "an approval's end is not recorded");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
                () = self.closing().cancelled() => return None,
            }
        }
    }

    fn approval_requested(&self, approval_id: ApprovalId, request: ApprovalRequest) -> ApprovalRecord {
        let now = self.clock().now();
        let patience = now.plus(request.patience.unwrap_or(self.config().approval_timeout));
        let token_expiry = request.token.as_ref().and_then(|token| self.token_expiry(token));
        ApprovalRecord {
            approval_id,
            call_id: CallId::mint(),
            subject_id: request.subject_id,
            subject: request.subject,
            tool: request.tool,
            call_digest: request.digest,
            decision_id: DecisionId::mint(),
            policy_hash: self.policy_hash(),
            risk: request.risk,
            principal: request.principal,
            proposed_by: request.proposed_by,
            token: request.token,
            workspace: request.workspace,
            session: request.session,
            input: request.input,
            facets: request.facets,
            why: request.why,
            requested_at: now,
            expires_at: token_expiry.map_or(patience, |expiry| expiry.min(patience)),
            people: request.people.max(1),
            // About this and nothing else: no grant covers it, and a yes leaves none.
            fresh: true,
            given: Vec::new(),
            state: ApprovalState::Pending,
            resolution: None,
        }
    }
}
