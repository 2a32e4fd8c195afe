//! `wasi:random`: one generator per call, seeded by the system and recorded as its seed.
//!
//! Secure and insecure interfaces draw from the same generator: nobody gains by worse numbers.

use crate::bindings::wasi::random::{insecure, insecure_seed, random};
use crate::error::Stop;
use crate::guest::{Guest, HostCallKind};
use crate::limits::Limit;

impl Guest {
    fn random(&mut self, length: u64) -> Result<Vec<u8>, Stop> {
        self.count(HostCallKind::Random)?;
        let limit = self.grant.limits().transfer_bytes;
        match usize::try_from(length) {
            Ok(length) if length as u64 <= limit => Ok(self.random_bytes(length)),
            _ => Err(Stop::Limit(Limit::TransferBytes, limit)),
        }
    }

    fn random_number(&mut self) -> Result<u64, Stop> {
        self.count(HostCallKind::Random)?;
        Ok(self.random_u64())
    }
}

impl random::Host for Guest {
    fn get_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        Ok(self.random(length)?)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random_number()?)
    }
}

impl insecure::Host for Guest {
    fn get_insecure_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        Ok(self.random(length)?)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random_number()?)
    }
}

impl insecure_seed::Host for Guest {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        Ok((self.random_number()?, self.random_number()?))
    }
}
