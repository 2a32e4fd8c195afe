//! The memory's service.

use super::{Door, Reply, document, optional, parsed, refused};
use palyra_api::v1::memory_server::Memory;
use palyra_api::v1::{
    AddMemoryRequest, ListMemoryReply, ListMemoryRequest, MemoryDocument, MemoryRequest, SearchMemoryRequest,
};
use palyra_engine::{EngineError, NewMemoryEntry};
use serde::Serialize;
use tonic::{Request, Response};

#[tonic::async_trait]
impl Memory for Door {
    async fn add(&self, request: Request<AddMemoryRequest>) -> Reply<MemoryDocument> {
        let peer = self.peer(&request)?;
        let AddMemoryRequest { text, scope, source, trust } = request.into_inner();
        let source = (!source.is_empty()).then_some(source);
        let new = NewMemoryEntry { text, scope, source, trust: optional(&trust)? };
        told(self.engine.memory_add(&peer, new).await)
    }

    async fn list(&self, request: Request<ListMemoryRequest>) -> Reply<ListMemoryReply> {
        let peer = self.peer(&request)?;
        let ListMemoryRequest { scope, before } = request.get_ref();
        let listed = self.engine.memory_list(&peer, scope, optional(before)?).await.map_err(refused)?;
        let entries_json = listed.0.iter().map(document).collect::<Result<_, _>>()?;
        let next = listed.1.map(|id| id.to_string()).unwrap_or_default();
        Ok(Response::new(ListMemoryReply { entries_json, next }))
    }

    async fn search(&self, request: Request<SearchMemoryRequest>) -> Reply<ListMemoryReply> {
        let peer = self.peer(&request)?;
        let SearchMemoryRequest { query, scope, limit } = request.into_inner();
        let limit = if limit == 0 { 10 } else { limit as usize };
        let found = self.engine.memory_search(&peer, query, &scope, limit).await.map_err(refused)?;
        let entries_json = found.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListMemoryReply { entries_json, next: String::new() }))
    }

    async fn show(&self, request: Request<MemoryRequest>) -> Reply<MemoryDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.memory_show(&peer, parsed(&request.get_ref().entry_id)?).await)
    }

    async fn forget(&self, request: Request<MemoryRequest>) -> Reply<MemoryDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.memory_forget(&peer, parsed(&request.get_ref().entry_id)?).await)
    }
}

fn told<T: Serialize>(record: Result<T, EngineError>) -> Reply<MemoryDocument> {
    Ok(Response::new(MemoryDocument { document_json: document(&record.map_err(refused)?)? }))
}
