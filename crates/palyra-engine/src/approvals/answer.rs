//! Answering: the one place where a person's yes or no becomes an approval's end.

use crate::access::VerifiedPeer;
use crate::console::{AnswerConfirmation, session_ended};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::reload::RulesStay;
use palyra_access::Feature;
use palyra_journal::{JournalError, Resolve};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::{
    ApprovalDecision, ApprovalId, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, ConsoleKey,
    ConsoleSignature, DecisionSignature, DecisionStatement, Digest, GrantMatcher, JournalEvent, PrincipalKind, Problem,
    Signer, Timestamp,
};
use std::sync::Arc;

/// The longest reason.
const MAX_REASON: usize = 1000;

/// A person's answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Which approval.
    pub approval_id: ApprovalId,
    /// Yes or no.
    pub decision: ApprovalDecision,
    /// How long a yes holds.
    pub scope: ApprovalScope,
    /// How wide a yes is.
    pub matcher: GrantMatcher,
    /// Why.
    pub reason: Option<String>,
    /// The digest of what was shown, where the screen says it: an answer about something else does not count.
    pub digest: Option<Digest>,
    /// The signature of the person's browser or device. An answer from the console or a paired device needs one.
    pub signature: Option<AnswerSignature>,
}

/// What signs an answer.
#[derive(Debug, Clone)]
pub struct AnswerSignature {
    /// The signature.
    pub signature: ConsoleSignature,
    /// The key of a paired device; a session's own key is known.
    pub key: Option<ConsoleKey>,
    /// A passkey has confirmed it.
    pub confirmation: Option<Box<AnswerConfirmation>>,
}

impl Answer {
    /// What is signed: about this approval as it was asked.
    fn statement<'a>(&'a self, asked: &'a ApprovalRecord) -> DecisionStatement<'a> {
        DecisionStatement {
            approval_id: &asked.approval_id,
            shown: &asked.call_digest,
            policy_hash: &asked.policy_hash,
            decision: self.decision,
            scope: self.scope,
            matcher: &self.matcher,
            reason: self.reason.as_deref().filter(|text| !text.trim().is_empty()).unwrap_or(""),
        }
    }
}

impl Engine {
    /// Answers an approval. The call that waits goes on at once, whichever door it waits at.
    ///
    /// # Errors
    /// The peer may not answer, the approval has ended, or the answer is wider than what was shown.
    pub async fn decide_approval(
        &self,
        peer: &VerifiedPeer,
        answer: Answer,
    ) -> Result<Arc<ApprovalRecord>, EngineError> {
        let asked = self.journal().approval(&answer.approval_id).await?;
        let verified = self.verified(peer, &asked, &answer)?;
        if let Err(refusal) = self.may_answer(peer, &asked, answer.decision, verified) {
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
        if answer.digest.is_some_and(|shown| shown != asked.call_digest) {
            let problem = Problem::new(
                "other_digest",
                "the answer is about something else than this approval asks",
                "look at it again, and answer what is shown",
            );
            return Err(EngineError::new(ErrorKind::Conflict, problem));
        }
        if self.access().feature(Feature::ApprovalReasons)
            && answer.reason.as_deref().is_none_or(|text| text.trim().is_empty())
        {
            let hint = "say why with `--reason TEXT`";
            return Err(EngineError::invalid("reason_required", "an answer needs a reason here", hint));
        }
        let now = self.clock().now();
        if now >= asked.expires_at || self.token_gone(asked.token.as_ref()).is_some() {
            let ended = self.settle_approval(self.expired(&asked), None).await?;
            return Err(JournalError::AlreadyResolved { state: ended.state }.into());
        }
        // The answer, and the grant that it leaves, are of the rules that the approval is bound to: they stay until it
        // is recorded.
        let rules_stay = self.running_policy().stay().await;
        // Asked under other rules, and not decided again yet: it is now.
        let asked = self.reconsider_one(asked).await?;
        if asked.state != ApprovalState::Pending {
            return Err(EngineError::new(ErrorKind::Conflict, crate::approvals::reconsider::policy_changed()));
        }
        let signature = self.signed_answer(peer, &asked, &answer)?;
        let mut resolve = match answer.decision {
            ApprovalDecision::Allow => self.yes(peer, &asked, answer, now)?,
            ApprovalDecision::Deny => self.no(peer, &asked, answer, now)?,
        };
        resolve.resolution.signature = signature.map(Box::new);
        Ok(self.settle_approval(resolve, Some(rules_stay)).await?)
    }

    /// Whether a passkey of the person has confirmed exactly this answer: what rules see as `approver_verified`. A
    /// confirmation of something else refuses the answer.
    fn verified(&self, peer: &VerifiedPeer, asked: &ApprovalRecord, answer: &Answer) -> Result<bool, EngineError> {
        let given = answer.signature.as_ref().and_then(|signed| signed.confirmation.as_deref());
        let Some(confirmation) = given else { return Ok(false) };
        let digest = answer.statement(asked).digest().map_err(|_| other_decision())?;
        self.verified_approver(peer, confirmation, &digest).map(|()| true)
    }

    /// The signature of an answer: by the key of the session or of the device, over exactly this. Answers at the
    /// daemon's own socket, and those of tokens, have none.
    fn signed_answer(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        answer: &Answer,
    ) -> Result<Option<DecisionSignature>, EngineError> {
        let Some(AnswerSignature { signature, key, confirmation }) = answer.signature.clone() else {
            return match (peer.console(), peer.device()) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(unsigned("console", "load the page again")),
                (None, Some(_)) => {
                    let hint = "answer in the console, or with `palyra --host` on the device";
                    Err(unsigned("paired device", hint))
                }
            };
        };
        let (signer, key) = match (peer.console(), peer.device(), key) {
            // The answer's time was taken before this: one that counts is never later than its session's end.
            (Some(session), _, None) if !session.is_open() => return Err(session_ended()),
            (Some(session), _, None) => (Signer::Session(session.id().clone()), *session.key()),
            (None, Some(device), Some(key)) => {
                let held = self.certificate_key_of(device);
                if held.is_none() || key.certificate_key() != held {
                    let message = "the answer is signed with another key than the device's certificate holds";
                    return Err(EngineError::invalid("answer_signed", message, "pair the device again"));
                }
                (Signer::Device(device.device_id().clone()), key)
            }
            _ => {
                let message = "only answers from the console and from paired devices are signed";
                return Err(EngineError::invalid("answer_signed", message, "leave the signature out"));
            }
        };
        if asked.people > 1 && answer.matcher != GrantMatcher::ExactCall {
            let message = "several people decide about this very call, so the answer is about exactly this call";
            return Err(EngineError::invalid("approval_scope", message, "look at it again, and answer exactly this"));
        }
        let assertion = confirmation.map(|confirmation| Box::new(confirmation.assertion));
        let signed = DecisionSignature { signer, key, signature, assertion };
        answer.statement(asked).verify(&signed).map_err(|_| other_decision())?;
        Ok(Some(signed))
    }

    /// Records that a person took an answer back before it was given. Nothing is decided by it.
    ///
    /// # Errors
    /// The peer may not answer, the approval has ended, or nothing could be recorded.
    pub async fn take_back(
        &self,
        peer: &VerifiedPeer,
        id: &ApprovalId,
        decision: ApprovalDecision,
    ) -> Result<(), EngineError> {
        let asked = self.journal().approval(id).await?;
        self.may_answer(peer, &asked, decision, false)?;
        if asked.state != ApprovalState::Pending {
            return Err(JournalError::AlreadyResolved { state: asked.state }.into());
        }
        let (approval_id, call_id, by) = (asked.approval_id, asked.call_id, peer.effective().clone());
        self.journal().note(&JournalEvent::ApprovalTakenBack { approval_id, call_id, decision, by }).await?;
        Ok(())
    }

    /// Records an answer, or an end without one, and tells everybody who waits or watches. Once begun it is carried
    /// through: whoever asked for it may go away, and an answer that is on record still reaches its call.
    pub(crate) async fn settle_approval(
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

    fn may_answer(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        answer: ApprovalDecision,
        approver_verified: bool,
    ) -> Result<(), EngineError> {
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
        self.not_within_client(peer, PolicyAction::ApprovalDecide)?;
        let resource = PolicyResource::Approval(asked.approval_id.to_string());
        let context = PolicyRequestContext { answer: Some(answer), approver_verified, ..self.answering(peer, asked) };
        self.authorize(peer, PolicyAction::ApprovalDecide, resource, Some(context))
    }

    /// Whether an answer of this peer would count: what a door asks before it puts the question to them. Nothing is
    /// counted or recorded, and the answer itself is checked again.
    #[must_use]
    pub fn may_decide(&self, peer: &VerifiedPeer, asked: &ApprovalRecord) -> bool {
        let either = [ApprovalDecision::Allow, ApprovalDecision::Deny];
        either.into_iter().any(|answer| {
            self.answer_counts(peer, asked, answer, false) || self.answer_needs_passkey(peer, asked, answer)
        })
    }

    /// Whether this answer of the peer's would count if a passkey of theirs confirmed it, and not without.
    #[must_use]
    pub fn answer_needs_passkey(&self, peer: &VerifiedPeer, asked: &ApprovalRecord, answer: ApprovalDecision) -> bool {
        peer.console().is_some()
            && !self.answer_counts(peer, asked, answer, false)
            && self.answer_counts(peer, asked, answer, true)
    }

    fn answer_counts(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        answer: ApprovalDecision,
        approver_verified: bool,
    ) -> bool {
        let resource = PolicyResource::Approval(asked.approval_id.to_string());
        let context = PolicyRequestContext { answer: Some(answer), approver_verified, ..self.answering(peer, asked) };
        peer.effective().kind() == PrincipalKind::User
            && peer.within_client().is_none()
            && self.would_allow(peer, PolicyAction::ApprovalDecide, resource, &context)
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
            risk: Some(asked.risk),
            // Answering is not itself the sensitive act.
            is_sensitive_action: false,
            ..self.placed(PolicyRequestContext::for_tool(peer.channel().clone(), &metadata, asked.facets.clone()))
        }
    }

    fn yes(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        mut answer: Answer,
        now: Timestamp,
    ) -> Result<Resolve, EngineError> {
        if (asked.people > 1 || asked.fresh) && answer.scope != ApprovalScope::Once {
            let message = match asked.people {
                0 | 1 if !asked.subject.is_call() => {
                    "this answer is about what is shown alone, and leaves no grant".to_owned()
                }
                0 | 1 => "a rule has this call approved by itself, so the answer leaves no grant".to_owned(),
                people => format!("{people} people decide about this call, and about this call alone"),
            };
            return Err(EngineError::invalid("approval_scope", message, "leave `--scope` out"));
        }
        // What is approved in a rehearsal is allowed to the routine from then on, unless people are to see each call.
        let single = asked.subject.is_call() && asked.people <= 1 && !asked.fresh;
        if single && answer.scope == ApprovalScope::Once && self.routine_room().rehearses(&asked.call_id) {
            answer.scope = ApprovalScope::Session;
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
                signature: None,
            },
            grant,
            problem: None,
        })
    }

    /// A no; with a scope, one that stands for later calls too.
    fn no(
        &self,
        peer: &VerifiedPeer,
        asked: &ApprovalRecord,
        answer: Answer,
        now: Timestamp,
    ) -> Result<Resolve, EngineError> {
        if !asked.subject.is_call() && answer.scope != ApprovalScope::Once {
            let message = "this answer is about what is shown alone, and leaves no standing no";
            return Err(EngineError::invalid("approval_scope", message, "leave `--scope` out"));
        }
        let grant = self.grant(peer, asked, &answer, now)?;
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
                scope: answer.scope,
                matcher: answer.matcher,
                reason,
                grant: grant.as_ref().map(|(record, _)| record.grant_id.clone()),
                signature: None,
            },
            grant,
        })
    }
}

fn unsigned(place: &str, hint: &str) -> EngineError {
    EngineError::invalid("answer_unsigned", format!("an answer from the {place} is signed with its key"), hint)
}

fn other_decision() -> EngineError {
    let message = "the signature is about something else than this approval asks now";
    let problem = Problem::new("other_decision", message, "look at it again, and answer what is shown");
    EngineError::new(ErrorKind::Conflict, problem)
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
