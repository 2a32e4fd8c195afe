//! Windows: a job object with limits around a process with a restricted token of low integrity.
//!
//! What is built from text and numbers (command line, environment block, job limits) is pure and compiled for tests on
//! every platform. The rest calls Windows, and unsafe code is in `token.rs`, `job.rs`, `process.rs` and `file.rs`
//! alone. A job object cannot hold back the network, so strict egress is refused here; nor is there a Tier B.

mod command_line;
mod environment_block;
#[cfg(windows)]
mod file;
#[cfg(windows)]
mod host;
#[cfg(windows)]
mod job;
mod limits;
#[cfg(windows)]
mod process;
#[cfg(windows)]
mod reach;
#[cfg(windows)]
mod report;
#[cfg(windows)]
mod run;
#[cfg(windows)]
mod scratch;
#[cfg(windows)]
mod token;

#[cfg(windows)]
pub(crate) use file::identity as file_identity;
#[cfg(windows)]
pub(crate) use host::detect;
#[cfg(windows)]
pub(crate) use run::run;
