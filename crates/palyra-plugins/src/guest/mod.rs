//! One guest while it runs: what it holds, what it has used, and the way by which every answer from outside reaches it.
//!
//! A `Guest` is the data of one store and lives for one call. Host functions count themselves here first, ask the grant
//! second and a door last. Everything that does not follow from the guest's own doings passes [`Guest::ask`], which
//! records it or, in a replay, reads it from the record; no host function may reach outside in any other way.

mod log;
mod meter;
mod observed;

pub(crate) use log::{Log, Stream};
pub use log::{LogLevel, LogLine};
pub(crate) use meter::Meter;
pub use observed::{HostCallKind, HostCalls, Observed};

use crate::control::CallControl;
use crate::doors::{Doors, HttpAllowance, HttpFault, HttpReply};
use crate::error::Stop;
use crate::grant::Grant;
use crate::http_request::HttpRequest;
use crate::limits::Limit;
use crate::record::{HostAnswer, Tape};
use crate::wasi::Slot;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use palyra_protocol::{Clock, Digest};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::component::ResourceTable;

/// The data of one store.
pub(crate) struct Guest {
    pub(crate) grant: Arc<Grant>,
    pub(crate) doors: Doors,
    pub(crate) control: Arc<CallControl>,
    pub(crate) table: ResourceTable,
    pub(crate) log: Log,
    pub(crate) meter: Meter,
    pub(crate) calls: HostCalls,
    pub(crate) observed: Observed,
    clock: Arc<dyn Clock>,
    random: ChaCha20Rng,
    tape: Tape,
    began: Instant,
    http_requests: u64,
    http_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) slots: Slot,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// What a guest is given to begin with.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) grant: Arc<Grant>,
    pub(crate) doors: Doors,
    pub(crate) control: Arc<CallControl>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: [u8; 32],
    pub(crate) tape: Tape,
}

impl Guest {
    pub(crate) fn new(birth: Birth) -> Self {
        let limits = birth.grant.limits();
        let mut table = ResourceTable::new();
        table.set_max_capacity(usize::try_from(limits.handles).unwrap_or(usize::MAX));
        let began = birth.control.start();
        Self {
            table,
            log: Log::new(limits.log_bytes),
            meter: Meter::new(limits),
            calls: HostCalls::default(),
            observed: Observed::default(),
            clock: birth.clock,
            random: ChaCha20Rng::from_seed(birth.seed),
            tape: birth.tape,
            began,
            http_requests: 0,
            http_bytes: 0,
            file_bytes: 0,
            slots: Slot::default(),
            grant: birth.grant,
            doors: birth.doors,
            control: birth.control,
        }
    }

    /// Counts a host call. Every host function begins with this.
    pub(crate) fn count(&mut self, kind: HostCallKind) -> Result<(), Stop> {
        let limit = self.grant.limits().host_calls;
        if self.calls.add(kind) > limit { Err(Stop::Limit(Limit::HostCalls, limit)) } else { Ok(()) }
    }

    /// The answer to a question that only the outside can answer: asked and recorded, or read from the record.
    pub(crate) fn ask(
        &mut self,
        kind: &'static str,
        asked: Option<Digest>,
        live: impl FnOnce(&mut Self) -> Result<HostAnswer, Stop>,
    ) -> Result<HostAnswer, Stop> {
        if self.tape.is_replaying() {
            return self.tape.next(kind, asked);
        }
        let answer = live(self)?;
        self.tape.keep(asked, &answer);
        Ok(answer)
    }

    pub(crate) fn take_tape(&mut self) -> Tape {
        std::mem::replace(&mut self.tape, Tape::recording(0))
    }

    /// The time of day, in milliseconds: finer clocks measure what a guest must not know.
    pub(crate) fn time_ms(&mut self) -> Result<u64, Stop> {
        match self.ask("time", None, |guest| Ok(HostAnswer::Time(guest.clock.now().unix_ms())))? {
            HostAnswer::Time(ms) => Ok(ms),
            _ => Err(MISMATCH),
        }
    }

    /// The time since the call began, in milliseconds.
    pub(crate) fn elapsed_ms(&mut self) -> Result<u64, Stop> {
        let live = |guest: &mut Self| Ok(HostAnswer::Elapsed(milliseconds(guest.began.elapsed())));
        match self.ask("elapsed", None, live)? {
            HostAnswer::Elapsed(ms) => Ok(ms),
            _ => Err(MISMATCH),
        }
    }

    /// When so many milliseconds of the call have passed; a time that nobody lives to see is the deadline.
    pub(crate) fn instant_at(&self, elapsed_ms: u64) -> Instant {
        self.began.checked_add(Duration::from_millis(elapsed_ms)).unwrap_or_else(|| self.control.deadline())
    }

    /// Random bytes, reproducible from the record's seed.
    pub(crate) fn random_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    pub(crate) fn random_u64(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Sends a request whose body has been counted: the grant is asked, then the door.
    pub(crate) fn send(
        &mut self,
        request: Result<HttpRequest, String>,
        timeout: Option<Duration>,
    ) -> Result<Result<HttpReply, HttpFault>, Stop> {
        let request = match request {
            Ok(request) => request,
            Err(why) => return Ok(Err(HttpFault::Invalid(why))),
        };
        let limits = self.grant.limits().clone();
        self.http_requests += 1;
        if self.http_requests > limits.http_requests {
            return Err(Stop::Limit(Limit::HttpRequests, limits.http_requests));
        }
        if !self.grant.allows_host(request.host(), request.port()) {
            let host = format!("{}:{}", request.host(), request.port());
            let why = format!("the grant does not include `{host}`");
            self.observed.denied("http", &host);
            return Ok(Err(HttpFault::Denied(why)));
        }
        let left = limits.http_bytes.saturating_sub(self.http_bytes);
        self.observed.reached(request.host(), request.port());
        let asked = request.digest();
        let answer = self.ask("http", Some(asked), |guest| guest.send_live(&request, left, timeout))?;
        let HostAnswer::Http(answer) = answer else { return Err(MISMATCH) };
        if let Ok(reply) = &answer {
            self.charge_http(reply.body.len())?;
        }
        Ok(answer)
    }

    /// Counts the bytes of a body, written or received.
    pub(crate) fn charge_http(&mut self, bytes: usize) -> Result<(), Stop> {
        let limit = self.grant.limits().http_bytes;
        self.http_bytes = self.http_bytes.saturating_add(bytes as u64);
        if self.http_bytes > limit { Err(Stop::Limit(Limit::HttpBytes, limit)) } else { Ok(()) }
    }

    fn send_live(&mut self, request: &HttpRequest, left: u64, timeout: Option<Duration>) -> Result<HostAnswer, Stop> {
        self.control.check()?;
        let remaining = self.control.remaining();
        let timeout = timeout.map_or(remaining, |timeout| timeout.min(remaining));
        let answer = match &self.doors.http {
            None => Err(HttpFault::Denied("no HTTP door is open in this call".to_owned())),
            Some(door) => door.send(request, HttpAllowance { reply_bytes: left, timeout }, &self.control),
        };
        self.control.check()?;
        Ok(HostAnswer::Http(answer.and_then(|reply| checked(reply, left))))
    }
}

/// A door answers with what another host said: it is looked at again before a guest hears it.
fn checked(reply: HttpReply, left: u64) -> Result<HttpReply, HttpFault> {
    if reply.body.len() as u64 > left {
        return Err(HttpFault::TooLarge(left));
    }
    if !(100..=999).contains(&reply.status) {
        return Err(HttpFault::Unreachable("the reply has no valid status".to_owned()));
    }
    Ok(reply)
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An answer of another kind than was asked for, which the tape has excluded.
pub(crate) const MISMATCH: Stop = Stop::Misuse("an answer of another kind was recorded");
