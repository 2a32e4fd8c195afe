//! Replaying a recorded call: the same code, the same grant, the same answers from outside, and nothing from outside.

use super::{blocking, refusals};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_plugins::{CallRecord, PluginHost, ReplayError, ToolAnswer};
use palyra_protocol::attestation::output_sha256;
use palyra_protocol::json::canonical_text;
use palyra_protocol::{CallId, CallState, CanonicalJson, Digest, Problem, ToolName};
use serde::Serialize;
use std::sync::Arc;

/// What a replay came to.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayReport {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// The component that ran, then and now.
    pub module_sha256: Digest,
    /// How it ended: `output`, `tool_error`, or the code of what stopped it.
    pub ended: String,
    /// The digest of the output, as it was attested and as it came out now; none where there is no output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<Digest>,
    /// Whether the replay's output is the attested one. A replay that comes out differently is an error instead.
    pub matches_attestation: bool,
    /// The fuel that both used.
    pub fuel_used: u64,
    /// How many answers from outside were taken from the record.
    pub recorded_answers: usize,
}

impl Engine {
    /// Runs a recorded call of a skill again, offline.
    ///
    /// # Errors
    /// The peer may not see the call, there is no record, or it comes out differently.
    pub async fn replay_skill_call(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<ReplayReport, EngineError> {
        let no = |code: &str, message: String, hint: &str| {
            EngineError::new(ErrorKind::Conflict, Problem::new(code, message, hint))
        };
        let Some(call) = self.call_record(peer, call_id).await? else {
            return Err(no("replay_no_call", format!("`{call_id}` never became a call"), "replay a call that ran"));
        };
        let outcome = self.call(peer, call_id).await?.outcome;
        let attestation = outcome.as_ref().and_then(|outcome| outcome.attestation.as_ref());
        let enforcement = attestation.map(|attestation| &attestation.statement.sandbox_enforcement);
        let attested = enforcement.and_then(|held| held.get("record_sha256")).and_then(|digest| digest.as_str());
        let Some(attested) = attested else {
            let message = format!("no record of `{call_id}` was kept");
            let hint =
                "only calls of skills are recorded, and none that read a secret, or heard more than `record_bytes`";
            return Err(no("replay_no_record", message, hint));
        };
        let open = self.open_skills()?;
        let (at, id, attested) = (Arc::clone(&open), call_id.clone(), attested.to_owned());
        let record = blocking(move || at.records.read(&id)).await?;
        let record = record.map_err(|error| EngineError::internal(format!("a record cannot be read: {error}")))?;
        let Some(record) = record else {
            let message = format!("the record of `{call_id}` was given up to make room");
            return Err(no("replay_record_gone", message, "raise `keep_record_bytes` in `[skills]`"));
        };
        if Digest::of(&record).to_string() != attested {
            let message = format!("the record of `{call_id}` is not the attested one: it was changed");
            return Err(no("replay_record_changed", message, "restore it from a backup of the state directory"));
        }
        let input = canonical_text(&call.input).map_err(|error| EngineError::internal(error.to_string()))?;
        let replayed = blocking(move || replay(&open, &record, &input)).await??;
        // An output that did not fit its schema was not the call's output.
        let succeeded = outcome.as_ref().is_some_and(|outcome| outcome.state == CallState::Succeeded);
        let expected = attestation.map(|attestation| attestation.statement.output_sha256);
        let matches_attestation = !succeeded || replayed.output == expected;
        if !matches_attestation {
            let message =
                "the replay's output is not the attested one, although its text is the recorded one".to_owned();
            return Err(no("replay_other_output", message, "the call's output was redacted; compare it by hand"));
        }
        Ok(ReplayReport {
            call_id: call_id.clone(),
            tool: call.tool.clone(),
            module_sha256: replayed.module,
            ended: replayed.ended,
            output_sha256: replayed.output,
            matches_attestation,
            fuel_used: replayed.fuel,
            recorded_answers: replayed.answers,
        })
    }
}

struct Replayed {
    module: Digest,
    ended: String,
    output: Option<Digest>,
    fuel: u64,
    answers: usize,
}

/// Blocks.
fn replay(open: &super::OpenSkills, record: &[u8], input: &str) -> Result<Replayed, EngineError> {
    let record = CallRecord::from_json(record).map_err(|error| EngineError::internal(error.to_string()))?;
    let installed = open.book().iter().find_map(|(_, entry)| {
        entry.versions.values().find_map(|version| {
            let code = version.code.as_ref()?;
            let (entry, _) = code.modules.iter().find(|(_, digest)| **digest == record.component)?;
            Some((Arc::clone(code), entry.clone()))
        })
    });
    let Some((code, entry)) = installed else {
        let message = format!("the component {} is not installed any more", record.component);
        return Err(refusals::conflict("replay_component_gone", message, "install that version again"));
    };
    let plugin = code.plugin(open, &entry).map_err(|error| refusals::plugin(&error))?;
    let host: &PluginHost = open.host();
    let answers = record.events.len();
    let done = host.replay(&plugin, &record, input, None).map_err(|error| refused(&error))?;
    let (ended, output) = match &done.result {
        Ok(ToolAnswer::Output(text)) => {
            let output = CanonicalJson::parse(text.as_bytes()).ok();
            ("output".to_owned(), output.and_then(|output| output_sha256(output.value()).ok()))
        }
        Ok(ToolAnswer::Failed { .. }) => ("tool_error".to_owned(), None),
        Err(error) => (error.code().to_owned(), None),
    };
    Ok(Replayed { module: record.component, ended, output, fuel: done.usage.fuel, answers })
}

fn refused(error: &ReplayError) -> EngineError {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    let hint = "the code is deterministic, so a replay that differs means that the record or the code was changed";
    refusals::conflict(error.code(), format!("{error}{cause}"), hint)
}
