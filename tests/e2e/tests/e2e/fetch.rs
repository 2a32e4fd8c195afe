//! `palyra.http.fetch`: what comes back, what is refused before anybody is asked, and what the journal keeps of each
//! connection.

use palyra_e2e::{Host, Proposal, api, text};
use palyra_testkit::{listen, read_request, serve_on};
use serde_json::{Value, json};
use std::net::TcpListener;

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
    let served = serve_on(
        listener,
        vec!["HTTP/1.1 404 Not Found\r\nX-Kind: test\r\nContent-Length: 6\r\n\r\nnot it".to_owned()],
    );
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
    let served = serve_on(listener, vec![redirect]);
    let host = allowing(port);
    let (call, ran) = fetch(&host, &json!({ "url": format!("http://127.0.0.1:{port}/") }));
    assert_eq!(ran.json()["problem"]["code"], "egress_denied", "{ran:?}");
    ran.exits(1).done();
    served.join().unwrap();
    let verdicts: Vec<_> = connections(&host, &call).iter().map(|c| text(c, "/verdict").to_owned()).collect();
    assert_eq!(verdicts, ["allowed", "denied"]);
}

/// A host with these rules for calls, where these ports of this machine may be reached.
fn deciding(ports: &[u16], rules: &str) -> Host {
    let mut host = crate::policy::with_policies(&[("rules.cedar", rules)]);
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let config = std::fs::read_to_string(host.config()).unwrap();
    host.configure(&format!("{config}[egress]\nallowed_hosts = {hosts:?}\n"));
    host.start();
    host
}

fn redirect(status: u16, port: u16) -> String {
    format!("HTTP/1.1 {status} Moved\r\nLocation: http://127.0.0.1:{port}/secret\r\nContent-Length: 0\r\n\r\n")
}

/// Nobody has come to this server.
fn untouched(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "somebody came");
}

#[test]
fn a_redirect_reaches_no_host_that_policy_forbids() {
    let ((first, a), (second, b)) = (listen(), listen());
    let rules = format!(
        r#"@id("not_there") @reason("Nobody goes there.") @remedy("Go elsewhere.")
        forbid (principal, action == Action::"tool.execute", resource)
        when {{ context.endpoints.contains("127.0.0.1:{b}") }};"#
    );
    let host = deciding(&[a, b], &rules);
    let direct = json!({ "url": format!("http://127.0.0.1:{b}/secret") });
    host.call("palyra.http.fetch", &direct, &["--detach"]).fails(3, "policy_denied");
    let served = serve_on(first, vec![redirect(302, b), redirect(307, b)]);
    let (call, ran) = fetch(&host, &json!({ "url": format!("http://127.0.0.1:{a}/") }));
    let problem = ran.exits(1).json()["problem"].clone();
    assert_eq!(text(&problem, "/code"), "policy_denied");
    assert!(text(&problem, "/message").contains("Nobody goes there."), "{problem}");
    assert!(problem["hint"].is_string(), "{problem}");
    let last = connections(&host, &call).pop().unwrap();
    assert_eq!((text(&last, "/verdict"), text(&last, "/code")), ("denied", "policy_denied"));
    // What changes something goes nowhere else, whatever policy says.
    let (_, ran) = fetch(&host, &json!({ "url": format!("http://127.0.0.1:{a}/"), "method": "DELETE" }));
    assert_eq!(ran.exits(1).json()["problem"]["code"], "redirect_elsewhere");
    served.join().unwrap();
    untouched(&second);
}

#[test]
fn a_redirect_goes_no_further_than_the_call_was_cleared_for() {
    let ((first, a), (second, b)) = (listen(), listen());
    let rules = format!(
        r#"@id("freely_there") @reason("That host is harmless.")
        permit (principal, action == Action::"approval.waive", resource)
        when {{ ["127.0.0.1:{a}"].containsAll(context.endpoints) }};"#
    );
    let host = deciding(&[a, b], &rules);
    let served = serve_on(first, vec![redirect(302, b), redirect(302, b)]);
    let input = json!({ "url": format!("http://127.0.0.1:{a}/") });
    // Nobody was asked about the first host, and about the second somebody has to be.
    let ran = host.call("palyra.http.fetch", &input, &[]).exits(1).json();
    assert_eq!(text(&ran, "/problem/code"), "policy_denied", "{ran}");
    assert!(text(&ran, "/problem/hint").contains("a call of its own"), "{ran}");
    second.set_nonblocking(true).unwrap();
    assert!(second.accept().is_err(), "somebody came");
    // Where a person says yes to a fetch that follows redirects, it follows them.
    second.set_nonblocking(false).unwrap();
    let found = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfound".to_owned();
    let served_b = serve_on(second, vec![redirect(302, a), found]);
    let (call, approval) = host.ask("palyra.http.fetch", &json!({ "url": format!("http://127.0.0.1:{b}/") }), &[]);
    let card = host.palyra_text(&["approvals", "show", &approval]).stdout;
    assert!(card.contains("redirects to allowed hosts are followed"), "{card}");
    host.decide(&approval, "allow", &[]).exits(0).done();
    // From b to a, and from there to b again.
    let fetched = host.palyra(&["calls", "follow", &call]).good();
    assert_eq!(text(&fetched, "/output/body"), "found");
    served.join().unwrap();
    served_b.join().unwrap();
}

#[test]
fn the_example_for_a_coding_agent_says_of_real_fetches_what_its_cases_say() {
    let mut host = Host::idle();
    let example =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/examples/personal-coding-agent");
    host.configure(&format!(
        "policy_dir = {example:?}\n[egress]\nallowed_hosts = [\"packages.internal.example\", \"attacker.example\"]\n"
    ));
    host.start();
    let fetch = |url: &str| {
        let input = json!({ "url": url });
        host.call("palyra.http.fetch", &input, &["--detach", "--as", "agent:coder"])
    };
    assert_eq!(fetch("https://packages.internal.example/x").good()["state"], "awaiting_approval");
    assert_eq!(fetch("http://packages.internal.example/x").good()["state"], "awaiting_approval");
    let denied = fetch("https://attacker.example/x").fails(3, "policy_denied");
    assert!(text(&denied, "/message").contains("packages alone"), "{denied}");
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
        read_request(&mut socket).unwrap();
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
