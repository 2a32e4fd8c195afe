//! A client of the HTTP door: requests as programs send them, and bytes as nobody should.

use crate::{Host, PATIENCE, text};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// Somebody who speaks to the door, with a token or without.
#[derive(Debug, Clone)]
pub struct Http {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    token: Option<String>,
    agent: ureq::Agent,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// A header's value; empty when it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// The answer must have this status.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// The answer must be a refusal of this kind, as a problem document.
    #[track_caller]
    pub fn refuses(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(text(&problem, "/code"), code, "{self:?}");
        assert_eq!(problem["status"], status);
        assert_eq!(text(&problem, "/type"), format!("urn:palyra:problem:{code}"));
        assert_eq!(text(&problem, "/request_id"), self.header("x-request-id"));
        problem
    }
}

impl Host {
    /// The HTTP door, without a token.
    #[must_use]
    pub fn http(&self) -> Http {
        let url = std::fs::read_to_string(self.state().join("http.url")).expect("the door is open");
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build();
        Http { url: url.trim().to_owned(), token: None, agent: config.into() }
    }

    /// The HTTP door with a fresh token of this principal, made with these options.
    #[must_use]
    pub fn http_as(&self, principal: &str, options: &[&str]) -> Http {
        let args = [&["access", "token", "create", principal], options].concat();
        let token = text(&self.palyra(&args).good(), "/token").to_owned();
        self.http().with(&token)
    }

    /// The door for an agent, which is made known first.
    #[must_use]
    pub fn http_agent(&self, principal: &str) -> Http {
        self.palyra(&["access", "agent", "add", principal]).exits(0).done();
        self.http_as(principal, &["--rate", "100000"])
    }

    /// The door for the owner, with the right to answer questions.
    #[must_use]
    pub fn http_approver(&self) -> Http {
        let scopes = "tool.list,tool.execute,call.read,call.cancel,approval.list,approval.decide";
        self.http_as("user:local", &["--role", "owner", "--scope", scopes])
    }
}

impl Http {
    /// The same door with this token.
    #[must_use]
    pub fn with(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> &str {
        self.token.as_deref().expect("a token")
    }

    /// The same token at the host's door of now: a restarted daemon has another port.
    #[must_use]
    pub fn again(&self, host: &Host) -> Self {
        host.http().with(self.token())
    }

    /// A request with more headers.
    #[must_use]
    pub fn send(&self, verb: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
        let mut answer = self.begin(verb, path, headers, body);
        let body = answer.body_mut().with_config().limit(8 << 20).read_to_string().expect("the answer can be read");
        let headers = answer.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()));
        Answer { status: answer.status().as_u16(), headers: headers.collect(), body }
    }

    fn begin(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> ureq::http::Response<ureq::Body> {
        let mut request = ureq::http::Request::builder().method(verb).uri(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.unwrap_or_default().to_vec()).expect("a request");
        self.agent.run(request).expect("an answer")
    }

    /// `GET`.
    #[must_use]
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    /// `POST` of JSON.
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], Some(body.to_string().as_bytes()))
    }

    /// Proposes a call.
    #[must_use]
    pub fn invoke(&self, tool: &str, input: &Value) -> Answer {
        self.post("/v1/tools/invoke", &json!({ "tool": tool, "input": input }))
    }

    /// Proposes a call under a key, and waits so long.
    #[must_use]
    pub fn invoke_once(&self, tool: &str, input: &Value, key: &str, wait_ms: u64) -> Answer {
        let body = json!({ "tool": tool, "input": input, "wait_ms": wait_ms }).to_string();
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send("POST", "/v1/tools/invoke", &headers, Some(body.as_bytes()))
    }

    /// Proposes a call that waits for a person; returns the call and the question.
    #[must_use]
    pub fn ask(&self, tool: &str, input: &Value) -> (String, String) {
        let body = json!({ "tool": tool, "input": input, "wait_ms": 0 });
        let asked = self.post("/v1/tools/invoke", &body).is(202);
        let call = asked.json();
        assert_eq!(asked.header("location"), format!("/v1/calls/{}", text(&call, "/call_id")));
        (text(&call, "/call_id").to_owned(), text(&call, "/approval/approval_id").to_owned())
    }

    /// Answers a question.
    #[must_use]
    pub fn decide(&self, approval: &str, decision: &str) -> Answer {
        self.post(&format!("/v1/approvals/{approval}/decide"), &json!({ "decision": decision }))
    }

    /// Begins to follow a call.
    #[must_use]
    pub fn events(&self, call: &str) -> Events {
        self.stream(&format!("/v1/calls/{call}/events"))
    }

    /// Begins to follow whatever this path tells.
    #[must_use]
    pub fn stream(&self, path: &str) -> Events {
        let answer = self.begin("GET", path, &[], None);
        assert_eq!(answer.status().as_u16(), 200, "{answer:?}");
        Events(BufReader::new(Box::new(answer.into_body().into_reader())))
    }

    /// The lines of an answer to a JSON document, as they come.
    pub fn lines(&self, path: &str, body: &Value) -> impl Iterator<Item = String> + use<> {
        let body = body.to_string();
        let answer = self.begin("POST", path, &[("content-type", "application/json")], Some(body.as_bytes()));
        assert_eq!(answer.status().as_u16(), 200, "{answer:?}");
        BufReader::new(answer.into_body().into_reader()).lines().map(|line| line.expect("the stream can be read"))
    }

    /// A bare connection.
    #[must_use]
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.url.trim_start_matches("http://")).expect("the door is there");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// What comes back for these bytes, until the connection is closed. The sending end is not closed before.
    #[must_use]
    pub fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // A refusal may come, and the connection go, before everything is sent.
        drop(stream.write_all(bytes));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The name that a request must have in `Host`.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.trim_start_matches("http://")
    }
}

/// Events as they come.
pub struct Events(BufReader<Box<dyn std::io::Read + Send>>);

/// The name and data of every event; nothing more when the stream has ended.
impl Iterator for Events {
    type Item = (String, Value);

    fn next(&mut self) -> Option<(String, Value)> {
        let (mut name, mut data) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("the stream can be read") == 0 {
                return None;
            }
            match line.trim_end() {
                "" if !name.is_empty() => return Some((name, serde_json::from_str(&data).expect("JSON"))),
                line => {
                    if let Some(rest) = line.strip_prefix("event: ") {
                        name = rest.to_owned();
                    }
                    if let Some(rest) = line.strip_prefix("data: ") {
                        data.push_str(rest);
                    }
                }
            }
        }
    }
}

impl Events {
    /// The next event.
    #[track_caller]
    pub fn next_event(&mut self) -> (String, Value) {
        self.next().expect("the stream goes on")
    }

    /// Waits for an event of this name.
    #[track_caller]
    pub fn until_event(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().unwrap_or_else(|| panic!("the stream ended before `{wanted}`"));
            if name == wanted {
                return data;
            }
        }
    }

    /// Waits for a state.
    pub fn until(&mut self, state: &str) -> Value {
        loop {
            let (name, data) = self.next().unwrap_or_else(|| panic!("the stream ended before `{state}`"));
            if name == "state" && data["state"] == state {
                return data;
            }
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
