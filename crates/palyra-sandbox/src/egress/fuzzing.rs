//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! The same functions are called by the property tests, so that they are exercised wherever the tests run.

use super::gate::{Body, Gate, Step};
use super::hello::read_greeting;
use super::http::{Request, Scan, parse_answer, parse_request, scan};
use super::rule::EgressRule;
use super::socks;

/// Reads the bytes as everything that a client or server might send.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn request(bytes: &[u8]) {
    read_greeting(bytes);
    socks::greeting(bytes);
    socks::request(bytes);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(rule) = text.parse::<EgressRule>()
    {
        assert_eq!(rule.to_string().parse().as_ref(), Ok(&rule), "a rule reads the same again");
    }
    let Ok(Scan::End(end)) = scan(bytes) else { return };
    let (head, rest) = bytes.split_at(end);
    if let Ok(answer) = parse_answer(head) {
        let again = parse_answer(&answer.to_bytes());
        assert!(again.is_ok(), "an answer that goes on can be read");
    }
    let Ok(Request::Forward(forward)) = parse_request(head) else { return };
    let written = forward.to_bytes();
    assert_eq!(scan(&written), Ok(Scan::End(written.len())), "what goes on is one head and nothing after it");
    // Written for a server, it names its host in a field; as a request to a proxy it is the same request again.
    let line_end = written.iter().position(|b| *b == b'\r').unwrap_or(0);
    let line = String::from_utf8_lossy(&written[..line_end]).into_owned();
    let line = line.replacen(' ', &format!(" http://{}:{}", forward.host, forward.port), 1);
    let absolute = [line.as_bytes(), &written[line_end..]].concat();
    let again = parse_request(&absolute);
    assert!(matches!(again, Ok(Request::Forward(_))), "what goes on can be read: {again:?}");
    let Ok(Request::Forward(again)) = again else { return };
    assert_eq!((&again.method, &again.path, again.body), (&forward.method, &forward.path, forward.body));
    assert_eq!(again.to_bytes(), written, "reading and writing again changes nothing");
    body(forward, rest);
}

fn body(forward: super::http::Forward, rest: &[u8]) {
    let Some(body) = Body::new(forward.body) else { return };
    let mut gate = Gate::Body(body);
    let mut out = Vec::new();
    for piece in rest.chunks(7) {
        match gate.feed(piece, &mut out) {
            Ok(Step::More) => {}
            ended => return assert_ne!(ended, Ok(Step::Pass), "a body has an end"),
        }
    }
}
