//! `palyra.routine.add`: a tool call or a task on a schedule, in the caller's own name.

use super::schema::object;
use super::{Executing, Input, Job, Made, Place, Prepared, Preparing, Tool};
use crate::flow::execute::{Executed, Running, Stopped};
use crate::flow::resolve::Refusal;
use crate::routines::Schedule;
use palyra_protocol::{
    ExecutorKind, Facets, PolicyAction, Problem, RiskLevel, RoutineAction, RoutineBudget, RoutinePlan, RoutineSchedule,
    RoutineUse, ToolDefinition,
};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.routine.add";

#[derive(Debug)]
struct RoutineAdd(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(RoutineAdd(ToolDefinition {
        name: NAME.parse()?,
        summary: "Do something on a schedule".to_owned(),
        description:
            "Adds a routine that calls a tool, or gives an agent a task, in the caller's name whenever its schedule \
                      comes. A person approves the routine; each of its calls is decided like any other."
                .to_owned(),
        input_schema: object(
            json!({
                "name": { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9._-]+$" },
                "schedule": { "type": "string", "minLength": 1, "maxLength": 128, "description": "cron, five fields" },
                "zone": { "type": "string", "minLength": 1, "maxLength": 64, "description": "a time zone; UTC when absent" },
                "tool": { "type": "string", "minLength": 1, "maxLength": 128 },
                "input": { "type": "object", "description": "the tool's input" },
                "prompt": { "type": "string", "minLength": 1, "description": "a task, in place of `tool` and `input`" },
                "model": { "type": "string", "minLength": 1, "maxLength": 256, "description": "the model for `prompt`" },
                "slots_per_day": { "type": "integer", "minimum": 1, "maximum": 1440 },
            }),
            &["name", "schedule"],
        ),
        output_schema: object(
            json!({ "routine_id": { "type": "string" }, "name": { "type": "string" }, "digest": { "type": "string" } }),
            &["routine_id", "name", "digest"],
        ),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({
            "name": "nightly", "schedule": "30 2 * * *", "tool": "palyra.echo", "input": { "text": "good night" },
        }),
    })))
}

impl Tool for RoutineAdd {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let (pattern, zone) = (input.text("/schedule"), input.optional("/zone").unwrap_or("UTC"));
        Schedule::parse(pattern, zone).map_err(|error| {
            Problem::new(
                "routine_schedule",
                error.to_string(),
                "five fields, minute hour day month weekday: `30 2 * * *`",
            )
        })?;
        let name = input.text("/name").to_owned();
        let routine = Some(RoutineUse { action: PolicyAction::CronCreate, routine: name.clone() });
        let slots = input.number("/slots_per_day").and_then(|slots| u32::try_from(slots).ok());
        let usual = RoutineBudget::default();
        let job = Add {
            name,
            schedule: RoutineSchedule { pattern: pattern.to_owned(), zone: zone.to_owned() },
            action: action(input)?,
            budget: RoutineBudget { slots_per_day: slots.unwrap_or(usual.slots_per_day), ..usual },
        };
        Ok(Prepared::new(Facets { routine, ..Facets::default() }, job))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

/// A call or a task, and not a bit of both.
fn action(input: Input<'_>) -> Result<RoutineAction, Problem> {
    let arguments = input.value().get("input").cloned();
    let model = input.optional("/model").map(str::to_owned);
    match (input.optional("/tool"), input.optional("/prompt"), arguments, model) {
        (Some(tool), None, Some(input), None) => Ok(RoutineAction::Call { tool: tool.to_owned(), input }),
        (None, Some(text), None, model) => Ok(RoutineAction::Prompt { text: text.to_owned(), model }),
        _ => {
            let message = "a routine has either `tool` and `input`, or `prompt` and perhaps `model`";
            Err(Problem::new("routine_action", message, "say one of the two"))
        }
    }
}

/// A routine to add.
#[derive(Debug)]
struct Add {
    name: String,
    schedule: RoutineSchedule,
    action: RoutineAction,
    budget: RoutineBudget,
}

impl Job for Add {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move { Executed::in_daemon(added(*self, run).await) })
    }
}

async fn added(job: Add, run: &Running<'_>) -> Result<Value, Stopped> {
    let Add { name, schedule, action, budget } = job;
    let principal = run.call().origin().principal.clone();
    let workspace = run.call().origin().workspace.clone();
    let plan = RoutinePlan { name, schedule, action, principal: principal.clone(), workspace, budget };
    let added = run.engine().add_routine(principal, plan).await;
    let record = added.map_err(|error| Stopped::Failed(error.problem))?.record;
    Ok(json!({ "routine_id": record.routine_id, "name": record.plan.name, "digest": record.digest }))
}
