//! `POST /v1/tools/invoke` of `palyra.echo` beside the same call over the UNIX socket, in turns; event streams; load.

use crate::Result;
use crate::process::{Daemon, binaries, owner};
use crate::report::{Report, percentile, show};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use palyra_api::Connection;
use palyra_api::v1::{AddAgentRequest, CreateTokenRequest, ProposeRequest};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const CALLERS: usize = 64;
/// A token may make so many requests a minute and no more, so callers share several.
const TOKENS: usize = 16;
const STREAMS: usize = 1000;
const HOLD: Duration = Duration::from_secs(60);

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    allow_many_files();
    let daemon = Daemon::start(&binaries()?, dir.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let door = Arc::new(runtime.block_on(Door::find(dir.path()))?);
    for (callers, rounds, each) in [(1, 10, 50), (CALLERS, 12, 25)] {
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        // In turns, so that noise falls on both.
        for _ in 0..rounds {
            raw.extend(runtime.block_on(together(&door, callers, each, Way::Socket))?);
            ours.extend(runtime.block_on(together(&door, callers, each, Way::Http))?);
        }
        for percent in [50, 99] {
            let what = format!("HTTP against the socket, {callers} at a time, p{percent}");
            report.at_most(&what, percentile(&mut ours, percent), percentile(&mut raw, percent), 1.2);
        }
    }

    let before = daemon.resident_bytes()?;
    let streams = runtime.block_on(streams(&door))?;
    let each = daemon.resident_bytes()?.saturating_sub(before) as f64 / STREAMS as f64;
    report.figure("1,000 open event streams, memory each", &format!("{:.1} KB", each / 1e3));
    drop(streams);

    let held = runtime.block_on(hold(&door))?;
    let mut times = held;
    let rate = times.len() as f64 / HOLD.as_secs_f64();
    let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    report.figure(
        &format!("64 callers for {} s without an error", HOLD.as_secs()),
        &format!("{rate:.0}/s, p50 {} and p99 {}", show(p50), show(p99)),
    );
    report.figure("daemon's memory after that", &format!("{:.1} MB", daemon.resident_bytes()? as f64 / 1e6));
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Socket,
    Http,
}

/// Where the daemon is, and who may call.
pub(crate) struct Door {
    pub(crate) dir: PathBuf,
    authority: String,
    tokens: Vec<String>,
}

impl Door {
    pub(crate) async fn find(dir: &Path) -> Result<Self> {
        let state = dir.join("state");
        let socket = owner(dir).await?;
        let url = std::fs::read_to_string(state.join("http.url"))?;
        let authority = url.trim().trim_start_matches("http://").to_owned();
        let principal = "agent:bench".to_owned();
        socket.access().add_agent(AddAgentRequest { principal: principal.clone(), description: String::new() }).await?;
        let mut tokens = Vec::new();
        for _ in 0..TOKENS {
            let new = CreateTokenRequest {
                principal: principal.clone(),
                rate_per_minute: 100_000,
                ..CreateTokenRequest::default()
            };
            tokens.push(socket.access().create_token(new).await?.into_inner().secret);
        }
        Ok(Self { dir: dir.to_owned(), authority, tokens })
    }

    /// The token of a caller.
    pub(crate) fn token(&self, caller: usize) -> &str {
        &self.tokens[caller % TOKENS]
    }

    pub(crate) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    pub(crate) fn request(
        &self,
        caller: usize,
        verb: &str,
        path: &str,
        body: &'static str,
    ) -> Result<Request<Full<Bytes>>> {
        let request = Request::builder()
            .method(verb)
            .uri(path)
            .header("host", &self.authority)
            .header("authorization", format!("Bearer {}", self.token(caller)))
            .header("content-type", "application/json");
        Ok(request.body(Full::new(Bytes::from_static(body.as_bytes())))?)
    }

    async fn echo_over_http(&self, sender: &mut SendRequest<Full<Bytes>>, caller: usize) -> Result {
        const BODY: &str = r#"{"tool":"palyra.echo","input":{"text":"hello"}}"#;
        sender.ready().await?;
        let request = self.request(caller, "POST", "/v1/tools/invoke", BODY)?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status == StatusCode::OK { Ok(()) } else { Err(String::from_utf8_lossy(&body).into_owned().into()) }
    }

    pub(crate) async fn echo_over_socket(socket: &Connection) -> Result {
        let request = ProposeRequest {
            tool: "palyra.echo".to_owned(),
            input: br#"{"text":"hello"}"#.to_vec(),
            ..ProposeRequest::default()
        };
        let mut updates = socket.calls().propose(request).await?.into_inner();
        while updates.message().await?.is_some() {}
        Ok(())
    }
}

/// So many callers, each with so many calls; how long each call took.
async fn together(door: &Arc<Door>, callers: usize, each: usize, way: Way) -> Result<Vec<Duration>> {
    calling(door, callers, way, move |done, _| done < each).await
}

/// As many calls as there is time for.
async fn hold(door: &Arc<Door>) -> Result<Vec<Duration>> {
    let start = Instant::now();
    calling(door, CALLERS, Way::Http, move |_, now: Instant| now.duration_since(start) < HOLD).await
}

async fn calling(
    door: &Arc<Door>,
    callers: usize,
    way: Way,
    more: impl Fn(usize, Instant) -> bool + Clone + Send + 'static,
) -> Result<Vec<Duration>> {
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (door, more) = (Arc::clone(door), more.clone());
            tokio::spawn(async move {
                let socket = owner(&door.dir).await.map_err(|e| e.to_string())?;
                let mut sender = door.connect().await.map_err(|e| e.to_string())?;
                let mut times = Vec::new();
                let mut start = Instant::now();
                while more(times.len(), start) {
                    match way {
                        Way::Socket => Door::echo_over_socket(&socket).await.map_err(|e| e.to_string())?,
                        Way::Http => door.echo_over_http(&mut sender, caller).await.map_err(|e| e.to_string())?,
                    }
                    let now = Instant::now();
                    times.push(now - start);
                    start = now;
                }
                Ok::<_, String>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    Ok(times)
}

/// Opens streams of a call that waits for a person, and reads the first event of each.
async fn streams(door: &Arc<Door>) -> Result<Vec<(SendRequest<Full<Bytes>>, Response<Incoming>)>> {
    const ASK: &str = r#"{"tool":"palyra.process.run","input":{"argv":["true"]},"wait_ms":0}"#;
    let mut sender = door.connect().await?;
    let asked = sender.send_request(door.request(0, "POST", "/v1/tools/invoke", ASK)?).await?;
    let asked: serde_json::Value = serde_json::from_slice(&asked.into_body().collect().await?.to_bytes())?;
    let path = format!("/v1/calls/{}/events", asked["call_id"].as_str().ok_or_else(|| asked.to_string())?);
    let mut open = Vec::with_capacity(STREAMS);
    for n in 0..STREAMS {
        let mut sender = door.connect().await?;
        let mut answer = sender.send_request(door.request(n, "GET", &path, "")?).await?;
        if answer.status() != StatusCode::OK {
            return Err(format!("a stream was refused: {}", answer.status()).into());
        }
        answer.body_mut().frame().await.ok_or("a stream ended at once")??;
        open.push((sender, answer));
    }
    Ok(open)
}

/// Our ends of the streams are open files too.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum.map(|most| most.min(8192)), maximum });
    if raised.is_err() {
        println!("  the number of open files stays limited");
    }
}
