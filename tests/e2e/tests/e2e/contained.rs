//! What would hold a process is a fact: rules see it, people see it, and a run has the network of its own call alone.

use palyra_e2e::{Host, text};
use palyra_testkit::serve;
use serde_json::{Value, json};
use std::thread::JoinHandle;

/// A server that answers as many requests as it is told to.
fn pages(count: usize) -> (u16, JoinHandle<Vec<String>>) {
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\npage\n";
    serve(vec![page.to_owned(); count])
}

fn run(host: &Host, input: &Value) -> Value {
    let (call, approval) = host.ask("palyra.process.run", input, &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]);
    ran.json()
}

#[test]
fn a_run_reaches_the_hosts_of_its_own_call_and_nothing_else_of_the_list() {
    let ((asked, serving), (listed, _unused)) = (pages(1), pages(1));
    let host = Host::with(&format!("[egress]\nallowed_hosts = [\"localhost:{asked}\", \"localhost:{listed}\"]\n"));
    let fetch = |port: u16| format!("http://localhost:{port}/x");
    let input = json!({
        "argv": ["curl", "-sS", fetch(asked), fetch(listed)],
        "requested_egress_hosts": [format!("localhost:{asked}")],
    });
    let ran = run(&host, &input);
    serving.join().unwrap();
    let egress = &ran["output"]["egress"];
    assert_eq!((&egress["allowed"], &egress["denied"]), (&json!(1), &json!(1)), "{ran}");
    assert!(text(&egress["denials"][0], "/hint").contains("requested_egress_hosts"), "{egress}");
    // What one call was allowed opens nothing to the next.
    let ran = run(&host, &json!({ "argv": ["curl", "-sS", fetch(asked)] }));
    assert_eq!(ran["output"]["egress"]["allowed"], 0, "{ran}");
}

#[test]
fn a_host_that_no_list_names_is_asked_about_and_opened_for_that_call() {
    let (port, serving) = pages(1);
    let host = Host::with("[egress]\nunlisted_hosts = \"ask\"\n");
    let url = format!("http://localhost:{port}/x");
    let asking = json!({ "argv": ["curl", "-sS", url], "requested_egress_hosts": [format!("localhost:{port}")] });
    let (call, approval) = host.ask("palyra.process.run", &asking, &[]);
    let card = host.palyra_text(&["approvals", "show", &approval]).stdout;
    assert!(card.contains(&format!("network: localhost:{port} alone")), "{card}");
    host.decide(&approval, "allow", &["--scope", "session", "--match", "tool"]).exits(0).done();
    assert_eq!(text(&host.palyra(&["calls", "follow", &call]).good(), "/output/stdout"), "page\n");
    serving.join().unwrap();
    let ran = run(&host, &json!({ "argv": ["curl", "-sS", "http://unasked.example/x"] }));
    let denial = &ran["output"]["egress"]["denials"][0];
    assert!(text(denial, "/hint").contains("requested_egress_hosts"), "{ran}");
}

#[test]
fn rules_see_what_would_hold_a_process_and_explanations_show_it() {
    let host = Host::up();
    let explained = host.palyra(&["policy", "explain", "palyra.process.run", "--input", r#"{"argv":["true"]}"#]);
    let shown = explained.json().to_string();
    assert!(shown.contains("containment") && shown.contains("\"network\":\"none\""), "{shown}");
}
