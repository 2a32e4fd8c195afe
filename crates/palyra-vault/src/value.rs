//! The value of a secret.
//!
//! `SecretValue` has no `Debug`, `Display` or `Serialize`, so that code which would print one does not compile:
//!
//! ```compile_fail,E0277
//! let value = palyra_vault::SecretValue::new(b"hunter2".to_vec()).unwrap();
//! println!("{value:?}");
//! ```
//!
//! ```compile_fail,E0277
//! let value = palyra_vault::SecretValue::new(b"hunter2".to_vec()).unwrap();
//! println!("{value}");
//! ```
//!
//! ```compile_fail,E0277
//! let value = palyra_vault::SecretValue::new(b"hunter2".to_vec()).unwrap();
//! serde_json::to_string(&value).unwrap();
//! ```

use crate::error::VaultError;
use zeroize::{Zeroize as _, Zeroizing};

/// The longest value, in bytes.
pub const MAX_VALUE: usize = 64 << 10;

/// The value of a secret: 1 to [`MAX_VALUE`] bytes that are wiped when dropped and that only [`SecretValue::expose`]
/// shows.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a secret has no way to be printed")]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Takes bytes into custody. Refused bytes are wiped.
    ///
    /// # Errors
    /// There are none, or more than [`MAX_VALUE`].
    pub fn new(mut bytes: Vec<u8>) -> Result<Self, VaultError> {
        if (1..=MAX_VALUE).contains(&bytes.len()) {
            return Ok(Self(Zeroizing::new(bytes)));
        }
        let length = bytes.len();
        bytes.zeroize();
        Err(if length == 0 {
            VaultError::ValueEmpty
        } else {
            VaultError::ValueTooLarge { bytes: length, limit: MAX_VALUE }
        })
    }

    /// Bytes that the envelope has authenticated: their length was checked when they were read.
    pub(crate) fn from_envelope(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The bytes. Every call site is a place to review.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_length() {
        assert!(matches!(SecretValue::new(Vec::new()), Err(VaultError::ValueEmpty)));
        assert!(matches!(SecretValue::new(vec![0; MAX_VALUE + 1]), Err(VaultError::ValueTooLarge { .. })));
        assert!(SecretValue::new(vec![0; MAX_VALUE]).is_ok());
    }
}
