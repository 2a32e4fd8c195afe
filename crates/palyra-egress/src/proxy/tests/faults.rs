//! Clients, servers and resolvers that hang, flood or vanish.

use super::*;
use std::sync::mpsc::Receiver;

fn quick() -> ProxyLimits {
    ProxyLimits { head_timeout: Duration::from_millis(200), ..ProxyLimits::default() }
}

#[test]
fn a_dribbling_client_is_cut_off() {
    let house = House::with(&["example.org"], Arc::new(Names::default()), quick());
    let mut client = house.connect();
    let mut writer = client.try_clone().unwrap();
    // One byte after the other, for as long as somebody listens: only the proxy can end this.
    let dribble = std::thread::spawn(move || {
        while writer.write_all(b"G").is_ok() {
            std::thread::yield_now();
        }
    });
    let mut answer = String::new();
    let _reset_or_end = client.read_to_string(&mut answer);
    dribble.join().unwrap();
    let record = house.record();
    let code = record.code.as_deref();
    assert!(code == Some("request_timeout") || code == Some("request_too_large"), "{code:?}");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408") || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[test]
fn a_silent_client_is_told_and_cut_off() {
    let house = House::with(&["example.org"], Arc::new(Names::default()), quick());
    let mut client = house.connect();
    client.write_all(b"GET http://example.org/ HTTP/1.1\r\nHost").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(house.record().code.as_deref(), Some("request_timeout"));
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let house = House::new(&["example.org"]);
    let answer = house.ask(format!("GET http://example.org/{} HTTP/1.1\r\n", "a".repeat(17_000)).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(house.record().code.as_deref(), Some("request_too_large"));
}

#[test]
fn a_greeting_that_never_ends_is_cut_off() {
    let (port, served) = server(b"", b"");
    let house = House::with(&[&format!("localhost:{port}")], Arc::new(Names::default()), quick());
    let mut client = house.connect();
    client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n\x16\x03\x01").as_bytes()).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(house.record().code.as_deref(), Some("bad_tls_hello"));
    assert!(served.join().unwrap().is_empty());
}

#[test]
fn a_flood_of_connections_is_refused_and_counted() {
    let limits = ProxyLimits {
        max_connections: 4,
        max_total_connections: 10,
        place_timeout: Duration::from_millis(1),
        ..ProxyLimits::default()
    };
    let house = House::with(&["example.org"], Arc::new(Names::default()), limits);
    let client = |n: usize| {
        let mut client = house.connect();
        // Every other one speaks SOCKS.
        client.write_all(if n.is_multiple_of(2) { b"G" } else { b"\x05" }).unwrap();
        client
    };
    let mut clients: Vec<TcpStream> = (0..20).map(client).collect();
    for (n, client) in clients.iter_mut().enumerate().skip(4) {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        let helps = if n < 10 { "and try again" } else { "trying again does not help" };
        match n % 2 {
            0 => assert!(text.starts_with("HTTP/1.1 503 ") && text.contains(helps), "{n} {text}"),
            _ => assert_eq!(answer, b"\x05\xff", "{n}"),
        }
    }
    let summary = house.proxy.stop();
    assert_eq!((summary.denied, summary.denials.denials.len()), (20, 2));
    let records: Vec<EgressRecord> = house.records.iter().collect();
    assert_eq!(
        records.iter().filter(|r| r.code.is_some()).map(|r| r.count).collect::<Vec<_>>(),
        [1, 1, 1, 1, 1, 1, 10]
    );
    assert_eq!(records.iter().filter(|r| r.ended == EgressEnd::Stopped).count(), 4);
}

#[test]
fn a_place_is_free_again_when_its_client_is_gone() {
    let limits = ProxyLimits { max_connections: 1, place_timeout: Duration::from_secs(60), ..ProxyLimits::default() };
    let house = House::with(&["example.org"], Arc::new(Names::default()), limits);
    for _ in 0..5 {
        // One that comes a moment too early waits for its place.
        let answer = house.ask(b"CONNECT other.test:1 HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}

/// A server that keeps every connection, and answers with this as soon as it was asked.
fn keeping(answer: &'static [u8], connections: usize) -> (u16, JoinHandle<Vec<TcpStream>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let one = move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut read = Vec::new();
        let mut piece = [0; 1000];
        while !read.ends_with(b"\r\n\r\n") {
            let count = socket.read(&mut piece).unwrap();
            read.extend_from_slice(&piece[..count]);
        }
        socket.write_all(answer).unwrap();
        socket
    };
    (port, std::thread::spawn(move || (0..connections).map(|_| one()).collect()))
}

fn two_places() -> ProxyLimits {
    let abandoned_timeout = Duration::from_millis(50);
    ProxyLimits {
        max_connections: 2,
        place_timeout: Duration::from_secs(60),
        abandoned_timeout,
        ..ProxyLimits::default()
    }
}

#[test]
fn a_client_that_gave_up_does_not_keep_its_place() {
    let (port, served) = keeping(b"", 6);
    let house = House::with(&[&format!("127.0.0.1:{port}")], Arc::new(Names::default()), two_places());
    for _ in 0..6 {
        let mut client = house.connect();
        let head = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
    }
    // All six had a place, though the server lets go of none.
    let kept = served.join().unwrap();
    for _ in 0..6 {
        assert_eq!(house.record().ended, EgressEnd::ClientError);
    }
    drop(kept);
}

#[test]
fn a_client_that_only_ends_its_direction_gets_its_answer() {
    let (port, served) = server(b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let house = House::new(&[&format!("127.0.0.1:{port}")]);
    let mut client = house.connect();
    let head = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    assert_eq!(house.record().ended, EgressEnd::Closed);
    served.join().unwrap();
}

#[test]
fn an_answer_ends_where_it_says_though_its_server_keeps_the_connection() {
    for (answer, body) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyesHTTP/1.1 200 OK\r\n"[..], "yes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nyes\r\n0\r\nA: b\r\n\r\nmore", "A: b\r\n\r\n"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "\r\n\r\n"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n"),
    ] {
        let (port, served) = keeping(answer, 5);
        let house = House::with(&[&format!("127.0.0.1:{port}")], Arc::new(Names::default()), two_places());
        for _ in 0..5 {
            let head = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
            let answer = house.ask(head.as_bytes());
            assert!(answer.ends_with(body), "{answer:?}");
            let record = house.record();
            assert_eq!((record.ended, record.verdict), (EgressEnd::Closed, EgressVerdict::Allowed));
        }
        drop(served.join().unwrap());
    }
}

#[test]
fn an_answer_to_head_has_no_body() {
    let (port, served) = keeping(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 1);
    let house = House::new(&[&format!("127.0.0.1:{port}")]);
    let head = format!("HEAD http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    assert!(house.ask(head.as_bytes()).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(house.record().ended, EgressEnd::Closed);
    drop(served.join().unwrap());
}

#[test]
fn an_answer_that_breaks_off_is_recorded_as_such() {
    for torn in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
    ] {
        let (port, served) = server(b"\r\n\r\n", torn);
        let house = House::new(&[&format!("127.0.0.1:{port}")]);
        let head = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        assert!(house.ask(head.as_bytes()).ends_with("half"));
        assert_eq!(house.record().ended, EgressEnd::ServerError);
        served.join().unwrap();
    }
}

#[test]
fn a_half_closed_tunnel_in_which_nothing_moves_ends_sooner() {
    let limits = ProxyLimits { half_closed_timeout: Duration::from_millis(50), ..ProxyLimits::default() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().port();
    let house = House::with(&[&format!("localhost:{silent}")], Arc::new(Names::default()), limits);
    let mut client = house.connect();
    client.write_all(format!("CONNECT localhost:{silent} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let _reset = client.read_to_end(&mut Vec::new());
    assert_eq!(house.record().ended, EgressEnd::IdleTimeout);
}

#[test]
fn stopping_ends_open_connections_and_leaves_no_thread() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let house = House::new(&[&format!("localhost:{port}")]);
    let mut clients: Vec<TcpStream> = (0..5).map(|_| house.connect()).collect();
    let mut servers = Vec::new();
    for client in &mut clients {
        client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        servers.push(listener.accept().unwrap().0);
    }
    let silent = house.connect();
    let shared = Arc::clone(&house.proxy.shared);
    let address = house.proxy.address();
    house.proxy.stop();
    // Every thread held a reference; only ours is left.
    assert_eq!(Arc::strong_count(&shared), 1);
    assert_eq!(shared.active.load(Ordering::Acquire), 0);
    assert!(house.records.try_iter().all(|record| record.ended == EgressEnd::Stopped));
    for mut server in servers {
        assert!(!matches!(server.read(&mut [0; 1]), Ok(1)));
    }
    drop(silent);
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn a_tunnel_in_which_nothing_moves_ends() {
    let (port, _served) = server(b"", b"");
    let limits = ProxyLimits { idle_timeout: Duration::from_millis(100), ..ProxyLimits::default() };
    let house = House::with(&[&format!("localhost:{port}")], Arc::new(Names::default()), limits);
    let mut client = house.connect();
    client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let _reset = client.read_to_end(&mut Vec::new());
    assert_eq!(house.record().ended, EgressEnd::IdleTimeout);
}

/// A resolver that answers when it is let.
struct Stuck(Mutex<Receiver<()>>);

impl Resolve for Stuck {
    fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        let _let_go = self.0.lock().unwrap().recv();
        Ok(Vec::new())
    }
}

#[test]
fn a_resolver_that_hangs_holds_up_neither_client_nor_stop() {
    let (let_go, wait) = mpsc::channel::<()>();
    let limits = ProxyLimits { resolve_timeout: Duration::from_millis(100), max_lookups: 1, ..ProxyLimits::default() };
    let house = House::with(&["slow.test"], Arc::new(Stuck(Mutex::new(wait))), limits);
    for why in ["no answer in time", "too many names are being resolved"] {
        let answer = house.ask(b"CONNECT slow.test:443 HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(why), "{answer}");
        let record = house.record();
        assert_eq!((record.verdict, record.ended), (EgressVerdict::Allowed, EgressEnd::ResolveFailed));
    }
    house.proxy.stop();
    drop(let_go);
}

#[test]
fn a_server_that_is_not_there_is_told_apart_from_a_denial() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let house = House::new(&[&format!("127.0.0.1:{port}"), "nowhere.test"]);
    let answer = house.ask(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("connect_failed"), "{answer}");
    assert_eq!(house.record().ended, EgressEnd::ConnectFailed);
    let socks = [&b"\x05\x01\x00\x05\x01\x00\x01\x7f\0\0\x01"[..], &port.to_be_bytes()].concat();
    assert_eq!(house.ask(&socks).as_bytes()[3], 5);
    assert!(house.ask(b"CONNECT nowhere.test:443 HTTP/1.1\r\n\r\n").contains("resolve_failed"));
}

#[test]
fn a_client_that_breaks_off_is_not_taken_for_a_whole_request() {
    let head = |port: u16| {
        format!("POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 9\r\n\r\n")
    };
    let (port, served) = server(b"", b"");
    let house = House::new(&[&format!("127.0.0.1:{port}")]);
    let mut client = house.connect();
    client.write_all(format!("{}half", head(port)).as_bytes()).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let _reset = client.read_to_end(&mut Vec::new());
    let record = house.record();
    assert_eq!((record.verdict, record.ended), (EgressVerdict::Allowed, EgressEnd::ClientError));
    drop(served);

    // An answer that came before the body was whole is passed on.
    let (port, served) = server(b"\r\n\r\n", b"HTTP/1.1 413 No\r\n\r\ntoo much");
    let house = House::new(&[&format!("127.0.0.1:{port}")]);
    let answer = house.ask(head(port).as_bytes());
    served.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 No\r\n") && answer.ends_with("too much"), "{answer}");
    assert_eq!(house.record().ended, EgressEnd::Closed);
}

#[test]
fn a_server_that_answers_nonsense_is_not_passed_on() {
    for nonsense in ["", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 101 Switching\r\n\r\n", "HTTP/1.1 200 OK\nX: y\n\n"] {
        let (port, served) = server(b"\r\n\r\n", nonsense.as_bytes());
        let house = House::new(&[&format!("127.0.0.1:{port}")]);
        let answer =
            house.ask(format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").as_bytes());
        served.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("bad_answer"), "{nonsense:?} {answer}");
        assert_eq!(house.record().ended, EgressEnd::ServerError);
    }
}
