//! Work: what a call will do once it is permitted, and the tool that prepared it.

use crate::catalog::CatalogTool;
use crate::tools::Job;
use std::sync::Arc;

/// A job, bound to the tool that prepared it.
///
/// INVARIANT (what_was_resolved_runs): the job is the code of that tool. A tool of the same name that takes its place
/// later prepares jobs of its own, and `Engine::execute` does not run a job whose tool has left the catalog.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) tool: Arc<CatalogTool>,
    pub(crate) job: Box<dyn Job>,
}
