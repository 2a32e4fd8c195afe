//! What a run adds to its model: the time from one answer to the next question, with one `palyra.echo` in between,
//! beside the same model asked directly; and whether it stays the same over two hundred turns.

use crate::Result;
use crate::process::{Daemon, binaries, owner};
use crate::report::{Report, median, show};
use palyra_api::v1::StartRunRequest;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const TURNS: usize = 200;
/// The turns at either end that are compared.
const ENDS: usize = 20;

const CALL: &str = concat!(
    r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"palyra_echo","#,
    r#""arguments":"{\"text\":\"x\"}"}}]},"finish_reason":"tool_calls"}]}"#,
    "\n\ndata: [DONE]\n\n"
);
const DONE: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"done\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// When each question came and each answer was sent.
type Times = Arc<Mutex<Vec<(Instant, Instant)>>>;

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let (port, times) = provider()?;
    let config = format!(
        "[models.providers.p]\ndialect = \"chat_completions\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\n\
         models = [\"m\"]\n[models.agents.bench]\nmodel = \"p/m\"\nmax_model_calls = 1000\nmax_calls = 1000\n"
    );
    std::fs::write(dir.path().join("palyra.toml"), config)?;
    let _daemon = Daemon::start(&binaries()?, dir.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(one_run(dir.path()))?;
    let seen = std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner));
    // From the end of an answer to the next question: everything that is ours.
    let ours: Vec<Duration> = seen.windows(2).map(|pair| pair[1].0.duration_since(pair[0].1)).collect();
    if ours.len() < TURNS - 1 {
        return Err(format!("the run made {} turns", ours.len() + 1).into());
    }
    let direct = directly(port)?;
    let (added, raw) = (median(ours.clone()), median(direct));
    let figures = format!("{} beside {} for the model alone", show(added), show(raw));
    report.promise("a turn with one call adds ≤ 5 ms, p50", &figures, added <= Duration::from_millis(5));
    let (first, last) = (median(ours[..ENDS].to_vec()), median(ours[ours.len() - ENDS..].to_vec()));
    report.at_most("the last turns of 200 against the first", last, first, 1.5);
    Ok(())
}

async fn one_run(dir: &std::path::Path) -> Result {
    let connection = owner(dir).await?;
    let request = StartRunRequest { prompt: "go".to_owned(), agent: "bench".to_owned(), ..StartRunRequest::default() };
    let mut updates = connection.runs().start(request).await?.into_inner();
    let mut end = String::new();
    while let Some(update) = updates.message().await? {
        end = update.news_json;
    }
    if end.contains("\"completed\"") { Ok(()) } else { Err(format!("the run ended with {end}").into()) }
}

/// A model that asks for one echo after the other, and then is done.
fn provider() -> Result<(u16, Times)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let times = Times::default();
    let kept = Arc::clone(&times);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || answer(stream, &kept));
        }
    });
    Ok((port, times))
}

fn answer(mut stream: TcpStream, times: &Times) {
    drop(stream.set_nodelay(true));
    while read(&mut stream).is_some() {
        let came = Instant::now();
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        let body = if times.len() + 1 < TURNS { CALL } else { DONE };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
        let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
        times.push((came, Instant::now()));
    }
}

/// A whole request.
fn read(stream: &mut TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        if bytes.len() - end - 4 >= length.unwrap_or(0_usize) {
            return Some(());
        }
    }
}

/// The same model, asked over a connection of its own each time, as the daemon does.
fn directly(port: u16) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let start = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")?;
        let mut buffer = [0; 4096];
        if stream.read(&mut buffer)? == 0 {
            return Err("the model said nothing".into());
        }
        times.push(start.elapsed());
    }
    Ok(times)
}
