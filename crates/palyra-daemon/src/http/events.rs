//! A call's states as they come, and what its process writes: server-sent events.
//!
//! A stream holds no task and no queue of its own. Whoever reads slowly is served at that pace; what a process wrote
//! meanwhile is dropped from the ring, oldest first, and the offsets tell.

use super::Door;
use super::payload::{Caller, Id};
use super::problem::{Refusals, Refused};
use super::records::Call;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use palyra_engine::{CallUpdate, CallWatch, OutputPiece, OutputStream, OutputWatcher};
use palyra_policy::PolicyAction;
use palyra_protocol::{CallId, CallState};
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use utoipa::ToSchema;

/// A comment this often shows both sides that the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A piece of what a call's process writes: the data of an `output` event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Output {
    /// `stdout` or `stderr`
    stream: &'static str,
    /// Where in that stream it begins. More than where the last piece ended: what lies between was dropped.
    offset: u64,
    /// The bytes.
    base64: String,
}

impl From<OutputPiece> for Output {
    fn from(piece: OutputPiece) -> Self {
        let stream = match piece.stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        };
        Self { stream, offset: piece.offset, base64: STANDARD.encode(piece.bytes) }
    }
}

/// Follow a call to its end.
///
/// Events: `state`, whose data is the call, first as it stands and then at every change; `output`, whose data is a
/// piece of what its process writes; `closing` when the daemon ends and the call goes on after its restart. The stream
/// ends after the last state.
#[utoipa::path(
    get,
    path = "/v1/calls/{call_id}/events",
    operation_id = "follow_call",
    params(("call_id" = String, Path, description = "The call")),
    responses(
        (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
        Refusals,
    )
)]
pub(crate) async fn events(State(door): State<Door>, caller: Caller, Id(id): Id<CallId>) -> Result<Response, Refused> {
    let watch = door.engine.watch_call(&caller.peer, &id).await;
    let watch = watch.map_err(|error| Refused::from(error).or_not_found("call", id.as_str()))?;
    let next = Next::State(Box::new(watch.now.clone()));
    Ok(streamed(Following { door, caller, id, next, watch }))
}

/// One who follows a call.
struct Following {
    door: Door,
    caller: Caller,
    id: CallId,
    watch: CallWatch,
    next: Next,
}

/// What is to be told next.
enum Next {
    State(Box<CallUpdate>),
    Wait,
    /// What is left of the output, then the end.
    Rest(Box<CallUpdate>),
    Nothing,
}

impl Follow for Following {
    async fn event(&mut self) -> Option<Event> {
        loop {
            match std::mem::replace(&mut self.next, Next::Wait) {
                Next::Nothing => return None,
                Next::State(update) if update.outcome.is_some() => self.next = Next::Rest(update),
                Next::State(update) => return self.told("state", &Call::from(*update)),
                Next::Rest(update) => match self.watch.output.as_mut().and_then(|output| output.ready()) {
                    Some(piece) => {
                        self.next = Next::Rest(update);
                        return self.told("output", &Output::from(piece));
                    }
                    None => {
                        let event = self.told("state", &Call::from(*update));
                        self.next = Next::Nothing;
                        return event;
                    }
                },
                Next::Wait => {
                    if let Some(event) = self.wait().await {
                        return Some(event);
                    }
                }
            }
        }
    }
}

impl Following {
    /// Waits for what comes next: an event of its own, or another [`Next`].
    async fn wait(&mut self) -> Option<Event> {
        let Some(news) = &mut self.watch.news else { return self.end().await };
        let stays = self.watch.now.state != CallState::Executing;
        tokio::select! {
            biased;
            update = news.recv() => match update {
                Ok(update) => {
                    let same = update.outcome.is_none() && update.state == self.watch.now.state;
                    self.watch.now = update.clone();
                    if !same {
                        self.next = Next::State(Box::new(update));
                    }
                }
                // Too slow, or the call is over: the journal knows.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return self.end().await,
            },
            piece = next_piece(&mut self.watch.output) => return self.told("output", &Output::from(piece)),
            () = self.door.closing.cancelled(), if stays => return Some(self.closing()),
        }
        None
    }

    /// The call is not under way any more, or not in this process: what the journal says is the last word.
    async fn end(&mut self) -> Option<Event> {
        self.watch.news = None;
        self.next = Next::Nothing;
        let update = self.door.engine.call(&self.caller.peer, &self.id).await.ok()?;
        if update.outcome.is_some() {
            self.next = Next::Rest(Box::new(update));
        } else if self.door.closing.is_cancelled() {
            return Some(self.closing());
        }
        None
    }

    /// The daemon ends, and the call goes on after its restart.
    fn closing(&mut self) -> Event {
        self.next = Next::Nothing;
        Event::default().event("closing").data("{}")
    }

    fn told<T: Serialize>(&mut self, name: &'static str, data: &T) -> Option<Event> {
        let event = event_for(&self.door, &self.caller, PolicyAction::CallRead, (name, data));
        if event.is_none() {
            self.next = Next::Nothing;
        }
        event
    }
}

/// An event with its name and its data, unless the follower's right was withdrawn meanwhile.
pub(super) fn event_for<T: Serialize>(
    door: &Door,
    caller: &Caller,
    right: PolicyAction,
    (name, data): (&'static str, &T),
) -> Option<Event> {
    door.engine.admit(&caller.peer, right, None).ok()?;
    let text = serde_json::to_string(data).ok()?;
    Some(Event::default().event(name).data(text))
}

/// The events that a follower is told, to the last.
pub(super) fn streamed<F: Follow + Send + 'static>(following: F) -> Response {
    let events = stream::unfold(following, |mut following| async move {
        let event = following.event().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// One who follows something.
pub(super) trait Follow {
    /// The next event; nothing at the end.
    fn event(&mut self) -> impl Future<Output = Option<Event>> + Send;
}

/// Waits for a piece of output; for ever when none can come.
async fn next_piece(output: &mut Option<OutputWatcher>) -> OutputPiece {
    if let Some(watcher) = output
        && let Some(piece) = watcher.next().await
    {
        return piece;
    }
    *output = None;
    std::future::pending().await
}
