//! The journal proves itself: what is changed, cut off or rewritten is found and named.

use palyra_e2e::tamper::{PROTECT_DELETE, UNPROTECT, UNPROTECT_DELETE};
use palyra_e2e::{Host, Ran, text};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A host whose journal has some calls.
fn busy() -> Host {
    let host = Host::up();
    for n in 0..5 {
        host.call("palyra.echo", &json!({ "text": format!("hello {n}") }), &[]).exits(0).done();
    }
    host
}

fn verify(host: &Host) -> Ran {
    host.palyra(&["journal", "verify"])
}

fn against(host: &Host, checkpoint: &Path) -> Ran {
    host.palyra(&["journal", "verify", "--against", checkpoint.to_str().unwrap()])
}

fn checkpoint(host: &Host, name: &str) -> PathBuf {
    let file = host.path(name);
    fs::write(&file, host.palyra(&["journal", "checkpoint"]).exits(0).stdout).unwrap();
    file
}

/// `palyrad verify`, which needs no daemon.
fn offline(host: &Host, options: &[&str]) -> Ran {
    let mut command = host.daemon_command();
    command.arg("verify").args(options);
    palyra_e2e::cli::run(command, &[])
}

#[test]
fn a_changed_event_is_named() {
    for change in [
        "UPDATE events SET body = replace(body, 'hello 2', 'hello 3') WHERE seq = 13",
        "UPDATE events SET body = body || ' ' WHERE seq = 13",
        "UPDATE events SET at = at + 1 WHERE seq = 13",
        "UPDATE events SET kind = 'tool.ended' WHERE seq = 13",
        "UPDATE events SET call_id = '' WHERE seq = 13",
        "UPDATE events SET hash = zeroblob(32) WHERE seq = 13",
        "UPDATE events SET prev = zeroblob(32) WHERE seq = 13",
        "UPDATE events SET hash = x'00' WHERE seq = 13",
        "UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE seq = 13",
        "UPDATE events SET at = -1 WHERE seq = 13",
    ] {
        let mut host = busy();
        assert_eq!(verify(&host).good()["events"], 21);
        host.tamper(&[UNPROTECT, change]);
        let found = verify(&host);
        assert_eq!(found.json()["intact"], false, "{change}");
        assert_eq!(found.json()["fault_seq"], 13, "{change}: {found:?}");
        let error = found.fails(8, "journal_broken");
        assert!(text(&error, "/message").contains("event 13"), "{error}");
        host.kill();
        let found = offline(&host, &[]).exits(8);
        assert!(found.stdout.contains("event 13"), "{found:?}");
        let refused = host.refused();
        assert_eq!(refused.code, Some(1));
        assert!(refused.log.contains("event 13"), "{change}: {}", refused.log);
        assert!(refused.log.contains("palyrad verify"), "it says what to do: {}", refused.log);
    }
}

#[test]
fn a_removed_moved_or_inserted_event_is_named() {
    for (change, seq) in [
        ("DELETE FROM events WHERE seq = 13", 13),
        ("DELETE FROM events WHERE seq < 13", 1),
        ("UPDATE events SET seq = 1000 WHERE seq = 13", 13),
        ("INSERT INTO events SELECT seq + 1, at, kind, call_id, body, prev, hash FROM events WHERE seq = 21", 22),
    ] {
        let host = busy();
        host.tamper(&[UNPROTECT, UNPROTECT_DELETE, change]);
        let found = verify(&host);
        assert_eq!(found.json()["fault_seq"], seq, "{change}: {found:?}");
        found.fails(8, "journal_broken");
    }
}

#[test]
fn an_old_fault_does_not_stop_the_daemon_but_is_found() {
    let mut host = Host::up();
    for n in 0..30 {
        host.call("palyra.echo", &json!({ "text": n.to_string() }), &[]).exits(0).done();
    }
    host.kill();
    host.tamper(&[UNPROTECT, "UPDATE events SET at = at + 1 WHERE seq = 5"]);
    host.start();
    assert_eq!(verify(&host).json()["fault_seq"], 5);
    verify(&host).fails(8, "journal_broken");
}

#[test]
fn a_cut_off_end_contradicts_an_earlier_checkpoint() {
    let mut host = busy();
    let kept = checkpoint(&host, "kept.json");
    assert_eq!(against(&host, &kept).good()["compared_with_checkpoint"], true);
    host.kill();
    host.tamper(&[UNPROTECT_DELETE, "DELETE FROM events WHERE seq > 17"]);
    assert!(offline(&host, &[]).exits(8).stdout.contains("table"), "the tables still tell of it");
    host.tamper(&[
        "DELETE FROM calls WHERE opened_seq > 17",
        "DELETE FROM runs WHERE NOT EXISTS (SELECT 1 FROM calls WHERE calls.run = runs.run)",
    ]);
    assert!(
        offline(&host, &[]).exits(8).stdout.contains("events_are_never_deleted"),
        "the missing trigger tells of it"
    );
    host.tamper(&[PROTECT_DELETE]);
    assert!(offline(&host, &[]).exits(0).stdout.contains("intact: 17 events"), "a chain cannot show its missing end");
    let found = offline(&host, &["--against", kept.to_str().unwrap()]).exits(8);
    assert!(found.stdout.contains("17") && found.stdout.contains("21"), "{found:?}");
    host.start();
    verify(&host).exits(0).done();
    let found = against(&host, &kept);
    assert_eq!(found.json()["intact"], false);
    found.fails(8, "journal_broken");
}

/// Whoever edits a table while the daemon runs changes neither what a person is shown nor what holds.
#[test]
fn a_table_edited_while_the_daemon_runs_deceives_nobody() {
    let host = Host::up();
    let write = json!({ "path": "x", "content": "HARMFUL" });
    let session = ["--session", "s"];
    let (call, question) = host.ask("palyra.fs.write", &write, &session);
    host.tamper(&["UPDATE approvals SET record = replace(record, 'HARMFUL', 'harmless')"]);
    let shown = host.palyra(&["approvals", "show", &question]).good();
    assert_eq!(shown["input"]["content"], "HARMFUL", "{shown}");
    let listed = host.palyra(&["approvals", "list"]).good();
    assert_eq!(listed[0]["input"]["content"], "HARMFUL", "{listed}");
    let decided = host.decide(&question, "allow", &["--scope", "session"]).good();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    host.palyra(&["grants", "revoke", text(&decided, "/resolution/grant")]).exits(0).done();
    host.tamper(&["UPDATE grants SET revoked_at = NULL"]);
    let again = host.call("palyra.fs.write", &json!({ "path": "x", "content": "HARMFUL" }), &session);
    assert_eq!(again.error()["code"], "journal_damaged", "{again:?}");
}

/// An answer that somebody writes into the tables is no answer: the daemon does not start on it, and nothing runs.
#[test]
fn an_answer_in_the_tables_alone_runs_nothing() {
    let mut host = Host::up();
    let write = json!({ "path": "forged", "content": "x" });
    let (_, question) = host.ask("palyra.fs.write", &write, &["--as", "agent:demo"]);
    host.kill();
    host.tamper(&[
        "UPDATE approvals SET state = 'allowed', record = json_set(record, '$.state', 'allowed')",
        "UPDATE calls SET state = 'approved' WHERE state = 'awaiting_approval'",
    ]);
    let refused = host.refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("does not follow from the events"), "{}", refused.log);
    assert!(!host.work("forged").exists());
    assert!(offline(&host, &[]).exits(8).stdout.contains("allowed"));
    host.tamper(&[
        "UPDATE approvals SET state = 'pending', record = json_set(record, '$.state', 'pending')",
        "UPDATE calls SET state = 'awaiting_approval' WHERE state = 'approved'",
    ]);
    host.start();
    assert_eq!(host.palyra(&["approvals", "show", &question]).good()["state"], "pending", "it waits as it did");
}

#[test]
fn what_was_changed_in_the_tables_is_named() {
    for (change, table) in
        [("DELETE FROM calls WHERE tool = 'palyra.echo'", "calls"), ("UPDATE runs SET calls = 0", "runs")]
    {
        let host = busy();
        host.tamper(&[change]);
        let error = verify(&host).fails(8, "journal_broken");
        assert!(text(&error, "/message").contains(&format!("table `{table}`")), "{error}");
    }
}

/// What an idempotency key replays is what was recorded, or nothing.
#[test]
fn a_changed_outcome_is_not_replayed() {
    let host = Host::up();
    let input = json!({ "text": "as it was" });
    host.call("palyra.echo", &input, &["--idempotency-key", "k"]).exits(0).done();
    host.tamper(&[
        UNPROTECT,
        "UPDATE events SET body = replace(body, 'as it was', 'as it wasnt') WHERE kind = 'tool.finished'",
    ]);
    host.call("palyra.echo", &input, &["--idempotency-key", "k"]).fails(1, "journal_damaged");
}

#[test]
fn a_chain_rewritten_as_a_whole_contradicts_an_earlier_checkpoint() {
    let mut host = busy();
    let kept = checkpoint(&host, "kept.json");
    host.kill();
    host.rewrite(&["UPDATE events SET body = replace(body, 'hello 2', 'hello 9')"]);
    host.start();
    assert_eq!(verify(&host).good()["intact"], true, "the rewritten chain fits together");
    let error = against(&host, &kept).fails(8, "journal_broken");
    assert!(text(&error, "/message").contains("21"), "{error}");
}

/// Copies the journal with all that belongs to it.
fn copy_journal(from: &Path, to: &Path) {
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        drop(fs::remove_file(to.join(name)));
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

#[test]
fn an_older_journal_put_back_contradicts_a_later_checkpoint() {
    let mut host = busy();
    host.terminate();
    fs::create_dir(host.path("old")).unwrap();
    copy_journal(&host.state(), &host.path("old"));
    host.start();
    host.call("palyra.echo", &json!({ "text": "more" }), &[]).exits(0).done();
    let kept = checkpoint(&host, "kept.json");
    host.terminate();
    copy_journal(&host.path("old"), &host.state());
    host.start();
    verify(&host).exits(0).done();
    against(&host, &kept).fails(8, "journal_broken");
}

#[test]
fn after_a_graceful_end_the_journal_is_one_file() {
    let mut host = busy();
    assert_eq!(host.terminate().code, Some(0));
    let backup = Host::idle();
    fs::create_dir(backup.state()).unwrap();
    fs::copy(host.state().join("journal.db"), backup.state().join("journal.db")).unwrap();
    let found = offline(&backup, &[]);
    assert!(found.stdout.contains("intact: 22 events"), "a copy of `journal.db` is not the journal: {found:?}");
}

#[test]
fn a_checkpoint_is_checked_itself() {
    let host = busy();
    let kept = checkpoint(&host, "kept.json");
    let good: Value = serde_json::from_str(&fs::read_to_string(&kept).unwrap()).unwrap();
    let other = busy();
    let foreign: Value = serde_json::from_str(&other.palyra(&["journal", "checkpoint"]).exits(0).stdout).unwrap();
    let mut forgeries = vec![foreign.clone()];
    for (field, value) in [
        ("size", json!(1)),
        ("at", json!(1)),
        ("head", foreign["head"].clone()),
        ("origin", foreign["origin"].clone()),
        ("public_key", foreign["public_key"].clone()),
        ("signature", foreign["signature"].clone()),
    ] {
        let mut forged = good.clone();
        forged[field] = value;
        forgeries.push(forged);
    }
    for forged in forgeries {
        fs::write(&kept, forged.to_string()).unwrap();
        against(&host, &kept).fails(8, "journal_broken");
    }
    for nonsense in ["", "{}", "hello", "[1,2]"] {
        fs::write(&kept, nonsense).unwrap();
        let found = against(&host, &kept);
        assert_ne!(found.code, 0, "`{nonsense}` was taken for a checkpoint: {found:?}");
    }
    let missing = host.path("missing.json");
    against(&host, &missing).fails(1, "io");
}

#[test]
fn events_cannot_be_changed_or_deleted_through_sql() {
    let host = busy();
    for statement in [
        "UPDATE events SET body = '{}' WHERE seq = 2",
        "UPDATE events SET seq = 99 WHERE seq = 2",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT 2, at, kind, call_id, '{}', prev, hash FROM events WHERE seq = 2",
        "REPLACE INTO events SELECT seq, at, kind, call_id, '{}', prev, hash FROM events WHERE seq = 2",
    ] {
        let refused = host.sql(&["PRAGMA recursive_triggers = ON", statement]);
        assert!(refused.code != 0 && refused.stderr.contains("append-only"), "{statement}: {refused:?}");
    }
    assert_eq!(verify(&host).good()["events"], 21);
}

#[test]
fn an_export_is_verified_without_a_daemon() {
    let mut host = busy();
    let kept = checkpoint(&host, "kept.json");
    let file = host.path("export.jsonl");
    host.palyra(&["journal", "export", "--to", file.to_str().unwrap()]).exits(0).done();
    host.kill();
    let exported = fs::read_to_string(&file).unwrap();
    let args = ["journal", "verify", "--export", file.to_str().unwrap()];
    let with = [&args[..], &["--against", kept.to_str().unwrap()]].concat();
    assert_eq!(host.palyra(&args).good()["events"], 21);
    assert_eq!(host.palyra(&with).good()["compared_with_checkpoint"], true);
    let lines: Vec<_> = exported.lines().collect();
    let changed = |n: usize, line: String| {
        let mut lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        lines[n] = line;
        lines.join("\n") + "\n"
    };
    for (content, seq) in [
        (changed(12, lines[12].replace("hello 2", "hello 3")), 13),
        (changed(12, lines[12].replace("\"seq\":13", "\"seq\":14")), 13),
        (changed(12, "nonsense".to_owned()), 13),
        (changed(12, String::new()), 13),
        (lines[1..].join("\n"), 1),
        ([&lines[..5], &lines[6..]].concat().join("\n"), 6),
    ] {
        fs::write(&file, content).unwrap();
        let found = host.palyra(&args);
        assert_eq!(found.json()["fault_seq"], seq, "{found:?}");
        found.fails(8, "journal_broken");
    }
    fs::write(&file, lines[..17].join("\n")).unwrap();
    assert_eq!(host.palyra(&args).good()["events"], 17);
    host.palyra(&with).fails(8, "journal_broken");
    fs::write(&file, "").unwrap();
    host.palyra(&with).fails(8, "journal_broken");
    host.palyra(&args).fails(8, "journal_broken");
    fs::write(&file, exported).unwrap();
    let signed: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    let keyed = |key: &str| host.palyra(&[&with[..], &["--key", key]].concat());
    keyed(text(&signed, "/public_key")).exits(0).done();
    let another = palyra_protocol::DaemonKey::generate().unwrap().public().to_string();
    keyed(&another).fails(8, "journal_broken");
}

#[test]
fn a_file_that_is_no_journal_is_refused() {
    let mut host = busy();
    host.kill();
    for leftover in ["journal.db-wal", "journal.db-shm"] {
        drop(fs::remove_file(host.state().join(leftover)));
    }
    fs::write(host.state().join("journal.db"), "this is not a database, however long it may be".repeat(100)).unwrap();
    let refused = host.refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("error:") && refused.log.contains("backup"), "{}", refused.log);
    let verified = offline(&host, &[]).exits(8);
    assert!(verified.stdout.starts_with("broken: "), "{verified:?}");
    assert!(!verified.stdout.contains("palyrad verify"), "it does not send people in a circle: {verified:?}");
}

#[test]
fn verification_goes_on_while_calls_do() {
    let host = busy();
    let tail = host.palyra_started(&["journal", "tail", "--follow", "-n", "1"]);
    assert_eq!(tail.json()["seq"], 21);
    let call = host.palyra_started(&["call", "palyra.sleep", "--input", r#"{"duration_ms":300}"#]);
    let kinds: Vec<_> = (0..3).map(|_| text(&tail.json(), "/kind").to_owned()).collect();
    assert_eq!(kinds, ["tool.proposed", "tool.decided", "tool.started"]);
    assert_eq!(verify(&host).good()["intact"], true);
    call.end().exits(0).done();
}
