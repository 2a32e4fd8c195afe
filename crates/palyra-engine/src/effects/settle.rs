//! Settling: from what a call left in its view to what counts of it.
//!
//! Runs on a thread that may wait. The order is what a crash can rely on: the plan is durable, then `effect.intended`
//! is recorded, then the workspace changes, then the outcome is recorded.

use super::about::{ABOUT, About, CHANGES, Waiting, headline};
use super::judge::{Judged, question_about_waiting};
use super::{Effects, effect_problem};
use crate::approvals::request::ApprovalRequest;
use crate::workspaces::WorkspaceEngine;
use palyra_protocol::effect::{MAX_LISTED_CHANGES, digest_of_changes};
use palyra_protocol::{
    ApprovalId, ApprovalSubject, CallRecord, Digest, EffectChange, EffectPath, EffectRecord, EffectState, Facets,
    JournalEvent, Problem, RiskLevel, WaitingEffects,
};
use palyra_workspace::effects::{Applied, EffectError, Fate, Fates, View, ViewStore};
use serde_json::json;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a call's changes came to.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// What is recorded and attested.
    pub(crate) record: Option<EffectRecord>,
    /// What the caller has to know beyond that.
    pub(crate) notes: Vec<String>,
    /// Why nothing counts although it should.
    pub(crate) problem: Option<Problem>,
}

/// Whether what a run changed is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Policy decides.
    AsDecided,
    /// It was a trial, or it was cancelled.
    Discard(&'static str),
}

/// An effect before anything was decided about it.
pub(super) struct Gathered {
    pub(super) changes: Vec<EffectChange>,
    pub(super) guarded: Vec<EffectPath>,
    pub(super) record: EffectRecord,
}

/// Why an effect is not settled.
#[derive(Debug)]
pub(super) enum Unsettled {
    /// Nothing counts.
    Nothing(Problem),
    /// The intent is recorded, and the plan could not be carried out yet.
    Interrupted(EffectError),
}

impl From<EffectError> for Unsettled {
    fn from(error: EffectError) -> Self {
        super::log(&error, "an effect does not count");
        Self::Nothing(effect_problem(&error))
    }
}

impl WorkspaceEngine {
    /// Takes what a run left in its view to its end. Call it on a thread that may wait.
    pub(crate) fn settle_run(&self, call: &Arc<CallRecord>, view: &View, ending: Ending) -> Settled {
        let effects = self.effects();
        let Ok(store) = effects.store() else { return Settled::default() };
        match self.settle_view(store, call, view, ending) {
            Ok(settled) => settled,
            Err(unsettled) => self.unsettled(store, call, view.id(), unsettled),
        }
    }

    fn settle_view(
        &self,
        store: &ViewStore,
        call: &Arc<CallRecord>,
        view: &View,
        ending: Ending,
    ) -> Result<Settled, Unsettled> {
        let effects = self.effects();
        let collected = view.collect(self.workspace(), effects.guard(), effects.config().limits)?;
        if collected.is_empty() {
            let record = collected.record(EffectState::Empty);
            store.discard(view.id())?;
            return Ok(Settled { record: Some(record), ..Settled::default() });
        }
        if let Ending::Discard(why) = ending {
            let record = EffectRecord { reversible: false, ..collected.record(EffectState::Discarded) };
            store.discard(view.id())?;
            return Ok(Settled { record: Some(record), notes: vec![why.to_owned()], problem: None });
        }
        let gathered = Gathered {
            changes: collected.changes().to_vec(),
            guarded: collected.facts().guarded,
            record: collected.record(EffectState::Applied),
        };
        self.settle_changes(store, (call, view.id()), gathered, |fates| collected.stage_as(fates))
    }

    /// Decides about changes, records the intent, carries out what counts, and asks about what waits.
    pub(super) fn settle_changes(
        &self,
        store: &ViewStore,
        (call, view): (&Arc<CallRecord>, &str),
        gathered: Gathered,
        stage: impl FnOnce(Fates) -> Result<Digest, EffectError>,
    ) -> Result<Settled, Unsettled> {
        let Gathered { changes, guarded, mut record } = gathered;
        let runtime = Handle::current();
        // The rules that decide stay until the intent is recorded.
        let rules_stay = runtime.block_on(self.running_policy().stay());
        let judged = self.judge_effect(call, &changes, &guarded);
        if judged.fates == (Fates { guarded: Fate::Drop, rest: Fate::Drop })
            || judged.fates.rest == Fate::Drop && guarded.is_empty()
        {
            store.discard(view)?;
            record = EffectRecord { state: EffectState::Discarded, reversible: false, ..record };
            let notes =
                judged.denied.map(|why| format!("policy denies what the call changed, so nothing counts: {why}"));
            return Ok(Settled { record: Some(record), notes: notes.into_iter().collect(), problem: None });
        }
        note_fates(&mut record, &judged, &guarded);
        let (question, waiting) = question_about_waiting(&changes, &guarded, judged.fates);
        let mut about = self.about(call, &record);
        if !waiting.is_empty() {
            about.waiting = Some(Waiting { approval: ApprovalId::mint(), question });
        }
        store.put(view, CHANGES, &changes)?;
        store.put(view, ABOUT, &about)?;
        let plan_sha256 = stage(judged.fates)?;
        let intended = JournalEvent::EffectIntended {
            call_id: call.call_id.clone(),
            view: view.to_owned(),
            plan_sha256,
            policy_hash: self.policy_hash(),
        };
        runtime.block_on(self.journal().note(&intended)).map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "an effect could not be recorded");
            let hint = "make room where the daemon's state is, then propose the call again";
            Unsettled::Nothing(Problem::new(
                "effect_not_recorded",
                "the intent could not be recorded; nothing counts",
                hint,
            ))
        })?;
        drop(rules_stay);
        let applied = self.effects().apply(store, view, self.workspace()).map_err(Unsettled::Interrupted)?;
        self.settled(store, (call, view), (about, waiting, judged), applied)
    }

    /// Finishes the record of an effect that was carried out, and asks about what waits.
    fn settled(
        &self,
        store: &ViewStore,
        (call, view): (&Arc<CallRecord>, &str),
        (mut about, waiting, judged): (About, Vec<EffectChange>, Judged),
        applied: Applied,
    ) -> Result<Settled, Unsettled> {
        let mut notes = Vec::new();
        note_applied(&mut about.record, &applied);
        if let Some(why) = &judged.denied {
            notes.push(format!("policy denies some of what the call changed, which was dropped: {why}"));
        }
        if !about.record.conflicts.is_empty() {
            notes.push(
                "files changed in the workspace while the call ran; the workspace's version stands, the call's is kept: \
                 see `palyra effects diff`"
                    .to_owned(),
            );
        }
        if about.waiting.is_some() {
            match self.ask_about(store, (call, view), &mut about, (&waiting, &judged)) {
                Ok(note) => notes.push(note),
                // What cannot be asked about is dropped; what counts, counts.
                Err(problem) => {
                    notes.push(format!("{}; what should wait for a person was dropped", problem.message));
                    about.waiting = None;
                    about.record.dropped.append(&mut about.record.waiting);
                    store.drop_withheld(view)?;
                }
            }
        }
        store.put(view, ABOUT, &about)?;
        Ok(Settled { record: Some(about.record), notes, problem: None })
    }

    fn ask_about(
        &self,
        store: &ViewStore,
        (call, view): (&Arc<CallRecord>, &str),
        about: &mut About,
        (waiting, judged): (&[EffectChange], &Judged),
    ) -> Result<String, Problem> {
        let Some(Waiting { approval, .. }) = &about.waiting else { return Err(super::no_store()) };
        let (diff, cut) = self.shown_diff(store, view, waiting);
        let paths: Vec<EffectPath> = about.record.waiting.iter().take(MAX_LISTED_CHANGES).cloned().collect();
        let changes_sha256 = digest_of_changes(waiting);
        let texts: Vec<String> = paths.iter().map(EffectPath::to_text).collect();
        let request = ApprovalRequest {
            subject_id: format!("effects:{}", call.tool),
            tool: call.tool.clone(),
            digest: changes_sha256,
            risk: RiskLevel::High,
            principal: call.origin.principal.clone(),
            proposed_by: call.origin.proposed_by.clone(),
            token: call.origin.token.clone(),
            workspace: Some(self.workspace_record().workspace_id.clone()),
            session: call.origin.session.clone(),
            input: json!({ "call_id": call.call_id, "paths": texts }),
            facets: Facets { paths_written: texts.clone(), ..Facets::default() },
            why: judged.why.clone(),
            people: judged.people,
            patience: Some(self.effects().config().approval_timeout),
            subject: ApprovalSubject::Effects(Box::new(WaitingEffects {
                call_id: call.call_id.clone(),
                paths,
                changes_sha256,
                diff,
                cut,
            })),
        };
        let asked = Handle::current().block_on(self.request_approval_as(approval.clone(), request));
        let asked = asked.map_err(|error| error.problem)?;
        about.record.approval = Some(approval.clone());
        self.follow_waiting(view.to_owned(), asked);
        Ok(format!(
            "{} wait{} for a person: `palyra approvals show {approval}`",
            texts.iter().take(3).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", "),
            if texts.len() == 1 { "s" } else { "" },
        ))
    }

    pub(super) fn about(&self, call: &CallRecord, record: &EffectRecord) -> About {
        About {
            call_id: call.call_id.clone(),
            session: call.origin.session.clone(),
            run: call.origin.run.clone(),
            principal: call.origin.principal.clone(),
            tool: call.tool.clone(),
            what: headline(&call.tool, &call.facets),
            at: self.clock().now(),
            record: record.clone(),
            waiting: None,
            undoes: None,
            held_of: None,
        }
    }

    /// An effect that could not be settled: thrown away, or carried out later.
    pub(super) fn unsettled(&self, store: &ViewStore, call: &CallRecord, view: &str, unsettled: Unsettled) -> Settled {
        match unsettled {
            Unsettled::Nothing(problem) => {
                if let Err(error) = store.discard(view) {
                    super::log(&error, "a view that does not count stays until the next start");
                }
                Settled { problem: Some(problem), ..Settled::default() }
            }
            Unsettled::Interrupted(error) => {
                super::log(&error, "an effect is not carried out yet");
                self.finish_later(view.to_owned(), call.call_id.clone());
                let message = format!("what the call changed is being written and is not complete yet: {error}");
                let hint = "free some space if the disk is full; Palyra goes on by itself, also after a restart";
                Settled { problem: Some(Problem::new("effect_unfinished", message, hint)), ..Settled::default() }
            }
        }
    }
}

impl Effects {
    /// Whether a call whose changes wait may still be asked about.
    pub(super) fn is_waiting(about: &About, approval: &ApprovalId) -> bool {
        about.waiting.as_ref().is_some_and(|waiting| waiting.approval == *approval)
    }
}

/// Enters what policy decided.
fn note_fates(record: &mut EffectRecord, judged: &Judged, guarded: &[EffectPath]) {
    let shown = |paths: &[EffectPath]| paths.iter().take(MAX_LISTED_CHANGES).cloned().collect::<Vec<_>>();
    let rest = |record: &EffectRecord| record.changes.iter().map(|change| change.path.clone()).collect::<Vec<_>>();
    match judged.fates.rest {
        Fate::Apply => {}
        Fate::Wait => record.waiting = rest(record),
        Fate::Drop => record.dropped = rest(record),
    }
    let guarded = shown(guarded);
    let (add_to, other) = match judged.fates.guarded {
        Fate::Apply => return,
        Fate::Wait => (&mut record.waiting, &mut record.dropped),
        Fate::Drop => (&mut record.dropped, &mut record.waiting),
    };
    other.retain(|path| !guarded.iter().any(|guarded| path.is_under(guarded.as_bytes())));
    add_to.retain(|path| !guarded.iter().any(|guarded| path.is_under(guarded.as_bytes())));
    add_to.extend(guarded);
    add_to.sort();
}

/// Enters what was carried out.
pub(super) fn note_applied(record: &mut EffectRecord, applied: &Applied) {
    record.conflicts = applied.conflicts.iter().take(MAX_LISTED_CHANGES).cloned().collect();
    let whole = record.waiting.is_empty() && record.dropped.is_empty() && record.conflicts.is_empty();
    record.state = match (applied.done, whole) {
        (_, true) => EffectState::Applied,
        (0, false) if !record.waiting.is_empty() => EffectState::Waiting,
        (0, false) => EffectState::Discarded,
        (_, false) => EffectState::PartlyApplied,
    };
}
