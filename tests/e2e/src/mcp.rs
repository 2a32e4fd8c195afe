//! An MCP client that says exactly what a test wants said: raw JSON-RPC, one message a line.

use crate::{Host, PATIENCE};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// The revision before the current one: a handshake and a session.
pub const BEFORE: &str = "2025-11-25";
/// The current revision: every request says who asks and in which version.
pub const CURRENT: &str = "2026-07-28";

/// `palyra mcp serve`, and what it says.
#[derive(Debug)]
pub struct Mcp {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What came while something else was waited for.
    seen: VecDeque<Value>,
    stderr: Receiver<String>,
    next: i64,
    /// What every request of the current revision carries.
    meta: Option<Value>,
}

impl Host {
    /// Starts `palyra mcp serve` with these options.
    #[must_use]
    pub fn mcp_raw(&self, options: &[&str]) -> Mcp {
        let mut command = self.command("palyra");
        command.args(options).args(["mcp", "serve"]).current_dir(self.path("w"));
        let mut command = crate::host::behind_client(&command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("palyra starts");
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        let (sender, stderr) = channel();
        let said = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || said.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Mcp { child, stdin, lines, seen: VecDeque::new(), stderr, next: 0, meta: None }
    }

    /// A client of the revision with a handshake, which is done.
    #[must_use]
    pub fn mcp(&self, options: &[&str]) -> Mcp {
        let mut client = self.mcp_raw(options);
        client.initialize(BEFORE);
        client
    }

    /// A client of the current revision.
    #[must_use]
    pub fn mcp_current(&self, options: &[&str]) -> Mcp {
        let mut client = self.mcp_raw(options);
        client.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": CURRENT,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        }));
        client
    }
}

impl Host {
    /// A call that runs until [`Self::pipe`] is closed, and returns what was written there.
    #[must_use]
    pub fn cat_from_pipe(&self) -> Value {
        let made = std::process::Command::new("mkfifo").arg("-m").arg("666").arg(self.work("pipe")).status();
        assert!(made.expect("mkfifo is there").success());
        json!({ "name": "palyra_process_run", "arguments": { "workspace": "live", "argv": ["cat", "pipe"] } })
    }

    /// The other end of the pipe, once the call is there to read.
    #[must_use]
    pub fn pipe(&self) -> std::fs::File {
        std::fs::File::options().write(true).open(self.work("pipe")).expect("the pipe is there")
    }
}

impl Mcp {
    /// Shakes hands and returns what the server says of itself.
    pub fn initialize(&mut self, revision: &str) -> Value {
        let said = self.request(
            "initialize",
            json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } }),
        );
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        said["result"].clone()
    }

    /// Sends a line.
    pub fn line(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("still speaking");
        stdin.write_all(line).and_then(|()| stdin.write_all(b"\n")).expect("it listens");
    }

    /// Sends a message.
    pub fn say(&mut self, message: &Value) {
        self.line(message.to_string().as_bytes());
    }

    /// Sends a request and returns its id.
    pub fn ask(&mut self, method: &str, mut params: Value) -> i64 {
        self.next += 1;
        if let Some(meta) = &self.meta {
            let own = params["_meta"].as_object().cloned().unwrap_or_default();
            params["_meta"] = meta.clone();
            params["_meta"].as_object_mut().expect("an object").extend(own);
        }
        self.say(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        self.next
    }

    /// Sends a request and waits for its answer.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(&json!(id))
    }

    /// Calls a tool and waits for its result.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// Waits for the answer to a request.
    pub fn answer(&mut self, id: &Value) -> Value {
        self.until(|message| message["id"] == *id && message.get("method").is_none())
    }

    /// Waits for a notification.
    pub fn notification(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method)
    }

    /// Waits for a message; others are kept for later.
    pub fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&wanted) {
            return self.seen.remove(at).expect("it is there");
        }
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| {
                panic!("nothing comes; seen {:?}, stderr {:?}", self.seen, self.stderr.try_iter().collect::<Vec<_>>())
            });
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("`{line}`: {e}"));
            if wanted(&message) {
                return message;
            }
            self.seen.push_back(message);
        }
    }

    /// Waits for a line of standard error that holds this text.
    pub fn told(&self, text: &str) {
        while !self.stderr.recv_timeout(PATIENCE).expect("a line on standard error").contains(text) {}
    }

    /// Stops speaking, and returns the exit code.
    pub fn hang_up(mut self) -> i32 {
        self.stdin = None;
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }

    /// SIGKILL: the connection is lost.
    pub fn lose(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
