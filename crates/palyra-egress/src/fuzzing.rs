//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! The same functions are called by the property tests, so that they are exercised wherever the tests run.

use super::gate::{AnswerHead, Body, Gate, Hello, Shut, Step};
use super::host::Host;
use super::http::{Forward, Framing, Request, Scan, parse_answer, parse_request, scan};
use super::path::ambiguity;
use super::rule::EgressRule;
use super::rules::{EgressRules, Purpose, Target};
use super::socks;
use super::tls_hello::{Greeting, read_greeting};

/// Reads the bytes as everything that a client or server might send.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn request(bytes: &[u8]) {
    greeting(bytes);
    socks::greeting(bytes);
    socks::request(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        words(text);
    }
    gates(bytes);
    let Ok(Scan::End(end)) = scan(bytes) else { return };
    let (head, rest) = bytes.split_at(end);
    if let Ok(answer) = parse_answer(head) {
        let again = parse_answer(&answer.to_bytes());
        assert!(again.is_ok(), "an answer that goes on can be read");
    }
    if let Ok(Request::Forward(forward)) = parse_request(head) {
        written_anew(&forward);
        asked(&forward);
        body(forward.body, rest);
    }
}

/// Reads the bytes as the head of a request or an answer.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn http_head(bytes: &[u8]) {
    let Ok(Scan::End(end)) = scan(bytes) else { return };
    let head = &bytes[..end];
    if let Ok(answer) = parse_answer(head) {
        assert!(parse_answer(&answer.to_bytes()).is_ok(), "an answer that goes on can be read");
    }
    if let Ok(Request::Forward(forward)) = parse_request(head) {
        written_anew(&forward);
        asked(&forward);
    }
}

/// Reads the bytes as a rule, or as a URL and where it redirects to.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn rule(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        words(text);
    }
}

/// What looks like TLS is a greeting for one host, or goes nowhere.
///
/// # Panics
/// When a promise of the parser is broken.
pub fn greeting(bytes: &[u8]) {
    let read = read_greeting(bytes);
    if let [20..=24, 3, ..] = bytes {
        assert_ne!(read, Greeting::NotTls, "what looks like TLS is read as TLS");
        assert!(bytes[0] == 22 || read == Greeting::Bad, "TLS begins with a handshake");
    }
    // A record before a greeting, whatever it holds, does not hide it.
    let behind = [&[21, 3, 1, 0, 2, 1, 90], bytes].concat();
    assert_eq!(read_greeting(&behind), Greeting::Bad);
}

/// Rules and URLs.
fn words(text: &str) {
    if let Ok(rule) = text.parse::<EgressRule>() {
        assert_eq!(rule.to_string().parse().as_ref(), Ok(&rule), "a rule reads the same again");
    }
    #[cfg(target_os = "linux")]
    if let Some((base, location)) = text.split_once('\n')
        && let Ok(base) = super::fetch::FetchUrl::parse(base)
        && let Ok(next) = base.join(location)
    {
        let again = super::fetch::FetchUrl::parse(&next.to_string());
        assert_eq!(again.as_ref(), Ok(&next), "where a redirect leads can be written and read");
    }
}

/// However bytes are cut into pieces, a gate lets the same through.
fn gates(bytes: &[u8]) {
    let host = || Host::Name("example.org".to_owned());
    let gates: [&dyn Fn() -> Gate; 4] = [
        &|| Gate::Answer(AnswerHead::to("GET")),
        &|| Gate::Answer(AnswerHead::to("HEAD")),
        &|| Gate::Hello(Hello::new(host())),
        &|| Gate::Body(Body::Length(7)),
    ];
    for gate in gates {
        let whole = through(gate(), bytes, bytes.len().max(1));
        for size in [1, 7] {
            assert_eq!(through(gate(), bytes, size), whole, "in pieces of {size}");
        }
    }
}

/// What goes through a gate when a stream of these bytes ends.
fn through(mut gate: Gate, bytes: &[u8], size: usize) -> Result<Vec<u8>, Shut> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let end = bytes.len().min(at + size);
        match gate.feed(&bytes[at..end], &mut out)? {
            Step::More => {}
            Step::End => return Ok(out),
            Step::Pass => {
                out.extend_from_slice(&bytes[end..]);
                return Ok(out);
            }
            Step::Only(left) => {
                let left = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - end);
                out.extend_from_slice(&bytes[end..end + left]);
                return Ok(out);
            }
        }
        at = end;
    }
    if !gate.is_in_answer() {
        gate.finish()?;
    }
    Ok(out)
}

fn written_anew(forward: &Forward) {
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
}

/// A rule for a path lets nothing else through.
fn asked(forward: &Forward) {
    let Ok(rule) = format!("GET http://{}:{}/api/*", forward.host, forward.port).parse() else { return };
    let purpose = Purpose::Http { method: forward.method.clone(), path: forward.path.clone() };
    let target = Target { host: forward.host.clone(), port: forward.port, purpose };
    if EgressRules::new(vec![rule]).check(&target).is_ok() {
        assert!(forward.method == "GET" && forward.path.starts_with("/api/"), "{forward:?}");
        assert!(ambiguity(&forward.path).is_none() && !forward.path.contains(".."), "{forward:?}");
    }
}

fn body(framing: Framing, rest: &[u8]) {
    let Some(body) = Body::new(framing) else { return };
    let mut gate = Gate::Body(body);
    let mut out = Vec::new();
    let mut ended = Ok(Step::More);
    for piece in rest.chunks(7) {
        ended = gate.feed(piece, &mut out);
        if ended != Ok(Step::More) {
            break;
        }
    }
    assert!(!matches!(ended, Ok(Step::Pass | Step::Only(_))), "a body has an end");
    if let (Framing::Chunked, Ok(ended)) = (framing, ended) {
        let mut again = Vec::new();
        let read = Body::new(framing).map(|body| Gate::Body(body).feed(&out, &mut again));
        assert_eq!(read, Some(Ok(ended)), "what goes on is framed as chunks are");
        assert_eq!(again, out, "and stays as it is");
    }
}
