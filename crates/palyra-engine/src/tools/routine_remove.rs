//! `palyra.routine.remove`: ends one of the caller's own routines.

use super::schema::object;
use super::{Executing, Input, Job, Made, Place, Prepared, Preparing, Tool};
use crate::flow::execute::{Executed, Running, Stopped};
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, PolicyAction, Problem, RiskLevel, RoutineUse, ToolDefinition};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.routine.remove";

#[derive(Debug)]
struct RoutineRemove(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(RoutineRemove(ToolDefinition {
        name: NAME.parse()?,
        summary: "End one of one's own routines".to_owned(),
        description: "Removes a routine of the caller's. What became of its slots stays in the journal.".to_owned(),
        input_schema: object(
            json!({ "routine": { "type": "string", "minLength": 1, "maxLength": 64, "description": "its name or id" } }),
            &["routine"],
        ),
        output_schema: object(json!({ "routine_id": { "type": "string" } }), &["routine_id"]),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "routine": "nightly" }),
    })))
}

impl Tool for RoutineRemove {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let routine = input.text("/routine").to_owned();
        let used = Some(RoutineUse { action: PolicyAction::CronDelete, routine: routine.clone() });
        Ok(Prepared::new(Facets { routine: used, ..Facets::default() }, Remove(routine)))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

/// A routine, by its name or id.
#[derive(Debug)]
struct Remove(String);

impl Job for Remove {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move { Executed::in_daemon(done(&self.0, run).await) })
    }
}

async fn done(routine: &str, run: &Running<'_>) -> Result<Value, Stopped> {
    let (engine, caller, here) = (run.engine(), &run.call().origin().principal, &run.call().origin().workspace);
    // Those of others, and those of other workspaces, do not exist for the caller.
    let own = engine.found_routine(routine).ok();
    let own = own.filter(|record| record.plan.principal == *caller && record.plan.workspace == *here);
    let record =
        own.ok_or_else(|| Problem::new("not_found", "you have no such routine", "see yours: `palyra.routine.list`"))?;
    let removed = engine.remove_routine(caller.clone(), &record.routine_id).await;
    let removed = removed.map_err(|error| Stopped::Failed(error.problem))?;
    Ok(json!({ "routine_id": removed.record.routine_id }))
}
