//! The registered workspaces.

use super::{Door, Reply, document, malformed, refused};
use palyra_api::v1::workspaces_server::Workspaces;
use palyra_api::v1::{
    AddWorkspaceRequest, ListWorkspacesReply, ListWorkspacesRequest, RemoveWorkspaceRequest, WorkspaceReply,
};
use std::path::Path;
use tonic::{Request, Response};

#[tonic::async_trait]
impl Workspaces for Door {
    async fn list(&self, request: Request<ListWorkspacesRequest>) -> Reply<ListWorkspacesReply> {
        let peer = self.peer(&request)?;
        let seen = self.engine.workspace_list(&peer).map_err(refused)?;
        let workspaces_json = seen.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListWorkspacesReply { workspaces_json }))
    }

    async fn add(&self, request: Request<AddWorkspaceRequest>) -> Reply<WorkspaceReply> {
        let peer = self.peer(&request)?;
        let directory = Path::new(&request.get_ref().directory);
        if !directory.is_absolute() {
            return Err(malformed("the directory of a workspace is an absolute path"));
        }
        let added = self.engine.workspace_add(&peer, directory).await.map_err(refused)?;
        Ok(Response::new(WorkspaceReply { workspace_json: document(&added)? }))
    }

    async fn remove(&self, request: Request<RemoveWorkspaceRequest>) -> Reply<WorkspaceReply> {
        let peer = self.peer(&request)?;
        let removed = self.engine.workspace_remove(&peer, &request.get_ref().workspace).await.map_err(refused)?;
        Ok(Response::new(WorkspaceReply { workspace_json: document(&removed)? }))
    }
}
