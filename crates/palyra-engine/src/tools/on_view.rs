//! A program on a view of the workspace: which view, how much it may write there, and what becomes of that.

use super::input::Input;
use super::process_run::{Terms, refused, told};
use super::{quota, secret_files};
use crate::effects::{Ending, SessionView, Settled, effect_problem};
use crate::engine::Engine;
use crate::flow::execute::Executed;
use palyra_protocol::{CallRecord, Problem};
use palyra_sandbox::{CancelHandle, LimitHit, ProcessOutcome, SandboxError, WorkspaceView};
use palyra_workspace::effects::View;
use serde_json::json;
use std::sync::Arc;

/// Which view a program works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewUse {
    /// One of its own.
    Call,
    /// Its session's, which stays open.
    Session,
    /// Its session's, whose changes then count.
    SessionEnd,
}

impl ViewUse {
    pub(super) fn of(input: Input<'_>) -> Self {
        match input.optional("/view") {
            Some("session") => Self::Session,
            Some("session_end") => Self::SessionEnd,
            _ => Self::Call,
        }
    }
}

/// Runs a program on a view of the workspace and settles what it changed there.
pub(super) fn on_view(
    (engine, call): (&Engine, &Arc<CallRecord>),
    (which, discard): (ViewUse, bool),
    terms: &Terms,
    handle: &CancelHandle,
    run: impl FnOnce(WorkspaceView) -> Result<ProcessOutcome, SandboxError>,
) -> Executed {
    let place = match Workplace::find(engine, call, which) {
        Ok(place) => place,
        Err(problem) => return Executed::not_run(problem),
    };
    let view = place.view();
    let layers = WorkspaceView { upper: view.upper(), work: view.work() };
    let limits = engine.effects().config().limits;
    let (ran, beyond) = quota::watched(view, limits, handle, || run(layers));
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(error) => {
            place.did_not_run(engine, call);
            return refused(&error);
        }
    };
    let withheld = secret_files::note(&terms.withheld, &[&outcome.stdout.bytes, &outcome.stderr.bytes]);
    let notes = [moved_directory(&outcome), withheld];
    let over_quota = beyond.is_some();
    let mut settled = match (beyond, &place) {
        (Some(error), Workplace::Call(view)) => {
            engine.settle_run(call, view, Ending::Discard("it wrote more than it may, so nothing of it counts"));
            Settled { problem: Some(effect_problem(&error)), ..Settled::default() }
        }
        (Some(error), Workplace::Session(..)) => {
            Settled { problem: Some(effect_problem(&error)), ..Settled::default() }
        }
        (None, place) => place.settle(engine, call, (&outcome, discard)),
    };
    settled.notes.extend(notes.into_iter().flatten());
    let mut told = told(outcome, terms).with_effect(settled);
    quota::report(&mut told.enforcement, limits);
    if over_quota {
        told.output["ended_by"] = json!("workspace_quota");
    }
    told
}

/// The view that a call works on.
enum Workplace<'e> {
    Call(View),
    Session(SessionView<'e>, ViewUse),
}

impl<'e> Workplace<'e> {
    fn find(engine: &'e Engine, call: &CallRecord, which: ViewUse) -> Result<Self, Problem> {
        if which != ViewUse::Call {
            return Ok(Self::Session(engine.session_view(call)?, which));
        }
        let view = engine.effects().begin(&call.call_id, engine.workspace());
        view.map(Self::Call).map_err(|error| effect_problem(&error))
    }

    fn view(&self) -> &View {
        match self {
            Self::Call(view) => view,
            Self::Session(open, _) => &open.view,
        }
    }

    /// Nothing ran, so nothing was changed.
    fn did_not_run(&self, engine: &Engine, call: &Arc<CallRecord>) {
        if let Self::Call(view) = self {
            engine.settle_run(call, view, Ending::Discard("it did not run"));
        }
    }

    fn settle(&self, engine: &Engine, call: &Arc<CallRecord>, (outcome, discard): (&ProcessOutcome, bool)) -> Settled {
        let cancelled = outcome.ended_by == Some(LimitHit::Cancelled);
        match self {
            // What was cancelled ends nothing: what the session did before is kept.
            Self::Session(open, ViewUse::SessionEnd) if !cancelled => engine.settle_session(call, open),
            Self::Session(open, _) => engine.sum_up(call, open),
            Self::Call(view) => {
                let ending = match (discard, cancelled) {
                    (true, _) => Ending::Discard("it was a trial: nothing of what it changed counts"),
                    (false, true) => Ending::Discard("it was cancelled: nothing of what it changed counts"),
                    (false, false) => Ending::AsDecided,
                };
                engine.settle_run(call, view, ending)
            }
        }
    }
}

/// What to say about a program that could not move a directory: views cannot do that, and programs do not know of
/// views.
fn moved_directory(outcome: &ProcessOutcome) -> Option<String> {
    let said = [&outcome.stderr.bytes, &outcome.stdout.bytes].map(|bytes| String::from_utf8_lossy(bytes));
    let crossed = said.iter().any(|text| text.contains("Invalid cross-device link") || text.contains("EXDEV"));
    crossed.then(|| {
        "Palyra is the cause of `Invalid cross-device link`: on a view, rename(2) cannot move a directory that was there \
         before. `mv` copes with it; otherwise run the program with `\"workspace\": \"live\"`"
            .to_owned()
    })
}
