//! The command line: run to its end, or kept running while its lines are read.

use crate::PATIENCE;
use crate::host::{Host, signal};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// The one document on standard output.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("no document on standard output ({e}): {self:?}"))
    }

    /// One document for each line of standard output.
    #[must_use]
    pub fn json_lines(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("`{line}`: {e}"))).collect()
    }

    /// The error document on standard error.
    #[must_use]
    pub fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or("");
        let document: Value =
            serde_json::from_str(last).unwrap_or_else(|e| panic!("no error document ({e}): {self:?}"));
        document["error"].clone()
    }

    /// Asserts the exit code, and shows everything when it is another.
    #[must_use = "or say `.done()`"]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Asserts success and returns the document.
    #[must_use]
    pub fn good(self) -> Value {
        self.exits(0).json()
    }

    /// Asserts a failure with this exit code and this error code, and returns the error.
    pub fn fails(self, exit: i32, code: &str) -> Value {
        let ran = self.exits(exit);
        let error = ran.error();
        assert_eq!(error["code"], code, "{error}");
        let message = error["message"].as_str().unwrap_or("");
        assert!(!message.is_empty(), "a failure says what happened: {error}");
        error
    }

    /// Nothing more to look at.
    pub fn done(self) {}
}

impl Host {
    /// A command of `palyra` with JSON output.
    #[must_use]
    pub fn palyra<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        run(self.json_command(args), &[])
    }

    /// A command of `palyra` with JSON output and this standard input.
    #[must_use]
    pub fn palyra_fed<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Ran {
        run(self.json_command(args), input)
    }

    /// A command of `palyra` as a person sees it.
    #[must_use]
    pub fn palyra_text<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        let mut command = self.command("palyra");
        command.args(args);
        run(command, &[])
    }

    /// Calls a tool.
    #[must_use]
    pub fn call(&self, tool: &str, input: &Value, options: &[&str]) -> Ran {
        let input = input.to_string();
        self.palyra(&[&["call", tool, "--input", &input], options].concat())
    }

    /// Starts a command of `palyra` with JSON output.
    #[must_use]
    pub fn palyra_started<S: AsRef<OsStr>>(&self, args: &[S]) -> Running {
        Running::start(self.json_command(args))
    }

    /// The answer to a question, as the owner gives it.
    #[must_use]
    pub fn decide(&self, approval: &str, decision: &str, options: &[&str]) -> Ran {
        self.palyra(&[&["approvals", "decide", approval, decision], options].concat())
    }

    /// Proposes a call that must ask, and returns its call id and approval id.
    #[must_use]
    pub fn ask(&self, tool: &str, input: &Value, options: &[&str]) -> (String, String) {
        let asked = self.call(tool, input, &[&["--detach"], options].concat()).good();
        assert_eq!(asked["state"], "awaiting_approval", "{asked}");
        (crate::text(&asked, "/call_id").to_owned(), crate::text(&asked, "/approval/approval_id").to_owned())
    }

    fn json_command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.command("palyra");
        command.args(["--output", "json"]).args(args);
        command
    }
}

/// Runs a command to its end.
#[must_use]
pub fn run(mut command: Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that refuses early does not read all of it.
    drop(stdin.write_all(input));
    drop(stdin);
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = ended.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{command:?} does not end"));
    let output = output.expect("its output can be read");
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
    }
}

/// A command that goes on. It dies with this value.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    /// Starts a command.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = lines(child.stdout.take().expect("piped"));
        let stderr = lines(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    /// Waits for the next line of standard output.
    #[must_use]
    pub fn line(&self) -> String {
        self.stdout.recv_timeout(PATIENCE).expect("a line on standard output")
    }

    /// Waits for the next document on standard output.
    #[must_use]
    pub fn json(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("`{line}`: {e}"))
    }

    /// Waits for a line of standard error that holds this text.
    pub fn told(&self, text: &str) {
        while !self.stderr.recv_timeout(PATIENCE).expect("a line on standard error").contains(text) {}
    }

    /// Waits for the next line of standard error that is not empty.
    #[must_use]
    pub fn side_line(&self) -> String {
        loop {
            let line = self.stderr.recv_timeout(PATIENCE).expect("a line on standard error");
            if !line.trim().is_empty() {
                return line.trim().to_owned();
            }
        }
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        signal(self.child.id(), rustix::process::Signal::INT);
    }

    /// Waits for its end.
    #[must_use]
    pub fn end(mut self) -> Ran {
        let rest = |lines: &Receiver<String>| {
            let mut text = String::new();
            // The streams end when the program does.
            while let Ok(line) = lines.recv_timeout(PATIENCE) {
                text.push_str(&line);
                text.push('\n');
            }
            text
        };
        let (stdout, stderr) = (rest(&self.stdout), rest(&self.stderr));
        let code = self.child.wait().expect("it ends").code().unwrap_or(-1);
        Ran { code, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
