//! How a caller names its workspace, and whether it is the caller's.
//!
//! Whoever runs the daemon may work in each: on the socket the client says which directory it was started in, or names
//! one. A token opens exactly one workspace, and a caller with a token that stands in another is refused. A device says
//! which one it means.

use super::refused;
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::workspaces::{WorkspaceEngine, not_registered};
use palyra_protocol::access::WorkspaceRecord;
use palyra_protocol::{PrincipalKind, Problem, WorkspaceId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest name of a workspace: a path.
const MAX_NAME: usize = 4096;

/// What a caller says of its workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceNaming {
    name: Option<String>,
    directory: Option<PathBuf>,
}

impl WorkspaceNaming {
    /// From what a request says: the workspace by its id or path, and the directory that the caller works in.
    ///
    /// # Errors
    /// One of them is neither an id nor an absolute path, or too long.
    pub fn parse(name: Option<&str>, directory: Option<&str>) -> Result<Self, EngineError> {
        let malformed = |what: &str| {
            let message = format!("the {what} of a request is an absolute path without `..`, or an id like `ws_…`");
            EngineError::invalid("workspace_malformed", message, "name it like `--workspace /srv/project`")
        };
        let path = |text: &str| {
            let path = Path::new(text);
            let plain = path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir);
            (plain && text.len() <= MAX_NAME && !text.contains('\0')).then(|| path.to_owned())
        };
        let name = match name {
            Some(id) if id.parse::<WorkspaceId>().is_ok() => Some(id.to_owned()),
            Some(text) => Some(path(text).ok_or_else(|| malformed("workspace"))?.to_string_lossy().into_owned()),
            None => None,
        };
        let directory = directory.map(|text| path(text).ok_or_else(|| malformed("directory"))).transpose()?;
        Ok(Self { name, directory })
    }
}

/// The workspace of a peer.
#[derive(Debug, Clone, Default)]
pub(crate) enum PeerWorkspace {
    /// None was named. The daemon's own user sees what is the same in all, and works in none.
    #[default]
    Unnamed,
    /// The directory that the caller works in lies in none.
    Outside(PathBuf),
    /// This one.
    In(Arc<WorkspaceRecord>),
    /// The one that the engine was made with.
    #[cfg(test)]
    Home,
}

impl Engine {
    /// The same peer in the workspace that it names. A peer whose token opens another is refused, also where only its
    /// directory lies elsewhere: a client that was connected in one project must not work in it from another.
    ///
    /// # Errors
    /// What it names is not registered, or not the peer's.
    pub fn in_named_workspace(
        &self,
        peer: VerifiedPeer,
        naming: &WorkspaceNaming,
    ) -> Result<VerifiedPeer, EngineError> {
        let by_name = naming.name.as_deref().map(|name| self.registered_as(name)).transpose()?;
        let around = naming.directory.as_deref().and_then(|directory| self.workspaces().around(directory));
        if let Some(own) = peer.workspace() {
            let other = [&by_name, &around].into_iter().flatten().find(|named| named.workspace_id != own.workspace_id);
            return other.map_or(Ok(()), |other| Err(elsewhere(own, other))).map(|()| peer);
        }
        let workspace = match (by_name.or(around), &naming.directory) {
            (Some(record), _) => PeerWorkspace::In(record),
            (None, Some(directory)) => PeerWorkspace::Outside(directory.clone()),
            (None, None) => PeerWorkspace::Unnamed,
        };
        Ok(peer.within(workspace))
    }

    /// The same for an agent's client: what it was connected with and where it was started must not contradict.
    ///
    /// # Errors
    /// They do, or what it names is not registered or not the peer's.
    pub fn in_workspace_of_client(
        &self,
        peer: VerifiedPeer,
        naming: &WorkspaceNaming,
    ) -> Result<VerifiedPeer, EngineError> {
        let around = naming.directory.as_deref().and_then(|directory| self.workspaces().around(directory));
        let peer = self.in_named_workspace(peer, naming)?;
        match (peer.workspace(), around) {
            (Some(own), Some(around)) if own.workspace_id != around.workspace_id => Err(elsewhere(own, &around)),
            (Some(_), _) => Ok(peer),
            (None, _) => Err(refused(unnamed(&peer))),
        }
    }

    /// The same peer kept to the workspace of the agent's client that its process descends from, as far as the host shows
    /// that: what the client starts has the daemon's user, and would else name any workspace.
    ///
    /// # Errors
    /// It names another.
    pub fn kept_to_client(&self, peer: VerifiedPeer, pid: Option<u32>) -> Result<VerifiedPeer, EngineError> {
        let bound = pid.filter(|_| peer.is_socket_owner()).and_then(|pid| self.client_processes().workspace_of(pid));
        let Some(bound) = bound.and_then(|id| self.workspaces().record(&id)) else { return Ok(peer) };
        match peer.workspace() {
            Some(own) if own.workspace_id != bound.workspace_id => Err(elsewhere(&bound, own)),
            Some(_) => Ok(peer),
            None => Ok(peer.within(PeerWorkspace::In(bound))),
        }
    }

    /// The workspace that a device means: the one it names, or the only one.
    ///
    /// # Errors
    /// It names none and there are several, or what it names is not registered.
    pub(crate) fn workspace_of_device(&self, naming: &WorkspaceNaming) -> Result<Arc<WorkspaceRecord>, EngineError> {
        match naming.name.as_deref() {
            Some(name) => self.registered_as(name),
            None => self.workspaces().only().ok_or_else(|| {
                let message = "several workspaces are registered here, and the device names none of them";
                let hint = "say which one: `palyra --workspace DIR …`, or the header `palyra-workspace`";
                refused(Problem::new("workspace_unnamed", message, hint))
            }),
        }
    }

    fn registered_as(&self, name: &str) -> Result<Arc<WorkspaceRecord>, EngineError> {
        self.workspaces().named(name).ok_or_else(|| refused(not_registered(name)))
    }

    /// The engine in the workspace that a peer names.
    ///
    /// # Errors
    /// It names none, or it is not open.
    pub(crate) fn in_workspace_of(&self, peer: &VerifiedPeer) -> Result<WorkspaceEngine, EngineError> {
        self.working_place(peer).map_err(refused)
    }

    /// The same for what becomes a refused call.
    pub(crate) fn working_place(&self, peer: &VerifiedPeer) -> Result<WorkspaceEngine, Problem> {
        match peer.workspace_named() {
            PeerWorkspace::In(record) => self.in_workspace(&record.workspace_id),
            #[cfg(test)]
            PeerWorkspace::Home => self.in_workspace(&self.access().home().workspace_id),
            PeerWorkspace::Unnamed | PeerWorkspace::Outside(_) => Err(unnamed(peer)),
        }
    }

    /// The id of the workspace that a peer names.
    pub(crate) fn workspace_id_of(&self, peer: &VerifiedPeer) -> Option<WorkspaceId> {
        match peer.workspace_named() {
            PeerWorkspace::In(record) => Some(record.workspace_id.clone()),
            #[cfg(test)]
            PeerWorkspace::Home => Some(self.access().home().workspace_id.clone()),
            PeerWorkspace::Unnamed | PeerWorkspace::Outside(_) => None,
        }
    }

    /// The path of the workspace that a peer names, as rules know it.
    pub(crate) fn root_of(&self, peer: &VerifiedPeer) -> Option<String> {
        match peer.workspace_named() {
            PeerWorkspace::In(record) => Some(record.root.clone()),
            #[cfg(test)]
            PeerWorkspace::Home => Some(self.access().home().root.clone()),
            PeerWorkspace::Unnamed | PeerWorkspace::Outside(_) => None,
        }
    }

    /// Whether a peer may know of something that belongs to a workspace: a peer that names one knows of nothing in
    /// another, and an agent that names none knows of nothing.
    pub(crate) fn is_here(&self, peer: &VerifiedPeer, workspace: Option<&WorkspaceId>) -> bool {
        match self.workspace_id_of(peer) {
            Some(own) => workspace.is_some_and(|other| *other == own),
            None => peer.effective().kind() == PrincipalKind::User,
        }
    }
}

fn unnamed(peer: &VerifiedPeer) -> Problem {
    match peer.workspace_named() {
        PeerWorkspace::Outside(directory) => {
            let at = directory.display();
            let hint = format!(
                "register it: `palyra workspaces add {at}`; or name one that is: `palyra --workspace DIR …` \
                 (`palyra workspaces list` shows them)"
            );
            Problem::new("workspace_not_registered", format!("`{at}` lies in no registered workspace"), hint)
        }
        _ => Problem::new(
            "workspace_unnamed",
            "this needs a workspace, and none was named",
            "say which one: `palyra --workspace DIR …`; `palyra workspaces list` shows them",
        ),
    }
}

fn elsewhere(own: &WorkspaceRecord, other: &WorkspaceRecord) -> EngineError {
    let message = format!("this client was connected for `{}`, and works in `{}` now", own.root, other.root);
    let hint = "connect it there too: `palyra connect` in that directory; it never works in another workspace";
    EngineError::new(ErrorKind::Forbidden, Problem::new("token_other_workspace", message, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_named_by_an_id_or_an_absolute_path() {
        let id = WorkspaceId::mint().to_string();
        for good in ["/", "/srv/project", "/srv/иван", id.as_str()] {
            assert!(WorkspaceNaming::parse(Some(good), None).is_ok(), "{good}");
        }
        let long = format!("/{}", "x".repeat(MAX_NAME));
        for bad in ["", "project", "../x", "/a/../b", "/a\0b", "ws_", long.as_str()] {
            let refused = WorkspaceNaming::parse(Some(bad), None).unwrap_err();
            assert_eq!(refused.problem.code, "workspace_malformed", "{bad}");
            assert!(WorkspaceNaming::parse(None, Some(bad)).is_err(), "{bad}");
        }
        assert!(WorkspaceNaming::parse(None, Some(id.as_str())).is_err(), "a directory is no id");
    }
}
