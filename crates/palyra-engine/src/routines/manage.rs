//! Routines for people and tools: add, list, show, pause, resume, run, rehearse, remove, history.

use super::MAX_ROUTINES;
use super::RunProgress;
use super::book::Entry;
use super::schedule::Schedule;
use super::slots::{Action, Begun};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::{
    CallId, CanonicalJson, JournalEvent, Principal, PrincipalKind, Problem, RoutineAction, RoutineChange, RoutineId,
    RoutinePause, RoutinePlan, RoutineRecord, RunId, SlotKey, SlotKind, SlotRecord, SlotState, Timestamp,
};
use serde::Serialize;
use std::sync::Arc;

/// The longest name.
const MAX_NAME: usize = 64;
/// The longest prompt.
const MAX_PROMPT: usize = 64 << 10;
/// The longest reason of a pause.
const MAX_REASON: usize = 500;
/// The most slots that a history tells.
const MAX_HISTORY: usize = 200;

/// A routine as it stands.
#[derive(Debug, Clone, Serialize)]
pub struct RoutineView {
    /// The routine.
    #[serde(flatten)]
    pub record: RoutineRecord,
    /// Its schedule in words.
    pub schedule_in_words: String,
    /// When it is due next; none while it is paused.
    pub next_at: Option<Timestamp>,
    /// Why it does not run by itself.
    pub paused: Option<RoutinePause>,
    /// How many slots failed one after the other.
    pub failures: u32,
    /// Slots that run or wait for a person.
    pub open: Vec<SlotRecord>,
    /// The newest slot.
    pub last: Option<SlotRecord>,
}

/// A slot, and when its state was recorded.
#[derive(Debug, Clone, Serialize)]
pub struct SlotView {
    /// The slot.
    #[serde(flatten)]
    pub slot: SlotRecord,
    /// When it came to that.
    pub recorded_at: Timestamp,
}

/// A slot that begins now.
#[derive(Debug, Clone, Serialize)]
pub struct StartedSlot {
    /// The routine.
    pub routine_id: RoutineId,
    /// The slot.
    pub slot: SlotKey,
    /// Its call, where the routine is a call.
    pub call_id: Option<CallId>,
    /// Its run, where the routine is a prompt.
    pub run: Option<RunId>,
}

impl Engine {
    /// Adds a routine.
    ///
    /// # Errors
    /// The peer may not, or the plan cannot be carried out.
    pub async fn routine_add(&self, peer: &VerifiedPeer, plan: RoutinePlan) -> Result<RoutineView, EngineError> {
        let here = self.in_workspace_of(peer)?.workspace_record().workspace_id.clone();
        let plan = RoutinePlan { workspace: Some(here), ..plan };
        self.authorize_cron(peer, PolicyAction::CronCreate, &plan.name, &plan.principal)?;
        if plan.principal != *peer.effective()
            && let Some(agent) = PolicyResource::agent(&plan.principal)
        {
            self.authorize(peer, PolicyAction::ActAs, agent, None)?;
        }
        self.add_routine(peer.effective().clone(), plan).await
    }

    /// Adds a routine that was decided about already.
    pub(crate) async fn add_routine(&self, by: Principal, plan: RoutinePlan) -> Result<RoutineView, EngineError> {
        self.check_plan(&plan)?;
        let _one_at_a_time = self.routine_room().changing.lock().await;
        {
            let book = self.routine_room().book();
            if book.find(&plan.name).is_some() {
                let message = format!("there is a routine `{}` already", plan.name);
                return Err(conflict("routine_exists", message, "choose another name, or remove that one"));
            }
            if book.len() >= MAX_ROUTINES {
                let message = format!("there are {MAX_ROUTINES} routines already");
                return Err(conflict("routines_full", message, "remove some: `palyra routines remove`"));
            }
        }
        let digest = plan.digest().map_err(|e| EngineError::internal(e.to_string()))?;
        let now = self.clock().now();
        let record =
            RoutineRecord { routine_id: RoutineId::mint(), plan, digest, created_by: by.clone(), created_at: now };
        let id = record.routine_id.clone();
        self.change_routine(by, RoutineChange::Added { routine: Box::new(record) }).await?;
        self.view(&id)
    }

    /// Whether a plan can be carried out: a name, a schedule, a tool that is there with an input that fits, an agent.
    pub(crate) fn check_plan(&self, plan: &RoutinePlan) -> Result<(), EngineError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let named = (1..=MAX_NAME).contains(&plan.name.len()) && plan.name.chars().all(fits);
        if !named || plan.name.parse::<RoutineId>().is_ok() {
            let message = format!("a routine's name is 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`");
            return Err(EngineError::invalid("routine_name", message, "name it like `nightly-report`"));
        }
        if plan.principal.kind() != PrincipalKind::Agent {
            let message = format!("a routine runs as an agent, and `{}` is none", plan.principal);
            return Err(EngineError::invalid("routine_principal", message, "name an agent: `--agent agent:reporter`"));
        }
        Schedule::parse(&plan.schedule.pattern, &plan.schedule.zone).map_err(|error| {
            let hint = "five fields, minute hour day month weekday: `30 2 * * *`; zones are named like `Europe/Prague`";
            EngineError::invalid("routine_schedule", error.to_string(), hint)
        })?;
        if plan.budget.slots_per_day == 0 {
            return Err(EngineError::invalid("routine_budget", "a budget of no slots runs nothing", "leave it out"));
        }
        match &plan.action {
            RoutineAction::Call { tool, input } => {
                let unfit = |problem: Problem| EngineError::new(ErrorKind::Invalid, problem);
                let catalog = self.catalog();
                let tool = catalog.find(tool).map_err(unfit)?;
                let input = CanonicalJson::parse(input.to_string().as_bytes());
                let input = input.map_err(|e| unfit(Problem::plain(e.code(), e.to_string())))?;
                tool.validate(input.value()).map_err(unfit)
            }
            RoutineAction::Prompt { text, .. } if text.trim().is_empty() || text.len() > MAX_PROMPT => {
                let message = format!("a prompt has 1 to {MAX_PROMPT} bytes");
                Err(EngineError::invalid("routine_prompt", message, "say what the agent is to do: `--prompt TEXT`"))
            }
            RoutineAction::Prompt { .. } => {
                let runs = self.routine_room().runs.get();
                let checked = runs.map_or_else(|| Err(no_runs()), |runs| runs.check(plan));
                checked.map_err(|problem| EngineError::new(ErrorKind::Invalid, problem))
            }
        }
    }

    /// The routines that the peer may see, by name.
    ///
    /// # Errors
    /// The peer may not list any.
    pub fn routines(&self, peer: &VerifiedPeer) -> Result<Vec<RoutineView>, EngineError> {
        self.authorize(peer, PolicyAction::CronList, PolicyResource::Daemon, None)?;
        Ok(self.routines_seen(|record| self.sees_routine(peer, record)))
    }

    pub(crate) fn routines_seen(&self, sees: impl Fn(&RoutineRecord) -> bool) -> Vec<RoutineView> {
        let book = self.routine_room().book();
        let mut views: Vec<_> = book.iter().filter(|entry| sees(&entry.record)).map(view).collect();
        views.sort_by(|a, b| a.record.plan.name.cmp(&b.record.plan.name));
        views
    }

    /// One routine, by id or name.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub fn routine(&self, peer: &VerifiedPeer, name: &str) -> Result<RoutineView, EngineError> {
        self.authorize(peer, PolicyAction::CronList, PolicyResource::Daemon, None)?;
        let record = self.found_routine(name)?;
        if !self.sees_routine(peer, &record) {
            return Err(no_routine(name));
        }
        self.view(&record.routine_id)
    }

    /// The newest slots of a routine, the newest first.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn routine_history(
        &self,
        peer: &VerifiedPeer,
        name: &str,
        limit: usize,
    ) -> Result<Vec<SlotView>, EngineError> {
        let id = self.routine(peer, name)?.record.routine_id;
        let limit = if limit == 0 { 20 } else { limit.min(MAX_HISTORY) };
        let slots = self.journal().slots(&id, limit).await?;
        Ok(slots.into_iter().map(|(recorded_at, slot)| SlotView { slot, recorded_at }).collect())
    }

    /// Has a routine not run by itself.
    ///
    /// # Errors
    /// There is none, or the peer may not.
    pub async fn routine_pause(
        &self,
        peer: &VerifiedPeer,
        name: &str,
        reason: String,
    ) -> Result<RoutineView, EngineError> {
        let record = self.authorized_routine(peer, PolicyAction::CronDelete, name)?;
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
        let reason = if reason.is_empty() { "paused by hand".to_owned() } else { reason };
        let by = peer.effective().clone();
        let pause = RoutinePause { by: by.clone(), reason };
        let routine_id = record.routine_id.clone();
        self.change_routine(by, RoutineChange::Paused { routine_id, pause }).await?;
        self.view(&record.routine_id)
    }

    /// Has a paused routine run by itself again. What it missed stays missed.
    ///
    /// # Errors
    /// There is none, or the peer may not.
    pub async fn routine_resume(&self, peer: &VerifiedPeer, name: &str) -> Result<RoutineView, EngineError> {
        let record = self.authorized_routine(peer, PolicyAction::CronCreate, name)?;
        let routine_id = record.routine_id.clone();
        self.change_routine(peer.effective().clone(), RoutineChange::Resumed { routine_id }).await?;
        self.view(&record.routine_id)
    }

    /// Removes a routine. Its slots stay in the journal.
    ///
    /// # Errors
    /// There is none, or the peer may not.
    pub async fn routine_remove(&self, peer: &VerifiedPeer, name: &str) -> Result<RoutineView, EngineError> {
        let record = self.authorized_routine(peer, PolicyAction::CronDelete, name)?;
        self.remove_routine(peer.effective().clone(), &record.routine_id).await
    }

    /// Removes a routine that was decided about already.
    pub(crate) async fn remove_routine(&self, by: Principal, id: &RoutineId) -> Result<RoutineView, EngineError> {
        let last = self.view(id)?;
        self.change_routine(by, RoutineChange::Removed { routine_id: id.clone() }).await?;
        Ok(last)
    }

    /// Runs a routine now, or rehearses it: the same, but a yes to its call is a grant for the routine as it is.
    ///
    /// # Errors
    /// There is none, the peer may not, or it runs already.
    pub async fn routine_run(
        &self,
        peer: &VerifiedPeer,
        name: &str,
        kind: SlotKind,
    ) -> Result<StartedSlot, EngineError> {
        let record = self.authorized_routine(peer, PolicyAction::CronRun, name)?;
        self.run_routine(&record, kind).await
    }

    /// Runs a routine that was decided about already.
    pub(crate) async fn run_routine(
        &self,
        record: &Arc<RoutineRecord>,
        kind: SlotKind,
    ) -> Result<StartedSlot, EngineError> {
        let _one_at_a_time = self.routine_room().changing.lock().await;
        let at = self.clock().now();
        let slot = SlotKey { kind, at };
        let failures = {
            let book = self.routine_room().book();
            let entry = book.get(&record.routine_id).ok_or_else(|| no_routine(&record.plan.name))?;
            if entry.is_running() || entry.open.contains_key(&slot) {
                let message = format!("`{}` runs already", record.plan.name);
                return Err(conflict("routine_runs", message, "wait for its end: `palyra routines history`"));
            }
            entry.failures
        };
        let (routine_id, state) = (record.routine_id.clone(), SlotState::Started {});
        let started = SlotRecord { routine_id: routine_id.clone(), slot, state, call_id: None, run: None, failures };
        self.note_slot(started).await?;
        let (call_id, run) = match self.begin(Begun { record: Arc::clone(record), slot }) {
            Action::Call(call_id) => {
                self.on_record(&call_id).await;
                (Some(call_id), None)
            }
            Action::Run(run, mut progress) => {
                let opened = progress.wait_for(|progress| *progress != RunProgress::Beginning).await.is_ok();
                (None, opened.then_some(run))
            }
            Action::Nothing => (None, None),
        };
        Ok(StartedSlot { routine_id, slot, call_id, run })
    }

    /// A routine by id or name, for whoever asks policy next.
    pub(crate) fn found_routine(&self, name: &str) -> Result<Arc<RoutineRecord>, EngineError> {
        let book = self.routine_room().book();
        book.find(name).map(|entry| Arc::clone(&entry.record)).ok_or_else(|| no_routine(name))
    }

    fn authorized_routine(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        name: &str,
    ) -> Result<Arc<RoutineRecord>, EngineError> {
        let here = |record: &Arc<RoutineRecord>| self.is_here(peer, record.plan.workspace.as_ref());
        let found =
            self.found_routine(name).and_then(|found| if here(&found) { Ok(found) } else { Err(no_routine(name)) });
        let owner = found.as_ref().map_or_else(|_| peer.effective().clone(), |record| record.plan.principal.clone());
        let known = found.as_ref().map_or_else(|_| name.to_owned(), |record| record.routine_id.to_string());
        self.authorize_cron(peer, action, &known, &owner)?;
        found
    }

    /// Routines are sensitive. A person on the daemon's own socket, in their own name, has decided; a token has not.
    fn authorize_cron(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        name: &str,
        owner: &Principal,
    ) -> Result<(), EngineError> {
        let in_person = peer.token().is_none()
            && peer.effective() == peer.principal()
            && peer.principal().kind() == PrincipalKind::User;
        let context = PolicyRequestContext {
            allow_sensitive_tools: in_person,
            owned_by: Some(owner.clone()),
            ..self.at_door(peer)
        };
        self.authorize(peer, action, PolicyResource::CronJob(name.to_owned()), Some(context))
    }

    fn sees_routine(&self, peer: &VerifiedPeer, record: &RoutineRecord) -> bool {
        if !self.is_here(peer, record.plan.workspace.as_ref()) {
            return false;
        }
        let owned_by = Some(record.plan.principal.clone());
        let context = PolicyRequestContext { owned_by, ..self.at_door(peer) };
        let resource = PolicyResource::CronJob(record.routine_id.to_string());
        self.would_allow(peer, PolicyAction::CronList, resource, &context)
    }

    /// Records a change, takes it over, and tells the scheduler.
    async fn change_routine(&self, by: Principal, change: RoutineChange) -> Result<(), EngineError> {
        self.journal().note(&JournalEvent::RoutineChanged { by, change: change.clone() }).await?;
        self.routine_room().book().change(self.clock().now(), &change);
        self.routine_room().changed.notify_one();
        Ok(())
    }

    fn view(&self, id: &RoutineId) -> Result<RoutineView, EngineError> {
        let book = self.routine_room().book();
        book.get(id).map(view).ok_or_else(|| no_routine(id.as_str()))
    }
}

fn view(entry: &Entry) -> RoutineView {
    RoutineView {
        record: RoutineRecord::clone(&entry.record),
        schedule_in_words: entry.schedule.describe(),
        next_at: entry.next(),
        paused: entry.pause.clone(),
        failures: entry.failures,
        open: entry.open.values().cloned().collect(),
        last: entry.last.clone(),
    }
}

/// Nothing here carries out prompts.
pub(super) fn no_runs() -> Problem {
    Problem::new(
        "runs_unavailable",
        "this daemon runs no agents by itself, so a routine cannot be a prompt",
        "make the routine a tool call: `--call palyra.process.run --input '{…}'`",
    )
}

fn no_routine(name: &str) -> EngineError {
    let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let problem =
        Problem::new("not_found", format!("there is no routine `{name}`"), "`palyra routines list` shows them");
    EngineError::new(ErrorKind::NotFound, problem)
}

fn conflict(code: &str, message: String, hint: &str) -> EngineError {
    EngineError::new(ErrorKind::Conflict, Problem::new(code, message, hint))
}
