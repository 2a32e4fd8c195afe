//! Who may come in, as what.

use super::{Door, Reply, document, malformed, optional, parsed, refused};
use crate::rights::RIGHTS;
use palyra_access::{IssuedTokens, NewToken};
use palyra_api::v1::access_server::Access;
use palyra_api::v1::{
    AccessDocument, AccessDocuments, AddAgentRequest, CreateTokenRequest, IssuedToken, ListAgentsRequest,
    ListFeaturesRequest, ListGroupsRequest, ListMembersRequest, ListTokensRequest, MethodRight, RemoveAgentRequest,
    RemoveGroupRequest, RemoveMemberRequest, RevokeTokenRequest, RightsReply, RightsRequest, RotateTokenRequest,
    SetFeatureRequest, SetGroupRequest, SetMemberRequest, WhoAmIRequest,
};
use palyra_engine::EngineError;
use palyra_protocol::Secret;
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Access for Door {
    async fn who_am_i(&self, request: Request<WhoAmIRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.whoami(&peer))
    }

    async fn rights(&self, _: Request<RightsRequest>) -> Reply<RightsReply> {
        let told = RIGHTS.iter().map(|right| MethodRight {
            method: right.method.to_owned(),
            action: right.action.as_str().to_owned(),
            resource: right.on.resource().map_or_else(String::new, |resource| resource.to_string()),
        });
        Ok(Response::new(RightsReply { rights: told.collect() }))
    }

    async fn list_tokens(&self, request: Request<ListTokensRequest>) -> Reply<AccessDocuments> {
        let peer = self.peer(&request)?;
        all_told(self.engine.tokens(&peer))
    }

    async fn create_token(&self, request: Request<CreateTokenRequest>) -> Reply<IssuedToken> {
        let peer = self.peer(&request)?;
        let new = new_token(request.into_inner())?;
        issued(self.engine.create_token(&peer, new).await)
    }

    async fn rotate_token(&self, request: Request<RotateTokenRequest>) -> Reply<IssuedToken> {
        let peer = self.peer(&request)?;
        let RotateTokenRequest { token_id, overlap_ms, keep_issued } = request.into_inner();
        let (id, overlap) = (parsed(&token_id)?, Duration::from_millis(overlap_ms));
        issued(self.engine.rotate_token(&peer, id, overlap, others(keep_issued)).await)
    }

    async fn revoke_token(&self, request: Request<RevokeTokenRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        let RevokeTokenRequest { token_id, keep_issued } = request.into_inner();
        told(self.engine.revoke_token(&peer, parsed(&token_id)?, others(keep_issued)).await)
    }

    async fn list_members(&self, request: Request<ListMembersRequest>) -> Reply<AccessDocuments> {
        let peer = self.peer(&request)?;
        all_told(self.engine.members(&peer))
    }

    async fn set_member(&self, request: Request<SetMemberRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        let SetMemberRequest { principal, role } = request.into_inner();
        told(self.engine.set_member(&peer, parsed(&principal)?, parsed(&role)?).await)
    }

    async fn remove_member(&self, request: Request<RemoveMemberRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.remove_member(&peer, parsed(&request.get_ref().principal)?).await)
    }

    async fn list_agents(&self, request: Request<ListAgentsRequest>) -> Reply<AccessDocuments> {
        let peer = self.peer(&request)?;
        all_told(self.engine.agents(&peer))
    }

    async fn add_agent(&self, request: Request<AddAgentRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        let AddAgentRequest { principal, description } = request.into_inner();
        told(self.engine.add_agent(&peer, parsed(&principal)?, description).await)
    }

    async fn remove_agent(&self, request: Request<RemoveAgentRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.remove_agent(&peer, parsed(&request.get_ref().principal)?).await)
    }

    async fn list_groups(&self, request: Request<ListGroupsRequest>) -> Reply<AccessDocuments> {
        let peer = self.peer(&request)?;
        all_told(self.engine.groups(&peer))
    }

    async fn set_group(&self, request: Request<SetGroupRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        let SetGroupRequest { name, add, remove } = request.into_inner();
        told(self.engine.set_group(&peer, parsed(&name)?, all_parsed(&add)?, all_parsed(&remove)?).await)
    }

    async fn remove_group(&self, request: Request<RemoveGroupRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.remove_group(&peer, parsed(&request.get_ref().name)?).await)
    }

    async fn list_features(&self, request: Request<ListFeaturesRequest>) -> Reply<AccessDocuments> {
        let peer = self.peer(&request)?;
        all_told(self.engine.features(&peer))
    }

    async fn set_feature(&self, request: Request<SetFeatureRequest>) -> Reply<AccessDocument> {
        let peer = self.peer(&request)?;
        let SetFeatureRequest { name, on } = request.into_inner();
        told(self.engine.set_feature(&peer, parsed(&name)?, on).await)
    }
}

fn others(keep_issued: bool) -> IssuedTokens {
    if keep_issued { IssuedTokens::Kept } else { IssuedTokens::Withdrawn }
}

fn new_token(request: CreateTokenRequest) -> Result<NewToken, Status> {
    Ok(NewToken {
        principal: parsed(&request.principal)?,
        label: request.label,
        role: optional(&request.role)?,
        scopes: all_parsed(&request.scopes)?,
        life: (request.life_ms > 0).then(|| Duration::from_millis(request.life_ms)),
        rate_per_minute: (request.rate_per_minute > 0).then_some(request.rate_per_minute),
    })
}

fn all_parsed<T: FromStr<Err: std::fmt::Display>>(texts: &[String]) -> Result<Vec<T>, Status> {
    texts.iter().map(|text| parsed(text)).collect()
}

fn told<T: Serialize>(record: Result<T, EngineError>) -> Reply<AccessDocument> {
    Ok(Response::new(AccessDocument { document_json: document(&record.map_err(refused)?)? }))
}

fn all_told<T: Serialize>(records: Result<Vec<T>, EngineError>) -> Reply<AccessDocuments> {
    let records = records.map_err(refused)?;
    let documents_json = records.iter().map(document).collect::<Result<_, _>>()?;
    Ok(Response::new(AccessDocuments { documents_json }))
}

/// The one place where a token's text leaves the daemon.
fn issued<T: Serialize>(token: Result<(T, Secret), EngineError>) -> Reply<IssuedToken> {
    let (view, text) = token.map_err(refused)?;
    let secret = std::str::from_utf8(text.expose()).map_err(|_| malformed("a token that is no text"))?.to_owned();
    Ok(Response::new(IssuedToken { token_json: document(&view)?, secret }))
}
