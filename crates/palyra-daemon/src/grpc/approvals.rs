//! Questions to humans.

use super::{Door, Reply, Streamed, document, malformed, optional, parsed, refused};
use palyra_api::v1::approvals_server::Approvals;
use palyra_api::v1::{
    Approval, DecideRequest, GetApprovalRequest, ListApprovalsReply, ListApprovalsRequest, Matcher, Scope,
    TakeBackReply, TakeBackRequest, WatchApprovalsRequest,
};
use palyra_engine::{Answer, AnswerSignature, ApprovalFilter, Engine, MAX_LISTED, VerifiedPeer};
use palyra_protocol::{ApprovalDecision, ApprovalRecord, ApprovalScope, ApprovalState, GrantMatcher};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Approvals for Door {
    type WatchStream = Streamed<Approval>;

    async fn list(&self, request: Request<ListApprovalsRequest>) -> Reply<ListApprovalsReply> {
        let peer = self.peer(&request)?;
        let ListApprovalsRequest { all, after } = request.get_ref();
        let filter = if *all { ApprovalFilter::Newest(MAX_LISTED) } else { ApprovalFilter::Pending };
        let after = optional(after)?;
        let page = self.engine.approvals(&peer, filter, after.as_ref()).await.map_err(refused)?;
        let approvals = page.records.iter().map(told).collect::<Result<_, _>>()?;
        Ok(Response::new(ListApprovalsReply { approvals, more: page.more }))
    }

    async fn get(&self, request: Request<GetApprovalRequest>) -> Reply<Approval> {
        let peer = self.peer(&request)?;
        let id = parsed(&request.get_ref().approval_id)?;
        let asked = self.engine.approval(&peer, &id).await.map_err(refused)?;
        Ok(Response::new(shown(&self.engine, &peer, &asked).await?))
    }

    async fn take_back(&self, request: Request<TakeBackRequest>) -> Reply<TakeBackReply> {
        let peer = self.peer(&request)?;
        let TakeBackRequest { approval_id, allow } = request.get_ref();
        self.engine.take_back(&peer, &parsed(approval_id)?, decision(*allow)).await.map_err(refused)?;
        Ok(Response::new(TakeBackReply {}))
    }

    async fn decide(&self, request: Request<DecideRequest>) -> Reply<Approval> {
        let peer = self.peer(&request)?;
        let answer = answer(request.into_inner())?;
        let answered = self.engine.decide_approval(&peer, answer).await.map_err(refused)?;
        Ok(Response::new(told(&answered)?))
    }

    async fn watch(&self, request: Request<WatchApprovalsRequest>) -> Reply<Self::WatchStream> {
        let peer = self.peer(&request)?;
        // Asked once here, so that a refusal is a refusal and not an empty stream.
        drop(self.engine.watch_approvals(&peer).await.map_err(refused)?);
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(watch(self.engine.clone(), peer, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Passes on what is pending and every change. A watcher that fell behind gets the whole of what is pending again.
async fn watch(engine: Engine, peer: Arc<VerifiedPeer>, sender: mpsc::Sender<Result<Approval, Status>>) {
    'look: loop {
        let (pending, mut news) = match engine.watch_approvals(&peer).await {
            Ok(watched) => watched,
            Err(error) => return drop(sender.send(Err(refused(error))).await),
        };
        let told_already: HashSet<_> = pending.iter().map(|record| record.approval_id.clone()).collect();
        for record in &pending {
            if sender.send(shown(&engine, &peer, record).await).await.is_err() {
                return;
            }
        }
        loop {
            let record = tokio::select! {
                record = news.recv() => record,
                () = sender.closed() => return,
            };
            match record {
                // Asked between our looking and our listening: it is in both.
                Ok(record) if record.state == ApprovalState::Pending && told_already.contains(&record.approval_id) => {}
                Ok(record) => {
                    // What the watcher may see can have changed since it began to watch.
                    if let Err(error) = engine.may_watch_approvals(&peer) {
                        return drop(sender.send(Err(refused(error))).await);
                    }
                    if !engine.sees_approval(&peer, &record) {
                        continue;
                    }
                    let news = match record.state {
                        ApprovalState::Pending => shown(&engine, &peer, &record).await,
                        _ => told(&record),
                    };
                    if sender.send(news).await.is_err() {
                        return;
                    }
                }
                Err(RecvError::Lagged(_)) => continue 'look,
                Err(RecvError::Closed) => return,
            }
        }
    }
}

fn told(record: &ApprovalRecord) -> Result<Approval, Status> {
    Ok(Approval { approval_json: document(record)?, review_json: String::new() })
}

/// An approval with what a person is shown.
async fn shown(engine: &Engine, peer: &VerifiedPeer, record: &ApprovalRecord) -> Result<Approval, Status> {
    let review = engine.review_of(peer, record).await;
    Ok(Approval { approval_json: document(record)?, review_json: document(&review)? })
}

fn decision(allow: bool) -> ApprovalDecision {
    if allow { ApprovalDecision::Allow } else { ApprovalDecision::Deny }
}

fn answer(request: DecideRequest) -> Result<Answer, Status> {
    // What takes no effect was meant to take one.
    if request.window_ms > 0 && request.scope != i32::from(Scope::Window) {
        return Err(malformed("a time was given, and the scope is not a window"));
    }
    if !request.argv_prefix.is_empty() && request.matcher != i32::from(Matcher::ArgvPrefix) {
        return Err(malformed("words were given, and the matcher is not an argv prefix"));
    }
    if !request.directory.is_empty() && request.matcher != i32::from(Matcher::PathPrefix) {
        return Err(malformed("a directory was given, and the matcher is not a path prefix"));
    }
    if !(request.host.is_empty() && request.method.is_empty()) && request.matcher != i32::from(Matcher::HostMethod) {
        return Err(malformed("a host or a method was given, and the matcher is not a host and its method"));
    }
    let scope = match Scope::try_from(request.scope).map_err(|_| malformed("there is no such scope"))? {
        Scope::Once => ApprovalScope::Once,
        Scope::Session => ApprovalScope::Session,
        Scope::Window => ApprovalScope::Window { ms: request.window_ms },
    };
    let matcher = match Matcher::try_from(request.matcher).map_err(|_| malformed("there is no such matcher"))? {
        Matcher::ExactCall => GrantMatcher::ExactCall,
        Matcher::ArgvPrefix => GrantMatcher::ArgvPrefix { words: request.argv_prefix },
        Matcher::Tool => GrantMatcher::Tool,
        Matcher::PathPrefix => GrantMatcher::PathPrefix { directory: request.directory },
        Matcher::HostMethod => GrantMatcher::HostMethod { host: request.host, method: request.method },
    };
    let signature = optional(&request.signature)?;
    let key = optional(&request.signing_key)?;
    Ok(Answer {
        approval_id: parsed(&request.approval_id)?,
        decision: decision(request.allow),
        scope,
        matcher,
        reason: Some(request.reason),
        digest: optional(&request.digest)?,
        signature: signature.map(|signature| AnswerSignature { signature, key, confirmation: None }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_nothing_that_takes_no_effect() {
        let asked = || DecideRequest {
            approval_id: palyra_protocol::ApprovalId::mint().to_string(),
            allow: true,
            ..DecideRequest::default()
        };
        assert!(answer(asked()).is_ok());
        let window = DecideRequest { window_ms: 1, ..asked() };
        assert!(answer(window.clone()).is_err());
        assert!(answer(DecideRequest { scope: Scope::Window.into(), ..window }).is_ok());
        let prefix = DecideRequest { argv_prefix: vec!["ls".to_owned()], ..asked() };
        assert!(answer(prefix.clone()).is_err());
        assert!(answer(DecideRequest { matcher: Matcher::ArgvPrefix.into(), ..prefix }).is_ok());
    }
}
