//! The client library: for what the command line would be too slow for, or does not let one say.

use crate::{Host, PATIENCE};
use palyra_api::client::Whereabouts;
use palyra_api::v1::{
    CallUpdate, DecideRequest, FollowCallRequest, GetCallRequest, Matcher, ProposeRequest, Scope, WatchApprovalsRequest,
};
use palyra_api::{ApiError, Connection};
use palyra_protocol::{ApprovalRecord, Principal};
use serde_json::Value;
use std::path::Path;
use tonic::Streaming;

/// Waits for something that must come.
pub async fn patiently<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, coming).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

/// A call to propose.
#[derive(Debug, Clone, Default)]
pub struct Proposal(pub ProposeRequest);

impl Proposal {
    /// A call of a tool.
    #[must_use]
    pub fn new(tool: &str, input: &Value) -> Self {
        Self::raw(tool, input.to_string().into_bytes())
    }

    /// A call of a tool with an input that may be anything.
    #[must_use]
    pub fn raw(tool: &str, input: Vec<u8>) -> Self {
        Self(ProposeRequest { tool: tool.to_owned(), input, ..ProposeRequest::default() })
    }

    /// In this session.
    #[must_use]
    pub fn session(mut self, name: &str) -> Self {
        name.clone_into(&mut self.0.session);
        self
    }

    /// In this run.
    #[must_use]
    pub fn run(mut self, name: &str) -> Self {
        name.clone_into(&mut self.0.run);
        self
    }

    /// With this idempotency key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.0.idempotency_key);
        self
    }
}

/// A connection to the daemon.
#[derive(Debug, Clone)]
pub struct Caller(pub Connection);

/// A person at another door, connected already: their answers take no program's start, which on a busy machine lasts
/// longer than a yes is armed.
#[derive(Debug)]
pub struct Elsewhere {
    owner: Caller,
    runtime: tokio::runtime::Runtime,
}

impl Elsewhere {
    /// Denies an approval, which must count.
    pub fn denies(&self, approval_id: &str, reason: &str) {
        let (approval_id, reason) = (approval_id.to_owned(), reason.to_owned());
        let answer = DecideRequest { approval_id, reason, ..DecideRequest::default() };
        self.runtime.block_on(self.owner.decide(answer)).expect("the answer counts");
    }
}

impl Host {
    /// The owner at another door.
    #[must_use]
    pub fn elsewhere(&self) -> Elsewhere {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        Elsewhere { owner: runtime.block_on(self.owner()), runtime }
    }

    /// Connects as the owner.
    pub async fn owner(&self) -> Caller {
        self.caller(None, &self.path("w")).await
    }

    /// Connects as somebody who works in a workspace.
    pub async fn caller(&self, act_as: Option<&Principal>, workspace: &Path) -> Caller {
        let connection = Connection::open(&self.socket(), act_as).await.expect("the daemon answers");
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let place = Whereabouts { workspace: Some(workspace.to_string_lossy().into_owned()), directory: None };
        Caller(connection.at(&place).expect("a path is text"))
    }

    /// Connects in an agent's name.
    pub async fn agent(&self, name: &str) -> Caller {
        let principal: Principal = name.parse().expect("a principal");
        self.caller(Some(&principal), &self.path("w")).await
    }
}

impl Caller {
    /// Proposes a call.
    ///
    /// # Errors
    /// The daemon refused it, or is gone.
    pub async fn propose(&self, proposal: Proposal) -> Result<Underway, ApiError> {
        let updates = patiently("an answer", self.0.calls().propose(proposal.0)).await?.into_inner();
        Ok(Underway { updates })
    }

    /// Proposes a call and waits for its end.
    ///
    /// # Errors
    /// The daemon refused it, or is gone.
    pub async fn call(&self, proposal: Proposal) -> Result<CallUpdate, ApiError> {
        self.propose(proposal).await?.end().await
    }

    /// A call as the journal knows it.
    ///
    /// # Errors
    /// The daemon refused, or is gone.
    pub async fn show(&self, call_id: &str) -> Result<CallUpdate, ApiError> {
        let request = GetCallRequest { call_id: call_id.to_owned() };
        Ok(patiently("an answer", self.0.calls().get(request)).await?.into_inner())
    }

    /// Waits for a call's end.
    ///
    /// # Errors
    /// The daemon refused, or is gone.
    pub async fn follow(&self, call_id: &str) -> Result<CallUpdate, ApiError> {
        let request = FollowCallRequest { call_id: call_id.to_owned(), live_output: false };
        let updates = patiently("an answer", self.0.calls().follow(request)).await?.into_inner();
        Underway { updates }.end().await
    }

    /// Says yes to this call alone.
    ///
    /// # Errors
    /// The daemon refused, or is gone.
    pub async fn allow(&self, approval_id: &str) -> Result<ApprovalRecord, ApiError> {
        self.decide(DecideRequest { approval_id: approval_id.to_owned(), allow: true, ..DecideRequest::default() })
            .await
    }

    /// Says yes to every call of the tool in the session.
    ///
    /// # Errors
    /// The daemon refused, or is gone.
    pub async fn allow_tool(&self, approval_id: &str) -> Result<ApprovalRecord, ApiError> {
        self.decide(DecideRequest {
            approval_id: approval_id.to_owned(),
            allow: true,
            scope: Scope::Session.into(),
            matcher: Matcher::Tool.into(),
            ..DecideRequest::default()
        })
        .await
    }

    /// Answers a question.
    ///
    /// # Errors
    /// The daemon refused, or is gone.
    pub async fn decide(&self, answer: DecideRequest) -> Result<ApprovalRecord, ApiError> {
        let reply = patiently("an answer", self.0.approvals().decide(answer)).await?.into_inner();
        Ok(serde_json::from_str(&reply.approval_json).expect("an approval"))
    }

    /// What is pending now, then every change.
    ///
    /// # Errors
    /// The daemon refused, or is gone.
    pub async fn watch(&self) -> Result<Questions, ApiError> {
        let news = patiently("an answer", self.0.approvals().watch(WatchApprovalsRequest {})).await?.into_inner();
        Ok(Questions { news })
    }
}

/// Approvals as they come and end.
#[derive(Debug)]
pub struct Questions {
    news: Streaming<palyra_api::v1::Approval>,
}

impl Questions {
    /// The next approval, pending or ended.
    ///
    /// # Errors
    /// The daemon is gone.
    pub async fn next(&mut self) -> Result<ApprovalRecord, ApiError> {
        let gone = || ApiError::new("daemon_unreachable", "the stream ended", None);
        let approval = patiently("an approval", self.news.message()).await?.ok_or_else(gone)?;
        Ok(serde_json::from_str(&approval.approval_json).expect("an approval"))
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Underway {
    updates: Streaming<CallUpdate>,
}

impl Underway {
    /// The next state, or none when the stream ended.
    ///
    /// # Errors
    /// The call failed without an outcome, or the daemon is gone.
    pub async fn next(&mut self) -> Result<Option<CallUpdate>, ApiError> {
        Ok(patiently("an update", self.updates.message()).await?)
    }

    /// Waits until the call is in this state.
    pub async fn until(&mut self, state: &str) -> CallUpdate {
        loop {
            let update = self.next().await.expect("the call goes on").expect("the call has not ended");
            if update.state == state {
                return update;
            }
            assert!(update.outcome_json.is_empty(), "it ended before it was `{state}`: {update:?}");
        }
    }

    /// Waits until a human is asked, and returns the question.
    pub async fn question(&mut self) -> ApprovalRecord {
        let update = self.until("awaiting_approval").await;
        serde_json::from_str(&update.approval_json).expect("an approval")
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The call failed without an outcome, or the daemon is gone.
    pub async fn end(mut self) -> Result<CallUpdate, ApiError> {
        loop {
            match self.next().await? {
                Some(update) if !update.outcome_json.is_empty() => return Ok(update),
                Some(_) => {}
                None => return Err(ApiError::new("daemon_unreachable", "the stream ended before the call", None)),
            }
        }
    }
}

/// The outcome that an update states.
#[must_use]
pub fn outcome(update: &CallUpdate) -> Value {
    serde_json::from_str(&update.outcome_json).unwrap_or_else(|e| panic!("no outcome ({e}): {update:?}"))
}
