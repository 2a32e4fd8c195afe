//! Releasing secrets to a call whose permit is recorded.
//!
//! Each release is an event before the value is opened: who, which secret, for which call, how, to which program and
//! endpoints. Every released value is remembered for as long as its run is: whatever a call of that run puts out later
//! is searched for it.

use super::VaultError;
use super::attach::RunCredentials;
use super::manage::file_digest;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_policy::PolicyAction;
use palyra_protocol::facets::SecretUse;
use palyra_protocol::{Digest, Principal, Problem, RunId, SecretDelivery, SecretRef, ToolCall, VaultAccess};
use palyra_sandbox::ProgramContent;
use palyra_vault::{Bindings, Redactor, SecretValue};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// How many runs are remembered; the oldest is forgotten first.
const MAX_RUNS: usize = 4096;
/// How many values of one run are remembered. A run that wants more is refused.
const MAX_VALUES: usize = 1000;

/// Secrets that a call may use now.
#[derive(Debug)]
pub(crate) struct Released {
    values: Vec<(SecretUse, OpenValue)>,
    bindings: Arc<Bindings>,
    programs: Vec<Digest>,
    redactor: Arc<Redactor>,
}

/// A value that several parts of one run hold.
#[derive(Clone)]
pub(crate) struct OpenValue(Arc<SecretValue>);

impl std::fmt::Debug for OpenValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

impl OpenValue {
    pub(crate) fn value(&self) -> &SecretValue {
        &self.0
    }
}

impl Released {
    /// Each use with its value.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&SecretUse, &OpenValue)> {
        self.values.iter().map(|(found, value)| (found, value))
    }

    /// What the proxy attaches; nothing if no secret goes that way.
    ///
    /// # Errors
    /// No certificates can be made for the bound hosts.
    pub(crate) fn credentials(&self) -> Result<Option<Arc<RunCredentials>>, Problem> {
        let by_proxy = self.values.iter().filter(|(found, _)| found.via == SecretDelivery::Proxy);
        let values: HashMap<SecretRef, OpenValue> =
            by_proxy.map(|(found, value)| (found.secret.clone(), value.clone())).collect();
        if values.is_empty() {
            return Ok(None);
        }
        let made =
            RunCredentials::new(Arc::clone(&self.bindings), values, self.programs.clone(), Arc::clone(&self.redactor));
        made.map(|made| Some(Arc::new(made))).map_err(|error| Problem::plain("credentials_unavailable", error))
    }
}

/// Values that were released, by the run that they were released to.
#[derive(Debug, Default)]
pub(crate) struct ReleasedValues(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    runs: HashMap<(Principal, RunId), RunSecrets>,
    order: VecDeque<(Principal, RunId)>,
}

#[derive(Debug)]
struct RunSecrets {
    values: Vec<(SecretRef, OpenValue)>,
    redactor: Arc<Redactor>,
}

impl ReleasedValues {
    /// What finds the values that were released to a run; nothing if none were.
    pub(crate) fn of(&self, call: &ToolCall) -> Option<Arc<Redactor>> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.runs.get(&key(call)).map(|run| Arc::clone(&run.redactor))
    }

    /// A text without any value that was released to any run: for texts that are of no one run.
    pub(crate) fn clean(&self, mut text: String) -> String {
        let redactors: Vec<Arc<Redactor>> = {
            let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            memory.runs.values().map(|run| Arc::clone(&run.redactor)).collect()
        };
        for redactor in redactors {
            if let Some((cleaned, _)) = redactor.redact_text(&text) {
                text = cleaned;
            }
        }
        text
    }

    /// Remembers values, and gives what finds all that the run was given.
    fn remember(&self, call: &ToolCall, new: &[(SecretUse, OpenValue)]) -> Result<Arc<Redactor>, VaultError> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(call);
        let mut values = memory.runs.get(&key).map(|run| run.values.clone()).unwrap_or_default();
        let known = values.len();
        for (found, value) in new {
            let same = |(reference, old): &(SecretRef, OpenValue)| {
                *reference == found.secret && old.value().expose() == value.value().expose()
            };
            if !values.iter().any(same) {
                values.push((found.secret.clone(), value.clone()));
            }
        }
        if values.len() > MAX_VALUES {
            return Err(VaultError::Internal { what: "a run was given more secrets than can be looked for" });
        }
        if let Some(run) = memory.runs.get(&key).filter(|_| values.len() == known) {
            return Ok(Arc::clone(&run.redactor));
        }
        let mut builder = Redactor::builder();
        for (reference, value) in &values {
            builder.add(reference, value.value());
        }
        let redactor = Arc::new(builder.build()?);
        if memory.runs.insert(key.clone(), RunSecrets { values, redactor: Arc::clone(&redactor) }).is_none() {
            memory.order.push_back(key);
        }
        if memory.order.len() > MAX_RUNS
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.runs.remove(&oldest);
        }
        Ok(redactor)
    }
}

fn key(call: &ToolCall) -> (Principal, RunId) {
    (call.origin().principal.clone(), call.origin().run.clone())
}

impl Engine {
    /// Opens the secrets of a call. Its permit is recorded, and each release is recorded before its value is opened.
    pub(crate) async fn release_secrets(
        &self,
        call: &ToolCall,
        programs: Vec<(PathBuf, ProgramContent)>,
    ) -> Result<Option<Released>, Problem> {
        let uses = &call.facets().secrets;
        if uses.is_empty() {
            return Ok(None);
        }
        let told = |error: EngineError| error.problem;
        for found in uses {
            let access = VaultAccess {
                call_id: Some(call.id().clone()),
                via: Some(found.via),
                program: call.facets().executable.clone(),
                endpoints: found.endpoints.clone(),
                ..VaultAccess::new(
                    call.origin().principal.clone(),
                    PolicyAction::VaultGet,
                    format!("{} uses it", call.tool()),
                )
            };
            self.note_access(access.of(&found.secret)).await.map_err(told)?;
        }
        let wanted = uses.clone();
        let (values, bindings, programs) = self
            .in_vault(move |store| {
                let vault = store.existing()?;
                let mut values = Vec::with_capacity(wanted.len());
                for found in wanted {
                    let opened = vault.get(&found.secret)?;
                    values.push((found, OpenValue(Arc::new(opened.value))));
                }
                let bindings = vault.bindings();
                let by_program =
                    values.iter().any(|(found, _)| bindings.of(&found.secret).any(|b| b.program().is_some()));
                let programs = programs.iter().filter(|_| by_program);
                let programs = programs.filter_map(|(path, content)| match content {
                    ProgramContent::Digest(digest) => Some(*digest),
                    // What is at its path is what runs. One that cannot be read gets nothing.
                    ProgramContent::AsItIs => file_digest(path).ok(),
                    ProgramContent::Unknown => None,
                });
                let programs = programs.collect();
                Ok((values, bindings, programs))
            })
            .await
            .map_err(told)?;
        let redactor = self.released().remember(call, &values).map_err(|error| super::refused(&error).problem)?;
        Ok(Some(Released { values, bindings, programs, redactor }))
    }
}
