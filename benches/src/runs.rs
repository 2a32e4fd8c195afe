//! What the OpenAI-compatible door adds to a model, beside the same scripted model asked directly by the same client:
//! a turn with one `palyra.echo`, over two hundred turns; the first streamed token; 64 streams at once.

use crate::Result;
use crate::process::{Daemon, binaries, owner};
use crate::report::{Report, median, show};
use palyra_api::v1::{AddAgentRequest, CreateTokenRequest};
use palyra_testkit::{listen, read_request};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const TURNS: usize = 200;
/// The turns at either end that are compared.
const ENDS: usize = 20;
/// How often a first token is waited for, each way.
const FIRST_TOKENS: usize = 100;
/// The pieces of one streamed answer.
const PIECES: usize = 100;
const AT_ONCE: usize = 64;
/// The streams that each of them reads, one after the other.
const EACH: usize = 8;

const CALL: &str = concat!(
    r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"palyra_echo","#,
    r#""arguments":"{\"text\":\"x\"}"}}]},"finish_reason":"tool_calls"}]}"#,
    "\n\ndata: [DONE]\n\n"
);
const WORD: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}]}\n\n";
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
    let token = runtime.block_on(token(dir.path()))?;
    let url = std::fs::read_to_string(dir.path().join("state/http.url"))?;
    let through = Way { address: url.trim().trim_start_matches("http://").to_owned(), token };
    let directly = Way { address: format!("127.0.0.1:{port}"), token: "none".to_owned() };
    turns(report, &through, &directly, &times)?;
    first_tokens(report, &through, &directly, &times)?;
    streams(report, &through, &directly)
}

fn turns(report: &mut Report, through: &Way, directly: &Way, times: &Times) -> Result {
    through.ask("palyra/bench", "turns")?.to_end()?;
    let seen = taken(times);
    if seen.len() != TURNS {
        return Err(format!("the run made {} turns", seen.len()).into());
    }
    // From the end of an answer to the next question: everything that is ours.
    let ours: Vec<Duration> = seen.windows(2).map(|pair| pair[1].0.duration_since(pair[0].1)).collect();
    let mut raw = Vec::new();
    for _ in 0..TURNS {
        let start = Instant::now();
        directly.ask("m", "word")?.to_end()?;
        raw.push(start.elapsed());
    }
    let (added, raw) = (median(ours.clone()), median(raw));
    let figures = format!("{} added to {} for the model alone", show(added), show(raw));
    report.promise("a turn with one call adds ≤ 5 ms, p50", &figures, added <= Duration::from_millis(5));
    let (first, last) = (median(ours[..ENDS].to_vec()), median(ours[ours.len() - ENDS..].to_vec()));
    report.at_most("the last turns of 200 against the first", last, first, 1.5);
    Ok(())
}

/// From the provider's having sent its first token to the client's having it, each way in turns.
fn first_tokens(report: &mut Report, through: &Way, directly: &Way, times: &Times) -> Result {
    let once = |way: &Way, model: &str| -> Result<Duration> {
        taken(times);
        let mut answer = way.ask(model, "word")?;
        answer.to_first_token()?;
        let came = Instant::now();
        answer.to_end()?;
        let sent = taken(times).first().ok_or("the model was not asked")?.1;
        Ok(came.saturating_duration_since(sent))
    };
    let (mut plain, mut agent, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..FIRST_TOKENS {
        raw.push(once(directly, "m")?);
        plain.push(once(through, "p/m")?);
        agent.push(once(through, "palyra/bench")?);
    }
    let raw = median(raw);
    for (what, times) in [("a plain model's", plain), ("an agent's", agent)] {
        let behind = median(times).saturating_sub(raw);
        let figures = format!("{} behind {} for the model alone", show(behind), show(raw));
        report.promise(&format!("{what} first token ≤ 1 ms behind, p50"), &figures, behind <= Duration::from_millis(1));
    }
    Ok(())
}

/// Streams a second, one at a time and 64 at once, each way.
fn streams(report: &mut Report, through: &Way, directly: &Way) -> Result {
    let rate = |way: &Way, model: &'static str, callers: usize| -> Result<f64> {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..callers).map(|_| scope.spawn(|| (0..EACH).try_for_each(|_| read_one(way, model)))).collect();
            readers.into_iter().try_for_each(|reader| reader.join().map_err(|_| "a reader panicked".to_owned())?)
        })?;
        Ok((callers * EACH) as f64 / start.elapsed().as_secs_f64())
    };
    let [mut ours, mut raw] = [[0.0_f64; 2]; 2];
    // In turns, so that noise falls on both; the best of each.
    for _ in 0..3 {
        for (place, callers) in [1, AT_ONCE].into_iter().enumerate() {
            raw[place] = raw[place].max(rate(directly, "m", callers)?);
            ours[place] = ours[place].max(rate(through, "p/m", callers)?);
        }
    }
    let cores = std::thread::available_parallelism()?.get() as f64;
    report.at_least("64 streams at once, over one at a time", ours[1], ours[0], 0.8 * cores);
    report.figure("the same of the model alone", &format!("{:.0}/s over {:.0}/s", raw[1], raw[0]));
    Ok(())
}

fn read_one(way: &Way, model: &str) -> std::result::Result<(), String> {
    way.ask(model, "stream").and_then(Streaming::to_end).map_err(|error| error.to_string())
}

async fn token(dir: &Path) -> Result<String> {
    let connection = owner(dir).await?;
    let principal = "agent:bench".to_owned();
    connection.access().add_agent(AddAgentRequest { principal: principal.clone(), description: String::new() }).await?;
    let scopes = ["compat.chat.create", "model.invoke", "run.read", "tool.list", "tool.execute"];
    let new = CreateTokenRequest {
        principal,
        scopes: scopes.map(str::to_owned).to_vec(),
        rate_per_minute: 100_000,
        ..CreateTokenRequest::default()
    };
    Ok(connection.access().create_token(new).await?.into_inner().secret)
}

fn taken(times: &Times) -> Vec<(Instant, Instant)> {
    std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Where a model is asked: at the door, or directly.
struct Way {
    address: String,
    token: String,
}

/// An answer on its way.
struct Streaming(BufReader<TcpStream>);

impl Way {
    fn ask(&self, model: &str, about: &str) -> Result<Streaming> {
        let body = format!(r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"{about}"}}]}}"#);
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        Ok(Streaming(BufReader::new(stream)))
    }
}

impl Streaming {
    fn to_first_token(&mut self) -> Result {
        self.to_line(|line| line.contains("\"content\":\"w"))
    }

    fn to_end(mut self) -> Result {
        self.to_line(|line| line.starts_with("data: [DONE]"))
    }

    fn to_line(&mut self, wanted: impl Fn(&str) -> bool) -> Result {
        let mut line = String::new();
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err("the answer ended early".into());
            }
            if wanted(&line) {
                return Ok(());
            }
        }
    }
}

/// A model that does what the first message is about: asks for one echo after the other, says a word, says many.
fn provider() -> Result<(u16, Times)> {
    let (listener, port) = listen();
    let times = Times::default();
    let kept = Arc::clone(&times);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || while answer(&stream, &kept).is_some() {});
        }
    });
    Ok((port, times))
}

fn answer(mut stream: &TcpStream, times: &Times) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let body = read(stream)?;
    let came = Instant::now();
    let told = body.matches(r#""role":"tool""#).count();
    let (first, rest) = match () {
        () if body.contains(r#""content":"turns""#) && told + 1 < TURNS => (CALL.to_owned(), String::new()),
        () if body.contains(r#""content":"stream""#) => (WORD.to_owned(), WORD.repeat(PIECES - 1) + DONE),
        () if body.contains(r#""content":"word""#) => (WORD.to_owned(), DONE.to_owned()),
        () => (DONE.to_owned(), String::new()),
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    let head = format!("{head}Content-Length: {}\r\n\r\n{first}", first.len() + rest.len());
    stream.write_all(head.as_bytes()).ok()?;
    let sent = Instant::now();
    times.lock().unwrap_or_else(PoisonError::into_inner).push((came, sent));
    stream.write_all(rest.as_bytes()).ok()
}

/// The body of the next request.
fn read(mut stream: &TcpStream) -> Option<String> {
    read_request(&mut stream).ok()?.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}
