//! Console sessions as their events tell them, and the signatures of decisions that were made in them.
//!
//! A decision of the console is signed by a browser's key. Replaying checks the signature, and that the key is the one
//! that the session was opened with, by the person who decided, before the session ended. A daemon's start ends every
//! session.

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

    /// Checks the signature of an answer, where it has one. `known` says whether sessions were followed from the
    /// beginning.
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

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::{ApprovalId, ConsoleId, DaemonKey, Digest};

    struct Signed {
        consoles: Consoles,
        approval: ApprovalId,
        signed: DecisionSignature,
    }

    impl Signed {
        fn new() -> Self {
            let (key, approval, session) = (DaemonKey::generate().unwrap(), ApprovalId::mint(), ConsoleId::mint());
            let mut consoles = Consoles::default();
            let public = ConsoleKey::Ed25519(key.public());
            let opened = Opened { session: session.to_string(), principal: Principal::local_owner(), key: public };
            consoles.opened(opened).unwrap();
            let digest = said(&approval, ApprovalDecision::Allow).digest().unwrap();
            let signature = key.sign(&digest).to_string().parse().unwrap();
            Self { consoles, approval, signed: DecisionSignature { session, key: public, signature } }
        }

        fn check(&self, decision: ApprovalDecision, by: &str, at: u64) -> Result<(), &'static str> {
            let by: Principal = by.parse().unwrap();
            let at = Timestamp::from_unix_ms(at);
            self.consoles.check(&said(&self.approval, decision), &self.signed, (&by, at), true)
        }
    }

    fn said(approval_id: &ApprovalId, decision: ApprovalDecision) -> DecisionStatement<'_> {
        const ZERO: Digest = Digest::ZERO;
        DecisionStatement {
            approval_id,
            shown: &ZERO,
            policy_hash: &ZERO,
            decision,
            scope: ApprovalScope::Once,
            matcher: &GrantMatcher::ExactCall,
            reason: "",
        }
    }

    #[test]
    fn a_signature_counts_by_its_sessions_key_for_its_person_and_until_its_end() {
        let mut world = Signed::new();
        assert_eq!(world.check(ApprovalDecision::Allow, "user:local", 5), Ok(()));
        assert!(world.check(ApprovalDecision::Deny, "user:local", 5).is_err(), "another decision");
        assert!(world.check(ApprovalDecision::Allow, "user:mia", 5).is_err(), "somebody else");
        let ended = EndedSession { session: world.signed.session.to_string() };
        world.consoles.ended(&ended, Timestamp::from_unix_ms(10)).unwrap();
        assert_eq!(world.check(ApprovalDecision::Allow, "user:local", 10), Ok(()), "it was on its way");
        assert!(world.check(ApprovalDecision::Allow, "user:local", 11).is_err(), "after its end");
        assert!(world.consoles.ended(&ended, Timestamp::from_unix_ms(12)).is_err(), "it ends once");
        world.consoles.daemon_started();
        assert!(world.check(ApprovalDecision::Allow, "user:local", 5).is_err(), "a start ends every session");
    }

    #[test]
    fn another_key_is_not_the_sessions() {
        let (mut world, other) = (Signed::new(), Signed::new());
        let session = world.signed.session.clone();
        world.signed = DecisionSignature { session, ..other.signed };
        world.approval = other.approval;
        assert!(world.check(ApprovalDecision::Allow, "user:local", 5).is_err());
    }
}
