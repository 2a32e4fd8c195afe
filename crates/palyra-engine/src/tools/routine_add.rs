//! `palyra.routine.add`: has a tool called on a schedule, in the caller's own name.

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
        summary: "Call a tool on a schedule".to_owned(),
        description:
            "Adds a routine that calls a tool in the caller's name whenever its schedule comes. A person approves the \
                      routine; each of its calls is decided like any other."
                .to_owned(),
        input_schema: object(
            json!({
                "name": { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9._-]+$" },
                "schedule": { "type": "string", "minLength": 1, "maxLength": 128, "description": "cron, five fields" },
                "zone": { "type": "string", "minLength": 1, "maxLength": 64, "description": "a time zone; UTC when absent" },
                "tool": { "type": "string", "minLength": 1, "maxLength": 128 },
                "input": { "type": "object", "description": "the tool's input" },
                "slots_per_day": { "type": "integer", "minimum": 1, "maximum": 1440 },
            }),
            &["name", "schedule", "tool", "input"],
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
        let job = Add {
            name,
            schedule: RoutineSchedule { pattern: pattern.to_owned(), zone: zone.to_owned() },
            action: RoutineAction::Call {
                tool: input.text("/tool").to_owned(),
                input: input.value().get("input").cloned().unwrap_or_default(),
            },
            budget: slots.map_or_else(RoutineBudget::default, |slots_per_day| RoutineBudget { slots_per_day }),
        };
        Ok(Prepared::new(Facets { routine, ..Facets::default() }, job))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
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
