//! The journal.

use super::{Door, Reply, Streamed, document, malformed, parsed, refused};
use palyra_api::v1::journal_server::Journal;
use palyra_api::v1::{
    CheckpointReply, CheckpointRequest, Event, GetCallRequest, GetEventRequest, TailRequest, VerifyRequest,
    VerifyUpdate,
};
use palyra_engine::{Engine, VerifiedPeer, VerifyNews};
use palyra_journal::Verdict;
use palyra_protocol::{ChainedEvent, Checkpoint};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// How many events are read at once.
const PAGE: u32 = 500;

#[tonic::async_trait]
impl Journal for Door {
    type TailStream = Streamed<Event>;
    type OfCallStream = Streamed<Event>;
    type VerifyStream = Streamed<VerifyUpdate>;

    async fn tail(&self, request: Request<TailRequest>) -> Reply<Self::TailStream> {
        let peer = self.peer(&request)?;
        let head = *self.engine.watch_journal(&peer).map_err(refused)?.borrow();
        let TailRequest { first, last, follow } = request.into_inner();
        let first = if first == 0 { head.size.saturating_sub(u64::from(last)) + 1 } else { first };
        let (sender, receiver) = mpsc::channel(64);
        let until = if follow { None } else { Some(head.size) };
        tokio::spawn(tail(self.engine.clone(), peer, first, until, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn get(&self, request: Request<GetEventRequest>) -> Reply<Event> {
        let peer = self.peer(&request)?;
        let event = self.engine.event(&peer, request.get_ref().seq).await.map_err(refused)?;
        Ok(Response::new(told(event)))
    }

    async fn of_call(&self, request: Request<GetCallRequest>) -> Reply<Self::OfCallStream> {
        let peer = self.peer(&request)?;
        let id = parsed(&request.get_ref().call_id)?;
        let events = self.engine.events_of_call(&peer, &id).await.map_err(refused)?;
        Ok(Response::new(Box::pin(tokio_stream::iter(events.into_iter().map(|event| Ok(told(event)))))))
    }

    async fn verify(&self, request: Request<VerifyRequest>) -> Reply<Self::VerifyStream> {
        let peer = self.peer(&request)?;
        let text = &request.get_ref().checkpoint_json;
        let checkpoint: Option<Checkpoint> = match text.as_str() {
            "" => None,
            text => Some(serde_json::from_str(text).map_err(|e| malformed(format!("this is not a checkpoint: {e}")))?),
        };
        let origin = self.engine.journal_origin().to_string();
        let news = self.engine.verify_journal(&peer, checkpoint).map_err(refused)?;
        Ok(Response::new(Box::pin(ReceiverStream::new(news).map(move |news| verified(news, &origin)))))
    }

    async fn checkpoint(&self, request: Request<CheckpointRequest>) -> Reply<CheckpointReply> {
        let peer = self.peer(&request)?;
        let checkpoint = self.engine.checkpoint(&peer).map_err(refused)?;
        Ok(Response::new(CheckpointReply { checkpoint_json: document(&checkpoint)? }))
    }
}

async fn tail(
    engine: Engine,
    peer: Arc<VerifiedPeer>,
    mut next: u64,
    until: Option<u64>,
    sender: mpsc::Sender<Result<Event, Status>>,
) {
    let Ok(mut head) = engine.watch_journal(&peer) else { return };
    while until.is_none_or(|last| next <= last) {
        if head.borrow_and_update().size < next {
            tokio::select! {
                changed = head.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
            continue;
        }
        let page = match engine.events(&peer, next, PAGE).await {
            Ok(page) => page,
            Err(error) => return drop(sender.send(Err(refused(error))).await),
        };
        for event in page {
            if until.is_some_and(|last| event.seq > last) {
                return;
            }
            next = event.seq + 1;
            if sender.send(Ok(told(event))).await.is_err() {
                return;
            }
        }
    }
}

fn told(event: ChainedEvent) -> Event {
    Event {
        seq: event.seq,
        at_unix_ms: event.at.unix_ms(),
        kind: event.kind,
        call_id: event.call_id,
        body_json: event.body,
        prev: event.prev.to_string(),
        hash: event.hash.to_string(),
    }
}

fn verified(news: VerifyNews, origin: &str) -> Result<VerifyUpdate, Status> {
    let origin = origin.to_owned();
    match news {
        VerifyNews::Progress(verified) => Ok(VerifyUpdate { verified, origin, ..VerifyUpdate::default() }),
        VerifyNews::Done(Err(error)) => Err(refused(error)),
        VerifyNews::Done(Ok(verdict)) => Ok(match verdict {
            Verdict::Intact(head) => VerifyUpdate {
                verified: head.size,
                done: true,
                head: head.hash.to_string(),
                origin,
                ..VerifyUpdate::default()
            },
            Verdict::Broken(fault) => VerifyUpdate {
                verified: fault.seq().saturating_sub(1),
                done: true,
                fault: fault.to_string(),
                fault_seq: fault.seq(),
                origin,
                ..VerifyUpdate::default()
            },
            Verdict::Unfounded(fault) => VerifyUpdate {
                verified: fault.seq().unwrap_or_default().saturating_sub(1),
                done: true,
                fault: fault.to_string(),
                fault_seq: fault.seq().unwrap_or_default(),
                origin,
                ..VerifyUpdate::default()
            },
            Verdict::Contradicts(fault) => {
                VerifyUpdate { done: true, fault: fault.to_string(), origin, ..VerifyUpdate::default() }
            }
        }),
    }
}
