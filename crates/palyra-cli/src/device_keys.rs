//! Where this machine keeps its keys for daemons elsewhere: in the system's keyring, or in sealed files.
//!
//! Which of the two is decided once, when the first key is made, and written down beside the profiles. Files are sealed
//! by a key beside the configuration, so a copied state directory alone impersonates this machine in neither case.

use crate::exit::{FAILED, Failure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_identity::{KeyDirectory, KeyName, KeyVault, KeyVaultError};
use palyra_protocol::{Digest, Secret};
use palyra_vault::{EntryKey, Keyring, VaultError};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
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
/// The key that seals those files, as a key of the configuration's directory.
const SEAL: &str = "host_keys";
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
    let opened = KeyDirectory::open(&keys);
    let keys = opened.map_err(|e| Failure::io(&format!("`{}` cannot be made", keys.display()), &e))?;
    Ok(Arc::new(SealedKeys { keys, config: config_dir()? }))
}

/// Where this user's configuration is: not in the state directory.
fn config_dir() -> Result<PathBuf, Failure> {
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    base.map(|base| base.join("palyra")).ok_or_else(|| {
        let hint = format!("say where the home is: `HOME`, or keep the key in the keyring: `{CHOICE}=keyring`");
        Failure::new(FAILED, "no_home", "there is no home directory", Some(&hint))
    })
}

/// Keys in files of the state directory, sealed by a key that is not in it.
#[derive(Debug)]
struct SealedKeys {
    keys: KeyDirectory,
    config: PathBuf,
}

impl SealedKeys {
    /// The key that seals the others; nothing where there is none.
    fn seal(&self) -> Result<Option<EntryKey>, KeyVaultError> {
        let name: KeyName = SEAL.parse()?;
        if !self.config.exists() {
            return Ok(None);
        }
        let config = KeyDirectory::open(&self.config).map_err(failed(&name, "cannot be read"))?;
        let found = config.load(&name)?;
        found.map(|key| EntryKey::from_bytes(key.expose()).ok_or_else(|| unusable(&name, "is damaged"))).transpose()
    }

    /// The same; it is made where there is none.
    fn made_seal(&self) -> Result<EntryKey, KeyVaultError> {
        if let Some(seal) = self.seal()? {
            return Ok(seal);
        }
        let name: KeyName = SEAL.parse()?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.config);
        let config = made.and_then(|()| KeyDirectory::open(&self.config)).map_err(failed(&name, "cannot be made"))?;
        let seal = EntryKey::generate().map_err(failed(&name, "cannot be made"))?;
        config.store(&name, &Secret::new(seal.expose().to_vec()))?;
        Ok(seal)
    }
}

impl KeyVault for SealedKeys {
    fn load(&self, name: &KeyName) -> Result<Option<Secret>, KeyVaultError> {
        let Some(sealed) = self.keys.load(name)? else { return Ok(None) };
        let text = self.seal()?.and_then(|seal| seal.open(name.as_str(), sealed.expose()));
        let key = text.and_then(|text| STANDARD.decode(text).ok());
        key.map(|key| Some(Secret::new(key))).ok_or_else(|| unusable(name, "was not sealed by this machine"))
    }

    fn store(&self, name: &KeyName, key: &Secret) -> Result<(), KeyVaultError> {
        let sealed = self.made_seal()?.seal(name.as_str(), &STANDARD.encode(key.expose()));
        self.keys.store(name, &Secret::new(sealed.map_err(failed(name, "cannot be sealed"))?))
    }

    fn remove(&self, name: &KeyName) -> Result<(), KeyVaultError> {
        self.keys.remove(name)
    }
}

fn unusable(name: &KeyName, what: &'static str) -> KeyVaultError {
    let source = "pair this machine again: `palyra pair HOST`".into();
    KeyVaultError::Failed { name: name.clone(), what, source }
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

fn failed<E: std::error::Error + Send + Sync + 'static>(
    name: &KeyName,
    what: &'static str,
) -> impl FnOnce(E) -> KeyVaultError {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_open_with_the_seal_they_were_sealed_by_alone() {
        let dir = tempfile::tempdir().unwrap();
        let open = |keys: &str, config: &str| SealedKeys {
            keys: KeyDirectory::open(&dir.path().join(keys)).unwrap(),
            config: dir.path().join(config),
        };
        let name: KeyName = "device.home.a".parse().unwrap();
        let sealed = open("keys", "config");
        assert!(sealed.load(&name).unwrap().is_none());
        sealed.store(&name, &Secret::new(b"the private key".to_vec())).unwrap();
        assert_eq!(open("keys", "config").load(&name).unwrap().unwrap().expose(), b"the private key");
        let file = std::fs::read(dir.path().join("keys/device.home.a.key")).unwrap();
        assert!(!file.windows(7).any(|bytes| bytes == b"private"), "the file holds it sealed");
        assert_eq!(open("keys", "elsewhere").load(&name).unwrap_err().code(), "key_vault_failed");
        // Nor does a sealed key open under another name.
        std::fs::rename(dir.path().join("keys/device.home.a.key"), dir.path().join("keys/device.home.b.key")).unwrap();
        assert!(sealed.load(&"device.home.b".parse().unwrap()).is_err());
        sealed.remove(&"device.home.b".parse().unwrap()).unwrap();
    }
}
