//! MCP line by line, for `palyra mcp serve`, which does nothing but pass bytes on: on a UNIX socket of its own, and for
//! paired devices.
//!
//! The first line is a greeting: who the client speaks as. What follows is the protocol, one message a line. The socket
//! is the daemon's user's alone, like the other one, and it never speaks for the owner: a client shows a token, or acts
//! as an agent of the owner's. A paired device is known by its certificate and acts as an agent too.

use super::lines::Lines;
use super::{Caller, McpServer};
use crate::doors::{DoorName, Doors};
use crate::mtls::token_of_a_device;
use palyra_engine::{Engine, EngineError, ErrorKind, VerifiedPeer, WorkspaceNaming};
use palyra_identity::{ConnectedDevice, ServerStream};
use palyra_protocol::{Principal, PrincipalKind, Problem, Secret};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// The longest greeting.
const MAX_GREETING: u64 = 16 << 10;
/// How long a client may take to greet.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// How many clients may be connected at once.
const MAX_CLIENTS: usize = 256;
/// How long nothing is accepted after accepting failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The greeting, as it is typed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Greeting {
    /// The version of this greeting.
    palyra_mcp: u32,
    token: Option<String>,
    act_as: Option<Principal>,
    /// The workspace that it was connected for, by id or path.
    #[serde(default)]
    workspace: Option<String>,
    /// The directory that it was started in.
    #[serde(default)]
    directory: Option<String>,
}

/// How a client came.
#[derive(Debug)]
enum Way {
    Socket { peer_uid: Option<u32>, daemon_uid: u32, pid: Option<u32> },
    Device(Arc<ConnectedDevice>),
}

/// What a client came with.
#[derive(Debug)]
pub(crate) struct Credentials {
    way: Way,
    token: Option<Secret>,
    act_as: Option<Principal>,
    naming: WorkspaceNaming,
}

impl Credentials {
    /// Who the client is, now: what was withdrawn since it came is withdrawn.
    pub(super) fn identify(&self, engine: &Engine) -> Result<VerifiedPeer, EngineError> {
        let channel = DoorName::Mcp.channel();
        let mut peer = match &self.way {
            Way::Socket { peer_uid, daemon_uid, .. } => {
                VerifiedPeer::on_local_socket(*peer_uid, *daemon_uid, channel.clone())?
            }
            Way::Device(_) if self.token.is_some() => {
                return Err(EngineError::new(ErrorKind::Unauthenticated, token_of_a_device()));
            }
            Way::Device(device) => VerifiedPeer::by_device(engine, device, &self.naming, DoorName::Remote.channel())?,
        };
        if let Some(token) = &self.token {
            // What is no text is refused like a wrong token.
            let token = std::str::from_utf8(token.expose()).unwrap_or("");
            peer = VerifiedPeer::by_token(engine, token, "local socket", channel)?;
        }
        if matches!(self.way, Way::Socket { .. }) {
            peer = engine.in_workspace_of_client(peer, &self.naming)?;
        }
        if let Some(name) = &self.act_as {
            peer = engine.act_as(peer, name.clone())?;
        }
        // Being the daemon's user is not enough here, under whatever name.
        // A device that acts as itself is a program like an agent.
        let program = matches!(peer.effective().kind(), PrincipalKind::Agent | PrincipalKind::Device);
        if self.token.is_none() && !program {
            return Err(EngineError::new(
                ErrorKind::Unauthenticated,
                Problem::new(
                    "mcp_needs_an_agent",
                    "an MCP client is an agent, never the owner",
                    "show a token (`PALYRA_TOKEN`), or name an agent (`--as agent:NAME`)",
                ),
            ));
        }
        Ok(peer)
    }
}

/// Lets clients in until told to end. Those who are in stay until everything has its answer.
pub(crate) async fn serve(doors: Doors, listener: UnixListener) {
    let ending = doors.ending.clone();
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ending.closing().cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: others must end first.
                tracing::warn!(%error, "an MCP client could not be let in");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let place = Arc::clone(&places).try_acquire_owned();
        let doors = doors.clone();
        ending.clients().spawn(async move {
            let served = match place {
                Ok(_place) => client(doors, stream).await,
                Err(_) => turn_away(stream).await,
            };
            if let Err(error) = served {
                tracing::debug!(%error, "an MCP client's connection broke off");
            }
        });
    }
}

/// There is no room; whoever comes is told.
async fn turn_away(stream: UnixStream) -> io::Result<()> {
    let (_, mut writer) = stream.into_split();
    let message = format!("{MAX_CLIENTS} MCP clients are connected");
    let problem = Problem::new("too_many_clients", message, "end some of them");
    let refusal = json!({ "ok": false, "error": problem });
    tokio::time::timeout(GREETING_TIME, tell(&mut writer, &refusal)).await.unwrap_or(Ok(()))
}

async fn client(doors: Doors, stream: UnixStream) -> io::Result<()> {
    let credentials = stream.peer_cred().ok();
    let peer_uid = credentials.map(|credentials| credentials.uid());
    let pid = credentials.and_then(|credentials| credentials.pid()).and_then(|pid| u32::try_from(pid).ok());
    let daemon_uid = rustix::process::geteuid().as_raw();
    let (reader, writer) = stream.into_split();
    greet(doors, Way::Socket { peer_uid, daemon_uid, pid }, BufReader::new(reader), writer).await
}

/// Serves a paired device until it leaves or is shut out. The daemon speaks first: the device learns that it is let in.
pub(crate) async fn device(doors: Doors, device: Arc<ConnectedDevice>, stream: ServerStream<TcpStream>) {
    let (engine, ending) = (doors.engine.clone(), doors.ending.clone());
    let serving = async {
        let (reader, mut writer) = tokio::io::split(stream);
        tell(&mut writer, &json!({ "palyra_mcp": 1 })).await?;
        greet(doors, Way::Device(Arc::clone(&device)), BufReader::new(reader), writer).await
    };
    let served = tokio::select! {
        served = ending.clients().track_future(serving) => served,
        () = engine.cut_off(&device) => return,
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a device's MCP connection broke off");
    }
}

async fn greet<R, W>(doors: Doors, way: Way, mut reader: BufReader<R>, mut writer: W) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let greeted = tokio::time::timeout(GREETING_TIME, greeting(&mut reader)).await;
    let greeting = greeted.unwrap_or_else(|_| Err(malformed("no greeting came")));
    let admitted = greeting.and_then(|Greeting { token, act_as, workspace, directory, .. }| {
        let naming = WorkspaceNaming::parse(workspace.as_deref(), directory.as_deref())?;
        let token = token.map(|text| Secret::new(text.into_bytes()));
        let credentials = Credentials { way, token, act_as, naming };
        let peer = credentials.identify(&doors.engine)?;
        if let Way::Socket { pid, .. } = &credentials.way {
            doors.engine.remember_client(&peer, *pid);
        }
        Ok((credentials, peer))
    });
    match admitted {
        Ok((credentials, peer)) => {
            tell(&mut writer, &json!({ "ok": true, "principal": peer.effective() })).await?;
            talk(doors, credentials, reader, writer).await
        }
        Err(refusal) => tell(&mut writer, &json!({ "ok": false, "error": refusal.problem })).await,
    }
}

async fn talk<R, W>(doors: Doors, credentials: Credentials, reader: BufReader<R>, writer: W) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    // A child: the SDK cancels what it is given when the connection ends.
    let ended = doors.ending.ended().child_token();
    let server = McpServer::new(doors, Caller::Local(credentials));
    let lines = Lines::new(reader, writer);
    match rmcp::service::serve_server_with_ct(server, lines, ended).await {
        Ok(running) => {
            running.waiting().await.map_err(io::Error::other)?;
            Ok(())
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

async fn greeting<R: AsyncRead + Unpin>(reader: &mut BufReader<R>) -> Result<Greeting, EngineError> {
    let mut line = Vec::new();
    let read = reader.take(MAX_GREETING).read_until(b'\n', &mut line).await;
    if read.is_err() || line.last() != Some(&b'\n') {
        return Err(malformed("the greeting is not a line"));
    }
    let greeting: Greeting = serde_json::from_slice(&line).map_err(|_| malformed("the greeting is not understood"))?;
    if greeting.palyra_mcp != 1 {
        return Err(malformed("the greeting is of another version"));
    }
    Ok(greeting)
}

fn malformed(message: &str) -> EngineError {
    EngineError::invalid("malformed_request", message, "do `palyra` and `palyrad` have the same version?")
}

async fn tell<W: AsyncWrite + Unpin>(writer: &mut W, word: &Value) -> io::Result<()> {
    writer.write_all(format!("{word}\n").as_bytes()).await?;
    writer.flush().await
}
