//! `palyra.http.fetch`: one request to a host that the rules allow.

use crate::execute::{cancelled, printable};
use crate::resolve::{fetch_problem, sandbox_problem};
use crate::work::FetchWork;
use palyra_protocol::Problem;
use palyra_sandbox::CancelSignal;
use palyra_sandbox::egress::{EgressObserver, FetchError, FetchResponse, Fetcher};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Fetches on a thread of its own.
pub(crate) async fn run(
    fetcher: Arc<Fetcher>,
    work: FetchWork,
    observer: EgressObserver,
    cancel: &CancellationToken,
) -> Result<Value, Problem> {
    let (handle, signal) = CancelSignal::new().map_err(|error| sandbox_problem(&error))?;
    let mut task = tokio::task::spawn_blocking(move || fetcher.fetch(work.request, &work.limits, &signal, &*observer));
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
    let hop = |redirect: &palyra_sandbox::egress::Redirect| json!({ "status": redirect.status, "url": redirect.url.to_string() });
    json!({
        "status": response.status,
        "headers": response.headers.into_iter().map(field).collect::<Vec<_>>(),
        "body": body, "body_encoding": body_encoding, "truncated": response.truncated,
        "final_url": response.final_url.to_string(),
        "redirects": response.redirects.iter().map(hop).collect::<Vec<_>>(),
    })
}
