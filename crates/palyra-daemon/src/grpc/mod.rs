//! The gRPC door on the UNIX socket. Each file adapts one service: it parses, calls the engine, and packs the answer.

mod approvals;
mod calls;
mod daemon;
mod grants;
mod journal;
mod policy;
mod tools;

use palyra_api::client::MAX_MESSAGE_BYTES;
use palyra_api::v1::approvals_server::ApprovalsServer;
use palyra_api::v1::calls_server::CallsServer;
use palyra_api::v1::daemon_server::DaemonServer;
use palyra_api::v1::grants_server::GrantsServer;
use palyra_api::v1::journal_server::JournalServer;
use palyra_api::v1::policy_server::PolicyServer;
use palyra_api::v1::tools_server::ToolsServer;
use palyra_api::{ACT_AS, ApiError};
use palyra_engine::{Engine, EngineError, ErrorKind, VerifiedPeer};
use palyra_protocol::{ChannelId, Principal, Problem};
use serde::Serialize;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::UdsConnectInfo;
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
}

/// The door: every service is this.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    engine: Engine,
    about: Arc<About>,
    uid: u32,
}

type Reply<T> = Result<tonic::Response<T>, Status>;
type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves every service on the socket.
pub(crate) async fn serve(engine: Engine, about: About, listener: UnixListener) -> Result<(), tonic::transport::Error> {
    let door = Door { engine, about: Arc::new(about), uid: rustix::process::geteuid().as_raw() };
    macro_rules! service {
        ($server:ident) => {
            $server::new(door.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES)
        };
    }
    tonic::transport::Server::builder()
        .add_service(service!(DaemonServer))
        .add_service(service!(ToolsServer))
        .add_service(service!(CallsServer))
        .add_service(service!(ApprovalsServer))
        .add_service(service!(GrantsServer))
        .add_service(service!(PolicyServer))
        .add_service(service!(JournalServer))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
}

impl Door {
    /// Who is speaking: the uid that the kernel reports for the socket's other end, and the agent it acts as, if any.
    fn peer<T>(&self, request: &Request<T>) -> Result<VerifiedPeer, Status> {
        let credentials = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let channel: ChannelId = "cli".parse().map_err(|_| Status::internal("the channel has no name"))?;
        let peer = VerifiedPeer::on_local_socket(credentials.map(|c| c.uid()), self.uid, channel).map_err(refused)?;
        let Some(name) = request.metadata().get(ACT_AS) else { return Ok(peer) };
        let name = name.to_str().map_err(|_| malformed("the name to act as is not text"))?;
        let name: Principal = parsed(name)?;
        self.engine.act_as(peer, name).map_err(refused)
    }
}

/// An engine's refusal as a gRPC status: the kind picks the code, the caller gets the public message, the log the chain.
fn refused(error: EngineError) -> Status {
    let code = match error.kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::Conflict => Code::FailedPrecondition,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Internal => Code::Internal,
    };
    if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal) {
        tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
    }
    let Problem { code: name, message, hint, .. } = error.problem;
    ApiError::new(&name, message, hint).into_status(code)
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
