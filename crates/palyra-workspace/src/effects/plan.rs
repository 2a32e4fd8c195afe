//! The plan of an effect: what will be done to the workspace, durable before anything is.

use super::sys::FileId;
use palyra_protocol::{Digest, EffectPath};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What a step does. New entries wait in the store as `kept/N`, and what they replace takes that place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// `kept/N` → path, which must be free.
    Add,
    /// `kept/N` ⇄ path.
    Exchange,
    /// path → `kept/N`.
    Remove,
    /// Other permissions for a file or directory that stays.
    SetMode {
        /// The new ones.
        mode: u32,
        /// Those that were.
        was: u32,
    },
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// The step's number, and the name of its entry in `kept`.
    pub(super) number: u32,
    pub(super) path: EffectPath,
    pub(super) action: Action,
    /// The entry that comes into the workspace.
    pub(super) staged: Option<FileId>,
    /// The entry that is there, and leaves.
    pub(super) before: Option<FileId>,
    /// The step of another view whose kept entry comes into the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<(String, u32)>,
}

/// A directory whose modification time is put back when everything is done: an undo leaves no trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DirectoryTime {
    /// The directory; nothing for the root.
    pub(super) path: Option<EffectPath>,
    pub(super) modified: (i64, i64),
}

/// Everything that is to be done, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The format of this document.
    pub(super) version: u32,
    pub(super) steps: Vec<Step>,
    /// Guarded entries that wait for consent, staged as `kept/N` like the others. They are no part of this plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) withheld: Vec<Step>,
    /// Entries that changed in the workspace while the call ran: the call's version stays in `kept`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) conflicts: Vec<Step>,
    /// The times of the directories whose entries change, as they were.
    pub(super) times: Vec<DirectoryTime>,
    /// Whether those times are to be set when the plan is done.
    pub(super) restore_times: bool,
    /// The view that this plan undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undoes: Option<String>,
}

/// The format that is written.
pub(super) const PLAN_VERSION: u32 = 1;

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepEnd {
    /// It is done.
    Done,
    /// It is done, and what was replaced is not kept.
    Unkept,
    /// Somebody changed the entry meanwhile; the new version stays in `kept`.
    Conflict,
}

/// What became of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Result {
    /// How each step ended, by its number.
    pub(super) ends: Vec<(u32, StepEnd)>,
    /// Bytes that are kept.
    pub(super) kept_bytes: u64,
    /// When it was done, in milliseconds since 1970.
    pub(super) done_at_ms: u64,
    /// The view that undid it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undone_by: Option<String>,
}

impl Result {
    /// The steps that are done.
    pub(super) fn done(&self) -> HashSet<u32> {
        let mut done = self.numbers(StepEnd::Done);
        done.extend(self.numbers(StepEnd::Unkept));
        done
    }

    /// The steps that ended so.
    pub(super) fn numbers(&self, end: StepEnd) -> HashSet<u32> {
        self.ends.iter().filter(|(_, ended)| *ended == end).map(|(number, _)| *number).collect()
    }
}

impl Plan {
    /// The digest under which the intent to carry out this plan is recorded.
    pub(super) fn digest(bytes: &[u8]) -> Digest {
        Digest::of(bytes)
    }
}
