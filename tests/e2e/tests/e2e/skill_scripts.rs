//! Imported Agent Skills folders: their instructions are read, their scripts run as sandboxed processes, and get what
//! they were granted.

use crate::skills::{install, listed};
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;

const SCRIPT: &str = r#"#!/usr/bin/env python3
import json, os, sys
def attempt(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
def write(path):
    with open(path, "w") as file:
        file.write("written")
    return "written"
workspace = os.getcwd()
print(json.dumps({
    "args": sys.argv[1:],
    "stdin": sys.stdin.read(),
    "helper": open(os.path.join(os.path.dirname(__file__), "words.txt")).read(),
    "workspace": sorted(os.listdir(workspace)),
    "data": attempt(lambda: open("data/in").read()),
    "private": attempt(lambda: open("private").read()),
    "out": attempt(lambda: write("out/new")),
    "over_data": attempt(lambda: write("data/in")),
    "beside": attempt(lambda: write("new")),
    "own": attempt(lambda: write(__file__)),
    "key": os.environ.get("API_KEY"),
}))
"#;

/// A host with an imported folder, whose scripts read `data` and write `out`.
fn imported(config: &str, read: &str) -> Host {
    let tools = r#"["palyra.echo", "skill.acme.words.count", "skill.acme.words.instructions"]"#;
    let host = Host::with(&format!(
        "[tool_call]\nallowed_tools = {tools}\n[wasm_runtime]\nallowed_read_roots = [\"data\", \"link\"]\n\
         allowed_write_roots = [\"out\"]\n{config}"
    ));
    fs::create_dir_all(host.path("words/scripts")).unwrap();
    for (name, content) in [
        ("SKILL.md", "---\nname: words\ndescription: Counts words.\n---\n# How\nRun `count`.\n"),
        ("scripts/count.py", SCRIPT),
        ("scripts/words.txt", "one two"),
    ] {
        fs::write(host.path("words").join(name), content).unwrap();
    }
    for directory in ["data", "out"] {
        fs::create_dir(host.work(directory)).unwrap();
    }
    host.put("data/in", "given");
    host.put("private", "not for scripts");
    let run = |args: &[&str]| {
        let mut command = host.command("palyra");
        command.args(["--output", "json", "skills"]).args(args).current_dir(host.path(""));
        palyra_e2e::cli::run(command, &[]).good()
    };
    drop(run(&["package", "keygen", "--out", "acme.key"]));
    let made = run(&[
        "import",
        "words",
        "--publisher",
        "acme",
        "--key",
        "acme.key",
        "--read",
        read,
        "--write",
        "out",
        "--out",
        "words.palyra-skill",
    ]);
    assert_eq!(text(&made, "/skill_id"), "acme.words");
    let installed = install(&host, &host.path("words.palyra-skill"), &["--allow-tofu"]).good();
    assert_eq!(text(&installed, "/runtime_status"), "eligible", "{installed}");
    host
}

fn count(host: &Host, input: &Value) -> (String, Value) {
    let (call, approval) = host.ask("skill.acme.words.count", input, &[]);
    let asked = host.palyra(&["approvals", "show", &approval]).good();
    assert!(asked.to_string().contains("acme.words"), "{asked}");
    host.decide(&approval, "allow", &[]).exits(0).done();
    (call.clone(), host.palyra(&["calls", "follow", &call]).json())
}

const PYTHON: &str = "[process_runner]\nallow_interpreters = [\"python3\"]\n";

#[test]
fn a_script_sees_its_package_and_what_it_was_granted_and_nothing_else() {
    let host = imported(PYTHON, "data");
    let (call, outcome) = count(&host, &json!({ "args": ["a", "b c"], "stdin": "fed" }));
    assert_eq!(outcome["output"]["exit_code"], 0, "{outcome}");
    let told: Value = serde_json::from_str(text(&outcome, "/output/stdout")).unwrap();
    assert_eq!(
        (&told["args"], &told["stdin"], &told["helper"]),
        (&json!(["a", "b c"]), &json!("fed"), &json!("one two"))
    );
    assert_eq!(told["workspace"], json!(["data", "out"]), "{told}");
    assert_eq!((&told["data"], &told["private"]), (&json!("given"), &json!("FileNotFoundError")));
    assert_eq!(told["out"], "written");
    for refused in ["over_data", "beside", "own"] {
        assert_ne!(told[refused], "written", "{refused}: {told}");
    }
    assert_eq!(told["key"], Value::Null);
    // What it wrote is an effect like any other, and so is what took it back.
    assert_eq!(host.content("out/new"), "written");
    assert_eq!(host.content("data/in"), "given");
    let attested = &outcome["attestation"];
    assert_eq!((text(attested, "/executor"), text(attested, "/effect/state")), ("process", "applied"), "{attested}");
    let held = &attested["sandbox_enforcement"];
    assert_eq!((text(held, "/tier"), text(held, "/skill/id")), ("c", "acme.words"), "{held}");
    let info = host.palyra(&["skills", "info", "acme.words"]).good();
    assert_eq!(held["module_sha256"], info["installed"]["content_sha256"]);
    let parts = held["layers"].as_array().unwrap().iter().find(|layer| layer["name"] == "workspace_parts");
    assert_eq!(parts.unwrap()["applied"], true, "{held}");
    host.palyra(&["undo", &call]).exits(0).done();
    assert!(!host.work("out/new").exists());
    assert_eq!(host.palyra(&["skills", "replay", &call]).error()["code"], "replay_no_record");
}

#[test]
fn instructions_are_read_as_they_were_signed() {
    let host = imported(PYTHON, "data");
    let read = host.call("skill.acme.words.instructions", &json!({}), &[]).good();
    assert!(text(&read, "/output/text").contains("Run `count`."), "{read}");
    assert_eq!(read["output"]["files"], json!(["SKILL.md", "scripts/count.py", "scripts/words.txt"]));
    let words = host.call("skill.acme.words.instructions", &json!({ "path": "scripts/words.txt" }), &[]).good();
    assert_eq!(text(&words, "/output/text"), "one two");
    for path in ["skill.toml", "../../../skill_trust.json", "/etc/passwd"] {
        let refused = host.call("skill.acme.words.instructions", &json!({ "path": path }), &[]);
        assert!(refused.code != 0 && refused.stdout.contains("skill_file_missing"), "{path}: {refused:?}");
    }
}

#[test]
fn a_script_that_was_changed_on_the_disk_is_quarantined_and_does_not_run() {
    let host = imported(PYTHON, "data");
    fs::write(host.state().join("skills-managed/acme.words/1.0.0/scripts/words.txt"), "three").unwrap();
    let (_, outcome) = count(&host, &json!({}));
    assert_eq!(text(&outcome, "/problem/code"), "skill_drifted", "{outcome}");
    assert_eq!(text(&listed(&host), "/runtime_status"), "quarantined");
    assert!(!host.work("out/new").exists());
}

#[test]
fn an_interpreter_that_no_operator_allows_runs_no_script() {
    let host = imported("", "data");
    let refused = host.call("skill.acme.words.count", &json!({}), &[]);
    assert!(refused.code != 0 && refused.stdout.contains("interpreter"), "{refused:?}");
}

#[test]
fn a_link_in_the_place_of_a_granted_directory_is_not_followed() {
    let host = imported(PYTHON, "link");
    std::os::unix::fs::symlink("/etc", host.work("link")).unwrap();
    let (_, outcome) = count(&host, &json!({}));
    assert_eq!(outcome["output"], Value::Null, "{outcome}");
    assert!(outcome["problem"].to_string().contains("workspace_parts"), "{outcome}");
}
