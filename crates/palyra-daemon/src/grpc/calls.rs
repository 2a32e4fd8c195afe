//! Tool calls.

use super::{Door, Reply, Streamed, document, optional, parsed, refused};
use palyra_api::v1::calls_server::Calls;
use palyra_api::v1::{CallUpdate as Wire, CancelCallRequest, GetCallRequest, ProposeRequest};
use palyra_engine::{CallInProgress, CallUpdate, Engine, Proposal, VerifiedPeer};
use palyra_protocol::CallId;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Calls for Door {
    type ProposeStream = Streamed<Wire>;
    type FollowStream = Streamed<Wire>;

    async fn propose(&self, request: Request<ProposeRequest>) -> Reply<Self::ProposeStream> {
        let peer = self.peer(&request)?;
        let call = self.engine.propose(&peer, proposal(request.into_inner())?);
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(forward(call, self.engine.clone(), peer, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn get(&self, request: Request<GetCallRequest>) -> Reply<Wire> {
        let peer = self.peer(&request)?;
        let id: CallId = parsed(&request.get_ref().call_id)?;
        let update = self.engine.call(&peer, &id).await.map_err(refused)?;
        Ok(Response::new(told(&update, &self.engine, &peer)?))
    }

    async fn follow(&self, request: Request<GetCallRequest>) -> Reply<Self::FollowStream> {
        let peer = self.peer(&request)?;
        let id: CallId = parsed(&request.get_ref().call_id)?;
        let now = self.engine.call(&peer, &id).await.map_err(refused)?;
        let (sender, receiver) = mpsc::channel(16);
        let engine = self.engine.clone();
        tokio::spawn(async move {
            let ended = now.state.is_terminal();
            if sender.send(told(&now, &engine, &peer)).await.is_ok() && !ended {
                let end = engine.follow(&peer, &id).await.map_err(refused);
                let end = end.and_then(|update| told(&update, &engine, &peer));
                // The follower may have gone.
                drop(sender.send(end).await);
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn cancel(&self, request: Request<CancelCallRequest>) -> Reply<Wire> {
        let peer = self.peer(&request)?;
        let id: CallId = parsed(&request.get_ref().call_id)?;
        let update = self.engine.cancel(&peer, &id).await.map_err(refused)?;
        Ok(Response::new(told(&update, &self.engine, &peer)?))
    }
}

/// Passes a call's states on until it ends. The proposer's going away stops the passing on, not the call.
async fn forward(
    mut call: CallInProgress,
    engine: Engine,
    peer: Arc<VerifiedPeer>,
    sender: mpsc::Sender<Result<Wire, Status>>,
) {
    let end = loop {
        tokio::select! {
            biased;
            update = call.updates.recv() => match update {
                Ok(update) if update.outcome.is_none() => {
                    if sender.send(told(&update, &engine, &peer)).await.is_err() {
                        return;
                    }
                }
                // The end comes by its own way, with its error if it has one.
                _ => break (&mut call.end).await,
            },
            end = &mut call.end => break end,
        }
    };
    let last = match end {
        Ok(Ok(update)) => told(&update, &engine, &peer),
        Ok(Err(error)) => Err(refused(error)),
        Err(_) => Err(Status::internal("the call ended without a word")),
    };
    drop(sender.send(last).await);
}

pub(super) fn proposal(request: ProposeRequest) -> Result<Proposal, Status> {
    Ok(Proposal {
        tool: request.tool,
        input: request.input,
        session: optional(&request.session)?,
        run: optional(&request.run)?,
        idempotency_key: optional(&request.idempotency_key)?,
    })
}

fn told(update: &CallUpdate, engine: &Engine, peer: &VerifiedPeer) -> Result<Wire, Status> {
    fn optional<T: serde::Serialize>(record: Option<&T>) -> Result<String, Status> {
        record.map_or_else(|| Ok(String::new()), document)
    }
    Ok(Wire {
        call_id: update.call_id.to_string(),
        state: update.state.as_str().to_owned(),
        tool: update.tool.clone(),
        session: update.session.to_string(),
        run: update.run.to_string(),
        decision_json: optional(update.decision.as_deref().map(|decision| engine.disclose(peer, decision)).as_deref())?,
        approval_json: optional(update.approval.as_deref())?,
        outcome_json: optional(update.outcome.as_deref())?,
        replayed: update.replayed,
    })
}
