//! The interfaces of WASI 0.2 that toolchains import by themselves, virtualised.
//!
//! Our own implementation, in place of `wasmtime-wasi`: that one serves real clocks, directories and sockets of an
//! ambient system and brings an asynchronous runtime and some sixty packages; here every answer must come from a grant
//! and pass the record. A guest that was granted nothing sees a clock, random numbers, an empty environment, no
//! directories, and streams that end in its log. Finer points that no toolchain needs are left out: what is not granted
//! is denied, and what no host could answer here stops the guest.

#![expect(unreachable_pub, reason = "the generated traits export the resources that they name")]

mod cli;
mod clocks;
mod filesystem;
mod http;
mod poll;
mod random;
mod streams;

pub(crate) use filesystem::Slot;
pub use filesystem::{Descriptor, Entries};
pub use http::{
    Fields, FutureResponse, FutureTrailers, IncomingBody, IncomingResponse, OutgoingBody, OutgoingRequest,
    RequestOptions,
};
pub use poll::{IoError, Pollable};
pub use streams::{InputStream, OutputStream};

use crate::error::Stop;
use crate::guest::Guest;
use crate::limits::Limit;
use wasmtime::component::Resource;

/// A resource of which there is never one.
#[derive(Debug)]
pub enum Nothing {}

impl Guest {
    /// Hands something to the guest; how many things it may hold is limited.
    pub(crate) fn hand<T: Send + 'static>(&mut self, thing: T) -> Result<Resource<T>, Stop> {
        self.table.push(thing).map_err(|_| Stop::Limit(Limit::Handles, self.grant.limits().handles))
    }
}
