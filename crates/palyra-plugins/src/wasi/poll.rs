//! `wasi:io/poll` and `wasi:io/error`: waiting.
//!
//! There is nothing to wait for but time and replies. Streams are always ready: they end in memory, in the log or in a
//! file. A reply is fetched by whoever waits for it, on this thread; so the requests of one call are sent one after
//! another, in the order in which the guest waits for them, and a replay goes the same way.

use super::http::Exchange;
use crate::bindings::wasi::io::{error, poll};
use crate::error::Stop;
use crate::guest::{Guest, HostCallKind, MISMATCH};
use crate::record::HostAnswer;
use std::sync::{Arc, Mutex};
use wasmtime::component::Resource;

/// Why a stream failed.
#[derive(Debug)]
pub struct IoError(pub(crate) String);

/// Something that becomes ready.
#[derive(Debug, Clone)]
pub enum Pollable {
    /// It is.
    Always,
    /// When so many milliseconds of the call have passed.
    At(u64),
    /// When a reply is there.
    Reply(Arc<Mutex<Exchange>>),
}

impl error::Host for Guest {}

impl error::HostError for Guest {
    fn to_debug_string(&mut self, this: Resource<IoError>) -> wasmtime::Result<String> {
        self.count(HostCallKind::Io)?;
        Ok(self.table.get(&this)?.0.clone())
    }

    fn drop(&mut self, this: Resource<IoError>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl poll::HostPollable for Guest {
    fn ready(&mut self, this: Resource<Pollable>) -> wasmtime::Result<bool> {
        self.count(HostCallKind::Io)?;
        let pollable = self.table.get(&this)?.clone();
        Ok(match pollable {
            Pollable::At(ms) => self.elapsed_ms()? >= ms,
            other => self.is_ready(&other)?,
        })
    }

    fn block(&mut self, this: Resource<Pollable>) -> wasmtime::Result<()> {
        self.count(HostCallKind::Io)?;
        let pollable = self.table.get(&this)?.clone();
        self.wait(&[pollable])?;
        Ok(())
    }

    fn drop(&mut self, this: Resource<Pollable>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl poll::Host for Guest {
    fn poll(&mut self, list: Vec<Resource<Pollable>>) -> wasmtime::Result<Vec<u32>> {
        self.count(HostCallKind::Io)?;
        if list.is_empty() {
            return Err(Stop::Misuse("an empty list was polled").into());
        }
        let pollables = list.iter().map(|item| self.table.get(item).cloned()).collect::<Result<Vec<_>, _>>()?;
        Ok(self.wait(&pollables)?)
    }
}

impl Guest {
    /// Waits until something of the list is ready; says what.
    fn wait(&mut self, list: &[Pollable]) -> Result<Vec<u32>, Stop> {
        let mut ready = Vec::new();
        for (index, pollable) in (0..).zip(list) {
            if self.is_ready(pollable)? {
                ready.push(index);
            }
        }
        let timers: Vec<(u32, u64)> = (0..)
            .zip(list)
            .filter_map(|(index, pollable)| if let Pollable::At(ms) = pollable { Some((index, *ms)) } else { None })
            .collect();
        if timers.is_empty() {
            return if ready.is_empty() {
                Err(Stop::Stuck("a reply to a request whose body is not finished"))
            } else {
                Ok(ready)
            };
        }
        let answer = self.ask("ready", None, |guest| guest.wait_for_timers(&timers, ready))?;
        let HostAnswer::Ready(mut ready) = answer else { return Err(MISMATCH) };
        ready.retain(|index| (*index as usize) < list.len());
        Ok(ready)
    }

    fn wait_for_timers(&mut self, timers: &[(u32, u64)], mut ready: Vec<u32>) -> Result<HostAnswer, Stop> {
        let earliest = timers.iter().map(|(_, ms)| *ms).min();
        if let Some(earliest) = earliest.filter(|_| ready.is_empty()) {
            self.control.sleep_until(self.instant_at(earliest))?;
        }
        let now = std::time::Instant::now();
        ready.extend(timers.iter().filter(|(_, ms)| self.instant_at(*ms) <= now).map(|(index, _)| *index));
        ready.sort_unstable();
        Ok(HostAnswer::Ready(ready))
    }

    /// Whether it is ready, timers aside; a request that can be sent is sent.
    fn is_ready(&mut self, pollable: &Pollable) -> Result<bool, Stop> {
        match pollable {
            Pollable::Always => Ok(true),
            Pollable::At(_) => Ok(false),
            Pollable::Reply(exchange) => self.fetch(exchange),
        }
    }
}
