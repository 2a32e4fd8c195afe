//! `palyra.http.fetch`: what comes back, what is refused before anybody is asked, and what the journal keeps of each connection.

use palyra_e2e::{Host, Proposal, api, text};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// A server of this machine, not yet serving, and its port.
fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn read_head(socket: &mut TcpStream) -> String {
    let mut head = String::new();
    let mut byte = [0; 1];
    while !head.ends_with("\r\n\r\n") && socket.read(&mut byte).unwrap() == 1 {
        head.push(char::from(byte[0]));
    }
    head
}

/// Gives each of these answers to one connection; returns what was asked.
fn serve(listener: TcpListener, answers: Vec<String>) -> JoinHandle<Vec<String>> {
    let one = move |answer: &String| {
        let (mut socket, _) = listener.accept().unwrap();
        let asked = read_head(&mut socket);
        socket.write_all(answer.as_bytes()).unwrap();
        asked
    };
    std::thread::spawn(move || answers.iter().map(one).collect())
}

fn allowing(port: u16) -> Host {
    Host::with(&format!("[egress]\nallowed_hosts = [\"127.0.0.1:{port}\"]\n"))
}

/// Fetches with a person's yes.
fn fetch(host: &Host, input: &Value) -> (String, palyra_e2e::Ran) {
    let (call, approval) = host.ask("palyra.http.fetch", input, &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]);
    (call, ran)
}

/// The connections of a call, as the journal has them.
fn connections(host: &Host, call: &str) -> Vec<Value> {
    let events = host.palyra(&["journal", "show", call]).json_lines();
    let events = events.iter().filter(|event| event["kind"] == "egress.connection");
    events.map(|event| event["body"]["connection"].clone()).collect()
}

#[test]
fn a_fetch_is_asked_about_brings_the_answer_and_leaves_a_record() {
    let (listener, port) = listen();
    let served =
        serve(listener, vec!["HTTP/1.1 404 Not Found\r\nX-Kind: test\r\nContent-Length: 6\r\n\r\nnot it".to_owned()]);
    let host = allowing(port);
    let url = format!("http://127.0.0.1:{port}/a?q=1");
    let (call, approval) = host.ask("palyra.http.fetch", &json!({ "url": url, "headers": { "X-Mine": "1" } }), &[]);
    let card = host.palyra_text(&["approvals", "show", &approval]);
    assert!(card.stdout.contains(&format!("GET 127.0.0.1:{port}")), "{card:?}");
    host.decide(&approval, "allow", &[]).exits(0).done();
    let fetched = host.palyra(&["calls", "follow", &call]).good();
    let output = &fetched["output"];
    assert_eq!(
        (&output["status"], &output["body"], &output["truncated"]),
        (&json!(404), &json!("not it"), &json!(false))
    );
    assert!(output["headers"].as_array().unwrap().contains(&json!({ "name": "x-kind", "value": "test" })), "{output}");
    assert_eq!(text(output, "/final_url"), url);
    let asked = served.join().unwrap().remove(0);
    assert!(asked.starts_with("GET /a?q=1 HTTP/1.1\r\n") && asked.contains("x-mine: 1\r\n"), "{asked}");
    let [connection] = &connections(&host, &call)[..] else { panic!("one connection") };
    assert_eq!((text(connection, "/verdict"), text(connection, "/path")), ("allowed", "/a"));
    assert_eq!(text(connection, "/address"), format!("127.0.0.1:{port}"));
    assert_eq!(connection["bytes_sent"], asked.len());
    assert!(connection["bytes_received"].as_u64().unwrap() > 6, "{connection}");
    let line = host.palyra_text(&["journal", "tail", "--last", "20"]).stdout;
    assert!(line.contains(&format!("allowed GET 127.0.0.1:{port}/a")), "{line}");
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn a_host_that_no_rule_allows_is_denied_before_anybody_is_asked() {
    let (_listener, port) = listen();
    let host = allowing(port);
    for url in [
        "https://example.org/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://127.0.0.1:{}/", port ^ 1),
        format!("http://localhost:{port}/"),
        format!("http://127.0.0.2:{port}/"),
    ] {
        let error = host.call("palyra.http.fetch", &json!({ "url": url }), &["--detach"]).fails(3, "egress_denied");
        assert!(text(&error, "/hint").contains("allowed_hosts"), "{url}: {error}");
    }
    for url in
        [format!("http://127.1:{port}/"), format!("http://u:p@127.0.0.1:{port}/"), "file:///etc/passwd".to_owned()]
    {
        host.call("palyra.http.fetch", &json!({ "url": url }), &["--detach"]).fails(6, "fetch_url_invalid");
    }
    let input = json!({ "url": format!("http://127.0.0.1:{port}/"), "headers": { "Host": "other.test" } });
    host.call("palyra.http.fetch", &input, &["--detach"]).fails(6, "fetch_request_invalid");
    assert_eq!(host.palyra(&["status"]).good()["pending_approvals"], 0);
}

#[test]
fn a_redirect_is_checked_like_the_first_hop() {
    let (listener, port) = listen();
    let redirect =
        "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n".to_owned();
    let served = serve(listener, vec![redirect]);
    let host = allowing(port);
    let (call, ran) = fetch(&host, &json!({ "url": format!("http://127.0.0.1:{port}/") }));
    assert_eq!(ran.json()["problem"]["code"], "egress_denied", "{ran:?}");
    ran.exits(1).done();
    served.join().unwrap();
    let verdicts: Vec<_> = connections(&host, &call).iter().map(|c| text(c, "/verdict").to_owned()).collect();
    assert_eq!(verdicts, ["allowed", "denied"]);
}

#[tokio::test]
async fn a_fetch_that_hangs_is_cancelled() {
    let (listener, port) = listen();
    let host = allowing(port);
    let owner = host.owner().await;
    let input = json!({ "url": format!("http://127.0.0.1:{port}/") });
    let mut call = owner.propose(Proposal::new("palyra.http.fetch", &input)).await.unwrap();
    let question = call.question().await;
    owner.allow(question.approval_id.as_str()).await.unwrap();
    let asked = tokio::task::spawn_blocking(move || {
        let (mut socket, _) = listener.accept().unwrap();
        read_head(&mut socket);
        socket
    });
    // The request has arrived and gets no answer: from here on the call is known to wait.
    let socket = api::patiently("the request", asked).await.unwrap();
    host.palyra(&["calls", "cancel", question.call_id.as_str()]).exits(5).done();
    let outcome = api::outcome(&call.end().await.unwrap());
    assert_eq!(outcome["state"], "cancelled");
    let [connection] = &connections(&host, question.call_id.as_str())[..] else { panic!("one connection") };
    assert_eq!(text(connection, "/ended"), "stopped");
    drop(socket);
}
