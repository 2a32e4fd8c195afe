//! Tokens, members, agents, groups and features, as people and programs use them.

use palyra_e2e::host::mode;
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;

fn create(host: &Host, args: &[&str]) -> (String, String) {
    let made = host.palyra(&[&["access", "token", "create"], args].concat()).good();
    (text(&made, "/token").to_owned(), text(&made, "/record/token_id").to_owned())
}

fn with<'a>(token: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["--token", token], args].concat()
}

#[test]
fn a_token_does_exactly_one_thing() {
    let host = Host::up();
    host.put("a.txt", "hello");
    host.palyra(&["access", "agent", "add", "agent:docs", "--description", "reads"]).exits(0).done();
    let (token, id) = create(&host, &["agent:docs", "--scope", "tool.execute:palyra.fs.read"]);
    let read = ["call", "palyra.fs.read", "--input", r#"{"path":"a.txt"}"#];
    let done = host.palyra(&with(&token, &read)).good();
    assert_eq!(done["state"], "succeeded");
    let events = host.palyra(&["journal", "show", text(&done, "/call_id")]).exits(0).json_lines();
    assert_eq!(text(&events[0], "/body/call/origin/principal"), "agent:docs");
    assert_eq!(text(&events[0], "/body/call/origin/proposed_by"), "agent:docs", "nobody else is behind it");
    host.palyra(&with(&token, &["call", "palyra.fs.list"])).fails(3, "scope_missing");
    for args in [
        &["status"][..],
        &["tools", "list"],
        &["approvals", "list"],
        &["journal", "tail"],
        &["access", "token", "list"],
        &["access", "whoami"],
        &["policy", "explain", "palyra.echo"],
    ] {
        let error = host.palyra(&with(&token, args)).exits(10).error();
        assert!(["scope_missing", "forbidden"].contains(&text(&error, "/code")), "{args:?}: {error}");
    }
    // By the environment as well, and never as the owner.
    let mut command = host.command("palyra");
    command.env("PALYRA_TOKEN", &token).args(["-o", "json", "approvals", "list"]);
    palyra_e2e::cli::run(command, &[]).fails(10, "forbidden");
    let mut command = host.command("palyra");
    command.env("PALYRA_TOKEN", "").args(["-o", "json", "status"]);
    palyra_e2e::cli::run(command, &[]).fails(10, "unauthenticated");
    host.palyra(&["access", "token", "revoke", &id]).exits(0).done();
    host.palyra(&with(&token, &read)).fails(10, "token_revoked");
}

#[test]
fn a_token_is_shown_once_and_its_record_without_a_hash() {
    let host = Host::up();
    let text_mode = host.palyra_text(&["access", "token", "create", "user:local", "--label", "mine"]).exits(0);
    let token = text_mode.stdout.trim();
    assert!(token.starts_with("palyra_") && token.len() == 82 && !token.contains(char::is_whitespace), "{token}");
    assert!(text_mode.stderr.contains("only time"), "{text_mode:?}");
    let listed = host.palyra(&["access", "token", "list"]).good();
    assert_eq!(listed[0]["label"], "mine");
    assert!(token.starts_with(text(&listed, "/0/prefix")));
    assert!(listed[0].get("token_hash_sha256").is_none() && !listed.to_string().contains(&token[40..]));
    let file = host.state().join("access_registry.json");
    assert_eq!(mode(&file), 0o600);
    let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let hash = palyra_protocol::Digest::of(token.as_bytes()).to_string();
    assert_eq!(text(&stored, "/tokens/0/token_hash_sha256"), hash);
    let journal = host.palyra(&["journal", "export"]).exits(0).stdout;
    assert!(!journal.contains(&token[40..]) && !journal.contains(&hash), "neither secret nor hash");
    let log = fs::read_to_string(host.path("log")).unwrap();
    assert!(!log.contains(&token[40..]), "nor in the log");
}

#[test]
fn rotation_has_an_overlap_and_an_end() {
    let host = Host::up();
    let (old, id) = create(&host, &["user:local"]);
    let rotate = |overlap: &str| {
        let made = host.palyra(&["access", "token", "rotate", &id, "--overlap", overlap]).good();
        text(&made, "/token").to_owned()
    };
    let new = rotate("1h");
    for token in [&old, &new] {
        host.palyra(&with(token, &["tools", "list"])).exits(0).done();
    }
    let newest = rotate("0s");
    host.palyra(&with(&new, &["tools", "list"])).fails(10, "token_rotated");
    host.palyra(&with(&old, &["tools", "list"])).fails(10, "unauthenticated");
    host.palyra(&with(&newest, &["tools", "list"])).exits(0).done();
}

#[test]
fn whoami_tells_the_same_truth_as_the_call() {
    let host = Host::up();
    let me = host.palyra(&["access", "whoami"]).good();
    assert_eq!((text(&me, "/principal"), text(&me, "/role")), ("user:local", "owner"));
    assert!(me["scopes"].is_null() && me["token"].is_null());
    host.palyra(&["access", "agent", "add", "agent:ci"]).exits(0).done();
    let scopes = "access.read,policy.explain,tool.execute:palyra.echo,tool.execute:palyra.process.run";
    let (token, id) = create(&host, &["agent:ci", "--scope", scopes]);
    let me = host.palyra(&with(&token, &["access", "whoami"])).good();
    assert_eq!(
        (text(&me, "/principal"), text(&me, "/role"), text(&me, "/token")),
        ("agent:ci", "operator", id.as_str())
    );
    let right = |tool: &str| {
        let rights = me["rights"].as_array().unwrap();
        let found = rights.iter().find(|r| r["action"] == "tool.execute" && r["resource"] == format!("tool:{tool}"));
        text(found.unwrap(), "/decision").to_owned()
    };
    for (tool, input) in [
        ("palyra.echo", json!({"text": "x"})),
        ("palyra.process.run", json!({"argv": ["ls"]})),
        ("palyra.fs.list", json!({})),
    ] {
        let input = input.to_string();
        let call = host.palyra(&with(&token, &["call", tool, "--input", &input, "--detach"]));
        let said = match call.json()["state"].as_str().unwrap() {
            "awaiting_approval" => "needs_approval",
            "denied" => "deny",
            _ => "allow",
        };
        assert_eq!(right(tool), said, "{tool}");
        // Explaining asks in one's own name; an agent is not told the rules.
        let explained = host.palyra(&with(&token, &["policy", "explain", tool, "--input", &input]));
        explained.fails(10, "forbidden");
    }
}

#[test]
fn a_file_edited_by_hand_or_cut_off_stops_the_start_until_it_is_dealt_with() {
    let mut host = Host::up();
    let (token, id) = create(&host, &["user:local", "--scope", "tool.list"]);
    let file = host.state().join("access_registry.json");
    let older = fs::read(&file).unwrap();
    host.palyra(&["access", "token", "revoke", &id]).exits(0).done();
    let newest = fs::read(&file).unwrap();
    host.kill();
    let wider = String::from_utf8(newest.clone()).unwrap().replace("\"operator\"", "\"owner\"");
    for bytes in [&newest[..newest.len() / 2], b"", wider.as_bytes(), &older] {
        fs::write(&file, bytes).unwrap();
        let refused = host.refused();
        assert_eq!(refused.code, Some(1));
        for said in ["access_registry.json", "palyrad access accept", "palyrad access reset"] {
            assert!(refused.log.contains(said), "{said}: {}", refused.log);
        }
    }
    fs::write(&file, &newest).unwrap();
    host.start();
    host.palyra(&with(&token, &["tools", "list"])).fails(10, "token_revoked");
    let journal = host.palyra(&["journal", "export"]).exits(0).stdout;
    assert_eq!(journal.matches("access.registry_refused").count() / 2, 4, "each refusal is an event");
    host.kill();

    let command = |host: &Host, what: &str| {
        let mut command = host.daemon_command();
        command.args(["access", what]);
        palyra_e2e::cli::run(command, &[])
    };
    // Deliberately: the older one is accepted, and the token is back because its owner wants it back.
    fs::write(&file, &older).unwrap();
    command(&host, "accept").exits(0).done();
    host.start();
    host.palyra(&with(&token, &["tools", "list"])).exits(0).done();
    let busy = command(&host, "reset").exits(75);
    assert!(busy.stderr.contains("another daemon"), "not beside a daemon: {busy:?}");
    host.kill();
    fs::write(&file, b"nonsense").unwrap();
    command(&host, "accept").exits(1).done();
    command(&host, "reset").exits(0).done();
    host.start();
    assert_eq!(host.palyra(&["access", "token", "list"]).good(), json!([]));
    host.palyra(&with(&token, &["tools", "list"])).fails(10, "unauthenticated");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn changes_survive_sigkill_whole_or_not_at_all() {
    let mut host = Host::up();
    for round in 0..12 {
        let name = format!("user:p{round}");
        let adding = host.palyra_started(&["access", "member", "add", &name]);
        if round % 2 == 0 {
            // Acknowledged means durable.
            adding.end().exits(0).done();
            host.kill();
        } else {
            // Whether it counts or not, the registry is whole.
            host.kill();
            drop(adding);
        }
        host.start();
        let members = host.palyra(&["access", "member", "list"]).good();
        let there = members.as_array().unwrap().iter().any(|m| m["principal"] == name.as_str());
        assert!(there || round % 2 == 1, "{name} was acknowledged and is gone");
    }
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn guesses_are_slowed_and_told_in_sums() {
    let host = Host::up();
    let (token, _) = create(&host, &["user:local"]);
    let mut codes = std::collections::BTreeSet::new();
    for n in 0..45 {
        let error = host.palyra(&with(&format!("palyra_{n}"), &["status"])).exits(10).error();
        codes.insert(text(&error, "/code").to_owned());
    }
    assert!(codes.contains("unauthenticated") && codes.contains("too_many_attempts"), "{codes:?}");
    host.palyra(&with(&token, &["status"])).exits(0).done();
    let events = host.palyra(&["journal", "tail", "-n", "100"]).exits(0).json_lines();
    let told = events.iter().filter(|e| text(e, "/kind") == "access.attempts").count();
    assert_eq!(told, 1, "the first is told at once, the rest later in one sum");
}

#[test]
fn a_group_reaches_the_rules_without_a_restart() {
    let mut host = Host::idle();
    fs::create_dir(host.path("policies")).unwrap();
    host.start();
    host.palyra(&["access", "group", "add", "sealers"]).exits(0).done();
    host.kill();
    let rule = "@id(\"sealers_seal\")\n@reason(\"Sealers seal.\")\n\
                permit (principal in Group::\"sealers\", action == Action::\"journal.checkpoint\", resource);\n";
    fs::write(host.path("policies").join("a.cedar"), rule).unwrap();
    host.configure(&format!("policy_dir = {:?}\n", host.path("policies")));
    host.start();
    host.palyra(&["access", "member", "add", "user:ana", "--role", "owner"]).exits(0).done();
    let (token, _) = create(&host, &["user:ana", "--role", "owner", "--scope", "journal.checkpoint,access.read"]);
    host.palyra(&["access", "group", "add", "sealers", "user:ana"]).exits(0).done();
    let me = host.palyra(&with(&token, &["access", "whoami"])).good();
    assert!(me["groups"].as_array().unwrap().contains(&json!("sealers")), "{me}");
    host.palyra(&with(&token, &["journal", "checkpoint"])).exits(0).done();
    let error = host.palyra(&["access", "group", "delete", "sealers"]).fails(10, "group_in_use");
    assert!(text(&error, "/message").contains("Group"), "{error}");
    host.palyra(&["access", "group", "add", "sealers", "group:sealers"]).fails(10, "registry_flaw");
    let mut check = host.daemon_command();
    check.arg("check");
    palyra_e2e::cli::run(check, &[]).exits(0).done();
}

#[test]
fn features_are_listed_and_only_ever_narrow() {
    let host = Host::up();
    let (token, _) = create(&host, &["user:local"]);
    let features = host.palyra(&["access", "feature", "list"]).good();
    let names: Vec<_> = features.as_array().unwrap().iter().map(|f| text(f, "/name")).collect();
    assert_eq!(names, ["api_tokens", "approval_reasons"]);
    host.palyra(&["access", "feature", "set", "api_tokens", "off"]).exits(0).done();
    host.palyra(&with(&token, &["status"])).fails(10, "tokens_closed");
    host.palyra(&["access", "feature", "set", "api_tokens", "on"]).exits(0).done();
    host.palyra(&with(&token, &["status"])).exits(0).done();
    host.palyra(&["access", "feature", "set", "approval_reasons", "on"]).exits(0).done();
    let (_, approval) = host.ask("palyra.process.run", &json!({ "argv": ["ls"] }), &[]);
    host.decide(&approval, "allow", &[]).fails(10, "reason_required");
    host.decide(&approval, "allow", &["--reason", "I looked"]).exits(0).done();
    host.palyra(&["access", "feature", "set", "no_journal", "on"]).fails(10, "malformed_request");
}
