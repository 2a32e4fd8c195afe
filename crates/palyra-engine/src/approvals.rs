//! Approvals: what doors can ask about questions, and the one place where they are answered.

use crate::access::VerifiedPeer;
use crate::clear::QuestionEnd;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::reconsider::policy_changed;
use crate::reload::RulesStay;
use crate::seen::no_such_approval;
use palyra_access::Feature;
use palyra_journal::{ApprovalFilter, JournalError, Listing, Page, Resolve};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::approval::MAX_WINDOW_MS;
use palyra_protocol::{
    ApprovalDecision, ApprovalId, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, GrantId,
    GrantMatcher, GrantRecord, JournalEvent, MatchKey, Principal, PrincipalKind, Problem, ShownCall, Timestamp,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// How far back approvals are listed.
pub const MAX_LISTED: u32 = 1000;
/// A page of a listing: far smaller than the largest message, because a record is told in one piece.
const PAGE: Page = Page { records: 250, bytes: 4 << 20 };
/// The longest time that a grant for a session holds: sessions are names that callers choose, and have no end.
const MAX_SESSION: Duration = Duration::from_millis(MAX_WINDOW_MS);
/// The longest reason.
const MAX_REASON: usize = 1000;

/// A human's answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Which question.
    pub approval_id: ApprovalId,
    /// Yes or no.
    pub decision: ApprovalDecision,
    /// How long a yes holds.
    pub scope: ApprovalScope,
    /// How wide a yes is.
    pub matcher: GrantMatcher,
    /// Why.
    pub reason: Option<String>,
}

impl Engine {
    /// A page of questions after the one named, oldest first.
    ///
    /// # Errors
    /// The peer may not see them.
    pub async fn approvals(
        &self,
        peer: &VerifiedPeer,
        filter: ApprovalFilter,
        after: Option<&ApprovalId>,
    ) -> Result<Listing<ApprovalRecord>, EngineError> {
        self.authorize(peer, PolicyAction::ApprovalList, PolicyResource::Daemon, None)?;
        let mut after = after.cloned();
        loop {
            let mut page = self.journal().approvals(filter, after.as_ref(), PAGE).await?;
            let last = page.records.last().map(|asked| asked.approval_id.clone());
            page.records.retain(|asked| self.sees_approval(peer, asked));
            // Whoever turns pages goes by the last record of each, so an empty one is the last.
            if !page.more || !page.records.is_empty() {
                return Ok(page);
            }
            after = last;
        }
    }

    /// One question.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn approval(&self, peer: &VerifiedPeer, id: &ApprovalId) -> Result<ApprovalRecord, EngineError> {
        self.authorize(peer, PolicyAction::ApprovalList, PolicyResource::Daemon, None)?;
        let asked = self.journal().approval(id).await?;
        if self.sees_approval(peer, &asked) { Ok(asked) } else { Err(no_such_approval(id)) }
    }

    /// What is pending now, and every change from now on.
    ///
    /// # Errors
    /// The peer may not see them.
    pub async fn watch_approvals(
        &self,
        peer: &VerifiedPeer,
    ) -> Result<(Vec<ApprovalRecord>, broadcast::Receiver<Arc<ApprovalRecord>>), EngineError> {
        let news = self.approval_news().subscribe();
        let mut pending: Vec<ApprovalRecord> = Vec::new();
        loop {
            let last = pending.last().map(|record| record.approval_id.clone());
            let page = self.approvals(peer, ApprovalFilter::Pending, last.as_ref()).await?;
            pending.extend(page.records);
            if !page.more {
                return Ok((pending, news));
            }
        }
    }

    /// Whether the peer may still see what it watches.
    ///
    /// # Errors
    /// It may not any more.
    pub fn may_watch_approvals(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::ApprovalList, PolicyResource::Daemon, None)
    }

    /// Answers a question. The call that waits goes on at once, whichever door it waits at.
    ///
    /// # Errors
    /// The peer may not answer, the question has ended, or the answer is wider than what was shown.
    pub async fn decide_approval(
        &self,
        peer: &VerifiedPeer,
        answer: Answer,
    ) -> Result<Arc<ApprovalRecord>, EngineError> {
        let asked = self.journal().approval(&answer.approval_id).await?;
        if let Err(refusal) = self.may_answer(peer, &asked) {
            // An attempt to approve what one may not is worth knowing about.
            self.journal()
                .note(&JournalEvent::AccessRefused {
                    by: peer.effective().clone(),
                    action: PolicyAction::ApprovalDecide.as_str().to_owned(),
                    resource: asked.approval_id.to_string(),
                    problem: refusal.problem.clone(),
                })
                .await?;
            return Err(refusal);
        }
        if asked.state != ApprovalState::Pending {
            return Err(JournalError::AlreadyResolved { state: asked.state }.into());
        }
        if self.access().feature(Feature::ApprovalReasons)
            && answer.reason.as_deref().is_none_or(|text| text.trim().is_empty())
        {
            let hint = "say why with `--reason TEXT`";
            return Err(EngineError::invalid("reason_required", "an answer needs a reason here", hint));
        }
        let now = self.clock().now();
        if now >= asked.expires_at || self.token_gone(asked.token.as_ref()).is_some() {
            let ended = self.record_question_end(&asked, &QuestionEnd::Expired).await?;
            return Err(JournalError::AlreadyResolved { state: ended.state }.into());
        }
        // The answer, and the grant that it leaves, are of the rules that the question is bound to: they stay until it is recorded.
        let rules_stay = self.running_policy().stay().await;
        // Asked under other rules, and not decided again yet: it is now.
        let asked = self.reconsider_one(asked).await?;
        if asked.state != ApprovalState::Pending {
            return Err(EngineError::new(ErrorKind::Conflict, policy_changed()));
        }
        let resolve = match answer.decision {
            ApprovalDecision::Allow => self.yes(peer, &asked, answer, now)?,
            ApprovalDecision::Deny => no(peer, &asked, answer, now)?,
        };
        Ok(self.settle_question(resolve, Some(rules_stay)).await?)
    }

    /// Records an answer, or an end without one, and tells everybody who waits or watches. Once begun it is carried through:
    /// whoever asked for it may go away, and an answer that is on record still reaches its call.
    pub(crate) async fn settle_question(
        &self,
        resolve: Resolve,
        rules_stay: Option<RulesStay>,
    ) -> Result<Arc<ApprovalRecord>, JournalError> {
        let engine = self.clone();
        let settling = tokio::spawn(async move {
            let _until_recorded = rules_stay;
            let record = Arc::new(engine.journal().resolve_approval(resolve).await?);
            // One answer of several is news, and the call goes on waiting.
            if record.state != ApprovalState::Pending {
                engine.wake_waiter(&record);
            }
            drop(engine.approval_news().send(Arc::clone(&record)));
            Ok(record)
        });
        settling.await.unwrap_or(Err(JournalError::Closed))
    }

    /// How a question ends that nobody answered.
    pub(crate) fn unanswered(
        &self,
        asked: &ApprovalRecord,
        state: ApprovalState,
        by: Principal,
        problem: Problem,
    ) -> Resolve {
        Resolve {
            approval_id: asked.approval_id.clone(),
            state,
            resolution: ApprovalResolution {
                by,
                token: None,
                at: self.clock().now(),
                scope: ApprovalScope::Once,
                matcher: GrantMatcher::ExactCall,
                reason: None,
                grant: None,
            },
            grant: None,
            problem: Some(problem),
        }
    }

    /// Ends every question that was proposed with a token that opens nothing any more. What was withdrawn leaves nothing
    /// behind that goes on once somebody says yes.
    pub(crate) async fn end_orphaned_questions(&self) -> Result<(), EngineError> {
        for asked in self.pending_questions().await? {
            let Some(problem) = self.token_gone(asked.token.as_ref()) else { continue };
            match self.record_question_end(&asked, &QuestionEnd::TokenGone(problem)).await {
                // Whoever was faster wins.
                Ok(_) | Err(JournalError::AlreadyResolved { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Every question that waits, whoever may see it.
    pub(crate) async fn pending_questions(&self) -> Result<Vec<ApprovalRecord>, JournalError> {
        let mut pending: Vec<ApprovalRecord> = Vec::new();
        loop {
            let last = pending.last().map(|record| &record.approval_id);
            let page = self.journal().approvals(ApprovalFilter::Pending, last, PAGE).await?;
            pending.extend(page.records);
            if !page.more {
                return Ok(pending);
            }
        }
    }

    fn may_answer(&self, peer: &VerifiedPeer, asked: &ApprovalRecord) -> Result<(), EngineError> {
        // Not left to policy: a program that could approve could approve itself.
        if peer.effective().kind() != PrincipalKind::User {
            return Err(EngineError::new(
                ErrorKind::Forbidden,
                Problem::new(
                    "agents_never_approve",
                    format!("`{}` is not a person; only people approve", peer.effective()),
                    "let a person decide",
                ),
            ));
        }
        let resource = PolicyResource::Approval(asked.approval_id.to_string());
        self.authorize(peer, PolicyAction::ApprovalDecide, resource, Some(self.answering(peer, asked)))
    }

    /// Whether an answer of this peer would count: what a door asks before it puts the question to them. Nothing is
    /// counted or recorded, and the answer itself is checked again.
    #[must_use]
    pub fn may_decide(&self, peer: &VerifiedPeer, asked: &ApprovalRecord) -> bool {
        let resource = PolicyResource::Approval(asked.approval_id.to_string());
        peer.effective().kind() == PrincipalKind::User
            && self.would_allow(peer, PolicyAction::ApprovalDecide, resource, &self.answering(peer, asked))
    }

    /// What policy is told about an answer to this question.
    fn answering(&self, peer: &VerifiedPeer, asked: &ApprovalRecord) -> PolicyRequestContext {
        let metadata = self.metadata(&asked.tool);
        PolicyRequestContext {
            session_id: Some(asked.session.clone()),
            // The person who made the proposal, also when they made it in an agent's name.
            proposed_by: Some(asked.proposed_by.clone()),
            owned_by: Some(asked.principal.clone()),
            proposal_issued_by: asked.token.as_ref().map_or_else(Vec::new, |token| token.issuers.clone()),
            approval_count: u32::try_from(asked.given.len()).unwrap_or(u32::MAX),
            tool: Some(asked.tool.to_string()),
            // Answering is not itself the sensitive act.
            is_sensitive_action: false,
            ..self.placed(PolicyRequestContext::for_tool(peer.channel().clone(), metadata, asked.facets.clone()))
        }
    }

    fn yes(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        answer: Answer,
        now: Timestamp,
    ) -> Result<Resolve, EngineError> {
        if asked.people > 1 && answer.scope != ApprovalScope::Once {
            return Err(EngineError::invalid(
                "approval_scope",
                format!("{} people decide about this call, and about this call alone", asked.people),
                "leave `--scope` out",
            ));
        }
        let grant = self.grant(peer, asked, &answer, now)?;
        Ok(Resolve {
            approval_id: asked.approval_id.clone(),
            state: ApprovalState::Allowed,
            resolution: ApprovalResolution {
                by: peer.effective().clone(),
                token: peer.shown_token(),
                at: now,
                scope: answer.scope,
                matcher: answer.matcher,
                reason: reason(answer.reason)?,
                grant: grant.as_ref().map(|(record, _)| record.grant_id.clone()),
            },
            grant,
            problem: None,
        })
    }

    /// The standing answer that a yes leaves: none for `once`.
    fn grant(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        answer: &Answer,
        now: Timestamp,
    ) -> Result<Option<(GrantRecord, MatchKey)>, EngineError> {
        let invalid = |message: String, hint: &str| EngineError::invalid("approval_scope", message, hint);
        let (session, expires_at) = match answer.scope {
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
        // Questions of another workspace do not survive the start of this one, so this is where the call would act.
        let workspace = self.workspace().root().to_string_lossy().into_owned();
        let key = MatchKey::of(&answer.matcher, &workspace, &asked.tool, &asked.call_digest, &asked.facets)
            .map_err(|e| invalid(e.to_string(), "look at what was asked: `palyra approvals show ID`"))?;
        let record = GrantRecord {
            grant_id: GrantId::mint(),
            approval_id: asked.approval_id.clone(),
            subject_id: asked.subject_id.clone(),
            tool: asked.tool.clone(),
            principal: asked.principal.clone(),
            session,
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

    /// A page of standing answers before the one named, newest first.
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

    /// Withdraws a standing answer; the next call asks again.
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

fn no(peer: &VerifiedPeer, asked: &ApprovalRecord, answer: Answer, now: Timestamp) -> Result<Resolve, EngineError> {
    let reason = reason(answer.reason)?;
    let because = reason.as_deref().map_or_else(String::new, |text| format!(": {text}"));
    Ok(Resolve {
        approval_id: asked.approval_id.clone(),
        state: ApprovalState::Denied,
        problem: Some(Problem::new(
            "approval_denied",
            format!("`{}` denied the call{because}", peer.effective()),
            "do something else, or ask why",
        )),
        resolution: ApprovalResolution {
            by: peer.effective().clone(),
            token: peer.shown_token(),
            at: now,
            scope: ApprovalScope::Once,
            matcher: GrantMatcher::ExactCall,
            reason,
            grant: None,
        },
        grant: None,
    })
}

fn reason(text: Option<String>) -> Result<Option<String>, EngineError> {
    match text {
        Some(text) if text.chars().count() > MAX_REASON => Err(EngineError::invalid(
            "reason_too_long",
            format!("a reason has at most {MAX_REASON} characters"),
            "say it shorter",
        )),
        other => Ok(other.filter(|text| !text.trim().is_empty())),
    }
}
