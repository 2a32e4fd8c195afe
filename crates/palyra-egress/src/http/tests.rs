//! The corpus of requests that could be read in two ways, and those that can be read in one.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Request, Malformed> {
    let bytes = text.as_bytes();
    match scan(bytes)? {
        Scan::End(end) => parse_request(&bytes[..end]),
        Scan::More => Err(Malformed("more")),
    }
}

/// What the server gets, lines joined with `|`; or why nothing.
fn check(request: &str, expect: &str) {
    let found = match parse(request) {
        Ok(Request::Connect { host, port }) => format!("CONNECT {host}:{port}"),
        Ok(Request::Forward(forward)) => String::from_utf8(forward.to_bytes()).unwrap().trim_end().replace("\r\n", "|"),
        Err(error) => format!("refused: {error}"),
    };
    assert_eq!(found, expect, "{request:?}");
}

fn refused(request: &str, why: &str) {
    check(request, &format!("refused: {why}"));
}

/// A good request with these fields beside Host.
fn with(fields: &str) -> String {
    format!("POST http://a.test/x HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n")
}

#[test]
fn a_plain_request_is_written_anew() {
    check(
        "GET http://A.test:8080/x?y=http://b HTTP/1.1\r\nHost: a.test:8080\r\nAccept:  */* \r\nProxy-Authorization: secret\r\n\
         Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\r\n",
        "GET /x?y=http://b HTTP/1.1|host: a.test:8080|accept: */*|connection: close",
    );
    check(&with("Content-Length: 5\r\n"), "POST /x HTTP/1.1|host: a.test|content-length: 5|connection: close");
    check(&with("Content-Length: 0\r\n"), "POST /x HTTP/1.1|host: a.test|content-length: 0|connection: close");
    check(
        &with("Transfer-Encoding: Chunked\r\n"),
        "POST /x HTTP/1.1|host: a.test|transfer-encoding: chunked|connection: close",
    );
    check("GET http://a.test HTTP/1.0\r\n\r\n", "GET / HTTP/1.0|host: a.test|connection: close");
    check(
        "GET http://a.test?q HTTP/1.1\r\nHost: A.TEST.:80\r\n\r\n",
        "GET /?q HTTP/1.1|host: a.test|connection: close",
    );
    check("GET http://[::1]:81/ HTTP/1.1\r\nHost: [::1]:81\r\n\r\n", "GET / HTTP/1.1|host: [::1]:81|connection: close");
}

#[test]
fn a_tunnel_needs_a_host_and_a_port() {
    check("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", "CONNECT a.test:443");
    check("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "CONNECT a.test:443");
    check("CONNECT a.test:443 HTTP/1.0\r\n\r\n", "CONNECT a.test:443");
    refused("CONNECT a.test HTTP/1.1\r\n\r\n", "CONNECT needs `host:port`");
    refused("CONNECT http://a.test:443 HTTP/1.1\r\n\r\n", "the port is no number from 1 to 65535");
    refused("CONNECT u@a.test:443 HTTP/1.1\r\n\r\n", "a user name in the target");
    refused("CONNECT a.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n", "the Host field differs from the target");
    refused("CONNECT a.test:443 HTTP/1.1\r\nContent-Length: 4\r\n\r\n", "CONNECT with a body");
    refused("CONNECT 127.1:443 HTTP/1.1\r\n\r\n", "the host is no name and no plain address");
    refused(
        "CONNECT a.test:443\x0b HTTP/1.1\r\n\r\n",
        "the target holds a fragment, a backslash or a character that is not printable ASCII",
    );
}

#[test]
fn a_body_has_one_length_said_once() {
    refused(
        &with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        "Content-Length and Transfer-Encoding together",
    );
    refused(&with("Content-Length: 5\r\nContent-Length: 6\r\n"), "two Content-Length fields");
    refused(&with("Content-Length: 5\r\ncontent-length: 5\r\n"), "two Content-Length fields");
    for odd in ["5, 5", "+5", "-1", "0x5", "5 5", "", "5;", "99999999999999999999", "٥"] {
        refused(&with(&format!("Content-Length: {odd}\r\n")), "a Content-Length that is no plain number");
    }
    refused(&with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "two Transfer-Encoding fields");
    for odd in ["gzip, chunked", "chunked, identity", "identity", "chunked;q=1", "\"chunked\"", "xchunked", ""] {
        refused(&with(&format!("Transfer-Encoding: {odd}\r\n")), "a Transfer-Encoding other than `chunked`");
    }
    refused("POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding in HTTP/1.0");
}

#[test]
fn lines_and_fields_have_one_form() {
    refused("GET http://a.test/ HTTP/1.1\nHost: a.test\n\n", "a line ends in a bare line feed");
    refused("GET http://a.test/ HTTP/1.1\r\nHost: a.test\n\r\n", "a line ends in a bare line feed");
    refused("GET http://a.test/ HTTP/1.1\rHost: a.test\r\n\r\n", "a bare carriage return");
    refused(&with("X: a\0b\r\n"), "a NUL byte");
    refused(&with("X: a\x01b\r\n"), "a control character in a header field");
    refused(&with("X: a\x0c\r\n"), "a control character in a header field");
    refused(&with("X: a\r\n b\r\n"), "a folded header field");
    refused(&with("Content-Length : 5\r\n"), "a header field's name is not a word that touches its colon");
    refused(&with("Transfer-Encoding\t: chunked\r\n"), "a header field's name is not a word that touches its colon");
    refused(&with(": x\r\n"), "a header field's name is not a word that touches its colon");
    refused(&with("nothing\r\n"), "a header field without a colon");
    let most = "x:\r\n".repeat(97);
    assert!(parse(&with(&most)).is_ok());
    // Ours come besides, and what goes on has to be readable in its turn.
    for too_many in ["x:\r\n".repeat(98), "TE: x\r\n".repeat(100), most.clone() + "TE: x\r\nTE: x\r\nTE: x\r\n"] {
        refused(&with(&too_many), "more header fields than can be passed on");
    }
    crate::fuzzing::request(with(&format!("{most}Content-Length: 1\r\n")).as_bytes());
    crate::fuzzing::request(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{most}\r\n").as_bytes());
    refused("\r\nGET http://a.test/ HTTP/1.1\r\n\r\n", "the head has no end");
}

#[test]
fn the_request_line_has_one_form() {
    for odd in [
        "GET  http://a.test/ HTTP/1.1",
        "GET http://a.test/ x HTTP/1.1",
        " GET http://a.test/ HTTP/1.1",
        "GET http://a.test/",
        "GET http://a.test/ HTTP/1.1 ",
        "GET\thttp://a.test/\tHTTP/1.1",
    ] {
        refused(
            &format!("{odd}\r\nHost: a.test\r\n\r\n"),
            "the request line is not `METHOD TARGET VERSION` with single spaces",
        );
    }
    refused("PRI * HTTP/2.0\r\n\r\n", "HTTP/2 is not spoken here; use HTTP/1.1");
    refused("GET http://a.test/ HTTP/0.9\r\n\r\n", "the version is neither HTTP/1.1 nor HTTP/1.0");
    refused("GET http://a.test/ http/1.1\r\n\r\n", "the version is neither HTTP/1.1 nor HTTP/1.0");
    refused("G(T http://a.test/ HTTP/1.1\r\n\r\n", "the method is not a word");
    refused("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "a proxy needs the whole URL as the target");
    refused("OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", "a proxy needs the whole URL as the target");
    refused("GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "https goes through CONNECT");
    refused("GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "the only scheme here is http");
    refused("GET http://u:p@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "a user name in the target");
    refused("GET http:///x HTTP/1.1\r\nHost: a.test\r\n\r\n", "the host is no name and no plain address");
    refused("GET http://a.test:80:80/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "the port is no number from 1 to 65535");
    refused("GET http://a.test/ HTTP/1.1\r\n\r\n", "no Host field");
    refused("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", "the Host field differs from the target");
    refused("GET http://a.test/ HTTP/1.1\r\nHost: a.test:81\r\n\r\n", "the Host field differs from the target");
    refused("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", "two Host fields");
    refused("GET http://a.test/ HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n", "the Host field is no host");
    for odd in ["http://a.test/#x", "http://a.test/\u{e9}", "http://a.test\\@b.test/", "http://a.test/\x7f"] {
        let why = "the target holds a fragment, a backslash or a character that is not printable ASCII";
        refused(&format!("GET {odd} HTTP/1.1\r\nHost: a.test\r\n\r\n"), why);
    }
    refused(
        &with("Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        "Upgrade is not passed on; open a tunnel with CONNECT",
    );
    refused(&with("Expect: 200-ok\r\n"), "an unknown expectation");
}

#[test]
fn fields_that_replace_method_or_path_are_seen() {
    let overriding = |fields: &str| match parse(&with(fields)).unwrap() {
        Request::Forward(forward) => forward.overriding_field().map(str::to_owned),
        Request::Connect { .. } => None,
    };
    assert_eq!(overriding("X-HTTP-Method-Override: DELETE\r\n").as_deref(), Some("x-http-method-override"));
    assert_eq!(overriding("X_Rewrite_URL: /admin\r\n").as_deref(), Some("x_rewrite_url"));
    assert_eq!(overriding("X-Other: 1\r\n"), None);
}

#[test]
fn an_answer_says_that_it_is_the_only_one() {
    let head = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: 9\r\nContent-Length: 3\r\nX: 1\r\n\r\n";
    let answer = String::from_utf8(parse_answer(head).unwrap().to_bytes()).unwrap();
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nx: 1\r\ncontent-length: 3\r\nconnection: close\r\n\r\n");
    for bad in ["HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/2.0 200 OK", "ICY 200 OK", "HTTP/1.1 099 X", "HTTP/1.1"] {
        assert!(parse_answer(format!("{bad}\r\n\r\n").as_bytes()).is_err(), "{bad}");
    }
    assert!(parse_answer(b"HTTP/1.1 200\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
}

proptest! {
    /// What is understood is written so that it is understood in the same way.
    #[test]
    fn what_goes_on_reads_the_same(bytes in request_like()) {
        super::super::fuzzing::request(&bytes);
    }
}

/// Something like a request: good parts and bad ones in any order.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just("GET ".to_owned()),
        Just("CONNECT a.test:443 HTTP/1.1\r\n".to_owned()),
        Just("http://a.test/x".to_owned()),
        Just(" HTTP/1.1\r\n".to_owned()),
        Just("Host: a.test\r\n".to_owned()),
        Just("Content-Length: 3\r\n".to_owned()),
        Just("Transfer-Encoding: chunked\r\n".to_owned()),
        Just("Connection: x, y\r\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("3\r\nabc\r\n0\r\n\r\n".to_owned()),
        "[ -~]{0,8}",
        "[\\r\\n\\t :;,]{1,3}",
    ];
    let good = Just(
        b"POST http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            .to_vec(),
    );
    let mutated = (good, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    prop_oneof![
        proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat().into_bytes()),
        mutated,
        proptest::collection::vec(any::<u8>(), 0..200),
    ]
}

#[test]
fn the_seeds_of_the_fuzz_target_keep_every_promise() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/egress_request");
    let mut count = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        let bytes = std::fs::read(seed.unwrap().path()).unwrap();
        crate::fuzzing::request(&bytes);
        // Cut off and doubled, each is something else.
        for cut in 0..bytes.len() {
            crate::fuzzing::request(&bytes[..cut]);
        }
        crate::fuzzing::request(&bytes.repeat(2));
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn the_fuzz_target_calls_what_the_tests_call() {
    // The target is compiled in a workspace of its own, and only when somebody fuzzes.
    let target = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets/egress_request.rs"));
    assert!(target.contains("fuzz_target!(|bytes: &[u8]| palyra_egress::fuzzing::request(bytes));"), "{target}");
    let _same: fn(&[u8]) = crate::fuzzing::request;
}
