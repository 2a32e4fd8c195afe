//! `palyra.sleep`: waits for a while. It can be cancelled.

use super::schema::object;
use super::{Executing, Input, Job, Made, Place, Prepared, Preparing, Tool};
use crate::flow::execute::{Executed, Running, Stopped, timed_out};
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolDefinition};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(super) const NAME: &str = "palyra.sleep";

/// The longest wait.
const MAX_SLEEP_MS: u64 = 600_000;

#[derive(Debug)]
struct Sleep(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(Sleep(ToolDefinition {
        name: NAME.parse()?,
        summary: "Wait for a while".to_owned(),
        description: "Waits for the given time and returns. It can be cancelled.".to_owned(),
        input_schema: object(
            json!({ "duration_ms": {
                "type": "integer", "minimum": 0, "maximum": MAX_SLEEP_MS, "description": "how long to wait"
            } }),
            &["duration_ms"],
        ),
        output_schema: object(json!({ "slept_ms": { "type": "integer" } }), &["slept_ms"]),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "duration_ms": 10 }),
    })))
}

impl Tool for Sleep {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let duration = Duration::from_millis(input.number("/duration_ms").unwrap_or(0));
        Ok(Prepared::new(Facets::default(), Wait(duration)))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

/// A time to wait.
#[derive(Debug)]
struct Wait(Duration);

impl Job for Wait {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move { Executed::in_daemon(slept(self.0, run).await) })
    }
}

async fn slept(duration: Duration, run: &Running<'_>) -> Result<Value, Stopped> {
    let limit = run.time_limit();
    tokio::select! {
        () = tokio::time::sleep(duration.min(limit)) => {}
        () = run.cancel().cancelled() => return Err(Stopped::cancelled()),
    }
    if duration > limit {
        return Err(timed_out(limit).into());
    }
    Ok(json!({ "slept_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) }))
}
