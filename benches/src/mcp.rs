//! MCP `tools/call` of `palyra.echo` over both transports, beside the same call over the UNIX socket, in turns.

use crate::Result;
use crate::http::Door;
use crate::process::{Daemon, binaries};
use crate::report::{Report, percentile};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use palyra_api::Connection;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

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
    Lines,
    Http,
}

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let _daemon = Daemon::start(&binaries()?, dir.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let door = Arc::new(runtime.block_on(Door::find(dir.path()))?);
    for (callers, rounds, each) in [(1, 10, 50), (CALLERS, 4, 50)] {
        let [mut raw, mut lines, mut http] = [const { Vec::new() }; 3];
        // In turns, so that noise falls on all.
        for _ in 0..rounds {
            for (way, times) in [(Way::Socket, &mut raw), (Way::Lines, &mut lines), (Way::Http, &mut http)] {
                times.extend(runtime.block_on(together(&door, callers, each, way))?);
            }
        }
        for percent in [50, 99] {
            let raw = percentile(&mut raw, percent);
            for (name, times) in [("stdio's socket", &mut lines), ("HTTP", &mut http)] {
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
    let socket = Connection::open(&door.socket, None).await?;
    let mut sender = door.connect().await?;
    let mut client = Client::connect(door, caller).await?;
    let mut times = Vec::with_capacity(each);
    for _ in 0..each {
        let start = Instant::now();
        match way {
            Way::Socket => Door::echo_over_socket(&socket).await?,
            Way::Lines => client.echo().await?,
            Way::Http => echo_over_http(door, &mut sender, caller).await?,
        }
        times.push(start.elapsed());
    }
    Ok(times)
}

/// What `palyra mcp serve` passes on.
struct Client(BufReader<UnixStream>);

impl Client {
    async fn connect(door: &Door, caller: usize) -> Result<Self> {
        let stream = UnixStream::connect(door.socket.with_file_name(palyra_api::MCP_SOCKET)).await?;
        let mut client = Self(BufReader::new(stream));
        let greeting = serde_json::json!({ "palyra_mcp": 1, "token": door.token(caller) });
        client.say(&greeting.to_string()).await?;
        client.hear("\"ok\":true").await?;
        client.say(INITIALIZE).await?;
        client.hear("\"result\"").await?;
        Ok(client)
    }

    async fn say(&mut self, line: &str) -> Result {
        Ok(self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await?)
    }

    async fn hear(&mut self, expected: &str) -> Result {
        let mut line = String::new();
        self.0.read_line(&mut line).await?;
        if line.contains(expected) { Ok(()) } else { Err(line.into()) }
    }

    async fn echo(&mut self) -> Result {
        self.say(CALL).await?;
        self.hear("\"structuredContent\":{\"text\":\"hello\"}").await
    }
}

async fn echo_over_http(door: &Door, sender: &mut SendRequest<Full<Bytes>>, caller: usize) -> Result {
    sender.ready().await?;
    let mut request = door.request(caller, "POST", "/mcp", CURRENT)?;
    for (name, value) in [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "palyra_echo"),
    ] {
        request.headers_mut().insert(name, value.parse()?);
    }
    let answer = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    let answer = String::from_utf8_lossy(&answer);
    if answer.contains("\"structuredContent\":{\"text\":\"hello\"}") { Ok(()) } else { Err(answer.into_owned().into()) }
}
