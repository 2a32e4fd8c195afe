//! `wasi:clocks`: the time of day and the time since the call began, both in whole milliseconds.
//!
//! Finer clocks would let a guest measure what others do with the processor's caches.

use super::Pollable;
use crate::bindings::wasi::clocks::{monotonic_clock, wall_clock};
use crate::guest::{Guest, HostCallKind};
use wasmtime::component::Resource;

const NANOSECONDS_IN_MS: u64 = 1_000_000;

impl monotonic_clock::Host for Guest {
    fn now(&mut self) -> wasmtime::Result<u64> {
        self.count(HostCallKind::Clock)?;
        Ok(self.elapsed_ms()?.saturating_mul(NANOSECONDS_IN_MS))
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        self.count(HostCallKind::Clock)?;
        Ok(NANOSECONDS_IN_MS)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<Pollable>> {
        self.count(HostCallKind::Clock)?;
        Ok(self.hand(Pollable::At(when.div_ceil(NANOSECONDS_IN_MS)))?)
    }

    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<Pollable>> {
        self.count(HostCallKind::Clock)?;
        let then = self.elapsed_ms()?.saturating_add(duration.div_ceil(NANOSECONDS_IN_MS));
        Ok(self.hand(Pollable::At(then))?)
    }
}

impl wall_clock::Host for Guest {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.count(HostCallKind::Clock)?;
        Ok(datetime(self.time_ms()?))
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.count(HostCallKind::Clock)?;
        Ok(datetime(1))
    }
}

/// Milliseconds since 1970, as WASI writes them.
pub(super) fn datetime(ms: u64) -> wall_clock::Datetime {
    let nanoseconds = u32::try_from((ms % 1000) * NANOSECONDS_IN_MS).unwrap_or(0);
    wall_clock::Datetime { seconds: ms / 1000, nanoseconds }
}
