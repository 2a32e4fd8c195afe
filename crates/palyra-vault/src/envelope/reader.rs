//! Reads big-endian binary fields and never past the end.

use super::EnvelopeFault;
use palyra_protocol::SecretRef;

/// What is left of some bytes.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], EnvelopeFault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(EnvelopeFault::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeFault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(EnvelopeFault::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, EnvelopeFault> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, EnvelopeFault> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, EnvelopeFault> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, EnvelopeFault> {
        self.array().map(u64::from_be_bytes)
    }

    /// Scope and name, each after its length.
    pub(crate) fn reference(&mut self) -> Result<SecretRef, EnvelopeFault> {
        let mut text = || {
            let length = usize::from(self.u16()?);
            std::str::from_utf8(self.take(length)?).map_err(|_| EnvelopeFault::Reference)
        };
        let (scope, name) = (text()?, text()?);
        let scope = scope.parse().map_err(|_| EnvelopeFault::Reference)?;
        let name = name.parse().map_err(|_| EnvelopeFault::Reference)?;
        Ok(SecretRef::new(scope, name))
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Every byte was read.
    pub(crate) fn end(&self) -> Result<(), EnvelopeFault> {
        if self.0.is_empty() { Ok(()) } else { Err(EnvelopeFault::Trailing) }
    }
}
