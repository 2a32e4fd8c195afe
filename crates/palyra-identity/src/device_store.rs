//! What a device keeps of the daemons that it was paired with.
//!
//! Each daemon is a profile: a document with the certificate and the authorities, and a key in a [`KeyVault`]. The
//! document says in which of two slots its key is. A renewal puts the new key into the other slot and then replaces the
//! document, so a crash at any instant leaves a certificate together with its key.

use crate::device_key::{DeviceKey, DeviceKeyError};
use crate::identity::Issued;
use crate::key_vault::{KeyName, KeyVault, KeyVaultError};
use crate::names::{DeviceName, Zone};
use crate::pairing::{Address, Paired};
use crate::private_file;
use crate::registry::RENEW_BEFORE;
use crate::tls::{CredentialsError, DeviceCredentials};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_protocol::{DeviceId, Principal, Problem, Timestamp, WorkspaceRole};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The form that this version reads and writes.
const SCHEMA: u32 = 1;
/// The largest document.
const MAX_BYTES: u64 = 64 << 10;

/// Why a profile cannot be kept or used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceStoreError {
    /// The name is none.
    #[error("a profile's name is 1 to 48 of a-z 0-9 _ -")]
    Name,
    /// There is no such profile.
    #[error("this device was not paired with `{name}`")]
    Unknown {
        /// The profile.
        name: ProfileName,
    },
    /// The document is damaged.
    #[error("the profile `{}` cannot be used: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("`{}` {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The key cannot be kept or had.
    #[error(transparent)]
    Vault(#[from] KeyVaultError),
    /// The key is not in the vault.
    #[error("the key of `{name}` is not in the keyring or file that holds it")]
    KeyMissing {
        /// The profile.
        name: ProfileName,
    },
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] DeviceKeyError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl DeviceStoreError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name => "profile_name_invalid",
            Self::Unknown { .. } => "profile_unknown",
            Self::Damaged { .. } => "profile_damaged",
            Self::Io { .. } => "profile_io",
            Self::Vault(error) => error.code(),
            Self::KeyMissing { .. } => "device_key_missing",
            Self::Key(error) => error.code(),
            Self::Credentials(error) => error.code(),
        }
    }

    /// What to do next, where that can be said.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unknown { .. } => "pair with it: `palyra pair HOST`, or see `palyra hosts list`",
            Self::Damaged { .. } | Self::KeyMissing { .. } => "pair this device again: `palyra pair HOST`",
            Self::Vault(KeyVaultError::TooOpen { .. }) => "take the rights of others away with `chmod 600`",
            _ => return None,
        })
    }

    /// Code, message and hint.
    #[must_use]
    pub fn problem(&self) -> Problem {
        match self.hint() {
            Some(hint) => Problem::new(self.code(), self.to_string(), hint),
            None => Problem::plain(self.code(), self.to_string()),
        }
    }
}

/// What a device calls a daemon: `home`, `work-2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileName(String);

impl ProfileName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProfileName {
    type Err = DeviceStoreError;
    fn from_str(text: &str) -> Result<Self, DeviceStoreError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
        if (1..=48).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(DeviceStoreError::Name)
        }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The two places for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeySlot {
    A,
    B,
}

impl KeySlot {
    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn name(self, profile: &ProfileName) -> Result<KeyName, KeyVaultError> {
        let slot = match self {
            Self::A => "a",
            Self::B => "b",
        };
        format!("device.{profile}.{slot}").parse()
    }
}

/// A profile's document. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileDocument {
    schema: u32,
    address: String,
    zone: Zone,
    device_id: DeviceId,
    name: DeviceName,
    principal: Principal,
    role: WorkspaceRole,
    key: KeySlot,
    /// DER in base64.
    certificate: String,
    not_after: Timestamp,
    /// DER in base64.
    authorities: Vec<String>,
}

/// A daemon that this device was paired with.
#[derive(Debug)]
pub struct Profile {
    name: ProfileName,
    document: ProfileDocument,
    certificate: CertificateDer<'static>,
    authorities: Vec<CertificateDer<'static>>,
    key: DeviceKey,
}

impl Profile {
    /// What this device calls the daemon.
    #[must_use]
    pub fn name(&self) -> &ProfileName {
        &self.name
    }

    /// Where the daemon is.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.document.address
    }

    /// The daemon's zone.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.document.zone
    }

    /// This device's id there.
    #[must_use]
    pub fn device_id(&self) -> &DeviceId {
        &self.document.device_id
    }

    /// For whom this device acts there.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.document.principal
    }

    /// With which role, as it was when the certificate was issued.
    #[must_use]
    pub fn role(&self) -> WorkspaceRole {
        self.document.role
    }

    /// When the certificate ends.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.document.not_after
    }

    /// Whether it is time to renew the certificate.
    #[must_use]
    pub fn renewal_due(&self, now: Timestamp) -> bool {
        now.until(self.document.not_after) < RENEW_BEFORE
    }

    /// What connections use.
    ///
    /// # Errors
    /// The certificate does not fit the key.
    pub fn credentials(&self) -> Result<Arc<DeviceCredentials>, CredentialsError> {
        DeviceCredentials::new(self.document.zone.clone(), &self.certificate, &self.key, &self.authorities)
    }
}

/// The next key of a device and the request for its certificate, until the daemon answers.
#[derive(Debug)]
pub struct Renewal {
    key: DeviceKey,
    request: Vec<u8>,
}

impl Renewal {
    /// A new key for a device, and the request to send to the daemon.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub fn begin(profile: &Profile) -> Result<Self, DeviceKeyError> {
        let key = DeviceKey::generate()?;
        let request = key.signing_request(profile.device_id().as_str())?;
        Ok(Self { key, request })
    }

    /// The request: what [`crate::Identity::renew`] takes.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }
}

/// The profiles of this device.
#[derive(Debug)]
pub struct DeviceStore {
    dir: PathBuf,
    vault: Arc<dyn KeyVault>,
}

impl DeviceStore {
    /// Opens the store in a directory, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path, vault: Arc<dyn KeyVault>) -> Result<Self, DeviceStoreError> {
        private_file::directory(dir).map_err(io(dir, "cannot be made"))?;
        Ok(Self { dir: dir.to_owned(), vault })
    }

    fn path(&self, name: &ProfileName) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }

    /// The names of all profiles.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<ProfileName>, DeviceStoreError> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(io(&self.dir, "cannot be read"))? {
            let file = entry.map_err(io(&self.dir, "cannot be read"))?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".json"));
            names.extend(name.and_then(|name| name.parse().ok()));
        }
        names.sort();
        Ok(names)
    }

    /// Keeps what pairing gave. An earlier profile of that name is replaced.
    ///
    /// # Errors
    /// It cannot be kept; the earlier profile is then as it was.
    pub fn save(
        &self,
        name: &ProfileName,
        address: &Address,
        device: &DeviceName,
        paired: &Paired,
    ) -> Result<(), DeviceStoreError> {
        // Also an earlier profile that is damaged has its key in one of the two.
        let key = self.document(name).map_or(KeySlot::A, |earlier| earlier.key.other());
        let document = ProfileDocument {
            schema: SCHEMA,
            address: address.to_string(),
            zone: paired.zone.clone(),
            device_id: paired.device_id.clone(),
            name: device.clone(),
            principal: paired.principal.clone(),
            role: paired.role,
            key,
            certificate: STANDARD.encode(&paired.certificate),
            not_after: end_of(&paired.certificate),
            authorities: paired.authorities.iter().map(|authority| STANDARD.encode(authority)).collect(),
        };
        self.replace(name, &document, &paired.key)
    }

    /// Keeps what a renewal gave.
    ///
    /// # Errors
    /// The certificate does not fit the new key, or it cannot be kept. The profile is then as it was.
    pub fn renewed(&self, profile: &Profile, renewal: &Renewal, issued: &Issued) -> Result<Profile, DeviceStoreError> {
        DeviceCredentials::new(profile.document.zone.clone(), &issued.certificate, &renewal.key, &issued.authorities)?;
        let document = ProfileDocument {
            principal: issued.principal.clone(),
            role: issued.role,
            key: profile.document.key.other(),
            certificate: STANDARD.encode(&issued.certificate),
            not_after: issued.not_after,
            authorities: issued.authorities.iter().map(|authority| STANDARD.encode(authority)).collect(),
            ..profile.document.clone()
        };
        self.replace(&profile.name, &document, &renewal.key)?;
        self.load(&profile.name)
    }

    /// The key first, then the document that names it, then the key before is forgotten.
    fn replace(&self, name: &ProfileName, document: &ProfileDocument, key: &DeviceKey) -> Result<(), DeviceStoreError> {
        let path = self.path(name);
        let damaged = |e: serde_json::Error| DeviceStoreError::Damaged { path: path.clone(), why: e.to_string() };
        let mut bytes = serde_json::to_vec_pretty(document).map_err(damaged)?;
        bytes.push(b'\n');
        self.vault.store(&document.key.name(name)?, &key.to_secret())?;
        private_file::replace(&path, &bytes).map_err(io(&path, "cannot be written"))?;
        self.vault.remove(&document.key.other().name(name)?)?;
        Ok(())
    }

    /// Loads a profile.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn load(&self, name: &ProfileName) -> Result<Profile, DeviceStoreError> {
        let document = self.document(name)?;
        let der = |text: &String| {
            let der = STANDARD.decode(text).map(CertificateDer::from);
            let why = "a certificate is not written in base64".to_owned();
            der.map_err(|_| DeviceStoreError::Damaged { path: self.path(name), why })
        };
        let certificate = der(&document.certificate)?;
        let authorities = document.authorities.iter().map(der).collect::<Result<_, _>>()?;
        let secret = self.vault.load(&document.key.name(name)?)?;
        let key = DeviceKey::from_secret(&secret.ok_or(DeviceStoreError::KeyMissing { name: name.clone() })?)?;
        Ok(Profile { name: name.clone(), document, certificate, authorities, key })
    }

    fn document(&self, name: &ProfileName) -> Result<ProfileDocument, DeviceStoreError> {
        let path = self.path(name);
        let found = private_file::read(&path, MAX_BYTES).map_err(io(&path, "cannot be read"))?;
        let (bytes, _) = found.ok_or(DeviceStoreError::Unknown { name: name.clone() })?;
        let damaged = |why: String| DeviceStoreError::Damaged { path: path.clone(), why };
        let document: ProfileDocument = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if document.schema != SCHEMA {
            return Err(damaged(format!("it has schema {}; this version reads schema {SCHEMA}", document.schema)));
        }
        Ok(document)
    }

    /// Forgets a daemon: the document first, then the key.
    ///
    /// # Errors
    /// It cannot be forgotten.
    pub fn forget(&self, name: &ProfileName) -> Result<(), DeviceStoreError> {
        let path = self.path(name);
        private_file::remove(&path).map_err(io(&path, "cannot be removed"))?;
        private_file::sync_parent(&path).map_err(io(&path, "cannot be removed"))?;
        for slot in [KeySlot::A, KeySlot::B] {
            self.vault.remove(&slot.name(name)?)?;
        }
        Ok(())
    }
}

fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> DeviceStoreError {
    let path = path.to_owned();
    move |source| DeviceStoreError::Io { path, what, source }
}

/// When a certificate ends; the epoch for what is none.
fn end_of(certificate: &CertificateDer<'_>) -> Timestamp {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    parsed.map_or(Timestamp::from_unix_ms(0), |(_, c)| crate::authority::timestamp(c.validity().not_after))
}
