//! `tools/call`: a proposal on the one path, and a client that is told how it goes.
//!
//! The call is the engine's, not the connection's. A client that goes away finds the outcome in the journal, and gets
//! it again with the same idempotency key. A client that cancels withdraws the call.

use super::answer;
use super::elicit::{self, Question};
use super::server::{Entered, McpServer};
use palyra_engine::{CallInProgress, CallUpdate, EngineError, OutputWatcher, Proposal, VerifiedPeer, tools};
use palyra_protocol::{ApprovalRecord, CallState, Carrier, Problem, Review};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ProgressNotificationParam, ProgressToken, ProtocolVersion, RequestMetaObject,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

/// How often a client that waits for a person hears that it still does.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

impl McpServer {
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let peer = self.peer(&context.extensions)?;
        let Ok(_place) = self.places().try_acquire_owned() else { return Ok(crowded()) };
        let _owed = self.doors().ending.owe();
        let proposal =
            Proposal { request: Self::request(&context.extensions), ..self.proposal(request, &context.meta)? };
        let call = self.engine().propose(&peer, proposal);
        let entered = self.enter(context.id.clone(), call.call_id.clone());
        if context.ct.is_cancelled() {
            // The cancellation came before there was a call to name.
            self.withdraw(Arc::clone(&peer), call.call_id.clone());
        }
        self.follow(call, entered, peer, context).await
    }

    /// What the client asks for. The names in `_meta` are its own: opaque to us, checked for their form.
    fn proposal(&self, request: CallToolRequestParams, meta: &RequestMetaObject) -> Result<Proposal, ErrorData> {
        let tool = self.doors().canonical(request.name.into_owned());
        let input = Value::Object(request.arguments.unwrap_or_default());
        Ok(Proposal {
            tool,
            input: input.to_string().into_bytes(),
            session: Some(named(meta, "palyra/session")?.unwrap_or_else(|| self.session().clone())),
            run: named(meta, "palyra/run")?,
            idempotency_key: named(meta, "palyra/idempotency-key")?,
            request: None,
            carrier: Carrier::Daemon,
        })
    }

    /// Waits for the end and tells the client how it goes.
    async fn follow(
        &self,
        call: CallInProgress,
        mut entered: Entered,
        peer: Arc<VerifiedPeer>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let CallInProgress { mut updates, mut end, output, .. } = call;
        let mut progress = Progress::new(&context, output);
        // Put once: whoever closed it without an answer is not asked again.
        let (mut question, mut put): (Option<Question>, bool) = (None, false);
        let mut news = true;
        let mut shut_out = std::pin::pin!(self.engine().shut_out(&peer));
        let end = loop {
            tokio::select! {
                biased;
                error = &mut shut_out => break Ok(Err(error)),
                end = &mut end => break end,
                update = updates.recv(), if news => match update {
                    Ok(update) => {
                        entered.is(&update.call_id);
                        if !put && waiting(&update).is_some() {
                            put = true;
                            question = self.question(&update, &peer, &context);
                        }
                        progress.tell(&update).await;
                        if started_in_background(&update) {
                            if !self.disconnecting_cancels(&context) {
                                self.tie_to_session(Arc::clone(&peer), update.call_id.clone());
                            }
                            return Ok(answer::running(&update));
                        }
                    }
                    Err(_) => news = false,
                },
                () = progress.due() => progress.still().await,
                () = elicit::answered(&mut question) => question = None,
                () = context.ct.cancelled() => {
                    if self.disconnecting_cancels(&context) {
                        self.withdraw(Arc::clone(&peer), entered.call().clone());
                    } else {
                        entered.stay();
                    }
                    // Nobody reads this: the client cancelled, or is gone.
                    return Err(ErrorData::internal_error("the request was cancelled", None));
                }
            }
        };
        // What a token lost meanwhile, it lost for what it waited for as well.
        if let Err(error) = self.engine().still_opens(&peer) {
            return Ok(answer::failed(&error, Some(entered.call())));
        }
        match end {
            Ok(Ok(update)) => answer::ended(&update),
            Ok(Err(error)) => Ok(answer::failed(&error, Some(entered.call()))),
            Err(_) => Err(ErrorData::internal_error("the call ended without a word", None)),
        }
    }

    /// Over HTTP the current revision cancels by closing the response; in all else a lost connection is not a wish, nor
    /// is one that the daemon ended.
    fn disconnecting_cancels(&self, context: &RequestContext<RoleServer>) -> bool {
        self.is_http()
            && !self.doors().ending.closing().is_cancelled()
            && context.protocol_version().is_some_and(|v| v >= ProtocolVersion::V_2026_07_28)
    }

    fn question(
        &self,
        update: &CallUpdate,
        peer: &Arc<VerifiedPeer>,
        context: &RequestContext<RoleServer>,
    ) -> Option<Question> {
        let approval = waiting(update)?;
        Question::put(self.engine().clone(), Arc::clone(peer), approval, context)
    }
}

/// Whether a call is a background process that runs now: its caller goes on, and the call does too.
fn started_in_background(update: &CallUpdate) -> bool {
    update.state == CallState::Executing && update.tool == tools::PROCESS_START
}

/// The question that a call waits for.
fn waiting(update: &CallUpdate) -> Option<&Arc<ApprovalRecord>> {
    update.approval.as_ref().filter(|_| update.state == CallState::AwaitingApproval)
}

/// A name that a client gave in `_meta`.
fn named<T: FromStr<Err: std::fmt::Display>>(meta: &RequestMetaObject, key: &str) -> Result<Option<T>, ErrorData> {
    let refused = |why: String| {
        let data = json!({ "code": "malformed_request", "message": why });
        ErrorData::invalid_params(format!("`_meta[\"{key}\"]`: {why}"), Some(data))
    };
    match meta.0.0.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => text.parse().map(Some).map_err(|e: T::Err| refused(e.to_string())),
        Some(_) => Err(refused("this is no text".to_owned())),
    }
}

fn crowded() -> CallToolResult {
    let problem = Problem::new(
        "too_many_calls",
        "too many calls of this connection are under way",
        "wait until some of them have ended",
    );
    answer::failed(&EngineError::new(palyra_engine::ErrorKind::Exhausted, problem), None)
}

/// Tells a client that wants to know how a call goes.
struct Progress {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    told: u32,
    waiting_for: Option<Arc<ApprovalRecord>>,
    again: Interval,
    /// Whether its process runs, or whatever else carries it out.
    running: bool,
    output: OutputWatcher,
    newest: NewestLine,
}

impl Progress {
    fn new(context: &RequestContext<RoleServer>, output: OutputWatcher) -> Self {
        let mut again = interval_at(tokio::time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let token = context.meta.get_progress_token();
        let (running, newest) = (false, NewestLine::default());
        Self { peer: context.peer.clone(), token, told: 0, waiting_for: None, again, running, output, newest }
    }

    async fn tell(&mut self, update: &CallUpdate) {
        let known = std::mem::replace(&mut self.waiting_for, waiting(update).cloned());
        match (update.state, &self.waiting_for) {
            (_, Some(approval)) if known.is_none() => {
                self.again.reset();
                let message = where_to_approve(approval);
                self.send(message).await;
            }
            (CallState::Executing, None) => {
                self.running = true;
                self.again.reset();
                if self.told > 0 {
                    self.send("approved; running".to_owned()).await;
                }
            }
            _ => {}
        }
    }

    /// Comes when a client that waits for a person, or for a process, has heard nothing for a while.
    async fn due(&mut self) {
        if self.token.is_none() || (self.waiting_for.is_none() && !self.running) {
            return std::future::pending().await;
        }
        self.again.tick().await;
    }

    async fn still(&mut self) {
        let message = match self.waiting_for.as_deref() {
            Some(approval) => where_to_approve(approval),
            None => {
                while let Some(piece) = self.output.ready() {
                    self.newest.push(&piece.bytes);
                }
                self.newest.told().map_or_else(|| "running".to_owned(), |line| format!("running: {line}"))
            }
        };
        self.send(message).await;
    }

    async fn send(&mut self, message: String) {
        let Some(token) = &self.token else { return };
        self.told += 1;
        let told = ProgressNotificationParam::new(token.clone(), f64::from(self.told)).with_message(message);
        // A client that does not listen still gets the answer.
        drop(self.peer.notify_progress(told).await);
    }
}

/// How much of what would run is shown to whoever waits.
const MAX_SHOWN: usize = 300;

fn where_to_approve(approval: &ApprovalRecord) -> String {
    let what = shortened(&Review::of(approval).headline());
    format!(
        "waiting for a person to approve `{}`: {what} (call {}). A person answers with `palyra approvals decide {} allow`, or `deny`",
        approval.tool, approval.call_id, approval.approval_id,
    )
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The newest line of what a process writes, of which no more is kept than is shown.
#[derive(Debug, Default)]
struct NewestLine {
    /// The last line that ended.
    whole: Vec<u8>,
    /// The one that has not.
    begun: Vec<u8>,
}

impl NewestLine {
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' if self.begun.iter().all(u8::is_ascii_whitespace) => self.begun.clear(),
                b'\n' | b'\r' => self.whole = std::mem::take(&mut self.begun),
                byte if self.begun.len() < 4 * MAX_SHOWN => self.begun.push(*byte),
                _ => {}
            }
        }
    }

    fn told(&self) -> Option<String> {
        let blank = self.begun.iter().all(u8::is_ascii_whitespace);
        let line = if blank { &self.whole } else { &self.begun };
        let text = palyra_protocol::display::safe(String::from_utf8_lossy(line).trim());
        (!text.is_empty()).then(|| shortened(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_line_is_the_last_that_says_something() {
        let mut newest = NewestLine::default();
        assert_eq!(newest.told(), None);
        newest.push(b"one\ntwo\n\n  \n");
        assert_eq!(newest.told().as_deref(), Some("two"));
        newest.push(b"progress 5%\rprogress 6%");
        assert_eq!(newest.told().as_deref(), Some("progress 6%"));
        newest.push(&[b'x'; 10_000]);
        assert!(newest.begun.len() <= 4 * MAX_SHOWN && newest.told().unwrap().chars().count() == MAX_SHOWN + 1);
        newest.push(b"\n\x1b[31mred\xff");
        assert!(!newest.told().unwrap().contains('\x1b'));
    }
}
