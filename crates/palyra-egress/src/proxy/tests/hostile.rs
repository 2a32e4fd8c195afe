//! What must not work, and the answers that the client gets.

use super::*;
use crate::tls_hello::tests::{greeting, name_extension};

/// The status, and the error in the body.
fn parts(answer: &str) -> (u16, serde_json::Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let error: serde_json::Value = serde_json::from_str(body).unwrap();
    (status, error["error"].clone())
}

#[test]
fn a_denial_says_what_is_missing_and_what_to_ask_for() {
    let house = House::new(&["example.org"]);
    let answer = house.ask(b"CONNECT other.test:443 HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 no rule allows other.test:443\r\n"), "{answer}");
    assert!(answer.contains("\r\nX-Palyra-Denied: egress_denied\r\n"), "{answer}");
    let (status, error) = parts(&answer);
    assert_eq!(status, 403);
    assert_eq!(
        (error["code"].as_str(), error["host"].as_str(), error["port"].as_u64()),
        (Some("egress_denied"), Some("other.test"), Some(443))
    );
    assert!(error["message"].as_str().unwrap().contains("no rule allows other.test:443"));
    assert!(error["hint"].as_str().unwrap().contains("add `other.test:443` to allowed_hosts"));
    let record = house.record();
    assert_eq!((record.verdict, record.code.as_deref()), (EgressVerdict::Denied, Some("egress_denied")));
    assert_eq!(
        (record.host.as_deref(), record.port, record.ended),
        (Some("other.test"), Some(443), EgressEnd::Refused)
    );

    let (status, error) =
        parts(&house.ask(b"POST http://other.test/x HTTP/1.1\r\nHost: other.test\r\nContent-Length: 9\r\n\r\n"));
    assert_eq!((status, error["host"].as_str()), (403, Some("other.test")));
    let answer = house.ask(b"\x05\x01\x00\x05\x01\x00\x03\x0aother.test\x01\xbb");
    assert_eq!(answer.as_bytes(), b"\x05\x00\x05\x02\x00\x01\0\0\0\0\0\0");
    let answer = house.ask(b"HEAD http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn every_special_address_is_refused_by_number() {
    let house = House::new(&["example.org", "*.example.net:*"]);
    for host in [
        "127.0.0.1",
        "169.254.169.254",
        "10.0.0.1",
        "[::1]",
        "[fd00:ec2::254]",
        "[64:ff9b::a9fe:a9fe]",
        "0.0.0.0",
        "1.1.1.1",
    ] {
        let (status, _) = parts(&house.ask(format!("CONNECT {host}:80 HTTP/1.1\r\n\r\n").as_bytes()));
        assert_eq!(status, 403, "{host}");
    }
    for odd in [
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "127.0.0.1%00.example.org",
        "example.org@127.0.0.1",
    ] {
        let (status, _) = parts(&house.ask(format!("CONNECT {odd}:80 HTTP/1.1\r\n\r\n").as_bytes()));
        assert_eq!(status, 400, "{odd}");
    }
}

#[test]
fn a_name_that_leads_home_is_refused() {
    let (port, _served) = server(b"", b"");
    for address in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "64:ff9b::7f00:1"] {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        let names = Names([("rebind.test", vec![address])].into());
        let house = House::with(&["rebind.test:*"], Arc::new(names), ProxyLimits::default());
        let (status, error) = parts(&house.ask(format!("CONNECT rebind.test:{port} HTTP/1.1\r\n\r\n").as_bytes()));
        assert_eq!((status, error["code"].as_str()), (403, Some("address_denied")), "{address}");
        let record = house.record();
        assert_eq!((record.code.as_deref(), record.address), (Some("address_denied"), None));
    }
}

#[test]
fn the_port_that_was_checked_is_the_port_that_is_used() {
    let (port, served) = server(b"ping\n", b"pong");
    // The resolver names another port; it is not asked about ports.
    let names = Names([("a.test", vec![SocketAddr::new([127, 0, 0, 1].into(), 1)])].into());
    let rules = [&format!("a.test:{port}")[..], &format!("127.0.0.1:{port}")];
    let house = House::with(&rules, Arc::new(names), ProxyLimits::default());
    assert!(house.ask(format!("CONNECT a.test:{port} HTTP/1.1\r\n\r\nping\n").as_bytes()).ends_with("pong"));
    served.join().unwrap();
}

#[test]
fn a_denied_name_is_never_resolved() {
    struct Never;
    impl Resolve for Never {
        fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            panic!("asked for {host}")
        }
    }
    let house = House::with(&["example.org"], Arc::new(Never), ProxyLimits::default());
    let (status, error) = parts(&house.ask(b"CONNECT secret-data.evil.test:443 HTTP/1.1\r\n\r\n"));
    assert_eq!((status, error["code"].as_str()), (403, Some("egress_denied")));
}

#[test]
fn a_rule_for_requests_admits_no_tunnel_and_no_other_request() {
    let house = House::new(&["GET http://127.0.0.1:9/api/*"]);
    let host = "Host: 127.0.0.1:9\r\n";
    for (request, code) in [
        ("CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n".to_owned(), "egress_denied"),
        (format!("POST http://127.0.0.1:9/api/x HTTP/1.1\r\n{host}\r\n"), "egress_denied"),
        (format!("GET http://127.0.0.1:9/other HTTP/1.1\r\n{host}\r\n"), "egress_denied"),
        (format!("GET http://127.0.0.1:9/api/../other HTTP/1.1\r\n{host}\r\n"), "ambiguous_path"),
        (format!("GET http://127.0.0.1:9/api/%2e%2e/other HTTP/1.1\r\n{host}\r\n"), "ambiguous_path"),
        (format!("GET http://127.0.0.1:9/api/x HTTP/1.1\r\n{host}X-Original-URL: /other\r\n\r\n"), "egress_denied"),
        (
            format!("GET http://127.0.0.1:9/api/x HTTP/1.1\r\n{host}X-HTTP-Method-Override: PUT\r\n\r\n"),
            "egress_denied",
        ),
    ] {
        let (status, error) = parts(&house.ask(request.as_bytes()));
        assert_eq!((status, error["code"].as_str()), (403, Some(code)), "{request}");
    }
    let answer = house.ask(b"\x05\x01\x00\x05\x01\x00\x01\x7f\0\0\x01\0\x09");
    assert_eq!(answer.as_bytes()[3], 2);
}

#[test]
fn a_greeting_for_another_host_ends_the_tunnel_before_the_server_sees_it() {
    let (port, served) = server(b"", b"");
    let house = House::new(&[&format!("localhost:{port}")]);
    let mut client = house.connect();
    client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let mut answer = vec![0; 39];
    client.read_exact(&mut answer).unwrap();
    client.write_all(&greeting(&name_extension("front.test"), 30)).unwrap();
    answer.clear();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, answer::TLS_ALERT);
    assert!(served.join().unwrap().is_empty());
    let record = house.record();
    assert_eq!((record.verdict, record.code.as_deref()), (EgressVerdict::Denied, Some("sni_mismatch")));
}

#[test]
fn a_record_before_a_greeting_ends_the_tunnel_before_the_server_sees_it() {
    for before in [&b"\x15\x03\x01\x00\x02\x01\x5a"[..], b"\x14\x03\x03\x00\x01\x01", b"\x17\x03\x03\x00\x01\x00"] {
        let (port, served) = server(b"", b"");
        let house = House::new(&[&format!("localhost:{port}")]);
        let mut client = house.connect();
        client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut answer = vec![0; 39];
        client.read_exact(&mut answer).unwrap();
        // It may be cut off before it has said all.
        let _sent = client.write_all(&[before, &greeting(&name_extension("front.test"), 500)].concat());
        let _cut_off = client.read_to_end(&mut answer);
        assert!(served.join().unwrap().is_empty());
        let record = house.record();
        assert_eq!((record.verdict, record.code.as_deref()), (EgressVerdict::Denied, Some("bad_tls_hello")));
    }
}

#[test]
fn a_greeting_that_comes_with_the_request_for_its_tunnel_gets_an_answer_that_can_be_read() {
    let (port, served) = server(b"", b"");
    let house = House::new(&[&format!("localhost:{port}")]);
    let request = format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n");
    let early = [request.as_bytes(), &greeting(&name_extension("front.test"), 500)].concat();
    let (status, error) = parts(&house.ask(&early));
    assert_eq!((status, error["code"].as_str()), (403, Some("sni_mismatch")));
    assert!(served.join().unwrap().is_empty());
    let (port, served) = server(b"", b"");
    let house = House::new(&[&format!("localhost:{port}")]);
    let socks = [&b"\x05\x01\x00\x05\x01\x00\x03\x09localhost"[..], &port.to_be_bytes()].concat();
    let early = [&socks[..], &greeting(&name_extension("front.test"), 500)].concat();
    assert_eq!(house.ask(&early).as_bytes()[..4], [5, 0, 5, 2]);
    assert!(served.join().unwrap().is_empty());
}

#[test]
fn a_plain_request_for_another_host_ends_the_tunnel_before_the_server_sees_it() {
    for request in [
        "GET / HTTP/1.1\r\nHost: other-tenant.example\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: other-tenant.example\r\n\r\n",
        "GET http://other-tenant.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "get\t/  http/1.0\r\nhost: other-tenant.example\r\n\r\n",
        "ODDLY-LONG-METHOD-THAT-SOME-SERVERS-TAKE / HTTP/1.1\r\nHost: other-tenant.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: other-tenant.example\r\n\r\n",
        "GET / HTTP/1.1\nHost: other-tenant.example\n\n",
        "GET / HTTP/1.1\r\nX: y\r\n Host: other-tenant.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : other-tenant.example\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: other-tenant.example\r\n\r\n",
        "GET / HTTP/3\r\nHost: other-tenant.example\r\n\r\n",
        "GET / HTTPS/1.1\r\nHost: other-tenant.example\r\n\r\n",
        "GET / ICY/1.0\r\nHost: other-tenant.example\r\n\r\n",
        "GET /\r\nHost: other-tenant.example\r\n\r\n",
        "OPTIONS * HTTP/0.9\r\nHost: other-tenant.example\r\n\r\n",
        "PRI * HTTP/2.0 \tx\r\nHost: other-tenant.example\r\n\r\n",
        "GET http://other-tenant.example/ HTTP/2.0\r\n\r\n",
    ] {
        for size in [1, 1000] {
            let (port, served) = server(b"", b"");
            let house = House::new(&[&format!("localhost:{port}")]);
            let mut client = house.connect();
            client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
            let mut answer = vec![0; 39];
            client.read_exact(&mut answer).unwrap();
            for piece in request.as_bytes().chunks(size) {
                // It may be cut off before it has said all.
                let _sent = client.write_all(piece);
            }
            answer.clear();
            client.read_to_end(&mut answer).unwrap();
            let (status, error) = parts(&String::from_utf8(answer).unwrap());
            assert_eq!((status, error["code"].as_str()), (403, Some("host_mismatch")), "{request}");
            assert!(served.join().unwrap().is_empty(), "{request}");
            assert_eq!(house.record().verdict, EgressVerdict::Denied);
        }
    }
}

#[test]
fn what_is_neither_http_nor_socks5_is_closed() {
    let house = House::new(&["example.org"]);
    assert_eq!(house.ask(b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00"), "");
    assert_eq!(house.ask(b"\x16\x03\x01\x00\x05hello"), "");
    assert_eq!(house.ask(b"\x05\x01\x02"), "\x05\u{fffd}", "no method is acceptable");
    for _ in 0..3 {
        assert_eq!(house.record().code.as_deref(), Some("bad_request"));
    }
    for smuggled in [
        "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET http://example.org/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET /\r\n",
        "GET http://example.org/ HTTP/1.1\nHost: example.org\n\n",
    ] {
        let (status, error) = parts(&house.ask(format!("{smuggled}\r\n\r\n").as_bytes()));
        assert_eq!((status, error["code"].as_str()), (400, Some("bad_request")), "{smuggled:?}");
    }
}

#[test]
fn a_broken_body_ends_the_request() {
    let (port, served) = server(b"", b"");
    let house = House::new(&[&format!("http://127.0.0.1:{port}")]);
    let head = format!(
        "POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let (status, _) = parts(&house.ask(format!("{head}3;x\r\nabc\r\n0\r\n\r\n").as_bytes()));
    assert_eq!(status, 400);
    let seen = String::from_utf8(served.join().unwrap()).unwrap();
    assert!(!seen.contains("abc"), "{seen}");
}
