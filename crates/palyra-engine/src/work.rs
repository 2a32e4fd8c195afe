//! Work: what a call will do once it is permitted, and the tool that prepared it.

use crate::catalog::CatalogTool;
use crate::tools::Job;
use std::sync::Arc;

/// A job, bound to the tool that prepared it.
///
/// INVARIANT (what_was_resolved_runs): the job is the code of that tool. A tool of the same name that takes its place later
/// prepares jobs of its own, and `Engine::execute` does not run a job whose tool has left the catalog.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) tool: Arc<CatalogTool>,
    pub(crate) job: Box<dyn Job>,
}

#[cfg(test)]
impl Work {
    /// Something to do, for tests that never do it.
    pub(crate) fn any() -> Self {
        use crate::tools::{Executing, Job};
        #[derive(Debug)]
        struct Nothing;
        impl Job for Nothing {
            fn execute<'r>(self: Box<Self>, _run: &'r crate::flow::execute::Running<'_>) -> Executing<'r> {
                Box::pin(std::future::pending())
            }
        }
        let catalog = crate::catalog::ToolCatalog::builtin().unwrap();
        Self { tool: Arc::clone(catalog.find("palyra.echo").unwrap()), job: Box::new(Nothing) }
    }
}
