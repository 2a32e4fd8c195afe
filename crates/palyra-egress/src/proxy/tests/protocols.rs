//! What must work, in each protocol.

use super::*;
use crate::TlsName;
use crate::tls_hello::tests::{greeting, name_extension};
use std::net::Shutdown;

#[test]
fn a_tunnel_moves_bytes_both_ways_and_is_recorded() {
    let (port, served) = server(b"ping\n", b"pong");
    let house = House::new(&[&format!("localhost:{port}")]);
    let answer = house.ask(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nping\n").as_bytes());
    assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\npong");
    assert_eq!(served.join().unwrap(), b"ping\n");
    let record = house.record();
    assert_eq!((record.verdict, record.protocol), (EgressVerdict::Allowed, EgressProtocol::HttpConnect));
    assert_eq!(record.address, Some(format!("127.0.0.1:{port}")));
    assert_eq!(record.rule, Some(format!("localhost:{port}")));
    assert_eq!((record.bytes_sent, record.bytes_received), (5, 4));
    assert_eq!(record.tls, Some(TlsName::NotTls));
    let summary = house.proxy.stop();
    assert_eq!(summary, ProxySummary { allowed: 1, bytes_sent: 5, bytes_received: 4, ..ProxySummary::default() });
}

#[test]
fn a_half_closed_tunnel_goes_on_in_the_other_direction() {
    // The server reads to the end of the client before it says anything.
    let (port, served) = server(b"", b"all of it");
    let house = House::new(&[&format!("127.0.0.1:{port}")]);
    let mut client = house.connect();
    client.write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let sent = vec![7u8; 3_000_000];
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nall of it"), "{answer}");
    assert!(served.join().unwrap() == sent);
    let record = house.record();
    assert_eq!((record.bytes_sent, record.ended), (3_000_000, EgressEnd::Closed));
}

#[test]
fn socks_takes_names_and_addresses() {
    let (port, served) = server(b"ping\n", b"pong");
    let house = House::new(&[&format!("localhost:{port}")]);
    let port_bytes = port.to_be_bytes();
    let name = [&b"\x05\x01\x00\x05\x01\x00\x03\x09localhost"[..], &port_bytes, b"ping\n"].concat();
    let answer = house.ask(&name);
    assert_eq!(answer.as_bytes(), b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0pong");
    assert_eq!(served.join().unwrap(), b"ping\n");
    assert_eq!(house.record().protocol, EgressProtocol::Socks5);

    let (port, served) = server(b"ping\n", b"pong");
    let house = House::new(&[&format!("127.0.0.1:{port}")]);
    let address = [&b"\x05\x02\x00\x02\x05\x01\x00\x01\x7f\0\0\x01"[..], &port.to_be_bytes(), b"ping\n"].concat();
    assert!(house.ask(&address).ends_with("pong"));
    assert_eq!(served.join().unwrap(), b"ping\n");
}

#[test]
fn a_plain_request_reaches_the_server_alone() {
    let (port, served) =
        server(b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    let house = House::new(&[&format!("GET http://127.0.0.1:{port}/api/*")]);
    let answer = house.ask(
        format!(
            "GET http://127.0.0.1:{port}/api/x?secret=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nProxy-Connection: keep-alive\r\n\r\n\
             GET http://127.0.0.1:{port}/admin HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(answer, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    let seen = String::from_utf8(served.join().unwrap()).unwrap();
    assert_eq!(seen, format!("GET /api/x?secret=1 HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"));
    let record = house.record();
    assert_eq!((record.method.as_deref(), record.path.as_deref()), (Some("GET"), Some("/api/x")));
    assert_eq!((record.verdict, record.ended), (EgressVerdict::Allowed, EgressEnd::Closed));
}

#[test]
fn a_body_arrives_whole_and_what_follows_it_does_not() {
    for body in ["content-length: 4\r\n\r\nbody", "transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"] {
        let until: &[u8] = if body.contains("chunked") { b"0\r\n\r\n" } else { b"body" };
        let (port, served) = server(until, b"HTTP/1.1 201 Created\r\n\r\ndone");
        let house = House::new(&[&format!("http://127.0.0.1:{port}")]);
        let head = format!("POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n");
        let answer = house.ask(format!("{head}{body}DELETE http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 201 Created\r\n") && answer.ends_with("done"), "{answer}");
        let seen = String::from_utf8(served.join().unwrap()).unwrap();
        assert!(!seen.contains("DELETE") && seen.contains("body"), "{seen}");
    }
}

#[test]
fn a_greeting_for_the_tunnels_host_passes() {
    let hello = greeting(&name_extension("localhost"), 40);
    let (port, served) = server(b"", b"");
    let house = House::new(&[&format!("localhost:{port}")]);
    let mut client = house.connect();
    client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    for byte in &hello {
        client.write_all(&[*byte]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(served.join().unwrap(), hello);
    assert_eq!(house.record().tls, Some(TlsName::Matched));
}

#[test]
fn many_clients_are_served_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = std::thread::spawn(move || {
        let sockets: Vec<TcpStream> = (0..100).map(|_| listener.accept().unwrap().0).collect();
        // Only when all hundred are there does the first one get an answer.
        for mut socket in sockets {
            socket.write_all(b"x").unwrap();
        }
    });
    let house = House::new(&[&format!("localhost:{port}")]);
    let request = format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n");
    let mut clients: Vec<TcpStream> = (0..100).map(|_| house.connect()).collect();
    for client in &mut clients {
        client.write_all(request.as_bytes()).unwrap();
    }
    for client in &mut clients {
        let mut answer = String::new();
        client.shutdown(Shutdown::Write).unwrap();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nx"));
    }
    echo.join().unwrap();
    assert_eq!(house.proxy.stop().allowed, 100);
}

#[test]
fn a_tunnel_without_tls_carries_requests_for_its_host_and_other_protocols() {
    for first in [
        "GET / HTTP/1.1\r\nHost: LOCALHOST.\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost:9\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SSH-2.0-x\r\n",
        "EHLO other.example\r\n",
        "003agit-upload-pack /p.git\0host=other.example\0",
        "<stream:stream to='other.example'>",
        "*1\r\n$4\r\nPING\r\n",
        "\0\0\0\x08\x04\x52\x16\x2f",
    ] {
        let (port, served) = server(b"", b"");
        let house = House::new(&[&format!("localhost:{port}")]);
        let mut client = house.connect();
        client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n{first}").as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(String::from_utf8_lossy(&served.join().unwrap()), first);
        assert_eq!(house.record().tls, Some(TlsName::NotTls));
    }
}

#[test]
fn an_offer_of_http2_is_left_out_and_the_request_goes_on() {
    let (port, served) = server(b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let house = House::new(&[&format!("127.0.0.1:{port}")]);
    let answer = house.ask(
        format!(
            "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        )
        .as_bytes(),
    );
    assert!(answer.ends_with("ok"), "{answer}");
    let seen = String::from_utf8(served.join().unwrap()).unwrap().to_ascii_lowercase();
    assert!(!seen.contains("upgrade") && !seen.contains("http2"), "{seen}");
}
