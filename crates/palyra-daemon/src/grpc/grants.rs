//! Standing answers.

use super::{Door, Reply, document, optional, parsed, refused};
use palyra_api::v1::grants_server::Grants;
use palyra_api::v1::{GetGrantRequest, Grant, GrantWithCalls, ListGrantsReply, ListGrantsRequest, RevokeGrantRequest};
use palyra_protocol::GrantRecord;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Grants for Door {
    async fn list(&self, request: Request<ListGrantsRequest>) -> Reply<ListGrantsReply> {
        let peer = self.peer(&request)?;
        let before = optional(&request.get_ref().before)?;
        let page = self.engine.grants(&peer, before.as_ref()).await.map_err(refused)?;
        let grants = page.records.iter().map(told).collect::<Result<_, _>>()?;
        Ok(Response::new(ListGrantsReply { grants, more: page.more }))
    }

    async fn get(&self, request: Request<GetGrantRequest>) -> Reply<GrantWithCalls> {
        let peer = self.peer(&request)?;
        let id = parsed(&request.get_ref().grant_id)?;
        let (grant, calls) = self.engine.grant_with_calls(&peer, &id).await.map_err(refused)?;
        let calls_json = calls.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(GrantWithCalls { grant_json: document(&grant)?, calls_json }))
    }

    async fn revoke(&self, request: Request<RevokeGrantRequest>) -> Reply<Grant> {
        let peer = self.peer(&request)?;
        let id = parsed(&request.get_ref().grant_id)?;
        Ok(Response::new(told(&self.engine.revoke_grant(&peer, &id).await.map_err(refused)?)?))
    }
}

fn told(record: &GrantRecord) -> Result<Grant, Status> {
    Ok(Grant { grant_json: document(record)? })
}
