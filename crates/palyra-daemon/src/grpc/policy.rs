//! Policy, explained.

use super::calls::proposal;
use super::{Door, Reply, document, refused};
use palyra_api::v1::policy_server::Policy;
use palyra_api::v1::{ExplainReply, ProposeRequest};
use tonic::{Request, Response};

#[tonic::async_trait]
impl Policy for Door {
    async fn explain(&self, request: Request<ProposeRequest>) -> Reply<ExplainReply> {
        let peer = self.peer(&request)?;
        let (call, decision) = self.engine.explain(&peer, proposal(request.into_inner())?).map_err(refused)?;
        Ok(Response::new(ExplainReply { decision_json: document(&decision)?, call_json: document(&call)? }))
    }
}
