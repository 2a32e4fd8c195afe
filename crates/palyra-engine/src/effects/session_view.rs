//! Views that a session keeps over several calls, so that an agent's steps build on each other before anything counts.
//!
//! ```text
//! "view": "session"      ─▶ the call works on the session's view; its outcome tells the sum, and nothing counts
//! "view": "session_end"  ─▶ the same, and then all of it is decided about and counts like the effect of one call
//! palyra undo SESSION    ─▶ the view is thrown away
//! ```
//!
//! One call at a time works on such a view: two overlays over one upper layer are undefined. A view belongs to the
//! principal and session of its calls. It outlives the daemon, and not the host: what a run wrote is synced only when it
//! is taken over.

use super::about::{ABOUT, About, CHANGES};
use super::settle::{Ending, Settled};
use super::{Effects, effect_problem};
use crate::engine::Engine;
use palyra_protocol::{CallRecord, EffectState, Principal, Problem, SessionId};
use palyra_workspace::effects::{EffectError, View, ViewStage, ViewStore};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// When the host was started, beside a view: what it holds is good until the next start.
const BOOT: &str = "boot.json";

type Whose = (Principal, SessionId);

/// The views that are open, by whose they are.
#[derive(Debug, Default)]
pub(super) struct SessionViews(Mutex<HashMap<Whose, OpenView>>);

#[derive(Debug)]
struct OpenView {
    id: String,
    busy: bool,
}

impl SessionViews {
    fn all(&self) -> MutexGuard<'_, HashMap<Whose, OpenView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the view for a call; nothing if there is none, which the caller then makes.
    fn take(&self, whose: &Whose, fresh: &str) -> Result<Option<String>, Problem> {
        let mut all = self.all();
        match all.get_mut(whose) {
            Some(open) if open.busy => Err(Problem::new(
                "view_busy",
                "another call of the session works on its view",
                "propose the call again when that one has ended",
            )),
            Some(open) => {
                open.busy = true;
                Ok(Some(open.id.clone()))
            }
            None => {
                all.insert(whose.clone(), OpenView { id: fresh.to_owned(), busy: true });
                Ok(None)
            }
        }
    }

    /// Removes a view of this id that no call works on. False: one does.
    pub(super) fn close(&self, id: &str) -> bool {
        let mut all = self.all();
        let busy = all.values().any(|open| open.id == id && open.busy);
        if !busy {
            all.retain(|_, open| open.id != id);
        }
        !busy
    }
}

/// The view of a session, while one call works on it.
#[derive(Debug)]
pub(crate) struct SessionView<'e> {
    views: &'e SessionViews,
    whose: Whose,
    pub(crate) view: View,
}

impl SessionView<'_> {
    /// The view is no longer open: its changes count, wait or were thrown away.
    fn ended(&self) {
        self.views.all().remove(&self.whose);
    }
}

impl Drop for SessionView<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.views.all().get_mut(&self.whose) {
            open.busy = false;
        }
    }
}

impl Engine {
    /// Opens the view of a call's session, or makes it.
    pub(crate) fn session_view(&self, call: &CallRecord) -> Result<SessionView<'_>, Problem> {
        let effects = self.effects();
        let store = effects.store().map_err(Clone::clone)?;
        let whose = (call.origin.principal.clone(), call.origin.session.clone());
        let fresh = format!("session_{}", call.call_id.body());
        let opened = match effects.sessions.take(&whose, &fresh)? {
            Some(id) => effects.resume(store, &id, self.workspace()),
            None => effects.begin_session(store, &fresh, self.workspace()),
        };
        match opened {
            Ok(view) => Ok(SessionView { views: &effects.sessions, whose, view }),
            Err(error) => {
                effects.sessions.all().remove(&whose);
                Err(effect_problem(&error))
            }
        }
    }

    /// Tells what a session's view holds when one more call has worked on it. Nothing of it counts.
    pub(crate) fn sum_up(&self, call: &CallRecord, open: &SessionView<'_>) -> Settled {
        let effects = self.effects();
        let Ok(store) = effects.store() else { return Settled::default() };
        let summed = open.view.sum(self.workspace(), &effects.guard(), effects.config().limits).and_then(|sum| {
            store.put(open.view.id(), CHANGES, &sum.changes)?;
            store.put(open.view.id(), ABOUT, &self.about(call, &sum.record))?;
            Ok(sum.record)
        });
        match summed {
            Ok(record) => {
                let note = "nothing of it counts yet: a call with `\"view\": \"session_end\"` makes what the session's view \
                            holds count";
                Settled { record: Some(record), notes: vec![note.to_owned()], problem: None }
            }
            Err(error) => {
                super::log(&error, "the view of a session cannot be told");
                Settled { problem: Some(effect_problem(&error)), ..Settled::default() }
            }
        }
    }

    /// Takes what a session's calls changed to its end. More than a call may change stays in the view.
    pub(crate) fn settle_session(&self, call: &Arc<CallRecord>, open: &SessionView<'_>) -> Settled {
        let summed = self.sum_up(call, open);
        if summed.problem.is_some() {
            return summed;
        }
        let settled = self.settle_run(call, &open.view, Ending::AsDecided);
        let stage = self.effects().store().map(|store| store.stage_of(open.view.id()));
        if !matches!(stage, Ok(Ok(ViewStage::Open))) {
            open.ended();
        }
        settled
    }

    /// Throws the view of a session away, unless a call works on it.
    pub(super) fn discard_session(&self, store: &ViewStore, view: &str) -> Result<(), EffectError> {
        if self.effects().sessions.close(view) {
            store.discard(view)
        } else {
            Err(EffectError::InUse { id: view.to_owned() })
        }
    }

    /// Keeps a view that was open when the daemon ended, if the host has not been started since. False: it is no such view.
    pub(super) fn reopen_session(&self, store: &ViewStore, view: &str) -> Result<bool, EffectError> {
        let Some(about) = store.get::<About>(view, ABOUT)?.filter(About::is_open) else { return Ok(false) };
        let same = store.get::<String>(view, BOOT)?.is_some_and(|boot| boot_id().is_some_and(|now| now == boot));
        if same {
            let open = OpenView { id: view.to_owned(), busy: false };
            self.effects().sessions.all().insert((about.principal, about.session), open);
        }
        Ok(same)
    }
}

impl About {
    /// Whether it is about the view of a session that is open.
    pub(super) fn is_open(&self) -> bool {
        self.record.state == EffectState::Open
    }
}

impl Effects {
    fn begin_session(
        &self,
        store: &ViewStore,
        id: &str,
        workspace: &palyra_workspace::Workspace,
    ) -> Result<View, EffectError> {
        let view = self.begin_as(store, id, workspace)?;
        if let Some(boot) = boot_id() {
            store.put(id, BOOT, &boot)?;
        }
        Ok(view)
    }
}

/// What tells one start of the host from another; nothing where the host does not say.
fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}
