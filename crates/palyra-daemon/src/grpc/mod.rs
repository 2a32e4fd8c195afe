//! The gRPC services, on the UNIX socket and for paired devices. Each file adapts one service: it parses, calls the
//! engine, and packs the answer.

mod access;
mod approvals;
mod calls;
mod console;
mod daemon;
mod devices;
mod effects;
mod gate;
mod grants;
mod journal;
mod memory;
mod models;
mod policy;
mod routines;
mod runs;
mod skills;
mod standard;
mod tools;
mod vault;
mod workspaces;

use crate::mtls::RemoteDoor;
use palyra_api::ApiError;
use palyra_api::client::{MAX_MESSAGE_BYTES, MAX_REPLY_BYTES};
use palyra_api::v1::access_server::AccessServer;
use palyra_api::v1::approvals_server::ApprovalsServer;
use palyra_api::v1::calls_server::CallsServer;
use palyra_api::v1::console_server::ConsoleServer;
use palyra_api::v1::daemon_server::DaemonServer;
use palyra_api::v1::devices_server::DevicesServer;
use palyra_api::v1::effects_server::EffectsServer;
use palyra_api::v1::grants_server::GrantsServer;
use palyra_api::v1::journal_server::JournalServer;
use palyra_api::v1::memory_server::MemoryServer;
use palyra_api::v1::models_server::ModelsServer;
use palyra_api::v1::policy_server::PolicyServer;
use palyra_api::v1::routines_server::RoutinesServer;
use palyra_api::v1::runs_server::RunsServer;
use palyra_api::v1::skills_server::SkillsServer;
use palyra_api::v1::tools_server::ToolsServer;
use palyra_api::v1::vault_server::VaultServer;
use palyra_api::v1::workspaces_server::WorkspacesServer;
use palyra_engine::{Engine, EngineError, ErrorKind, VerifiedPeer};
use palyra_protocol::Problem;
use serde::Serialize;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::{Code, Request, Status};

/// What the daemon says about itself beyond the engine.
#[derive(Debug)]
pub struct About {
    /// Where its state is.
    pub state_dir: PathBuf,
    /// Where its configuration is, or would be.
    pub config_path: PathBuf,
    /// When it started.
    pub started_at_unix_ms: u64,
    /// Where its HTTP door is, if it is open.
    pub http_url: Option<String>,
    /// Where paired devices come in.
    pub(crate) remote: RemoteDoor,
    /// The agent runs.
    pub(crate) runs: palyra_agent::Runs,
    /// Told when somebody who may has asked the daemon to end.
    pub stop: Arc<Notify>,
}

/// The door: every service is this.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    engine: Engine,
    about: Arc<About>,
}

type Reply<T> = Result<tonic::Response<T>, Status>;
type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Every service behind its gate, for whichever listener.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    gate: gate::Gate,
    routes: Routes,
}

impl Services {
    /// Puts the services together.
    pub(crate) fn new(engine: Engine, about: About) -> Self {
        let gate = gate::Gate::new(engine.clone());
        let door = Door { engine, about: Arc::new(about) };
        Self { gate, routes: routes(&door).prepare() }
    }

    /// The services for a connection that says itself who is at its other end.
    pub(crate) fn guarded(&self) -> gate::Guarded<Routes> {
        tower::Layer::layer(&self.gate, self.routes.clone())
    }

    /// Serves on the socket.
    pub(crate) async fn serve(self, listener: UnixListener) -> Result<(), tonic::transport::Error> {
        tonic::transport::Server::builder()
            .layer(self.gate)
            .add_routes(self.routes)
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
    }
}

fn routes(door: &Door) -> Routes {
    macro_rules! service {
        ($server:ident) => {
            $server::new(door.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_REPLY_BYTES)
        };
    }
    let routes = Routes::new(service!(DaemonServer))
        .add_service(service!(WorkspacesServer))
        .add_service(service!(ToolsServer))
        .add_service(service!(CallsServer))
        .add_service(service!(ApprovalsServer))
        .add_service(service!(GrantsServer))
        .add_service(service!(EffectsServer))
        .add_service(service!(PolicyServer))
        .add_service(service!(JournalServer))
        .add_service(service!(AccessServer))
        .add_service(service!(VaultServer))
        .add_service(service!(MemoryServer))
        .add_service(service!(RoutinesServer))
        .add_service(service!(DevicesServer))
        .add_service(service!(RunsServer))
        .add_service(service!(ModelsServer))
        .add_service(service!(ConsoleServer))
        .add_service(service!(SkillsServer));
    standard::added_to(routes)
}

impl Door {
    /// Who is speaking, as the gate has established.
    fn peer<T>(&self, request: &Request<T>) -> Result<Arc<VerifiedPeer>, Status> {
        let peer = request.extensions().get::<Arc<VerifiedPeer>>().cloned();
        peer.ok_or_else(|| Status::internal("a request came past the gate"))
    }
}

/// An engine's refusal as a gRPC status: the kind picks the code, the caller gets the public message, the log the
/// chain.
fn refused(error: EngineError) -> Status {
    let code = match error.kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::Exhausted => Code::ResourceExhausted,
        ErrorKind::Conflict => Code::FailedPrecondition,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Unrecorded => Code::Unknown,
        ErrorKind::Internal => Code::Internal,
    };
    if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal) {
        tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
    }
    let Problem { code: name, message, hint, .. } = error.problem;
    ApiError { retry_after: error.retry_after, ..ApiError::new(&name, message, hint) }.into_status(code)
}

fn malformed(message: impl Into<String>) -> Status {
    ApiError::new("malformed_request", message, None).into_status(Code::InvalidArgument)
}

/// A caller's text as what it should be.
fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Status> {
    text.parse().map_err(|e: T::Err| malformed(e.to_string()))
}

/// A caller's text that may be absent.
fn optional<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Option<T>, Status> {
    if text.is_empty() { Ok(None) } else { parsed(text).map(Some) }
}

/// A record as the document that travels.
fn document<T: Serialize>(record: &T) -> Result<String, Status> {
    serde_json::to_string(record).map_err(|e| {
        tracing::error!(error = &e as &dyn std::error::Error, "a record has no document");
        Status::internal("a record cannot be told")
    })
}
