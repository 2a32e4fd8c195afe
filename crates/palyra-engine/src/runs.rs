//! Agent runs on record: who may start, see and end them, and the peer that a run's calls are proposed as.
//!
//! The engine knows no model. `palyra-agent` carries runs on; here it gets what it needs for that: the events of its
//! runs, and a [`VerifiedPeer`] that was checked anew.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::live::Withdrawal;
use palyra_journal::{JournalError, OpenedRun, RunHistory};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::{CallId, JournalEvent, Origin, Principal, RequestId, RunId, SessionId};

/// The most runs of one list.
const MOST_LISTED: u32 = 250;

impl Engine {
    /// Whether a peer may begin runs by this action of a door: `run.start`, or `compat.chat.create`.
    ///
    /// # Errors
    /// It may not.
    pub fn authorize_run(&self, peer: &VerifiedPeer, action: PolicyAction) -> Result<(), EngineError> {
        self.authorize(peer, action, PolicyResource::Daemon, None)
    }

    /// Whether a peer may have a model answer.
    ///
    /// # Errors
    /// It may not.
    pub fn authorize_model(&self, peer: &VerifiedPeer, model: &str) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::ModelInvoke, PolicyResource::Model(model.to_owned()), None)
    }

    /// Whether a peer may ask a model by this name, or any that stands behind it. Nothing is recorded.
    #[must_use]
    pub fn may_invoke(&self, peer: &VerifiedPeer, behind: &[String], name: &str) -> bool {
        let names = std::iter::once(name).chain(behind.iter().map(String::as_str));
        let context = self.at_door(peer);
        names.map(|name| PolicyResource::Model(name.to_owned())).any(|model| {
            let (principal, action) = (peer.effective().clone(), PolicyAction::ModelInvoke);
            let request = palyra_policy::PolicyRequest { principal, action, resource: model };
            let decision = self.policy().evaluate_with_context(&request, &context).decision;
            matches!(decision, palyra_policy::PolicyDecision::Allow)
        })
    }

    /// What is left of a caller's rate; nothing for one that has none.
    #[must_use]
    pub fn rate_of(&self, peer: &VerifiedPeer) -> Option<palyra_access::Rate> {
        self.access().state().rate_of(peer.token()?, self.clock().now())
    }

    /// Where a run comes from: what the door has established, not what the caller says of itself.
    #[must_use]
    pub fn origin_of_run(
        &self,
        peer: &VerifiedPeer,
        session: &SessionId,
        run: &RunId,
        request: Option<RequestId>,
    ) -> Origin {
        let proposal = crate::flow::propose::Proposal {
            session: Some(session.clone()),
            run: Some(run.clone()),
            request,
            ..Default::default()
        };
        self.alleged(peer, peer.token().cloned(), proposal).origin
    }

    /// Puts an event of a run on record.
    ///
    /// # Errors
    /// It could not be made durable.
    pub async fn record_run(&self, event: &JournalEvent) -> Result<(), EngineError> {
        Ok(self.journal().note(event).await.map(drop)?)
    }

    /// A run with everything that was recorded of it.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn run_history(&self, peer: &VerifiedPeer, run: &RunId) -> Result<RunHistory, EngineError> {
        self.admit(peer, PolicyAction::RunRead, None)?;
        let history = self.journal().run_history(run).await?;
        self.authorize_of_run(peer, PolicyAction::RunRead, &history.opened)?;
        Ok(history)
    }

    /// A run as `palyra-agent` needs it to carry it on; for nobody else to see.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn recorded_run(&self, run: &RunId) -> Result<RunHistory, EngineError> {
        Ok(self.journal().run_history(run).await?)
    }

    /// Whether a peer may end a run, or carry it on.
    ///
    /// # Errors
    /// There is none, or it may not.
    pub async fn authorize_run_cancel(&self, peer: &VerifiedPeer, run: &RunId) -> Result<RunHistory, EngineError> {
        self.admit(peer, PolicyAction::RunCancel, None)?;
        let history = self.journal().run_history(run).await?;
        self.authorize_of_run(peer, PolicyAction::RunCancel, &history.opened)?;
        Ok(history)
    }

    /// Withdraws a call of a run that somebody ends. That they may end the run was asked before; it takes no further
    /// right.
    pub fn withdraw_call_of_run(&self, run: &RunId, call: &CallId, by: &Principal) {
        let live = self.live().get(call).filter(|live| live.follow().0.run == *run);
        if let Some(live) = live {
            live.withdraw(Withdrawal::By(by.clone()));
        }
    }

    /// Runs that the peer may see, the newest first, and where to go on.
    ///
    /// # Errors
    /// The peer may see none at all, or they cannot be read.
    pub async fn runs(
        &self,
        peer: &VerifiedPeer,
        before: Option<u64>,
        most: u32,
    ) -> Result<(Vec<OpenedRun>, Option<u64>), EngineError> {
        self.authorize(peer, PolicyAction::RunRead, PolicyResource::Daemon, None)?;
        let mut runs = self.journal().runs_before(before, most.clamp(1, MOST_LISTED)).await?;
        let last = runs.last().map(|run| run.seq);
        runs.retain(|run| self.may_see(peer, run));
        Ok((runs, last))
    }

    /// The newest run of a session, if it is the peer's own to go on with.
    ///
    /// # Errors
    /// It cannot be read, or belongs to somebody else.
    pub async fn last_run_of(&self, peer: &VerifiedPeer, session: &SessionId) -> Result<Option<RunId>, EngineError> {
        if let Some(problem) = crate::flow::propose::reserved(peer, session) {
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        let Some(run) = self.journal().last_run_of(session).await? else { return Ok(None) };
        if !self.is_here(peer, run.opened.origin.workspace.as_ref()) {
            let message = format!("the session `{session}` belongs to another workspace");
            let problem =
                palyra_protocol::Problem::new("session_other_workspace", message, "name another session, or none");
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        if run.opened.origin.principal != *peer.effective() {
            let message = format!("the session `{session}` belongs to another principal");
            let problem = palyra_protocol::Problem::new("session_taken", message, "name another session, or none");
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        Ok(Some(run.opened.run))
    }

    /// The runs that have not ended, the oldest first: what a start takes care of.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn open_runs(&self) -> Result<Vec<RunId>, EngineError> {
        Ok(self.journal().open_runs().await?)
    }

    /// The milliseconds of the journal's clock.
    #[must_use]
    pub fn now_unix_ms(&self) -> u64 {
        self.clock().now().unix_ms()
    }

    /// Has the tools shown to a run: those that the peer may see.
    #[must_use]
    pub fn tool_is_seen(&self, peer: &VerifiedPeer, tool: &str) -> bool {
        self.may(peer, PolicyAction::ToolList, PolicyResource::Tool(tool.to_owned()))
    }

    fn may_see(&self, peer: &VerifiedPeer, run: &OpenedRun) -> bool {
        self.is_here(peer, run.opened.origin.workspace.as_ref())
            && self.would_allow(
                peer,
                PolicyAction::RunRead,
                resource(run),
                &self.of_owner(peer, &run.opened.origin.principal),
            )
    }

    fn of_owner(&self, peer: &VerifiedPeer, owner: &Principal) -> PolicyRequestContext {
        PolicyRequestContext { owned_by: Some(owner.clone()), ..self.at_door(peer) }
    }

    fn authorize_of_run(&self, peer: &VerifiedPeer, action: PolicyAction, run: &OpenedRun) -> Result<(), EngineError> {
        if !self.is_here(peer, run.opened.origin.workspace.as_ref()) {
            return Err(JournalError::NotFound { what: "run", id: run.opened.run.to_string() }.into());
        }
        let context = self.of_owner(peer, &run.opened.origin.principal);
        self.authorize(peer, action, resource(run), Some(context)).map_err(|error| {
            // A run that is not the caller's to know about looks like one that does not exist.
            let hidden = error.kind == ErrorKind::Forbidden && !self.may_see(peer, run);
            if hidden { JournalError::NotFound { what: "run", id: run.opened.run.to_string() }.into() } else { error }
        })
    }
}

fn resource(run: &OpenedRun) -> PolicyResource {
    PolicyResource::Run(run.opened.run.to_string())
}
