//! Everything that must fail and everything that must work, tried from inside each tier.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod egress;
mod executed;
mod files;
mod held;
mod kernel;
mod limits;
mod neighbours;
mod network;
mod ordinary;
mod processes;
mod traces;
mod views;
mod walls;
mod work;
