//! Tool calls.

use super::{Door, Reply, Streamed, document, gate, malformed, optional, parsed, refused};
use palyra_api::v1::calls_server::Calls;
use palyra_api::v1::{
    CallUpdate as Wire, CancelCallRequest, Carrier as WireCarrier, FollowCallRequest, GetCallRequest, ListCallsReply,
    ListCallsRequest, OutputPiece as WirePiece, OutputStream as WireStream, ProposeRequest, RedeemRequest, ReportReply,
    ReportRequest,
};
use palyra_engine::{
    CallFilter, CallInProgress, CallUpdate, Engine, OutputPiece, OutputStream, OutputWatcher, Proposal, RedeemedCall,
    VerifiedPeer,
};
use palyra_protocol::{CallId, CallState, Carrier, Ticket, Timestamp};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Calls for Door {
    type ProposeStream = Streamed<Wire>;
    type FollowStream = Streamed<Wire>;
    type RedeemStream = Streamed<Wire>;

    async fn propose(&self, request: Request<ProposeRequest>) -> Reply<Self::ProposeStream> {
        let peer = self.peer(&request)?;
        let live_output = request.get_ref().live_output;
        let pid = gate::process(request.extensions().get());
        let proposal = proposal(request.into_inner())?;
        if !proposal.carrier.is_daemon() {
            // This is a client's hook.
            self.engine.remember_client(&peer, pid);
        }
        let call = self.engine.propose(&peer, proposal);
        let (sender, receiver) = mpsc::channel(BACKLOG);
        tokio::spawn(forward(call, live_output, self.engine.clone(), peer, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn get(&self, request: Request<GetCallRequest>) -> Reply<Wire> {
        let peer = self.peer(&request)?;
        let id: CallId = parsed(&request.get_ref().call_id)?;
        let update = self.engine.call(&peer, &id).await.map_err(refused)?;
        let record = self.engine.call_record(&peer, &id).await.map_err(refused)?;
        let mut told = told(&update, &self.engine, &peer)?;
        told.call_json = record.as_ref().map(document).transpose()?.unwrap_or_default();
        Ok(Response::new(told))
    }

    async fn list(&self, request: Request<ListCallsRequest>) -> Reply<ListCallsReply> {
        let peer = self.peer(&request)?;
        let ListCallsRequest { principal, tool, session, state, since_unix_ms, before, most } = request.into_inner();
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let known = |state: String| CallState::parse(&state).ok_or_else(|| malformed("there is no such state"));
        let filter = CallFilter {
            principal: optional(&principal)?,
            tool: text(tool),
            session: text(session),
            state: text(state).map(known).transpose()?,
            since: Some(since_unix_ms).filter(|ms| *ms > 0).map(Timestamp::from_unix_ms),
            before: optional(&before)?,
            most,
        };
        let (page, last) = self.engine.calls(&peer, filter).await.map_err(refused)?;
        let calls_json = page.records.iter().map(document).collect::<Result<_, _>>()?;
        let go_on_before = last.map_or_else(String::new, String::from);
        Ok(Response::new(ListCallsReply { calls_json, go_on_before }))
    }

    async fn follow(&self, request: Request<FollowCallRequest>) -> Reply<Self::FollowStream> {
        let peer = self.peer(&request)?;
        let id: CallId = parsed(&request.get_ref().call_id)?;
        // Watching begins before the call is looked at, so that nothing is written in between.
        let output = if request.get_ref().live_output {
            self.engine.watch_output(&peer, &id).await.map_err(refused)?
        } else {
            None
        };
        let now = self.engine.call(&peer, &id).await.map_err(refused)?;
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let engine = self.engine.clone();
        tokio::spawn(async move {
            let ended = now.state.is_terminal();
            if sender.send(told(&now, &engine, &peer)).await.is_err() || ended {
                return;
            }
            let mut passing =
                Passing { call_id: id.clone(), output, sender, engine: engine.clone(), peer: Arc::clone(&peer) };
            let mut end = std::pin::pin!(engine.follow(&peer, &id));
            let mut shut_out = std::pin::pin!(engine.shut_out(&peer));
            let end = loop {
                tokio::select! {
                    error = &mut shut_out => break Err(error),
                    passed = passing.one() => if passed.is_err() { return },
                    end = &mut end => break end,
                }
            };
            passing.last(end.map_err(refused).and_then(|update| told(&update, &engine, &peer))).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn cancel(&self, request: Request<CancelCallRequest>) -> Reply<Wire> {
        let peer = self.peer(&request)?;
        let id: CallId = parsed(&request.get_ref().call_id)?;
        let update = self.engine.cancel(&peer, &id).await.map_err(refused)?;
        Ok(Response::new(told(&update, &self.engine, &peer)?))
    }

    async fn redeem(&self, request: Request<RedeemRequest>) -> Reply<Self::RedeemStream> {
        let peer = self.peer(&request)?;
        let ticket: Ticket = parsed(&request.get_ref().ticket)?;
        let call = self.engine.redeem(&ticket).map_err(refused)?;
        let (sender, receiver) = mpsc::channel(BACKLOG);
        tokio::spawn(pass_redeemed(call, self.engine.clone(), peer, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn report(&self, request: Request<ReportRequest>) -> Reply<ReportReply> {
        let peer = self.peer(&request)?;
        let ReportRequest { idempotency_key, succeeded, message } = request.get_ref();
        let key = parsed(idempotency_key)?;
        self.engine.client_reported(&peer, &key, (*succeeded, message)).await.map_err(refused)?;
        Ok(Response::new(ReportReply {}))
    }
}

/// Passes on what a call writes that was started by its ticket, then its end. A shell that is killed takes its command
/// along: when the stream is closed before the end, the call ends too.
async fn pass_redeemed(
    call: RedeemedCall,
    engine: Engine,
    peer: Arc<VerifiedPeer>,
    sender: mpsc::Sender<Result<Wire, Status>>,
) {
    let RedeemedCall { call_id, output } = call;
    let closed = sender.clone();
    let mut passing = Passing {
        call_id: call_id.clone(),
        output: Some(output),
        sender,
        engine: engine.clone(),
        peer: Arc::clone(&peer),
    };
    let mut end = std::pin::pin!(engine.redeemed_end(&call_id));
    let end = loop {
        tokio::select! {
            biased;
            () = closed.closed() => return engine.abandon(&peer, &call_id),
            passed = passing.one() => if passed.is_err() { return engine.abandon(&peer, &call_id) },
            end = &mut end => break end,
        }
    };
    drop(closed);
    passing.last(end.map_err(refused).and_then(|update| told(&update, &engine, &peer))).await;
}

/// How many updates wait for a slow client. Each holds at most one small piece of output.
const BACKLOG: usize = 16;

/// Passes on what a call's process writes. One that reads slowly holds up this and nothing else: the process writes on,
/// and the oldest output is dropped.
struct Passing {
    call_id: CallId,
    /// Nothing: nobody asked, or no more can come.
    output: Option<OutputWatcher>,
    sender: mpsc::Sender<Result<Wire, Status>>,
    engine: Engine,
    peer: Arc<VerifiedPeer>,
}

/// The client has gone, or is not told any more.
struct Gone;

impl Passing {
    /// Waits for a piece and passes it on. Cancelling loses nothing: a piece is taken only when there is room to send
    /// it.
    async fn one(&mut self) -> Result<(), Gone> {
        let Some(output) = &mut self.output else { return std::future::pending().await };
        let room = self.sender.reserve().await.map_err(|_| Gone)?;
        match output.next().await {
            Some(piece) => {
                self.engine.still_opens(&self.peer).map_err(|_| Gone)?;
                room.send(Ok(piece_told(&self.call_id, piece)));
            }
            None => self.output = None,
        }
        Ok(())
    }

    /// Passes on what is left of the output, then the end.
    async fn last(mut self, end: Result<Wire, Status>) {
        if let Err(error) = self.engine.still_opens(&self.peer) {
            drop(self.sender.send(Err(refused(error))).await);
            return;
        }
        while let Some(piece) = self.output.as_mut().and_then(OutputWatcher::ready) {
            if self.sender.send(Ok(piece_told(&self.call_id, piece))).await.is_err() {
                return;
            }
        }
        // The client may have gone.
        drop(self.sender.send(end).await);
    }
}

fn piece_told(call_id: &CallId, piece: OutputPiece) -> Wire {
    let stream = match piece.stream {
        OutputStream::Stdout => WireStream::Stdout,
        OutputStream::Stderr => WireStream::Stderr,
    };
    Wire {
        call_id: call_id.to_string(),
        state: CallState::Executing.as_str().to_owned(),
        output: Some(WirePiece { stream: stream.into(), offset: piece.offset, bytes: piece.bytes }),
        ..Wire::default()
    }
}

/// Passes a call's states on until it ends. The proposer's going away stops the passing on, not the call.
async fn forward(
    call: CallInProgress,
    live_output: bool,
    engine: Engine,
    peer: Arc<VerifiedPeer>,
    sender: mpsc::Sender<Result<Wire, Status>>,
) {
    let CallInProgress { call_id, mut updates, output, mut end, ticket } = call;
    let output = live_output.then_some(output);
    let mut passing = Passing { call_id, output, sender, engine: engine.clone(), peer: Arc::clone(&peer) };
    let mut shut_out = std::pin::pin!(engine.shut_out(&peer));
    let end = loop {
        tokio::select! {
            biased;
            error = &mut shut_out => break Ok(Err(error)),
            update = updates.recv() => match update {
                Ok(update) if update.outcome.is_none() => {
                    let permitted = update.state == CallState::Executing;
                    let shown = ticket.as_ref().filter(|_| permitted).map_or_else(String::new, |t| t.expose().to_owned());
                    let told = told(&update, &engine, &peer).map(|told| Wire { ticket: shown, ..told });
                    if passing.sender.send(told).await.is_err() {
                        return;
                    }
                }
                // The end comes by its own way, with its error if it has one.
                _ => break (&mut end).await,
            },
            passed = passing.one() => if passed.is_err() { return },
            end = &mut end => break end,
        }
    };
    let last = match end {
        Ok(Ok(update)) => told(&update, &engine, &peer),
        Ok(Err(error)) => Err(refused(error)),
        Err(_) => Err(Status::internal("the call ended without a word")),
    };
    passing.last(last).await;
}

pub(super) fn proposal(request: ProposeRequest) -> Result<Proposal, Status> {
    if request.by_candidate || !request.candidate.is_empty() {
        return Err(malformed("only an explanation is made by a candidate"));
    }
    Ok(Proposal {
        tool: request.tool,
        input: request.input,
        session: optional(&request.session)?,
        run: optional(&request.run)?,
        idempotency_key: optional(&request.idempotency_key)?,
        request: None,
        carrier: carrier(request.carrier)?,
    })
}

fn carrier(given: i32) -> Result<Carrier, Status> {
    match WireCarrier::try_from(given) {
        Ok(WireCarrier::Daemon) => Ok(Carrier::Daemon),
        Ok(WireCarrier::Ticket) => Ok(Carrier::Ticket),
        Ok(WireCarrier::Client) => Ok(Carrier::Client),
        Err(_) => Err(malformed("there is no such carrier")),
    }
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
        output: None,
        call_json: String::new(),
        ticket: String::new(),
    })
}
