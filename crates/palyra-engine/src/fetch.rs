//! `palyra.http.fetch`: one request to a host that the rules allow.
//!
//! A redirect may lead to a host that nobody decided about. So each hop to another origin, and each with another method, is decided like a call
//! to that host: what policy denies ends the fetch, and so does what needs more people than have approved this call. Otherwise an
//! open redirect on one host would carry its approval to every other.

use crate::engine::Engine;
use crate::flow::execute::{cancelled, printable};
use crate::flow::resolve::{fetch_problem, sandbox_problem};
use crate::work::FetchWork;
use palyra_egress::{Denial, DenialCode, EgressObserver, FetchError, FetchRequest, FetchResponse, FetchWatch};
use palyra_protocol::{Authority, DecisionKind, EgressRecord, Facets, Problem, ToolCall};
use palyra_sandbox::{CancelSignal, SandboxError};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What a redirect may do, and whom connections are told to.
pub(crate) struct Hops {
    engine: Engine,
    call: ToolCall,
    /// Whether somebody approved this call, or a grant covers it.
    approved: bool,
    /// How many people approved this very call.
    people: u32,
    observer: EgressObserver,
}

impl Hops {
    pub(crate) async fn of(engine: &Engine, call: &ToolCall, authority: &Authority, observer: EgressObserver) -> Self {
        let people = match authority {
            Authority::Policy | Authority::Grant(_) => 0,
            Authority::Approval(id) => match engine.journal().approval(id).await {
                Ok(approval) => approval.people.max(1),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "an approval cannot be read");
                    0
                }
            },
        };
        let approved = people > 0 || matches!(authority, Authority::Grant(_));
        Self { engine: engine.clone(), call: call.clone(), approved, people, observer }
    }
}

impl FetchWatch for Hops {
    fn may_go(&self, next: &FetchRequest) -> Result<(), Denial> {
        let url = next.url();
        let facets = Facets {
            hosts: vec![format!("{}:{}", url.host(), url.port())],
            method: Some(next.method().to_owned()),
            ..Facets::default()
        };
        let decision = self.engine.decide_again(&self.call, &facets);
        let why = match decision.decision {
            DecisionKind::Allow => return Ok(()),
            DecisionKind::NeedsApproval if decision.fresh && decision.people <= self.people => return Ok(()),
            DecisionKind::NeedsApproval if !decision.fresh && self.approved => return Ok(()),
            DecisionKind::NeedsApproval => "needs an approval that this call does not have".to_owned(),
            DecisionKind::Deny => format!("policy denies: {}", decision.summary),
        };
        let target = format!("{} {}:{}", next.method(), url.host(), url.port());
        let hint = match (decision.decision, decision.denial) {
            (DecisionKind::Deny, Some(denial)) => denial.ask_for,
            _ => "fetch that URL in a call of its own".to_owned(),
        };
        let message = format!("the server redirects to {target}, which {why}");
        Err(Denial::of(DenialCode::PolicyDenied, (url.host(), url.port()), message, hint))
    }

    fn connection(&self, record: &EgressRecord) {
        (self.observer)(record);
    }
}

/// Fetches on a thread of its own.
pub(crate) async fn run(work: FetchWork, hops: Hops, cancel: &CancellationToken) -> Result<Value, Problem> {
    let (handle, signal) =
        CancelSignal::new().map_err(|error| sandbox_problem(&SandboxError::io("prepare a cancellation")(error)))?;
    let fetcher = Arc::clone(hops.engine.fetcher());
    let mut task = tokio::task::spawn_blocking(move || fetcher.fetch(work.request, &work.limits, &signal, &hops));
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = cancel.cancelled() => {
            handle.cancel();
            task.await
        }
    };
    match joined {
        Ok(Ok(response)) => Ok(told(response)),
        Ok(Err(FetchError::Cancelled)) => Err(cancelled()),
        Ok(Err(error)) => Err(fetch_problem(&error)),
        Err(panic) => {
            tracing::error!(%panic, "fetching panicked");
            Err(Problem::plain("internal", "the fetch failed; the daemon's log says how"))
        }
    }
}

fn told(response: FetchResponse) -> Value {
    let (body, body_encoding) = printable(response.body);
    let field = |(name, value): (String, Vec<u8>)| json!({ "name": name, "value": String::from_utf8_lossy(&value) });
    let hop =
        |redirect: &palyra_egress::Redirect| json!({ "status": redirect.status, "url": redirect.url.to_string() });
    json!({
        "status": response.status,
        "headers": response.headers.into_iter().map(field).collect::<Vec<_>>(),
        "body": body, "body_encoding": body_encoding, "truncated": response.truncated,
        "final_url": response.final_url.to_string(),
        "redirects": response.redirects.iter().map(hop).collect::<Vec<_>>(),
    })
}
