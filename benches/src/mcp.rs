//! MCP `tools/call` of `palyra.echo` over both transports, beside the same call over the UNIX socket, in turns: through
//! a real `palyra mcp serve`, over HTTP in the current revision, and over HTTP in a session of the one before.

use crate::Result;
use crate::http::Door;
use crate::process::{Daemon, binaries, owner};
use crate::report::{Report, percentile};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const CALLERS: usize = 64;
/// The most that MCP over HTTP may take, as a multiple of the socket.
const OVER_HTTP: f64 = 1.4;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"palyra_echo","arguments":{"text":"hello"}}}"#;
/// The same in the current revision, which needs no handshake.
const CURRENT: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"palyra_echo","arguments":{"text":"hello"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

#[derive(Debug, Clone, Copy)]
enum Way {
    Socket,
    Stdio,
    Http,
    Session,
}

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let _daemon = Daemon::start(&binaries()?, dir.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let door = Arc::new(runtime.block_on(Door::find(dir.path()))?);
    for (callers, rounds, each) in [(1, 10, 50), (CALLERS, 12, 25)] {
        let [mut raw, mut stdio, mut http, mut session] = [const { Vec::new() }; 4];
        // In turns, so that noise falls on all.
        for _ in 0..rounds {
            for (way, times) in [
                (Way::Socket, &mut raw),
                (Way::Stdio, &mut stdio),
                (Way::Http, &mut http),
                (Way::Session, &mut session),
            ] {
                times.extend(runtime.block_on(together(&door, callers, each, way))?);
            }
        }
        for percent in [50, 99] {
            let raw = percentile(&mut raw, percent);
            for (name, times) in [("stdio", &mut stdio), ("HTTP", &mut http), ("HTTP in a session", &mut session)] {
                let what = format!("MCP over {name} against the socket, {callers} at a time, p{percent}");
                report.at_most(&what, percentile(times, percent), raw, OVER_HTTP);
            }
        }
    }
    Ok(())
}

async fn together(door: &Arc<Door>, callers: usize, each: usize, way: Way) -> Result<Vec<Duration>> {
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let door = Arc::clone(door);
            tokio::spawn(async move { calling(&door, caller, each, way).await.map_err(|e| e.to_string()) })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    Ok(times)
}

/// One caller's calls; how long each took.
async fn calling(door: &Door, caller: usize, each: usize, way: Way) -> Result<Vec<Duration>> {
    let socket = owner(&door.dir).await?;
    let mut sender = door.connect().await?;
    let mut client = match way {
        Way::Stdio => Some(Client::start(door, caller).await?),
        _ => None,
    };
    let session = match way {
        Way::Session => Some(begin_session(door, &mut sender, caller).await?),
        _ => None,
    };
    let mut times = Vec::with_capacity(each);
    for _ in 0..each {
        let start = Instant::now();
        match (&mut client, way) {
            (Some(client), _) => client.echo().await?,
            (None, Way::Socket) => Door::echo_over_socket(&socket).await?,
            (None, _) => echo_over_http(door, &mut sender, caller, session.as_deref()).await?,
        }
        times.push(start.elapsed());
    }
    Ok(times)
}

/// `palyra mcp serve`, as a client starts it.
struct Client {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _serving: Child,
}

impl Client {
    async fn start(door: &Door, caller: usize) -> Result<Self> {
        let state_dir = &door.dir.join("state");
        let mut serving = Command::new(binaries()?.join("palyra"))
            .arg("--state-dir")
            .arg(state_dir)
            .args(["mcp", "serve"])
            .env("PALYRA_TOKEN", door.token(caller))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = serving.stdin.take().ok_or("standard input is piped")?;
        let stdout = BufReader::new(serving.stdout.take().ok_or("standard output is piped")?);
        let mut client = Self { stdin, stdout, _serving: serving };
        client.say(INITIALIZE).await?;
        client.hear("\"result\"").await?;
        Ok(client)
    }

    async fn say(&mut self, line: &str) -> Result {
        Ok(self.stdin.write_all(format!("{line}\n").as_bytes()).await?)
    }

    async fn hear(&mut self, expected: &str) -> Result {
        let mut line = String::new();
        self.stdout.read_line(&mut line).await?;
        if line.contains(expected) { Ok(()) } else { Err(line.into()) }
    }

    async fn echo(&mut self) -> Result {
        self.say(CALL).await?;
        self.hear("\"structuredContent\":{\"text\":\"hello\"}").await
    }
}

async fn echo_over_http(
    door: &Door,
    sender: &mut SendRequest<Full<Bytes>>,
    caller: usize,
    session: Option<&str>,
) -> Result {
    let (body, revision) = if session.is_some() { (CALL, "2025-11-25") } else { (CURRENT, "2026-07-28") };
    let mut request = post(door, caller, body)?;
    for (name, value) in [("mcp-protocol-version", revision), ("mcp-method", "tools/call"), ("mcp-name", "palyra_echo")]
    {
        request.headers_mut().insert(name, value.parse()?);
    }
    if let Some(session) = session {
        request.headers_mut().insert(SESSION, session.parse()?);
    }
    sender.ready().await?;
    let answer = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    let answer = String::from_utf8_lossy(&answer);
    if answer.contains("\"structuredContent\":{\"text\":\"hello\"}") { Ok(()) } else { Err(answer.into_owned().into()) }
}

const SESSION: &str = "mcp-session-id";

async fn begin_session(door: &Door, sender: &mut SendRequest<Full<Bytes>>, caller: usize) -> Result<String> {
    sender.ready().await?;
    let request = post(door, caller, INITIALIZE)?;
    let answer = sender.send_request(request).await?;
    let id = answer.headers().get(SESSION).ok_or("a session has an id")?.to_str()?.to_owned();
    answer.into_body().collect().await?;
    let mut told = post(door, caller, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
    told.headers_mut().insert(SESSION, id.parse()?);
    sender.ready().await?;
    sender.send_request(told).await?.into_body().collect().await?;
    Ok(id)
}

fn post(door: &Door, caller: usize, body: &'static str) -> Result<hyper::Request<Full<Bytes>>> {
    let mut request = door.request(caller, "POST", "/mcp", body)?;
    request.headers_mut().insert("accept", "application/json, text/event-stream".parse()?);
    Ok(request)
}
