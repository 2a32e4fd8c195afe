//! `palyra.routine.run`: runs one of the caller's own routines now.

use super::schema::object;
use super::{Executing, Input, Job, Made, Place, Prepared, Preparing, Tool};
use crate::flow::execute::{Executed, Running, Stopped};
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, PolicyAction, Problem, RiskLevel, RoutineUse, SlotKind, ToolDefinition};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.routine.run";

#[derive(Debug)]
struct RoutineRun(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(RoutineRun(ToolDefinition {
        name: NAME.parse()?,
        summary: "Run one of one's own routines now".to_owned(),
        description:
            "Runs a routine of the caller's now, besides its schedule. It answers with the call or the run that \
                      begins."
                .to_owned(),
        input_schema: object(
            json!({ "routine": { "type": "string", "minLength": 1, "maxLength": 64, "description": "its name or id" } }),
            &["routine"],
        ),
        output_schema: object(
            json!({
                "routine_id": { "type": "string" }, "call_id": { "type": ["string", "null"] },
                "run": { "type": ["string", "null"] },
            }),
            &["routine_id", "call_id", "run"],
        ),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "routine": "nightly" }),
    })))
}

impl Tool for RoutineRun {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let routine = input.text("/routine").to_owned();
        let used = Some(RoutineUse { action: PolicyAction::CronRun, routine: routine.clone() });
        Ok(Prepared::new(Facets { routine: used, ..Facets::default() }, Run(routine)))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

/// A routine, by its name or id.
#[derive(Debug)]
struct Run(String);

impl Job for Run {
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
    let started =
        engine.run_routine(&record, SlotKind::Manual).await.map_err(|error| Stopped::Failed(error.problem))?;
    Ok(json!({ "routine_id": started.routine_id, "call_id": started.call_id, "run": started.run }))
}
