//! A clock that a test sets.

use palyra_protocol::{Clock, Timestamp};
use rustls::pki_types::UnixTime;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Deed = Box<dyn FnOnce() + Send>;

/// A time that stands still until it is moved.
pub struct SetClock {
    now: AtomicU64,
    /// What a thread of this name does when it next asks for the time.
    deed: Mutex<Option<(&'static str, Deed)>>,
}

impl SetClock {
    /// A clock that shows so many milliseconds since the UNIX epoch.
    #[must_use]
    pub fn at(ms: u64) -> Arc<Self> {
        Arc::new(Self { now: AtomicU64::new(ms), deed: Mutex::new(None) })
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(u64::try_from(by.as_millis()).expect("a test's time"), Ordering::SeqCst);
    }

    /// Moves it back.
    pub fn set_back(&self, by: Duration) {
        self.now.fetch_sub(u64::try_from(by.as_millis()).expect("a test's time"), Ordering::SeqCst);
    }

    /// Sets it, forward or back.
    pub fn set(&self, ms: u64) {
        self.now.store(ms, Ordering::SeqCst);
    }

    /// Does something when a thread of this name next asks for the time: between two of its steps.
    pub fn when_read_by(&self, thread: &'static str, deed: impl FnOnce() + Send + 'static) {
        *self.deed.lock().unwrap_or_else(PoisonError::into_inner) = Some((thread, Box::new(deed)));
    }

    fn due(&self) -> Option<Deed> {
        let mut deed = self.deed.lock().unwrap_or_else(PoisonError::into_inner);
        let (thread, _) = deed.as_ref()?;
        if std::thread::current().name() != Some(thread) {
            return None;
        }
        deed.take().map(|(_, deed)| deed)
    }
}

impl fmt::Debug for SetClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetClock").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        if let Some(deed) = self.due() {
            deed();
        }
        Timestamp::from_unix_ms(self.now.load(Ordering::SeqCst))
    }
}

impl rustls::time_provider::TimeProvider for SetClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.now().unix_ms())))
    }
}
