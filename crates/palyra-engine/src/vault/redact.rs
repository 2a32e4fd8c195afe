//! Redaction of what a call puts out: nothing that was released to its run leaves the daemon in it.

use crate::flow::execute::Executed;
use palyra_egress::EgressRecord;
use palyra_protocol::{Problem, SecretRef};
use palyra_sandbox::{OutputSink, OutputStream};
use palyra_vault::{Mask, RedactionStream, Redactions, Redactor, StreamEnd};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Output that is cleaned while it comes.
#[derive(Debug)]
pub(crate) struct RedactedOutput<S> {
    sink: S,
    streams: Option<[RedactionStream; 2]>,
}

impl<S: OutputSink> RedactedOutput<S> {
    pub(crate) fn new(sink: S, redactor: Option<&Arc<Redactor>>) -> Self {
        let stream = |redactor: &Arc<Redactor>| RedactionStream::new(Arc::clone(redactor), Mask::Marker);
        Self { sink, streams: redactor.map(|redactor| [stream(redactor), stream(redactor)]) }
    }

    pub(crate) fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some(streams) = &mut self.streams else { return self.sink.chunk(stream, bytes) };
        let mut out = Vec::with_capacity(bytes.len());
        streams[place(stream)].push(bytes, &mut out);
        self.sink.chunk(stream, &out);
    }

    /// Passes on what was held back.
    pub(crate) fn finish(&mut self) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let Some(streams) = &mut self.streams else { return };
            let mut out = Vec::new();
            streams[place(stream)].finish(StreamEnd::Cut, &mut out);
            self.sink.chunk(stream, &out);
        }
    }
}

fn place(stream: OutputStream) -> usize {
    match stream {
        OutputStream::Stdout => 0,
        OutputStream::Stderr => 1,
    }
}

/// Counts what was replaced, by secret.
#[derive(Debug, Default)]
pub(crate) struct Replaced(BTreeMap<SecretRef, u64>);

impl Replaced {
    fn add(&mut self, found: Redactions) {
        for (secret, count) in found {
            *self.0.entry(secret).or_default() += count;
        }
    }

    /// Cleans bytes that were kept; of a stream that was cut off, also what may be the beginning of a value.
    pub(crate) fn clean(&mut self, redactor: Option<&Arc<Redactor>>, bytes: Vec<u8>, truncated: bool) -> Vec<u8> {
        let Some(redactor) = redactor else { return bytes };
        let mut stream = RedactionStream::new(Arc::clone(redactor), Mask::Marker);
        let mut out = Vec::with_capacity(bytes.len());
        stream.push(&bytes, &mut out);
        stream.finish(if truncated { StreamEnd::Cut } else { StreamEnd::Whole }, &mut out);
        self.add(stream.redactions());
        out
    }

    /// As an outcome tells it.
    pub(crate) fn told(&self) -> Value {
        self.0.iter().map(|(secret, count)| json!({ "secret": secret, "count": count })).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What an output schema says of it.
pub(crate) fn schema() -> Value {
    json!({
        "type": "array", "description": "secrets whose values were replaced by `[redacted]`, and how often",
        "items": {
            "type": "object", "required": ["secret", "count"],
            "properties": { "secret": { "type": "string" }, "count": { "type": "integer" } },
        },
    })
}

impl Executed {
    /// Cleans everything that a call gives back, and says so.
    pub(crate) fn redacted(mut self, redactor: &Arc<Redactor>) -> Self {
        let mut replaced = Replaced::default();
        replaced.add(redactor.redact_json(&mut self.output));
        if let Some(problem) = &mut self.problem {
            clean_problem(problem, redactor, &mut replaced);
        }
        if !replaced.is_empty()
            && let Some(layers) = self.enforcement.get_mut("layers").and_then(Value::as_array_mut)
        {
            let detail = format!("values of secrets were replaced: {}", replaced.told());
            layers.push(json!({ "name": "redaction", "detail": detail, "applied": true }));
        }
        self
    }
}

fn clean_problem(problem: &mut Problem, redactor: &Arc<Redactor>, replaced: &mut Replaced) {
    for text in std::iter::once(&mut problem.message).chain(&mut problem.hint) {
        if let Some((cleaned, found)) = redactor.redact_text(text) {
            *text = cleaned;
            replaced.add(found);
        }
    }
}

/// Cleans what is recorded of a connection.
pub(crate) fn clean_record(record: &mut EgressRecord, redactor: &Arc<Redactor>) {
    for text in [&mut record.host, &mut record.path, &mut record.method].into_iter().flatten() {
        if let Some((cleaned, _)) = redactor.redact_text(text) {
            *text = cleaned;
        }
    }
}
