//! Codes that wait, and sessions that are open.

use crate::access::VerifiedPeer;
use palyra_access::Admitted;
use palyra_identity::ConnectedDevice;
use palyra_protocol::access::ShownToken;
use palyra_protocol::{ConsoleId, ConsoleKey, DeviceId, Digest, Passkey, Principal, Timestamp};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a session stays open that nobody uses.
pub(crate) const IDLE: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a session stays open at all.
pub(crate) const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How often the use of a session is recorded at most.
const NOTED: Duration = Duration::from_secs(60 * 60);
/// How many codes wait; the oldest makes room.
const MAX_CODES: usize = 16;
/// How many sessions are open.
const MAX_SESSIONS: usize = 256;
/// How many requests of one session fit into the time that a replay is looked for.
const MAX_NONCES: usize = 20_000;

/// Who a session acts for, and by what they were known when they made its code.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub(crate) principal: Principal,
    pub(crate) token: Option<Admitted>,
    /// The device's connection that a code was asked for on; none once the daemon was started anew.
    pub(crate) device: Option<Arc<ConnectedDevice>>,
    /// The device whose connections alone the session holds on.
    pub(crate) device_id: Option<DeviceId>,
}

impl Opener {
    pub(super) fn of(peer: &VerifiedPeer) -> Self {
        let (token, device) = (peer.token().cloned(), peer.device().cloned());
        let device_id = device.as_ref().map(|device| device.device_id().clone());
        Self { principal: peer.effective().clone(), token, device, device_id }
    }

    pub(super) fn shown(&self) -> Option<ShownToken> {
        self.token.as_ref().map(Admitted::shown)
    }
}

/// A code that nobody has used yet. Only its hash is kept.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) code: Digest,
    pub(super) expires_at: Timestamp,
    pub(super) opener: Opener,
}

/// One browser's session.
#[derive(Debug)]
pub(crate) struct ConsoleSession {
    id: ConsoleId,
    opener: Opener,
    key: ConsoleKey,
    label: String,
    opened_at: Timestamp,
    last_used: AtomicU64,
    /// When its use was recorded last.
    noted: AtomicU64,
    ended: AtomicBool,
    nonces: Mutex<HashMap<String, u64>>,
}

/// A session, as it is listed.
#[derive(Debug, Clone, Serialize)]
pub struct SessionView {
    /// Its id.
    pub session: ConsoleId,
    /// Who acts in it.
    pub principal: Principal,
    /// What the browser calls itself.
    pub label: String,
    /// The browser's key.
    pub key: ConsoleKey,
    /// Since when.
    pub opened_at: Timestamp,
    /// When it was last used.
    pub last_used_at: Timestamp,
    /// When it ends by itself, if nobody uses it until then.
    pub ends_at: Timestamp,
}

/// Why a nonce does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NonceRefusal {
    /// It was used before.
    Replayed,
    /// Too many requests in a short time.
    TooMany,
}

impl ConsoleSession {
    pub(super) fn new(opener: Opener, key: ConsoleKey, label: String, now: Timestamp) -> Self {
        Self::recorded(ConsoleId::mint(), opener, (key, label), (now, now))
    }

    /// A session that was opened earlier, and when it was used last as far as that is recorded.
    pub(super) fn recorded(
        id: ConsoleId,
        opener: Opener,
        (key, label): (ConsoleKey, String),
        (opened_at, last_used): (Timestamp, Timestamp),
    ) -> Self {
        Self {
            id,
            opener,
            key,
            label,
            opened_at,
            last_used: AtomicU64::new(last_used.unix_ms()),
            noted: AtomicU64::new(last_used.unix_ms()),
            ended: AtomicBool::new(false),
            nonces: Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> &ConsoleId {
        &self.id
    }

    pub(crate) fn opener(&self) -> &Opener {
        &self.opener
    }

    pub(crate) fn key(&self) -> &ConsoleKey {
        &self.key
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Whether it opens anything.
    pub(crate) fn is_open(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// It is used; whether that is to be recorded.
    pub(super) fn used(&self, now: Timestamp) -> bool {
        let now = now.unix_ms();
        self.last_used.fetch_max(now, Ordering::Relaxed);
        let due = |noted: u64| (u128::from(now.saturating_sub(noted)) >= NOTED.as_millis()).then_some(now);
        self.noted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }

    fn ends_at(&self) -> Timestamp {
        let idle = Timestamp::from_unix_ms(self.last_used.load(Ordering::Relaxed)).plus(IDLE);
        idle.min(self.opened_at.plus(LONGEST))
    }

    /// Why it ends by itself now, if it does.
    pub(super) fn stale(&self, now: Timestamp) -> Option<&'static str> {
        match now >= self.ends_at() {
            true if now >= self.opened_at.plus(LONGEST) => Some("it was open for a week"),
            true => Some("it was idle"),
            false => None,
        }
    }

    pub(super) fn view(&self, _now: Timestamp) -> SessionView {
        SessionView {
            session: self.id.clone(),
            principal: self.opener.principal.clone(),
            label: self.label.clone(),
            key: self.key,
            opened_at: self.opened_at,
            last_used_at: Timestamp::from_unix_ms(self.last_used.load(Ordering::Relaxed)),
            ends_at: self.ends_at(),
        }
    }

    /// Takes a nonce that was not used before. Those older than `since` are refused by their time, so they are
    /// forgotten.
    pub(super) fn take_nonce(&self, nonce: &str, at_ms: u64, since: u64) -> Result<(), NonceRefusal> {
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        if nonces.contains_key(nonce) {
            return Err(NonceRefusal::Replayed);
        }
        if nonces.len() >= MAX_NONCES {
            nonces.retain(|_, at| *at >= since);
        }
        if nonces.len() >= MAX_NONCES {
            return Err(NonceRefusal::TooMany);
        }
        nonces.insert(nonce.to_owned(), at_ms);
        Ok(())
    }
}

/// Everything that is known of consoles.
#[derive(Debug)]
pub(crate) struct Consoles {
    /// What every nonce begins with: a request from before the daemon's start is no request now.
    epoch: String,
    book: Mutex<Book>,
    /// Sessions that are open or about to be.
    places: AtomicUsize,
}

#[derive(Debug, Default)]
struct Book {
    codes: Vec<Waiting>,
    sessions: HashMap<ConsoleId, Arc<ConsoleSession>>,
    passkeys: Vec<Passkey>,
}

/// Room for one more session; given back unless it is used.
#[derive(Debug)]
pub(super) struct Place<'a>(Option<&'a Consoles>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(consoles) = self.0 {
            consoles.places.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Default for Consoles {
    fn default() -> Self {
        // Ids are unique; this one names the start.
        let epoch = ConsoleId::mint().as_str().chars().filter(char::is_ascii_alphanumeric).collect();
        Self { epoch, book: Mutex::default(), places: AtomicUsize::new(0) }
    }
}

impl Consoles {
    /// What nonces begin with until the daemon ends.
    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    pub(super) fn passkeys_of(&self, principal: &Principal) -> Vec<Passkey> {
        self.book().passkeys.iter().filter(|passkey| passkey.principal == *principal).cloned().collect()
    }

    pub(super) fn every_passkey(&self) -> Vec<Passkey> {
        self.book().passkeys.clone()
    }

    pub(super) fn add_passkey(&self, passkey: Passkey) {
        self.book().passkeys.push(passkey);
    }

    pub(super) fn remove_passkey(&self, principal: &Principal, id: &str) {
        self.book().passkeys.retain(|passkey| passkey.principal != *principal || passkey.id != id);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a code until it is used or over.
    pub(super) fn wait(&self, waiting: Waiting, now: Timestamp) {
        let mut book = self.book();
        book.codes.retain(|code| now < code.expires_at);
        if book.codes.len() >= MAX_CODES {
            book.codes.remove(0);
        }
        book.codes.push(waiting);
    }

    /// Uses a code up.
    pub(super) fn redeem(&self, code: Digest, now: Timestamp) -> Option<Opener> {
        let mut book = self.book();
        book.codes.retain(|waiting| now < waiting.expires_at);
        let at = book.codes.iter().position(|waiting| waiting.code == code)?;
        Some(book.codes.remove(at).opener)
    }

    pub(super) fn reserve(&self) -> Option<Place<'_>> {
        let taken = self
            .places
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < MAX_SESSIONS).then_some(taken + 1));
        taken.is_ok().then_some(Place(Some(self)))
    }

    /// The session is open.
    pub(super) fn enter(&self, mut place: Place<'_>, session: &Arc<ConsoleSession>) -> Arc<ConsoleSession> {
        place.0 = None;
        self.book().sessions.insert(session.id.clone(), Arc::clone(session));
        Arc::clone(session)
    }

    /// The session is over; whether it was open until now.
    pub(super) fn leave(&self, session: &Arc<ConsoleSession>) -> bool {
        session.ended.store(true, Ordering::Release);
        let left = self.book().sessions.remove(&session.id).is_some();
        if left {
            self.places.fetch_sub(1, Ordering::AcqRel);
        }
        left
    }

    pub(super) fn find(&self, id: &ConsoleId) -> Option<Arc<ConsoleSession>> {
        self.book().sessions.get(id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<ConsoleSession>> {
        let mut all: Vec<_> = self.book().sessions.values().cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }
}
