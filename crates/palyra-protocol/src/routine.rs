//! Routines: calls and prompts on a schedule, and what became of each of their slots.
//!
//! A slot is one instant of one routine. It runs at most once, over restarts and changes of the clock: the journal
//! records it before anything is proposed, and the call carries an idempotency key that is made from routine and
//! instant.

use crate::call::Problem;
use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::id::{CallId, IdempotencyKey, RoutineId, RunId, SessionId, WorkspaceId};
use crate::json::{JsonRejection, canonical_text};
use crate::principal::Principal;
use crate::run::RunBudget;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The prefix of the sessions that routines run in. No caller can name such a session.
pub const ROUTINE_SESSION: &str = "routine:";

/// What a routine does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RoutineAction {
    /// It calls a tool.
    Call {
        /// The tool.
        tool: String,
        /// Its input.
        input: Value,
    },
    /// It gives an agent a task.
    Prompt {
        /// The task.
        text: String,
        /// The model; the agent's own where nothing is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
}

/// When a routine is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutineSchedule {
    /// A cron pattern of five fields, or a nickname such as `@daily`.
    pub pattern: String,
    /// The time zone, by its name in the time zone database.
    pub zone: String,
}

/// What a routine may spend. The limits of one prompt narrow the agent's own budget and never widen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutineBudget {
    /// The most slots that run in 24 hours; the others are skipped.
    pub slots_per_day: u32,
    /// The most tool calls of one prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// The most calls to the model of one prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// The most tokens of one prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The most seconds of one prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

impl Default for RoutineBudget {
    fn default() -> Self {
        Self { slots_per_day: 1440, calls: None, model_calls: None, tokens: None, seconds: None }
    }
}

impl RoutineBudget {
    /// How far one prompt may go, for an agent that may go this far.
    #[must_use]
    pub fn within(&self, agent: RunBudget) -> RunBudget {
        let least = |own: Option<u64>, agents: u64| own.map_or(agents, |own| own.min(agents));
        RunBudget {
            calls: least(self.calls, agent.calls),
            model_calls: least(self.model_calls, agent.model_calls),
            tokens: least(self.tokens, agent.tokens),
            seconds: least(self.seconds, agent.seconds),
        }
    }
}

/// What a routine is: everything that its digest covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutinePlan {
    /// What people call it.
    pub name: String,
    /// When it is due.
    pub schedule: RoutineSchedule,
    /// What it does.
    pub action: RoutineAction,
    /// In whose name: an agent.
    pub principal: Principal,
    /// The workspace that it works in; none in plans from before there could be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// What it may spend.
    #[serde(default)]
    pub budget: RoutineBudget,
}

impl RoutinePlan {
    /// The digest of all of it. Grants of a rehearsal are bound to it.
    ///
    /// # Errors
    /// It has no canonical form.
    pub fn digest(&self) -> Result<Digest, JsonRejection> {
        Ok(DigestBuilder::new("palyra.routine.v1").field(canonical_text(self)?.as_bytes()).finish())
    }
}

/// A routine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoutineRecord {
    /// The routine's id.
    pub routine_id: RoutineId,
    /// What it is.
    pub plan: RoutinePlan,
    /// The digest of the plan.
    pub digest: Digest,
    /// Who added it.
    pub created_by: Principal,
    /// When.
    pub created_at: Timestamp,
}

impl RoutineRecord {
    /// The session of all its calls: a grant for this session holds for this routine as it is, and for nothing else.
    ///
    /// # Errors
    /// Never: the parts fit.
    pub fn session(&self) -> Result<SessionId, crate::id::IdError> {
        format!("{ROUTINE_SESSION}{}:{}", self.routine_id, &self.digest.to_string()[..32]).parse()
    }

    /// The run of one slot.
    ///
    /// # Errors
    /// Never: the parts fit.
    pub fn run(&self, slot: &SlotKey) -> Result<RunId, crate::id::IdError> {
        self.slot_name(slot).parse()
    }

    /// The key under which a slot's call is proposed: the journal takes it once.
    ///
    /// # Errors
    /// Never: the parts fit.
    pub fn key(&self, slot: &SlotKey) -> Result<IdempotencyKey, crate::id::IdError> {
        self.slot_name(slot).parse()
    }

    fn slot_name(&self, slot: &SlotKey) -> String {
        format!("{}:{}:{}", self.routine_id, slot.kind.as_str(), slot.at.unix_ms())
    }

    /// Whether it gives an agent a task, and so its slots are runs.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        matches!(self.plan.action, RoutineAction::Prompt { .. })
    }
}

/// Whether a run belongs to a rehearsal. Only the daemon's scheduler names runs like that in a routine's session.
#[must_use]
pub fn is_rehearsal(session: &SessionId, run: &RunId) -> bool {
    let kind = run.as_str().split(':').nth(1);
    session.as_str().starts_with(ROUTINE_SESSION) && kind == Some(SlotKind::Rehearsal.as_str())
}

/// Why a slot is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotKind {
    /// The schedule came to it.
    Scheduled,
    /// A person ran the routine.
    Manual,
    /// A person rehearsed the routine.
    Rehearsal,
}

impl SlotKind {
    /// The name in listings and keys.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Manual => "manual",
            Self::Rehearsal => "rehearsal",
        }
    }
}

/// One instant of a routine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotKey {
    /// Why it is there.
    pub kind: SlotKind,
    /// The instant.
    pub at: Timestamp,
}

/// What became of a slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum SlotState {
    /// It is about to be proposed: durable before that happens.
    Started {},
    /// Its call waits for a person. It is not done.
    Waiting {},
    /// It succeeded.
    Ran {},
    /// It did not succeed.
    Failed {
        /// Why.
        problem: Problem,
    },
    /// It was not proposed.
    Skipped {
        /// Why.
        reason: String,
    },
    /// The daemon was not there, or not in time.
    Missed {
        /// How many slots up to this one.
        count: u64,
    },
}

impl SlotState {
    /// The name in listings.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Started {} => "started",
            Self::Waiting {} => "waiting",
            Self::Ran {} => "ran",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
            Self::Missed { .. } => "missed",
        }
    }

    /// Whether nothing will change any more.
    #[must_use]
    pub fn is_end(&self) -> bool {
        !matches!(self, Self::Started {} | Self::Waiting {})
    }
}

/// A slot as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// The routine.
    pub routine_id: RoutineId,
    /// Which slot.
    pub slot: SlotKey,
    /// What became of it.
    #[serde(flatten)]
    pub state: SlotState,
    /// Its call, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// Its run, where the routine is a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How many slots have failed one after the other by now.
    #[serde(default)]
    pub failures: u32,
}

/// Why a routine does not run by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutinePause {
    /// Who paused it; the daemon, after failures.
    pub by: Principal,
    /// Why.
    pub reason: String,
}

/// How the set of routines changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutineChange {
    /// A routine was added.
    Added {
        /// The routine.
        routine: Box<RoutineRecord>,
    },
    /// It does not run by itself any more.
    Paused {
        /// Which.
        routine_id: RoutineId,
        /// Why.
        pause: RoutinePause,
    },
    /// It runs by itself again, from this time on.
    Resumed {
        /// Which.
        routine_id: RoutineId,
    },
    /// It is gone.
    Removed {
        /// Which.
        routine_id: RoutineId,
    },
}

impl RoutineChange {
    /// Which routine.
    #[must_use]
    pub fn routine_id(&self) -> &RoutineId {
        match self {
            Self::Added { routine } => &routine.routine_id,
            Self::Paused { routine_id, .. } | Self::Resumed { routine_id } | Self::Removed { routine_id } => routine_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(pattern: &str) -> RoutineRecord {
        let plan = RoutinePlan {
            name: "nightly".to_owned(),
            schedule: RoutineSchedule { pattern: pattern.to_owned(), zone: "UTC".to_owned() },
            action: RoutineAction::Call { tool: "palyra.echo".to_owned(), input: json!({ "text": "hi" }) },
            principal: "agent:demo".parse().unwrap(),
            workspace: None,
            budget: RoutineBudget::default(),
        };
        let digest = plan.digest().unwrap();
        let created_by = Principal::local_owner();
        RoutineRecord {
            routine_id: RoutineId::mint(),
            plan,
            digest,
            created_by,
            created_at: Timestamp::from_unix_ms(1),
        }
    }

    #[test]
    fn sessions_and_keys_of_a_slot_are_names_that_fit() {
        let routine = record("@daily");
        let slot = SlotKey { kind: SlotKind::Scheduled, at: Timestamp::from_unix_ms(u64::MAX) };
        assert!(routine.session().unwrap().as_str().starts_with(ROUTINE_SESSION));
        assert_ne!(routine.key(&slot).unwrap(), routine.key(&SlotKey { kind: SlotKind::Manual, ..slot }).unwrap());
        assert!(routine.run(&slot).is_ok());
    }

    #[test]
    fn a_routines_budget_narrows_the_agents_and_never_widens_it() {
        let agents = RunBudget { calls: 10, model_calls: 10, tokens: 10, seconds: 10 };
        assert_eq!(RoutineBudget::default().within(agents), agents);
        let own = RoutineBudget { calls: Some(3), tokens: Some(99), ..RoutineBudget::default() };
        assert_eq!(own.within(agents), RunBudget { calls: 3, ..agents });
    }

    #[test]
    fn only_a_rehearsals_run_in_a_routines_session_is_one() {
        let routine = record("@daily");
        let slot = |kind| SlotKey { kind, at: Timestamp::from_unix_ms(5) };
        let (session, run) = (routine.session().unwrap(), |kind| routine.run(&slot(kind)).unwrap());
        assert!(is_rehearsal(&session, &run(SlotKind::Rehearsal)));
        assert!(!is_rehearsal(&session, &run(SlotKind::Scheduled)));
        assert!(!is_rehearsal(&"work".parse().unwrap(), &run(SlotKind::Rehearsal)));
    }

    #[test]
    fn another_plan_has_another_digest() {
        assert_ne!(record("@daily").digest, record("@hourly").digest);
    }

    #[test]
    fn slots_read_back_as_they_were_written() {
        let slot = SlotKey { kind: SlotKind::Scheduled, at: Timestamp::from_unix_ms(5) };
        let state = SlotState::Skipped { reason: "busy".to_owned() };
        let record = SlotRecord { routine_id: RoutineId::mint(), slot, state, call_id: None, run: None, failures: 2 };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<SlotRecord>(&text).unwrap(), record);
    }
}
