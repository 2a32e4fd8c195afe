//! Sessions over HTTP, which only the revisions before the current one have: whose they are, and how many.
//!
//! A session belongs to the token or device that began it: to everybody else it does not exist. Clients often leave
//! without a word, so a token that has no room for another loses the one that was idle longest.

use palyra_protocol::access::Credential;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a session without a word is kept: longer than a person is usually waited for.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How many sessions one token may have.
pub(super) const PER_TOKEN: usize = 32;
/// How many sessions there may be.
const MAX_SESSIONS: usize = 1024;

/// Every session.
#[derive(Debug, Clone)]
pub(super) struct Sessions {
    kept: Arc<LocalSessionManager>,
    known: Arc<Mutex<HashMap<String, Session>>>,
    /// Held while a session begins, so that two do not take one place.
    beginning: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Session {
    owner: Credential,
    /// Requests under way, streams included.
    busy: usize,
    used: Instant,
}

/// A request in a session, until its answer has been sent or nobody reads it.
#[derive(Debug)]
pub(super) struct InUse {
    sessions: Sessions,
    id: String,
}

impl Sessions {
    pub(super) fn new() -> Self {
        let mut kept = LocalSessionManager::default();
        kept.session_config.keep_alive = Some(IDLE);
        Self { kept: Arc::new(kept), known: Arc::default(), beginning: Arc::default() }
    }

    /// Where the SDK keeps them.
    pub(super) fn kept(&self) -> Arc<LocalSessionManager> {
        Arc::clone(&self.kept)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a session of this token's; nothing if it has no such session.
    pub(super) fn enter(&self, id: &str, token: &Credential) -> Option<InUse> {
        let mut known = self.lock();
        let session = known.get_mut(id).filter(|session| session.owner == *token)?;
        session.busy += 1;
        Some(InUse { sessions: self.clone(), id: id.to_owned() })
    }

    /// Makes room for a session that is about to begin, and keeps it until the guard is dropped. Nothing if every
    /// session that could make room is at work.
    pub(super) async fn begin(&self, token: &Credential) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        let beginning = Arc::clone(&self.beginning).lock_owned().await;
        let live: Vec<String> = self.kept.sessions.read().await.keys().map(|id| id.to_string()).collect();
        if let Some(id) = self.make_room(token, &live)? {
            self.close(id).await;
        }
        Some(beginning)
    }

    /// The session that has to go, if one has; nothing at all if none can.
    #[expect(clippy::option_option, reason = "none has to go, or none can")]
    fn make_room(&self, token: &Credential, live: &[String]) -> Option<Option<String>> {
        let mut known = self.lock();
        known.retain(|id, _| live.contains(id));
        let own = known.values().filter(|session| session.owner == *token).count();
        let evicted = if own >= PER_TOKEN {
            idle_longest(&known, |session| session.owner == *token)?
        } else if known.len() >= MAX_SESSIONS {
            idle_longest(&known, |_| true)?
        } else {
            return Some(None);
        };
        known.remove(&evicted);
        Some(Some(evicted))
    }

    /// Enters a session that has begun.
    pub(super) fn begun(&self, id: &str, owner: Credential) {
        self.lock().insert(id.to_owned(), Session { owner, busy: 0, used: Instant::now() });
    }

    /// Forgets a session that has ended.
    pub(super) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    async fn close(&self, id: String) {
        if let Err(error) = self.kept.close_session(&id.into()).await {
            tracing::debug!(%error, "a session had ended");
        }
    }
}

fn idle_longest(known: &HashMap<String, Session>, of: impl Fn(&Session) -> bool) -> Option<String> {
    let idle = known.iter().filter(|(_, session)| session.busy == 0 && of(session));
    idle.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.lock().get_mut(&self.id) {
            session.busy -= 1;
            session.used = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::TokenId;

    async fn begin(sessions: &Sessions, token: &Credential) -> Option<String> {
        let _place = sessions.begin(token).await?;
        let (id, transport) = sessions.kept.create_session().await.unwrap();
        // The worker goes on without anybody who speaks through it.
        std::mem::forget(transport);
        sessions.begun(&id, token.clone());
        Some(id.to_string())
    }

    #[tokio::test]
    async fn a_token_with_no_room_loses_the_session_that_was_idle_longest() {
        let sessions = Sessions::new();
        let (token, other) = (Credential::Token(TokenId::mint()), Credential::Token(TokenId::mint()));
        let theirs = begin(&sessions, &other).await.unwrap();
        let mut own = Vec::new();
        for _ in 0..PER_TOKEN {
            own.push(begin(&sessions, &token).await.unwrap());
        }
        assert!(sessions.enter(&own[0], &other).is_none(), "it is somebody else's");
        // The first is at work, so the second goes.
        let mut at_work = vec![sessions.enter(&own[0], &token).unwrap()];
        let fresh = begin(&sessions, &token).await.unwrap();
        assert!(sessions.enter(&own[1], &token).is_none());
        assert!(!sessions.kept.sessions.read().await.keys().any(|id| **id == *own[1]));
        for id in own[2..].iter().chain([&fresh]) {
            at_work.push(sessions.enter(id, &token).unwrap());
        }
        assert!(begin(&sessions, &token).await.is_none(), "all are at work");
        drop(at_work);
        assert!(begin(&sessions, &token).await.is_some());
        assert!(sessions.enter(&theirs, &other).is_some(), "nobody loses a session to somebody else's wish");
    }
}
