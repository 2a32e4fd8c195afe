//! Where this machine keeps its keys for daemons elsewhere: in the system's keyring, or in files that only its user
//! reads.
//!
//! Which of the two is decided once, when the first key is made, and written down beside the profiles. Where a keyring
//! is in use, a copied state directory alone is nobody.

use crate::exit::{FAILED, Failure};
use palyra_identity::{KeyName, KeyVault, KeyVaultError, SealedDirectory};
use palyra_protocol::{Digest, Secret};
use palyra_vault::{Keyring, VaultError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The variable that decides, where nobody has before: `keyring`, `file`, or whichever works.
const CHOICE: &str = "PALYRA_DEVICE_KEYS";
/// The file that says where the keys are.
const WHERE: &str = "keys";
const IN_KEYRING: &str = "keyring";
const IN_FILES: &str = "file";
/// The directory of keys that are files.
const FILES: &str = "host_keys";
/// How long the keyring may take: it may ask its owner to unlock it.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is written and removed to see whether the keyring works.
const PROBE: &str = "probe";

/// The keys of a state directory, where they are kept.
pub fn open(state_dir: &Path, profiles: &Path) -> Result<Arc<dyn KeyVault>, Failure> {
    match std::fs::read_to_string(profiles.join(WHERE)).as_deref().map(str::trim) {
        Ok(IN_KEYRING) => Ok(Arc::new(KeyringKeys::new(state_dir)?)),
        Ok(IN_FILES) => files(state_dir),
        Err(error) if error.kind() == ErrorKind::NotFound => files(state_dir),
        Err(error) => Err(Failure::io("where the keys are cannot be read", error)),
        Ok(other) => {
            let message = format!("keys are said to be in `{other}`, which is nowhere");
            Err(Failure::new(FAILED, "device_keys_unknown", message, Some("write `keyring` or `file` there")))
        }
    }
}

/// Decides where keys are kept, unless that was decided before.
pub fn decide(state_dir: &Path, profiles: &Path) -> Result<(), Failure> {
    let file = profiles.join(WHERE);
    if file.exists() {
        return Ok(());
    }
    let chosen = match std::env::var(CHOICE).as_deref() {
        Ok(IN_KEYRING) => {
            KeyringKeys::new(state_dir)?.probe().map_err(|error| {
                let hint = format!("unlock it, or keep the key in a file: `{CHOICE}=file`");
                Failure::new(FAILED, error.code(), error.to_string(), Some(&hint))
            })?;
            IN_KEYRING
        }
        Ok(IN_FILES) => IN_FILES,
        // Without a session there is no keyring to ask, and nothing to wait for.
        _ if cfg!(target_os = "linux") && std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none() => IN_FILES,
        _ if KeyringKeys::new(state_dir).is_ok_and(|keys| keys.probe().is_ok()) => IN_KEYRING,
        _ => IN_FILES,
    };
    std::fs::write(&file, format!("{chosen}\n")).map_err(|e| Failure::io("where the keys are cannot be written", &e))
}

fn files(state_dir: &Path) -> Result<Arc<dyn KeyVault>, Failure> {
    let keys = state_dir.join(FILES);
    let opened = SealedDirectory::open(&keys);
    let opened = opened.map_err(|e| Failure::io(&format!("`{}` cannot be made", keys.display()), &e))?;
    Ok(Arc::new(opened))
}

/// Keys in the system's keyring, under a service of this state directory's own.
#[derive(Debug)]
struct KeyringKeys {
    keyring: Keyring,
    service: String,
}

impl KeyringKeys {
    fn new(state_dir: &Path) -> Result<Self, Failure> {
        let keyring = Keyring::of_system(PATIENCE);
        let keyring = keyring.map_err(|error| Failure::new(FAILED, error.code(), error.to_string(), error.hint()))?;
        let service = format!("palyra-device-{}", Digest::of(state_dir.as_os_str().as_bytes()).short());
        Ok(Self { keyring, service })
    }

    fn probe(&self) -> Result<(), VaultError> {
        self.keyring.write(&self.service, PROBE, PROBE.as_bytes())?;
        self.keyring.remove(&self.service, PROBE).map(drop)
    }
}

fn failed(name: &KeyName, what: &'static str) -> impl FnOnce(VaultError) -> KeyVaultError {
    let name = name.clone();
    move |error| KeyVaultError::Failed { name, what, source: Box::new(error) }
}

impl KeyVault for KeyringKeys {
    fn load(&self, name: &KeyName) -> Result<Option<Secret>, KeyVaultError> {
        let found = self.keyring.read(&self.service, name.as_str()).map_err(failed(name, "cannot be read"))?;
        Ok(found.map(|bytes| Secret::new(bytes.to_vec())))
    }

    fn store(&self, name: &KeyName, key: &Secret) -> Result<(), KeyVaultError> {
        self.keyring.write(&self.service, name.as_str(), key.expose()).map_err(failed(name, "cannot be kept"))
    }

    fn remove(&self, name: &KeyName) -> Result<(), KeyVaultError> {
        self.keyring.remove(&self.service, name.as_str()).map(drop).map_err(failed(name, "cannot be removed"))
    }
}
