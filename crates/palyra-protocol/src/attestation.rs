//! Attestations: signed statements of what really happened, which anybody can recompute.
//!
//! `output_sha256` is the plain SHA-256 of the output's canonical JSON, the very bytes the caller can derive from what
//! it received. `execution_sha256` covers every other statement and that hash. The signature covers `execution_sha256`.
//! So with the output, the attestation and the daemon's public key, a stranger can check the whole of it. What was
//! received is checked as the document that it is: a struct would drop what it does not know, and with it what somebody
//! added.

use crate::call::{Authority, CallState};
use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::effect::AttestedEffect;
use crate::id::{AttestationId, CallId, DecisionId};
use crate::json::{self, JsonRejection, canonical_text, canonical_value, is_plain};
use crate::signing::{DaemonKey, PublicKey, Signature, SignatureError};
use crate::tool::ToolName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Room for the text of an ordinary statement.
const STATEMENT_BYTES: usize = 1024;
/// What stands beside the statement in an attestation.
const NOT_STATED: [&str; 3] = ["execution_sha256", "public_key", "signature"];

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
    /// What it changed in the workspace, where it could change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<AttestedEffect>,
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
    /// It is not an attestation at all.
    #[error("this is not an attestation: {reason}")]
    Malformed {
        /// What does not fit.
        reason: String,
    },
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

/// The digest of an output, as attested and as the caller recomputes it. Texts of memory entries count by their
/// digests.
///
/// # Errors
/// The output has no canonical form.
pub fn output_sha256(output: &Value) -> Result<Digest, JsonRejection> {
    Ok(Digest::of(canonical_value(&crate::memory::recorded_output(output))?.as_bytes()))
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
        Ok(execution_digest(&text))
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

/// The digest of a statement's canonical text.
fn execution_digest(statement: &str) -> Digest {
    DigestBuilder::new("palyra.execution.v1").field(statement.as_bytes()).finish()
}

/// What the signature covers: the execution's digest, in the domain of attestations.
fn signed_digest(execution_sha256: &Digest) -> Digest {
    DigestBuilder::new("palyra.attestation-signature.v1").field(execution_sha256.as_bytes()).finish()
}

impl ToolAttestation {
    /// Recomputes everything from what was received: the attestation as it was given, with all that is in it, and the
    /// output. Gives the attestation that holds.
    ///
    /// # Errors
    /// The first thing that does not fit. A field that was added is one: the digest covers the whole document.
    pub fn verify(
        document: &Value,
        output: &Value,
        problem: Option<&Value>,
        expected: Option<&PublicKey>,
    ) -> Result<Self, AttestationError> {
        let attestation = Self::read(document)?;
        attestation.check_content(output, problem)?;
        let mut stated = document.clone();
        if let Some(fields) = stated.as_object_mut() {
            fields.retain(|name, _| !NOT_STATED.contains(&name.as_str()));
        }
        let found = execution_digest(&canonical_value(&stated)?);
        if found != attestation.execution_sha256 {
            return Err(AttestationError::OtherStatements { found, attested: attestation.execution_sha256 });
        }
        if let Some(expected) = expected.filter(|key| **key != attestation.public_key) {
            return Err(AttestationError::OtherKey { found: attestation.public_key, expected: *expected });
        }
        attestation.public_key.verify(&signed_digest(&attestation.execution_sha256), &attestation.signature)?;
        Ok(attestation)
    }

    /// Reads what an attestation claims, without looking whether it holds.
    ///
    /// # Errors
    /// It is none.
    pub fn read(document: &Value) -> Result<Self, AttestationError> {
        Self::deserialize(document).map_err(|e| AttestationError::Malformed { reason: e.to_string() })
    }

    /// Compares the output, and what went wrong, with what was attested.
    fn check_content(&self, output: &Value, problem: Option<&Value>) -> Result<(), AttestationError> {
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
        if fits { Ok(()) } else { Err(AttestationError::OtherProblem) }
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
            effect: None,
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

    /// Verifies an attestation as whoever receives it does.
    fn verified(
        attestation: &ToolAttestation,
        output: &Value,
        problem: Option<&Value>,
        key: Option<&PublicKey>,
    ) -> Result<(), AttestationError> {
        ToolAttestation::verify(&serde_json::to_value(attestation).unwrap(), output, problem, key).map(drop)
    }

    #[test]
    fn an_added_field_is_noticed() {
        let key = DaemonKey::generate().unwrap();
        let output = json!(null);
        let honest = serde_json::to_value(attested(&output, &key)).unwrap();
        let holds = |document: &Value| ToolAttestation::verify(document, &output, None, Some(&key.public())).is_ok();
        assert!(holds(&honest));
        for (name, value) in
            [("approved_by", json!("user:alice")), ("exit", json!("code 0")), ("exit", json!(null)), ("", json!(null))]
        {
            let mut forged = honest.clone();
            forged[name] = value;
            assert!(!holds(&forged), "`{name}` was added unnoticed");
        }
        let mut forged = honest;
        forged["sandbox_enforcement"]["network"] = json!("none");
        assert!(!holds(&forged));
    }

    #[test]
    fn every_changed_field_is_noticed() {
        let key = DaemonKey::generate().unwrap();
        let output = json!({"text": "hello", "n": 1.5});
        let good = attested(&output, &key);
        assert_eq!(verified(&good, &output, None, Some(&key.public())), Ok(()));
        assert!(verified(&good, &json!({"text": "hellO", "n": 1.5}), None, None).is_err());
        assert!(verified(&good, &output, Some(&json!({"code": "x"})), None).is_err(), "a success has no reason");

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
            let held = ToolAttestation::verify(&forged, &output, None, Some(&key.public()));
            assert!(held.is_err(), "{field} was changed unnoticed");
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
        assert_eq!(
            verified(&older, &output, Some(&reason), None),
            Ok(()),
            "one of the first version says nothing of it"
        );
        statement.problem_sha256 = Some(output_sha256(&reason).unwrap());
        let good = statement.sign(&key).unwrap();
        assert_eq!(verified(&good, &output, Some(&reason), None), Ok(()));
        for other in [None, Some(json!(null)), Some(json!({"code": "exit", "message": "all is well"}))] {
            assert_eq!(verified(&good, &output, other.as_ref(), None), Err(AttestationError::OtherProblem));
        }
        let mut stripped = good;
        stripped.statement.problem_sha256 = None;
        assert!(verified(&stripped, &output, Some(&reason), None).is_err());
    }

    #[test]
    fn a_foreign_key_is_refused() {
        let output = json!(null);
        let theirs = attested(&output, &DaemonKey::generate().unwrap());
        let ours = DaemonKey::generate().unwrap().public();
        assert_eq!(verified(&theirs, &output, None, None), Ok(()));
        assert!(matches!(verified(&theirs, &output, None, Some(&ours)), Err(AttestationError::OtherKey { .. })));
    }
}
