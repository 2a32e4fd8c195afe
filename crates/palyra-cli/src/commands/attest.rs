//! `palyra attest`: an attestation is recomputed from what the caller received.

use crate::args::Attest;
use crate::context::Context;
use crate::exit::{FAILED, Failure, UNVERIFIED};
use crate::output::{self, BAD, DIM, GOOD, say, styled};
use palyra_api::v1::StatusRequest;
use palyra_protocol::json::check_result;
use palyra_protocol::{CallId, CallState, ExecutionStatement, PublicKey, ToolAttestation};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::Path;

/// The largest result: more than any door tells.
const MAX_RESULT_BYTES: usize = 64 << 20;
/// How deep the parts of a result lie in it.
const WRAPPING: usize = 16;

/// The part of a call's result that an attestation is about.
#[derive(Debug, Deserialize)]
struct Received {
    #[serde(default)]
    call_id: Option<CallId>,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    state: Option<CallState>,
    output: Value,
    #[serde(default)]
    problem: Option<Value>,
    attestation: Option<ToolAttestation>,
}

impl Received {
    /// Whether what stands around the attestation says the same as what was signed.
    fn contradiction(&self, statement: &ExecutionStatement) -> Option<String> {
        let differs = |what: &str, said: Option<String>, signed: String| {
            said.filter(|said| *said != signed)
                .map(|said| format!("the result says {what} `{said}`, the attestation `{signed}`"))
        };
        differs("call", self.call_id.as_ref().map(ToString::to_string), statement.call_id.to_string())
            .or_else(|| differs("tool", self.tool.clone(), statement.tool.to_string()))
            .or_else(|| {
                differs("state", self.state.map(|s| s.as_str().to_owned()), statement.state.as_str().to_owned())
            })
    }
}

pub async fn run(context: &Context, command: Attest) -> Result<(), Failure> {
    let Attest::Verify { file, key } = command;
    let received = read(&file)?;
    let Some(attestation) = &received.attestation else {
        return Err(Failure::new(
            UNVERIFIED,
            "not_attested",
            "this result has no attestation: the call did not run",
            Some("only calls that were carried out are attested"),
        ));
    };
    let (key, source) = match key {
        Some(key) => (key, "the key you gave"),
        None => (daemons_key(context).await?, "the daemon's key"),
    };
    let statement = &attestation.statement;
    let verified = match received.contradiction(statement) {
        Some(contradiction) => Err(contradiction),
        None => {
            let verified = attestation.verify(&received.output, received.problem.as_ref(), Some(&key));
            verified.map_err(|fault| fault.to_string())
        }
    };
    if context.json() {
        output::json(&json!({
            "valid": verified.is_ok(), "fault": verified.as_ref().err(),
            "call_id": statement.call_id, "execution_sha256": attestation.execution_sha256,
            "output_sha256": statement.output_sha256, "public_key": attestation.public_key,
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
        if received.problem.is_some() && statement.problem_sha256.is_none() {
            say!("  {} why it {} is not part of this attestation", styled(DIM, "–"), statement.state.as_str());
        }
        print_enforcement(&statement.sandbox_enforcement);
    }
    Ok(())
}

/// What really held the execution, a line each.
fn print_enforcement(enforcement: &Value) {
    let text = |value: &Value| crate::text::safe(value.as_str().unwrap_or(""));
    say!("  tier {}, {}", text(&enforcement["tier"]), text(&enforcement["backend"]));
    for layer in enforcement["layers"].as_array().into_iter().flatten() {
        let mark = if layer["applied"] == json!(true) { styled(GOOD, "✔") } else { styled(DIM, "–") };
        say!("  {mark} {:20} {}", text(&layer["name"]), styled(DIM, text(&layer["detail"])));
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
    let malformed = |why: String| {
        Failure::new(
            FAILED,
            "malformed_result",
            format!("`{}` is not a call's result: {why}", file.display()),
            Some("make one: `palyra -o json call … > FILE`"),
        )
    };
    // As strictly as an input: of a key that stands there twice, two readers would see two results.
    check_result(&bytes, MAX_RESULT_BYTES, WRAPPING).map_err(|e| malformed(e.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|e| malformed(e.to_string()))
}

async fn daemons_key(context: &Context) -> Result<PublicKey, Failure> {
    let connection = context.connect().await?;
    let status = connection.daemon().status(StatusRequest { probe_sandbox: false }).await?.into_inner();
    status.public_key.parse().map_err(|e| Failure::bug(&e))
}
