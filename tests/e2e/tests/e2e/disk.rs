//! A full disk: a typed error, nothing carried out that is not recorded, and everything well once there is room.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

const WRITE: &str = "palyra.fs.write";

/// A host whose state lies on a small file system of its own.
struct Small {
    // Dropped before the mount is taken away.
    host: Option<Host>,
    mounted: std::path::PathBuf,
}

impl Small {
    fn new() -> Self {
        let mut host = Host::idle();
        fs::create_dir(host.state()).unwrap();
        let mounted = host.state();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]).arg(&mounted).status();
        assert!(mount.unwrap().success(), "this test needs the right to mount a tmpfs");
        host.start();
        Self { host: Some(host), mounted }
    }

    fn host(&mut self) -> &mut Host {
        self.host.as_mut().unwrap()
    }

    /// Fills the disk to the last byte, or leaves some room.
    fn fill(&self, leave: usize) {
        let mut file = File::create(self.mounted.join("ballast")).unwrap();
        let block = [0_u8; 4096];
        while file.write_all(&block).is_ok() {}
        let size = file.metadata().unwrap().len();
        file.set_len(size.saturating_sub(leave as u64)).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.mounted.join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if let Some(host) = &mut self.host {
            host.kill();
        }
        drop(Command::new("umount").arg("--lazy").arg(&self.mounted).status());
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
    small.fill(0);
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
    small.free();
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
    small.fill(300 * 1024);
    let host = small.host();
    let read = json!({ "path": "large" });
    host.call("palyra.fs.read", &read, &["--idempotency-key", "k"]).fails(9, "outcome_not_recorded");
    host.kill();
    small.free();
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
    small.fill(300 * 1024);
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
    small.free();
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
    small.fill(0);
    let refused = small.host().refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("full"), "{}", refused.log);
    small.free();
    small.host().start();
    assert_eq!(small.host().palyra(&["journal", "verify"]).good()["intact"], true);
}
