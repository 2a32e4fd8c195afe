//! A full disk: a typed error, nothing carried out that is not recorded, and everything well once there is room.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

const WRITE: &str = "palyra.fs.write";

/// A host whose state lies on a small file system of its own.
struct Small {
    // Dropped before the mount is taken away.
    host: Option<Host>,
    disk: Disk,
}

/// The small file system.
#[derive(Clone)]
struct Disk(PathBuf);

impl Disk {
    /// Fills the disk to the last byte, or leaves some room.
    fn fill(&self, leave: usize) {
        let mut file = File::create(self.0.join("ballast")).unwrap();
        let block = [0_u8; 4096];
        while file.write_all(&block).is_ok() {}
        let size = file.metadata().unwrap().len();
        file.set_len(size.saturating_sub(leave as u64)).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Small {
    fn new() -> Self {
        Self::with("")
    }

    fn with(config: &str) -> Self {
        let mut host = Host::idle();
        host.configure(config);
        fs::create_dir(host.state()).unwrap();
        let mounted = host.state();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]).arg(&mounted).status();
        assert!(mount.unwrap().success(), "this test needs the right to mount a tmpfs");
        host.start();
        Self { host: Some(host), disk: Disk(mounted) }
    }

    fn host(&mut self) -> &mut Host {
        self.host.as_mut().unwrap()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if let Some(host) = &mut self.host {
            host.kill();
        }
        drop(Command::new("umount").arg("--lazy").arg(&self.disk.0).status());
    }
}

fn write(name: &str) -> Value {
    json!({ "path": name, "content": "x", "must_not_exist": true })
}

#[test]
fn without_room_nothing_runs_and_with_room_again_everything_does() {
    let mut small = Small::new();
    let (call, approval) = small.host().ask(WRITE, &write("before"), &["--session", "s"]);
    small.host().decide(&approval, "allow", &["--scope", "session", "--match", "tool"]).exits(0).done();
    small.host().palyra(&["calls", "follow", &call]).exits(0).done();
    let (waiting, question) = small.host().ask(WRITE, &write("waiting"), &[]);
    small.disk.fill(0);
    let host = small.host();
    for n in 0..10 {
        let error = host.call("palyra.echo", &json!({ "text": "x" }), &[]).fails(1, "disk_full");
        assert!(error["hint"].is_string(), "it says what to do: {error}");
        host.call(WRITE, &write(&format!("full-{n}")), &["--session", "s"]).fails(1, "disk_full");
        host.call(WRITE, &write(&format!("ask-{n}")), &["--detach"]).fails(1, "disk_full");
        host.palyra(&["call", "palyra.nonsense"]).fails(1, "disk_full");
    }
    host.decide(&question, "allow", &[]).fails(1, "disk_full");
    assert_eq!(host.palyra(&["approvals", "show", &question]).good()["state"], "pending", "looking still works");
    assert_eq!(fs::read_dir(host.work("")).unwrap().count(), 1, "nothing was carried out");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
    let checks = host.palyra(&["doctor"]).exits(1).json();
    let disk = checks.as_array().unwrap().iter().find(|check| check["name"] == "state disk").unwrap();
    assert!(disk["finding"] == "bad" && disk["fix"].is_string(), "{checks}");
    small.disk.free();
    let host = small.host();
    host.call("palyra.echo", &json!({ "text": "x" }), &[]).exits(0).done();
    host.call(WRITE, &write("after"), &["--session", "s"]).exits(0).done();
    host.decide(&question, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &waiting]).exits(0).done();
    assert!(host.work("after").exists() && host.work("waiting").exists());
    host.restart(Restart::Kill);
    let verified = host.palyra(&["journal", "verify"]).good();
    assert_eq!(verified["intact"], true);
    assert_eq!(host.palyra(&["status"]).good()["open_calls"], 0);
}

#[test]
fn an_outcome_that_finds_no_room_before_the_daemon_dies_becomes_indeterminate() {
    let mut small = Small::new();
    small.host().put("large", "x".repeat(700 * 1024));
    small.disk.fill(300 * 1024);
    let host = small.host();
    let read = json!({ "path": "large" });
    host.call("palyra.fs.read", &read, &["--idempotency-key", "k"]).fails(9, "outcome_not_recorded");
    host.kill();
    small.disk.free();
    let host = small.host();
    host.start();
    let again = host.call("palyra.fs.read", &read, &["--idempotency-key", "k"]);
    assert_eq!(again.json()["replayed"], true);
    assert_eq!(text(&again.json(), "/state"), "indeterminate", "the intent was recorded, the outcome was not");
    again.fails(9, "indeterminate");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

/// The effect has happened: nobody is told to repeat it, and once there is room its outcome is on record.
#[test]
fn an_outcome_that_finds_no_room_is_recorded_when_there_is_some() {
    let mut small = Small::new();
    small.host().put("large", "x".repeat(700 * 1024));
    small.disk.fill(300 * 1024);
    let host = small.host();
    let read = json!({ "path": "large" });
    let key = ["--idempotency-key", "k"];
    let error = host.call("palyra.fs.read", &read, &key).fails(9, "outcome_not_recorded");
    let hint = text(&error, "/hint").to_owned();
    assert!(text(&error, "/message").contains("the call ran") && hint.contains("do not repeat it"), "{error}");
    let call = hint.split_whitespace().find(|word| word.starts_with("call_")).unwrap().trim_end_matches('`').to_owned();
    // Whoever asks is told the same, at once.
    host.call("palyra.fs.read", &read, &key).fails(9, "outcome_not_recorded");
    host.palyra(&["calls", "follow", &call]).fails(9, "outcome_not_recorded");
    host.palyra(&["calls", "cancel", &call]).fails(9, "outcome_not_recorded");
    small.disk.free();
    let host = small.host();
    let deadline = std::time::Instant::now() + palyra_e2e::PATIENCE;
    while host.palyra(&["calls", "show", &call]).json()["state"] == "executing" {
        assert!(std::time::Instant::now() < deadline, "it is never recorded");
    }
    let again = host.call("palyra.fs.read", &read, &key).good();
    assert_eq!((text(&again, "/state"), &again["replayed"]), ("succeeded", &json!(true)));
    assert_eq!(host.palyra(&["calls", "follow", &call]).good()["output"]["total_bytes"], 700 * 1024);
    assert_eq!(host.palyra(&["status"]).good()["open_calls"], 0);
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_daemon_without_room_says_so_and_does_not_start() {
    let mut small = Small::new();
    small.host().kill();
    small.disk.fill(0);
    let refused = small.host().refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("full"), "{}", refused.log);
    small.disk.free();
    small.host().start();
    assert_eq!(small.host().palyra(&["journal", "verify"]).good()["intact"], true);
}

/// Takes a connection for `/hang`, which gets no answer, and one for `/seen`. When both are there the disk is filled,
/// and `/seen` is answered. Ends when the client of `/hang` is gone, after this was done to the disk.
fn fill_when_asked(listener: TcpListener, disk: Disk, at_the_end: fn(&Disk)) -> JoinHandle<()> {
    let accept = move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let read = socket.read(&mut head).unwrap();
        (String::from_utf8_lossy(&head[..read]).into_owned(), socket)
    };
    std::thread::spawn(move || {
        let mut both = [accept(), accept()];
        both.sort_by_key(|(head, _)| !head.starts_with("GET /hang "));
        let [(_, mut hanging), (_, mut seen)]: [(String, TcpStream); 2] = both;
        disk.fill(0);
        seen.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes").unwrap();
        drop(seen);
        assert_eq!(hanging.read(&mut [0; 1]).unwrap_or(0), 0, "its client is ended");
        at_the_end(&disk);
    })
}

/// Starts a program that connects twice, while the disk is filled around it.
fn connecting_without_room(at_the_end: fn(&Disk)) -> (Small, String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut small = Small::with(&format!(
        "[process_runner]\nallow_interpreters = [\"bash\"]\n[egress]\nallowed_hosts = [\"localhost:{port}\"]\n"
    ));
    let served = fill_when_asked(listener, small.disk.clone(), at_the_end);
    let line = format!("curl -s localhost:{port}/hang & curl -s localhost:{port}/seen; wait");
    let input = json!({ "argv": ["bash", "-c", line], "requested_egress_hosts": [format!("localhost:{port}")] });
    let (call, approval) = small.host().ask("palyra.process.run", &input, &[]);
    small.host().decide(&approval, "allow", &[]).exits(0).done();
    (small, call, served)
}

#[test]
fn a_connection_that_cannot_be_recorded_ends_the_run_and_is_recorded_when_there_is_room() {
    let (mut small, call, served) = connecting_without_room(Disk::free);
    let ran = small.host().palyra(&["calls", "follow", &call]).exits(1).json();
    served.join().unwrap();
    assert_eq!(text(&ran, "/problem/code"), "egress_recorded_late", "{ran}");
    let paths = connections(small.host(), &call);
    assert_eq!(paths, ["/hang", "/seen"], "what the server saw is what the journal has");
    assert_eq!(ran["output"]["egress"]["allowed"], 2);
    assert_eq!(small.host().palyra(&["journal", "verify"]).good()["intact"], true);
}

/// The connections of a call, by their paths.
fn connections(host: &Host, call: &str) -> Vec<String> {
    let events = host.palyra(&["journal", "show", call]).json_lines();
    let events = events.iter().filter(|event| event["kind"] == "egress.connection");
    let mut paths: Vec<_> = events.map(|event| text(event, "/body/connection/path").to_owned()).collect();
    paths.sort_unstable();
    paths
}

/// What is still unwritten when the run has ended goes with the outcome, whenever there is room for it.
#[test]
fn connections_that_find_no_room_at_all_come_with_the_outcome() {
    let (mut small, call, served) = connecting_without_room(|_| {});
    served.join().unwrap();
    small.host().palyra(&["calls", "follow", &call]).fails(9, "outcome_not_recorded");
    assert_eq!(connections(small.host(), &call), [""; 0]);
    small.disk.free();
    let host = small.host();
    let deadline = std::time::Instant::now() + palyra_e2e::PATIENCE;
    while host.palyra(&["calls", "show", &call]).json()["state"] == "executing" {
        assert!(std::time::Instant::now() < deadline, "it is never recorded");
    }
    let ran = host.palyra(&["calls", "follow", &call]).exits(1).json();
    assert_eq!(text(&ran, "/problem/code"), "egress_recorded_late", "{ran}");
    assert_eq!(connections(host, &call), ["/hang", "/seen"]);
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_call_whose_connections_cannot_be_recorded_has_no_outcome() {
    let (mut small, call, served) = connecting_without_room(|_| {});
    served.join().unwrap();
    small.host().palyra(&["calls", "follow", &call]).fails(9, "outcome_not_recorded");
    small.host().kill();
    small.disk.free();
    small.host().start();
    let ended = small.host().palyra(&["calls", "show", &call]).exits(9).json();
    assert_eq!(text(&ended, "/state"), "indeterminate", "{ended}");
    assert!(ended["attestation"].is_null() && ended["output"].is_null(), "{ended}");
    assert_eq!(small.host().palyra(&["journal", "verify"]).good()["intact"], true);
}
