//! Changes that wait for a person: shown as a difference, and carried out or thrown away when the answer is there.

use super::Effects;
use super::about::{ABOUT, About};
use super::settle::{Unsettled, note_applied};
use crate::approvals::request::RequestedApproval;
use crate::workspaces::WorkspaceEngine;
use palyra_protocol::effect::MAX_LISTED_CHANGES;
use palyra_protocol::{
    ApprovalRecord, ApprovalState, CallId, ChangeKind, EffectChange, EffectState, EntryKind, JournalEvent,
};
use palyra_workspace::effects::{Applied, ChangeDiff, ViewStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How much of a difference an approval shows.
const MAX_SHOWN_BYTES: usize = 48 * 1024;
/// Of how many files.
const MAX_SHOWN_FILES: usize = 40;

impl WorkspaceEngine {
    /// Follows an approval about changes to its end, in a task of its own.
    pub(crate) fn follow_waiting(&self, view: String, asked: RequestedApproval) {
        let engine = self.clone();
        tokio::spawn(async move {
            // The daemon ends first: the next start follows it again.
            let Ok(end) = asked.end.await else { return };
            engine.answered_effect(view, end).await;
        });
    }

    /// Carries out an answer.
    pub(super) async fn answered_effect(&self, view: String, approval: Arc<ApprovalRecord>) {
        let engine = self.clone();
        let done = tokio::task::spawn_blocking(move || engine.carry_out_answer(&view, &approval)).await;
        match done {
            Ok(Ok(())) => {}
            Ok(Err(Unsettled::Nothing(problem))) => {
                tracing::warn!(problem = problem.message, "changes that waited are carried out at the next start");
            }
            Ok(Err(Unsettled::Interrupted(error))) => super::log(&error, "changes that waited are not complete yet"),
            Err(panic) => tracing::error!(%panic, "carrying out an answer panicked"),
        }
    }

    fn carry_out_answer(&self, view: &str, approval: &ApprovalRecord) -> Result<(), Unsettled> {
        let Ok(store) = self.effects().store() else { return Ok(()) };
        let Some(about) = store.get::<About>(view, ABOUT)? else { return Ok(()) };
        if !Effects::is_waiting(&about, &approval.approval_id) {
            return Ok(());
        }
        let reason = match approval.state {
            ApprovalState::Pending => return Ok(()),
            ApprovalState::Allowed if self.in_place().is_err() => "another directory is in the workspace's place",
            ApprovalState::Allowed if self.still_allowed(&about, approval) => {
                return self.release(store, view, about, approval);
            }
            ApprovalState::Allowed => "the rules changed, and deny it now",
            ApprovalState::Denied => "a person denied it",
            ApprovalState::Expired => "no person answered in time",
            ApprovalState::Cancelled => "it was withdrawn",
        };
        self.drop_waiting(store, view, about, reason)
    }

    /// Asked anew: the rules may be others than those that asked.
    fn still_allowed(&self, about: &About, approval: &ApprovalRecord) -> bool {
        let Some(waiting) = &about.waiting else { return false };
        let call = Handle::current().block_on(self.journal().call(&about.call_id));
        let record = call.ok().and_then(|view| view.record);
        record.is_some_and(|call| self.allows_approved_effect(&call, &waiting.question, approval.people.max(1)))
    }

    fn release(
        &self,
        store: &ViewStore,
        view: &str,
        mut about: About,
        approval: &ApprovalRecord,
    ) -> Result<(), Unsettled> {
        let held = format!("{view}.held");
        let plan_sha256 = store.stage_withheld(view, &held, self.workspace())?;
        let released = About { waiting: None, held_of: Some(view.to_owned()), at: self.clock().now(), ..about.clone() };
        store.put(&held, ABOUT, &released)?;
        let intended = JournalEvent::EffectIntended {
            call_id: about.call_id.clone(),
            view: held.clone(),
            plan_sha256,
            policy_hash: self.policy_hash(),
        };
        self.note_or_retry(&intended)?;
        let applied = self.effects().apply(store, &held, self.workspace()).map_err(|error| {
            self.finish_later(held.clone(), about.call_id.clone());
            Unsettled::Interrupted(error)
        })?;
        let (done, conflicts) = (applied.done as u64, applied.conflicts.clone());
        about.waiting = None;
        about.record.waiting.clear();
        let earlier = about.record.conflicts.clone();
        note_applied(&mut about.record, &Applied { conflicts: [earlier, conflicts.clone()].concat(), ..applied });
        store.put(view, ABOUT, &about)?;
        self.note_or_retry(&JournalEvent::EffectSettled {
            call_id: about.call_id,
            view: held,
            state: if conflicts.is_empty() { EffectState::Applied } else { EffectState::PartlyApplied },
            done,
            conflicts: conflicts.into_iter().take(MAX_LISTED_CHANGES).collect(),
            reason: "a person approved it".to_owned(),
            approval: Some(approval.approval_id.clone()),
        })
    }

    pub(super) fn drop_waiting(
        &self,
        store: &ViewStore,
        view: &str,
        mut about: About,
        reason: &str,
    ) -> Result<(), Unsettled> {
        let approval = about.waiting.take().map(|waiting| waiting.approval);
        store.drop_withheld(view)?;
        let mut waited = std::mem::take(&mut about.record.waiting);
        about.record.dropped.append(&mut waited);
        if about.record.state == EffectState::Waiting {
            about.record.state = EffectState::Discarded;
        }
        store.put(view, ABOUT, &about)?;
        self.note_or_retry(&JournalEvent::EffectSettled {
            call_id: about.call_id,
            view: view.to_owned(),
            state: EffectState::Discarded,
            done: 0,
            conflicts: Vec::new(),
            reason: reason.to_owned(),
            approval,
        })
    }

    /// Records an event from a thread that may wait.
    pub(super) fn note_or_retry(&self, event: &JournalEvent) -> Result<(), Unsettled> {
        let noted = Handle::current().block_on(self.journal().note(event));
        noted.map(drop).map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "what became of an effect is not recorded");
            Unsettled::Nothing(palyra_protocol::Problem::plain("effect_not_recorded", "it could not be recorded"))
        })
    }

    /// Goes on with a plan that could not be carried out, until it is or the daemon ends; then the next start does.
    pub(super) fn finish_later(&self, view: String, call_id: CallId) {
        let engine = self.clone();
        tokio::spawn(async move {
            let mut pause = Duration::from_millis(200);
            loop {
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(30)),
                    () = engine.closing().cancelled() => return,
                }
                let (again, view, call_id) = (engine.clone(), view.clone(), call_id.clone());
                let done = tokio::task::spawn_blocking(move || again.finish_planned(&view, &call_id)).await;
                match done {
                    Ok(Ok(())) => return,
                    Ok(Err(Unsettled::Interrupted(error))) => super::log(&error, "an effect is not carried out yet"),
                    Ok(Err(Unsettled::Nothing(problem))) => {
                        tracing::warn!(problem = problem.message, "an effect is not recorded yet");
                    }
                    Err(panic) => return tracing::error!(%panic, "carrying out an effect panicked"),
                }
            }
        });
    }

    /// The difference that a person is shown, and whether more changed than it shows.
    pub(super) fn shown_diff(&self, store: &ViewStore, view: &str, changes: &[EffectChange]) -> (String, bool) {
        let mut text = String::new();
        let mut files = changes.iter().filter(|change| change.entry != EntryKind::Directory);
        for change in files.by_ref().take(MAX_SHOWN_FILES) {
            let part = self.diff_of(store, view, change);
            if text.len() + part.len() > MAX_SHOWN_BYTES {
                let mut end = MAX_SHOWN_BYTES.saturating_sub(text.len());
                while !part.is_char_boundary(end) {
                    end -= 1;
                }
                text.push_str(&part[..end]);
                return (text, true);
            }
            text.push_str(&part);
        }
        let more = files.next().is_some();
        (text, more)
    }

    /// One change as text: the difference of a text file, a line about everything else. No value of a secret that was
    /// released is in it, whatever a program has written into the file.
    pub(super) fn diff_of(&self, store: &ViewStore, view: &str, change: &EffectChange) -> String {
        self.released().clean(self.diff_as_written(store, view, change))
    }

    fn diff_as_written(&self, store: &ViewStore, view: &str, change: &EffectChange) -> String {
        let path = change.path.to_text();
        let mode = change.mode.map(|mode| format!(", mode {mode:o}")).unwrap_or_default();
        match (change.entry, change.kind) {
            (EntryKind::Link, ChangeKind::Deleted) => format!("link {path} is removed\n"),
            (EntryKind::Link, _) => {
                format!("link {path} → {}\n", change.target.as_deref().unwrap_or("somewhere"))
            }
            (EntryKind::Directory | EntryKind::Special, _) => String::new(),
            (EntryKind::File, ChangeKind::Mode) => format!("file {path}{mode}\n"),
            (EntryKind::File, ChangeKind::Touched) => format!("file {path}: only its time\n"),
            (EntryKind::File, ChangeKind::Renamed) => {
                let from = change.from.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("file {from} → {path}\n")
            }
            (EntryKind::File, ChangeKind::Added | ChangeKind::Changed | ChangeKind::Deleted) => {
                match store.diff(view, &change.path, self.workspace()) {
                    Ok(ChangeDiff::Text(diff)) if change.kind == ChangeKind::Added => {
                        format!("new file {path}{mode}\n{diff}")
                    }
                    Ok(ChangeDiff::Text(diff)) => diff,
                    Ok(ChangeDiff::Opaque { old, new }) => {
                        let size =
                            |size: Option<u64>| size.map_or("nothing".to_owned(), |size| format!("{size} bytes"));
                        format!("file {path}: {} → {}, not text{mode}\n", size(old), size(new))
                    }
                    Err(error) => {
                        super::log(&error, "a difference cannot be shown");
                        format!("file {path}: its difference cannot be shown\n")
                    }
                }
            }
        }
    }
}
