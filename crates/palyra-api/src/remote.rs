//! The client on another machine: the same services over mutual TLS, as a paired device.

use crate::client::Connection;
use crate::error::ApiError;
use hyper_util::rt::TokioIo;
use palyra_identity::{ClientStream, ConnectionFault, DeviceCredentials, connect_device};
use palyra_protocol::{Principal, SystemClock};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

/// How long connecting may take, the handshake included.
const CONNECTING: Duration = Duration::from_secs(20);
/// How often a silent connection is asked whether it is there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// A daemon that this device was paired with.
#[derive(Debug, Clone)]
pub struct RemoteHost {
    /// Where it is: a host and a port.
    pub address: String,
    /// What this device shows there, and whom it trusts.
    pub credentials: Arc<DeviceCredentials>,
}

impl RemoteHost {
    /// A connection that the daemon has accepted, for one protocol.
    ///
    /// # Errors
    /// Nobody answers there, it is another daemon, or this device is not let in.
    pub async fn connect(&self, protocol: &[u8]) -> Result<ClientStream<TcpStream>, ApiError> {
        self.stream(protocol).await.map_err(|error| unreachable(&self.address, &error))
    }

    async fn stream(&self, protocol: &[u8]) -> io::Result<ClientStream<TcpStream>> {
        let connecting = async {
            let socket = TcpStream::connect(&self.address).await?;
            socket.set_nodelay(true)?;
            connect_device(&self.credentials, Arc::new(SystemClock), protocol, socket).await
        };
        tokio::time::timeout(CONNECTING, connecting).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }
}

impl Connection {
    /// Connects to a daemon on another machine.
    ///
    /// # Errors
    /// Nobody answers there, it is another daemon, or this device is not let in.
    pub async fn open_remote(host: &RemoteHost, act_as: Option<&Principal>) -> Result<Self, ApiError> {
        let to = host.clone();
        let connect = tower::service_fn(move |_| {
            let to = to.clone();
            async move { to.stream(b"h2").await.map(TokioIo::new) }
        });
        let (every, patience) = PING;
        // The address is never resolved: the connector ignores it.
        let channel = Endpoint::from_static("http://palyra.invalid")
            .http2_keep_alive_interval(every)
            .keep_alive_timeout(patience)
            .connect_with_connector(connect)
            .await
            .map_err(|error| unreachable(&host.address, &error))?;
        Self::over(channel, act_as).map(|connection| connection.of_device(&host.credentials))
    }
}

/// Why a daemon on another machine is not reached, in words that tell a person what to do.
fn unreachable(address: &str, error: &(dyn Error + 'static)) -> ApiError {
    if let Some(fault) = ConnectionFault::of(error) {
        return ApiError::new(fault.code(), format!("`{address}`: {fault}"), Some(fault.hint().to_owned()));
    }
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let message = format!("no daemon answers at `{address}`: {cause}");
    let hint = "is it running, and does it listen beyond its own machine? see `palyra doctor` there";
    ApiError::new("daemon_unreachable", message, Some(hint.to_owned()))
}
