//! The journal's events: everything that can be recorded, in one enum.
//!
//! An event's body is the JSON of its variant; the chain covers the very bytes that stand. Adding a variant is cheap;
//! changing one breaks the reading of journals that exist, so fields are only ever added, with a default.

use crate::access::{AccessChange, ShownToken};
use crate::approval::{
    ApprovalDecision, ApprovalRecord, ApprovalResolution, ApprovalState, GivenApproval, GrantRecord,
};
use crate::attestation::ToolAttestation;
use crate::call::{Authority, CallRecord, CallState, Origin, Problem, ToolOutcome};
use crate::clock::Timestamp;
use crate::decision::ToolDecision;
use crate::digest::Digest;
use crate::effect::{EffectPath, EffectState};
use crate::egress::EgressRecord;
use crate::id::{ApprovalId, CallId, ConsoleId, GrantId, IdempotencyKey, JournalId, MemoryId};
use crate::memory::MemoryRecord;
use crate::passkey::Passkey;
use crate::principal::Principal;
use crate::routine::{RoutineChange, SlotRecord};
use crate::run::{RunEnded, RunOpened, RunResults, RunResumed, RunTurn};
use crate::signed_decision::ConsoleKey;
use crate::signing::PublicKey;
use crate::skill_event::{InstalledSkill, SkillStatusChange};
use crate::vault_event::{VaultAccess, VaultChange};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum JournalEvent {
    /// The daemon opened this journal.
    #[serde(rename = "daemon.started")]
    DaemonStarted {
        /// The daemon's version.
        version: String,
        /// The key it signs with.
        public_key: PublicKey,
        /// The policy it decides by.
        policy_hash: Digest,
        /// The journal that it opened; none in journals that earlier versions wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        journal: Option<JournalId>,
    },
    /// Every call that was opened before an event has ended: a start looks for open calls from there on.
    #[serde(rename = "calls.settled")]
    CallsSettled {
        /// The place of that event.
        before: u64,
    },
    /// From here on another key signs: somebody accepted it, because the one before was lost or replaced.
    #[serde(rename = "daemon.key_accepted")]
    DaemonKeyAccepted {
        /// The key that signed until now.
        from: PublicKey,
        /// The key that signs from now on.
        to: PublicKey,
        /// Who accepted it.
        by: Principal,
    },
    /// This journal was begun in place of one that was lost.
    #[serde(rename = "journal.begun_anew")]
    JournalBegunAnew {
        /// The key that signs.
        public_key: PublicKey,
        /// Who gave the one before up.
        by: Principal,
    },
    /// The daemon closed this journal in good order.
    #[serde(rename = "daemon.stopped")]
    DaemonStopped {},
    /// A proposal that never became a call.
    #[serde(rename = "tool.rejected")]
    ToolRejected {
        /// The call's id.
        call_id: CallId,
        /// The tool's name as it was sent, cut to a printable excerpt.
        tool: String,
        /// SHA-256 of the input as it was sent.
        input_sha256: Digest,
        /// Who asked, from where.
        origin: Box<Origin>,
        /// `rejected`: it is no call. `denied`: a rule that no policy can lift forbids it.
        state: CallState,
        /// Why.
        problem: Problem,
        /// The caller's idempotency key: a repetition gets the same refusal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<IdempotencyKey>,
    },
    /// A call was proposed.
    #[serde(rename = "tool.proposed")]
    ToolProposed {
        /// The call.
        call: Arc<CallRecord>,
    },
    /// Policy decided about a call.
    #[serde(rename = "tool.decided")]
    ToolDecided {
        /// The call.
        call_id: CallId,
        /// The decision.
        decision: Arc<ToolDecision>,
    },
    /// A human was asked.
    #[serde(rename = "approval.requested")]
    ApprovalRequested {
        /// The question.
        approval: Arc<ApprovalRecord>,
    },
    /// One of several people who are needed said yes.
    #[serde(rename = "approval.given")]
    ApprovalGiven {
        /// The question.
        approval_id: ApprovalId,
        /// The call that waits.
        call_id: CallId,
        /// Who, when, why.
        given: GivenApproval,
        /// How many have said yes by now.
        count: u32,
        /// How many are needed.
        people: u32,
    },
    /// A question stays: rules that took over ask the same people, for the same reasons.
    #[serde(rename = "approval.rebound")]
    ApprovalRebound {
        /// The question.
        approval_id: ApprovalId,
        /// The call that waits.
        call_id: CallId,
        /// The rules that asked until now.
        from: Digest,
        /// The rules that ask from now on.
        to: Digest,
    },
    /// Another set of rules took over.
    #[serde(rename = "policy.reloaded")]
    PolicyReloaded {
        /// The set that decided until now.
        from: Digest,
        /// The set that decides from now on.
        to: Digest,
        /// The files it was read from.
        files: Digest,
        /// How many rules it has.
        rules: u64,
        /// How many cases it answered as they expect.
        cases: u64,
        /// Who had it read anew.
        by: Principal,
    },
    /// Another set of rules was found wanting; the running one goes on.
    #[serde(rename = "policy.rejected")]
    PolicyRejected {
        /// The set that goes on deciding.
        running: Digest,
        /// The files that were refused, where they could be read at all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<Digest>,
        /// The first things that are wrong with them, each with its place.
        flaws: Vec<String>,
        /// How many there are in all.
        count: u64,
        /// Who had it read.
        by: Principal,
    },
    /// A question ended.
    #[serde(rename = "approval.resolved")]
    ApprovalResolved {
        /// The question.
        approval_id: ApprovalId,
        /// The call that waited.
        call_id: CallId,
        /// How it ended.
        state: ApprovalState,
        /// By whom, when, how wide.
        resolution: Box<ApprovalResolution>,
    },
    /// A person took an answer back before it was given: it decided nothing.
    #[serde(rename = "approval.taken_back")]
    ApprovalTakenBack {
        /// The approval.
        approval_id: ApprovalId,
        /// The call that waits.
        call_id: CallId,
        /// What the answer would have been.
        decision: ApprovalDecision,
        /// By whom.
        by: Principal,
    },
    /// A client told how a call ended that it carried out itself. This is the client's word: Palyra did not see it.
    #[serde(rename = "client.reported")]
    ClientReported {
        /// The call.
        call_id: CallId,
        /// By whom.
        by: Principal,
        /// Whether the client says that it succeeded.
        succeeded: bool,
        /// What the client says about it, cut to its beginning.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// A person opened the console in a browser, whose key signs from now on what they decide there.
    #[serde(rename = "console.opened")]
    ConsoleOpened {
        /// The session.
        session: ConsoleId,
        /// Who acts in it.
        principal: Principal,
        /// The token or device that they came by; none where the code was made on the daemon's own socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<ShownToken>,
        /// The browser's key.
        key: ConsoleKey,
        /// What the browser calls itself.
        label: String,
    },
    /// A session of the console ended.
    #[serde(rename = "console.ended")]
    ConsoleEnded {
        /// The session.
        session: ConsoleId,
        /// Who ended it; the daemon, where it was idle or old.
        by: Principal,
        /// Why.
        reason: String,
    },
    /// A session of the console was used: told once an hour at most, so that a start knows which are idle.
    #[serde(rename = "console.used")]
    ConsoleUsed {
        /// The session.
        session: ConsoleId,
    },
    /// A person added a passkey, with which their decisions can be confirmed.
    #[serde(rename = "console.passkey_added")]
    PasskeyAdded {
        /// The passkey.
        passkey: Box<Passkey>,
    },
    /// A passkey confirms nothing any more.
    #[serde(rename = "console.passkey_removed")]
    PasskeyRemoved {
        /// Whose it was.
        principal: Principal,
        /// Which, by its id.
        passkey: String,
        /// Who removed it.
        by: Principal,
    },
    /// Somebody tried what they may not.
    #[serde(rename = "access.refused")]
    AccessRefused {
        /// Who.
        by: Principal,
        /// What they tried: the policy's name of the action.
        action: String,
        /// On what.
        resource: String,
        /// Why not.
        problem: Problem,
    },
    /// The access registry was changed. Recorded before the file is replaced: the file that fits the newest of these is
    /// the registry, and no other.
    #[serde(rename = "access.changed")]
    AccessChanged {
        /// By whom.
        by: Principal,
        /// What was changed, without any secret.
        change: Box<AccessChange>,
        /// The registry's revision after it.
        revision: u64,
        /// SHA-256 of the file before; none when there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Digest>,
        /// SHA-256 of the file after.
        after: Digest,
        /// The rules that decided until now, where other members make them others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy_before: Option<Digest>,
        /// The rules that decide from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy_after: Option<Digest>,
    },
    /// The access registry's file was refused: at a start, or because it was not the one that a change was to replace.
    #[serde(rename = "access.registry_refused")]
    AccessRegistryRefused {
        /// SHA-256 of what was found; none when there was nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Digest>,
        /// SHA-256 of what the journal knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<Digest>,
        /// Why.
        problem: Problem,
    },
    /// Tokens that were shown and not accepted, or requests beyond what a caller may do, counted over a while.
    #[serde(rename = "access.attempts")]
    AccessAttempts {
        /// From where.
        source: String,
        /// Since when they are counted.
        since: Timestamp,
        /// How many, by reason.
        refused: std::collections::BTreeMap<String, u64>,
    },
    /// The device registry was changed. Recorded before its file is replaced, like a change of the access registry.
    #[serde(rename = "devices.changed")]
    DevicesChanged {
        /// By whom.
        by: Principal,
        /// What was changed, without any secret.
        change: serde_json::Value,
        /// The registry's revision after it.
        revision: u64,
        /// SHA-256 of the file before; none when there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Digest>,
        /// SHA-256 of the file after.
        after: Digest,
    },
    /// Something happened to devices that changes no registry: a pairing code, a pairing, refused attempts in sums.
    #[serde(rename = "devices.noted")]
    DevicesNoted {
        /// What: `pairing.pending`, `identity.refused`.
        what: String,
        /// The rest of it, without any secret.
        detail: serde_json::Value,
    },
    /// A version of a skill was installed.
    #[serde(rename = "skill.installed")]
    SkillInstalled {
        /// By whom.
        by: Principal,
        /// The skill.
        skill: String,
        /// The version.
        version: String,
        /// What was installed.
        installed: Box<InstalledSkill>,
    },
    /// A version of a skill has another status, and why.
    #[serde(rename = "skill.status")]
    SkillStatusChanged {
        /// By whom.
        by: Principal,
        /// The skill.
        skill: String,
        /// The version.
        version: String,
        /// The change.
        change: Box<SkillStatusChange>,
    },
    /// From here on this version of a skill is the one that runs.
    #[serde(rename = "skill.current")]
    SkillCurrent {
        /// By whom.
        by: Principal,
        /// The skill.
        skill: String,
        /// The version.
        version: String,
    },
    /// A version of a skill was removed.
    #[serde(rename = "skill.removed")]
    SkillRemoved {
        /// By whom.
        by: Principal,
        /// The skill.
        skill: String,
        /// The version.
        version: String,
    },
    /// The skill trust store was changed. Recorded before its file is replaced, like a change of the access registry.
    #[serde(rename = "skill.trust")]
    SkillTrustChanged {
        /// By whom.
        by: Principal,
        /// What was changed, a line for each.
        changes: Vec<String>,
        /// The store's revision after it.
        revision: u64,
        /// SHA-256 of the file after.
        after: Digest,
    },
    /// An approval left a standing answer.
    #[serde(rename = "grant.created")]
    GrantCreated {
        /// The grant.
        grant: Box<GrantRecord>,
    },
    /// A standing answer was withdrawn.
    #[serde(rename = "grant.revoked")]
    GrantRevoked {
        /// The grant.
        grant_id: GrantId,
        /// By whom.
        by: Principal,
    },
    /// Other rules took over, and with them these standing answers lost their force for good.
    #[serde(rename = "grant.voided")]
    GrantsVoided {
        /// The grants.
        grants: Vec<GrantId>,
        /// The rules that took over.
        policy_hash: Digest,
    },
    /// The intent to execute: durable before the effect.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The call.
        call_id: CallId,
        /// What allowed it besides policy.
        authority: Authority,
        /// The digest of the call that starts; none in journals that earlier versions wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_digest: Option<Digest>,
    },
    /// The outcome of an execution: durable before the answer.
    #[serde(rename = "tool.finished")]
    ToolFinished(Arc<FinishedCall>),
    /// The intent to change the workspace by a plan: durable before the first change.
    #[serde(rename = "effect.intended")]
    EffectIntended {
        /// The call whose effect it is; for an undo, the call that is undone.
        call_id: CallId,
        /// The view that holds the plan.
        view: String,
        /// The digest of the plan.
        plan_sha256: Digest,
        /// The policy that allowed it.
        policy_hash: Digest,
    },
    /// What became of an effect after its call had ended: a person answered, a start finished it, or it expired.
    #[serde(rename = "effect.settled")]
    EffectSettled {
        /// The call.
        call_id: CallId,
        /// The view.
        view: String,
        /// What became of it.
        state: EffectState,
        /// How many entries of the workspace were changed.
        done: u64,
        /// Entries that changed in the workspace meanwhile; at most 200.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        conflicts: Vec<EffectPath>,
        /// Why.
        reason: String,
        /// The approval that decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<ApprovalId>,
    },
    /// A person put back what a call had changed.
    #[serde(rename = "effect.undone")]
    EffectUndone {
        /// The call.
        call_id: CallId,
        /// The view that was undone.
        view: String,
        /// The undo's own view, by which it can be undone.
        undo: String,
        /// Who.
        by: Principal,
        /// How many entries were put back.
        done: u64,
        /// Entries that somebody had changed since, and that stay as they are; at most 200.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<EffectPath>,
    },
    /// A running call reached, or was kept from reaching, another host.
    #[serde(rename = "egress.connection")]
    EgressConnection {
        /// The call.
        call_id: CallId,
        /// The connection.
        connection: Box<EgressRecord>,
    },
    /// A secret is about to be used, or the vault to be looked at or changed: durable before that happens.
    #[serde(rename = "vault.accessed")]
    VaultAccessed {
        /// Who, which secret, for what. Never a value.
        access: Box<VaultAccess>,
    },
    /// The vault was changed: durable before the answer.
    #[serde(rename = "vault.changed")]
    VaultChanged {
        /// By whom, what, which secret. Never a value.
        change: Box<VaultChange>,
    },
    /// A memory entry was retained: durable before the answer.
    #[serde(rename = "memory.retained")]
    MemoryRetained {
        /// The entry, without its text.
        entry: Box<MemoryRecord>,
        /// The text, encrypted under the entry's own key, in base64. The key is not in the journal.
        sealed: String,
    },
    /// A memory entry is forgotten: durable before its key and its text are destroyed.
    #[serde(rename = "memory.forgotten")]
    MemoryForgotten {
        /// The entry.
        entry_id: MemoryId,
        /// By whom.
        by: Principal,
    },
    /// The set of routines changed: durable before anything follows from it.
    #[serde(rename = "routine.changed")]
    RoutineChanged {
        /// By whom.
        by: Principal,
        /// How.
        change: RoutineChange,
    },
    /// What became of one slot of a routine.
    #[serde(rename = "routine.slot")]
    RoutineSlot {
        /// The slot.
        slot: Box<SlotRecord>,
    },
    /// An agent's run begins.
    #[serde(rename = "run.opened")]
    RunOpened(Box<RunOpened>),
    /// The model has answered; its calls are proposed after this.
    #[serde(rename = "run.turn")]
    RunTurn(Box<RunTurn>),
    /// The calls of a turn have ended.
    #[serde(rename = "run.results")]
    RunResults(Box<RunResults>),
    /// A run is carried on.
    #[serde(rename = "run.resumed")]
    RunResumed(RunResumed),
    /// A run has ended.
    #[serde(rename = "run.ended")]
    RunEnded(Box<RunEnded>),
    /// Every run that was opened before an event has ended: a start looks for open runs from there on.
    #[serde(rename = "runs.settled")]
    RunsSettled {
        /// The place of that event.
        before: u64,
    },
    /// A model was asked for a caller that runs its own tools.
    #[serde(rename = "model.invoked")]
    ModelInvoked {
        /// Who asked.
        by: Principal,
        /// The model, as it was named.
        model: String,
        /// Who answered: `provider/model`; empty where nobody did.
        answered: String,
        /// Tokens that were read.
        input_tokens: u64,
        /// Tokens that were written.
        output_tokens: u64,
        /// Why there is no answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<Problem>,
        /// The connections that were made for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        connections: Vec<EgressRecord>,
    },
    /// A call that ended without having run: denied, expired, cancelled, over budget; or that nobody knows about.
    #[serde(rename = "tool.ended")]
    ToolEnded {
        /// The call.
        call_id: CallId,
        /// How it ended.
        state: CallState,
        /// Why.
        problem: Problem,
        /// The standing no that denied it, where one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<GrantId>,
    },
}

/// How an execution ended, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedCall {
    /// The call.
    pub call_id: CallId,
    /// How it ended.
    pub state: CallState,
    /// What the tool returned.
    pub output: serde_json::Value,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The signed statement.
    pub attestation: ToolAttestation,
}

impl FinishedCall {
    /// The outcome, recorded at this time.
    #[must_use]
    pub fn into_outcome(self, ended_at: Timestamp) -> ToolOutcome {
        let Self { call_id, state, output, problem, attestation } = self;
        ToolOutcome { call_id, state, output: Some(output), problem, attestation: Some(attestation), ended_at }
    }
}

/// An event as it stands in the journal: a link of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainedEvent {
    /// Its place, counted from 1.
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// Its kind.
    pub kind: String,
    /// The call it is about, or empty.
    pub call_id: String,
    /// Its body: JSON, hashed as the bytes that stand here.
    pub body: String,
    /// The hash of the event before it.
    pub prev: Digest,
    /// Its own hash.
    pub hash: Digest,
}
