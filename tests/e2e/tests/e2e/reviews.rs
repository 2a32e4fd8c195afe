//! What a person is shown before they answer: the same facts through every door.

use palyra_e2e::{Host, text};
use serde_json::{Value, json};

fn review(host: &Host, approval: &str) -> Value {
    host.palyra(&["approvals", "show", approval]).good()["review"].clone()
}

#[test]
fn a_write_is_shown_as_a_difference_with_what_a_grant_would_have_answered() {
    let host = Host::up();
    std::fs::create_dir(host.work("src")).unwrap();
    host.put("src/a.txt", "one\ntwo\n");
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    for (n, answer) in ["allow", "deny"].into_iter().enumerate() {
        let (_, earlier) = host.ask("palyra.fs.write", &write(&format!("src/{n}.txt"), "x"), &[]);
        host.decide(&earlier, answer, &[]).exits(0).done();
    }
    let (_, approval) = host.ask("palyra.fs.write", &write("src/a.txt", "one\n2\u{1b}[2J\n"), &[]);
    let shown = review(&host, &approval);
    let diff = text(&shown, "/changes/0/diff");
    assert!(diff.contains("-two\n+2\u{1b}[2J\n"), "{diff}");
    assert_eq!(shown["changes"][0]["shows"], "content");
    assert_eq!(shown["offers"][1]["matcher"], json!({ "path_prefix": { "directory": "src" } }));
    assert_eq!(shown["offers"][1]["replay"]["answered"], 2);
    assert_eq!(shown["offers"][1]["replay"]["denied"], 1);
    assert_eq!(shown["offers"][0]["replay"]["answered"], 0);
    assert_eq!(shown["containment"], Value::Null, "the daemon writes it; no process does");
    let rule = text(&shown, "/rules/0/text");
    assert!(rule.contains("permit") || rule.contains("forbid"), "{shown}");
    // What people read: coloured lines, nothing that a terminal obeys, the content not twice.
    let plain = host.palyra_text(&["approvals", "show", &approval]).exits(0).stdout;
    assert!(plain.contains("+2\\u{1b}[2J") && plain.contains("-two"), "{plain}");
    assert!(plain.contains("would have answered 2 of the last 2; one of them you denied"), "{plain}");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    assert_eq!(plain.matches("[2J").count(), 1, "{plain}");
}

#[test]
fn a_patch_and_a_shell_line_are_shown_by_their_parts() {
    let host = Host::with("[process_runner]\nallow_interpreters = [\"bash\"]\n");
    let patch = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hello\n";
    let (_, approval) = host.ask("palyra.fs.apply_patch", &json!({ "patch": patch }), &[]);
    let plain = host.palyra_text(&["approvals", "show", &approval]).exits(0).stdout;
    assert!(plain.contains("\n    +hello\n") && plain.contains("(the change above)"), "{plain}");
    let (_, approval) = host.ask("palyra.process.run", &json!({ "argv": ["bash", "-c", "ls && git status"] }), &[]);
    let shown = review(&host, &approval);
    assert_eq!(shown["command"]["parts"][1], json!({ "joined_by": "&&", "text": "git status" }));
    let matchers: Vec<_> = shown["offers"].as_array().unwrap().iter().map(|offer| offer["matcher"].clone()).collect();
    assert_eq!(matchers, [json!("exact_call")], "for a shell's code nothing wider is offered");
    let prefix = ["--scope", "session", "--match", "argv-prefix", "--words", "2"];
    let refused = host.decide(&approval, "allow", &prefix).fails(10, "approval_scope");
    assert!(text(&refused, "/message").contains("any code"), "{refused}");
}

#[test]
fn what_a_file_holds_is_shown_to_those_alone_who_can_answer() {
    let host = Host::up();
    host.put("secret.txt", "the old content\n");
    let input = json!({ "path": "secret.txt", "content": "new\n" });
    let (_, approval) = host.ask("palyra.fs.write", &input, &["--as", "agent:demo"]);
    assert!(text(&review(&host, &approval), "/changes/0/diff").contains("-the old content"));
    let seen = host.palyra(&["approvals", "show", &approval, "--as", "agent:demo"]);
    assert!(!seen.stdout.contains("the old content"), "{}", seen.stdout);
}
