//! `palyra attest`: an attestation is recomputed from what the caller received.

use crate::args::Attest;
use crate::context::Context;
use crate::exit::{FAILED, Failure, UNVERIFIED};
use crate::output::{self, BAD, DIM, GOOD, say, styled};
use palyra_api::v1::StatusRequest;
use palyra_protocol::json::check_result;
use palyra_protocol::{ExecutionStatement, PublicKey, ToolAttestation};
use serde_json::{Map, Value, json};
use std::io::Read as _;
use std::path::Path;

/// The largest result: more than any door tells.
const MAX_RESULT_BYTES: usize = 64 << 20;
/// How deep the parts of a result lie in it.
const WRAPPING: usize = 16;

/// A call's result as it was received, every field of it.
#[derive(Debug)]
struct Received(Map<String, Value>);

impl Received {
    /// A field, if it is there and says something.
    fn field(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn output(&self) -> &Value {
        self.0.get("output").unwrap_or(&Value::Null)
    }

    /// Whether what stands around the attestation says the same as what was signed.
    fn contradiction(&self, statement: &ExecutionStatement) -> Option<String> {
        let decision = self.field("decision").and_then(|decision| decision.get("decision_id"));
        [
            ("call", self.field("call_id"), json!(statement.call_id)),
            ("tool", self.field("tool"), json!(statement.tool)),
            ("state", self.field("state"), json!(statement.state)),
            ("decision", decision, json!(statement.decision_id)),
        ]
        .into_iter()
        .find_map(|(what, said, signed)| {
            let said = said.filter(|said| **said != signed)?;
            Some(format!("the result says {what} {said}, the attestation {signed}"))
        })
    }

    /// What stands beside the attestation and is not covered by it.
    fn not_attested(&self, statement: &ExecutionStatement) -> Vec<String> {
        let mut fields = Vec::new();
        for (name, value) in self.0.iter().filter(|(_, value)| !value.is_null()) {
            match name.as_str() {
                "attestation" | "output" | "call_id" | "tool" | "state" => {}
                "problem" if statement.problem_sha256.is_some() => {}
                "decision" => {
                    let inside = value.as_object().into_iter().flatten().map(|(inner, _)| inner.as_str());
                    fields.extend(
                        inside.filter(|inner| *inner != "decision_id").map(|inner| format!("decision.{inner}")),
                    );
                }
                _ => fields.push(name.clone()),
            }
        }
        fields
    }
}

pub async fn run(context: &Context, command: Attest) -> Result<(), Failure> {
    let Attest::Verify { file, key } = command;
    let received = read(&file)?;
    let Some(document) = received.field("attestation") else {
        return Err(Failure::new(
            UNVERIFIED,
            "not_attested",
            "this result has no attestation: the call did not run",
            Some("only calls that were carried out are attested"),
        ));
    };
    let attestation = ToolAttestation::read(document).map_err(|fault| malformed(&file, &fault.to_string()))?;
    let (key, source) = match key {
        Some(key) => (key, "the key you gave"),
        None => (daemons_key(context).await?, "the daemon's key"),
    };
    let statement = &attestation.statement;
    let verified = match received.contradiction(statement) {
        Some(contradiction) => Err(contradiction),
        None => ToolAttestation::verify(document, received.output(), received.field("problem"), Some(&key))
            .map(drop)
            .map_err(|fault| fault.to_string()),
    };
    let not_attested = received.not_attested(statement);
    if context.json() {
        output::json(&json!({
            "valid": verified.is_ok(), "fault": verified.as_ref().err(),
            "call_id": statement.call_id, "execution_sha256": attestation.execution_sha256,
            "output_sha256": statement.output_sha256, "public_key": attestation.public_key,
            "not_attested": not_attested,
        }))?;
    }
    if let Err(fault) = verified {
        if !context.json() {
            say!("{} the attestation does not hold", styled(BAD, "✘"));
        }
        return Err(Failure::new(UNVERIFIED, "attestation_invalid", fault, Some("do not rely on this result")));
    }
    if !context.json() {
        say!(
            "{} {} {} as attested, signed by {source}",
            styled(GOOD, "✔"),
            statement.call_id,
            statement.state.as_str()
        );
        if received.field("problem").is_some() && statement.problem_sha256.is_none() {
            say!("  {} why it {} is not part of this attestation", styled(DIM, "–"), statement.state.as_str());
        }
        for line in walls(&statement.sandbox_enforcement) {
            say!("{line}");
        }
        print_not_attested(&not_attested);
    }
    Ok(())
}

/// What really held an execution, a line each.
pub fn walls(enforcement: &Value) -> Vec<String> {
    let text = |value: &Value| crate::text::safe(value.as_str().unwrap_or(""));
    let mut lines = vec![format!("  tier {}, {}", text(&enforcement["tier"]), text(&enforcement["backend"]))];
    for layer in enforcement["layers"].as_array().into_iter().flatten() {
        let mark = if layer["applied"] == json!(true) { styled(GOOD, "✔") } else { styled(DIM, "–") };
        lines.push(format!("  {mark} {:20} {}", text(&layer["name"]), styled(DIM, text(&layer["detail"]))));
    }
    lines
}

/// What the result says besides, on one line.
fn print_not_attested(fields: &[String]) {
    let mut names: Vec<&str> = Vec::new();
    for field in fields {
        let name = if field.starts_with("decision.") { "decision (but its id)" } else { field };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() {
        say!("  {} not attested: {}", styled(DIM, "–"), crate::text::safe(&names.join(", ")));
    }
}

fn read(file: &Path) -> Result<Received, Failure> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut f| f.read_to_end(&mut bytes))
    };
    read.map_err(|e| Failure::io(&format!("`{}` cannot be read", file.display()), &e))?;
    // As strictly as an input: of a key that stands there twice, two readers would see two results.
    check_result(&bytes, MAX_RESULT_BYTES, WRAPPING).map_err(|e| malformed(file, &e.to_string()))?;
    let result: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|e| malformed(file, &e.to_string()))?;
    outcome_of(result).map(Received).map_err(|fault| malformed(file, fault))
}

/// The outcome itself: what `palyra call` prints, or the `outcome` in an answer of the HTTP door. What the answer says
/// of the call around its outcome has to agree with it.
fn outcome_of(mut result: Map<String, Value>) -> Result<Map<String, Value>, &'static str> {
    if result.contains_key("output") {
        return Ok(result);
    }
    let Some(Value::Object(outcome)) = result.remove("outcome") else {
        return Err("it has neither an `output` nor an `outcome`");
    };
    let agrees = |name: &str| result.get(name).is_none_or(|around| outcome.get(name) == Some(around));
    if !["call_id", "state"].into_iter().all(agrees) {
        return Err("its `outcome` is about another call than what stands around it");
    }
    outcome.contains_key("output").then_some(outcome).ok_or("its `outcome` has no `output`")
}

fn malformed(file: &Path, why: &str) -> Failure {
    Failure::new(
        FAILED,
        "malformed_result",
        format!("`{}` is not a call's result: {why}", file.display()),
        Some("make one: `palyra -o json call … > FILE`"),
    )
}

async fn daemons_key(context: &Context) -> Result<PublicKey, Failure> {
    let connection = context.connect().await?;
    let status = connection.daemon().status(StatusRequest { probe_sandbox: false }).await?.into_inner();
    status.public_key.parse().map_err(|e| Failure::bug(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(document: Value) -> Result<Map<String, Value>, &'static str> {
        outcome_of(document.as_object().unwrap().clone())
    }

    #[test]
    fn an_answer_of_the_http_door_is_read_by_its_outcome() {
        let outcome = json!({ "call_id": "call_1", "state": "succeeded", "output": { "text": "hi" } });
        let plain = read(outcome.clone()).unwrap();
        assert_eq!(read(json!({ "call_id": "call_1", "state": "succeeded", "outcome": outcome })), Ok(plain));
        assert!(read(json!({ "call_id": "call_2", "outcome": outcome })).is_err(), "another call");
        assert!(read(json!({ "call_id": "call_1", "state": "failed", "outcome": outcome })).is_err());
        assert!(read(json!({ "outcome": { "state": "succeeded" } })).is_err());
        assert!(read(json!({ "outcome": null })).is_err());
    }
}
