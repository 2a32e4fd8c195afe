//! How a call ended, as MCP tells it.
//!
//! What the agent can act on is a result of the tool, with `isError` where the call did not succeed: why, by which
//! rule, what to do next. A tool that does not exist is an error of the request.

use super::tools::ERROR;
use palyra_engine::{CallUpdate, EngineError, ErrorKind};
use palyra_protocol::{CallId, CallState, Problem, ProblemCode, ToolOutcome};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, JsonObject, MetaObject};
use serde_json::{Value, json};

/// The caller shows a token that opens nothing, or may not do this at all. Of the range that is the server's own.
const NOT_ADMITTED: ErrorCode = ErrorCode(-32001);

/// The answer to a call that has ended.
pub(super) fn ended(update: &CallUpdate) -> Result<CallToolResult, ErrorData> {
    let Some(outcome) = update.outcome.as_deref() else {
        return Err(ErrorData::internal_error("a call ended without an outcome", None));
    };
    let problem = match &outcome.problem {
        _ if outcome.state == CallState::Succeeded => None,
        Some(problem) => Some(problem.clone()),
        None => Some(Problem::plain(outcome.state.as_str(), format!("the call is {}", outcome.state.as_str()))),
    };
    if let Some(problem) = problem.as_ref().filter(|problem| problem.known_code() == Some(ProblemCode::UnknownTool)) {
        return Err(ErrorData::invalid_params(problem.message.clone(), Some(error(problem, Some(update)))));
    }
    let result = match problem {
        None => succeeded(outcome),
        Some(problem) => did_not_succeed(&problem, Some(update), outcome.output.as_ref()),
    };
    Ok(result.with_meta(Some(meta(update))))
}

/// The answer to a call that goes on in the background.
pub(super) fn running(update: &CallUpdate) -> CallToolResult {
    let told = json!({ "process": update.call_id, "state": "running" });
    CallToolResult::structured(told).with_meta(Some(meta(update)))
}

/// The answer to a call that came to no outcome; one that waits for a person when the daemon ends goes on after its
/// restart.
pub(super) fn failed(problem: &EngineError, call: Option<&CallId>) -> CallToolResult {
    let ending = problem.problem.known_code() == Some(ProblemCode::ShuttingDown);
    if matches!(problem.kind, ErrorKind::Unavailable | ErrorKind::Internal) && !ending {
        tracing::error!(error = problem as &dyn std::error::Error, "a call failed");
    }
    let mut result = did_not_succeed(&problem.problem, None, None);
    let told = result.structured_content.as_mut().and_then(|told| told.get_mut(ERROR)?.as_object_mut());
    if let Some(error) = told {
        if let Some(call) = call {
            error.insert("call_id".to_owned(), json!(call));
        }
        wait(error, problem);
    }
    result
}

/// The answer to a request of somebody who may not make it.
pub(super) fn not_admitted(refusal: EngineError) -> ErrorData {
    let mut data = error(&refusal.problem, None);
    if let Some(data) = data.as_object_mut() {
        wait(data, &refusal);
    }
    ErrorData::new(NOT_ADMITTED, refusal.problem.message, Some(data))
}

/// How long to wait before the same is tried again, where that is known.
fn wait(error: &mut JsonObject, refusal: &EngineError) {
    if let Some(wait) = refusal.retry_after {
        error.insert("retry_after_ms".to_owned(), json!(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
    }
}

fn succeeded(outcome: &ToolOutcome) -> CallToolResult {
    CallToolResult::structured(outcome.output.clone().unwrap_or_else(|| json!({})))
}

fn did_not_succeed(problem: &Problem, update: Option<&CallUpdate>, output: Option<&Value>) -> CallToolResult {
    let mut content = vec![ContentBlock::text(words(problem, update))];
    // What a program wrote before it failed is worth having.
    let output = output.filter(|output| !output.is_null());
    let mut structured = output.and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(output) = output {
        content.push(ContentBlock::text(output.to_string()));
    }
    structured.insert(ERROR.to_owned(), error(problem, update));
    let mut result = CallToolResult::structured_error(Value::Object(structured));
    result.content = content;
    result
}

/// The problem as an object, with where the call stands.
fn error(problem: &Problem, update: Option<&CallUpdate>) -> Value {
    let mut error = serde_json::to_value(problem).unwrap_or_else(|_| json!({ "code": problem.code }));
    if let (Some(fields), Some(update)) = (error.as_object_mut(), update) {
        fields.insert("state".to_owned(), json!(update.state.as_str()));
        fields.insert("call_id".to_owned(), json!(update.call_id));
        if let Some(decision) = update.decision.as_deref().filter(|_| update.state == CallState::Denied) {
            fields.insert("rules".to_owned(), json!(decision.rules));
        }
    }
    error
}

/// The same for a model to read.
fn words(problem: &Problem, update: Option<&CallUpdate>) -> String {
    let state = update.map_or_else(String::new, |update| format!("{}: ", update.state.as_str()));
    let hint = problem.hint.as_deref().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
    format!("{state}{}{hint}\ncode: {}", problem.message, problem.code)
}

fn meta(update: &CallUpdate) -> MetaObject {
    let mut meta = JsonObject::new();
    meta.insert("palyra/call".to_owned(), json!(update.call_id));
    meta.insert("palyra/state".to_owned(), json!(update.state.as_str()));
    if update.replayed {
        meta.insert("palyra/replayed".to_owned(), json!(true));
    }
    MetaObject(meta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn whoever_came_too_often_is_told_when_to_come_back() {
        let often = || {
            let problem = Problem::plain("rate_limited", "too often");
            EngineError::new(ErrorKind::Exhausted, problem).retry_after(Duration::from_millis(1500))
        };
        assert_eq!(not_admitted(often()).data.unwrap()["retry_after_ms"], 1500);
        assert_eq!(failed(&often(), None).structured_content.unwrap()[ERROR]["retry_after_ms"], 1500);
    }
}
