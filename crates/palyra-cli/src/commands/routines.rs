//! `palyra routines`: calls and tasks on a schedule.

use super::read;
use crate::args::Calls;
use crate::args::routines::{Add, Routines, Which};
use crate::args::runs::Runs;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, DIM, GOOD, WARN, note, say, styled, when};
use crate::text::{pretty, safe, safe_lines};
use palyra_api::Connection;
use palyra_api::v1::{
    AddRoutineRequest, ListRoutinesRequest, PauseRoutineRequest, RoutineDocument, RoutineHistoryRequest, RoutineRequest,
};
use palyra_protocol::{
    CallId, RoutineAction, RoutineBudget, RoutinePause, RoutinePlan, RoutineRecord, RoutineSchedule, RunId, SlotRecord,
    SlotState, Timestamp,
};
use serde::Deserialize;
use serde_json::Value;

/// A routine as the daemon tells it.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(flatten)]
    record: RoutineRecord,
    schedule_in_words: String,
    next_at: Option<Timestamp>,
    paused: Option<RoutinePause>,
    failures: u32,
    open: Vec<SlotRecord>,
    last: Option<SlotRecord>,
}

#[derive(Debug, Deserialize)]
struct Started {
    call_id: Option<CallId>,
    run: Option<RunId>,
}

#[derive(Debug, Deserialize)]
struct Slot {
    #[serde(flatten)]
    slot: SlotRecord,
    recorded_at: Timestamp,
}

pub async fn run(context: &Context, command: Routines) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Routines::Add(add) => {
            let plan_json = serde_json::to_string(&plan(*add)?).map_err(|e| Failure::bug(&e))?;
            let added = connection.routines().add(AddRoutineRequest { plan_json }).await?.into_inner();
            tell(context, &added, "is added")
        }
        Routines::List => list(context, &connection).await,
        Routines::Show(which) => {
            let shown = connection.routines().show(of(which)).await?.into_inner();
            let told: Told = read(&shown.document_json)?;
            if context.json() {
                return output::json(&read::<Value>(&shown.document_json)?);
            }
            show(&told);
            Ok(())
        }
        Routines::Pause { which, reason } => {
            let request = PauseRoutineRequest { routine: which.routine, reason };
            tell(context, &connection.routines().pause(request).await?.into_inner(), "is paused")
        }
        Routines::Resume(which) => {
            tell(context, &connection.routines().resume(of(which)).await?.into_inner(), "goes on")
        }
        Routines::Remove(which) => {
            tell(context, &connection.routines().remove(of(which)).await?.into_inner(), "is removed")
        }
        Routines::Run { which, detach } => {
            let started = connection.routines().run(of(which)).await?.into_inner();
            follow(context, &started, detach).await
        }
        Routines::Rehearse(which) => {
            let started = connection.routines().rehearse(of(which)).await?.into_inner();
            if !context.json() {
                note!("rehearsing: what you approve is allowed to this routine from now on");
            }
            follow(context, &started, false).await
        }
        Routines::History { which, limit } => history(context, &connection, which, limit).await,
    }
}

fn of(which: Which) -> RoutineRequest {
    RoutineRequest { routine: which.routine }
}

fn plan(add: Add) -> Result<RoutinePlan, Failure> {
    let action = match (add.call, add.prompt) {
        (Some(tool), _) => {
            let bytes = super::call::input(&add.input)?;
            let input = serde_json::from_slice(&bytes).map_err(|e| {
                Failure::usage(format!("the input is no JSON: {e}"), "quote it: `--input '{\"text\":\"hi\"}'`")
            })?;
            RoutineAction::Call { tool, input }
        }
        (None, Some(text)) => RoutineAction::Prompt { text, model: add.model },
        (None, None) => return Err(Failure::usage("a routine calls a tool", "name one: `--call TOOL`")),
    };
    Ok(RoutinePlan {
        name: add.name,
        schedule: RoutineSchedule { pattern: add.schedule, zone: add.zone },
        action,
        principal: add.agent,
        workspace: None,
        budget: RoutineBudget {
            slots_per_day: add.slots_per_day,
            calls: add.max_calls,
            model_calls: add.max_model_calls,
            tokens: add.max_tokens,
            seconds: add.max_seconds,
        },
    })
}

fn tell(context: &Context, document: &RoutineDocument, what: &str) -> Result<(), Failure> {
    if context.json() {
        return output::json(&read::<Value>(&document.document_json)?);
    }
    let told: Told = read(&document.document_json)?;
    let next = told.next_at.map_or_else(String::new, |at| format!("; due {}", when(at)));
    let next = if what == "is removed" { String::new() } else { next };
    say!("{} {} {what}{next}", styled(GOOD, "✔"), styled(BOLD, &told.record.plan.name));
    Ok(())
}

async fn follow(context: &Context, started: &RoutineDocument, detach: bool) -> Result<(), Failure> {
    let Started { call_id, run } = read(&started.document_json)?;
    match (call_id, run) {
        (Some(call), _) if !detach => super::call::calls(context, Calls::Follow { call }).await,
        (_, Some(run)) if !detach => super::runs::runs(context, Runs::Follow { run }).await,
        _ if context.json() => output::json(&read::<Value>(&started.document_json)?),
        _ => {
            say!("{} it runs; `palyra routines history` tells its end", styled(GOOD, "✔"));
            Ok(())
        }
    }
}

async fn list(context: &Context, connection: &Connection) -> Result<(), Failure> {
    let told = connection.routines().list(ListRoutinesRequest {}).await?.into_inner().documents_json;
    if context.json() {
        return output::json(&told.iter().map(|one| read(one)).collect::<Result<Vec<Value>, _>>()?);
    }
    let routines = told.iter().map(|one| read(one)).collect::<Result<Vec<Told>, _>>()?;
    if routines.is_empty() {
        say!("there are no routines; add one: `palyra routines add --help`");
        return Ok(());
    }
    let row = |told: &Told| {
        let next = match (&told.paused, told.next_at) {
            (Some(_), _) => "paused".to_owned(),
            (None, Some(at)) => when(at),
            (None, None) => "never".to_owned(),
        };
        let plan = &told.record.plan;
        let last = told.last.as_ref().map_or("–", |slot| slot.state.as_str());
        let schedule = format!("{} {}", plan.schedule.pattern, plan.schedule.zone);
        vec![
            plan.name.clone(),
            plan.principal.to_string(),
            safe(&schedule),
            next,
            last.to_owned(),
            action(&plan.action),
        ]
    };
    output::table(&["NAME", "AS", "SCHEDULE", "NEXT", "LAST", "DOES"], &routines.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn action(action: &RoutineAction) -> String {
    match action {
        RoutineAction::Call { tool, .. } => safe(tool),
        RoutineAction::Prompt { text, .. } => safe(&format!("“{}”", text.chars().take(40).collect::<String>())),
    }
}

fn show(told: &Told) {
    let plan = &told.record.plan;
    say!("{}  {}", styled(BOLD, &plan.name), told.record.routine_id);
    say!(
        "schedule  {} {} ({})",
        safe(&plan.schedule.pattern),
        safe(&plan.schedule.zone),
        safe(&told.schedule_in_words)
    );
    say!(
        "as        {}, at most {} slots in 24 hours{}",
        plan.principal,
        plan.budget.slots_per_day,
        limits(&plan.budget)
    );
    say!("digest    {}", told.record.digest);
    say!("added     {} by {}", when(told.record.created_at), told.record.created_by);
    match (&told.paused, told.next_at) {
        (Some(pause), _) => say!("{}    by {}: {}", styled(WARN, "paused"), pause.by, safe(&pause.reason)),
        (None, Some(at)) => say!("due       {}", when(at)),
        (None, None) => {}
    }
    if told.failures > 0 {
        say!("failures  {} one after the other", told.failures);
    }
    for slot in &told.open {
        say!("{}   the slot of {}{}", slot.state.as_str(), when(slot.slot.at), carried_out_by(slot));
    }
    match &plan.action {
        RoutineAction::Call { tool, input } => say!("calls     {}\n{}", safe(tool), pretty(input)),
        RoutineAction::Prompt { text, model } => {
            let model = model.as_ref().map_or_else(String::new, |model| format!(" ({})", safe(model)));
            say!("asks{model}\n{}", safe_lines(text));
        }
    }
}

/// What one prompt may use, where the routine says less than the agent.
fn limits(budget: &RoutineBudget) -> String {
    let RoutineBudget { slots_per_day: _, calls, model_calls, tokens, seconds } = *budget;
    let named = [(calls, "calls"), (model_calls, "calls to the model"), (tokens, "tokens"), (seconds, "s")];
    let said = named.iter().filter_map(|(most, what)| most.map(|most| format!("{most} {what}")));
    let said = said.collect::<Vec<_>>().join(", ");
    if said.is_empty() { said } else { format!("; a prompt at most {said}") }
}

/// The run and the call of a slot, as far as there are any.
fn carried_out_by(slot: &SlotRecord) -> String {
    let run = slot.run.as_ref().map(|run| format!("  {run}"));
    let call = slot.call_id.as_ref().map(|call| format!("  {call}"));
    run.into_iter().chain(call).collect()
}

async fn history(context: &Context, connection: &Connection, which: Which, limit: u32) -> Result<(), Failure> {
    let request = RoutineHistoryRequest { routine: which.routine, limit };
    let told = connection.routines().history(request).await?.into_inner().documents_json;
    if context.json() {
        return output::json(&told.iter().map(|one| read(one)).collect::<Result<Vec<Value>, _>>()?);
    }
    let mut slots = told.iter().map(|one| read(one)).collect::<Result<Vec<Slot>, _>>()?;
    slots.reverse();
    if slots.is_empty() {
        say!("it has had no slot yet");
    }
    for Slot { slot, recorded_at } in &slots {
        let why = match &slot.state {
            SlotState::Failed { problem } => format!("  {}", safe(&problem.message)),
            SlotState::Skipped { reason } => format!("  {}", safe(reason)),
            SlotState::Missed { count } => format!("  {count} slots"),
            SlotState::Started {} | SlotState::Waiting {} | SlotState::Ran {} => String::new(),
        };
        let (by, kind) = (carried_out_by(slot), slot.slot.kind.as_str());
        say!(
            "{}  {kind:9}  {:8}{by}{why}  {}",
            when(slot.slot.at),
            slot.state.as_str(),
            styled(DIM, when(*recorded_at))
        );
    }
    Ok(())
}
