//! Routines: calls and prompts on a schedule, when they are due, what became of each slot; adding, pausing, rehearsing.

use super::rendered::{cut, document, seen};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Act, Cell, Field, FieldKind, Form, Section, address, page_with};
use crate::http::{Asked, Caller, Door, Id, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_engine::routines::{RoutineView, SlotView};
use palyra_protocol::display::safe_lines;
use palyra_protocol::{RoutineAction, RoutinePlan, RoutineSchedule, SlotKind, SlotRecord, SlotState};
use serde::Deserialize;
use serde_json::Value;

/// How many slots are shown.
const SLOTS: usize = 100;

/// Which routine's slots: what the page's address says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Which {
    slots: String,
}

pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let routines = door.engine.routines(&caller.peer)?;
    let mut sections = vec![Section {
        title: "Routines",
        about:
            "Each slot runs at most once. What waits for an answer counts as not done; three failures pause a routine."
                .to_owned(),
        columns: &["name", "state", "when", "what", "as", "next", "last slot", ""],
        rows: routines.iter().map(row).collect(),
        empty: "There are none. Add one below, or with `palyra routines add`.",
        older: None,
    }];
    if !which.slots.is_empty() {
        let slots = door.engine.routine_history(&caller.peer, &which.slots, SLOTS).await?;
        sections.push(Section {
            title: "Slots",
            about: seen(format!("What became of the slots of {}, newest first.", which.slots)),
            columns: &["due", "why", "what became of it", "call", "recorded"],
            rows: slots.iter().map(slot_row).collect(),
            empty: "It has had none yet.",
            older: None,
        });
    }
    page_with(&sections, &[], &[form()])
}

fn state(slot: &SlotRecord) -> (String, &'static str) {
    let tone = match slot.state {
        SlotState::Ran {} => "good",
        SlotState::Failed { .. } => "bad",
        SlotState::Started {} | SlotState::Waiting {} => "warn",
        SlotState::Skipped { .. } | SlotState::Missed { .. } => "plain",
    };
    (slot.state.as_str().to_owned(), tone)
}

fn row(view: &RoutineView) -> Vec<Cell> {
    let plan = &view.record.plan;
    let (word, tone) = match (&view.paused, view.open.is_empty()) {
        (Some(pause), _) => (format!("paused: {}", cut(&pause.reason, 60)), "warn"),
        (None, false) => ("runs or waits now".to_owned(), "warn"),
        (None, true) => ("on".to_owned(), "good"),
    };
    let what = match &plan.action {
        RoutineAction::Call { tool, input } => format!("{tool} {input}"),
        RoutineAction::Prompt { text, .. } => text.clone(),
    };
    let path = |what: &str| format!("/console/api/routines/{}/{what}", view.record.routine_id);
    let name = &plan.name;
    let pause = match view.paused {
        Some(_) => Act::new("Resume", path("resume"), format!("Let {name} run by itself again?")),
        None => Act::new("Pause", path("pause"), format!("Pause {name}?")).because("Why"),
    };
    let acts = vec![
        pause,
        Act::new("Run", path("run"), format!("Run {name} now?")),
        Act::new(
            "Rehearse",
            path("rehearse"),
            format!("Run {name} once while you watch? What you allow then, it may do from then on."),
        ),
        Act::new("Remove", path("remove"), format!("Remove {name}? Its slots stay in the journal.")),
    ];
    let last = view.last.as_ref().map_or_else(Cell::nothing, |slot| {
        let (word, tone) = state(slot);
        Cell::Badge(word, tone)
    });
    vec![
        Cell::Link { href: address("/console/routines", &[("slots", name)]), text: seen(name) },
        Cell::Badge(word, tone),
        Cell::text(format!("{} ({})", view.schedule_in_words, plan.schedule.zone)),
        Cell::More { summary: cut(&what, 80), text: safe_lines(&what) },
        Cell::text(&plan.principal),
        Cell::maybe(view.next_at),
        last,
        Cell::Acts(acts),
    ]
}

fn slot_row(view: &SlotView) -> Vec<Cell> {
    let slot = &view.slot;
    let (word, tone) = state(slot);
    let why = match &slot.state {
        SlotState::Failed { problem } => format!("{word}: {}", cut(problem.message.as_str(), 200)),
        SlotState::Skipped { reason } => format!("{word}: {}", cut(reason.as_str(), 200)),
        SlotState::Missed { count } => format!("{word}: {count} slots up to this one"),
        _ => word,
    };
    vec![
        Cell::time(slot.slot.at),
        Cell::text(slot.slot.kind.as_str()),
        Cell::Badge(why, tone),
        slot.call_id.as_ref().map_or_else(Cell::nothing, |call| Cell::call(call.as_str())),
        Cell::time(view.recorded_at),
    ]
}

fn form() -> Form {
    Form {
        title: "Add a routine",
        about: "It runs as an agent and is decided like any other caller. Give it a task, or a tool with its input; rehearse it \
                once so that nothing waits for you at night.",
        path: "/console/api/routines".to_owned(),
        submit: "Add it",
        fields: vec![
            Field::new("name", "Name", FieldKind::Line, "nightly-report"),
            Field::new("pattern", "When: minute, hour, day, month, weekday", FieldKind::Line, "30 2 * * *"),
            Field::new("zone", "Time zone", FieldKind::Line, "Europe/Prague"),
            Field::new("agent", "As", FieldKind::Line, "agent:reporter"),
            Field::new("prompt", "Task", FieldKind::Lines, "Summarize what changed today in CHANGES.md."),
            Field::new("tool", "Or a tool", FieldKind::Line, "palyra.process.run"),
            Field::new("input", "Its input, as JSON", FieldKind::Lines, "{\"argv\": [\"make\", \"report\"]}"),
        ],
        open: false,
    }
}

/// A routine as the form says it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub(super) struct Plan {
    name: String,
    pattern: String,
    zone: String,
    agent: String,
    prompt: String,
    tool: String,
    input: String,
}

impl Plan {
    fn read(self) -> Result<RoutinePlan, Refused> {
        let principal = self.agent.trim().parse();
        let principal = principal.map_err(|_| Refused::malformed("`As` names an agent: `agent:reporter`"))?;
        let action = match (self.tool.trim(), self.prompt.trim()) {
            ("", "") => return Err(Refused::malformed("give it a task, or a tool")),
            ("", text) => RoutineAction::Prompt { text: text.to_owned(), model: None },
            (_, text) if !text.is_empty() => {
                return Err(Refused::malformed("a routine has a task or a tool, not both"));
            }
            (tool, _) => {
                let input = if self.input.trim().is_empty() { "{}" } else { &self.input };
                let input: Value = palyra_protocol::CanonicalJson::parse(input.as_bytes())
                    .map(|input| input.value().clone())
                    .map_err(|error| Refused::malformed(format!("the input is no JSON: {error}")))?;
                RoutineAction::Call { tool: tool.to_owned(), input }
            }
        };
        let zone = if self.zone.trim().is_empty() { "UTC" } else { self.zone.trim() };
        let schedule = RoutineSchedule { pattern: self.pattern.trim().to_owned(), zone: zone.to_owned() };
        Ok(RoutinePlan { name: self.name.trim().to_owned(), schedule, action, principal, budget: Default::default() })
    }
}

pub(super) async fn add(
    State(door): State<Door>,
    caller: Caller,
    Signed(plan): Signed<Plan>,
) -> Result<Response, Refused> {
    document(&door.engine.routine_add(&caller.peer, plan.read()?).await?)
}

/// Why it is paused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pause {
    #[serde(default)]
    reason: String,
}

pub(super) async fn pause(
    State(door): State<Door>,
    caller: Caller,
    Id(routine): Id<String>,
    Signed(Pause { reason }): Signed<Pause>,
) -> Result<Response, Refused> {
    document(&door.engine.routine_pause(&caller.peer, &routine, reason).await?)
}

pub(super) async fn resume(
    State(door): State<Door>,
    caller: Caller,
    Id(routine): Id<String>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.routine_resume(&caller.peer, &routine).await?)
}

pub(super) async fn run(
    State(door): State<Door>,
    caller: Caller,
    Id(routine): Id<String>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.routine_run(&caller.peer, &routine, SlotKind::Manual).await?)
}

pub(super) async fn rehearse(
    State(door): State<Door>,
    caller: Caller,
    Id(routine): Id<String>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.routine_run(&caller.peer, &routine, SlotKind::Rehearsal).await?)
}

pub(super) async fn remove(
    State(door): State<Door>,
    caller: Caller,
    Id(routine): Id<String>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.routine_remove(&caller.peer, &routine).await?)
}
