//! The full screen, through a real pseudo-terminal: what it shows, what it refuses, and that the terminal comes back.

use palyra_e2e::{Host, Model, Say, Terminal, text};
use serde_json::{Value, json};

fn run(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

fn state(host: &Host, approval: &str) -> String {
    text(&host.palyra(&["approvals", "show", approval]).good(), "/state").to_owned()
}

#[test]
fn an_approval_is_opened_read_and_answered_and_never_from_the_list() {
    let host = Host::up();
    let (_, approval) = host.ask("palyra.process.run", &run("yes"), &["--session", "work"]);
    let mut screen = Terminal::start(&host, &["tui"], (100, 60));
    screen.shows("tee -a log");
    for key in ["y", "s", "n"] {
        screen.types(key);
        screen.shows("open it first");
    }
    screen.types("\r");
    screen.shows("y once  s session  p prefix");
    screen.types("\r");
    screen.shows("Enter answers nothing");
    screen.types("h");
    screen.shows("there is no answer by host here");
    screen.types("y");
    screen.shows("u takes it back");
    assert_eq!(state(&host, &approval), "pending");
    screen.types("u");
    screen.shows("taken back; nothing was answered");
    screen.types("y");
    screen.shows("u takes it back");
    screen.shows("nothing waits for you");
    assert_eq!(state(&host, &approval), "allowed");
    screen.types("q");
    assert_eq!(screen.ends(), 0);
}

#[test]
fn what_is_longer_than_the_screen_is_read_to_its_end_first() {
    let host = Host::up();
    let content: String = (0..80).map(|n| format!("line {n} \u{1b}[2J\n")).collect();
    let (_, approval) = host.ask("palyra.fs.write", &json!({ "path": "a.txt", "content": content }), &[]);
    let mut screen = Terminal::start(&host, &["tui"], (40, 20));
    screen.shows("palyra.fs.write");
    screen.types("\r");
    screen.shows("more lines");
    screen.types("y");
    screen.shows("read it to its end");
    screen.types("G");
    screen.shows("y once");
    // Another size: it begins anew.
    screen.resize(60, 20);
    screen.shows("more lines");
    screen.types("G");
    screen.shows("y once");
    screen.types("n");
    screen.shows("no, because");
    screen.types("too long");
    screen.types("\r");
    screen.shows("nothing waits");
    assert_eq!(state(&host, &approval), "denied");
}

#[test]
fn what_comes_never_moves_the_selection_and_what_ends_elsewhere_leaves() {
    let host = Host::up();
    drop(host.ask("palyra.process.run", &run("first"), &[]));
    let (_, second) = host.ask("palyra.fs.write", &json!({ "path": "second.txt", "content": "x" }), &[]);
    let mut screen = Terminal::start(&host, &["tui"], (100, 60));
    screen.shows("(2 waiting)");
    screen.types("j");
    screen.types("\r");
    screen.shows("second.txt");
    screen.shows("y once");
    drop(host.ask("palyra.process.run", &run("third"), &[]));
    screen.shows("(3 waiting)");
    screen.shows("second.txt");
    screen.types("y");
    screen.shows("u takes it back");
    host.decide(&second, "deny", &["--reason", "elsewhere"]).exits(0).done();
    screen.shows("(elsewhere)");
    screen.shows("(2 waiting)");
    assert_eq!(state(&host, &second), "denied", "the armed yes was not sent");
    screen.types("/");
    screen.types("nothing like it");
    screen.shows("nothing waits for you");
    screen.types("\u{1b}");
}

#[test]
fn calls_with_their_output_and_grants_that_can_be_withdrawn() {
    let host = Host::up();
    let (_, approval) =
        host.ask("palyra.process.run", &json!({ "argv": ["echo", "hello from it"] }), &["--session", "work"]);
    host.decide(&approval, "allow", &["--scope", "session"]).exits(0).done();
    let mut screen = Terminal::start(&host, &["tui"], (120, 30));
    screen.shows("nothing waits");
    screen.types("2");
    screen.shows("succeeded");
    screen.types("\r");
    screen.shows("hello from it");
    screen.shows("now succeeded");
    screen.types("q");
    screen.types("3");
    screen.shows("exactly this call");
    screen.types("x");
    screen.shows("is withdrawn");
    screen.shows("ended");
    screen.types(":");
    screen.types("quit");
    screen.types("\r");
    assert_eq!(screen.ends(), 0);
}

#[test]
fn the_terminal_comes_back_whatever_ends_it() {
    let host = Host::up();
    for end in ["q", "\u{3}"] {
        let mut screen = Terminal::start(&host, &["tui"], (80, 24));
        screen.shows("nothing waits");
        assert!(screen.is_full_screen());
        screen.types(end);
        screen.left_full_screen();
        assert_eq!(screen.ends(), 0);
    }
    host.palyra(&["tui"]).fails(2, "usage");
}

#[test]
fn runs_are_listed_and_read_with_their_calls() {
    let model = Model::saying(vec![Say::call("palyra_echo", &json!({ "text": "hello" })), Say::text("I said hello.")]);
    let host = Host::with(&model.config("chat_completions", ""));
    host.palyra(&["run", "say hello"]).exits(0).done();
    let mut screen = Terminal::start(&host, &["tui"], (120, 40));
    screen.shows("nothing waits");
    screen.types("4");
    screen.shows("say hello");
    screen.types("\r");
    for part in ["user: say hello", "palyra_echo", "succeeded", "model: I said hello."] {
        screen.shows(part);
    }
    screen.types("q");
    screen.shows("Enter open");
    screen.types("q");
    screen.shows("nothing waits");
    screen.types("q");
    assert_eq!(screen.ends(), 0);
}
