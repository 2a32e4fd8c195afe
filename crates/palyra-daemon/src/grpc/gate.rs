//! The gate: who is speaking, and whether they may call this method at all. Every request passes it before any service
//! sees it; what comes out the other side carries the [`VerifiedPeer`] that methods act for.

use super::{malformed, parsed, refused};
use crate::doors::DoorName;
use crate::mtls::token_of_a_device;
use crate::rights;
use palyra_api::{ACT_AS, AUTHORIZATION, ApiError};
use palyra_engine::{Engine, VerifiedPeer, WorkspaceNaming};
use palyra_identity::ConnectedDevice;
use palyra_protocol::{Principal, Problem};
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Status};

/// Puts the gate before a service.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    engine: Engine,
    uid: u32,
}

impl Gate {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, uid: rustix::process::geteuid().as_raw() }
    }

    /// Lets a request in, or says why not.
    fn enter<B>(&self, request: &http::Request<B>) -> Result<VerifiedPeer, Status> {
        let peer = self.identify(request)?;
        let unknown = || {
            let message = format!("there is no method `{}`", request.uri().path());
            let hint = Some("do `palyra` and `palyrad` have the same version?".to_owned());
            ApiError::new("unknown_method", message, hint).into_status(Code::Unimplemented)
        };
        let right = rights::of(request.uri().path()).ok_or_else(unknown)?;
        // Whose process it is matters where a person speaks.
        let peer = if right.action.is_peoples() { peer.of_process(&self.engine, pid_of(request)) } else { peer };
        self.engine.admit(&peer, right.action, right.on.resource()).map_err(refused)?;
        Ok(peer)
    }

    /// Who is speaking: the paired device at the other end; or the uid that the kernel reports for the socket's other
    /// end, and whom the token speaks for, if one is shown; the agent they act as, if any. Whoever shows something as a
    /// token is never taken for the owner.
    fn identify<B>(&self, request: &http::Request<B>) -> Result<VerifiedPeer, Status> {
        let naming = naming(request)?;
        let peer = match request.extensions().get::<Arc<ConnectedDevice>>() {
            Some(device) => self.by_device(device, &naming, request)?,
            None => {
                let named = self.engine.in_named_workspace(self.on_socket(request)?, &naming);
                named.and_then(|peer| self.engine.kept_to_client(peer, pid_of(request))).map_err(refused)?
            }
        };
        let Some(name) = request.headers().get(ACT_AS) else { return Ok(peer) };
        let name = name.to_str().map_err(|_| malformed("the name to act as is not text"))?;
        let name: Principal = parsed(name)?;
        self.engine.act_as(peer, name).map_err(refused)
    }

    /// A paired device, by its certificate alone.
    fn by_device<B>(
        &self,
        device: &Arc<ConnectedDevice>,
        naming: &WorkspaceNaming,
        request: &http::Request<B>,
    ) -> Result<VerifiedPeer, Status> {
        if request.headers().contains_key(AUTHORIZATION) {
            let Problem { code, message, hint, .. } = token_of_a_device();
            return Err(ApiError::new(&code, message, hint).into_status(Code::Unauthenticated));
        }
        VerifiedPeer::by_device(&self.engine, device, naming, DoorName::Remote.channel()).map_err(refused)
    }

    /// Somebody on the daemon's own socket.
    fn on_socket<B>(&self, request: &http::Request<B>) -> Result<VerifiedPeer, Status> {
        let credentials = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let uid = credentials.map(|c| c.uid());
        let channel = DoorName::Cli.channel();
        let mut peer = VerifiedPeer::on_local_socket(uid, self.uid, channel.clone()).map_err(refused)?;
        let shown: Vec<_> = request.headers().get_all(AUTHORIZATION).iter().collect();
        if !shown.is_empty() {
            let token = match shown.as_slice() {
                [one] => one.to_str().ok().and_then(|text| text.strip_prefix("Bearer ")),
                _ => None,
            };
            // What is no bearer token is refused like a wrong one.
            let token = token.unwrap_or("");
            peer = VerifiedPeer::by_token(&self.engine, token, "local socket", channel).map_err(refused)?;
        }
        Ok(peer)
    }
}

/// What a request says of its workspace: one of each at most, as text.
fn naming<B>(request: &http::Request<B>) -> Result<WorkspaceNaming, Status> {
    let text = |key: &str| -> Result<Option<String>, Status> {
        let mut all = request.headers().get_all(key).iter();
        let unclear = || malformed(format!("`{key}` is not one text"));
        let Some(value) = all.next() else { return Ok(None) };
        let plain = value.to_str().ok().filter(|_| all.next().is_none());
        palyra_api::unescaped(plain.ok_or_else(unclear)?).map(Some).ok_or_else(unclear)
    };
    let (name, directory) = (text(palyra_api::WORKSPACE)?, text(palyra_api::DIRECTORY)?);
    WorkspaceNaming::parse(name.as_deref(), directory.as_deref()).map_err(refused)
}

/// The process at the other end of the socket.
pub(super) fn pid_of<B>(request: &http::Request<B>) -> Option<u32> {
    process(request.extensions().get::<UdsConnectInfo>())
}

/// The process that a connection came from.
pub(super) fn process(from: Option<&UdsConnectInfo>) -> Option<u32> {
    from.and_then(|info| info.peer_cred).and_then(|c| c.pid()).and_then(|pid| u32::try_from(pid).ok())
}

impl<S> tower::Layer<S> for Gate {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { gate: self.clone(), inner }
    }
}

/// A service behind the gate.
#[derive(Debug, Clone)]
pub(crate) struct Guarded<S> {
    gate: Gate,
    inner: S,
}

impl<S, B> Service<http::Request<B>> for Guarded<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        match self.gate.enter(&request) {
            Ok(peer) => {
                request.extensions_mut().insert(Arc::new(peer));
                Box::pin(self.inner.call(request))
            }
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}
