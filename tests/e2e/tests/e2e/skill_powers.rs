//! What grants give the code of a skill through the daemon: secrets, credentials, a storage of its own.

use crate::skills::{ALLOWED, Skill, TOOL, install, with_object_input};
use crate::vault_use::World;
use palyra_e2e::{Host, text};
use palyra_skills::PublisherKey;
use palyra_skills::archive::Entry;
use palyra_skills::package::{self, PackageSource};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const SECRET: &str = "hunter2-is-long-enough-to-be-found";

/// A guest that reads `global/token` and tells it: `{"got":"…"}`.
fn teller() -> String {
    let text = fs::read_to_string(root().join("crates/palyra-plugins/tests/guests/secret.wat")).unwrap();
    let answer = "(call $answer (i32.load (i32.const 444)) (i32.load (i32.const 448)))";
    assert!(text.contains(answer));
    text.replace(
        "(data (i32.const 400) \"web\")",
        "(data (i32.const 420) \"global\") (data (i32.const 600) \"{\\22got\\22:\\22\")",
    )
    .replace("(call $read (i32.const 400) (i32.const 3)", "(call $read (i32.const 420) (i32.const 6)")
    .replace(
        answer,
        "(memory.copy (i32.const 608) (i32.load (i32.const 444)) (i32.load (i32.const 448)))\n\
             (i32.store16 (i32.add (i32.const 608) (i32.load (i32.const 448))) (i32.const 0x7d22))\n\
             (call $answer (i32.const 600) (i32.add (i32.load (i32.const 448)) (i32.const 10)))",
    )
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn answered(host: &Host, input: &Value) -> (String, Value) {
    let (call, approval) = host.ask(TOOL, input, &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    (call.clone(), host.palyra(&["calls", "follow", &call]).json())
}

#[test]
fn a_granted_secret_reaches_the_code_and_no_record() {
    let host = Host::with(&format!("{ALLOWED}[wasm_runtime]\nallowed_secrets = [\"global/token\"]\n"));
    host.palyra_fed(&["vault", "put", "global/token"], SECRET.as_bytes()).exits(0).done();
    let asks = "[[capabilities.secrets]]\nscope = \"global\"\nkey = \"token\"\n";
    let skill = Skill { capabilities: asks, ..Skill::new("1.0.0", teller()) };
    let file = skill.packed(&host, &PublisherKey::generate().unwrap());
    install(&host, &file, &["--allow-tofu"]).exits(0).done();
    let (call, outcome) = answered(&host, &json!({}));
    let got = text(&outcome, "/output/got");
    assert!(!got.is_empty() && !got.contains("hunter2"), "it is redacted in what the call gives back: {outcome}");
    assert_eq!(host.palyra(&["skills", "replay", &call]).error()["code"], "replay_no_record");
    let uses = host.palyra(&["vault", "blame", "global/token"]).good();
    assert!(uses.as_array().unwrap().iter().any(|entry| entry["call_id"] == json!(call)), "{uses}");
    assert!(crate::vault::no_trace(&host.state(), SECRET) > 3);
    let journal = host.palyra(&["journal", "export"]).exits(0).stdout;
    assert!(!journal.contains("hunter2"));
}

#[test]
fn a_secret_that_the_operator_does_not_allow_stays_in_the_vault() {
    let host = Host::with(ALLOWED);
    host.palyra_fed(&["vault", "put", "global/token"], SECRET.as_bytes()).exits(0).done();
    let asks = "[[capabilities.secrets]]\nscope = \"global\"\nkey = \"token\"\n";
    let skill = Skill { capabilities: asks, ..Skill::new("1.0.0", teller()) };
    let file = skill.packed(&host, &PublisherKey::generate().unwrap());
    let installed = install(&host, &file, &["--allow-tofu"]).good();
    assert_eq!(installed["grant"]["withheld"][0]["asked"], "global/token", "{installed}");
    let refused = host.call(TOOL, &json!({}), &[]);
    assert!(refused.code != 0 && refused.stdout.contains("plugin_import_not_granted"), "{refused:?}");
}

#[test]
fn credentials_are_attached_to_a_skills_requests_and_its_code_never_holds_them() {
    let world = World::with(
        "[tool_call]\nallowed_tools = [\"palyra.echo\", \"skill.acme.echo.run\"]\n\
         [wasm_runtime]\nallowed_hosts = [\"127.0.0.1:PORT\"]\nallowed_secrets = [\"global/github\"]\n",
    );
    let host = &world.host;
    world.bind(&["--header", "Authorization: Bearer {}"]);
    fs::write(host.path("servers/www/answer.json"), "{\"ok\":true}").unwrap();
    let url = world.url("/answer.json");
    let port = url.rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let asks = format!(
        "[capabilities.http]\negress = [\"127.0.0.1:{port}\"]\n[[capabilities.secrets]]\nscope = \"global\"\nkey = \"github\"\n"
    );
    let fetch = with_object_input("crates/palyra-plugins/tests/guests/fetch.wat");
    let skill = Skill { capabilities: &asks, ..Skill::new("1.0.0", fetch) };
    let file = skill.packed(host, &PublisherKey::generate().unwrap());
    install(host, &file, &["--allow-tofu"]).exits(0).done();
    let (call, outcome) = answered(host, &json!({ "p": url }));
    assert_eq!(outcome["output"], json!({ "ok": true }), "only who shows the token gets this: {outcome}");
    let uses = host.palyra(&["vault", "blame", "global/github"]).good();
    let attached = |entry: &Value| entry["what"] == "attached" && entry["call_id"] == json!(call);
    assert!(uses.as_array().unwrap().iter().any(attached), "{uses}");
    world.nothing_left(&[&outcome, &uses]);
}

/// An example, signed by a key of the test.
fn example(host: &Host, name: &str, key: &PublisherKey) -> PathBuf {
    let built = palyra_e2e::host::binary("palyra").ancestors().nth(2).unwrap().join(format!("skills/{name}.wasm"));
    let files = vec![Entry::new(&format!("modules/{name}.wasm"), fs::read(built).unwrap())];
    let manifest = fs::read(root().join(format!("examples/skills/{name}/skill.toml"))).unwrap();
    let source = PackageSource { manifest, files, ..PackageSource::default() };
    let file = host.path(&format!("{name}.palyra-skill"));
    fs::write(&file, package::build(&source, key).unwrap().bytes).unwrap();
    file
}

#[test]
fn the_example_of_every_language_is_installed_and_called() {
    let calls = [
        ("minimal", "minimal.run", json!({ "a": [1] }), json!({ "a": [1] })),
        ("word-count", "word_count.count", json!({ "text": "one two" }), json!({ "words": 2, "lines": 1, "bytes": 7 })),
        ("echo-http", "", Value::Null, Value::Null),
        (
            "csv-query",
            "csv_query.sum",
            json!({ "path": "data/sales.csv", "column": "count", "by": "city" }),
            json!({ "sums": { "Berlin": 16.0, "Paris": 7.0 } }),
        ),
        (
            "page-title",
            "page_title.outline",
            json!({ "text": "# One\ntext\n" }),
            json!({ "headings": [{ "level": 1, "title": "One" }] }),
        ),
    ];
    let named: Vec<String> = calls.iter().map(|(_, tool, ..)| format!("\"skill.examples.{tool}\"")).collect();
    let named: Vec<String> = named.into_iter().filter(|name| !name.ends_with(".\"")).collect();
    let host = Host::with(&format!(
        "[tool_call]\nallowed_tools = [{}]\n[wasm_runtime]\nallowed_read_roots = [\"data\"]\n\
         allowed_hosts = [\"pages.example\", \"httpbin.example\"]\n",
        named.join(", ")
    ));
    fs::create_dir(host.work("data")).unwrap();
    host.put("data/sales.csv", "city,year,count\nBerlin,2023,5\nParis,2023,7\nBerlin,2024,11\n");
    let key = PublisherKey::generate().unwrap();
    for (name, tool, input, expected) in calls {
        // Compiling a large language takes as long as it takes.
        let mut install = host.command("palyra");
        install.args(["--output", "json", "skills", "install", "--allow-tofu"]).arg(example(&host, name, &key));
        let done = install.output().unwrap();
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        if tool.is_empty() {
            continue;
        }
        let tool = format!("skill.examples.{tool}");
        let outcome = if name == "page-title" {
            let (call, approval) = host.ask(&tool, &input, &[]);
            host.decide(&approval, "allow", &[]).exits(0).done();
            host.palyra(&["calls", "follow", &call]).good()
        } else {
            host.call(&tool, &input, &[]).good()
        };
        assert_eq!(outcome["output"], expected, "{name}: {outcome}");
        let replayed = host.palyra(&["skills", "replay", text(&outcome, "/call_id")]).good();
        assert_eq!(replayed["output_sha256"], outcome["attestation"]["output_sha256"], "{name}");
    }
}

#[test]
fn a_skill_keeps_what_it_stores_within_its_quota_until_it_is_removed() {
    let tools = r#"["skill.examples.notes.add", "skill.examples.notes.list", "skill.examples.notes.show"]"#;
    let mut host =
        Host::with(&format!("[tool_call]\nallowed_tools = {tools}\n[wasm_runtime]\nmax_storage_bytes = 4096\n"));
    install(&host, &example(&host, "notes", &PublisherKey::generate().unwrap()), &["--allow-tofu"]).exits(0).done();
    let add = |host: &Host, title: &str, text: &str| {
        host.call("skill.examples.notes.add", &json!({ "title": title, "text": text }), &[])
    };
    assert_eq!(add(&host, "one", "first").good()["output"]["titles"], json!(["one"]));
    host.restart(palyra_e2e::host::Restart::Kill);
    assert_eq!(add(&host, "two", "second").good()["output"]["titles"], json!(["one", "two"]));
    let shown = host.call("skill.examples.notes.show", &json!({ "title": "one" }), &[]).good();
    assert_eq!(shown["output"], json!({ "text": "first" }));
    host.palyra(&["skills", "replay", text(&shown, "/call_id")]).exits(0).done();
    let full = add(&host, "long", &"x".repeat(5000));
    assert!(full.code != 0 && full.stdout.contains("4096"), "{full:?}");
    assert!(host.state().join("skill-storage/examples.notes").is_dir());
    host.palyra(&["skills", "remove", "examples.notes"]).exits(0).done();
    assert!(!host.state().join("skill-storage/examples.notes").exists());
}
