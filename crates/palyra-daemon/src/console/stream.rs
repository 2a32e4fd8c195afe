//! News for a browser: one line of JSON for each event of the journal, resumable by its sequence number.
//!
//! A line says what kind of event it was and about which call; what it means is fetched by whichever page wants to
//! know, with the rights of that request. Whoever may not read the journal hears of the approvals that they may see.

use crate::http::{Asked, Caller, Door, Refused};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use palyra_engine::{EngineError, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

/// An empty line this often shows both sides that the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many events are read at once.
const PAGE: u32 = 200;
/// A page that was away for longer than this many events looks at everything anew.
const MOST_MISSED: u64 = 2_000;

/// From where on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    /// The last event that the browser knows of.
    #[serde(default)]
    after: Option<u64>,
}

pub(super) async fn stream(
    State(door): State<Door>,
    caller: Caller,
    Asked(from): Asked<From>,
) -> Result<Response, Refused> {
    let (lines, receiver) = mpsc::channel::<Bytes>(64);
    let told = Told { door, caller, lines };
    tokio::spawn(told.run(from.after));
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    let kind = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// A browser that listens.
struct Told {
    door: Door,
    caller: Caller,
    lines: mpsc::Sender<Bytes>,
}

impl Told {
    /// Tells news until the browser goes, its session ends, or the daemon does. Each of the last two has a line of its
    /// own.
    async fn run(self, after: Option<u64>) {
        let (engine, peer) = (self.door.engine.clone(), self.caller.peer.clone());
        let closing = self.door.closing.clone();
        let end = tokio::select! {
            refused = self.tell(after) => refused.map(|error| json!({ "end": error.problem.code })),
            refused = engine.shut_out(&peer) => Some(json!({ "end": refused.problem.code })),
            () = closing.cancelled() => Some(json!({ "end": "daemon_ending" })),
            () = self.lines.closed() => None,
        };
        if let Some(end) = end {
            self.line(&end).await;
        }
    }

    async fn line(&self, value: &Value) -> bool {
        self.lines.send(format!("{value}\n").into()).await.is_ok()
    }

    async fn tell(&self, after: Option<u64>) -> Option<EngineError> {
        let engine = &self.door.engine;
        match engine.watch_journal(&self.caller.peer) {
            Ok(mut head) => {
                let now = head.borrow_and_update().size;
                let mut next = after.filter(|seen| *seen <= now && now - seen <= MOST_MISSED).unwrap_or(now) + 1;
                let resumed = after.is_some_and(|seen| seen + 1 == next);
                self.line(&json!({ "head": now, "resumed": resumed })).await;
                loop {
                    if head.borrow_and_update().size < next {
                        match tokio::time::timeout(KEEP_ALIVE, head.changed()).await {
                            Ok(Ok(())) => {}
                            Ok(Err(_)) => return None,
                            Err(_) => drop(self.lines.send(Bytes::from_static(b"\n")).await),
                        }
                        continue;
                    }
                    let page = match engine.events(&self.caller.peer, next, PAGE).await {
                        Ok(page) => page,
                        Err(error) => return Some(error),
                    };
                    for event in page {
                        next = event.seq + 1;
                        let line = json!({ "seq": event.seq, "kind": event.kind, "call": event.call_id });
                        if !self.line(&line).await {
                            return None;
                        }
                    }
                }
            }
            Err(error) if error.kind == ErrorKind::Forbidden => self.tell_approvals().await,
            Err(error) => Some(error),
        }
    }

    /// For those who may not read the journal.
    async fn tell_approvals(&self) -> Option<EngineError> {
        let engine = &self.door.engine;
        let mut news = match engine.watch_approvals(&self.caller.peer).await {
            Ok((_, news)) => Some(news),
            Err(error) if error.kind == ErrorKind::Forbidden => None,
            Err(error) => return Some(error),
        };
        self.line(&json!({ "head": null, "resumed": false })).await;
        loop {
            let Some(news) = &mut news else {
                tokio::time::sleep(KEEP_ALIVE).await;
                drop(self.lines.send(Bytes::from_static(b"\n")).await);
                continue;
            };
            match tokio::time::timeout(KEEP_ALIVE, news.recv()).await {
                Ok(Ok(asked)) if engine.sees_approval(&self.caller.peer, &asked) => {
                    self.line(&json!({ "seq": null, "kind": "approval.requested", "call": asked.call_id })).await;
                }
                Ok(Ok(_)) => {}
                Ok(Err(RecvError::Lagged(_))) => {
                    self.line(&json!({ "seq": null, "kind": "approval.requested", "call": "" })).await;
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => drop(self.lines.send(Bytes::from_static(b"\n")).await),
            }
        }
    }
}
