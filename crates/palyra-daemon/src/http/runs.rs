//! Agent runs: how one stands, and what happens in it: server-sent events.
//!
//! Runs are begun at the OpenAI-compatible routes and by `palyra run`. Who reads too slowly is let go; the run does not
//! wait, and the record has everything.

use super::Door;
use super::events::{Follow, event_for, streamed};
use super::payload::{Caller, Id};
use super::problem::{Refusals, Refused};
use super::records::told;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::response::sse::Event;
use palyra_agent::RunShown;
use palyra_agent::runs::Watch;
use palyra_policy::PolicyAction;
use palyra_protocol::RunId;
use serde::Serialize;

/// How a run stands.
#[utoipa::path(
    get,
    path = "/v1/runs/{run}",
    operation_id = "get_run",
    params(("run" = String, Path, description = "The run")),
    responses((status = 200, description = "The run", body = Object, content_type = "application/json"), Refusals)
)]
pub(super) async fn get(State(door): State<Door>, caller: Caller, Id(id): Id<RunId>) -> Result<Response, Refused> {
    let shown = door.doors.runs.show(&caller.peer, &id).await;
    let shown = shown.map_err(|error| Refused::from(error).or_not_found("run", id.as_str()))?;
    told(StatusCode::OK, &shown)
}

/// Follow a run to its end.
///
/// Events: `run`, whose data is the run, first as it stands and last as it ended; between them one for each piece of
/// news, named by its `type`: `asking`, `text`, `tool_call`, `arguments`, `turn`, `call`, `approval`, `output`,
/// `result`, `ended`; `closing` when the daemon ends and the run goes on after its restart.
#[utoipa::path(
    get,
    path = "/v1/runs/{run}/events",
    operation_id = "follow_run",
    params(("run" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
        Refusals,
    )
)]
pub(super) async fn events(State(door): State<Door>, caller: Caller, Id(id): Id<RunId>) -> Result<Response, Refused> {
    let watched = door.doors.runs.watch(&caller.peer, &id).await;
    let (shown, watch) = watched.map_err(|error| Refused::from(error).or_not_found("run", id.as_str()))?;
    Ok(streamed(Following { door, caller, id, next: Next::Stands(Box::new(shown)), watch }))
}

/// One who follows a run.
struct Following {
    door: Door,
    caller: Caller,
    id: RunId,
    next: Next,
    watch: Option<Watch>,
}

/// What is to be told next.
enum Next {
    /// The run as it stood when following began.
    Stands(Box<RunShown>),
    News,
    Nothing,
}

impl Follow for Following {
    async fn event(&mut self) -> Option<Event> {
        match std::mem::replace(&mut self.next, Next::News) {
            Next::Nothing => None,
            Next::Stands(shown) => {
                if self.watch.is_none() {
                    self.next = Next::Nothing;
                }
                self.told("run", &shown)
            }
            Next::News => match self.watch.as_mut()?.next().await {
                Some(news) => self.told(news.name(), &*news),
                None => self.end().await,
            },
        }
    }
}

impl Following {
    /// No more news: the record is the last word, unless the daemon ends before the run does.
    async fn end(&mut self) -> Option<Event> {
        self.next = Next::Nothing;
        let shown = self.door.doors.runs.show(&self.caller.peer, &self.id).await.ok()?;
        if !shown.state.is_terminal() && self.door.closing.is_cancelled() {
            return Some(Event::default().event("closing").data("{}"));
        }
        self.told("run", &shown)
    }

    fn told<T: Serialize>(&mut self, name: &'static str, data: &T) -> Option<Event> {
        let event = event_for(&self.door, &self.caller, PolicyAction::RunRead, (name, data));
        if event.is_none() {
            self.next = Next::Nothing;
        }
        event
    }
}
