//! Processes in the background, and what an agent hears while a call runs.

use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;

const WAIVED: &str =
    r#"@id("free") @reason("For this test.") permit (principal, action == Action::"approval.waive", resource);"#;

fn host() -> Host {
    let mut host = Host::idle();
    fs::create_dir(host.path("rules")).unwrap();
    fs::write(host.path("rules/mine.cedar"), WAIVED).unwrap();
    let rules = host.path("rules");
    host.configure(&format!(
        "policy_dir = {rules:?}\n[process_runner]\ntier = \"c\"\nallow_interpreters = [\"bash\"]\nwall_clock_limit_ms = 2000\n"
    ));
    host.start();
    host
}

fn start(client: &mut palyra_e2e::mcp::Mcp, line: &str) -> String {
    let started = client.call("palyra_process_start", &json!({ "argv": ["bash", "-c", line] }));
    let started = &started["structuredContent"];
    assert_eq!(started["state"], "running", "{started}");
    text(started, "/process").to_owned()
}

fn read(client: &mut palyra_e2e::mcp::Mcp, process: &str, after: u64) -> Value {
    let read = json!({ "process": process, "after": after, "wait_ms": 30_000 });
    client.call("palyra_process_read", &read)["structuredContent"].clone()
}

#[test]
fn a_process_in_the_background_is_read_and_stopped() {
    let host = host();
    let mut client = host.mcp(&[]);
    let process = start(&mut client, "echo ready; sleep 600");
    let first = read(&mut client, &process, 0);
    assert_eq!((&first["stdout"], &first["state"]), (&json!("ready\n"), &json!("executing")), "{first}");
    assert_eq!(first["next"], 6);
    let stopped = client.call("palyra_process_stop", &json!({ "process": process }));
    assert_eq!(stopped["structuredContent"]["state"], "cancelled", "{stopped}");
    assert_eq!(read(&mut client, &process, 6)["state"], "cancelled");
    let unknown = client.call("palyra_process_stop", &json!({ "process": process }));
    assert_eq!(unknown["structuredContent"]["error"]["code"], "unknown_process", "{unknown}");
}

#[test]
fn a_process_ends_with_the_session_and_is_nobody_elses() {
    let host = host();
    let mut client = host.mcp(&[]);
    let process = start(&mut client, "sleep 600");
    let mut other = host.mcp(&["--as", "agent:other"]);
    let foreign = other.call("palyra_process_read", &json!({ "process": process }));
    assert_eq!(foreign["structuredContent"]["error"]["code"], "unknown_process", "{foreign}");
    client.hang_up();
    let ended = host.palyra(&["calls", "follow", &process]).fails(5, "cancelled");
    assert!(ended.to_string().contains("withdrew"), "{ended}");
}

#[test]
fn its_outcome_is_what_it_did() {
    let host = host();
    let mut client = host.mcp(&[]);
    let process = start(&mut client, "echo done > made; echo bye");
    host.palyra(&["calls", "follow", &process]).exits(0).done();
    assert_eq!(host.content("made"), "done\n");
    let end = read(&mut client, &process, 0);
    assert_eq!((&end["state"], &end["stdout"], &end["exit_code"]), (&json!("succeeded"), &json!("bye\n"), &json!(0)));
}

#[test]
fn a_call_raises_its_time_limit_within_policy() {
    let host = host();
    let sleep = |ms: u64| json!({ "argv": ["bash", "-c", "sleep 2.5; echo slept"], "timeout_ms": ms });
    host.call("palyra.process.run", &sleep(1000), &[]).fails(1, "execution_timeout");
    let ran = host.call("palyra.process.run", &sleep(60_000), &[]).good();
    assert_eq!(ran["output"]["stdout"], "slept\n");
    fs::write(
        host.path("rules/short.cedar"),
        r#"@id("short") @reason("Not so long.") forbid (principal, action == Action::"tool.execute", resource)
        when { context has time_limit_ms && context.time_limit_ms > 30000 };"#,
    )
    .unwrap();
    host.palyra(&["policy", "reload"]).exits(0).done();
    host.call("palyra.process.run", &sleep(60_000), &[]).fails(3, "policy_denied");
}

#[test]
fn an_agent_hears_the_newest_line_while_its_call_runs() {
    let host = host();
    let mut client = host.mcp(&[]);
    let line = "echo building; exec sleep 600";
    let id = client.ask(
        "tools/call",
        json!({ "name": "palyra_process_run", "arguments": { "argv": ["bash", "-c", line], "timeout_ms": 600_000 },
            "_meta": { "progressToken": "p" } }),
    );
    let progress = client.notification("notifications/progress");
    assert_eq!(progress["params"]["message"], "running: building", "{progress}");
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
}

#[test]
fn whoever_waits_for_a_person_hears_what_would_run() {
    let host = Host::up();
    let mut client = host.mcp(&[]);
    let call = json!({ "name": "palyra_process_run", "arguments": { "argv": ["git", "status"] }, "_meta": { "progressToken": "p" } });
    client.ask("tools/call", call);
    let progress = client.notification("notifications/progress");
    assert!(text(&progress, "/params/message").contains("`palyra.process.run`: git status"), "{progress}");
}
