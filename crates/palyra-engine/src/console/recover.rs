//! A start takes up what the journal has of consoles: sessions that are open, and passkeys.

use super::sessions::{ConsoleSession, Opener};
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_journal::AboutWhat;
use palyra_protocol::access::{Credential, ShownToken};
use palyra_protocol::{ConsoleId, ConsoleKey, JournalEvent, Principal, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A session as its events tell it.
struct Recorded {
    principal: Principal,
    token: Option<ShownToken>,
    key: ConsoleKey,
    label: String,
    opened_at: Timestamp,
    last_used: Timestamp,
}

impl Engine {
    /// Takes up the console sessions that are open, and the passkeys. A session whose token opens nothing any more, and
    /// one that is idle by what is recorded, ends here. Called once, before a door opens.
    ///
    /// # Errors
    /// The events cannot be read, or an end cannot be recorded.
    pub async fn recover_consoles(&self) -> Result<(), EngineError> {
        let mut open: BTreeMap<ConsoleId, Recorded> = BTreeMap::new();
        for (_, at, event) in self.journal().events_about(AboutWhat::Consoles, 0).await? {
            match event {
                JournalEvent::ConsoleOpened { session, principal, token, key, label } => {
                    let recorded = Recorded { principal, token, key, label, opened_at: at, last_used: at };
                    open.insert(session, recorded);
                }
                JournalEvent::ConsoleUsed { session } => {
                    open.entry(session).and_modify(|recorded| recorded.last_used = at);
                }
                JournalEvent::ConsoleEnded { session, .. } => drop(open.remove(&session)),
                JournalEvent::PasskeyAdded { passkey } => self.consoles().add_passkey(*passkey),
                JournalEvent::PasskeyRemoved { principal, passkey, .. } => {
                    self.consoles().remove_passkey(&principal, &passkey);
                }
                _ => {}
            }
        }
        for (id, recorded) in open {
            self.take_up_console(id, recorded).await?;
        }
        self.end_stale_consoles().await;
        Ok(())
    }

    async fn take_up_console(&self, id: ConsoleId, recorded: Recorded) -> Result<(), EngineError> {
        let Recorded { principal, token, key, label, opened_at, last_used } = recorded;
        let (mut admitted, mut device_id) = (None, None);
        let mut refused = false;
        match token.map(|token| token.credential) {
            None => {}
            Some(Credential::Device(device)) => device_id = Some(device),
            Some(Credential::Token(token)) => {
                admitted = self.access().state().admit_recorded(&token, self.clock().now()).ok();
                refused = admitted.is_none();
            }
        }
        let opener = Opener { principal, token: admitted, device: None, device_id };
        let session = ConsoleSession::recorded(id.clone(), opener, (key, label), (opened_at, last_used));
        let place = self.consoles().reserve().filter(|_| !refused);
        let Some(place) = place else {
            let (by, reason) = (Principal::daemon(), "what opened it lets nobody in any more".to_owned());
            self.journal().note(&JournalEvent::ConsoleEnded { session: id, by, reason }).await?;
            return Ok(());
        };
        self.consoles().enter(place, &Arc::new(session));
        Ok(())
    }
}
