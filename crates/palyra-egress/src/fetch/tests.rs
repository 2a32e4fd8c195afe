//! Fetching over real sockets, TLS included.

use super::*;
use palyra_testkit::{TlsIdentity, listen, ok, read_request, serve_on};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A resolver that knows one name.
struct One(&'static str, SocketAddr);

impl Resolve for One {
    fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        if host == self.0 { Ok(vec![self.1]) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

fn nobody() -> Arc<dyn Resolve> {
    Arc::new(One("", SocketAddr::from(([0, 0, 0, 0], 0))))
}

fn fetcher(rules: &[&str], resolver: Arc<dyn Resolve>, roots: Roots) -> Fetcher {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Fetcher::new(Arc::new(EgressRules::new(rules)), resolver, roots)
}

fn request(method: &str, url: &str, fields: &[(&str, &str)], body: &str) -> FetchRequest {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    FetchRequest::new(method, FetchUrl::parse(url).unwrap(), fields, body.into()).unwrap()
}

/// Keeps every record; asked about a hop, it says no to these ports.
struct Watch {
    records: mpsc::Sender<EgressRecord>,
    asked: mpsc::Sender<String>,
    never: Vec<u16>,
}

impl FetchWatch for Watch {
    fn may_go(&self, next: &FetchRequest) -> Result<(), Denial> {
        let target = (next.url().host(), next.url().port());
        self.asked.send(format!("{} {}:{}", next.method(), target.0, target.1)).unwrap();
        let denied = || Denial::of(crate::DenialCode::PolicyDenied, target, "not there", "ask");
        if self.never.contains(&target.1) { Err(denied()) } else { Ok(()) }
    }

    fn connection(&self, record: &EgressRecord) {
        self.records.send(record.clone()).unwrap();
    }
}

fn watch(never: &[u16]) -> (Watch, mpsc::Receiver<EgressRecord>, mpsc::Receiver<String>) {
    let ((records, recorded), (asked, questions)) = (mpsc::channel(), mpsc::channel());
    (Watch { records, asked, never: never.to_vec() }, recorded, questions)
}

/// Fetches and gives the result with all records.
fn run(
    fetcher: &Fetcher,
    request: FetchRequest,
    limits: &FetchLimits,
) -> (Result<FetchResponse, FetchError>, Vec<EgressRecord>) {
    let (watch, records, _questions) = watch(&[]);
    let result = fetcher.fetch(request, limits, &CancelSignal::never().unwrap(), &watch);
    drop(watch);
    (result, records.iter().collect())
}

fn redirect(status: u16, to: &str) -> String {
    format!("HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn a_request_is_sent_as_given_and_recorded() {
    let (listener, port) = listen();
    let served = serve_on(listener, vec![ok("hello")]);
    let fetcher = fetcher(&[&format!("127.0.0.1:{port}")], nobody(), Roots::System);
    let url = format!("http://127.0.0.1:{port}/a?b=secret");
    let (result, records) = run(&fetcher, request("POST", &url, &[("X-Mine", "1")], "body"), &FetchLimits::default());
    let response = result.unwrap();
    assert_eq!((response.status, response.body.as_slice(), response.truncated), (200, &b"hello"[..], false));
    assert!(response.headers.contains(&("x-served".to_owned(), b"yes".to_vec())));
    assert_eq!(response.final_url.to_string(), url);
    let asked = served.join().unwrap().remove(0);
    assert!(asked.starts_with("POST /a?b=secret HTTP/1.1\r\n") && asked.ends_with("\r\n\r\nbody"), "{asked}");
    assert!(asked.contains("x-mine: 1\r\n") && asked.contains("accept-encoding: identity\r\n"), "{asked}");
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((record.verdict, record.ended), (EgressVerdict::Allowed, EgressEnd::Closed));
    assert_eq!((record.method.as_deref(), record.path.as_deref()), (Some("POST"), Some("/a")));
    assert_eq!(record.address, Some(format!("127.0.0.1:{port}")));
    assert_eq!(record.bytes_sent, asked.len() as u64);
}

#[test]
fn a_method_that_may_have_a_body_has_it() {
    for (method, body) in [("DELETE", "x"), ("PATCH", "y"), ("PUT", ""), ("HEAD", ""), ("DELETE", "")] {
        let (listener, port) = listen();
        let served = serve_on(listener, vec!["HTTP/1.1 204 No Content\r\n\r\n".to_owned()]);
        let fetcher = fetcher(&[&format!("localhost:{port}")], nobody(), Roots::System);
        let (result, _) =
            run(&fetcher, request(method, &format!("http://localhost:{port}/"), &[], body), &FetchLimits::default());
        assert_eq!(result.unwrap().status, 204, "{method}");
        assert!(served.join().unwrap()[0].ends_with(&format!("\r\n\r\n{body}")), "{method}");
    }
}

#[test]
fn each_redirect_is_asked_about_and_credentials_stay_behind() {
    let ((first, a), (second, b)) = (listen(), listen());
    let to = format!("http://localhost:{b}/there");
    let served_a = serve_on(first, vec![redirect(302, &to)]);
    let served_b = serve_on(second, vec![redirect(302, "/end"), ok("done")]);
    let fetcher = fetcher(&[&format!("localhost:{a}"), &format!("localhost:{b}")], nobody(), Roots::System);
    let secret =
        [("Authorization", "Bearer s3cret"), ("Cookie", "s3cret"), ("X-Token", "s3cret"), ("Accept", "text/plain")];
    let url = format!("http://localhost:{a}/");
    let (result, records) = run(&fetcher, request("GET", &url, &secret, ""), &FetchLimits::default());
    let response = result.unwrap();
    assert_eq!(response.final_url.to_string(), format!("http://localhost:{b}/end"));
    assert_eq!(
        response.redirects.iter().map(|r| r.url.to_string()).collect::<Vec<_>>(),
        [to, format!("http://localhost:{b}/end")]
    );
    assert!(served_a.join().unwrap()[0].contains("s3cret"));
    for asked in served_b.join().unwrap() {
        assert!(!asked.contains("s3cret") && asked.contains("accept: text/plain"), "{asked}");
    }
    assert_eq!(records.len(), 3);
}

#[test]
fn a_redirect_to_a_host_that_no_rule_allows_is_denied() {
    for to in ["http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "https://other.test/", "//other.test/"]
    {
        let (listener, port) = listen();
        let served = serve_on(listener, vec![redirect(302, to)]);
        let fetcher = fetcher(&[&format!("localhost:{port}")], nobody(), Roots::System);
        let (result, records) =
            run(&fetcher, request("GET", &format!("http://localhost:{port}/"), &[], ""), &FetchLimits::default());
        assert_eq!(result.unwrap_err().code(), "egress_denied", "{to}");
        served.join().unwrap();
        let verdicts: Vec<_> = records.iter().map(|record| record.verdict).collect();
        assert_eq!(verdicts, [EgressVerdict::Allowed, EgressVerdict::Denied], "{to}");
    }
}

#[test]
fn a_hop_to_another_origin_or_with_another_method_is_put_to_whoever_decides() {
    let ((first, a), (second, b)) = (listen(), listen());
    let there = format!("http://localhost:{b}/there");
    let served_a = serve_on(first, vec![redirect(307, "/same"), redirect(303, "/other-method"), redirect(302, &there)]);
    let fetcher = fetcher(&[&format!("localhost:{a}"), &format!("localhost:{b}")], nobody(), Roots::System);
    let (watch, records, questions) = watch(&[b]);
    let cancel = CancelSignal::never().unwrap();
    let url = format!("http://localhost:{a}/");
    let ended = fetcher.fetch(request("POST", &url, &[], "x"), &FetchLimits::default(), &cancel, &watch);
    assert_eq!(ended.unwrap_err().code(), "policy_denied");
    drop(watch);
    assert_eq!(
        questions.iter().collect::<Vec<_>>(),
        [format!("GET localhost:{a}"), format!("GET localhost:{b}")],
        "the first hop was decided about, and the same again needs no asking"
    );
    let last = records.iter().last().unwrap();
    assert_eq!(
        (last.verdict, last.code.as_deref(), last.address),
        (EgressVerdict::Denied, Some("policy_denied"), None)
    );
    served_a.join().unwrap();
    second.set_nonblocking(true).unwrap();
    assert!(second.accept().is_err(), "nobody came");
}

#[test]
fn redirects_come_to_an_end() {
    let (listener, port) = listen();
    let served = serve_on(listener, vec![redirect(302, "/again"); 3]);
    let fetcher = fetcher(&[&format!("localhost:{port}")], nobody(), Roots::System);
    let limits = FetchLimits { max_redirects: 2, ..FetchLimits::default() };
    let (result, _) = run(&fetcher, request("GET", &format!("http://localhost:{port}/"), &[], ""), &limits);
    assert_eq!(result.unwrap_err().code(), "too_many_redirects");
    served.join().unwrap();
}

#[test]
fn a_name_that_leads_home_is_denied() {
    let resolver = || Arc::new(One("rebind.test", SocketAddr::from(([127, 0, 0, 1], 80))));
    let strict = fetcher(&["rebind.test"], resolver(), Roots::System);
    let (result, records) = run(&strict, request("GET", "http://rebind.test/", &[], ""), &FetchLimits::default());
    assert_eq!(result.unwrap_err().code(), "address_denied");
    assert_eq!((records[0].verdict, records[0].address.clone()), (EgressVerdict::Denied, None));
}

#[test]
fn rules_about_requests_hold_for_plain_http_and_admit_no_tls() {
    let fetcher = fetcher(&["GET http://localhost:9/api/*"], nobody(), Roots::System);
    for (method, url) in [
        ("POST", "http://localhost:9/api/x"),
        ("GET", "http://localhost:9/other"),
        ("GET", "https://localhost:9/api/x"),
        ("GET", "http://localhost:9/api/../other"),
    ] {
        assert!(fetcher.check(&request(method, url, &[], "")).is_err(), "{method} {url}");
    }
    assert!(fetcher.check(&request("GET", "http://localhost:9/api/x", &[], "")).is_ok());
    assert!(fetcher.check(&request("GET", "http://localhost:9/api/x", &[("X-HTTP-Method", "PUT")], "")).is_err());
}

#[test]
fn a_long_body_is_cut_and_a_long_head_refused() {
    let (listener, port) = listen();
    let served = serve_on(listener, vec![ok(&"x".repeat(5000))]);
    let fetcher = fetcher(&[&format!("localhost:{port}")], nobody(), Roots::System);
    let url = format!("http://localhost:{port}/");
    let limits = FetchLimits { max_body_bytes: 1000, max_header_bytes: 4096, ..FetchLimits::default() };
    let response = run(&fetcher, request("GET", &url, &[], ""), &limits).0.unwrap();
    assert_eq!((response.body.len(), response.truncated), (1000, true));
    served.join().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let served = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        read_request(&mut socket).unwrap();
        let _gone = socket.write_all(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(100_000)).as_bytes());
    });
    assert_eq!(run(&fetcher, request("GET", &url, &[], ""), &limits).0.unwrap_err().code(), "fetch_failed");
    served.join().unwrap();
}

#[test]
fn a_silent_server_is_given_up_on_and_a_cancelled_fetch_ends() {
    let (listener, port) = listen();
    let fetcher = fetcher(&[&format!("localhost:{port}")], nobody(), Roots::System);
    let url = format!("http://localhost:{port}/");
    let limits = FetchLimits { timeout: Duration::from_millis(100), ..FetchLimits::default() };
    let (result, records) = run(&fetcher, request("GET", &url, &[], ""), &limits);
    assert_eq!(result.unwrap_err().code(), "execution_timeout");
    assert_eq!(records[0].ended, EgressEnd::IdleTimeout);

    let (handle, cancel) = CancelSignal::new().unwrap();
    let served = std::thread::spawn(move || {
        // The first connection belongs to the fetch that gave up.
        drop(listener.accept().unwrap());
        let (mut socket, _) = listener.accept().unwrap();
        read_request(&mut socket).unwrap();
        handle.cancel();
        let _until_it_ends = socket.read(&mut [0; 1]);
    });
    let (watch, _records, _questions) = watch(&[]);
    let ended = fetcher.fetch(request("GET", &url, &[], ""), &FetchLimits::default(), &cancel, &watch);
    assert_eq!(ended.unwrap_err().code(), "cancelled");
    served.join().unwrap();
}

/// A server with a certificate for these names, and that certificate.
fn tls_server(names: &[&str], answer: String) -> (u16, Vec<u8>, JoinHandle<Option<String>>) {
    let identity = TlsIdentity::of(names);
    let config = identity.server();
    let (listener, port) = listen();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(config).unwrap();
        let mut stream = rustls::StreamOwned::<_, TcpStream>::new(connection, socket);
        let asked = read_request(&mut stream).ok()?;
        stream.write_all(answer.as_bytes()).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        Some(asked)
    });
    (port, identity.der().to_vec(), thread)
}

#[test]
fn tls_is_verified() {
    let (port, certificate, served) = tls_server(&["localhost"], ok("safe"));
    let rule = format!("localhost:{port}");
    let url = format!("https://localhost:{port}/x");
    let trusting = fetcher(&[&rule], nobody(), Roots::Only(vec![certificate]));
    let (result, records) = run(&trusting, request("GET", &url, &[], ""), &FetchLimits::default());
    assert_eq!(result.unwrap().body, b"safe");
    assert!(served.join().unwrap().unwrap().starts_with("GET /x HTTP/1.1"));
    assert_eq!(records[0].protocol, EgressProtocol::Https);
    assert!(records[0].bytes_sent > 0 && records[0].bytes_received > 0);

    // A certificate that nobody of this machine's authorities signed.
    let (port, _, served) = tls_server(&["localhost"], ok("unsafe"));
    let doubting = fetcher(&[&format!("localhost:{port}")], nobody(), Roots::System);
    let (result, _) =
        run(&doubting, request("GET", &format!("https://localhost:{port}/"), &[], ""), &FetchLimits::default());
    assert_eq!(result.unwrap_err().code(), "fetch_failed");
    assert_eq!(served.join().unwrap(), None);

    // A certificate for somebody else.
    let (port, certificate, served) = tls_server(&["other.test"], ok("unsafe"));
    let trusting = fetcher(&[&format!("localhost:{port}")], nobody(), Roots::Only(vec![certificate]));
    let (result, _) =
        run(&trusting, request("GET", &format!("https://localhost:{port}/"), &[], ""), &FetchLimits::default());
    assert_eq!(result.unwrap_err().code(), "fetch_failed");
    assert_eq!(served.join().unwrap(), None);
}
