//! A model provider on loopback that says what a test has written down, in any of the wire formats.

use palyra_testkit::{listen, read_request};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// What the model says to one request.
#[derive(Debug, Clone)]
pub enum Say {
    /// Text, and no more.
    Text(String),
    /// These tools are to be called: the id, the alias, the input.
    Calls(Vec<(String, String, String)>),
    /// The bytes of a whole HTTP answer.
    Raw(Vec<u8>),
    /// Nothing, until the other side goes.
    Nothing,
    /// The first words of a text, and nothing more until the other side goes.
    Begins(String),
}

/// What is said to a request, by its number and its body.
type Script = Arc<dyn Fn(usize, &Value) -> Say + Send + Sync>;

impl Say {
    /// Text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// One tool call.
    #[must_use]
    pub fn call(alias: &str, input: &Value) -> Self {
        Self::calls(&[(alias, input.clone())])
    }

    /// Several tool calls at once.
    #[must_use]
    pub fn calls(calls: &[(&str, Value)]) -> Self {
        let calls = calls.iter().enumerate();
        Self::Calls(
            calls.map(|(n, (alias, input))| (format!("id_{n}"), (*alias).to_owned(), input.to_string())).collect(),
        )
    }

    /// A refusal that passes: the next try may come at once.
    #[must_use]
    pub fn retried(status: u16) -> Self {
        let head =
            format!("HTTP/1.1 {status} No\r\nRetry-After: 0\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        Self::Raw(head.into())
    }

    /// A refusal.
    #[must_use]
    pub fn status(status: u16, message: &str) -> Self {
        let body = json!({ "error": { "message": message } }).to_string();
        Self::Raw(
            format!("HTTP/1.1 {status} No\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).into(),
        )
    }

    /// A stream of these lines.
    #[must_use]
    pub fn stream(body: &str) -> Self {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n";
        Self::Raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into())
    }
}

/// The provider. It answers the first request with the first thing to say, and so on; after the last it says `done`.
#[derive(Debug)]
pub struct Model {
    port: u16,
    asked: Arc<Mutex<Vec<Value>>>,
    heard: mpsc::Receiver<Heard>,
}

/// What the provider notices of its clients.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Asked,
    Gone,
}

impl Model {
    /// A provider that says these things.
    #[must_use]
    pub fn saying(script: Vec<Say>) -> Self {
        Self::answering(move |number, _| script.get(number).cloned().unwrap_or_else(|| Say::text("done")))
    }

    /// A provider that answers what it is asked, however often it is asked.
    #[must_use]
    pub fn answering(script: impl Fn(usize, &Value) -> Say + Send + Sync + 'static) -> Self {
        let script: Script = Arc::new(script);
        let (listener, port) = listen();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (tell, heard) = mpsc::channel();
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, kept, tell) = (Arc::clone(&script), Arc::clone(&kept), tell.clone());
                std::thread::spawn(move || answer(stream, &*script, &kept, &tell));
            }
        });
        Self { port, asked, heard }
    }

    /// The configuration of a daemon that asks it: the provider `p` in this format, the alias `main`, and the agent
    /// `coder` with these further lines.
    #[must_use]
    pub fn config(&self, dialect: &str, agent: &str) -> String {
        format!(
            "[models]\ndefault = \"main\"\n[models.aliases]\nmain = [\"p/m\"]\n[models.providers.p]\n\
             dialect = \"{dialect}\"\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodels = [\"m\"]\n\
             [models.agents.coder]\nmodel = \"main\"\n{agent}\n",
            self.port
        )
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Every request so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the next request.
    pub fn next_request(&self) {
        self.hears(&Heard::Asked);
    }

    /// Waits until a client has gone that was told nothing, or only the first words.
    pub fn is_left(&self) {
        self.hears(&Heard::Gone);
    }

    fn hears(&self, wanted: &Heard) {
        while self.heard.recv_timeout(crate::PATIENCE).expect("the model is asked, or left") != *wanted {}
    }
}

fn answer(
    mut stream: TcpStream,
    script: &(dyn Fn(usize, &Value) -> Say + Send + Sync),
    asked: &Mutex<Vec<Value>>,
    tell: &mpsc::Sender<Heard>,
) {
    while let Some((path, body)) = request(&mut stream) {
        let (number, body) = {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(body.clone());
            (asked.len() - 1, body)
        };
        // The test may have gone.
        let _gone = tell.send(Heard::Asked);
        let bytes = match script(number, &body) {
            Say::Raw(bytes) => bytes,
            Say::Nothing => return waits(&mut stream, tell),
            Say::Begins(text) => {
                if stream.write_all(&beginning(&text)).is_ok() {
                    waits(&mut stream, tell);
                }
                return;
            }
            say => stream_of(&path, &say),
        };
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Waits until the other side goes.
fn waits(stream: &mut TcpStream, tell: &mpsc::Sender<Heard>) {
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest));
    // The test may have gone.
    let _gone = tell.send(Heard::Gone);
}

/// The first words of a chat completion that has no end.
fn beginning(text: &str) -> Vec<u8> {
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] });
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000000\r\n\r\ndata: {chunk}\n\n")
        .into()
}

fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let request = read_request(stream).ok()?;
    let (head, body) = request.split_once("\r\n\r\n")?;
    let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    Some((path, serde_json::from_str(body).unwrap_or_default()))
}

fn stream_of(path: &str, say: &Say) -> Vec<u8> {
    let events = if path.ends_with("/messages") {
        messages(say)
    } else if path.ends_with("/responses") {
        responses(say)
    } else {
        chat(say)
    };
    let body: String = events.iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

type Events = Vec<(&'static str, String)>;

fn chat(say: &Say) -> Events {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        ("message", json!({ "choices": [choice] }).to_string())
    };
    let mut events = Vec::new();
    let finish = match say {
        Say::Calls(calls) => {
            for (index, (id, name, input)) in calls.iter().enumerate() {
                let function = json!({ "name": name, "arguments": "" });
                events.push(chunk(
                    json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] }),
                    Value::Null,
                ));
                let rest = json!({ "index": index, "function": { "arguments": input } });
                events.push(chunk(json!({ "tool_calls": [rest] }), Value::Null));
            }
            "tool_calls"
        }
        Say::Text(text) => {
            for word in text.split_inclusive(' ') {
                events.push(chunk(json!({ "content": word }), Value::Null));
            }
            "stop"
        }
        Say::Raw(_) | Say::Nothing | Say::Begins(_) => "stop",
    };
    events.push(chunk(json!({}), finish.into()));
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    events.push(("message", usage.to_string()));
    events.push(("message", "[DONE]".to_owned()));
    events
}

fn responses(say: &Say) -> Events {
    let event = |name: &'static str, mut data: Value| {
        data["type"] = name.into();
        (name, data.to_string())
    };
    let mut events = Vec::new();
    match say {
        Say::Calls(calls) => {
            for (index, (id, name, input)) in calls.iter().enumerate() {
                let item = json!({ "type": "function_call", "call_id": id, "name": name, "arguments": "" });
                events.push(event("response.output_item.added", json!({ "output_index": index, "item": item })));
                let delta = json!({ "output_index": index, "delta": input });
                events.push(event("response.function_call_arguments.delta", delta));
            }
        }
        Say::Text(text) => events.push(event("response.output_text.delta", json!({ "delta": text }))),
        Say::Raw(_) | Say::Nothing | Say::Begins(_) => {}
    }
    let usage = json!({ "input_tokens": 10, "output_tokens": 5 });
    events.push(event("response.completed", json!({ "response": { "usage": usage } })));
    events
}

fn messages(say: &Say) -> Events {
    let event = |name: &'static str, mut data: Value| {
        data["type"] = name.into();
        (name, data.to_string())
    };
    let mut events = vec![event("message_start", json!({ "message": { "usage": { "input_tokens": 10 } } }))];
    let reason = match say {
        Say::Calls(calls) => {
            for (index, (id, name, input)) in calls.iter().enumerate() {
                let block = json!({ "type": "tool_use", "id": id, "name": name });
                events.push(event("content_block_start", json!({ "index": index, "content_block": block })));
                let delta = json!({ "type": "input_json_delta", "partial_json": input });
                events.push(event("content_block_delta", json!({ "index": index, "delta": delta })));
            }
            "tool_use"
        }
        Say::Text(text) => {
            let delta = json!({ "type": "text_delta", "text": text });
            events.push(event("content_block_delta", json!({ "index": 0, "delta": delta })));
            "end_turn"
        }
        Say::Raw(_) | Say::Nothing | Say::Begins(_) => "end_turn",
    };
    let end = json!({ "delta": { "stop_reason": reason }, "usage": { "output_tokens": 5 } });
    events.push(event("message_delta", end));
    events.push(event("message_stop", json!({})));
    events
}
