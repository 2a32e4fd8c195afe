//! The system's keyring: Secret Service on Linux, Keychain on macOS, Credential Manager on Windows.
//!
//! A keyring may ask its owner to unlock it and wait for as long as they think. So one thread talks to it, callers wait
//! for a limited time, and a request that nobody waits for any more is not begun. A connection that broke is made anew
//! once.

use crate::error::VaultError;
use keyring_core::{CredentialStore, Error as KeyringError};
use palyra_protocol::display::safe;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a keyring may take to answer.
pub const KEYRING_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens a connection to a keyring.
type Connect = Box<dyn Fn() -> Result<Arc<CredentialStore>, KeyringError> + Send>;

/// Bytes from or for a keyring, wiped when dropped.
pub(crate) type KeyringBytes = Zeroizing<Vec<u8>>;

/// A keyring, reached through a thread of its own.
pub struct Keyring {
    jobs: Sender<Job>,
    timeout: Duration,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

struct Job {
    service: String,
    operation: Operation,
    answer: SyncSender<Result<Answer, VaultError>>,
    abandoned: Arc<AtomicBool>,
}

enum Operation {
    Read(String),
    Write(String, KeyringBytes),
    Remove(String),
    List,
}

enum Answer {
    Bytes(Option<KeyringBytes>),
    Removed(bool),
    Names(Vec<String>),
    Done,
}

impl Keyring {
    /// The keyring of this system. Nothing is connected to before the first request.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn of_system(timeout: Duration) -> Result<Self, VaultError> {
        Self::over(Box::new(connect), timeout)
    }

    /// A keyring that somebody else connects to.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn over(connect: Connect, timeout: Duration) -> Result<Self, VaultError> {
        let (jobs, queue) = mpsc::channel();
        std::thread::Builder::new()
            .name("palyra-keyring".to_owned())
            .spawn(move || serve(&connect, &queue))
            .map_err(|error| VaultError::KeyringUnavailable { reason: error.to_string() })?;
        Ok(Self { jobs, timeout })
    }

    /// An item of a service; nothing when there is none.
    ///
    /// # Errors
    /// The keyring is locked, does not answer in time, or is not there.
    pub fn read(&self, service: &str, name: &str) -> Result<Option<KeyringBytes>, VaultError> {
        match self.ask(service, Operation::Read(name.to_owned()))? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Err(mixed_up()),
        }
    }

    /// Keeps an item of a service, in place of the one before.
    ///
    /// # Errors
    /// The keyring is locked, does not answer in time, or is not there.
    pub fn write(&self, service: &str, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        let bytes = Zeroizing::new(bytes.to_vec());
        self.ask(service, Operation::Write(name.to_owned(), bytes)).map(drop)
    }

    /// Removes an item of a service; tells whether there was one.
    ///
    /// # Errors
    /// The keyring is locked, does not answer in time, or is not there.
    pub fn remove(&self, service: &str, name: &str) -> Result<bool, VaultError> {
        match self.ask(service, Operation::Remove(name.to_owned()))? {
            Answer::Removed(removed) => Ok(removed),
            _ => Err(mixed_up()),
        }
    }

    pub(crate) fn list(&self, service: &str) -> Result<Vec<String>, VaultError> {
        match self.ask(service, Operation::List)? {
            Answer::Names(names) => Ok(names),
            _ => Err(mixed_up()),
        }
    }

    fn ask(&self, service: &str, operation: Operation) -> Result<Answer, VaultError> {
        let (answer, answers) = mpsc::sync_channel(1);
        let abandoned = Arc::new(AtomicBool::new(false));
        let job = Job { service: service.to_owned(), operation, answer, abandoned: Arc::clone(&abandoned) };
        let gone = || VaultError::KeyringUnavailable { reason: "its thread has ended".to_owned() };
        self.jobs.send(job).map_err(|_| gone())?;
        match answers.recv_timeout(self.timeout) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                abandoned.store(true, Ordering::SeqCst);
                Err(VaultError::KeyringTimeout { seconds: self.timeout.as_secs() })
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

fn mixed_up() -> VaultError {
    VaultError::Internal { what: "the keyring answered another question" }
}

fn serve(connect: &Connect, queue: &Receiver<Job>) {
    let mut store: Option<Arc<CredentialStore>> = None;
    while let Ok(job) = queue.recv() {
        if job.abandoned.load(Ordering::SeqCst) {
            continue;
        }
        let answered = with_store(connect, &mut store, |store| perform(store, &job));
        // Whoever asked may have stopped waiting.
        drop(job.answer.send(answered.map_err(from_keyring)));
    }
}

/// Runs one operation; if the connection turns out to be broken, once more over a new one. Every operation may be
/// repeated.
fn with_store<T>(
    connect: &Connect,
    store: &mut Option<Arc<CredentialStore>>,
    operation: impl Fn(&CredentialStore) -> Result<T, KeyringError>,
) -> Result<T, KeyringError> {
    if let Some(open) = store {
        match operation(open.as_ref()) {
            Err(KeyringError::PlatformFailure(_)) => *store = None,
            answered => return answered,
        }
    }
    let open = store.insert(connect()?);
    operation(open.as_ref())
}

fn perform(store: &CredentialStore, job: &Job) -> Result<Answer, KeyringError> {
    let entry = |name: &str| store.build(&job.service, name, None);
    match &job.operation {
        Operation::Read(name) => match entry(name)?.get_secret() {
            Ok(bytes) => Ok(Answer::Bytes(Some(Zeroizing::new(bytes)))),
            Err(KeyringError::NoEntry) => Ok(Answer::Bytes(None)),
            Err(error) => Err(error),
        },
        Operation::Write(name, bytes) => entry(name)?.set_secret(bytes).map(|()| Answer::Done),
        Operation::Remove(name) => match entry(name)?.delete_credential() {
            Ok(()) => Ok(Answer::Removed(true)),
            Err(KeyringError::NoEntry) => Ok(Answer::Removed(false)),
            Err(error) => Err(error),
        },
        Operation::List => {
            let entries = store.search(&search_for(&job.service))?;
            let ours = entries.iter().filter_map(keyring_core::Entry::get_specifiers);
            Ok(Answer::Names(ours.filter(|(service, _)| *service == job.service).map(|(_, name)| name).collect()))
        }
    }
}

fn from_keyring(error: KeyringError) -> VaultError {
    match error {
        KeyringError::NoStorageAccess(_) => VaultError::KeyringLocked,
        // What a message of the system says is for the operator; it is short and shows nothing that a terminal obeys.
        other => {
            let reason: String = other.to_string().chars().take(200).collect();
            VaultError::KeyringUnavailable { reason: safe(&reason) }
        }
    }
}

#[cfg(all(unix, not(target_os = "macos")))]
fn connect() -> Result<Arc<CredentialStore>, KeyringError> {
    Ok(zbus_secret_service_keyring_store::Store::new()?)
}

#[cfg(target_os = "macos")]
fn connect() -> Result<Arc<CredentialStore>, KeyringError> {
    Ok(apple_native_keyring_store::keychain::Store::new()?)
}

#[cfg(windows)]
fn connect() -> Result<Arc<CredentialStore>, KeyringError> {
    Ok(windows_native_keyring_store::Store::new()?)
}

/// How this system's keyring is asked for everything of one service. Service names hold letters, digits, `-` and `_`.
fn search_for(service: &str) -> HashMap<&str, &str> {
    let key = if cfg!(windows) { "pattern" } else { "service" };
    HashMap::from([(key, service)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyring_core::mock;
    use std::sync::atomic::AtomicUsize;

    fn code<T>(result: Result<T, VaultError>) -> &'static str {
        result.err().map_or("ok", |error| error.code())
    }

    fn memory() -> Arc<CredentialStore> {
        mock::Store::new().unwrap()
    }

    #[test]
    fn items_are_kept_by_service_and_name() {
        let store = memory();
        let keyring = Keyring::over(Box::new(move || Ok(Arc::clone(&store))), KEYRING_TIMEOUT).unwrap();
        assert!(keyring.read("s", "a").unwrap().is_none());
        keyring.write("s", "a", b"\xff\0").unwrap();
        keyring.write("other", "b", b"x").unwrap();
        assert_eq!(keyring.read("s", "a").unwrap().unwrap().as_slice(), b"\xff\0");
        assert_eq!(keyring.list("s").unwrap(), ["a"]);
        assert!(keyring.remove("s", "a").unwrap());
        assert!(!keyring.remove("s", "a").unwrap());
    }

    /// A keyring that waits for its owner does not hold anybody up, and what was given up is not done later.
    #[test]
    fn a_keyring_that_does_not_answer_is_given_up() {
        let store = memory();
        let (answer, waiting) = mpsc::channel::<()>();
        let inner = Arc::clone(&store);
        let waiting = std::sync::Mutex::new(waiting);
        let connect = move || {
            let _dropped = waiting.lock().unwrap().recv();
            Ok(Arc::clone(&inner))
        };
        let keyring = Keyring::over(Box::new(connect), Duration::from_millis(50)).unwrap();
        assert_eq!(code(keyring.write("s", "first", b"x")), "keyring_timeout");
        assert_eq!(code(keyring.write("s", "second", b"x")), "keyring_timeout");
        assert_eq!(code(keyring.read("s", "first")), "keyring_timeout");
        drop(answer);
        let names = loop {
            match keyring.list("s") {
                Ok(names) => break names,
                Err(error) => assert_eq!(error.code(), "keyring_timeout"),
            }
        };
        assert!(!names.contains(&"second".to_owned()), "{names:?}");
    }

    #[test]
    fn a_broken_connection_is_made_anew_once() {
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, store) = (Arc::clone(&connections), memory());
        let inner = Arc::clone(&store);
        let connect = move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::clone(&inner))
        };
        let keyring = Keyring::over(Box::new(connect), KEYRING_TIMEOUT).unwrap();
        keyring.write("s", "a", b"x").unwrap();
        let entry = store.build("s", "a", None).unwrap();
        let fail = |error| entry.as_any().downcast_ref::<mock::Cred>().unwrap().set_error(error);
        fail(KeyringError::PlatformFailure("the connection is gone".into()));
        assert_eq!(keyring.read("s", "a").unwrap().unwrap().as_slice(), b"x");
        assert_eq!(connections.load(Ordering::SeqCst), 2);
        fail(KeyringError::NoStorageAccess("locked".into()));
        assert_eq!(code(keyring.read("s", "a")), "keyring_locked");
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_keyring_that_is_not_there_says_so() {
        let connect = || Err(KeyringError::PlatformFailure("no \u{1b}[2J bus".into()));
        let keyring = Keyring::over(Box::new(connect), KEYRING_TIMEOUT).unwrap();
        let error = keyring.read("s", "a").unwrap_err();
        assert_eq!(error.code(), "keyring_unavailable");
        assert!(error.to_string().contains("no \\u{1b}[2J bus"), "{error}");
    }
}
