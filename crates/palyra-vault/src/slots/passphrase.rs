//! Passphrases, stretched by Argon2id. The parameters are stored beside the slot, so that they can grow with machines.

use crate::aead::{KEY, Key};
use crate::error::VaultError;
use crate::value::SecretValue;
use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The longest passphrase, in bytes.
pub const MAX_PASSPHRASE: usize = 1024;

/// What one guess of a passphrase costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassphraseCost {
    /// Memory, in KiB: 8 MiB to 1 GiB.
    pub memory_kib: u32,
    /// How often the memory is gone through: 1 to 16.
    pub passes: u32,
    /// Lanes: 1 to 16.
    pub lanes: u32,
}

impl Default for PassphraseCost {
    /// The second recommended choice of RFC 9106: 64 MiB, three passes, four lanes.
    fn default() -> Self {
        Self { memory_kib: 64 << 10, passes: 3, lanes: 4 }
    }
}

impl PassphraseCost {
    /// The least that is accepted: for tests, and machines with little memory.
    pub const LEAST: Self = Self { memory_kib: 8 << 10, passes: 1, lanes: 1 };

    /// The same, if it is within bounds: a stored cost must neither exhaust this machine nor be worth nothing.
    pub(crate) fn checked(self) -> Result<Self, VaultError> {
        let fits = (Self::LEAST.memory_kib..=1 << 20).contains(&self.memory_kib)
            && (1..=16).contains(&self.passes)
            && (1..=16).contains(&self.lanes);
        if fits { Ok(self) } else { Err(VaultError::PassphraseCost) }
    }

    /// The key that a passphrase becomes.
    pub(crate) fn stretch(self, passphrase: &SecretValue, salt: &[u8]) -> Result<Key, VaultError> {
        self.checked()?;
        if passphrase.expose().len() > MAX_PASSPHRASE {
            return Err(VaultError::Passphrase { limit: MAX_PASSPHRASE });
        }
        let failed = |_| VaultError::Internal { what: "Argon2 does not take its parameters" };
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(KEY)).map_err(failed)?;
        let mut key = Zeroizing::new([0; KEY]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(passphrase.expose(), salt, &mut *key)
            .map_err(failed)?;
        Key::from_slice(&*key).ok_or(VaultError::Internal { what: "a key has not 32 bytes" })
    }
}
