//! The threads that the engine is made for.

use std::io;
use tokio::runtime::{Builder, Runtime};

/// A runtime with a thread for every core but one: that core is the journal writer's, which every call waits for twice.
/// A thread more does not make calls faster: it is woken with each answer of the writer and takes the writer's place.
///
/// # Errors
/// The threads do not start.
pub fn runtime() -> io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread().worker_threads(cores.saturating_sub(1).max(1)).enable_all().build()
}
