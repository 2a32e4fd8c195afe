//! Effects: what a call changes is known before it counts, and can be put back.
//!
//! ```text
//! ViewStore::begin ─▶ View         an upper and a work directory for an overlay; the run works there, not in the workspace
//! View::collect    ─▶ Collected    the upper layer as a list of changes, guarded paths marked, conflicts found
//! Collected::stage ─▶ plan.json    every new entry renamed into the store, the plan durable; nothing changed yet
//! ViewStore::apply ─▶ Applied      one rename per change; what was replaced stays in the store
//! ViewStore::undo  ─▶ Applied      the same machinery, with the kept entries as the new ones
//! ```
//!
//! **Crashes.** A plan names each new entry by its device and inode. Whether a step was done can therefore be seen from
//! the workspace itself, and applying a plan twice is the same as applying it once. Until `plan.json` is durable
//! nothing in the workspace has changed; after it is, [`ViewStore::apply`] finishes the work whenever it is called.
//!
//! **Conflicts.** An entry whose change time is later than the view's start was changed by somebody else. The
//! workspace's version stands, the call's version stays in the store, and both are named.
//!
//! **Trust.** The upper layer was written by the run, so everything in it is hostile: modes, links, names, special
//! files. The workspace may change at any moment, so every path is opened beneath the root without following a link.
//!
//! This module must never follow a link, leave the workspace or the store, or remove an entry that it did not keep.

mod apply;
mod collect;
mod diff;
mod error;
mod file_changes;
mod git_settings;
mod guarded;
mod manifests;
mod plan;
mod scan;
mod store;
mod sys;
#[cfg(test)]
mod tests;
mod undo;
mod versions;
mod view_files;

pub use apply::Applied;
pub use collect::{Collected, EffectFacts, Fate, Fates, Guarded, Limits};
pub use diff::{ChangeDiff, MAX_DIFF_BYTES};
pub use error::EffectError;
pub use file_changes::FileChanges;
pub use guarded::{GuardRules, GuardRulesError};
pub use store::{Kept, Retention, View, ViewStage, ViewStore};
pub use undo::{Obstacle, UndoPlan};
pub use view_files::{OpenFlags, ViewEntryKind, ViewFiles, ViewStatus};
