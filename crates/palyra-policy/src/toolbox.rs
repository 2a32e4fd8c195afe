//! What the room of rules cannot know by itself: which tools there are, and what a call of one comes to.
//!
//! The daemon hands this in when it loads rules. Without it rules are read all the same, names of tools are taken as
//! they are, and a case that is a call is refused.

use palyra_protocol::{Facets, ToolMetadata};
use serde_json::Value;
use std::fmt::Debug;

/// The tools of a daemon.
pub trait Toolbox: Debug + Send + Sync {
    /// The names of all of them.
    fn names(&self) -> Vec<String>;

    /// What a call would be decided by: resolved as the daemon resolves it, in an empty workspace, as if the
    /// configuration allowed every program and host. So a case's answer is the rules' alone, and nothing that an agent
    /// wrote changes it.
    ///
    /// # Errors
    /// It is no call, or is refused before any rule is asked; in words for whoever wrote the case.
    fn rehearse(&self, tool: &str, input: &Value) -> Result<RehearsedCall, String>;
}

/// What a call would be decided by.
#[derive(Debug, Clone)]
pub struct RehearsedCall {
    /// The tool's own name, which may differ from the one it was called by.
    pub tool: String,
    /// What the tool can do.
    pub metadata: ToolMetadata,
    /// What the call would touch.
    pub facets: Facets,
}
