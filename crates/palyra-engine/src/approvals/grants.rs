//! Grants: what a yes leaves for other calls, which of them covers a call, and how one is withdrawn.

use crate::access::VerifiedPeer;
use crate::approvals::PAGE;
use crate::approvals::answer::Answer;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_journal::{CallSummary, JournalError, Listing};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::approval::MAX_WINDOW_MS;
use palyra_protocol::routine::ROUTINE_SESSION;
use palyra_protocol::{
    ApprovalDecision, ApprovalRecord, ApprovalScope, Digest, GrantEffect, GrantId, GrantMatcher, GrantRecord, MatchKey,
    Problem, ShownCall, Timestamp, ToolCall,
};
use std::time::Duration;

/// The longest time that a grant for a session holds: sessions are names that callers choose, and have no end.
const MAX_SESSION: Duration = Duration::from_millis(MAX_WINDOW_MS);

/// How many calls of a grant are told.
const MAX_CALLS: u32 = 100;

impl Engine {
    /// The grant that covers a call, if there is one.
    pub(crate) async fn live_grant(&self, call: &ToolCall, policy: Digest) -> Result<Option<GrantId>, EngineError> {
        let keys = MatchKey::candidates(call.workspace_root(), call.tool(), &call.digest(), call.facets());
        let origin = call.origin();
        Ok(self.journal().live_grant(&origin.principal, &origin.session, policy, keys).await?)
    }

    /// The standing no that covers a call which a person would be asked about, if there is one.
    pub(crate) async fn live_denial(&self, call: &ToolCall, policy: Digest) -> Result<Option<GrantId>, EngineError> {
        let keys = MatchKey::candidates(call.workspace_root(), call.tool(), &call.digest(), call.facets());
        let keys = keys.iter().map(MatchKey::denying).collect();
        let origin = call.origin();
        Ok(self.journal().live_grant(&origin.principal, &origin.session, policy, keys).await?)
    }

    /// What a caller is told whose call a standing no denies.
    pub(crate) async fn denied_before(&self, grant: &GrantId) -> Result<Problem, EngineError> {
        let record = self.journal().grant(grant).await?;
        let answer = self.journal().approval(&record.approval_id).await?;
        let reason = answer.resolution.and_then(|end| end.reason).map_or_else(String::new, |text| format!(": {text}"));
        let message = format!("`{}` denied such calls before{reason}", record.granted_by);
        Ok(Problem::new("standing_denial", message, "do something else; a person can withdraw the standing no"))
    }

    /// The grant that an answer leaves, a yes or a no: none for `once`.
    pub(super) fn grant(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        answer: &Answer,
        now: Timestamp,
    ) -> Result<Option<(GrantRecord, MatchKey)>, EngineError> {
        let invalid = |message: String, hint: &str| EngineError::invalid("approval_scope", message, hint);
        // A grant of a routine is bound to what the routine is, and holds until rules, routine or a person end it.
        let of_routine = asked.session.as_str().starts_with(ROUTINE_SESSION);
        let allows = answer.decision == ApprovalDecision::Allow;
        let (session, expires_at) = match answer.scope {
            ApprovalScope::Session if of_routine && allows => (Some(asked.session.clone()), None),
            ApprovalScope::Once if answer.matcher == GrantMatcher::ExactCall => return Ok(None),
            ApprovalScope::Once => {
                return Err(invalid(
                    "`once` answers this call alone, so it cannot be wider than this call".to_owned(),
                    "choose `--scope session` or `--scope window` for a wider answer",
                ));
            }
            ApprovalScope::Session => (Some(asked.session.clone()), Some(now.plus(MAX_SESSION))),
            ApprovalScope::Window { ms } if (1..=MAX_WINDOW_MS).contains(&ms) => {
                (None, Some(now.plus(Duration::from_millis(ms))))
            }
            ApprovalScope::Window { .. } => {
                return Err(invalid(
                    "a time window is longer than nothing and at most a day".to_owned(),
                    "try `--for 30m`",
                ));
            }
        };
        let workspace = self.root_of_approval(asked).ok_or_else(|| {
            invalid("the workspace of the call is registered no more".to_owned(), "propose the call again")
        })?;
        let key = MatchKey::of(&answer.matcher, &workspace, &asked.tool, &asked.call_digest, &asked.facets)
            .map_err(|e| invalid(e.to_string(), "look at what was asked: `palyra approvals show ID`"))?;
        let (effect, key) = match answer.decision {
            ApprovalDecision::Allow => (GrantEffect::Allow, key),
            ApprovalDecision::Deny => (GrantEffect::Deny, key.denying()),
        };
        let record = GrantRecord {
            grant_id: GrantId::mint(),
            approval_id: asked.approval_id.clone(),
            subject_id: asked.subject_id.clone(),
            tool: asked.tool.clone(),
            principal: asked.principal.clone(),
            session,
            effect,
            matcher: answer.matcher.clone(),
            policy_hash: asked.policy_hash,
            granted_by: peer.effective().clone(),
            created_at: now,
            expires_at,
            revoked_at: None,
            uses: 0,
            workspace: Some(workspace),
            shown: Some(ShownCall::of(&asked.facets)),
            match_key: Some(key.0),
            void: None,
        };
        Ok(Some((record, key)))
    }

    /// The real path of the workspace that an approval is about.
    pub(crate) fn root_of_approval(&self, asked: &ApprovalRecord) -> Option<String> {
        let record = asked.workspace.as_ref().and_then(|id| self.workspaces().record(id));
        record.map(|record| record.root.clone())
    }

    /// A page of grants before the one named, newest first.
    ///
    /// # Errors
    /// The peer may not see them.
    pub async fn grants(
        &self,
        peer: &VerifiedPeer,
        before: Option<&GrantId>,
    ) -> Result<Listing<GrantRecord>, EngineError> {
        self.authorize(peer, PolicyAction::GrantList, PolicyResource::Daemon, None)?;
        let mut before = before.cloned();
        loop {
            let mut page = self.journal().grants(before.as_ref(), PAGE).await?;
            let last = page.records.last().map(|grant| grant.grant_id.clone());
            page.records.retain(|grant| self.sees_grant(peer, grant));
            if !page.more || !page.records.is_empty() {
                return Ok(page);
            }
            before = last;
        }
    }

    /// One grant, and the newest calls that it answered.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn grant_with_calls(
        &self,
        peer: &VerifiedPeer,
        id: &GrantId,
    ) -> Result<(GrantRecord, Vec<CallSummary>), EngineError> {
        self.authorize(peer, PolicyAction::GrantList, PolicyResource::Daemon, None)?;
        let grant = self.journal().grant(id).await?;
        if !self.sees_grant(peer, &grant) {
            return Err(JournalError::NotFound { what: "grant", id: id.to_string() }.into());
        }
        let calls = self.journal().calls_of_grant(id, MAX_CALLS).await?;
        Ok((grant, calls))
    }

    /// Withdraws a grant; the next call asks again.
    ///
    /// # Errors
    /// There is none, or the peer may not.
    pub async fn revoke_grant(&self, peer: &VerifiedPeer, id: &GrantId) -> Result<GrantRecord, EngineError> {
        // Whether there is such a grant learns only who may withdraw it.
        let found = self.journal().grant(id).await;
        let context = self.withdrawing(peer, found.as_ref().ok());
        self.authorize(peer, PolicyAction::GrantRevoke, PolicyResource::Grant(id.to_string()), Some(context))?;
        found?;
        Ok(self.journal().revoke_grant(id, peer.effective()).await?)
    }
}
