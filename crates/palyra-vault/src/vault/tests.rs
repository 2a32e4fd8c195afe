//! The vault through its own door, with real files.

mod crashes;
mod faults;
mod moving;
mod slots;
mod values;

use super::*;
use crate::backend::{BackendKind, BlobId, FileBackend};
use crate::keyring::{KEYRING_TIMEOUT, Keyring};
use crate::value::SecretValue;
use palyra_protocol::{SecretRef, Timestamp};
use palyra_testkit::SetClock;

/// Files, files elsewhere that are called a keyring, and a keyring in memory.
#[derive(Debug)]
pub(super) struct TestBackends {
    keyring: Arc<Keyring>,
}

#[derive(Debug)]
struct Elsewhere(FileBackend, BackendKind);

impl BlobBackend for Elsewhere {
    fn kind(&self) -> BackendKind {
        self.1
    }
    fn limit(&self) -> usize {
        2560
    }
    fn read(&self, id: BlobId) -> Result<Option<Vec<u8>>, VaultError> {
        self.0.read(id)
    }
    fn write(&self, id: BlobId, bytes: &[u8]) -> Result<(), VaultError> {
        self.0.write(id, bytes)
    }
    fn remove(&self, id: BlobId) -> Result<bool, VaultError> {
        self.0.remove(id)
    }
    fn list(&self) -> Result<Vec<BlobId>, VaultError> {
        self.0.list()
    }
}

impl Backends for TestBackends {
    fn open(&self, kind: BackendKind, _: &VaultId, directory: &Path) -> Result<Arc<dyn BlobBackend>, VaultError> {
        match kind {
            BackendKind::Files => Ok(Arc::new(FileBackend::open(directory)?)),
            BackendKind::SecretService => {
                Ok(Arc::new(Elsewhere(FileBackend::open(&directory.join("elsewhere"))?, kind)))
            }
            backend => Err(VaultError::NoSuchBackend { backend }),
        }
    }

    fn keyring(&self) -> Result<Arc<Keyring>, VaultError> {
        Ok(Arc::clone(&self.keyring))
    }
}

/// A keyring in memory.
pub(super) fn memory_keyring() -> Arc<Keyring> {
    let store: Arc<keyring_core::CredentialStore> = keyring_core::mock::Store::new().unwrap();
    Arc::new(Keyring::over(Box::new(move || Ok(Arc::clone(&store))), KEYRING_TIMEOUT).unwrap())
}

/// In memory where the system has a place for that: these tests make thousands of files and need no disk under them.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A directory with a vault, and what is needed to open it.
pub(super) struct Fixture {
    root: PathBuf,
    /// Removed with the fixture, unless somebody else made it.
    _own: Option<tempfile::TempDir>,
    pub(super) clock: Arc<SetClock>,
    backends: Arc<TestBackends>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let own = directory();
        Self { root: own.path().to_owned(), _own: Some(own), ..Self::over(Path::new("")) }
    }

    /// Over a directory that somebody else made and removes.
    pub(super) fn over(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            _own: None,
            clock: SetClock::at(1_000_000),
            backends: Arc::new(TestBackends { keyring: memory_keyring() }),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.root.join("vault")
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.root.join("vault.key")
    }

    pub(super) fn surroundings(&self) -> Surroundings {
        Surroundings {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            backends: Arc::clone(&self.backends) as Arc<dyn Backends>,
        }
    }

    pub(super) fn create(&self) -> Vault {
        let slot = ("key file".to_owned(), NewSlot::KeyFile(self.key_file()));
        Vault::create(&self.path(), BackendChoice::Default, vec![slot], self.surroundings()).unwrap()
    }

    pub(super) fn sources(&self) -> KeySources {
        KeySources::none().key_file(self.key_file())
    }

    pub(super) fn try_open(&self) -> Result<Vault, VaultError> {
        Vault::open(&self.path(), &self.sources(), self.surroundings())
    }

    pub(super) fn open(&self) -> Vault {
        self.try_open().unwrap()
    }

    /// The file of a secret's blob.
    pub(super) fn blob(&self, name: &str) -> PathBuf {
        let id = BlobId::of(&secret(name)).to_string();
        self.path().join("blobs").join(&id[..2]).join(&id[2..])
    }
}

pub(super) fn secret(name: &str) -> SecretRef {
    SecretRef::from_operator(&format!("global/{name}")).unwrap()
}

pub(super) fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

pub(super) fn put(vault: &Vault, name: &str, text: &str) -> u64 {
    vault.put(&secret(name), &value(text), PutOptions::default()).unwrap().version
}

/// The current value, or the code of the error.
pub(super) fn shown(vault: &Vault, name: &str) -> String {
    match vault.get(&secret(name)) {
        Ok(opened) => String::from_utf8(opened.value.expose().to_vec()).unwrap(),
        Err(error) => error.code().to_owned(),
    }
}

pub(super) fn code<T>(result: Result<T, VaultError>) -> &'static str {
    result.err().map_or("ok", |error| error.code())
}
