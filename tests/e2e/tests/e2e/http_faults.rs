//! The HTTP door, used wrongly.

use palyra_e2e::{Host, Http, text};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

/// Every route, from the daemon's own description, with a path that fits.
fn routes(http: &Http) -> Vec<(String, String)> {
    let described = http.get("/openapi.json").is(200).json();
    let mut routes = Vec::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        let path = path.replace("{call_id}", "call_01ARZ3NDEKTSV4RRFFQ69G5FAV");
        let path = path.replace("{approval_id}", "apr_01ARZ3NDEKTSV4RRFFQ69G5FAV");
        routes.extend(item.as_object().unwrap().keys().map(|verb| (verb.to_uppercase(), path.clone())));
    }
    assert!(routes.len() >= 10, "{routes:?}");
    routes
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn bodies_that_make_no_sense_are_refused_by_kind() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let long = format!(r#"{{"tool":"palyra.echo","input":{{"text":"{}"}}}}"#, "x".repeat(2 << 20));
    let deep = format!(r#"{{"tool":"palyra.echo","input":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let before = host.palyra(&["status"]).good()["journal"]["size"].clone();
    for (body, status, code) in [
        ("", 400, "malformed_json"),
        ("{", 400, "malformed_json"),
        ("nonsense", 400, "malformed_json"),
        ("\u{0}", 400, "malformed_json"),
        ("{} {}", 422, "body_invalid"),
        ("[]", 422, "body_invalid"),
        ("null", 422, "body_invalid"),
        (r#"{"tool":"palyra.echo"}"#, 422, "body_invalid"),
        (r#"{"tool":1,"input":{}}"#, 422, "body_invalid"),
        (r#"{"tool":"palyra.echo","input":{},"more":1}"#, 422, "body_invalid"),
        (r#"{"tool":"palyra.echo","tool":"palyra.echo","input":{}}"#, 422, "body_invalid"),
        (r#"{"tool":"palyra.echo","input":{},"session":"a b"}"#, 422, "body_invalid"),
        (r#"{"tool":"palyra.echo","input":{},"wait_ms":-1}"#, 422, "body_invalid"),
        (r#"{"tool":"palyra.echo","input":{},"wait_ms":600001}"#, 422, "wait_too_long"),
        (long.as_str(), 413, "body_too_large"),
    ] {
        let problem = agent.send("POST", "/v1/tools/invoke", &[JSON], Some(body.as_bytes())).refuses(status, code);
        assert!(problem.to_string().len() < 2000, "a refusal does not repeat what was sent");
    }
    assert_eq!(host.palyra(&["status"]).good()["journal"]["size"], before, "none of it was a proposal");
    for (body, code) in [
        (deep.as_str(), "input_too_deep"),
        (r#"{"tool":"palyra.echo","input":{"text":"a","text":"b"}}"#, "input_duplicate_key"),
        (r#"{"tool":"palyra.echo","input":{"text":1e400}}"#, "input_number"),
    ] {
        let answer = agent.send("POST", "/v1/tools/invoke", &[JSON], Some(body.as_bytes()));
        assert_eq!(answer.status, 422, "{code}: {answer:?}");
        assert!(text(&answer.json(), "/call_id").starts_with("call_"), "the engine's own refusals are on record");
    }
    for content_type in ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"] {
        let body = br#"{"tool":"palyra.echo","input":{"text":"x"}}"#;
        let headers: &[(&str, &str)] = if content_type.is_empty() { &[] } else { &[("content-type", content_type)] };
        agent.send("POST", "/v1/tools/invoke", headers, Some(body)).refuses(415, "not_json");
    }
    let good = br#"{"tool":"palyra.echo","input":{"text":"x"}}"#;
    for key in ["", "a b", &"x".repeat(129), "é"] {
        let headers = [JSON, ("idempotency-key", key)];
        agent.send("POST", "/v1/tools/invoke", &headers, Some(good)).refuses(400, "malformed_request");
    }
    agent.get("/v1/tools").is(200).json();
}

#[test]
fn no_route_answers_to_another_host_or_a_page_of_another_origin() {
    let host = Host::up();
    let http = host.http_approver();
    let port = http.host().rsplit(':').next().unwrap().to_owned();
    for (verb, path) in routes(&http) {
        for bad in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", "localhost:1", "127.0.0.1:1"] {
            let request = format!("{verb} {path} HTTP/1.1\r\nHost: {bad}\r\nConnection: close\r\n\r\n");
            let answer = http.raw(request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 421 ") && answer.contains("wrong_host"), "{verb} {path}: {answer}");
        }
        let absolute =
            format!("{verb} http://evil.example{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", http.host());
        assert!(http.raw(absolute.as_bytes()).starts_with("HTTP/1.1 421 "), "{verb} {path}");
        for (name, value) in [
            ("origin", "null"),
            ("origin", "https://evil.example"),
            ("origin", "http://localhost:3000"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let answer = http.send(&verb, &path, &[(name, value)], None);
            assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "{answer:?}");
            answer.refuses(403, "foreign_origin");
        }
        // What a preflight asks for is never granted.
        let preflight =
            [("access-control-request-method", "POST"), ("access-control-request-headers", "authorization")];
        let answer = http.send("OPTIONS", &path, &preflight, None);
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "{answer:?}");
        answer.refuses(405, "method_not_allowed");
    }
    let none = "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";
    assert!(http.raw(none.as_bytes()).starts_with("HTTP/1.1 400 "));
    let two = format!("GET /healthz HTTP/1.1\r\nHost: {0}\r\nHost: {0}\r\nConnection: close\r\n\r\n", http.host());
    assert!(http.raw(two.as_bytes()).starts_with("HTTP/1.1 400 "));
}

#[test]
fn no_route_but_the_open_ones_answers_without_a_token_that_opens() {
    let host = Host::up();
    let elsewhere = Host::up();
    let foreign = elsewhere.http_agent("agent:web").token().to_owned();
    let agent = host.http_agent("agent:web");
    let http = host.http();
    let tokens = host.palyra(&["access", "token", "list"]).good();
    let revoked = host.http_as("agent:web", &[]);
    let known: Vec<String> = tokens.as_array().unwrap().iter().map(|t| text(t, "/token_id").to_owned()).collect();
    let now = host.palyra(&["access", "token", "list"]).good();
    let fresh = now.as_array().unwrap().iter().map(|t| text(t, "/token_id")).find(|id| !known.iter().any(|k| k == id));
    host.palyra(&["access", "token", "revoke", fresh.unwrap()]).exits(0).done();
    let open = ["/healthz", "/readyz", "/openapi.json"];
    for (verb, path) in routes(&http) {
        let answer = http.send(&verb, &path, &[], None);
        if open.contains(&path.as_str()) {
            assert_eq!(answer.status, 200, "{path}");
            continue;
        }
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
        answer.refuses(401, "token_missing");
        revoked.send(&verb, &path, &[], None).refuses(401, "token_revoked");
        // Guessing is slowed down, so one guess for each route and kind is all there is.
        for bad in [foreign.as_str(), "palyra_x"] {
            let answer = http.with(bad).send(&verb, &path, &[], None);
            let code = text(&answer.json(), "/code").to_owned();
            assert!(["unauthenticated", "too_many_attempts"].contains(&code.as_str()), "{answer:?}");
            assert!(!answer.body.contains(bad), "a token is not repeated");
        }
        let two = [("authorization", "Bearer x")];
        let answer = agent.send(&verb, &path, &two, None);
        assert!(matches!(answer.status, 401 | 429), "two tokens are none: {answer:?}");
    }
    agent.get("/v1/tools").is(200).json();
}

#[test]
fn a_token_that_asks_too_often_is_told_when_to_come_back() {
    let host = Host::up();
    host.palyra(&["access", "agent", "add", "agent:web"]).exits(0).done();
    let agent = host.http_as("agent:web", &["--rate", "3"]);
    let limited = (0..20).map(|_| agent.get("/v1/tools")).find(|answer| answer.status != 200).unwrap();
    let wait: u64 = limited.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    limited.refuses(429, "rate_limited");
}

#[test]
fn an_answer_of_another_shape_is_told_from_one_that_is_no_json() {
    let host = Host::up();
    let person = host.http_approver();
    let path = "/v1/approvals/apr_01ARZ3NDEKTSV4RRFFQ69G5FAV/decide";
    for (body, status, code) in [
        (r#"{"decision":null}"#, 422, "body_invalid"),
        (r#"{"decision":["allow"]}"#, 422, "body_invalid"),
        (r#"{"decision":"allow","scope":5}"#, 422, "body_invalid"),
        (r#"{"decision":"perhaps"}"#, 422, "body_invalid"),
        (r#"{"decision":nul}"#, 400, "malformed_json"),
        (r#"{"decision":"allow""#, 400, "malformed_json"),
    ] {
        person.send("POST", path, &[JSON], Some(body.as_bytes())).refuses(status, code);
    }
}

#[test]
fn whoever_has_too_much_under_way_is_told_when_to_come_back() {
    let host = Host::with("[tool_call]\nmax_questions_per_principal = 1\n");
    let agent = host.http_agent("agent:web");
    let (call, _) = agent.ask("palyra.process.run", &json!({ "argv": ["ls"] }));
    let body = json!({ "tool": "palyra.process.run", "input": { "argv": ["true"] } }).to_string();
    let crowded = agent.send("POST", "/v1/tools/invoke", &[JSON], Some(body.as_bytes()));
    assert!(crowded.header("retry-after").parse::<u64>().unwrap() >= 1, "{crowded:?}");
    crowded.refuses(429, "too_many_questions");
    assert_eq!(agent.get(&format!("/v1/calls/{call}")).is(200).json()["state"], "awaiting_approval");
}

#[test]
fn slow_clients_are_not_waited_for() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let begin = |text: String| {
        let mut stream = agent.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let head = begin("GET /healthz HTTP/1.1\r\nHost: ".to_owned());
    let silent = begin(String::new());
    let body = begin(format!(
        "POST /v1/tools/invoke HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\n\r\n{{\"tool\":",
        agent.host(),
        agent.token()
    ));
    for (mut stream, expect) in [(head, ""), (silent, ""), (body, "HTTP/1.1 408 ")] {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(expect), "{answer}");
    }
    agent.get("/v1/tools").is(200).json();
}

#[test]
fn nonsense_on_the_wire_is_refused_and_nobody_else_notices() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let head = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", agent.host(), agent.token());
    let many = (0..200).fold(String::new(), |mut text, n| {
        write!(text, "X-{n}: y\r\n").unwrap();
        text
    });
    let chunks = "ffff\r\n".to_owned() + &"x".repeat(0xffff) + "\r\n";
    for (request, expect) in [
        (format!("GET /healthz HTTP/1.1\r\n{head}{many}\r\n"), "431"),
        (format!("GET /healthz HTTP/1.1\r\n{head}X: {}\r\n\r\n", "y".repeat(100_000)), "431"),
        (format!("GET /healthz HTTP/1.1\r\n{head}Connection: close\r\nX: {}\r\n\r\n", "y".repeat(40_000)), "431"),
        (format!("GET /{} HTTP/1.1\r\n{head}\r\n", "a".repeat(100_000)), "4"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("GET\r\n\r\n".to_owned(), "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), ""),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}".to_owned() + "\r\n\r\n", "400"),
        (format!("CONNECT evil.example:80 HTTP/1.1\r\n{head}Connection: close\r\n\r\n"), "4"),
        (format!("GET /nowhere HTTP/1.1\r\n{head}Connection: close\r\n\r\n"), "404"),
        (format!("GET //v1/tools HTTP/1.1\r\n{head}Connection: close\r\n\r\n"), "404"),
        (format!("GET /v1/../v1/tools HTTP/1.1\r\n{head}Connection: close\r\n\r\n"), "404"),
        (format!("BREW /v1/tools HTTP/1.1\r\n{head}Connection: close\r\n\r\n"), "405"),
        (format!("HEAD /v1/tools HTTP/1.1\r\n{head}Connection: close\r\n\r\n"), "405"),
        (
            format!(
                "POST /v1/tools/invoke HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: 5\r\n\
                 Content-Length: 6\r\n\r\nxxxxxx"
            ),
            "400",
        ),
        (
            format!(
                "POST /v1/tools/invoke HTTP/1.1\r\n{head}Content-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{}",
                chunks.repeat(40)
            ),
            "413",
        ),
        (
            format!(
                "POST /v1/tools/invoke HTTP/1.1\r\n{head}Content-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"
            ),
            "400",
        ),
    ] {
        let answer = agent.raw(request.as_bytes());
        let expect = if expect.is_empty() { String::new() } else { format!("HTTP/1.1 {expect}") };
        let shown: String = request.chars().take(120).collect();
        assert!(answer.starts_with(&expect), "{shown:?}: {answer}");
        assert!(!answer.starts_with("HTTP/1.1 5"), "{shown:?}: {answer}");
        assert!(!answer.contains(agent.token()), "a secret in an answer");
        if expect.is_empty() && answer.is_empty() {
            continue;
        }
        // Whoever refuses, and however early, says why in the same way.
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{shown:?}: {answer}"));
        let head = head.to_lowercase();
        assert!(head.contains("content-type: application/problem+json"), "{shown:?}: {answer}");
        if !request.starts_with("HEAD") {
            let problem: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e} for {shown:?}: {answer}"));
            let id = text(&problem, "/request_id").to_lowercase();
            assert!(head.contains(&format!("x-request-id: {id}")), "{shown:?}: {answer}");
        }
    }
    let described = agent.get("/openapi.json").is(200).json();
    assert!(described["paths"]["/v1/tools"]["get"]["responses"]["431"].is_object());
    mutate(&agent);
    agent.get("/v1/tools").is(200).json();
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

/// Good requests with bytes changed, left out and doubled: whatever comes back, it is no server error.
fn mutate(agent: &Http) {
    let body = r#"{"tool":"palyra.echo","input":{"text":"x"},"wait_ms":0}"#;
    let good = format!(
        "POST /v1/tools/invoke HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        agent.host(),
        agent.token(),
        body.len()
    );
    // Always the same, so that what fails once fails again.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    for _ in 0..300 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = u8::try_from(random(256)).unwrap(),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        let mut stream = agent.connect();
        drop(stream.write_all(&bytes));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{answer}");
        assert!(!answer.starts_with("HTTP/1.1 5"), "{answer}\nfor {}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn connections_without_a_token_keep_nobody_out() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let (call, _) = agent.ask("palyra.process.run", &json!({ "argv": ["true"] }));
    let mut stream = agent.events(&call);
    stream.until("awaiting_approval");
    let health = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", agent.host());
    let mut strangers: Vec<_> = (0..600)
        .map(|n| {
            let mut stranger = agent.connect();
            // Silent ones, and ones that keep asking for what needs no token.
            if n % 2 == 0 {
                stranger.write_all(health.as_bytes()).unwrap();
                let mut first = [0];
                stranger.read_exact(&mut first).unwrap();
            }
            stranger
        })
        .collect();
    agent.get("/v1/tools").is(200).json();
    host.http_as("user:local", &["--role", "owner", "--scope", "call.cancel,call.read"])
        .send("DELETE", &format!("/v1/calls/{call}"), &[], None)
        .is(200)
        .json();
    stream.until("cancelled");
    // The first to come made room.
    let mut rest = Vec::new();
    strangers[1].read_to_end(&mut rest).expect("it was closed");
}

#[test]
fn one_token_does_not_keep_the_others_out() {
    let host = Host::up();
    let (greedy, modest) = (host.http_agent("agent:greedy"), host.http_agent("agent:modest"));
    let (call, _) = greedy.ask("palyra.process.run", &json!({ "argv": ["true"] }));
    let streams: Vec<_> = (0..256).map(|_| greedy.events(&call)).collect();
    greedy.get("/v1/tools").refuses(429, "too_many_at_once");
    modest.get("/v1/tools").is(200).json();
    drop(streams);
}

#[test]
fn a_port_that_is_taken_is_told_and_the_default_gives_way() {
    let first = Host::up();
    let port = first.http().host().rsplit(':').next().unwrap().to_owned();
    let mut second = Host::idle();
    let mut command = second.daemon_command();
    command.env("PALYRA_HTTP_PORT", &port).arg("--workspace").arg(second.path("w"));
    let refused = command.output().unwrap();
    let log = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && log.contains(&format!("port {port} on 127.0.0.1 is in use")), "{log}");
    second.configure("[http]\nenabled = false\n");
    second.start();
    assert_eq!(second.palyra(&["status"]).good()["http_url"], Value::Null);
    assert!(!second.state().join("http.url").exists());
    // Without any word about ports, daemons of one machine live beside each other.
    let urls: Vec<String> = (0..2)
        .map(|n| {
            let state = second.path(&format!("d{n}"));
            let mut up = std::process::Command::new(palyra_e2e::host::binary("palyra"));
            up.env_remove("PALYRA_HTTP_PORT").env("HOME", second.path("home")).arg("--state-dir").arg(&state);
            let up = up.args(["-o", "json", "up", "--workspace"]).arg(second.path("w")).output().unwrap();
            let status: Value = serde_json::from_slice(&up.stdout).unwrap_or_else(|_| panic!("{up:?}"));
            let url = text(&status, "/http_url").to_owned();
            assert_eq!(std::fs::read_to_string(state.join("http.url")).unwrap().trim(), url);
            url
        })
        .collect();
    for n in 0..2 {
        let mut down = std::process::Command::new(palyra_e2e::host::binary("palyra"));
        down.arg("--state-dir").arg(second.path(&format!("d{n}"))).arg("down");
        assert!(down.output().unwrap().status.success());
    }
    assert_ne!(urls[0], urls[1]);
}
