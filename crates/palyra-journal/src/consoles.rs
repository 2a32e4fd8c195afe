//! Console sessions as their events tell them, and the signatures of decisions that were made in them.
//!
//! A decision of the console is signed by a browser's key. Replaying checks the signature, and that the key is the one that
//! the session was opened with, by the person who decided, before the session ended. A daemon's start ends every session.

use palyra_protocol::{
    ApprovalDecision, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, ConsoleKey, DecisionSignature,
    DecisionStatement, GivenApproval, GrantMatcher, Principal, Timestamp,
};
use serde::Deserialize;
use std::collections::HashMap;

/// As much of `console.opened` as is needed.
#[derive(Deserialize)]
pub(crate) struct Opened {
    session: String,
    principal: Principal,
    key: ConsoleKey,
}

/// As much of `console.ended` as is needed.
#[derive(Deserialize)]
pub(crate) struct EndedSession {
    session: String,
}

/// The sessions since the daemon's last start.
#[derive(Debug, Default)]
pub(crate) struct Consoles(HashMap<String, Session>);

#[derive(Debug)]
struct Session {
    principal: Principal,
    key: ConsoleKey,
    ended: Option<Timestamp>,
}

impl Consoles {
    pub(crate) fn opened(&mut self, opened: Opened) -> Result<(), &'static str> {
        let Opened { session, principal, key } = opened;
        match self.0.insert(session, Session { principal, key, ended: None }) {
            None => Ok(()),
            Some(_) => Err("the session was opened before"),
        }
    }

    pub(crate) fn ended(&mut self, ended: &EndedSession, at: Timestamp) -> Result<(), &'static str> {
        match self.0.get_mut(&ended.session) {
            Some(session) if session.ended.is_none() => {
                session.ended = Some(at);
                Ok(())
            }
            _ => Err("there is no such session that is open"),
        }
    }

    /// Sessions live in the daemon's memory alone.
    pub(crate) fn daemon_started(&mut self) {
        self.0.clear();
    }

    /// Checks the signature of an answer, where it has one. `known` says whether sessions were followed from the beginning.
    pub(crate) fn check_answer(
        &self,
        asked: &ApprovalRecord,
        state: ApprovalState,
        end: &ApprovalResolution,
        known: bool,
    ) -> Result<(), &'static str> {
        let Some(signed) = &end.signature else { return Ok(()) };
        let decision = match state {
            ApprovalState::Allowed => ApprovalDecision::Allow,
            ApprovalState::Denied => ApprovalDecision::Deny,
            _ => return Err("nobody signs such an end"),
        };
        let said = DecisionStatement {
            approval_id: &asked.approval_id,
            shown: &asked.call_digest,
            policy_hash: &asked.policy_hash,
            decision,
            scope: end.scope,
            matcher: &end.matcher,
            reason: end.reason.as_deref().unwrap_or(""),
        };
        self.check(&said, signed, (&end.by, end.at), known)
    }

    /// Checks the signature of one yes of several.
    pub(crate) fn check_given(
        &self,
        asked: &ApprovalRecord,
        given: &GivenApproval,
        known: bool,
    ) -> Result<(), &'static str> {
        let Some(signed) = &given.signature else { return Ok(()) };
        let said = DecisionStatement {
            approval_id: &asked.approval_id,
            shown: &asked.call_digest,
            policy_hash: &asked.policy_hash,
            decision: ApprovalDecision::Allow,
            scope: ApprovalScope::Once,
            matcher: &GrantMatcher::ExactCall,
            reason: given.reason.as_deref().unwrap_or(""),
        };
        self.check(&said, signed, (&given.by, given.at), known)
    }

    fn check(
        &self,
        said: &DecisionStatement<'_>,
        signed: &DecisionSignature,
        (by, at): (&Principal, Timestamp),
        known: bool,
    ) -> Result<(), &'static str> {
        said.verify(signed).map_err(|_| "the signature of the answer does not fit it")?;
        if !known {
            return Ok(());
        }
        match self.0.get(signed.session.as_str()) {
            // An answer that was on its way when its session ended is recorded after that, and was given before.
            Some(session) if session.ended.is_some_and(|ended| at > ended) => {
                Err("the answer was signed in a session that had ended")
            }
            Some(session) if session.principal == *by && session.key == signed.key => Ok(()),
            Some(_) => Err("the answer was signed by another key than its session has, or for somebody else"),
            None => Err("the answer was signed in a session that was not open"),
        }
    }
}
