//! Attestations: signed statements of what really happened, which anybody can recompute.
//!
//! `output_sha256` is the plain SHA-256 of the output's canonical JSON, the very bytes the caller can derive from what it
//! received. `execution_sha256` covers every other statement and that hash. The signature covers `execution_sha256`. So
//! with the output, the attestation and the daemon's public key, a stranger can check the whole of it.

use crate::call::{Authority, CallState};
use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::id::{AttestationId, CallId, DecisionId};
use crate::json::{self, JsonRejection, canonical_text, canonical_value, is_plain};
use crate::signing::{DaemonKey, PublicKey, Signature, SignatureError};
use crate::tool::ToolName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Room for the text of an ordinary statement.
const STATEMENT_BYTES: usize = 1024;

/// What is stated about an execution.
///
/// The fields are in the order of their names, as the canonical form has them; a test holds them to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionStatement {
    /// The attestation's id.
    pub attestation_id: AttestationId,
    /// What allowed it besides policy.
    pub authority: Authority,
    /// The digest of what was approved and executed.
    pub call_digest: Digest,
    /// The call.
    pub call_id: CallId,
    /// The decision that allowed it.
    pub decision_id: DecisionId,
    /// What carried it out.
    pub executor: String,
    /// The process's exit, where there was a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// When it finished.
    pub finished_at: Timestamp,
    /// SHA-256 of the output's canonical JSON.
    pub output_sha256: Digest,
    /// SHA-256 of the canonical JSON of what went wrong, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem_sha256: Option<Digest>,
    /// The enforcement that really applied, layer by layer.
    pub sandbox_enforcement: Value,
    /// When it started.
    pub started_at: Timestamp,
    /// How it ended: `succeeded`, `failed` or `cancelled`.
    pub state: CallState,
    /// The tool.
    pub tool: ToolName,
}

/// A statement, its digest, and the daemon's signature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolAttestation {
    /// What is stated.
    #[serde(flatten)]
    pub statement: ExecutionStatement,
    /// The digest of the statement.
    pub execution_sha256: Digest,
    /// The key that signed.
    pub public_key: PublicKey,
    /// The signature over `execution_sha256`.
    pub signature: Signature,
}

/// Why an attestation does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttestationError {
    /// The output is not the one that was attested.
    #[error("the output is not the one that was attested: its SHA-256 is {found}, the attestation says {attested}")]
    OtherOutput {
        /// What the output hashes to.
        found: Digest,
        /// What was attested.
        attested: Digest,
    },
    /// What went wrong is not what was attested.
    #[error("what the result says went wrong is not what was attested")]
    OtherProblem,
    /// A statement was changed after signing.
    #[error("the statements do not fit their own digest: they hash to {found}, the attestation says {attested}")]
    OtherStatements {
        /// What the statements hash to.
        found: Digest,
        /// What was attested.
        attested: Digest,
    },
    /// Signed by somebody else.
    #[error("signed by {found}, not by the expected key {expected}")]
    OtherKey {
        /// The key in the attestation.
        found: PublicKey,
        /// The key that was expected.
        expected: PublicKey,
    },
    /// The signature does not fit.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The output has no canonical form.
    #[error(transparent)]
    Output(#[from] JsonRejection),
}

/// The digest of an output, as attested and as the caller recomputes it.
///
/// # Errors
/// The output has no canonical form.
pub fn output_sha256(output: &Value) -> Result<Digest, JsonRejection> {
    Ok(Digest::of(canonical_value(output)?.as_bytes()))
}

impl ExecutionStatement {
    /// The digest over every statement.
    ///
    /// # Errors
    /// A statement has no canonical form.
    pub fn sha256(&self) -> Result<Digest, JsonRejection> {
        let text = if is_plain(&self.sandbox_enforcement) {
            json::text(self, STATEMENT_BYTES).map_err(|e| JsonRejection::Malformed { reason: e.to_string() })?
        } else {
            canonical_text(self)?
        };
        Ok(DigestBuilder::new("palyra.execution.v1").field(text.as_bytes()).finish())
    }

    /// Signs the statement.
    ///
    /// # Errors
    /// A statement has no canonical form.
    pub fn sign(self, key: &DaemonKey) -> Result<ToolAttestation, JsonRejection> {
        let execution_sha256 = self.sha256()?;
        let signature = key.sign(&signed_digest(&execution_sha256));
        Ok(ToolAttestation { statement: self, execution_sha256, public_key: key.public(), signature })
    }
}

/// What the signature covers: the execution's digest, in the domain of attestations.
fn signed_digest(execution_sha256: &Digest) -> Digest {
    DigestBuilder::new("palyra.attestation-signature.v1").field(execution_sha256.as_bytes()).finish()
}

impl ToolAttestation {
    /// Recomputes everything from the output that was received.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn verify(
        &self,
        output: &Value,
        problem: Option<&Value>,
        expected: Option<&PublicKey>,
    ) -> Result<(), AttestationError> {
        let found = output_sha256(output)?;
        if found != self.statement.output_sha256 {
            return Err(AttestationError::OtherOutput { found, attested: self.statement.output_sha256 });
        }
        let problem = problem.filter(|problem| !problem.is_null());
        let fits = match (self.statement.problem_sha256, problem) {
            (Some(attested), Some(problem)) => output_sha256(problem)? == attested,
            (Some(_), None) => false,
            // Nothing goes wrong in a success. Of a failure, the first version did not attest the reason.
            (None, Some(_)) => self.statement.state != CallState::Succeeded,
            (None, None) => true,
        };
        if !fits {
            return Err(AttestationError::OtherProblem);
        }
        let found = self.statement.sha256()?;
        if found != self.execution_sha256 {
            return Err(AttestationError::OtherStatements { found, attested: self.execution_sha256 });
        }
        if let Some(expected) = expected.filter(|key| **key != self.public_key) {
            return Err(AttestationError::OtherKey { found: self.public_key, expected: *expected });
        }
        Ok(self.public_key.verify(&signed_digest(&self.execution_sha256), &self.signature)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attested(output: &Value, key: &DaemonKey) -> ToolAttestation {
        ExecutionStatement {
            attestation_id: AttestationId::mint(),
            call_id: CallId::mint(),
            tool: "palyra.echo".parse().unwrap(),
            call_digest: Digest::of(b"call"),
            decision_id: DecisionId::mint(),
            authority: Authority::Policy,
            executor: "builtin".to_owned(),
            sandbox_enforcement: json!({"tier": "none"}),
            started_at: Timestamp::from_unix_ms(1),
            finished_at: Timestamp::from_unix_ms(2),
            state: CallState::Succeeded,
            exit: None,
            output_sha256: output_sha256(output).unwrap(),
            problem_sha256: None,
        }
        .sign(key)
        .unwrap()
    }

    #[test]
    fn every_changed_field_is_noticed() {
        let key = DaemonKey::generate().unwrap();
        let output = json!({"text": "hello", "n": 1.5});
        let good = attested(&output, &key);
        assert_eq!(good.verify(&output, None, Some(&key.public())), Ok(()));
        assert!(good.verify(&json!({"text": "hellO", "n": 1.5}), None, None).is_err());
        assert!(good.verify(&output, Some(&json!({"code": "x"})), None).is_err(), "a success has no reason");

        let honest = serde_json::to_value(&good).unwrap();
        for field in honest.as_object().unwrap().keys() {
            let mut forged = honest.clone();
            forged[field] = match field.as_str() {
                "started_at" | "finished_at" => json!(77),
                "state" => json!("failed"),
                "tool" => json!("palyra.sleep"),
                "attestation_id" => json!(AttestationId::mint()),
                "call_id" => json!(CallId::mint()),
                "decision_id" => json!(DecisionId::mint()),
                "authority" => json!({"grant": crate::id::GrantId::mint()}),
                "sandbox_enforcement" => json!({"tier": "c"}),
                "executor" => json!("process"),
                "public_key" => json!(DaemonKey::generate().unwrap().public()),
                "signature" => json!(key.sign(&Digest::of(b"other"))),
                _ => json!(Digest::of(b"other")),
            };
            let forged: ToolAttestation = serde_json::from_value(forged).unwrap();
            assert!(forged.verify(&output, None, Some(&key.public())).is_err(), "{field} was changed unnoticed");
        }
    }

    #[test]
    fn a_statement_is_written_in_canonical_order() {
        let key = DaemonKey::generate().unwrap();
        let mut statement = attested(&json!(null), &key).statement;
        for (authority, exit) in [
            (Authority::Policy, None),
            (Authority::Approval(crate::id::ApprovalId::mint()), Some("code 1 \u{7f}\n\"é".to_owned())),
        ] {
            statement.authority = authority;
            statement.problem_sha256 = exit.as_ref().map(|_| Digest::of(b"problem"));
            statement.exit = exit;
            assert_eq!(serde_json::to_string(&statement).unwrap(), canonical_text(&statement).unwrap());
        }
    }

    #[test]
    fn the_reason_of_a_failure_is_attested() {
        let key = DaemonKey::generate().unwrap();
        let (output, reason) = (json!(null), json!({"code": "exit", "message": "it ended with code 1"}));
        let mut statement = attested(&output, &key).statement;
        statement.state = CallState::Failed;
        let older = statement.clone().sign(&key).unwrap();
        assert_eq!(older.verify(&output, Some(&reason), None), Ok(()), "one of the first version says nothing of it");
        statement.problem_sha256 = Some(output_sha256(&reason).unwrap());
        let good = statement.sign(&key).unwrap();
        assert_eq!(good.verify(&output, Some(&reason), None), Ok(()));
        for other in [None, Some(json!(null)), Some(json!({"code": "exit", "message": "all is well"}))] {
            assert_eq!(good.verify(&output, other.as_ref(), None), Err(AttestationError::OtherProblem));
        }
        let mut stripped = good;
        stripped.statement.problem_sha256 = None;
        assert!(stripped.verify(&output, Some(&reason), None).is_err());
    }

    #[test]
    fn a_foreign_key_is_refused() {
        let output = json!(null);
        let theirs = attested(&output, &DaemonKey::generate().unwrap());
        let ours = DaemonKey::generate().unwrap().public();
        assert_eq!(theirs.verify(&output, None, None), Ok(()));
        assert!(matches!(theirs.verify(&output, None, Some(&ours)), Err(AttestationError::OtherKey { .. })));
    }
}
