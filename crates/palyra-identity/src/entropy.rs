//! Randomness from the operating system, as an error where there is none and never as a panic.

use rand_core::{Infallible, TryCryptoRng, TryRng};

/// The machine gives no randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine gives no randomness")]
pub struct NoEntropy;

/// So many random bytes.
///
/// # Errors
/// The machine gives none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoEntropy> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| NoEntropy)?;
    Ok(bytes)
}

/// A random number below `bound`, every one equally likely.
///
/// # Errors
/// The machine gives no randomness.
pub(crate) fn below(bound: u32) -> Result<u32, NoEntropy> {
    // The numbers from here on would make the first remainders likelier than the others.
    let usable = u32::MAX - u32::MAX % bound;
    loop {
        let number = u32::from_be_bytes(random()?);
        if number < usable {
            return Ok(number % bound);
        }
    }
}

/// The operating system as a generator for code that wants one that cannot fail.
///
/// It fails all the same, and remembers: what was made with it counts only if [`SystemRandom::finish`] says so.
#[derive(Debug, Default)]
pub(crate) struct SystemRandom {
    failed: bool,
}

impl SystemRandom {
    /// # Errors
    /// Some of the bytes that were handed out were not random.
    pub(crate) fn finish(self) -> Result<(), NoEntropy> {
        if self.failed { Err(NoEntropy) } else { Ok(()) }
    }
}

impl TryRng for SystemRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.failed |= getrandom::fill(bytes).is_err();
        Ok(())
    }
}

impl TryCryptoRng for SystemRandom {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_bound() {
        for bound in [1, 2, 10, 100_000_000] {
            assert!((0..100).all(|_| below(bound).unwrap() < bound));
        }
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
