//! What tests of several crates share: a clock that a test sets, servers on loopback, and calls as the journal records
//! them.
//!
//! Never shipped: the crates below `crates/` may use it for their tests alone, and `cargo xtask tidy` refuses any other
//! edge. It uses `palyra-protocol` and no other crate of ours, so that every crate's tests can use it.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

mod clock;
pub mod records;
mod server;
mod tls;

pub use clock::SetClock;
pub use server::{FileServer, listen, ok, read_request, serve, serve_on};
pub use tls::TlsIdentity;
