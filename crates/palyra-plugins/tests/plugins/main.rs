//! The host against real components: what they may do, how each limit ends them, what is kept and what is never
//! executed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod access;
mod cached;
mod crowds;
mod examples;
mod hostile;
mod replays;
mod support;
