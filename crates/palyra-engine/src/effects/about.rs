//! What the store knows of a view besides its plan: whose it is, what it changes, what it waits for.

use palyra_policy::EffectUse;
use palyra_protocol::{ApprovalId, CallId, EffectRecord, Facets, Principal, RunId, SessionId, Timestamp, ToolName};
use serde::{Deserialize, Serialize};

/// The document's name beside a view.
pub(super) const ABOUT: &str = "about.json";
/// Every change of a view, by path.
pub(super) const CHANGES: &str = "changes.json";

/// A view, as the daemon knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    /// The call whose effect it is; for an undo, the call that was undone.
    pub(super) call_id: CallId,
    pub(super) session: SessionId,
    pub(super) run: RunId,
    /// In whose name the call was made, or who undid it.
    pub(super) principal: Principal,
    pub(super) tool: ToolName,
    /// The command, or the paths, on one line.
    pub(super) what: String,
    pub(super) at: Timestamp,
    pub(super) record: EffectRecord,
    /// The approval that its withheld changes wait for, and what policy was asked about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<Waiting>,
    /// The view that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undoes: Option<String>,
    /// The view whose withheld changes this one holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held_of: Option<String>,
}

/// Changes that wait for a person.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) approval: ApprovalId,
    pub(super) question: EffectQuestion,
}

/// What policy is asked about an effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EffectQuestion {
    pub(super) paths_written: Vec<String>,
    pub(super) effect: EffectUse,
}

/// The command, or what else says in one line what a call is.
pub(super) fn headline(tool: &ToolName, facets: &Facets) -> String {
    const MOST: usize = 200;
    let line = facets.command_line().unwrap_or_else(|| match facets.paths_written.as_slice() {
        [] => tool.to_string(),
        [path] => path.clone(),
        [path, rest @ ..] => format!("{path} and {} more", rest.len()),
    });
    line.chars().take(MOST).collect()
}
