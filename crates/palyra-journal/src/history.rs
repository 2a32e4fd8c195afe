//! What the events say has happened: the life of every call, question and grant, replayed in order.
//!
//! The tables beside `events` answer questions about the present, and only events are chained. Whoever edits a table
//! and leaves the events alone could make the daemon believe in an answer that nobody gave. So [`crate::verify()`]
//! replays the events through this state machine and holds the tables against what comes out; and a start does the same
//! for the calls it takes up.
//!
//! It keeps what is open, and grants, in memory; what has ended is handed to a [`Ledger`] and forgotten, so a history
//! of any length fits. Bodies are read only as far as they are needed. It must never be more permissive than the
//! engine.

use crate::approvals::same_hand;
use crate::bodies::{
    CallsSettled, DaemonStarted, Decided, DecidedPart, Ended, Given, Granted, Proposed, Rebound, Rejected, Requested,
    Resolved, Revoked, Started, Voided, quick,
};
use crate::consoles::Consoles;
use crate::error::JournalError;
use palyra_protocol::chain::Link;
use palyra_protocol::{
    ApprovalRecord, ApprovalState, Authority, CallState, DecisionKind, Digest, GrantEffect, GrantMatcher, GrantRecord,
    Timestamp,
};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

/// How a journal's tables or events contradict what can have happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryFault {
    /// An event that nothing before it justifies.
    #[error("event {seq} does not follow from what came before: {reason}")]
    Step {
        /// The event.
        seq: u64,
        /// Why it cannot have happened.
        reason: String,
    },
    /// A row that no event justifies, or one that is missing.
    #[error("the table `{table}` does not follow from the events: {reason}")]
    Table {
        /// The table.
        table: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The events and tables agree, and yet somebody was at the database itself.
    #[error("tables, indexes, views or triggers are not those that the journal was made with: {names}")]
    Schema {
        /// Those that are missing, changed or strange.
        names: String,
    },
    /// An index leads elsewhere than its table, or is damaged.
    #[error("an index of the journal does not agree with its table: {reason}")]
    Index {
        /// What was found.
        reason: String,
    },
}

impl HistoryFault {
    /// The event it is about, if it is about one.
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Step { seq, .. } => Some(*seq),
            Self::Table { .. } | Self::Schema { .. } | Self::Index { .. } => None,
        }
    }

    pub(crate) fn table(table: &'static str, reason: impl Into<String>) -> JournalError {
        JournalError::Unfounded(Self::Table { table, reason: reason.into() })
    }
}

/// A row of `calls`, as it follows from events or as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallFacts {
    pub(crate) call_id: String,
    pub(crate) principal: String,
    pub(crate) session: String,
    pub(crate) run: String,
    pub(crate) tool: String,
    pub(crate) digest: Digest,
    pub(crate) key: Option<String>,
    pub(crate) state: CallState,
    pub(crate) opened: u64,
    pub(crate) ended: Option<u64>,
}

/// Who is told what has come to its end, or was counted.
pub(crate) trait Ledger {
    /// A call whose row is known for good, or stays as it is at the end of the events.
    fn call(&mut self, facts: &CallFacts) -> Result<(), JournalError>;
    /// A call that its run's budget paid for.
    fn counted(&mut self, principal: &str, run: &str);
    /// A question that has ended, or is pending at the end of the events.
    fn approval(&mut self, record: &ApprovalRecord) -> Result<(), JournalError>;
}

/// A call that has not ended.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) facts: CallFacts,
    pub(crate) approval: Option<ApprovalRecord>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Proposed,
    Decided {
        kind: DecisionKind,
        policy_hash: Digest,
        /// Whether a grant can stand in for the person who is needed.
        grantable: bool,
    },
    Asked,
    /// A person said yes.
    Allowed,
    /// The question ended in another way, and its call has to.
    Refused(CallState),
    Started,
}

/// A grant as its events tell it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) record: GrantRecord,
    pub(crate) created: u64,
    pub(crate) uses: u64,
    pub(crate) ended_at: Option<Timestamp>,
    /// Whether it ended with its rules.
    pub(crate) void: bool,
}

/// Keys, by a hash under a secret of this run: a history of many fits, and nobody can prepare two that look alike.
#[derive(Debug, Default)]
struct Keys {
    secret: (RandomState, RandomState),
    seen: HashSet<(u64, u64)>,
}

impl Keys {
    /// Whether it is the first of its kind.
    fn is_new(&mut self, principal: &str, key: &str) -> bool {
        let pair = (principal, key);
        self.seen.insert((self.secret.0.hash_one(pair), self.secret.1.hash_one(pair)))
    }

    fn check(&mut self, link: &Link<'_>, facts: &CallFacts) -> Result<(), JournalError> {
        match &facts.key {
            Some(key) if !self.is_new(&facts.principal, key) => {
                Err(impossible(link, "another call had this idempotency key before"))
            }
            _ => Ok(()),
        }
    }
}

/// The state machine.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) open: HashMap<String, Open>,
    pub(crate) grants: HashMap<String, Grant>,
    /// Approvals that wait and are about no call, by their own id, each with the event that asked.
    pub(crate) asked: HashMap<String, (u64, ApprovalRecord)>,
    /// The answer that the event before this one gave: a grant is born of it, or not at all.
    answered: Option<Box<ApprovalRecord>>,
    /// The idempotency keys that calls had, each with whose it was: none has two.
    keys: Keys,
    /// The journal that starts of the daemon have named.
    pub(crate) journal: Option<String>,
    /// Whose keys sign answers.
    consoles: Consoles,
    /// Every call that was opened before this event has ended.
    settled: u64,
    /// Only calls that are proposed from here on are followed, and grants are taken at their word.
    only_open: bool,
}

impl History {
    /// Follows calls alone, from where the oldest that is open began.
    pub(crate) fn of_open_calls() -> Self {
        Self { only_open: true, ..Self::default() }
    }

    /// Takes the next event.
    pub(crate) fn step(&mut self, link: &Link<'_>, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        if self.only_open && !self.is_followed(link) {
            return Ok(());
        }
        let answered = self.answered.take();
        match link.kind {
            "daemon.started" => self.daemon_started(link),
            "calls.settled" => self.calls_settled(link),
            "tool.rejected" => self.rejected(link, ledger),
            "tool.proposed" => self.proposed(link),
            "tool.decided" => self.decided(link),
            "approval.requested" => self.requested(link, ledger),
            "approval.given" => self.given(link),
            "approval.rebound" => self.rebound(link),
            "approval.resolved" => self.resolved(link, ledger),
            "grant.created" => self.granted(link, answered.as_deref()),
            "grant.revoked" => self.revoked(link),
            "grant.voided" => self.voided(link),
            "tool.started" => self.started(link, ledger),
            "egress.connection" => self.at(link, |stage| stage == Stage::Started).map(drop),
            "tool.finished" => self.finished(link, ledger),
            "tool.ended" => self.ended(link, ledger),
            "console.opened" => self.consoles.opened(read(link)?).map_err(|why| impossible(link, why)),
            "console.ended" => self.consoles.ended(&read(link)?, link.at).map_err(|why| impossible(link, why)),
            "console.passkey_added" => self.consoles.passkey_added(read(link)?).map_err(|why| impossible(link, why)),
            "console.passkey_removed" => {
                self.consoles.passkey_removed(read(link)?, link.at).map_err(|why| impossible(link, why))
            }
            "devices.changed" => {
                self.consoles.devices_changed(read(link)?, link.at);
                Ok(())
            }
            // Everything else changes no table.
            _ => Ok(()),
        }
    }

    /// Whether an event is about a call, or an approval, that is open or opens.
    fn is_followed(&self, link: &Link<'_>) -> bool {
        matches!(link.kind, "tool.proposed" | "approval.requested")
            || self.open.contains_key(link.call_id)
            || self.asked.contains_key(link.call_id)
    }

    /// Hands over what is still open at the end of the events.
    pub(crate) fn finish(&mut self, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        for open in self.open.values() {
            ledger.call(&open.facts)?;
            if let Some(record) = open.approval.as_ref().filter(|record| record.state == ApprovalState::Pending) {
                ledger.approval(record)?;
            }
        }
        self.asked.values().try_for_each(|(_, record)| ledger.approval(record))
    }

    fn daemon_started(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let DaemonStarted { journal } = read(link)?;
        match (&self.journal, journal) {
            (Some(known), Some(journal)) if *known != journal => Err(impossible(link, "it is of another journal")),
            (None, Some(journal)) => {
                self.journal = Some(journal.into_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn calls_settled(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let CallsSettled { before } = read(link)?;
        let open = self.open.values().any(|open| open.facts.opened < before)
            || self.asked.values().any(|(opened, _)| *opened < before);
        if open || before <= self.settled || before > link.seq {
            return Err(impossible(link, "a call that was opened before has not ended"));
        }
        self.settled = before;
        Ok(())
    }

    fn rejected(&mut self, link: &Link<'_>, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        let Rejected { tool, input_sha256, origin, state, idempotency_key } = read(link)?;
        if !matches!(state, CallState::Rejected | CallState::Denied) {
            return Err(impossible(link, "a proposal that is no call is rejected or denied"));
        }
        let facts = CallFacts {
            call_id: link.call_id.to_owned(),
            principal: origin.principal.into_owned(),
            session: origin.session.into_owned(),
            run: origin.run.into_owned(),
            tool: tool.into_owned(),
            digest: input_sha256,
            key: idempotency_key.map(Cow::into_owned),
            state,
            opened: link.seq,
            ended: Some(link.seq),
        };
        self.keys.check(link, &facts)?;
        ledger.call(&facts)
    }

    fn proposed(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let Proposed { call } = read(link)?;
        let facts = CallFacts { state: CallState::Proposed, ..call.facts(link.seq) };
        if facts.call_id != link.call_id {
            return Err(impossible(link, "it is about another call than it says"));
        }
        self.keys.check(link, &facts)?;
        let open = Open { facts, approval: None, stage: Stage::Proposed };
        match self.open.insert(link.call_id.to_owned(), open) {
            None => Ok(()),
            Some(_) => Err(impossible(link, "the call was proposed before")),
        }
    }

    fn decided(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let decision = match quick::decided(link) {
            Some(decision) => decision,
            None => read::<Decided>(link)?.decision,
        };
        let open = self.at(link, |stage| stage == Stage::Proposed)?;
        let DecidedPart { decision: kind, policy_hash, call_digest, people, fresh } = decision;
        if call_digest.is_some_and(|digest| digest != open.facts.digest) {
            return Err(impossible(link, "it decides about something else than was proposed"));
        }
        open.stage = Stage::Decided { kind, policy_hash, grantable: people <= 1 && !fresh };
        Ok(())
    }

    fn requested(&mut self, link: &Link<'_>, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        let Requested { approval } = read(link)?;
        if !approval.subject.is_call() {
            return self.requested_by_itself(link, approval);
        }
        if self.only_open && !self.open.contains_key(link.call_id) {
            return Ok(());
        }
        let needed = |stage| matches!(stage, Stage::Decided { kind: DecisionKind::NeedsApproval, .. });
        let open = self.at(link, needed)?;
        if approval.state != ApprovalState::Pending || approval.call_digest != open.facts.digest {
            return Err(impossible(link, "it asks about something else than was proposed"));
        }
        open.stage = Stage::Asked;
        open.facts.state = CallState::AwaitingApproval;
        ledger.counted(&open.facts.principal, &open.facts.run);
        open.approval = Some(approval);
        Ok(())
    }

    /// Asks about something that is no call: nothing has to come before it.
    fn requested_by_itself(&mut self, link: &Link<'_>, approval: ApprovalRecord) -> Result<(), JournalError> {
        let own = approval.call_id.as_str() == link.call_id && !self.open.contains_key(link.call_id);
        if !own || approval.state != ApprovalState::Pending || !approval.given.is_empty() {
            return Err(impossible(link, "it is about another call than it says, or was answered before it was asked"));
        }
        match self.asked.insert(link.call_id.to_owned(), (link.seq, approval)) {
            None => Ok(()),
            Some(_) => Err(impossible(link, "it was asked before")),
        }
    }

    fn given(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let Given { approval_id, given } = read(link)?;
        let consoles = std::mem::take(&mut self.consoles);
        let known = !self.only_open;
        let record = self.question(link, &approval_id)?;
        consoles.check_given(record, &given, known).map_err(|why| impossible(link, why))?;
        let twice = record.given.iter().any(|earlier| earlier.by == given.by);
        if twice || more_needed(record) <= 1 || same_hand(record, &given.by, given.token.as_ref()).is_some() {
            return Err(impossible(link, "this answer was not one of those that were needed"));
        }
        record.given.push(given);
        self.consoles = consoles;
        Ok(())
    }

    fn rebound(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let Rebound { approval_id, from, to } = read(link)?;
        let record = self.question(link, &approval_id)?;
        if record.policy_hash != from {
            return Err(impossible(link, "other rules asked this question"));
        }
        record.policy_hash = to;
        Ok(())
    }

    fn resolved(&mut self, link: &Link<'_>, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        let Resolved { approval_id, state, resolution } = read(link)?;
        let consoles = std::mem::take(&mut self.consoles);
        let known = !self.only_open;
        let record = self.question(link, &approval_id)?;
        consoles.check_answer(record, state, &resolution, known).map_err(|why| impossible(link, why))?;
        let twice = record.given.iter().any(|given| given.by == resolution.by)
            || record.people > 1 && same_hand(record, &resolution.by, resolution.token.as_ref()).is_some();
        if state == ApprovalState::Allowed && (twice || more_needed(record) > 1) {
            return Err(impossible(link, "more people have to say yes"));
        }
        record.state = state;
        record.resolution = Some(resolution);
        ledger.approval(record)?;
        let record = record.clone();
        self.consoles = consoles;
        if !record.subject.is_call() {
            self.asked.remove(link.call_id);
            return if state == ApprovalState::Pending {
                Err(impossible(link, "it leaves the question open"))
            } else {
                Ok(())
            };
        }
        let answered = matches!(state, ApprovalState::Allowed | ApprovalState::Denied).then(|| Box::new(record));
        let open = self.at(link, |stage| stage == Stage::Asked)?;
        (open.stage, open.facts.state) = match state {
            ApprovalState::Allowed => (Stage::Allowed, CallState::Approved),
            ApprovalState::Denied => (Stage::Refused(CallState::Denied), open.facts.state),
            ApprovalState::Expired => (Stage::Refused(CallState::Expired), open.facts.state),
            ApprovalState::Cancelled => (Stage::Refused(CallState::Cancelled), open.facts.state),
            ApprovalState::Pending => return Err(impossible(link, "it leaves the question open")),
        };
        self.answered = answered;
        Ok(())
    }

    fn granted(&mut self, link: &Link<'_>, answered: Option<&ApprovalRecord>) -> Result<(), JournalError> {
        let Granted { grant } = read(link)?;
        let born = answered.is_some_and(|answer| {
            let resolution = answer.resolution.as_ref();
            resolution.is_some_and(|end| end.grant.as_ref() == Some(&grant.grant_id) && end.matcher == grant.matcher)
                && (&answer.approval_id, &answer.principal, &answer.tool)
                    == (&grant.approval_id, &grant.principal, &grant.tool)
                && answer.policy_hash == grant.policy_hash
                && matches!(
                    (answer.state, grant.effect),
                    (ApprovalState::Allowed, GrantEffect::Allow) | (ApprovalState::Denied, GrantEffect::Deny)
                )
        });
        if !born {
            return Err(impossible(link, "no answer left such a grant"));
        }
        let grant = Grant { record: grant, created: link.seq, uses: 0, ended_at: None, void: false };
        self.grants.insert(grant.record.grant_id.to_string(), grant);
        Ok(())
    }

    fn revoked(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let Revoked { grant_id } = read(link)?;
        self.end_grant(link, &grant_id).map(drop)
    }

    fn voided(&mut self, link: &Link<'_>) -> Result<(), JournalError> {
        let Voided { grants } = read(link)?;
        for id in &grants {
            self.end_grant(link, id)?.void = true;
        }
        Ok(())
    }

    fn end_grant(&mut self, link: &Link<'_>, id: &str) -> Result<&mut Grant, JournalError> {
        match self.grants.get_mut(id) {
            Some(grant) if grant.ended_at.is_none() => {
                grant.ended_at = Some(link.at);
                Ok(grant)
            }
            _ => Err(impossible(link, "there is no such grant that holds")),
        }
    }

    fn started(&mut self, link: &Link<'_>, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        let Started { authority, call_digest } = read(link)?;
        let (limited, grants) = (self.only_open, &mut self.grants);
        let open = self.open.get_mut(link.call_id).ok_or_else(|| impossible(link, "nobody proposed this call"))?;
        let Open { facts, approval, stage } = open;
        let founded = match (&authority, *stage) {
            (Authority::Policy, Stage::Decided { kind: DecisionKind::Allow, .. }) => true,
            (Authority::Grant(id), Stage::Decided { kind: DecisionKind::NeedsApproval, policy_hash, grantable }) => {
                let grant = grants.get_mut(id.as_str()).filter(|grant| grant.record.effect == GrantEffect::Allow);
                let grant = grant.filter(|grant| grant.covers(facts, policy_hash, link.at));
                grantable && (grant.map(|grant| grant.uses += 1).is_some() || limited)
            }
            (Authority::Approval(id), Stage::Allowed) => approval.as_ref().is_some_and(|a| a.approval_id == *id),
            _ => false,
        };
        if !founded {
            return Err(impossible(link, "neither policy, nor a person, nor a grant allowed this call to start"));
        }
        if call_digest.is_some_and(|digest| digest != facts.digest) {
            return Err(impossible(link, "something else starts than was proposed"));
        }
        if !matches!(authority, Authority::Approval(_)) {
            ledger.counted(&facts.principal, &facts.run);
        }
        *stage = Stage::Started;
        facts.state = CallState::Executing;
        Ok(())
    }

    fn finished(&mut self, link: &Link<'_>, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        let state = match quick::finished(link) {
            Some(state) => state,
            None => read::<Ended>(link)?.state,
        };
        let ran = matches!(state, CallState::Succeeded | CallState::Failed | CallState::Cancelled);
        self.at(link, |stage| ran && stage == Stage::Started)?;
        self.close(link, state, ledger)
    }

    fn ended(&mut self, link: &Link<'_>, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        let Ended { state, grant } = read(link)?;
        if let Some(grant) = grant {
            return self.denied_by_grant(link, state, &grant, ledger);
        }
        self.at(link, |stage| match stage {
            // By policy, or because the run has had its calls.
            Stage::Decided { .. } => state == CallState::Denied,
            Stage::Refused(expected) => state == expected,
            Stage::Allowed => state == CallState::Cancelled,
            Stage::Started => state == CallState::Indeterminate,
            Stage::Proposed | Stage::Asked => false,
        })?;
        self.close(link, state, ledger)
    }

    /// A person's standing no: it counts as used, and covers only what a person would have been asked about.
    fn denied_by_grant(
        &mut self,
        link: &Link<'_>,
        state: CallState,
        id: &str,
        ledger: &mut dyn Ledger,
    ) -> Result<(), JournalError> {
        let asks = |stage| matches!(stage, Stage::Decided { kind: DecisionKind::NeedsApproval, .. });
        let open = self.at(link, |stage| state == CallState::Denied && asks(stage))?;
        let Stage::Decided { policy_hash, .. } = open.stage else {
            return Err(impossible(link, "nothing was decided about it"));
        };
        let facts = open.facts.clone();
        let grant = self.grants.get_mut(id).filter(|grant| grant.record.effect == GrantEffect::Deny);
        let grant = grant.filter(|grant| grant.covers(&facts, policy_hash, link.at));
        match grant {
            Some(grant) => grant.uses += 1,
            None if self.only_open => {}
            None => return Err(impossible(link, "there is no such standing no")),
        }
        self.close(link, state, ledger)
    }

    fn close(&mut self, link: &Link<'_>, state: CallState, ledger: &mut dyn Ledger) -> Result<(), JournalError> {
        let Some(Open { mut facts, .. }) = self.open.remove(link.call_id) else {
            return Err(impossible(link, "nobody proposed this call"));
        };
        facts.state = state;
        facts.ended = Some(link.seq);
        ledger.call(&facts)
    }

    /// The open call that an event is about, at a stage where it can be.
    fn at(&mut self, link: &Link<'_>, fits: impl FnOnce(Stage) -> bool) -> Result<&mut Open, JournalError> {
        match self.open.get_mut(link.call_id) {
            None => Err(impossible(link, "no such call is under way")),
            Some(open) if fits(open.stage) => Ok(open),
            Some(open) => {
                let state = open.facts.state.as_str();
                Err(impossible(link, &format!("a call that is {state} cannot get there")))
            }
        }
    }

    fn question(&mut self, link: &Link<'_>, approval_id: &str) -> Result<&mut ApprovalRecord, JournalError> {
        if self.asked.contains_key(link.call_id) {
            let asked = self.asked.get_mut(link.call_id).map(|(_, record)| record);
            let asked = asked.filter(|record| record.approval_id.as_str() == approval_id);
            return asked.ok_or_else(|| impossible(link, "that was not asked"));
        }
        let open = self.at(link, |stage| stage == Stage::Asked)?;
        let asked = open.approval.as_mut().filter(|record| record.approval_id.as_str() == approval_id);
        asked.ok_or_else(|| impossible(link, "that was not asked about this call"))
    }
}

impl Grant {
    fn covers(&self, call: &CallFacts, policy_hash: Digest, at: Timestamp) -> bool {
        let GrantRecord { principal, session, expires_at, policy_hash: given_under, .. } = &self.record;
        self.ended_at.is_none()
            && *given_under == policy_hash
            && principal.to_string() == call.principal
            && session.as_ref().is_none_or(|session| session.as_str() == call.session)
            && expires_at.is_none_or(|end| end > at)
            && (self.record.matcher != GrantMatcher::Tool || self.record.tool.as_str() == call.tool)
    }
}

/// A ledger that keeps nothing.
pub(crate) struct Deaf;

impl Ledger for Deaf {
    fn call(&mut self, _facts: &CallFacts) -> Result<(), JournalError> {
        Ok(())
    }

    fn counted(&mut self, _principal: &str, _run: &str) {}

    fn approval(&mut self, _record: &ApprovalRecord) -> Result<(), JournalError> {
        Ok(())
    }
}

fn more_needed(record: &ApprovalRecord) -> u32 {
    record.people.saturating_sub(u32::try_from(record.given.len()).unwrap_or(u32::MAX))
}

fn impossible(link: &Link<'_>, reason: &str) -> JournalError {
    JournalError::Unfounded(HistoryFault::Step { seq: link.seq, reason: format!("{}: {reason}", link.kind) })
}

fn read<'a, T: Deserialize<'a>>(link: &Link<'a>) -> Result<T, JournalError> {
    serde_json::from_str(link.body).map_err(|e| impossible(link, &format!("it cannot be read: {e}")))
}
