//! A device's own side: its profiles, its keys, its certificates as time goes by, and its screens.

use crate::remote::{HOME, Machines};
use palyra_e2e::{Host, Terminal, text};
use serde_json::json;

const HOUR: i64 = 3600;

/// Sets both machines' clocks.
fn both(machines: &Machines, seconds: i64) {
    machines.server.set_clock(seconds);
    machines.device.set_clock(seconds);
}

#[test]
fn a_certificate_renews_itself_and_a_wrong_clock_is_named() {
    let machines = Machines::with_clocks();
    machines.pair("laptop", "operator");
    let first = machines.serial("laptop");
    both(&machines, 7 * HOUR);
    machines.remotely(&["status"]).exits(0).done();
    assert_eq!(machines.serial("laptop"), first, "it is not due yet");
    both(&machines, 10 * HOUR);
    machines.remotely(&["status"]).exits(0).done();
    let second = machines.serial("laptop");
    assert_ne!(second, first, "no one asked for it");
    // The first would be over by now.
    both(&machines, 30 * HOUR);
    machines.remotely(&["status"]).exits(0).done();
    assert_ne!(machines.serial("laptop"), second);

    // Each machine says whose clock is wrong as far as it can know.
    machines.device.set_clock(30 * HOUR + 10 * 24 * HOUR);
    let error = machines.remotely(&["status"]).fails(10, "wrong_clock");
    assert!(text(&error, "/hint").contains("clocks of both machines"), "{error}");
    machines.device.set_clock(30 * HOUR - 10 * 24 * HOUR);
    machines.remotely(&["status"]).fails(10, "wrong_clock");
    machines.device.set_clock(30 * HOUR);
    machines.remotely(&["status"]).exits(0).done();

    // A device that stays away for longer than a day is paired again, as the same device.
    let server = 30 * HOUR + 25 * HOUR;
    both(&machines, server);
    let error = machines.remotely(&["status"]).fails(10, "device_certificate_time");
    assert!(text(&error, "/hint").contains("pair this device again"), "{error}");
    let listed = machines.server.palyra(&["devices", "list"]).good();
    assert_eq!((&listed[0]["state"], &listed[0]["warnings"][0]), (&json!("lapsed"), &json!("lapsed")));
    machines.pair_again("laptop");
    machines.remotely(&["status"]).exits(0).done();
    // A clock that is set back revives nothing: what was over stays over.
    let revoked = machines.server.palyra(&["devices", "revoke", "laptop"]).good();
    both(&machines, 0);
    assert_eq!(revoked["state"], "revoked");
    let refused = machines.remotely(&["status"]).exits(10).error();
    assert!(["device_revoked", "wrong_clock"].contains(&text(&refused, "/code")), "{refused}");
}

#[test]
fn the_server_changes_its_certificate_and_an_open_stream_goes_on() {
    let machines = Machines::paired("admin");
    let following = machines.device.palyra_started(&["--host", HOME, "journal", "tail", "--follow", "-n", "1"]);
    drop(following.json());
    machines.server.palyra(&["devices", "authority", "rotate"]).exits(0).done();
    let mut changed = false;
    machines.server.call("palyra.echo", &json!({ "text": "a mark" }), &[]).exits(0).done();
    loop {
        let event = following.json();
        changed |= event["body"]["what"] == "identity.server_certificate";
        if event.to_string().contains("a mark") {
            break;
        }
    }
    assert!(changed, "the server's new certificate is on record, in a stream that the old one protects");
    machines.remotely(&["status"]).exits(0).done();
}

#[test]
fn a_copied_state_directory_alone_is_no_device() {
    let machines = Machines::paired("operator");
    let thief = Host::idle_in(machines.network.device().0);
    let copied = std::process::Command::new("cp")
        .args(["-a", machines.device.state().to_str().unwrap(), thief.state().to_str().unwrap()])
        .status()
        .unwrap();
    assert!(copied.success());
    let error = thief.palyra(&["--host", HOME, "status"]).fails(10, "key_vault_failed");
    assert!(text(&error, "/message").contains("not sealed by this machine"), "{error}");
    machines.remotely(&["status"]).exits(0).done();
    // Nor does the key lie there as it is.
    for entry in std::fs::read_dir(machines.device.state().join("host_keys")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"\x06\x07\x2a\x86\x48\xce\x3d"), "an EC key as it is");
    }
    // The authority's key is a secret of the daemon's in its vault.
    assert!(!machines.server.state().join("identity_keys").exists());
    let used = machines.server.palyra(&["journal", "tail", "-n", "60"]).exits(0).stdout;
    assert!(used.contains("identity.authority.1"), "its use is on record: {used}");
}

#[test]
fn hosts_are_listed_chosen_and_forgotten() {
    let machines = Machines::paired("operator");
    let device = &machines.device;
    let listed = device.palyra(&["hosts", "list"]).good();
    assert_eq!((&listed[0]["profile"], &listed[0]["role"]), (&json!(HOME), &json!("operator")));
    assert_eq!((&listed[0]["chosen"], &listed[0]["certificate_over"]), (&json!(false), &json!(false)));
    device.palyra(&["status"]).exits(7).done();
    device.palyra(&["hosts", "use", HOME]).exits(0).done();
    assert_eq!(device.palyra(&["access", "whoami"]).good()["channel"], "remote");
    // What is about this machine says so.
    device.palyra(&["down"]).fails(2, "usage");
    device.palyra(&["--host", "local", "status"]).exits(7).done();
    device.palyra(&["hosts", "use", "local"]).exits(0).done();
    device.palyra(&["status"]).exits(7).done();
    device.palyra(&["--host", "elsewhere", "status"]).fails(10, "profile_unknown");
    device.palyra(&["hosts", "use", "elsewhere"]).fails(10, "profile_unknown");
    device.palyra(&["hosts", "remove", HOME]).exits(0).done();
    assert_eq!(device.palyra(&["hosts", "list"]).good(), json!([]));
    device.palyra(&["hosts", "remove", HOME]).fails(10, "profile_unknown");
    machines.remotely(&["status"]).fails(10, "profile_unknown");
}

#[test]
fn a_device_answers_where_it_is_and_on_the_full_screen() {
    let machines = Machines::paired("admin");
    let mut terminal = Terminal::start(&machines.device, &["--host", HOME, "exec", "--", "tee", "log"], (100, 60));
    terminal.sees("y once");
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("succeeded");
    assert_eq!(terminal.ends(), 0);
    drop(machines.server.ask("palyra.process.run", &json!({ "argv": ["tee", "other"] }), &[]));
    let mut screen = Terminal::start(&machines.device, &["--host", HOME, "tui"], (100, 40));
    screen.shows("tee other");
    screen.types("\r");
    screen.shows("y once");
    screen.types("y");
    screen.shows("u takes it back");
    screen.shows("nothing waits for you");
    // The device is revoked while the screen is open: it says so and answers nothing.
    machines.server.palyra(&["devices", "revoke", "laptop"]).exits(0).done();
    screen.shows("revoked");
    screen.types("q");
    assert_eq!(screen.ends(), 0);
}

#[test]
fn an_mcp_client_works_over_the_network() {
    let machines = Machines::paired("owner");
    let list = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"palyra.echo","arguments":{"text":"over mTLS"}}}
"#;
    let mut command = machines.device.command("palyra");
    command.args(["--host", HOME, "mcp", "serve", "--as", "agent:afar"]);
    let ran = palyra_e2e::cli::run(command, list).exits(0);
    let answers: Vec<_> = ran.json_lines();
    assert!(answers.iter().any(|answer| answer["id"] == 2 && answer.to_string().contains("over mTLS")), "{ran:?}");
}
