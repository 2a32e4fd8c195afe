//! Answering where you are: every key and every refusal, through a real pseudo-terminal.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Terminal, text};
use serde_json::{Value, json};

/// What stands in the prompt once keys count.
const READY: &str = "y once";

fn run(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

fn state(host: &Host, approval: &str) -> String {
    text(&host.palyra(&["approvals", "show", approval]).good(), "/state").to_owned()
}

fn grants(host: &Host) -> Vec<Value> {
    host.palyra(&["grants", "list"]).good().as_array().unwrap().clone()
}

/// A watch that shows one approval and takes keys.
fn watching(host: &Host, tool: &str, input: &Value) -> (Terminal, String) {
    let (_, approval) = host.ask(tool, input, &["--session", "work"]);
    let mut terminal = Terminal::start(host, &["approvals", "watch"], (120, 60));
    terminal.sees(&approval);
    terminal.sees(READY);
    (terminal, approval)
}

#[test]
fn y_allows_once_after_two_seconds() {
    let host = Host::up();
    let (mut terminal, approval) = watching(&host, "palyra.process.run", &run("yes"));
    terminal.types("y");
    terminal.sees("u takes it back");
    assert_eq!(state(&host, &approval), "pending", "the daemon is not told before the time is over");
    terminal.sees("allowed by user:local");
    assert_eq!(state(&host, &approval), "allowed");
    assert!(grants(&host).is_empty());
    terminal.sees("nothing waits");
    terminal.types("q");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn u_takes_a_yes_back_and_that_is_recorded() {
    let host = Host::up();
    let (mut terminal, approval) = watching(&host, "palyra.process.run", &run("never"));
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.types("u");
    terminal.sees("taken back");
    assert_eq!(state(&host, &approval), "pending");
    let events = host.palyra(&["journal", "tail", "-n", "5"]).exits(0).json_lines();
    let last = events.last().unwrap();
    assert_eq!((text(last, "/kind"), text(last, "/body/decision")), ("approval.taken_back", "allow"));
    // A second yes, sent at once by the same key.
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("y sends it now");
    terminal.types("y");
    terminal.sees("allowed by user:local");
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn each_width_leaves_its_grant() {
    let host = Host::with("[egress]\nallowed_hosts = [\"127.0.0.1:9\"]\n");
    std::fs::create_dir(host.work("src")).unwrap();
    let write = json!({ "path": "src/a.txt", "content": "x" });
    for (key, tool, input, matcher) in [
        ("s", "palyra.process.run", run("s"), json!("exact_call")),
        (
            "p",
            "palyra.process.run",
            json!({ "argv": ["git", "status"] }),
            json!({ "argv_prefix": { "words": ["git", "status"] } }),
        ),
        (
            "h",
            "palyra.http.fetch",
            json!({ "url": "http://127.0.0.1:9/a" }),
            json!({ "host_method": { "host": "127.0.0.1:9", "method": "GET" } }),
        ),
        ("w", "palyra.fs.write", write, json!({ "path_prefix": { "directory": "src" } })),
    ] {
        let (mut terminal, approval) = watching(&host, tool, &input);
        terminal.types(key);
        terminal.sees("u takes it back");
        terminal.sees("allowed by user:local");
        assert_eq!(state(&host, &approval), "allowed");
        let left = grants(&host);
        assert_eq!(left.last().unwrap()["matcher"], matcher, "{key}");
        assert_eq!(left.last().unwrap()["session"], "work");
    }
    // Covered by the grant of the directory: nobody is asked.
    let other = json!({ "path": "src/b.txt", "content": "y" });
    host.call("palyra.fs.write", &other, &["--session", "work"]).exits(0).done();
    let id = text(grants(&host).last().unwrap(), "/grant_id").to_owned();
    let shown = host.palyra(&["grants", "show", &id]).good();
    assert_eq!((shown["grant"]["uses"].clone(), shown["calls"].as_array().unwrap().len()), (json!(1), 1));
    assert_eq!(shown["calls"][0]["what"], "src/b.txt");
}

#[test]
fn n_denies_with_a_reason_that_the_agent_reads_and_capital_n_stands() {
    let host = Host::up();
    let (mut terminal, approval) = watching(&host, "palyra.process.run", &run("no"));
    terminal.types("n");
    terminal.sees("no, because");
    terminal.types("not on a Friday");
    terminal.types("\r");
    terminal.sees("denied by user:local");
    assert_eq!(state(&host, &approval), "denied");
    assert!(grants(&host).is_empty());
    drop(terminal);
    let (mut terminal, _) = watching(&host, "palyra.process.run", &run("no"));
    terminal.types("N");
    terminal.sees("for this session");
    terminal.types("never");
    terminal.types("\r");
    terminal.sees("denied by user:local");
    let denied = host.call("palyra.process.run", &run("no"), &["--session", "work"]);
    let error = denied.fails(3, "standing_denial");
    assert!(text(&error, "/message").contains("never"), "{error}");
    let left = grants(&host);
    assert_eq!((left[0]["effect"].clone(), left[0]["uses"].clone()), (json!("deny"), json!(1)));
    // Another call, or another session, is asked about again.
    drop(host.ask("palyra.process.run", &run("other"), &["--session", "work"]));
    drop(host.ask("palyra.process.run", &run("no"), &["--session", "elsewhere"]));
    host.palyra(&["grants", "revoke", text(&left[0], "/grant_id")]).exits(0).done();
    drop(host.ask("palyra.process.run", &run("no"), &["--session", "work"]));
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn enter_answers_nothing_nor_do_several_keys_at_once() {
    let host = Host::up();
    let (mut terminal, approval) = watching(&host, "palyra.process.run", &run("x"));
    terminal.types("\r");
    terminal.sees("Enter answers nothing");
    terminal.types("yyyy");
    terminal.sees("several keys at once do not count");
    terminal.types("h");
    terminal.sees("there is no answer by host here");
    terminal.types("d");
    terminal.sees("input, whole:");
    assert_eq!(state(&host, &approval), "pending");
    terminal.types("\u{3}");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(state(&host, &approval), "pending");
}

#[test]
fn keys_typed_before_it_appeared_do_not_count() {
    let host = Host::up();
    let mut terminal = Terminal::start(&host, &["approvals", "watch"], (120, 60));
    terminal.sees("nothing waits");
    // Somebody types on and on while it appears.
    let (_, approval) = host.ask("palyra.process.run", &run("x"), &[]);
    terminal.types("y");
    terminal.sees(&approval);
    terminal.types("y");
    terminal.sees(READY);
    assert_eq!(state(&host, &approval), "pending");
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("allowed by user:local");
}

#[test]
fn what_was_not_wholly_shown_is_not_allowed() {
    let host = Host::up();
    let content: String = (0..200).map(|n| format!("line {n} \u{1b}[2J\u{202e}\n")).collect();
    let (_, approval) = host.ask("palyra.fs.write", &json!({ "path": "a.txt", "content": content }), &[]);
    let mut terminal = Terminal::start(&host, &["approvals", "watch"], (40, 20));
    terminal.sees("more lines");
    for key in ["y", "s", "w"] {
        terminal.types(key);
        terminal.sees("read it to its end first");
    }
    assert_eq!(state(&host, &approval), "pending");
    // A resize begins it anew; on a large screen it fits.
    terminal.types(" ");
    terminal.sees("+line ");
    terminal.resize(100, 400);
    terminal.sees("line 199 \\u{1b}[2J\\u{202e}");
    terminal.sees(READY);
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("allowed by user:local");
}

#[test]
fn a_new_one_never_moves_the_one_being_read_and_an_answer_elsewhere_ends_it() {
    let host = Host::up();
    let (mut terminal, first) = watching(&host, "palyra.process.run", &run("first"));
    let (_, second) = host.ask("palyra.process.run", &run("second"), &[]);
    terminal.sees("[1 more]");
    assert!(!terminal.text().contains(&second));
    host.decide(&first, "deny", &[]).exits(0).done();
    terminal.sees("was answered elsewhere");
    terminal.sees(&second);
    terminal.sees(READY);
    // A yes that is armed when the answer comes elsewhere is never sent.
    let elsewhere = host.elsewhere();
    terminal.types("y");
    terminal.sees("u takes it back");
    elsewhere.denies(&second, "");
    terminal.sees("was answered elsewhere");
    terminal.sees("nothing waits");
    assert_eq!(state(&host, &second), "denied");
}

#[test]
fn a_daemon_that_comes_back_asks_again_and_nothing_is_answered_unseen() {
    let mut host = Host::up();
    let (mut terminal, approval) = watching(&host, "palyra.process.run", &run("x"));
    terminal.types("y");
    terminal.sees("u takes it back");
    host.restart(Restart::Kill);
    terminal.sees("cannot be reached");
    terminal.sees("connected again");
    terminal.sees(&approval);
    terminal.sees(READY);
    assert_eq!(state(&host, &approval), "pending", "the armed yes went with the daemon");
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("allowed by user:local");
}

#[test]
fn those_that_are_alike_are_shown_all_and_answered_together() {
    let host = Host::up();
    let asked: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| host.ask("palyra.process.run", &json!({ "argv": ["git", "status", name] }), &[]).1)
        .collect();
    let mut terminal = Terminal::start(&host, &["approvals", "watch"], (120, 200));
    terminal.sees("g 2 alike");
    terminal.types("g");
    terminal.sees("approval 1 of 3");
    terminal.sees("approval 3 of 3");
    terminal.sees(READY);
    terminal.types("s");
    terminal.sees("once each");
    terminal.types("y");
    terminal.sees("u takes it back");
    for approval in &asked {
        terminal.sees(approval);
    }
    terminal.sees("nothing waits");
    assert!(asked.iter().all(|approval| state(&host, approval) == "allowed"));
}

#[test]
fn a_call_is_answered_where_it_was_made() {
    let host = Host::up();
    let mut terminal = Terminal::start(&host, &["exec", "--", "tee", "-a", "log"], (120, 60));
    terminal.sees("/usr/bin/tee");
    terminal.sees(READY);
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("succeeded");
    assert_eq!(terminal.ends(), 0);
    let mut terminal = Terminal::start(&host, &["exec", "--", "tee", "-a", "log"], (120, 60));
    terminal.sees(READY);
    terminal.types("\u{3}");
    terminal.sees("withdrawn");
    assert_eq!(terminal.ends(), 5);
}

#[test]
fn for_screen_readers_it_is_plain_lines() {
    let host = Host::up();
    drop(host.ask("palyra.process.run", &run("x"), &[]));
    let mut terminal = Terminal::start(&host, &["approvals", "watch", "--reader"], (80, 100));
    terminal.sees(READY);
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("allowed by user:local");
    let all = terminal.text();
    assert!(!all.contains("──"), "{all}");
}

#[test]
fn approvals_are_named_by_number_end_or_latest_and_counted() {
    let host = Host::up();
    let count = host.palyra_started(&["approvals", "count", "--watch"]);
    assert_eq!(count.json()["pending"], 0);
    let (_, first) = host.ask("palyra.process.run", &run("first"), &[]);
    let (_, second) = host.ask("palyra.process.run", &run("second"), &[]);
    assert_eq!((count.json()["pending"].clone(), count.json()["pending"].clone()), (json!(1), json!(2)));
    host.palyra(&["approvals", "list"]).exits(0).done();
    let shown = |which: &str| text(&host.palyra(&["approvals", "show", which]).good(), "/approval_id").to_owned();
    assert_eq!((shown("1"), shown("2"), shown("latest")), (first.clone(), second.clone(), second.clone()));
    assert_eq!(shown(&first[first.len() - 8..]), first);
    host.palyra(&["approvals", "show", "3"]).fails(10, "not_listed");
    host.palyra(&["approvals", "show", &first[..6]]).fails(10, "ambiguous_id");
    host.palyra(&["approvals", "show", "apr_nothing"]).fails(10, "not_found");
    // A number means what the list showed, whatever ended since.
    host.decide("1", "deny", &[]).exits(0).done();
    assert_eq!(shown("2"), second);
    host.decide("1", "allow", &[]).fails(10, "approval_already_resolved");
    let (_, third) = host.ask("palyra.process.run", &run("third"), &[]);
    host.decide("latest", "allow", &[]).fails(10, "not_listed");
    assert_eq!(state(&host, &third), "pending");
    drop(count);
}

#[test]
fn one_that_is_put_off_comes_back_and_a_person_who_looks_elsewhere_is_called() {
    let mut host = Host::up();
    let (bin, told) = (host.path("bin"), host.path("told"));
    std::fs::create_dir(&bin).unwrap();
    let notify = bin.join("notify-send");
    std::fs::write(&notify, format!("#!/bin/sh\nprintf '%s ' \"$@\" > {}\n", told.display())).unwrap();
    std::fs::set_permissions(&notify, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    host.set_machine_env("PATH", format!("{}:{path}", bin.display()));
    let mut terminal = Terminal::start(&host, &["approvals", "watch", "--bell", "--notify"], (120, 60));
    terminal.sees("nothing waits");
    let (_, approval) = host.ask("palyra.process.run", &run("hostile\u{1b}]0;x"), &[]);
    terminal.sees(&approval);
    terminal.sees(READY);
    assert!(terminal.rang(), "a bell");
    terminal.types("l");
    terminal.sees("1 put off");
    assert_eq!(state(&host, &approval), "pending");
    terminal.types("r");
    terminal.sees(&approval);
    terminal.sees(READY);
    // The desktop is told how many wait, and nothing that an agent wrote.
    assert_eq!(std::fs::read_to_string(&told).unwrap(), "--app-name=palyra Palyra 1 waiting for your answer ");
}

#[test]
fn a_plain_command_takes_one_key_on_a_small_terminal() {
    let host = Host::up();
    let status = json!({ "argv": ["git", "status"] });
    let (_, approval) = host.ask("palyra.process.run", &status, &["--as", "agent:demo", "--session", "work"]);
    let mut terminal = Terminal::start(&host, &["approvals", "watch"], (80, 24));
    terminal.sees(READY);
    assert!(!terminal.text().contains("more line"), "all of it is on the screen:\n{}", terminal.text());
    terminal.types("y");
    terminal.sees("u takes it back");
    terminal.sees("allowed by user:local");
    assert_eq!(state(&host, &approval), "allowed");
}
