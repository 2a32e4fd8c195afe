//! `palyra.process.start`: a program in the background, in the sandbox like `palyra.process.run`.
//!
//! The call *is* the process: it is under way for as long as the process runs, its outcome is how the process ended,
//! and its id is the process's name. Doors that serve agents answer as soon as it runs. `palyra.process.read` and
//! `palyra.process.stop` take it from there.

use super::{Executing, Input, Job, Made, Place, Prepared, Tool, process_run};
use crate::flow::execute::{Executed, Running};
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, Problem, RiskLevel, ToolCapability, ToolDefinition};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The tool's name: doors answer its calls as soon as they run.
pub const NAME: &str = "palyra.process.start";

/// How many processes a principal may have in the background.
const MOST: usize = 8;

#[derive(Debug)]
struct ProcessStart(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(ProcessStart(ToolDefinition {
        name: NAME.parse()?,
        summary: "Start a program in the background".to_owned(),
        description: "Starts one program in the sandbox and returns at once with its name, `process`. Read what it writes with \
                      `palyra.process.read`, end it with `palyra.process.stop`. It ends with your session, and after the longest \
                      time that the operator allows. What it changes in the workspace counts when it has ended."
            .to_owned(),
        input_schema: process_run::input(),
        output_schema: output(),
        capabilities: [ToolCapability::ProcessExec].into(),
        risk: RiskLevel::High,
        executor: ExecutorKind::Process,
        example: json!({ "argv": ["sleep", "5"] }),
    })))
}

/// What `palyra.process.run` tells in the end, or the name of a process that runs.
fn output() -> Value {
    let mut schema = process_run::output();
    schema["properties"]["process"] =
        json!({ "type": "string", "description": "what reading and stopping name it by" });
    schema["properties"]["state"] = json!({ "enum": ["running"] });
    schema["required"] = json!([]);
    schema
}

impl Tool for ProcessStart {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let asked = input.number("/timeout_ms").map(Duration::from_millis);
        let Prepared { facets, job, recorded } =
            process_run::prepare(input, place, Some(asked.unwrap_or(Duration::MAX)))?;
        Ok(Prepared { recorded, ..Prepared::new(facets, Background(job)) })
    }

    fn rehearse(&self, input: Input<'_>, place: &Place<'_>) -> Result<Facets, Refusal> {
        process_run::rehearse(input, place)
    }
}

/// A program to run, if there are not too many.
#[derive(Debug)]
struct Background(Box<dyn Job>);

impl Job for Background {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let others = run.engine().live().running_of(&run.call().origin().principal, NAME);
        if others.saturating_sub(1) >= MOST {
            let message = format!("{MOST} processes of yours run in the background already");
            let problem = Problem::new("too_many_processes", message, "stop one with `palyra.process.stop`");
            return Box::pin(async { Executed::not_run(problem) });
        }
        self.0.execute(run)
    }
}
