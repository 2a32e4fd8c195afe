//! A certificate for a browser, packed so that every browser and operating system takes it: PKCS#12.
//!
//! The key is made on the paired device and packed there; the daemon sees the request alone. The file is encrypted
//! (PBES2, AES-256, PBKDF2 with HMAC-SHA-256) under a password that is made for it, shown once and kept nowhere.

use crate::device_key::{DeviceKey, DeviceKeyError};
use crate::entropy::{self, NoEntropy};
use crate::identity::Issued;
use crate::names::DeviceName;
use data_encoding::BASE32_NOPAD;
use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey, PrivateKeyChain,
};
use palyra_protocol::Secret;
use std::fmt;
use zeroize::Zeroizing;

/// How often the password is hashed. It has 100 random bits, so this only has to be what importers expect.
const ITERATIONS: u32 = 10_000;

/// Why no file for a browser can be made.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// The file cannot be packed.
    #[error("the browser's certificate cannot be packed: {what}")]
    Packing {
        /// Why.
        what: String,
    },
    /// The key cannot be made or used.
    #[error(transparent)]
    Key(#[from] DeviceKeyError),
    /// The machine gives no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl BrowserError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Packing { .. } => "browser_packing",
            Self::Key(error) => error.code(),
            Self::Entropy(_) => "no_entropy",
        }
    }
}

impl From<p12_keystore::error::Error> for BrowserError {
    fn from(error: p12_keystore::error::Error) -> Self {
        Self::Packing { what: error.to_string() }
    }
}

/// A browser's key and the request for its certificate, until the daemon answers.
#[derive(Debug)]
pub struct BrowserRequest {
    name: DeviceName,
    key: DeviceKey,
    request: Vec<u8>,
}

/// A file for a browser and the password that opens it.
pub struct BrowserFile {
    /// The PKCS#12 file. It holds the key, encrypted.
    pub pkcs12: Vec<u8>,
    password: Zeroizing<String>,
}

impl fmt::Debug for BrowserFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BrowserFile({} bytes, [redacted])", self.pkcs12.len())
    }
}

impl BrowserFile {
    /// The password, to be shown once. Every call site is a place to review.
    #[must_use]
    pub fn reveal_password(&self) -> &str {
        &self.password
    }

    /// The password as a secret.
    #[must_use]
    pub fn password(&self) -> Secret {
        Secret::new(self.password.as_bytes().to_vec())
    }
}

impl BrowserRequest {
    /// A new key for a browser that people will call `name`.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub fn begin(name: DeviceName) -> Result<Self, BrowserError> {
        let key = DeviceKey::generate()?;
        let request = key.signing_request(name.as_str())?;
        Ok(Self { name, key, request })
    }

    /// What the browser will be called.
    #[must_use]
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The request: what [`crate::Identity::add_browser`] takes.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Packs what the daemon issued.
    ///
    /// # Errors
    /// The file cannot be packed.
    pub fn pack(self, issued: &Issued) -> Result<BrowserFile, BrowserError> {
        let password = password()?;
        let chain = std::iter::once(&issued.certificate).chain(issued.authorities.first());
        let chain = chain.map(|der| Certificate::from_der(der)).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKey::from_der(self.key.to_secret().expose())?;
        let mut store = KeyStore::new();
        let id = self.key.digest().as_bytes()[..20].to_vec();
        let entry = KeyStoreEntry::PrivateKeyChain(PrivateKeyChain::new(id, key, chain));
        store.add_entry(&format!("Palyra: {}", self.name), entry);
        let pkcs12 = store
            .writer(&password)
            .encryption_algorithm(EncryptionAlgorithm::PbeWithHmacSha256AndAes256)
            .encryption_iterations(ITERATIONS)
            .mac_algorithm(MacAlgorithm::HmacSha256)
            .mac_iterations(ITERATIONS)
            .write()?;
        Ok(BrowserFile { pkcs12, password })
    }
}

/// Twenty letters and digits in groups of five: 100 bits.
fn password() -> Result<Zeroizing<String>, NoEntropy> {
    let random = Zeroizing::new(entropy::random::<13>()?);
    let letters = Zeroizing::new(BASE32_NOPAD.encode(&random[..]).to_ascii_lowercase());
    let groups: Vec<_> = (0..4).map(|group| &letters[group * 5..group * 5 + 5]).collect();
    Ok(Zeroizing::new(groups.join("-")))
}
