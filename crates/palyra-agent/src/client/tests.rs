//! Calls over real sockets to a scripted provider.

use super::*;
use crate::conversation::{Message, Role};
use palyra_egress::{EgressRecord, EgressRules, Roots, SystemResolver};
use palyra_testkit::serve;
use std::sync::Mutex;

#[derive(Default)]
struct Watch(Mutex<Vec<EgressRecord>>);

impl FetchWatch for Watch {
    fn may_go(&self, _: &FetchRequest) -> Result<(), Denial> {
        Ok(())
    }

    fn connection(&self, record: &EgressRecord) {
        self.0.lock().unwrap().push(record.clone());
    }
}

fn stream(status: &str, headers: &str, events: &[&str]) -> String {
    let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

const HELLO: &[&str] = &[
    r#"{"choices":[{"delta":{"content":"hello"}}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    "[DONE]",
];

struct Called {
    result: Result<ModelReply, ModelError>,
    pieces: usize,
    records: Vec<EgressRecord>,
}

fn call(port: u16, rule: &str, cancel: &CancelSignal) -> Called {
    let rules = EgressRules::new(vec![rule.parse().unwrap()]);
    let client = ModelClient::new(Arc::new(Fetcher::new(Arc::new(rules), Arc::new(SystemResolver), Roots::System)));
    let endpoint = Endpoint {
        base_url: format!("http://127.0.0.1:{port}/v1/"),
        dialect: Dialect::ChatCompletions,
        timeout: Duration::from_secs(20),
    };
    let request = ModelRequest {
        model: "m".to_owned(),
        messages: vec![Message::text(Role::User, "hi")],
        tools: Vec::new(),
        settings: crate::providers::ModelSettings::default(),
    };
    let (watch, key) = (Watch::default(), Secret::new(b"sk-1".to_vec()));
    let mut pieces = 0;
    let context = CallContext { cancel, watch: &watch };
    let result = client.call(&endpoint, Some(&key), &request, context, &mut |_| pieces += 1);
    Called { result, pieces, records: watch.0.into_inner().unwrap() }
}

#[test]
fn an_answer_comes_piece_by_piece_and_is_recorded() {
    let (port, asked) = serve(vec![stream("200 OK", "", HELLO)]);
    let called = call(port, &format!("127.0.0.1:{port}"), &CancelSignal::never().unwrap());
    assert_eq!(called.result.unwrap().text, "hello");
    assert_eq!((called.pieces, called.records.len()), (2, 1));
    let asked = asked.join().unwrap().remove(0);
    assert!(asked.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_lowercase().contains("authorization: bearer sk-1"), "{asked}");
}

#[test]
fn passing_errors_are_tried_again_and_others_are_not() {
    let busy = stream("503 Busy", "Retry-After: 0\r\n", &[]);
    let (port, asked) = serve(vec![busy.clone(), busy, stream("200 OK", "", HELLO)]);
    let called = call(port, &format!("127.0.0.1:{port}"), &CancelSignal::never().unwrap());
    assert_eq!(called.result.unwrap().text, "hello");
    assert_eq!(asked.join().unwrap().len(), 3);

    let refused = "HTTP/1.1 401 No\r\nContent-Length: 33\r\n\r\n{\"error\":{\"message\":\"wrong key\"}}\n".to_owned();
    let (port, asked) = serve(vec![refused]);
    let called = call(port, &format!("127.0.0.1:{port}"), &CancelSignal::never().unwrap());
    let error = called.result.unwrap_err();
    assert_eq!((error.code(), error.to_string().contains("wrong key")), ("model_key_refused", true));
    assert_eq!(asked.join().unwrap().len(), 1);
}

#[test]
fn only_errors_that_pass_are_tried_again() {
    for (status, tries) in
        [(400, 1), (401, 1), (403, 1), (404, 1), (409, 1), (422, 1), (501, 1), (408, 4), (429, 4), (500, 4), (529, 4)]
    {
        let refused = stream(&format!("{status} No"), "Retry-After: 0\r\n", &[]);
        let answers = (0..tries).map(|_| refused.clone()).collect();
        let (port, asked) = provider(answers);
        let called = call(port, &format!("127.0.0.1:{port}"), &CancelSignal::never().unwrap());
        assert!(matches!(called.result, Err(ModelError::Status { status: found, .. }) if found == status), "{status}");
        // It would have been asked once more, and refused the connection, had it not given up.
        assert_eq!(asked.join().unwrap().len(), tries, "{status}");
        assert_eq!(called.records.len(), tries, "{status}: as many connections as tries");
    }
}

#[test]
fn waits_between_tries_grow_and_differ() {
    for tried in 1..TRIES {
        let longest = Duration::from_millis(250 << tried);
        let waits: Vec<Duration> = (0..64).map(|_| backoff(tried)).collect();
        assert!(waits.iter().all(|wait| (longest / 2..=longest).contains(wait)), "{tried}: {waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "no chance in {waits:?}");
    }
}

#[test]
fn a_broken_stream_after_the_first_word_is_not_repeated() {
    for (events, code) in [(&HELLO[..1], "model_answer_cut_off"), (&[HELLO[0], "{"][..], "model_answer_malformed")] {
        let (port, asked) = serve(vec![stream("200 OK", "", events)]);
        let called = call(port, &format!("127.0.0.1:{port}"), &CancelSignal::never().unwrap());
        assert_eq!(called.result.unwrap_err().code(), code);
        assert_eq!(asked.join().unwrap().len(), 1);
    }
}

#[test]
fn the_rules_of_egress_apply() {
    let called = call(9, "example.org", &CancelSignal::never().unwrap());
    assert_eq!(called.result.unwrap_err().code(), "model_egress_denied");
    assert_eq!(called.records.len(), 1);
}

#[test]
fn a_cancelled_call_ends_also_between_tries() {
    let (handle, signal) = CancelSignal::new().unwrap();
    let (port, asked) = serve(vec![stream("503 Busy", "Retry-After: 60\r\n", &[])]);
    let waiting = std::thread::spawn(move || call(port, &format!("127.0.0.1:{port}"), &signal).result);
    asked.join().unwrap();
    handle.cancel();
    assert_eq!(waiting.join().unwrap().unwrap_err().code(), "cancelled");
}
