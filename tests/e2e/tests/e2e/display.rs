//! What a stranger wrote never moves the cursor, recolours or reorders what a person reads before saying yes.

use palyra_e2e::Host;
use palyra_e2e::cli::run;
use palyra_protocol::display::deceives;
use serde_json::json;

/// Erase the line, carriage return, an eight-bit escape, right-to-left override, an invisible space, a title change.
const HOSTILE: &str = "a\u{1b}[2K\rls\u{9b}1A\u{202e}dwp\u{200b}\u{1b}]0;owned\u{7}\nrm\u{61c}\u{ad}\u{3164}\u{2800}\u{fe0f}\u{e0101}\u{7f}";

/// A command's whole output with colours forced on, as on a terminal.
fn on_a_terminal(host: &Host, args: &[&str]) -> String {
    let mut command = host.command("palyra");
    command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR").args(args);
    let ran = run(command, &[]);
    ran.stdout + &ran.stderr
}

/// Asserts that nothing but our own colours, line ends and tabs is in there.
fn harmless(shown: &str, what: &[&str]) {
    let mut rest = shown;
    while let Some(at) = rest.find('\u{1b}') {
        let code = &rest[at + 1..];
        let length = code.find('m').unwrap_or_else(|| panic!("{what:?}: an escape that is no colour: {shown:?}"));
        let inner = code[..length].strip_prefix('[').unwrap_or("x");
        assert!(inner.bytes().all(|b| b.is_ascii_digit() || b == b';'), "{what:?}: {inner:?} in {shown:?}");
        rest = &code[length..];
    }
    let ours = ['\u{1b}', '\n', '\t'];
    let hidden: Vec<_> = shown.chars().filter(|c| deceives(*c) && !ours.contains(c)).collect();
    assert!(hidden.is_empty(), "{what:?}: {hidden:?} in {shown:?}");
}

#[test]
fn an_approval_card_shows_deceiving_characters_instead_of_obeying_them() {
    let host = Host::up();
    let input = json!({ "argv": ["echo", HOSTILE], "env": { "X": HOSTILE }, "stdin": HOSTILE });
    let (call, approval) = host.ask("palyra.process.run", &input, &[]);
    let write = json!({ "path": format!("f{HOSTILE}").replace('\n', ""), "content": HOSTILE });
    let written = host.call("palyra.fs.write", &write, &["--detach"]);
    assert!([0, 6].contains(&written.code), "{written:?}");
    let card = on_a_terminal(&host, &["approvals", "show", &approval]);
    assert!(card.contains("\\u{1b}[2K") && card.contains("\\u{202e}"), "they are visible: {card}");
    for args in [
        &["approvals", "show", &approval][..],
        &["approvals", "list"],
        &["calls", "show", &call],
        &["journal", "tail", "-n", "100"],
        &["journal", "show", &call],
        &["policy", "explain", "palyra.process.run", "--input", &input.to_string()],
        &[
            "approvals",
            "decide",
            &approval,
            "allow",
            "--scope",
            "session",
            "--match",
            "argv-prefix",
            "--words",
            "2",
            "--reason",
            HOSTILE,
        ],
        &["calls", "follow", &call],
        &["approvals", "list", "--all"],
        &["approvals", "show", &approval],
        &["grants", "list"],
        &["call", HOSTILE],
        &["tools", "show", HOSTILE],
        &["call", "palyra.echo", "--input", &json!({ "text": HOSTILE }).to_string()],
        &["call", "palyra.fs.read", "--input", &json!({ "path": HOSTILE }).to_string()],
        &["call", "palyra.echo", "--input", &json!({ HOSTILE: 1 }).to_string()],
        &["call", "palyra.echo", "--input", HOSTILE],
        &["call", "palyra.echo", "--input", &format!("@{HOSTILE}")],
        &["journal", "show", HOSTILE],
        &["journal", "tail", "-n", "100"],
    ] {
        let shown = on_a_terminal(&host, args);
        assert!(!shown.is_empty(), "{args:?}");
        harmless(&shown, args);
    }
}

#[test]
fn a_watcher_is_not_deceived_either() {
    let host = Host::up();
    let mut command = host.command("palyra");
    command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR").args(["approvals", "watch"]);
    let watch = palyra_e2e::Running::start(command);
    drop(host.ask("palyra.process.run", &json!({ "argv": ["echo", HOSTILE] }), &[]));
    let mut card = String::new();
    while !card.contains("argv") {
        card.push_str(&watch.line());
        card.push('\n');
    }
    harmless(&card, &["watch"]);
    assert!(card.contains("\\u{1b}[2K"), "{card}");
}

#[test]
fn json_escapes_what_a_terminal_would_obey() {
    let host = Host::up();
    let echoed = host.call("palyra.echo", &json!({ "text": HOSTILE }), &[]).exits(0);
    assert!(!echoed.stdout.chars().any(|c| deceives(c) && c != '\n'), "{echoed:?}");
    assert_eq!(echoed.json()["output"]["text"], HOSTILE, "and loses nothing");
    let kept = host.path("result.json");
    std::fs::write(&kept, &echoed.stdout).unwrap();
    host.palyra(&["attest", "verify", kept.to_str().unwrap()]).exits(0).done();
    let refused = host.palyra(&["tools", "show", HOSTILE]).exits(6);
    assert!(!refused.stderr.chars().any(|c| deceives(c) && c != '\n'), "{refused:?}");
}
