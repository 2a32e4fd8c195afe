//! Skills: signed packages that are installed, called like any tool, lose trust, and come back.

use palyra_e2e::{Host, Ran, text};
use palyra_skills::PublisherKey;
use palyra_skills::archive::Entry;
use palyra_skills::package::{self, PackageSource};
use palyra_testkit::{ok, serve};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const TOOL: &str = "skill.acme.echo.run";
pub(crate) const ALLOWED: &str = "[tool_call]\nallowed_tools = [\"palyra.echo\", \"skill.acme.echo.run\"]\n";

/// A guest of the host's own tests, or an example.
pub(crate) fn guest(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

pub(crate) fn minimal() -> String {
    guest("examples/skills/minimal/skill.wat")
}

fn hostile(name: &str) -> String {
    guest(&format!("examples/skills/hostile/{name}.wat"))
}

/// What a skill is made of.
pub(crate) struct Skill<'a> {
    pub(crate) version: &'a str,
    pub(crate) text: String,
    pub(crate) capabilities: &'a str,
    pub(crate) description: &'a str,
}

impl Skill<'_> {
    pub(crate) fn new(version: &str, text: String) -> Skill<'_> {
        Skill { version, text, capabilities: "", description: "Returns its input." }
    }

    /// Builds and signs it, and puts it into a file of the host.
    pub(crate) fn packed(&self, host: &Host, key: &PublisherKey) -> PathBuf {
        let Self { version, text, capabilities, description } = self;
        let manifest = format!(
            "format = 1\n[metadata]\nskill_id = \"acme.echo\"\nversion = \"{version}\"\npublisher = \"acme\"\nname = \"Echo\"\n\
             [entrypoints]\nmodule = \"modules/echo.wasm\"\n[[entrypoints.tools]]\nid = \"run\"\ndescription = \"{description}\"\n\
             risk = \"low\"\ninput_schema = {{ type = \"object\" }}\noutput_schema = {{ type = \"object\" }}\n{capabilities}\n\
             [compat]\nrequired_protocol_major = 1\nmin_palyra_version = \"0.1.0\"\n"
        );
        let component = palyra_plugins_build::component_of_text(text).unwrap();
        let files = vec![Entry::new("modules/echo.wasm", component)];
        let source = PackageSource { manifest: manifest.into_bytes(), files, ..PackageSource::default() };
        let built = package::build(&source, key).unwrap();
        let path = host.path(&format!("acme.echo-{version}.palyra-skill"));
        fs::write(&path, &built.bytes).unwrap();
        path
    }
}

pub(crate) fn install(host: &Host, file: &Path, options: &[&str]) -> Ran {
    let mut args = vec!["skills", "install", file.to_str().unwrap()];
    args.extend(options);
    host.palyra(&args)
}

/// A host with the minimal skill, installed by trust on first use.
pub(crate) fn furnished(config: &str) -> (Host, PublisherKey) {
    let host = Host::with(&format!("{ALLOWED}{config}"));
    let key = PublisherKey::generate().unwrap();
    let file = Skill::new("1.0.0", minimal()).packed(&host, &key);
    install(&host, &file, &["--allow-tofu"]).exits(0).done();
    (host, key)
}

pub(crate) fn listed(host: &Host) -> Value {
    host.palyra(&["skills", "list"]).good()["skills"][0].clone()
}

pub(crate) fn tools(host: &Host) -> Vec<String> {
    let tools = host.palyra(&["tools", "list"]).good();
    let name = |tool: &Value| text(tool, "/name").to_owned();
    tools.as_array().unwrap().iter().map(name).filter(|name| name.starts_with("skill.")).collect()
}

/// The file of the installed component.
fn module(host: &Host) -> PathBuf {
    host.state().join("skills-managed/acme.echo/1.0.0/modules/echo.wasm")
}

#[test]
fn a_skill_is_refused_installed_listed_and_called() {
    let host = Host::with(ALLOWED);
    let key = PublisherKey::generate().unwrap();
    let file = Skill::new("1.0.0", minimal()).packed(&host, &key);
    let refused = install(&host, &file, &[]);
    let refused = refused.error();
    assert_eq!(refused["code"], "trust_publisher_unknown", "{refused}");
    assert!(text(&refused, "/hint").contains("--allow-tofu"), "{refused}");
    assert!(tools(&host).is_empty());
    let installed = install(&host, &file, &["--allow-tofu"]).good();
    assert_eq!((text(&installed, "/runtime_status"), text(&installed, "/trust")), ("eligible", "tofu_newly_pinned"));
    assert_eq!(installed["tools_listed"][0]["allowed"], true, "{installed}");
    assert_eq!(install(&host, &file, &[]).error()["code"], "skill_installed");
    let skill = listed(&host);
    assert_eq!((&skill["eligible"], text(&skill, "/publisher")), (&json!(true), "acme"), "{skill}");
    assert_eq!(tools(&host), [TOOL]);

    let outcome = host.call(TOOL, &json!({ "text": "hello" }), &[]).good();
    assert_eq!(outcome["output"], json!({ "text": "hello" }), "{outcome}");
    let attested = &outcome["attestation"];
    assert_eq!(attested["executor"], "wasm", "{attested}");
    let held = &attested["sandbox_enforcement"];
    assert_eq!((text(held, "/tier"), text(held, "/skill/id")), ("a", "acme.echo"), "{held}");
    let info = host.palyra(&["skills", "info", "acme.echo"]).good();
    assert_eq!(held["grant_sha256"], info["grant_sha256"]);
    assert_eq!(held["module_sha256"], info["installed"]["modules"]["modules/echo.wasm"]);
    assert!(held["fuel_used"].as_u64().unwrap() > 0 && held["peak_memory_bytes"].as_u64().unwrap() > 0, "{held}");

    let mut client = host.mcp(&[]);
    let called = client.call("skill_acme_echo_run", &json!({ "text": "by mcp" }));
    assert_eq!(called["structuredContent"], json!({ "text": "by mcp" }), "{called}");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_recorded_call_is_replayed_to_the_attested_output() {
    let (host, _) = furnished("");
    let outcome = host.call(TOOL, &json!({ "n": [1, 2, 3] }), &[]).good();
    let call = text(&outcome, "/call_id").to_owned();
    let replayed = host.palyra(&["skills", "replay", &call]).good();
    assert_eq!(replayed["output_sha256"], outcome["attestation"]["output_sha256"], "{replayed}");
    assert_eq!(replayed["matches_attestation"], true);
    // A record that somebody changed is not replayed.
    let record = host.state().join(format!("skill-records/{call}.json"));
    let changed = fs::read_to_string(&record).unwrap().replace("\"complete\":true", "\"complete\": true");
    fs::write(&record, changed).unwrap();
    assert_eq!(host.palyra(&["skills", "replay", &call]).error()["code"], "replay_record_changed");
    let other = host.call("palyra.echo", &json!({ "text": "x" }), &[]).good();
    let other = text(&other, "/call_id").to_owned();
    assert_eq!(host.palyra(&["skills", "replay", &other]).error()["code"], "replay_no_record");
}

#[test]
fn what_was_tampered_with_on_the_disk_is_quarantined_when_it_is_called() {
    let (host, _) = furnished("");
    host.call(TOOL, &json!({}), &[]).exits(0).done();
    let mut bytes = fs::read(module(&host)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(module(&host), &bytes).unwrap();
    let ran = host.call(TOOL, &json!({}), &[]);
    assert!(ran.code != 0 && ran.stdout.contains("skill_drifted"), "{ran:?}");
    let skill = listed(&host);
    assert_eq!((text(&skill, "/runtime_status"), &skill["checks"]), ("quarantined", &json!(["artifact.drift"])));
    assert!(tools(&host).is_empty());
    let refused = host.palyra(&["skills", "release", "acme.echo", "--reason", "never mind"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    host.palyra(&["skills", "remove", "acme.echo"]).exits(0).done();
    assert!(!module(&host).exists());
    let file = host.path("acme.echo-1.0.0.palyra-skill");
    assert_eq!(text(&install(&host, &file, &[]).good(), "/trust"), "tofu_pinned");
    host.call(TOOL, &json!({}), &[]).exits(0).done();
}

#[test]
fn a_file_that_came_to_an_installation_is_found_at_the_next_start() {
    let (mut host, _) = furnished("");
    host.kill();
    fs::write(module(&host).with_file_name("more.wasm"), b"x").unwrap();
    host.start();
    let ran = host.call(TOOL, &json!({}), &[]);
    assert_ne!(ran.code, 0, "{ran:?}");
    host.palyra(&["skills", "check"]).exits(0).done();
    assert_eq!(text(&listed(&host), "/runtime_status"), "quarantined");
}

#[test]
fn a_revoked_key_quarantines_what_it_signed() {
    let (mut host, _) = furnished("");
    let keys = host.palyra(&["skills", "trust", "list"]).good();
    let key = text(&keys, "/0/key_id").to_owned();
    assert_eq!((text(&keys, "/0/origin"), &keys[0]["skills"]), ("tofu", &json!(1)), "{keys}");
    host.palyra(&["skills", "trust", "revoke", &key, "--reason", "it leaked"]).exits(0).done();
    let skill = listed(&host);
    assert_eq!((text(&skill, "/runtime_status"), &skill["checks"]), ("quarantined", &json!(["trust.publisher"])));
    assert!(tools(&host).is_empty());
    let refused = ["skills", "release", "acme.echo", "--reason", "no", "--override", "trust.publisher"];
    assert_eq!(host.palyra(&refused).error()["code"], "skill_check_firm");
    host.restart(palyra_e2e::host::Restart::Kill);
    assert_eq!(text(&listed(&host), "/runtime_status"), "quarantined");
    let events = host.palyra(&["journal", "tail", "-n", "100"]).stdout;
    assert!(events.contains("skill.trust") && events.contains("trust_store"), "{events}");
}

#[test]
fn an_audit_policy_that_is_tightened_quarantines_and_a_mended_one_lets_release() {
    let outside = tempfile::tempdir().unwrap();
    let policy = outside.path().join("audit.toml");
    fs::write(&policy, "format = 1\n").unwrap();
    let (host, _) = furnished(&format!("[skills]\naudit_policy = {policy:?}\n"));
    fs::write(&policy, "format = 1\n[limits]\nmax_memory_bytes = 1000\n").unwrap();
    let checked = host.palyra(&["skills", "check"]).good();
    let skill = &checked["skills"][0];
    assert_eq!(text(skill, "/runtime_status"), "quarantined", "{checked}");
    assert_eq!(skill["checks"], json!(["limits.quotas"]), "{checked}");
    let release = ["skills", "release", "acme.echo", "--reason", "looked at it"];
    let refused = host.palyra(&release).error();
    assert_eq!(refused["code"], "skill_check_failed", "{refused}");
    assert!(text(&refused, "/hint").contains("--override limits.quotas"), "{refused}");
    fs::write(&policy, "format = 1\n").unwrap();
    assert_eq!(text(&host.palyra(&release).good(), "/runtime_status"), "eligible");
    host.call(TOOL, &json!({}), &[]).exits(0).done();
    // With a reason, a person lets a failed check pass; that is on record, and the next audit honours it.
    fs::write(&policy, "format = 1\n[limits]\nmax_memory_bytes = 1000\n").unwrap();
    host.palyra(&["skills", "check"]).exits(0).done();
    let mut overriding = release.to_vec();
    overriding.extend(["--override", "limits.quotas"]);
    let released = host.palyra(&overriding).good();
    assert_eq!(released["change"]["overridden"], json!(["limits.quotas"]), "{released}");
    host.palyra(&["skills", "check"]).exits(0).done();
    host.call(TOOL, &json!({}), &[]).exits(0).done();
    let events = host.palyra(&["journal", "tail", "-n", "100"]).stdout;
    assert!(events.contains("looked at it") && events.contains("audit_policy"), "{events}");
}

#[test]
fn a_person_quarantines_and_releases_and_agents_do_neither() {
    let (host, _) = furnished("");
    let quarantine = ["skills", "quarantine", "acme.echo", "--reason", "not today"];
    let agent = [&["--as", "agent:demo"][..], &quarantine].concat();
    assert_ne!(host.palyra(&agent).code, 0);
    host.palyra(&quarantine).exits(0).done();
    assert!(tools(&host).is_empty());
    assert_ne!(host.call(TOOL, &json!({}), &[]).code, 0);
    host.palyra(&["skills", "check"]).exits(0).done();
    let skill = listed(&host);
    assert_eq!((text(&skill, "/runtime_status"), text(&skill, "/reason")), ("quarantined", "not today"));
    host.palyra(&["skills", "release", "acme.echo", "--reason", "fine again"]).exits(0).done();
    assert_eq!(tools(&host), [TOOL]);
}

#[test]
fn an_update_that_widens_asks_and_an_older_version_is_refused() {
    let (host, key) = furnished("");
    let wider =
        Skill { description: "Returns its input. It is new.", ..Skill::new("1.1.0", minimal()) }.packed(&host, &key);
    let refused = install(&host, &wider, &[]).error();
    assert_eq!(refused["code"], "skill_update_widens", "{refused}");
    let diff = host.palyra(&["skills", "diff", wider.to_str().unwrap()]).good();
    assert_eq!(diff["widens"], true, "{diff}");
    let update = ["skills", "update", wider.to_str().unwrap(), "--accept-changes"];
    assert_eq!(text(&host.palyra(&update).good(), "/version"), "1.1.0");
    let listing = host.palyra(&["skills", "list"]).good();
    let current = |n: usize| (text(&listing, &format!("/skills/{n}/version")), listing["skills"][n]["current"].clone());
    assert_eq!((current(0), current(1)), (("1.0.0", json!(false)), ("1.1.0", json!(true))));
    host.palyra(&["skills", "use", "acme.echo", "1.0.0"]).exits(0).done();
    host.call(TOOL, &json!({}), &[]).exits(0).done();
    let older = Skill::new("0.9.0", minimal()).packed(&host, &key);
    assert_eq!(install(&host, &older, &[]).error()["code"], "trust_downgrade");
    let stranger = Skill::new("2.0.0", minimal()).packed(&host, &PublisherKey::generate().unwrap());
    assert_eq!(install(&host, &stranger, &["--allow-tofu"]).error()["code"], "trust_key_unknown");
}

#[test]
fn a_trust_store_that_was_edited_trusts_nobody() {
    let (mut host, _) = furnished("");
    host.kill();
    let store = host.state().join("skill_trust.json");
    let edited = fs::read_to_string(&store).unwrap().replace("\"revision\": 1", "\"revision\": 2");
    fs::write(&store, edited + " ").unwrap();
    host.start();
    assert!(tools(&host).is_empty());
    assert_eq!(host.palyra(&["skills", "list"]).good()["problem"]["code"], "trust_store_tampered");
    host.palyra(&["skills", "trust", "reset", "--yes"]).exits(0).done();
    let skill = listed(&host);
    assert_eq!((text(&skill, "/runtime_status"), &skill["checks"]), ("quarantined", &json!(["trust.publisher"])));
}

#[test]
fn a_trust_store_that_was_rolled_back_trusts_nobody() {
    let (mut host, _) = furnished("");
    let store = host.state().join("skill_trust.json");
    let before = fs::read(&store).unwrap();
    let key = text(&host.palyra(&["skills", "trust", "list"]).good(), "/0/key_id").to_owned();
    host.palyra(&["skills", "trust", "revoke", &key, "--reason", "it leaked"]).exits(0).done();
    host.kill();
    fs::write(&store, before).unwrap();
    host.start();
    assert!(tools(&host).is_empty());
    assert_eq!(host.palyra(&["skills", "list"]).good()["problem"]["code"], "trust_store_tampered");
    assert_ne!(host.call(TOOL, &json!({}), &[]).code, 0);
}

#[test]
fn an_advisory_quarantines_what_it_names_without_being_asked() {
    let outside = tempfile::tempdir().unwrap();
    let advisories = outside.path().join("osv");
    fs::create_dir(&advisories).unwrap();
    let (host, _) = furnished(&format!("[skills]\nadvisories = {advisories:?}\n"));
    host.call(TOOL, &json!({}), &[]).exits(0).done();
    let advisory = json!({
        "id": "OSV-TEST-1",
        "affected": [{
            "package": { "ecosystem": "palyra", "name": "acme.echo", "purl": "pkg:palyra-skill/acme.echo" },
            "ranges": [{ "type": "SEMVER", "events": [{ "introduced": "0" }, { "fixed": "2.0.0" }] }],
        }],
    });
    fs::write(advisories.join("one.json"), advisory.to_string()).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while text(&listed(&host), "/runtime_status") != "quarantined" {
        assert!(std::time::Instant::now() < until, "{}", listed(&host));
    }
    let info = host.palyra(&["skills", "info", "acme.echo"]).good();
    assert_eq!(info["change"]["cause"], "advisories", "{info}");
    assert!(text(&info, "/reason").contains("OSV-TEST-1"), "{info}");
}

#[test]
fn a_call_that_waits_does_not_run_when_its_skill_is_quarantined_meanwhile() {
    let config = format!("{ALLOWED}[wasm_runtime]\nallowed_write_roots = [\".\"]\n");
    let host = Host::with(&config);
    let capabilities = "[capabilities.filesystem]\nwrite_roots = [\"*\"]\n[[capabilities.wildcards]]\n\
        capability = \"filesystem.write_roots\"\npattern = \"*\"\nreason = \"a test of everything\"\n";
    let skill = Skill { capabilities, ..Skill::new("1.0.0", writer()) };
    let file = skill.packed(&host, &PublisherKey::generate().unwrap());
    install(&host, &file, &["--allow-tofu"]).exits(0).done();
    let (call, approval) = host.ask(TOOL, &json!({ "p": "note" }), &[]);
    host.palyra(&["skills", "quarantine", "acme.echo", "--reason", "just now"]).exits(0).done();
    host.decide(&approval, "allow", &[]);
    let ended = host.palyra(&["calls", "follow", &call]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(!host.work("note").exists());
}

#[test]
fn hostile_code_is_stopped_by_the_limit_meant_for_it() {
    for (name, code) in [
        ("infinite-loop", "plugin_limit_fuel"),
        ("memory-grower", "plugin_limit_memory"),
        ("deep-recursion", "plugin_limit_stack"),
        ("huge-output", "plugin_limit_output"),
        ("host-call-flood", "plugin_limit_host_calls"),
        ("log-flood", "plugin_limit_log"),
        ("invalid-utf8", "plugin_not_utf8"),
    ] {
        let host = Host::with(ALLOWED);
        // It has to get the memory for an output that is too large.
        let memory = if name == "huge-output" { 128 << 20 } else { 8 << 20 };
        let capabilities = format!("[capabilities.quotas]\nfuel_budget = 100000000\nmax_memory_bytes = {memory}\n");
        let skill = Skill { capabilities: &capabilities, ..Skill::new("1.0.0", hostile(name)) };
        let file = skill.packed(&host, &PublisherKey::generate().unwrap());
        install(&host, &file, &["--allow-tofu"]).exits(0).done();
        let ran = host.call(TOOL, &json!({}), &[]);
        assert!(ran.code != 0 && ran.stdout.contains(code), "{name}: {ran:?}");
        // Nobody else is disturbed.
        host.call("palyra.echo", &json!({ "text": "still here" }), &[]).exits(0).done();
    }
}

#[test]
fn an_import_that_was_not_declared_is_quarantined() {
    let host = Host::with(ALLOWED);
    let file = Skill::new("1.0.0", hostile("undeclared-import")).packed(&host, &PublisherKey::generate().unwrap());
    let installed = install(&host, &file, &["--allow-tofu"]).good();
    assert_eq!(text(&installed, "/runtime_status"), "quarantined", "{installed}");
    assert!(installed["checks"].to_string().contains("capabilities.undeclared"), "{installed}");
    assert!(tools(&host).is_empty());
}

/// A guest of the host's tests that takes its word from `{"p":"…"}` instead of from between quotes.
pub(crate) fn with_object_input(path: &str) -> String {
    let taken = "(i32.add (local.get $input) (i32.const 1)) (i32.sub (local.get $input_length) (i32.const 2))";
    let instead = "(i32.add (local.get $input) (i32.const 6)) (i32.sub (local.get $input_length) (i32.const 8))";
    guest(path).replace(taken, instead)
}

#[test]
fn a_granted_host_is_reached_through_the_egress_rules_and_no_other() {
    let (port, served) = serve(vec![ok("{\"ok\":true}")]);
    let config = format!(
        "{ALLOWED}[egress]\nallowed_hosts = [\"127.0.0.1:{port}\"]\n[wasm_runtime]\nallowed_hosts = [\"127.0.0.1:{port}\"]\n"
    );
    let host = Host::with(&config);
    let capabilities = format!("[capabilities.http]\negress = [\"127.0.0.1:{port}\", \"elsewhere.example\"]\n");
    let text_of = with_object_input("crates/palyra-plugins/tests/guests/fetch.wat");
    let skill = Skill { capabilities: &capabilities, ..Skill::new("1.0.0", text_of) };
    let file = skill.packed(&host, &PublisherKey::generate().unwrap());
    let installed = install(&host, &file, &["--allow-tofu"]).good();
    assert_eq!(installed["grant"]["http"], json!([format!("127.0.0.1:{port}")]), "{installed}");
    assert_eq!(installed["grant"]["withheld"][0]["asked"], "elsewhere.example", "{installed}");
    // A skill that reaches out needs a person, like any tool that does.
    let (call, approval) = host.ask(TOOL, &json!({ "p": format!("http://127.0.0.1:{port}/x") }), &[]);
    let asked = host.palyra(&["approvals", "show", &approval]).good();
    assert!(asked.to_string().contains("acme.echo"), "{asked}");
    host.decide(&approval, "allow", &[]).exits(0).done();
    let outcome = host.palyra(&["calls", "follow", &call]).good();
    assert_eq!(outcome["output"], json!({ "ok": true }), "{outcome}");
    assert!(served.join().unwrap()[0].starts_with("GET /x HTTP/1.1"));
    let events = host.palyra(&["journal", "show", &call]).stdout;
    assert!(events.contains("egress.connection"), "{events}");
    let replayed = host.palyra(&["skills", "replay", &call]).good();
    assert_eq!(replayed["recorded_answers"], 1, "{replayed}");
    let (call, approval) = host.ask(TOOL, &json!({ "p": "http://elsewhere.example/" }), &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    assert_ne!(host.palyra(&["calls", "follow", &call]).code, 0);
}

/// A guest that writes `mine` into the file that `{"p":"…"}` names, and answers `{"n":"00"}` where it could.
fn writer() -> String {
    let number = "(i32.store8 (i32.const 448) ";
    with_object_input("crates/palyra-plugins/tests/guests/writer.wat")
        .replace("(func $number", "(data (i32.const 600) \"{\\22n\\22:\\22..\\22}\")\n  (func $number")
        .replace(number, "(i32.store8 (i32.const 606) ")
        .replace("(i32.store8 (i32.const 449) ", "(i32.store8 (i32.const 607) ")
        .replace("(call $answer (i32.const 448) (i32.const 2))", "(call $answer (i32.const 600) (i32.const 10))")
}

#[test]
fn what_a_skill_writes_counts_like_any_effect_and_is_undone() {
    let config = format!("{ALLOWED}[wasm_runtime]\nallowed_write_roots = [\".\"]\n");
    let host = Host::with(&config);
    fs::create_dir_all(host.work(".git/hooks")).unwrap();
    host.put("note", "before");
    let capabilities = "[capabilities.filesystem]\nwrite_roots = [\"*\"]\n[[capabilities.wildcards]]\n\
        capability = \"filesystem.write_roots\"\npattern = \"*\"\nreason = \"a test of everything\"\n";
    let skill = Skill { capabilities, ..Skill::new("1.0.0", writer()) };
    let file = skill.packed(&host, &PublisherKey::generate().unwrap());
    install(&host, &file, &["--allow-tofu"]).exits(0).done();
    let write = |path: &str| {
        let (call, approval) = host.ask(TOOL, &json!({ "p": path }), &[]);
        host.decide(&approval, "allow", &[]).exits(0).done();
        (call.clone(), host.palyra(&["calls", "follow", &call]).good())
    };
    let (call, outcome) = write("note");
    assert_eq!(outcome["output"], json!({ "n": "00" }), "the output is what the code made it");
    assert_eq!(outcome["attestation"]["effect"]["state"], "applied", "{outcome}");
    assert_eq!(host.content("note"), "mine");
    host.palyra(&["skills", "replay", &call]).exits(0).done();
    host.palyra(&["undo", &call]).exits(0).done();
    assert_eq!(host.content("note"), "before");
    // Files that run as code later wait for a person, whatever the skill was granted.
    let (_, outcome) = write(".git/hooks/pre-commit");
    assert_eq!(outcome["attestation"]["effect"]["state"], "waiting", "{outcome}");
    assert!(!host.work(".git/hooks/pre-commit").exists());
    let waiting = host.palyra(&["approvals", "list"]).good();
    let approval = waiting.as_array().unwrap().iter().find(|record| record["subject"]["kind"] == "effects").unwrap();
    host.decide(text(approval, "/approval_id"), "allow", &[]).exits(0).done();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !host.work(".git/hooks/pre-commit").exists() && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(host.content(".git/hooks/pre-commit"), "mine");
    let (_, outcome) = write("../outside");
    assert_ne!(outcome["output"]["n"], "00");
    assert!(!host.path("outside").exists());
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}
