//! `palyra mcp serve`: MCP on standard input and output.
//!
//! The daemon speaks the protocol. This program greets it with the client's credentials, then passes bytes in both
//! directions and reads none of them.

use super::up;
use crate::args::connect::Serve;
use crate::context::Context;
use crate::exit::{FAILED, Failure, REFUSED, UNREACHABLE};
use crate::output::{note, say};
use palyra_protocol::{Principal, Problem};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Read as _, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Whom a client without a token speaks as.
const NAMELESS: &str = "agent:mcp";
/// The longest token file, and the longest answer to a greeting.
const MAX_LINE: u64 = 64 << 10;

/// The daemon's answer to a greeting.
#[derive(Deserialize)]
struct Welcome {
    ok: bool,
    #[serde(default)]
    principal: Option<Principal>,
    #[serde(default)]
    error: Option<Problem>,
}

pub async fn serve(context: &Context, serve: Serve) -> Result<(), Failure> {
    let token = match &serve.token_file {
        Some(file) => Some(read_token(file)?),
        None => context.token_text(),
    };
    let act_as = context.act_as().map(ToString::to_string);
    if let Some(host) = context.host() {
        // Renews the certificate if it is due, and as long as this client is there.
        drop(context.connect_as_self().await?);
        let greeting = json!({ "palyra_mcp": 1, "act_as": act_as, "workspace": context.place().workspace });
        let stream = context.remote(host)?.connect(palyra_api::MCP_PROTOCOL).await?;
        return elsewhere(stream, &greeting).await;
    }
    let act_as = act_as.or_else(|| token.is_none().then(|| NAMELESS.to_owned()));
    // What `connect` wrote says where the client was connected; the directory says where it works now.
    let workspace = serve.workspace.as_ref().map(|at| super::workspaces::named(&at.to_string_lossy()));
    let workspace = workspace.or_else(|| context.place().workspace.clone());
    let directory = context.place().directory.as_deref().and_then(Path::to_str);
    let greeting = json!({
        "palyra_mcp": 1, "token": token, "act_as": act_as, "workspace": workspace, "directory": directory,
    });
    let stream = connect(context, &serve).await?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let principal = greet(&mut reader, &mut writer, &greeting).await?;
    if token.is_none() {
        note!("no token: this client speaks as `{principal}`, an agent of yours");
    }
    let heard = reader.buffer().to_vec();
    let stream = reader.into_inner().reunite(writer).map_err(|e| Failure::bug(&e))?;
    let stream = stream.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream));
    pass(&heard, stream.map_err(broken)?)
}

fn broken(e: std::io::Error) -> Failure {
    Failure::io("the connection to the daemon broke off", &e)
}

/// Says who the client speaks as, and hears whom the daemon takes it for.
async fn greet<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut BufReader<R>,
    writer: &mut W,
    greeting: &Value,
) -> Result<Principal, Failure> {
    writer.write_all(format!("{greeting}\n").as_bytes()).await.map_err(broken)?;
    writer.flush().await.map_err(broken)?;
    let mut line = String::new();
    reader.take(MAX_LINE).read_line(&mut line).await.map_err(broken)?;
    if line.is_empty() {
        return Err(Failure::new(UNREACHABLE, "daemon_unreachable", "the daemon hung up without a word", None));
    }
    match serde_json::from_str(&line).map_err(|e| Failure::bug(&e))? {
        Welcome { ok: true, principal: Some(principal), .. } => Ok(principal),
        Welcome { error: Some(Problem { code, message, hint, .. }), .. } => {
            Err(Failure { exit: REFUSED, code, message, hint })
        }
        _ => Err(Failure::new(FAILED, "unexpected_answer", "the daemon did not say who we are", None)),
    }
}

/// The same with a daemon on another machine. It speaks first; what it says was heard when the connection was made.
async fn elsewhere(stream: impl AsyncRead + AsyncWrite + Unpin, greeting: &Value) -> Result<(), Failure> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader);
    let mut hello = String::new();
    (&mut reader).take(MAX_LINE).read_line(&mut hello).await.map_err(broken)?;
    let principal = greet(&mut reader, &mut writer, greeting).await?;
    note!("this client speaks as `{principal}`, on another machine");
    let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
    let speaking = async {
        tokio::io::copy(&mut input, &mut writer).await?;
        // The daemon still answers what it was asked.
        writer.shutdown().await
    };
    let hearing = async {
        loop {
            let piece = reader.fill_buf().await?;
            if piece.is_empty() {
                return std::io::Result::Ok(());
            }
            let length = piece.len();
            output.write_all(piece).await?;
            output.flush().await?;
            reader.consume(length);
        }
    };
    let mut hearing = std::pin::pin!(hearing);
    tokio::select! {
        heard = hearing.as_mut() => {
            heard.map_err(broken)?;
            let message = "the daemon ended the connection";
            return Err(Failure::new(UNREACHABLE, "daemon_unreachable", message, None));
        }
        spoken = speaking => spoken.map_err(broken)?,
    }
    hearing.await.map_err(broken)
}

/// Connects to the daemon, starting it if nobody answers.
async fn connect(context: &Context, serve: &Serve) -> Result<UnixStream, Failure> {
    let socket = context.state_dir.join(palyra_api::MCP_SOCKET);
    if let Ok(stream) = UnixStream::connect(&socket).await {
        return Ok(stream);
    }
    // One that runs and does not speak MCP is not to be started a second time.
    if context.connect().await.is_err() {
        up::start_unasked(context, serve.workspace.clone())?;
        note!("palyrad was not running; it is now");
    }
    UnixStream::connect(&socket).await.map_err(|e| {
        Failure::new(
            UNREACHABLE,
            "daemon_unreachable",
            format!("no daemon speaks MCP at `{}`: {e}", socket.display()),
            Some("do `palyra` and `palyrad` have the same version? see `palyra status`"),
        )
    })
}

/// A token that stands alone in a file.
pub fn read_token(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|open| open.take(MAX_LINE).read_to_string(&mut text));
    read.map_err(|e| Failure::io(&format!("the token in `{}` cannot be read", file.display()), &e))?;
    Ok(text.trim().to_owned())
}

/// Passes bytes on until the daemon has said its last word. By two threads that block: a runtime's standard input and
/// output are threads as well, with a hand-over to each.
fn pass(heard_already: &[u8], stream: StdStream) -> Result<(), Failure> {
    let mut reader = stream.try_clone().map_err(broken)?;
    let mut writer = stream;
    let client_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&client_ended);
    std::thread::spawn(move || {
        let mut client = std::io::stdin().lock();
        // What ends here is the client's speaking: the daemon still answers what it was asked.
        drop(std::io::copy(&mut client, &mut writer));
        ended.store(true, Ordering::Release);
        drop(writer.shutdown(std::net::Shutdown::Write));
    });
    let mut out = std::io::stdout().lock();
    let heard = out.write_all(heard_already).and_then(|()| relay(&mut reader, &mut out));
    match heard {
        // The client's last word was said before the daemon's.
        _ if client_ended.load(Ordering::Acquire) => Ok(()),
        Err(e) => Err(broken(e)),
        Ok(()) => Err(Failure::new(
            UNREACHABLE,
            "daemon_unreachable",
            "the daemon ended the connection",
            Some("calls under way are in its journal; start it: `palyra up`"),
        )),
    }
}

/// Passes on each piece as it comes.
fn relay(reader: &mut StdStream, out: &mut impl Write) -> std::io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        match reader.read(&mut piece)? {
            0 => return Ok(()),
            read => {
                out.write_all(&piece[..read])?;
                out.flush()?;
            }
        }
    }
}

/// Tools of Claude Code that act on nothing but the conversation.
const HARMLESS: [&str; 13] = [
    "Agent",
    "AskUserQuestion",
    "EnterPlanMode",
    "ExitPlanMode",
    "ListMcpResourcesTool",
    "StructuredOutput",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskUpdate",
    "TodoWrite",
    "ToolSearch",
];

/// A hook before each tool: whatever is not Palyra's is refused. What is not understood is refused as well.
pub fn guard() -> Result<(), Failure> {
    let mut question = Vec::new();
    let read = std::io::stdin().take(16 << 20).read_to_end(&mut question);
    let asked: Option<Value> = read.ok().and_then(|_| serde_json::from_slice(&question).ok());
    let tool = asked.as_ref().and_then(|asked| asked.get("tool_name")).and_then(Value::as_str).unwrap_or("");
    // No tool of ours has two underscores in its name; a server that is called `palyra__x` puts them there.
    let ours = tool.strip_prefix("mcp__palyra__").is_some_and(|name| !name.is_empty() && !name.contains("__"));
    if ours || HARMLESS.contains(&tool) {
        return Ok(());
    }
    let reason = "here you act only through Palyra: use its tools (mcp__palyra__…)";
    say!(
        "{}",
        json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason,
        } })
    );
    Ok(())
}
