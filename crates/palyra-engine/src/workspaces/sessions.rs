//! A session belongs to the workspace of its first call, for as long as the journal remembers it.
//!
//! Sessions of calls that this process has seen are known at once; others are looked up in the journal. A session that
//! the daemon names itself is new, so nothing is looked up for it.

use crate::error::EngineError;
use crate::workspaces::WorkspaceEngine;
use palyra_protocol::{Origin, Principal, Problem, SessionId, WorkspaceId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// How many sessions are known without asking the journal.
const KNOWN: usize = 4096;

type Session = (Principal, SessionId);

/// The sessions that were used last, each with its workspace.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    workspaces: HashMap<Session, WorkspaceId>,
    oldest: VecDeque<Session>,
}

impl Sessions {
    fn workspace(&self, session: &Session) -> Option<WorkspaceId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).workspaces.get(session).cloned()
    }

    /// Says where a session belongs, unless somebody was faster; gives where it belongs then.
    fn bind(&self, session: Session, workspace: &WorkspaceId) -> WorkspaceId {
        let Known { workspaces, oldest } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = workspaces.get(&session) {
            return bound.clone();
        }
        if oldest.len() >= KNOWN
            && let Some(gone) = oldest.pop_front()
        {
            workspaces.remove(&gone);
        }
        oldest.push_back(session.clone());
        workspaces.insert(session, workspace.clone());
        workspace.clone()
    }
}

impl WorkspaceEngine {
    /// Whether the session of a call belongs to this workspace, or to none yet.
    pub(crate) async fn session_is_here(&self, origin: &Origin) -> Result<Result<(), Problem>, EngineError> {
        let (own, session) =
            (&self.workspace_record().workspace_id, (origin.principal.clone(), origin.session.clone()));
        let bound = match self.sessions().workspace(&session) {
            Some(bound) => bound,
            None => {
                let first = self.journal().workspace_of_session(&session.0, &session.1).await?;
                let first = first.map(|at| at.unwrap_or_else(|root| self.id_of_root(&root)));
                self.sessions().bind(session, first.as_ref().unwrap_or(own))
            }
        };
        if bound == *own {
            return Ok(Ok(()));
        }
        let message = format!("the session `{}` belongs to another workspace", origin.session);
        Ok(Err(Problem::new("session_other_workspace", message, "name another session, or none")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_stays_where_it_was_bound_first() {
        let sessions = Sessions::default();
        let (a, b) = (WorkspaceId::mint(), WorkspaceId::mint());
        let session = || (Principal::local_owner(), SessionId::mint());
        let first = session();
        assert_eq!(sessions.workspace(&first), None);
        assert_eq!(sessions.bind(first.clone(), &a), a);
        assert_eq!(sessions.bind(first.clone(), &b), a, "the first one counts");
        for _ in 0..KNOWN {
            sessions.bind(session(), &b);
        }
        assert_eq!(sessions.workspace(&first), None, "what is known is bounded; the journal knows the rest");
    }
}
