//! Recalling: what is found is asked about item by item, and becomes a fact of the session before it is handed out.

use crate::engine::Engine;
use crate::error::EngineError;
use palyra_journal::{MemoryEntry, MemoryQuery, SessionSource};
use palyra_policy::{PolicyAction, PolicyDecision, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::{MemoryRecord, MemoryScope, MemorySource, Origin};

/// The most bytes of text that one search hands out.
const MAX_TEXT: usize = 64 * 1024;

impl Engine {
    /// What a call finds in its caller's own scopes and in the workspace's. The session has recalled it when this
    /// returns.
    pub(crate) async fn recall(
        &self,
        origin: &Origin,
        query: String,
        kind: Option<&str>,
        limit: usize,
    ) -> Result<Vec<MemoryEntry>, EngineError> {
        let kinds =
            ["principal", "workspace", "session"].into_iter().filter(|own| kind.is_none_or(|kind| kind == *own));
        let scopes: Vec<MemoryScope> = kinds
            .filter_map(|kind| {
                self.memory().scope(kind, (&origin.principal, origin.workspace.as_ref()), Some(&origin.session))
            })
            .collect();
        let query = MemoryQuery { text: query, scopes: Some(scopes) };
        let found = self.in_memory(move |memory| memory.store.search(&query)).await?;
        let mut room = MAX_TEXT;
        let mut told: Vec<MemoryEntry> = Vec::new();
        for entry in found.into_iter().filter(|entry| self.may_recall(origin, &entry.record)).take(limit) {
            let Some(left) = room.checked_sub(entry.text.len()) else { break };
            room = left;
            told.push(entry);
        }
        let recalled: Vec<SessionSource> = told.iter().map(|entry| recalled(&entry.record)).collect();
        let (principal, session) = (origin.principal.clone(), origin.session.clone());
        if !recalled.is_empty() {
            self.in_memory(move |memory| memory.note_sources(&principal, &session, &recalled)).await?;
        }
        Ok(told)
    }

    /// Whether policy lets a caller see one entry.
    fn may_recall(&self, origin: &Origin, entry: &MemoryRecord) -> bool {
        let issuers = origin.token.as_ref().map_or_else(Vec::new, |token| token.issuers.clone());
        let limited = origin.token.as_ref().filter(|_| origin.principal == origin.proposed_by);
        let context = self.placed_at(
            origin.workspace.as_ref(),
            PolicyRequestContext {
                role: limited.map(|token| token.role),
                issued_by: issuers,
                device_id: origin.device.clone(),
                session_id: Some(origin.session.clone()),
                run_id: Some(origin.run.clone()),
                proposed_by: Some(origin.proposed_by.clone()),
                owned_by: entry.scope.owner().cloned(),
                memory_trust: Some(entry.trust),
                ..PolicyRequestContext::new(origin.channel.clone())
            },
        );
        let request = PolicyRequest {
            principal: origin.principal.clone(),
            action: PolicyAction::MemorySearch,
            resource: PolicyResource::Memory(entry.scope.to_string()),
        };
        matches!(self.policy().evaluate_with_context(&request, &context).decision, PolicyDecision::Allow)
    }
}

fn recalled(entry: &MemoryRecord) -> SessionSource {
    let source = MemorySource::new(&format!("memory:{}", entry.entry_id));
    SessionSource { source, trust: entry.trust, recalled: true }
}
