//! `palyra.routine.list`: the caller's own routines.

use super::schema::{list_of, object};
use super::{Executing, Input, Job, Made, Place, Prepared, Preparing, Tool};
use crate::flow::execute::{Executed, Running};
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolDefinition};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.routine.list";

#[derive(Debug)]
struct RoutineList(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(RoutineList(ToolDefinition {
        name: NAME.parse()?,
        summary: "See one's own routines".to_owned(),
        description: "Lists the routines that run as the caller: when each is due, and what became of its newest slot."
            .to_owned(),
        input_schema: object(json!({}), &[]),
        output_schema: object(json!({ "routines": list_of(json!({ "type": "object" })) }), &["routines"]),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({}),
    })))
}

impl Tool for RoutineList {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, _input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        Ok(Prepared::new(Facets::default(), List))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

/// A list to make.
#[derive(Debug)]
struct List;

impl Job for List {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(std::future::ready(Executed::in_daemon(Ok(listed(run)))))
    }
}

fn listed(run: &Running<'_>) -> Value {
    let caller = &run.call().origin().principal;
    let routines = run.engine().routines_seen(|record| {
        record.plan.principal == *caller && record.plan.workspace == run.call().origin().workspace
    });
    json!({ "routines": routines })
}
