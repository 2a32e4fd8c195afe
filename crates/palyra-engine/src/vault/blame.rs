//! Blame: every use of a secret, from the journal.
//!
//! Two kinds of events tell it: the vault's own, which an index has, and the connections of those calls that a secret
//! was released to, which name the secrets that were attached to them.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_policy::PolicyAction;
use palyra_protocol::{CallId, JournalEvent, SecretBlame, SecretDelivery, SecretRef, Timestamp};
use std::collections::BTreeSet;

/// The most events of the vault that one answer tells.
const MOST: usize = 1000;

impl Engine {
    /// Every use of a secret and every change to it, the newest first.
    ///
    /// # Errors
    /// The peer may not see it, or the journal cannot be read.
    pub async fn vault_blame(
        &self,
        peer: &VerifiedPeer,
        reference: &SecretRef,
    ) -> Result<Vec<SecretBlame>, EngineError> {
        self.authorize_secret(peer, PolicyAction::VaultList, reference).await?;
        let of = reference.clone();
        let events = self.journal().vault_events(MOST, move |event| about(event) == Some(&of)).await?;
        let mut told = Vec::with_capacity(events.len());
        let mut calls = BTreeSet::new();
        for (seq, at, event) in events {
            if let Some(call) = event.call_id() {
                calls.insert(call.clone());
            }
            told.extend(use_of(seq, at, event));
        }
        for call in calls {
            self.add_call(&call, reference, &mut told).await?;
        }
        told.sort_by_key(|entry| std::cmp::Reverse(entry.seq));
        Ok(told)
    }

    /// What a call did with the secret: its connections, and the decision that permitted it.
    async fn add_call(
        &self,
        call: &CallId,
        reference: &SecretRef,
        told: &mut Vec<SecretBlame>,
    ) -> Result<(), EngineError> {
        let mut decision = None;
        let mut connections = Vec::new();
        for event in self.journal().events_of_call(call).await? {
            let Ok(parsed) = serde_json::from_str::<JournalEvent>(&event.body) else { continue };
            match parsed {
                JournalEvent::ToolDecided { decision: made, .. } => decision = Some(made.decision_id.to_string()),
                JournalEvent::EgressConnection { connection, .. } if connection.credentials.contains(reference) => {
                    connections.push((event.seq, event.at, connection));
                }
                _ => {}
            }
        }
        let Some(first) = told.iter_mut().find(|entry| entry.call_id.as_ref() == Some(call)) else { return Ok(()) };
        let (by, program) = (first.by.clone(), first.program.clone());
        for entry in told.iter_mut().filter(|entry| entry.call_id.as_ref() == Some(call)) {
            entry.decision = decision.clone();
        }
        for (seq, at, connection) in connections {
            let host = connection.host.clone().unwrap_or_default();
            let path = connection.path.clone().unwrap_or_default();
            let method = connection.method.clone().unwrap_or_default();
            told.push(SecretBlame {
                seq,
                at,
                by: by.clone(),
                what: "attached".to_owned(),
                call_id: Some(call.clone()),
                via: Some(SecretDelivery::Proxy),
                program: program.clone(),
                endpoints: vec![format!("{method} {host}:{}{path}", connection.port.unwrap_or(0))],
                decision: decision.clone(),
                purpose: String::new(),
            });
        }
        Ok(())
    }
}

/// The secret that an event is about.
fn about(event: &JournalEvent) -> Option<&SecretRef> {
    match event {
        JournalEvent::VaultAccessed { access } => access.secret.as_ref(),
        JournalEvent::VaultChanged { change } => change.secret.as_ref(),
        _ => None,
    }
}

fn use_of(seq: u64, at: Timestamp, event: JournalEvent) -> Option<SecretBlame> {
    let entry = match event {
        JournalEvent::VaultAccessed { access } => SecretBlame {
            seq,
            at,
            by: access.by,
            what: access.action.as_str().to_owned(),
            call_id: access.call_id,
            via: access.via,
            program: access.program,
            endpoints: access.endpoints,
            decision: None,
            purpose: access.purpose,
        },
        JournalEvent::VaultChanged { change } => SecretBlame {
            seq,
            at,
            by: change.by,
            what: change.what.as_str().to_owned(),
            call_id: None,
            via: None,
            program: None,
            endpoints: Vec::new(),
            decision: None,
            purpose: String::new(),
        },
        _ => return None,
    };
    Some(entry)
}
