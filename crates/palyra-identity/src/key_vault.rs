//! Where private keys are kept.
//!
//! This crate makes keys and uses them for moments; it does not decide where they rest. The daemon hands in its vault;
//! a device hands in the keyring of its operating system, or a [`KeyDirectory`] whose files it seals. A copied state
//! directory impersonates no device where the keys, or what seals them, are not in it.

use crate::private_file;
use palyra_protocol::Secret;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest key that is read: a P-384 key in PKCS#8 has less than 200 bytes.
const MAX_KEY_BYTES: u64 = 4096;

/// The name of a key: `identity.authority.1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName(String);

impl KeyName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of a generation of the certificate authority.
    pub(crate) fn authority(generation: u32) -> Self {
        Self(format!("identity.authority.{generation}"))
    }
}

impl FromStr for KeyName {
    type Err = KeyVaultError;
    fn from_str(text: &str) -> Result<Self, KeyVaultError> {
        let plain = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
        };
        if text.len() <= 128 && text.split('.').all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(KeyVaultError::BadName)
        }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a key cannot be kept or had.
#[derive(Debug, thiserror::Error)]
pub enum KeyVaultError {
    /// The vault is locked.
    #[error("the vault that holds the key is locked")]
    Locked,
    /// Somebody else can read the key.
    #[error("the key `{}` can be read by others", path.display())]
    TooOpen {
        /// The file.
        path: PathBuf,
    },
    /// A name that no key has.
    #[error("a key's name is 1 to 128 of a-z 0-9 _ - in parts divided by dots")]
    BadName,
    /// The vault failed.
    #[error("the key `{name}` {what}")]
    Failed {
        /// The key.
        name: KeyName,
        /// What failed.
        what: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl KeyVaultError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked => "vault_locked",
            Self::TooOpen { .. } => "key_too_open",
            Self::BadName => "key_name_invalid",
            Self::Failed { .. } => "key_vault_failed",
        }
    }
}

/// Keeps private keys. Calls may block; `store` returns when the key is durable.
pub trait KeyVault: Send + Sync + fmt::Debug {
    /// The key of this name; nothing when there is none.
    ///
    /// # Errors
    /// The vault is locked or fails.
    fn load(&self, name: &KeyName) -> Result<Option<Secret>, KeyVaultError>;

    /// Keeps a key, in place of the one that had the name before.
    ///
    /// # Errors
    /// The vault is locked or fails; the earlier key is then still there.
    fn store(&self, name: &KeyName, key: &Secret) -> Result<(), KeyVaultError>;

    /// Forgets a key. A key that is not there is forgotten already.
    ///
    /// # Errors
    /// The vault is locked or fails.
    fn remove(&self, name: &KeyName) -> Result<(), KeyVaultError>;
}

/// Keys as files of one directory, readable by their owner alone: `KEYNAME.key`.
///
/// A file that others can read is refused: the key in it may be known already, and only a person can judge that.
#[derive(Debug)]
pub struct KeyDirectory(PathBuf);

impl KeyDirectory {
    /// Opens the directory, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        private_file::directory(path)?;
        Ok(Self(path.to_owned()))
    }

    fn file(&self, name: &KeyName) -> PathBuf {
        self.0.join(format!("{name}.key"))
    }
}

fn failed(name: &KeyName, what: &'static str) -> impl FnOnce(std::io::Error) -> KeyVaultError {
    let name = name.clone();
    move |source| KeyVaultError::Failed { name, what, source: source.into() }
}

impl KeyVault for KeyDirectory {
    fn load(&self, name: &KeyName) -> Result<Option<Secret>, KeyVaultError> {
        let path = self.file(name);
        let found = private_file::read(&path, MAX_KEY_BYTES).map_err(failed(name, "cannot be read"))?;
        let Some((bytes, rights)) = found else { return Ok(None) };
        let key = Secret::new(bytes);
        if rights & private_file::OTHERS != 0 {
            return Err(KeyVaultError::TooOpen { path });
        }
        Ok(Some(key))
    }

    fn store(&self, name: &KeyName, key: &Secret) -> Result<(), KeyVaultError> {
        private_file::replace(&self.file(name), key.expose()).map_err(failed(name, "cannot be written"))
    }

    fn remove(&self, name: &KeyName) -> Result<(), KeyVaultError> {
        private_file::remove(&self.file(name)).map_err(failed(name, "cannot be removed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn keys_are_kept_replaced_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let vault = KeyDirectory::open(&dir.path().join("keys")).unwrap();
        let name: KeyName = "device.a".parse().unwrap();
        assert!(vault.load(&name).unwrap().is_none());
        for text in ["one", "two"] {
            vault.store(&name, &Secret::new(text.into())).unwrap();
            assert_eq!(vault.load(&name).unwrap().unwrap().expose(), text.as_bytes());
        }
        vault.remove(&name).unwrap();
        vault.remove(&name).unwrap();
        assert!(vault.load(&name).unwrap().is_none());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let vault = KeyDirectory::open(dir.path()).unwrap();
        let name: KeyName = "k".parse().unwrap();
        vault.store(&name, &Secret::new(b"x".to_vec())).unwrap();
        std::fs::set_permissions(dir.path().join("k.key"), std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(vault.load(&name).unwrap_err().code(), "key_too_open");
    }

    #[test]
    fn names_lead_nowhere_else() {
        for bad in ["", ".", "..", "a..b", "../x", "a/b", "A", "a b", "a.", &"x".repeat(129)] {
            assert!(bad.parse::<KeyName>().is_err(), "{bad}");
        }
    }
}
