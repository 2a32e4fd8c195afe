//! The external command of a key slot: for key services and hardware.
//!
//! The command is named by the operator's configuration, never by anything in the vault's directory. It gets one JSON
//! document on its standard input and answers with one on its standard output; `docs/formats/vault.md` has the
//! protocol. It protects a random key that encrypts the KEK, so the service never sees the KEK itself. Its output, its
//! errors and its time are bounded.

use crate::aead::Key;
use crate::error::VaultError;
use crate::redaction::{Mask, RedactionStream, Redactor, StreamEnd};
use crate::value::SecretValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use palyra_protocol::VaultId;
use palyra_protocol::display::safe;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The most that a command may answer.
const MAX_ANSWER: usize = 64 << 10;
/// The longest handle.
pub(crate) const MAX_HANDLE: usize = 16 << 10;
/// How much of its error output is shown.
const MAX_ERROR: usize = 400;
/// How long a command may take.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A command that protects the key of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCommand {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<String>,
    timeout: Duration,
}

/// Why a command did not do its part.
#[derive(Debug, thiserror::Error)]
pub enum CommandFault {
    /// Its path is relative.
    #[error("must be named by its absolute path")]
    Relative,
    /// It cannot be started.
    #[error("cannot be started: {0}")]
    Start(std::io::Error),
    /// It ended with something else than success.
    #[error("failed ({status}){}", said(error))]
    Failed {
        /// How it ended.
        status: String,
        /// The beginning of its error output.
        error: String,
    },
    /// It did not end in time.
    #[error("did not answer within {seconds} seconds")]
    Timeout {
        /// How long was waited.
        seconds: u64,
    },
    /// It answered too much.
    #[error("answered more than {MAX_ANSWER} bytes")]
    TooMuch,
    /// It answered something else than the protocol says.
    #[error("answered what is not in the protocol: {0}")]
    Answer(&'static str),
}

fn said(error: &str) -> String {
    if error.is_empty() { String::new() } else { format!(": {error}") }
}

#[derive(Serialize)]
struct Request<'a> {
    palyra_vault: u32,
    operation: &'a str,
    vault: &'a str,
    slot: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<&'a str>,
}

/// Borrowed from the answer, so that no copy of a key stays in memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrapAnswer<'a> {
    handle: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnwrapAnswer<'a> {
    key: &'a str,
}

impl KeyCommand {
    /// A command by the name that slots know it by, with its program and arguments.
    #[must_use]
    pub fn new(name: &str, program: impl Into<PathBuf>, arguments: Vec<String>) -> Self {
        let program = program.into();
        Self { name: name.to_owned(), program, arguments, environment: Vec::new(), timeout: COMMAND_TIMEOUT }
    }

    /// Also hands on these variables of the environment; `PATH` and `HOME` always are.
    #[must_use]
    pub fn with_environment(mut self, names: Vec<String>) -> Self {
        self.environment = names;
        self
    }

    /// With another limit to its time.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The name that slots know it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets the command protect a key; what comes back finds it again.
    pub(crate) fn wrap(&self, vault: &VaultId, slot: u32, key: &Key) -> Result<Vec<u8>, VaultError> {
        let text = Zeroizing::new(BASE64.encode(key.expose()));
        let request =
            Request { palyra_vault: 1, operation: "wrap", vault: vault.as_str(), slot, key: Some(&text), handle: None };
        let answer = self.run(&request, Some(key))?;
        let answer: WrapAnswer<'_> = self.parse(&answer, "wrap answers {\"handle\": BASE64}")?;
        let handle = BASE64.decode(answer.handle).map_err(|_| self.fault(CommandFault::Answer("no Base64")))?;
        if (1..=MAX_HANDLE).contains(&handle.len()) {
            Ok(handle)
        } else {
            Err(self.fault(CommandFault::Answer("a handle has 1 to 16384 bytes")))
        }
    }

    /// Gets the key back.
    pub(crate) fn unwrap(&self, vault: &VaultId, slot: u32, handle: &[u8]) -> Result<Key, VaultError> {
        let handle = BASE64.encode(handle);
        let request = Request {
            palyra_vault: 1,
            operation: "unwrap",
            vault: vault.as_str(),
            slot,
            key: None,
            handle: Some(&handle),
        };
        let answer = self.run(&request, None)?;
        let answer: UnwrapAnswer<'_> = self.parse(&answer, "unwrap answers {\"key\": BASE64}")?;
        let key = BASE64.decode(answer.key).map(Zeroizing::new);
        let key = key.map_err(|_| self.fault(CommandFault::Answer("no Base64")))?;
        Key::from_slice(&key).ok_or_else(|| self.fault(CommandFault::Answer("a key has 32 bytes")))
    }

    fn parse<'a, T: Deserialize<'a>>(&self, answer: &'a [u8], expect: &'static str) -> Result<T, VaultError> {
        // The reason of a parser may repeat what it read, which may be a key.
        serde_json::from_slice(answer).map_err(|_| self.fault(CommandFault::Answer(expect)))
    }

    fn fault(&self, fault: CommandFault) -> VaultError {
        VaultError::Command { program: self.program.display().to_string(), fault }
    }

    fn run(&self, request: &Request<'_>, key: Option<&Key>) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        if !self.program.is_absolute() {
            return Err(self.fault(CommandFault::Relative));
        }
        let mut input = Zeroizing::new(Vec::with_capacity(MAX_HANDLE * 2));
        serde_json::to_writer(&mut *input, request)
            .map_err(|_| VaultError::Internal { what: "a request to the key command has no text form" })?;
        input.push(b'\n');
        let mut child = self.command().spawn().map_err(|error| self.fault(CommandFault::Start(error)))?;
        let output = converse(&mut child, input, self.timeout);
        let status = end(&mut child, &output);
        match output {
            Err(fault) => Err(self.fault(fault)),
            Ok(output) => {
                match status {
                    Ok(status) if status.success() => Ok(output.answer),
                    Ok(status) => Err(self
                        .fault(CommandFault::Failed { status: status.to_string(), error: shown(&output.error, key) })),
                    Err(error) => Err(self.fault(CommandFault::Start(error))),
                }
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear();
        let always = ["PATH", "HOME"].iter().copied();
        for name in always.chain(self.environment.iter().map(String::as_str)) {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }
}

/// What a command wrote.
struct Output {
    answer: Zeroizing<Vec<u8>>,
    error: Reading,
}

/// Hands over the input and reads to the end of both outputs, within the time.
fn converse(child: &mut Child, input: Zeroizing<Vec<u8>>, timeout: Duration) -> Result<Output, CommandFault> {
    let deadline = Instant::now() + timeout;
    let late = || CommandFault::Timeout { seconds: timeout.as_secs() };
    if let Some(mut stdin) = child.stdin.take() {
        // A command that reads nothing must not hold anybody up; whether it got its input shows in its answer.
        std::thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let answer = child.stdout.take().map(|stdout| read_all(stdout, MAX_ANSWER));
    let error = child.stderr.take().map(|stderr| read_all(stderr, MAX_ERROR));
    let until = |reading: Option<Receiver<Reading>>| match reading {
        None => Err(CommandFault::Answer("it has no output")),
        Some(reading) => match reading.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(read) => Ok(read),
            Err(RecvTimeoutError::Timeout) => Err(late()),
            Err(RecvTimeoutError::Disconnected) => Err(CommandFault::Answer("it cannot be read")),
        },
    };
    let answer = until(answer)?;
    let error = until(error)?;
    wait_for_exit(child, deadline).ok_or_else(late)?;
    if answer.more {
        return Err(CommandFault::TooMuch);
    }
    Ok(Output { answer: answer.bytes, error })
}

struct Reading {
    bytes: Zeroizing<Vec<u8>>,
    /// Whether there was more than was kept.
    more: bool,
}

/// Reads to the end on a thread of its own and keeps the first `limit` bytes.
fn read_all(mut from: impl Read + Send + 'static, limit: usize) -> Receiver<Reading> {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
        let mut more = false;
        let mut piece = Zeroizing::new([0; 4096]);
        while let Ok(count) = from.read(&mut *piece) {
            if count == 0 {
                break;
            }
            let room = limit - bytes.len();
            more |= count > room;
            bytes.extend_from_slice(&piece[..count.min(room)]);
        }
        // Nobody may be waiting any more.
        drop(done.send(Reading { bytes, more }));
    });
    result
}

/// Waits until the child has ended, without reaping it: until then its process group cannot become somebody else's.
#[cfg(unix)]
fn wait_for_exit(child: &Child, deadline: Instant) -> Option<()> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let pid = Pid::from_raw(i32::try_from(child.id()).ok()?)?;
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let waited = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        // Nobody may be waiting any more.
        let _gone = done.send(waited.is_ok());
    });
    ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok().map(drop)
}

/// Both outputs have ended; the child ends with them.
#[cfg(not(unix))]
fn wait_for_exit(_: &Child, _: Instant) -> Option<()> {
    Some(())
}

/// Ends the command if it is still there, with everything that it has started, and reaps it.
fn end(child: &mut Child, output: &Result<Output, CommandFault>) -> std::io::Result<ExitStatus> {
    if output.is_err() {
        #[cfg(unix)]
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // It may have ended by itself.
            let _ended = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        drop(child.kill());
    }
    child.wait()
}

/// The beginning of what a command said of its failure, without the key that it was given. Nothing, if that cannot be
/// made sure.
fn shown(error: &Reading, key: Option<&Key>) -> String {
    let text = match key {
        None => Some(error.bytes.to_vec()),
        Some(key) => without(error, key),
    };
    safe(String::from_utf8_lossy(&text.unwrap_or_default()).trim())
}

fn without(error: &Reading, key: &Key) -> Option<Vec<u8>> {
    let mut builder = Redactor::builder();
    builder.add(&"vault://global/slot".parse().ok()?, &SecretValue::new(key.expose().to_vec()).ok()?);
    let mut stream = RedactionStream::new(Arc::new(builder.build().ok()?), Mask::Marker);
    let mut text = Vec::new();
    stream.push(&error.bytes, &mut text);
    stream.finish(if error.more { StreamEnd::Cut } else { StreamEnd::Whole }, &mut text);
    Some(text)
}

impl fmt::Display for KeyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.program.display())
    }
}
