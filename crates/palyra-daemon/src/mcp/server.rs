//! The server: what it says of itself, what it lists, and who is asking.

use super::{answer, tools};
use crate::doors::Doors;
use axum::http::request::Parts;
use palyra_engine::{CatalogTool, Engine, EngineError, VerifiedPeer};
use palyra_protocol::{CallId, SessionId};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, CustomRequest, CustomResult, ErrorCode, Extensions, Implementation, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, RequestId, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How many calls of one connection may be under way at once.
const MAX_CALLS: usize = 64;

const INSTRUCTIONS: &str = "Every tool here runs through Palyra: it is decided by policy, approved by a person where the \
                            policy says so, carried out in a sandbox, and recorded. A call that waits for a person takes as \
                            long as they need; do not repeat it. A refusal says why in `error`: act on its `code` and `hint`.";

/// Who is asking.
#[derive(Debug)]
pub(crate) enum Caller {
    /// Whoever came in over the daemon's own socket. Their credentials are looked at anew for each request.
    Local(super::socket::Credentials),
    /// Whoever the HTTP door's gate let in: each request says.
    Http,
}

/// One client's view of the engine.
#[derive(Debug, Clone)]
pub(crate) struct McpServer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    doors: Doors,
    caller: Caller,
    /// What a caller that names no session belongs to.
    session: SessionId,
    /// Calls under way, by the id that the client gave its request: what a cancellation names.
    calls: Mutex<HashMap<RequestId, CallId>>,
    places: Arc<Semaphore>,
    told_of_changes: AtomicBool,
    /// The list that the client is told of changes to: what it was shown first, or would have been shown when it was
    /// ready.
    shown: Mutex<Option<Vec<Arc<CatalogTool>>>>,
    /// Cancelled when the connection is gone.
    gone: CancellationToken,
    _gone: DropGuard,
}

impl McpServer {
    pub(crate) fn new(doors: Doors, caller: Caller) -> Self {
        let gone = CancellationToken::new();
        let inner = Inner {
            doors,
            caller,
            session: SessionId::mint(),
            calls: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_CALLS)),
            told_of_changes: AtomicBool::new(false),
            shown: Mutex::default(),
            _gone: gone.clone().drop_guard(),
            gone,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.inner.doors.engine
    }

    pub(super) fn doors(&self) -> &Doors {
        &self.inner.doors
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.inner.session
    }

    pub(super) fn places(&self) -> Arc<Semaphore> {
        Arc::clone(&self.inner.places)
    }

    /// Ends a call with this client's session, unless it ends before.
    pub(super) fn tie_to_session(&self, peer: Arc<VerifiedPeer>, call: CallId) {
        let (engine, gone) = (self.engine().clone(), self.inner.gone.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = gone.cancelled() => engine.abandon(&peer, &call),
                _ended = engine.redeemed_end(&call) => {}
            }
        });
    }

    pub(super) fn is_http(&self) -> bool {
        matches!(self.inner.caller, Caller::Http)
    }

    /// Who makes a request.
    pub(super) fn peer(&self, extensions: &Extensions) -> Result<Arc<VerifiedPeer>, ErrorData> {
        match &self.inner.caller {
            Caller::Local(credentials) => {
                credentials.identify(self.engine()).map(Arc::new).map_err(answer::not_admitted)
            }
            Caller::Http => extensions
                .get::<Parts>()
                .and_then(|parts| parts.extensions.get::<Arc<VerifiedPeer>>().cloned())
                .ok_or_else(|| ErrorData::internal_error("a request came past the gate", None)),
        }
    }

    /// The name that the HTTP door gave a request.
    pub(super) fn request(extensions: &Extensions) -> Option<palyra_protocol::RequestId> {
        extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<palyra_protocol::RequestId>().cloned())
    }

    /// Enters a call under its request's id, until the guard is dropped.
    pub(super) fn enter(&self, request: RequestId, call: CallId) -> Entered {
        lock(&self.inner.calls).insert(request.clone(), call.clone());
        Entered { server: self.clone(), request, call, stays: false }
    }

    /// Withdraws a call, as its own caller may.
    pub(super) fn withdraw(&self, peer: Arc<VerifiedPeer>, call: CallId) {
        let engine = self.engine().clone();
        tokio::spawn(async move {
            // It may have ended in the meantime.
            if let Err(error) = engine.cancel(&peer, &call).await {
                tracing::debug!(%error, %call, "a call was not withdrawn");
            }
        });
    }

    fn listing(&self, peer: &VerifiedPeer) -> Result<Vec<Tool>, EngineError> {
        // Held while it is looked: a client that asks before it is watched for must not miss a change in between.
        let mut shown = lock(&self.inner.shown);
        let tools = self.engine().callable(peer)?;
        let told = tools.iter().map(|tool| tools::told(tool)).collect();
        shown.get_or_insert(tools);
        Ok(told)
    }

    /// Waits until the peer would be shown another list.
    async fn list_changed(&self, peer: &VerifiedPeer, seen: &mut Vec<Arc<CatalogTool>>) {
        let (mut rights, mut tools) = (self.engine().watch_rights(), self.engine().watch_tools());
        loop {
            // Looked at after listening began, so that nothing happens in between.
            let now = self.seen(peer);
            // Another tool of the same name is another tool.
            let same = now.len() == seen.len() && now.iter().zip(seen.iter()).all(|(now, then)| Arc::ptr_eq(now, then));
            if !same {
                *seen = now;
                return;
            }
            let changed = tokio::select! {
                changed = rights.changed() => changed,
                changed = tools.changed() => changed,
            };
            if changed.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// The tools that the peer would be shown now. Whoever may not look sees nothing.
    fn seen(&self, peer: &VerifiedPeer) -> Vec<Arc<CatalogTool>> {
        self.engine().callable(peer).unwrap_or_default()
    }
}

/// A call that its client can name.
#[derive(Debug)]
pub(super) struct Entered {
    server: McpServer,
    request: RequestId,
    call: CallId,
    stays: bool,
}

impl Entered {
    /// The call is known by another name: it was made before, and this is a repetition.
    pub(super) fn is(&mut self, call: &CallId) {
        if self.call != *call {
            self.call = call.clone();
            lock(&self.server.inner.calls).insert(self.request.clone(), call.clone());
        }
    }

    /// The call.
    pub(super) fn call(&self) -> &CallId {
        &self.call
    }

    /// Leaves the call where a cancellation finds it: the SDK gives a cancelled request up before it tells that it was
    /// cancelled. Nothing piles up, because a request is given up for that reason, or with its connection.
    pub(super) fn stay(mut self) {
        self.stays = true;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let mut calls = lock(&self.server.inner.calls);
        // A client that used one id twice names the later call by it.
        if calls.get(&self.request) == Some(&self.call) {
            calls.remove(&self.request);
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut info = ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS);
        info.server_info = Implementation::new("palyra", env!("CARGO_PKG_VERSION"));
        info.server_info.title = Some("Palyra".to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let peer = self.peer(&context.extensions)?;
        let tools = self.listing(&peer).map_err(answer::not_admitted)?;
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, context).await.map(CallToolResponse::Complete)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let current = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let method = request.method.as_str();
        // The current revision has these no more, whatever they bring.
        if current && GONE.contains(&method) {
            return Err(no_such_method(method));
        }
        Err(not_understood(method))
    }

    // What was not declared is not there; the SDK would answer with empty lists.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        let Some(request) = cancelled.request_id else { return };
        let call = lock(&self.inner.calls).remove(&request);
        if let (Some(call), Ok(peer)) = (call, self.peer(&context.extensions)) {
            self.withdraw(peer, call);
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Ok(peer) = self.peer(&context.extensions) else { return };
        if self.inner.told_of_changes.swap(true, Ordering::Relaxed) {
            return;
        }
        let gone = self.inner.gone.clone();
        let mut seen = lock(&self.inner.shown).get_or_insert_with(|| self.seen(&peer)).clone();
        // The connection must be able to end while this waits, so it holds no part of it.
        let server = Self::new(self.inner.doors.clone(), Caller::Http);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = gone.cancelled() => return,
                    () = server.list_changed(&peer, &mut seen) => {}
                }
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, _requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let peer = self.peer(&context.request_context().extensions)?;
        let mut seen = self.seen(&peer);
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.doors().ending.closing().cancelled() => return Ok(()),
                () = self.list_changed(&peer, &mut seen) => {}
            }
            if context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Requests that are served. One that the SDK did not recognise has parameters of another shape.
const SERVED: [&str; 6] = ["initialize", "ping", "server/discover", "subscriptions/listen", "tools/call", "tools/list"];

/// Those that the current revision has no more.
const GONE: [&str; 2] = ["initialize", "ping"];

fn no_such_method(method: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.chars().take(80).collect::<String>(), None)
}

/// Why a request that the SDK did not recognise is not served.
pub(super) fn not_understood(method: &str) -> ErrorData {
    if !SERVED.contains(&method) {
        return no_such_method(method);
    }
    let message = format!("the parameters of `{method}` are not of the shape that the protocol gives them");
    let data = json!({ "code": "malformed_request", "message": message });
    ErrorData::invalid_params(message, Some(data))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
