//! Attest: a signed statement of what really happened.

use crate::engine::Engine;
use crate::flow::execute::Execution;
use palyra_protocol::attestation::output_sha256;
use palyra_protocol::json::JsonRejection;
use palyra_protocol::{AttestationId, Digest, EffectRecord, ExecutionStatement, Problem, ToolAttestation};

/// Of the very document that the caller receives.
fn problem_sha256(problem: &Problem) -> Result<Digest, JsonRejection> {
    let document = serde_json::to_value(problem).map_err(|e| JsonRejection::Malformed { reason: e.to_string() })?;
    output_sha256(&document)
}

impl Engine {
    /// States and signs what an execution was.
    pub(crate) fn attest(&self, execution: &Execution) -> Result<ToolAttestation, JsonRejection> {
        let Execution { call, decision_id, authority, executor, started_at, finished_at, result, connections: _ } =
            execution;
        ExecutionStatement {
            attestation_id: AttestationId::mint(),
            call_id: call.id().clone(),
            tool: call.tool().clone(),
            call_digest: call.digest(),
            decision_id: decision_id.clone(),
            authority: authority.clone(),
            effect: result.effect.as_ref().map(EffectRecord::attested),
            executor: executor.as_str().to_owned(),
            sandbox_enforcement: result.enforcement.clone(),
            started_at: *started_at,
            finished_at: *finished_at,
            state: result.state,
            exit: result.exit.clone(),
            output_sha256: output_sha256(&result.output)?,
            problem_sha256: result.problem.as_ref().map(problem_sha256).transpose()?,
        }
        .sign(self.key())
    }
}
