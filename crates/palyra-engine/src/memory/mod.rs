//! The memory: what agents and people asked the daemon to keep, and what may be done after it was recalled.
//!
//! Nothing is extracted automatically: an entry exists because a call of `palyra.memory.retain` was decided, or a
//! person added it. The daemon stamps it with who, which call and from which sources; its trust is the minimum over
//! these and nothing raises it. What a session recalls becomes a fact of the session (`context.recalled_trust`),
//! durable before the text is handed out.
//!
//! The text stays out of the journal: a call that retains is recorded with a keyed digest of the text, a call that
//! searches with the texts' salted digests ([`palyra_protocol::memory`]). The key of the digest lives as long as the
//! process, so that nobody can try guesses against a journal later.

mod manage;
mod provenance;
mod retain;
mod search;

pub use manage::{MemoryAdded, MemoryHit, NewMemoryEntry};
use provenance::source_of_call;
pub(crate) use retain::Retained;

use crate::engine::Engine;
use crate::error::EngineError;
use palyra_journal::{AboutWhat, JournalError, MemoryStore};
use palyra_protocol::memory::MAX_MEMORY_TEXT;
use palyra_protocol::{
    CanonicalJson, Digest, DigestBuilder, JournalEvent, MemoryId, MemoryScope, MemoryTrust, Origin, Principal, Problem,
    SessionId, ToolCall, WorkspaceId,
};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Texts that wait for a decision, for the people who are asked.
const MAX_WAITING: usize = 512;

/// The memory of a running daemon.
#[derive(Debug)]
pub(crate) struct Memory {
    store: MemoryStore,
    /// What sessions have recalled: asked at every decision, so it is in memory.
    recalled: RwLock<HashMap<(Principal, SessionId), MemoryTrust>>,
    /// Texts of calls that are not decided yet, by their seals.
    waiting: Mutex<VecDeque<(Digest, Arc<str>)>>,
    /// Seals are made with it. It is never stored.
    secret: [u8; 32],
}

impl Memory {
    /// Opens the memory beside the journal.
    pub(crate) fn open(journal: &Path) -> Result<Self, JournalError> {
        let store = MemoryStore::open(&journal.with_file_name("memory.db"))?;
        let mut recalled: HashMap<(Principal, SessionId), MemoryTrust> = HashMap::new();
        store.sessions(|principal, session, source| {
            if source.recalled {
                let lowest = recalled.entry((principal, session)).or_insert(source.trust);
                *lowest = (*lowest).min(source.trust);
            }
        })?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|e| JournalError::Event { reason: format!("no randomness: {e}") })?;
        Ok(Self { store, recalled: RwLock::new(recalled), waiting: Mutex::default(), secret })
    }

    /// The lowest trust of what a session has recalled; none where it recalled nothing.
    pub(crate) fn recalled_trust(&self, origin: &Origin) -> Option<MemoryTrust> {
        let recalled = self.recalled.read().unwrap_or_else(PoisonError::into_inner);
        if recalled.is_empty() {
            return None;
        }
        recalled.get(&(origin.principal.clone(), origin.session.clone())).copied()
    }

    fn lower(&self, principal: &Principal, session: &SessionId, trust: MemoryTrust) {
        let mut recalled = self.recalled.write().unwrap_or_else(PoisonError::into_inner);
        let lowest = recalled.entry((principal.clone(), session.clone())).or_insert(trust);
        *lowest = (*lowest).min(trust);
    }

    /// An input of `palyra.memory.retain` as it is recorded: its text is a seal. The text waits for the people who are
    /// asked.
    pub(crate) fn recorded_input(&self, input: &Value) -> Result<CanonicalJson, Problem> {
        let mut recorded = input.clone();
        if let Some(text) = input.get("text").and_then(Value::as_str) {
            let seal = self.seal(text);
            self.waits(seal, text);
            recorded["text"] = Value::String(format!("sealed:{seal}"));
        }
        CanonicalJson::parse(recorded.to_string().as_bytes()).map_err(|e| Problem::plain(e.code(), e.to_string()))
    }

    /// The text that a seal in a recorded input stands for, while its call is under way.
    pub(crate) fn sealed_text(&self, recorded: &str) -> Option<Arc<str>> {
        let seal: Digest = recorded.strip_prefix("sealed:")?.parse().ok()?;
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().find(|(known, _)| *known == seal).map(|(_, text)| Arc::clone(text))
    }

    fn waits(&self, seal: Digest, text: &str) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(known, _)| *known != seal);
        if waiting.len() >= MAX_WAITING {
            waiting.pop_front();
        }
        waiting.push_back((seal, text.into()));
    }

    /// The text has been retained or is not wanted: only the memory holds it from now on.
    fn waits_no_more(&self, text: &str) {
        let seal = self.seal(text);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != seal);
    }

    fn seal(&self, text: &str) -> Digest {
        DigestBuilder::new("palyra.retained-text.v1").field(&self.secret).field(text.as_bytes()).finish()
    }

    /// The scope that a kind stands for, for one caller in one workspace.
    pub(crate) fn scope(
        &self,
        kind: &str,
        (principal, workspace): (&Principal, Option<&WorkspaceId>),
        session: Option<&SessionId>,
    ) -> Option<MemoryScope> {
        match kind {
            "principal" => Some(MemoryScope::Principal(principal.clone())),
            "workspace" => workspace.cloned().map(MemoryScope::Workspace),
            "session" => session.map(|session| MemoryScope::Session(principal.clone(), session.clone())),
            _ => None,
        }
    }
}

/// A text that the memory takes: some words, and not too many.
pub(crate) fn checked_text(text: &str) -> Result<(), Problem> {
    if text.trim().is_empty() {
        return Err(Problem::new("memory_text_empty", "there is nothing to remember", "say it in words"));
    }
    if text.len() > MAX_MEMORY_TEXT {
        return Err(Problem::new(
            "memory_text_too_long",
            format!("an entry has at most {MAX_MEMORY_TEXT} bytes, and this text has {}", text.len()),
            "retain what matters of it, in several entries",
        ));
    }
    Ok(())
}

impl Engine {
    /// Brings the memory to where the journal is: what a crash interrupted is finished. Called once, before any door
    /// opens.
    ///
    /// # Errors
    /// One of the two cannot be read or written.
    pub async fn recover_memory(&self) -> Result<(), EngineError> {
        let applied = self.in_memory(Memory::applied).await?;
        let events = self.journal().events_about(AboutWhat::Memory, applied).await?;
        let Some(last) = events.last().map(|(seq, ..)| *seq) else {
            return self.in_memory(move |memory| memory.finish(&HashMap::new(), &[], applied)).await;
        };
        let (mut retained, mut forgotten) = (HashMap::new(), Vec::new());
        for (seq, _, event) in events {
            match event {
                JournalEvent::MemoryRetained { entry, .. } => drop(retained.insert(entry.entry_id, seq)),
                JournalEvent::MemoryForgotten { entry_id, .. } => forgotten.push(entry_id),
                _ => {}
            }
        }
        self.in_memory(move |memory| memory.finish(&retained, &forgotten, last)).await
    }

    /// Works on the memory, on a thread that may wait.
    pub(crate) async fn in_memory<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Memory) -> Result<R, JournalError> + Send + 'static,
    ) -> Result<R, EngineError> {
        let engine = self.clone();
        let done = tokio::task::spawn_blocking(move || work(engine.memory())).await;
        let done = done.map_err(|panic| EngineError::internal(panic.to_string()))?;
        Ok(done?)
    }
}

impl Engine {
    /// Records what a call brings into its session from outside, before the call runs.
    pub(crate) async fn note_sources(&self, call: &ToolCall) -> Result<(), EngineError> {
        let sources = source_of_call(&call.record());
        if sources.is_empty() {
            return Ok(());
        }
        let (principal, session) = (call.origin().principal.clone(), call.origin().session.clone());
        self.in_memory(move |memory| memory.note_sources(&principal, &session, &sources)).await
    }
}

impl Memory {
    fn applied(&self) -> Result<u64, JournalError> {
        self.store.applied()
    }

    /// Settles or discards what was staged, and destroys what the journal says is forgotten.
    fn finish(
        &self,
        retained: &HashMap<MemoryId, u64>,
        forgotten: &[MemoryId],
        applied: u64,
    ) -> Result<(), JournalError> {
        for id in self.store.pending()? {
            match retained.get(&id) {
                Some(seq) => self.store.settle(&id, *seq)?,
                None => drop(self.store.destroy(&id)?),
            }
        }
        for id in forgotten {
            self.store.destroy(id)?;
        }
        self.store.set_applied(applied)
    }
}
