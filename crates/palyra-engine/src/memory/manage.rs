//! The memory for people: add, list, search, show, forget. Each asks policy about the scope, and about every entry that
//! is told.

use super::{Memory, Retained};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use base64::Engine as _;
use palyra_journal::{MEMORY_PAGE, MemoryEntry, MemoryQuery};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::{JournalEvent, MemoryId, MemoryRecord, MemoryScope, MemoryTrust, Problem};
use palyra_vault::EntryKey;
use serde::Serialize;

/// The most that one search tells.
const MAX_TOLD: usize = 50;

/// What a person has remembered.
#[derive(Debug, Clone, Default)]
pub struct NewMemoryEntry {
    /// The text.
    pub text: String,
    /// `principal`, `workspace`, or a scope in full.
    pub scope: String,
    /// Where it comes from, in the person's words.
    pub source: Option<String>,
    /// How far it is to be trusted; never further than its sources are.
    pub trust: Option<MemoryTrust>,
}

/// What was remembered.
pub type MemoryAdded = MemoryRecord;

/// An entry, as it is told.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryHit {
    /// Everything but the text.
    #[serde(flatten)]
    pub record: MemoryRecord,
    /// The text: data that somebody retained, never an instruction.
    pub text: String,
    /// For one entry that was asked for: whether the journal's ciphertext opens with the entry's key and is this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits_journal: Option<bool>,
}

impl From<MemoryEntry> for MemoryHit {
    fn from(entry: MemoryEntry) -> Self {
        Self { record: entry.record, text: entry.text, fits_journal: None }
    }
}

impl Engine {
    /// Has something remembered, in a person's own words.
    ///
    /// # Errors
    /// The peer may not, the text cannot be kept, or a quota is used up.
    pub async fn memory_add(&self, peer: &VerifiedPeer, new: NewMemoryEntry) -> Result<MemoryAdded, EngineError> {
        let scope = self.named_scope(peer, &new.scope)?;
        self.authorize_memory(peer, PolicyAction::MemoryRetain, &scope, None)?;
        let stamp = Memory::provenance_of_person(peer.effective(), new.source.as_deref(), new.trust);
        let retained = Retained {
            scope,
            text: new.text,
            principal: peer.effective().clone(),
            proposed_by: peer.principal().clone(),
            call_id: None,
            session: None,
        };
        self.keep_entry(retained, stamp).await
    }

    /// A page of entries before one of them, newest first: those that the peer may see; and where to go on.
    ///
    /// # Errors
    /// They cannot be read, or the scope is none.
    pub async fn memory_list(
        &self,
        peer: &VerifiedPeer,
        scope: &str,
        before: Option<MemoryId>,
    ) -> Result<(Vec<MemoryHit>, Option<MemoryId>), EngineError> {
        self.admit(peer, PolicyAction::MemorySearch, None)?;
        let scope = if scope.is_empty() { None } else { Some(self.named_scope(peer, scope)?) };
        let page = self.in_memory(move |memory| memory.store.page(scope.as_ref(), before.as_ref())).await?;
        let full = page.len() >= MEMORY_PAGE as usize;
        let more = page.last().filter(|_| full).map(|entry| entry.record.entry_id.clone());
        let seen = page.into_iter().filter(|entry| self.sees_memory(peer, &entry.record));
        Ok((seen.map(MemoryHit::from).collect(), more))
    }

    /// The entries that fit a query best: those that the peer may see.
    ///
    /// # Errors
    /// They cannot be read, or the scope is none.
    pub async fn memory_search(
        &self,
        peer: &VerifiedPeer,
        query: String,
        scope: &str,
        limit: usize,
    ) -> Result<Vec<MemoryHit>, EngineError> {
        self.admit(peer, PolicyAction::MemorySearch, None)?;
        if query.len() > palyra_journal::MAX_QUERY {
            let message = format!("a query has at most {} bytes", palyra_journal::MAX_QUERY);
            return Err(EngineError::invalid("memory_query_too_long", message, "use fewer words"));
        }
        let scopes = if scope.is_empty() { None } else { Some(vec![self.named_scope(peer, scope)?]) };
        let query = MemoryQuery { text: query, scopes };
        let found = self.in_memory(move |memory| memory.store.search(&query)).await?;
        let seen = found.into_iter().filter(|entry| self.sees_memory(peer, &entry.record));
        Ok(seen.map(MemoryHit::from).take(limit.clamp(1, MAX_TOLD)).collect())
    }

    /// One entry, compared with what the journal has of it.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn memory_show(&self, peer: &VerifiedPeer, id: MemoryId) -> Result<MemoryHit, EngineError> {
        let entry = self.seen_entry(peer, &id).await?;
        let kept = self.in_memory(move |memory| memory.store.key(&id)).await?;
        let opened = match kept {
            Some((key, seq)) => self.opened_from_journal(&entry.record, &key, seq).await?,
            None => None,
        };
        let fits_journal = Some(opened.as_deref() == Some(entry.text.as_str()));
        Ok(MemoryHit { fits_journal, ..entry.into() })
    }

    /// The text that the journal's ciphertext of an entry opens to; nothing if it is another entry's, or the key does
    /// not fit.
    async fn opened_from_journal(
        &self,
        record: &MemoryRecord,
        key: &[u8],
        seq: u64,
    ) -> Result<Option<String>, EngineError> {
        let event = self.journal().event(seq).await?;
        let Ok(JournalEvent::MemoryRetained { entry, sealed }) = serde_json::from_str(&event.body) else {
            return Ok(None);
        };
        let sealed = base64::engine::general_purpose::STANDARD.decode(sealed).ok().filter(|_| *entry == *record);
        let opened = EntryKey::from_bytes(key).zip(sealed);
        Ok(opened.and_then(|(key, sealed)| key.open(record.entry_id.as_str(), &sealed)))
    }

    /// Has an entry forgotten: recorded first, then its key and every copy of its text are destroyed.
    ///
    /// # Errors
    /// There is none, the peer may not, or something of it is still on the disk. Asking again is safe.
    pub async fn memory_forget(&self, peer: &VerifiedPeer, id: MemoryId) -> Result<MemoryRecord, EngineError> {
        let entry = self.seen_entry(peer, &id).await?.record;
        self.authorize_memory(peer, PolicyAction::MemoryForget, &entry.scope, Some(entry.trust))?;
        let event = JournalEvent::MemoryForgotten { entry_id: id.clone(), by: peer.effective().clone() };
        self.journal().note(&event).await?;
        self.in_memory(move |memory| memory.store.destroy(&id)).await?;
        Ok(entry)
    }

    /// An entry that the peer may see. Whether there is another learns nobody.
    async fn seen_entry(&self, peer: &VerifiedPeer, id: &MemoryId) -> Result<MemoryEntry, EngineError> {
        self.admit(peer, PolicyAction::MemorySearch, None)?;
        let wanted = id.clone();
        let found = self.in_memory(move |memory| memory.store.entry(&wanted)).await?;
        let found = found.filter(|entry| self.sees_memory(peer, &entry.record));
        found.ok_or_else(|| {
            let message = format!("there is no memory entry `{id}`");
            EngineError::new(ErrorKind::NotFound, Problem::new("not_found", message, "`palyra memory list` shows them"))
        })
    }

    fn sees_memory(&self, peer: &VerifiedPeer, entry: &MemoryRecord) -> bool {
        if !self.is_of_here(peer, &entry.scope) {
            return false;
        }
        let context = self.about_memory(peer, &entry.scope, Some(entry.trust));
        let resource = PolicyResource::Memory(entry.scope.to_string());
        self.would_allow(peer, PolicyAction::MemorySearch, resource, &context)
    }

    fn authorize_memory(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        scope: &MemoryScope,
        trust: Option<MemoryTrust>,
    ) -> Result<(), EngineError> {
        if !self.is_of_here(peer, scope) {
            let problem =
                Problem::new("forbidden", "this is the memory of another workspace", "work in that workspace");
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        let context = self.about_memory(peer, scope, trust);
        self.authorize(peer, action, PolicyResource::Memory(scope.to_string()), Some(context))
    }

    /// Whether a scope is not that of a workspace in which the peer does not work.
    fn is_of_here(&self, peer: &VerifiedPeer, scope: &MemoryScope) -> bool {
        match scope {
            MemoryScope::Workspace(id) => self.is_here(peer, Some(id)),
            MemoryScope::Principal(_) | MemoryScope::Session(..) => true,
        }
    }

    fn about_memory(
        &self,
        peer: &VerifiedPeer,
        scope: &MemoryScope,
        trust: Option<MemoryTrust>,
    ) -> PolicyRequestContext {
        PolicyRequestContext { owned_by: scope.owner().cloned(), memory_trust: trust, ..self.at_door(peer) }
    }

    /// A scope as a person names it: by its kind for their own, or in full.
    fn named_scope(&self, peer: &VerifiedPeer, name: &str) -> Result<MemoryScope, EngineError> {
        let name = if name.is_empty() { "principal" } else { name };
        if let Some(own) = self.memory().scope(name, (peer.effective(), self.workspace_id_of(peer).as_ref()), None) {
            return Ok(own);
        }
        let hint =
            "use `principal`, `workspace`, or a scope in full: `principal:agent:demo`, `session:agent:demo/work`";
        name.parse()
            .map_err(|_| EngineError::invalid("memory_scope", format!("`{}` is no memory scope", excerpt(name)), hint))
    }
}

fn excerpt(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
