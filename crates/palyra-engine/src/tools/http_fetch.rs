//! `palyra.http.fetch`: one request to a host that the rules allow.
//!
//! A redirect may lead to a host that nobody decided about. So each hop to another origin, and each with another
//! method, is decided like a call to that host: what policy denies ends the fetch, and so does what needs more people
//! than have approved this call. Otherwise an open redirect on one host would carry its approval to every other.

use super::input::printable;
use super::schema::object;
use super::secrets::{self, Ways};
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::engine::Engine;
use crate::flow::execute::{Executed, Running, Stopped};
use crate::flow::resolve::{Refusal, fetch_problem, sandbox_problem};
use crate::vault::{Released, Replaced, RunCredentials, redaction_schema};
use palyra_egress::{
    Attached, Credentials as _, Denial, DenialCode, EgressObserver, FetchError, FetchLimits, FetchRequest,
    FetchResponse, FetchUrl, FetchWatch, OutgoingRequest,
};
use palyra_protocol::{
    Authority, DecisionKind, EgressRecord, ExecutorKind, Facets, Problem, RiskLevel, ToolCall, ToolCapability,
    ToolDefinition,
};
use palyra_sandbox::{CancelSignal, SandboxError};
use palyra_vault::Redactor;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(super) const NAME: &str = "palyra.http.fetch";

/// The most that a fetch brings back: outputs are kept in the journal.
const MAX_FETCH_BYTES: usize = 4 << 20;
/// What it brings back when a caller does not say.
const DEFAULT_FETCH_BYTES: usize = 256 << 10;

#[derive(Debug)]
struct HttpFetch(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(HttpFetch(ToolDefinition {
        name: NAME.parse()?,
        summary: "Fetch a URL from an allowed host".to_owned(),
        description:
            "Sends one HTTP request to a host that the operator allows. Redirects to other allowed hosts are followed with GET and HEAD, \
             if policy allows each of them; credentials never follow to another origin. Any status is a success of the call; `status` says which. Text comes as \
             it is, other bytes as base64, and `truncated` says when there was more."
                .to_owned(),
        input_schema: input(),
        output_schema: output(),
        capabilities: [ToolCapability::Network].into(),
        risk: RiskLevel::High,
        executor: ExecutorKind::Builtin,
        example: json!({ "url": "https://example.org/" }),
    })))
}

fn input() -> Value {
    object(
        json!({
            "url": { "type": "string", "minLength": 1, "maxLength": 8192, "description": "http or https, without a user name" },
            "method": { "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], "description": "GET when absent" },
            "headers": {
                "type": "object", "maxProperties": 64, "additionalProperties": { "type": "string", "maxLength": 8192 },
                "description": "further header fields",
            },
            "body": { "type": "string", "description": "what to send" },
            "body_encoding": { "enum": ["utf-8", "base64"], "description": "how `body` is written; utf-8 when absent" },
            "max_bytes": {
                "type": "integer", "minimum": 1, "maximum": MAX_FETCH_BYTES,
                "description": "the most bytes of the answer's body to keep; 262144 when absent",
            },
            "max_redirects": { "type": "integer", "minimum": 0, "maximum": 10, "description": "5 when absent" },
            "timeout_ms": { "type": "integer", "minimum": 1, "description": "30000 when absent; at most the configured limit" },
            "secrets": secrets::schema(Ways::Proxy),
        }),
        &["url"],
    )
}

fn output() -> Value {
    let field = json!({
        "type": "object", "properties": { "name": { "type": "string" }, "value": { "type": "string" } },
        "required": ["name", "value"],
    });
    let hop = json!({
        "type": "object", "properties": { "status": { "type": "integer" }, "url": { "type": "string" } },
        "required": ["status", "url"],
    });
    object(
        json!({
            "status": { "type": "integer" },
            "headers": { "type": "array", "items": field },
            "body": { "type": "string" }, "body_encoding": { "enum": ["utf-8", "base64"] },
            "truncated": { "type": "boolean" }, "final_url": { "type": "string" },
            "redirects": { "type": "array", "items": hop },
            "redacted": redaction_schema(),
        }),
        &["status", "headers", "body", "body_encoding", "truncated", "final_url", "redirects"],
    )
}

impl Tool for HttpFetch {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let (url, method, mut facets) = named(input)?;
        let body = input.bytes("/body", "/body_encoding")?;
        let request = FetchRequest::new(method, url, input.pairs("/headers"), body)?;
        // Nobody is asked about a host that no answer could open.
        place.fetcher.check(&request)?;
        secrets::bound(&mut facets.secrets, place);
        if let Err(problem) = secrets::check(&facets.secrets, place) {
            return Err(Refusal::rejected(problem).reaching(facets));
        }
        let defaults = FetchLimits::default();
        let longest = place.config.execution_timeout;
        let limits = FetchLimits {
            timeout: input.number("/timeout_ms").map_or(defaults.timeout, Duration::from_millis).min(longest),
            max_redirects: input.count("/max_redirects").unwrap_or(defaults.max_redirects),
            max_body_bytes: input.count("/max_bytes").unwrap_or(DEFAULT_FETCH_BYTES).min(MAX_FETCH_BYTES),
            ..defaults
        };
        Ok(Prepared::new(facets, Fetch { request, limits }))
    }

    fn rehearse(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Facets, Refusal> {
        Ok(named(input)?.2)
    }
}

/// The URL and the method that an input names, and its facets.
fn named(input: Input<'_>) -> Result<(FetchUrl, &str, Facets), Refusal> {
    let url = FetchUrl::parse(input.text("/url")).map_err(FetchError::Url)?;
    let method = input.optional("/method").unwrap_or("GET");
    let facets = Facets {
        hosts: vec![format!("{}:{}", url.host(), url.port())],
        method: Some(method.to_owned()),
        secrets: secrets::named(input)?,
        ..Facets::default()
    };
    Ok((url, method, facets))
}

/// A URL to fetch.
#[derive(Debug)]
struct Fetch {
    request: FetchRequest,
    limits: FetchLimits,
}

impl Job for Fetch {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move {
            let rules = run.config().egress_rules.rules().len();
            confined_to_rules(Executed::in_daemon(fetched(*self, run).await), rules)
        })
    }
}

/// What further requests of a call may do, and whom connections are told to.
pub(crate) struct Hops {
    engine: Engine,
    call: ToolCall,
    /// Whether somebody approved this call, or a grant covers it.
    approved: bool,
    /// How many people approved this very call.
    people: u32,
    observer: EgressObserver,
    /// What is attached to requests to bound endpoints.
    credentials: Option<Arc<RunCredentials>>,
    /// Who wants the next request: `the server redirects to`.
    who: &'static str,
}

impl Hops {
    pub(crate) async fn of(run: &Running<'_>, credentials: Option<Arc<RunCredentials>>, who: &'static str) -> Self {
        let engine = run.engine();
        let people = match run.authority() {
            Authority::Policy | Authority::Grant(_) => 0,
            Authority::Approval(id) => match engine.journal().approval(id).await {
                Ok(approval) => approval.people.max(1),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "an approval cannot be read");
                    0
                }
            },
        };
        let approved = people > 0 || matches!(run.authority(), Authority::Grant(_));
        let (engine, call, observer) = (engine.engine().clone(), run.call().clone(), run.egress().observer());
        Self { engine, call, approved, people, observer, credentials, who }
    }
}

impl FetchWatch for Hops {
    fn may_go(&self, next: &FetchRequest) -> Result<(), Denial> {
        let url = next.url();
        let facets = Facets {
            hosts: vec![format!("{}:{}", url.host(), url.port())],
            method: Some(next.method().to_owned()),
            skill: self.call.facets().skill.clone(),
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
        let message = format!("{} {target}, which {why}", self.who);
        Err(Denial::of(DenialCode::PolicyDenied, (url.host(), url.port()), message, hint))
    }

    fn connection(&self, record: &EgressRecord) {
        (self.observer)(record);
    }

    fn credentials(&self, next: &FetchRequest) -> Result<Attached, Denial> {
        let Some(credentials) = &self.credentials else { return Ok(Attached::default()) };
        let (url, values) = (next.url(), next.field_values().collect::<Vec<_>>());
        credentials.attach(&OutgoingRequest {
            tls: url.is_tls(),
            host: &url.host().to_string(),
            port: url.port(),
            method: next.method(),
            path: url.path(),
            values: &values,
        })
    }
}

/// Fetches on a thread of its own.
async fn fetched(job: Fetch, run: &Running<'_>) -> Result<Value, Stopped> {
    let (handle, signal) =
        CancelSignal::new().map_err(|error| sandbox_problem(&SandboxError::io("prepare a cancellation")(error)))?;
    let released = run.engine().release_secrets(run.call(), Vec::new()).await?;
    let credentials = released.as_ref().map(Released::credentials).transpose()?.flatten();
    let redactor = run.engine().released().of(run.call());
    redactor.iter().for_each(|redactor| run.egress().redact(redactor));
    let hops = Hops::of(run, credentials, "the server redirects to").await;
    let fetcher = Arc::clone(run.engine().fetcher());
    let mut task = tokio::task::spawn_blocking(move || fetcher.fetch(job.request, &job.limits, &signal, &hops));
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = run.egress().stop().cancelled() => {
            handle.cancel();
            task.await
        }
    };
    match joined {
        Ok(Ok(response)) => Ok(told(response, redactor.as_ref())),
        Ok(Err(FetchError::Cancelled)) => Err(Stopped::cancelled()),
        Ok(Err(error)) => Err(fetch_problem(&error).into()),
        Err(panic) => {
            tracing::error!(%panic, "fetching panicked");
            Err(Problem::plain("internal", "the fetch failed; the daemon's log says how").into())
        }
    }
}

fn confined_to_rules(mut executed: Executed, rules: usize) -> Executed {
    executed.enforcement["layers"] = json!([{
        "name": "egress_rules",
        "detail": format!("every hop asked of {rules} rule(s), its name resolved once, its address checked and connected to"),
        "applied": true,
    }]);
    executed
}

fn told(response: FetchResponse, redactor: Option<&Arc<Redactor>>) -> Value {
    let mut replaced = Replaced::default();
    let (body, body_encoding) = printable(replaced.clean(redactor, response.body, response.truncated));
    let mut field = |(name, value): (String, Vec<u8>)| {
        let value = replaced.clean(redactor, value, false);
        json!({ "name": name, "value": String::from_utf8_lossy(&value) })
    };
    let headers = response.headers.into_iter().map(&mut field).collect::<Vec<_>>();
    let hop =
        |redirect: &palyra_egress::Redirect| json!({ "status": redirect.status, "url": redirect.url.to_string() });
    let mut output = json!({
        "status": response.status, "headers": headers, "body": body, "body_encoding": body_encoding, "truncated": response.truncated,
        "final_url": response.final_url.to_string(),
        "redirects": response.redirects.iter().map(hop).collect::<Vec<_>>(),
    });
    if !replaced.is_empty() {
        output["redacted"] = replaced.told();
    }
    output
}
