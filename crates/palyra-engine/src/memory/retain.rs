//! Keeping an entry: staged in the memory, recorded in the journal, then found.

use super::provenance::Provenance;
use super::{Memory, checked_text};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use base64::Engine as _;
use palyra_journal::{JournalError, MemoryQuota, NewMemory};
use palyra_protocol::{
    CallId, JournalEvent, MemoryId, MemoryRecord, MemoryScope, Origin, Principal, Problem, SessionId,
};
use palyra_vault::EntryKey;

/// Something to be remembered, as far as it is decided already.
#[derive(Debug)]
pub(crate) struct Retained {
    pub(crate) scope: MemoryScope,
    pub(crate) text: String,
    pub(crate) principal: Principal,
    pub(crate) proposed_by: Principal,
    pub(crate) call_id: Option<CallId>,
    pub(crate) session: Option<SessionId>,
}

impl Engine {
    /// Keeps what a call retains. Its sources are those of its session.
    pub(crate) async fn retain_of_call(
        &self,
        origin: &Origin,
        call_id: &CallId,
        scope: MemoryScope,
        text: String,
    ) -> Result<MemoryRecord, EngineError> {
        let asked = origin.clone();
        let stamp = self.in_memory(move |memory| memory.provenance_of_call(&asked)).await?;
        let retained = Retained {
            scope,
            text,
            principal: origin.principal.clone(),
            proposed_by: origin.proposed_by.clone(),
            call_id: Some(call_id.clone()),
            session: Some(origin.session.clone()),
        };
        self.keep_entry(retained, stamp).await
    }

    /// Keeps an entry. When this returns, it is durable, recorded and found.
    pub(super) async fn keep_entry(&self, retained: Retained, stamp: Provenance) -> Result<MemoryRecord, EngineError> {
        let Retained { scope, text, principal, proposed_by, call_id, session } = retained;
        checked_text(&text).map_err(|problem| EngineError::new(ErrorKind::Invalid, problem))?;
        let record = MemoryRecord {
            entry_id: MemoryId::mint(),
            scope,
            principal,
            proposed_by,
            call_id,
            session,
            sources: stamp.sources,
            trust: stamp.trust,
            at: self.clock().now(),
            bytes: text.len() as u64,
        };
        let staged = record.clone();
        let sealed = self.in_memory(move |memory| memory.stage(&staged, &text)).await?;
        let sealed = sealed.ok_or_else(no_key)?;
        let event = JournalEvent::MemoryRetained { entry: Box::new(record.clone()), sealed };
        let id = record.entry_id.clone();
        let seq = match self.journal().note(&event).await {
            Ok(seq) => seq,
            Err(error) => {
                // What a start would do as well, should this fail.
                drop(self.in_memory(move |memory| memory.store.destroy(&id)).await);
                return Err(error.into());
            }
        };
        self.in_memory(move |memory| memory.store.settle(&id, seq)).await?;
        Ok(record)
    }
}

impl Memory {
    /// Stages an entry under a fresh key; gives the ciphertext for the journal.
    fn stage(&self, record: &MemoryRecord, text: &str) -> Result<Option<String>, JournalError> {
        let Ok(key) = EntryKey::generate() else { return Ok(None) };
        let Ok(sealed) = key.seal(record.entry_id.as_str(), text) else { return Ok(None) };
        self.store.stage(NewMemory { record, text, key: key.expose() }, &MemoryQuota::default())?;
        self.waits_no_more(text);
        Ok(Some(base64::engine::general_purpose::STANDARD.encode(sealed)))
    }
}

fn no_key() -> EngineError {
    let problem =
        Problem::new("memory_no_key", "no key could be made for the entry", "try again; see the daemon's log");
    EngineError::new(ErrorKind::Unavailable, problem)
}
