//! What a device's connection is served with: the gRPC services and the HTTP door of this machine, or MCP line by line.
//!
//! Which of them a request is for, its content type says. Who makes it, the connection says: the device goes along in
//! the request's extensions, and both gates look there.

use crate::doors::Doors;
use crate::grpc::Services;
use crate::http::{self, ErrorResponses, HttpError, MAX_HEAD, WRITE_TIME, http1};
use crate::mcp;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use palyra_identity::{Accepted, ConnectedDevice, ServerStream};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt as _;

/// How many requests one connection may have under way.
const MAX_STREAMS: u32 = 256;
/// How often a silent connection is asked whether it is there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// How long a connection may take to end after it was told to.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Stream = std::pin::Pin<Box<TimeoutStream<ServerStream<TcpStream>>>>;

/// The services that devices reach.
#[derive(Debug, Clone)]
pub(super) struct DeviceService {
    grpc: Services,
    http: axum::Router,
}

/// How a connection's end is asked for, whichever protocol it speaks.
trait Graceful: Future<Output = Result<(), hyper::Error>> {
    fn end(self: std::pin::Pin<&mut Self>);
}

impl DeviceService {
    pub(super) fn new(doors: &Doors, grpc: Services) -> Result<Self, HttpError> {
        Ok(Self { grpc, http: http::for_devices(doors.clone())? })
    }

    /// Serves one connection until it ends, its device is shut out, or the daemon ends.
    pub(super) async fn serve(&self, accepted: Accepted<TcpStream>, doors: &Doors) {
        let Accepted { device, alpn, stream } = accepted;
        let device = Arc::new(device);
        if alpn.as_deref() == Some(palyra_api::MCP_PROTOCOL) {
            return mcp::socket::device(doors.clone(), device, stream).await;
        }
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIME));
        let stream: Stream = Box::pin(stream);
        let service = service_fn({
            let (services, device) = (self.clone(), Arc::clone(&device));
            move |request: Request<Incoming>| services.clone().answer(Arc::clone(&device), request)
        });
        if alpn.as_deref() == Some(b"h2") {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let (every, patience) = PING;
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
                .keep_alive_interval(Some(every))
                .keep_alive_timeout(patience);
            until_cut_off(builder.serve_connection(TokioIo::new(stream), service), &device, doors).await;
        } else {
            let connection = http1().serve_connection(TokioIo::new(ErrorResponses::new(stream)), service);
            until_cut_off(connection, &device, doors).await;
        }
    }

    /// Answers one request of a device.
    async fn answer(
        self,
        device: Arc<ConnectedDevice>,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        request.extensions_mut().insert(device);
        let grpc =
            request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if grpc {
            return Ok(self.grpc.guarded().oneshot(request).await?.map(Body::new));
        }
        self.http.oneshot(request.map(Body::new)).await
    }
}

/// Serves a connection. It is told to end when its device is shut out, when its certificate is over, and when the
/// daemon ends.
async fn until_cut_off(connection: impl Graceful, device: &ConnectedDevice, doors: &Doors) {
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = doors.engine.cut_off(device) => {
            connection.as_mut().end();
            tokio::time::timeout(LAST_WORDS, connection).await.unwrap_or(Ok(()))
        }
        () = doors.ending.closing().cancelled() => {
            connection.as_mut().end();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(error = &error as &dyn std::error::Error, "a device's connection ended early");
    }
}

impl<I, S> Graceful for hyper::server::conn::http1::Connection<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send,
    S: hyper::service::HttpService<Incoming, ResBody = Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn end(self: std::pin::Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, E> Graceful for http2::Connection<I, S, E>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: hyper::service::HttpService<Incoming, ResBody = Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, Body>,
{
    fn end(self: std::pin::Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
