//! The story of a skill on a fresh host, typed at the command line: scaffolded, built, signed, refused, installed,
//! called, tampered with, revoked, outlawed, mended.

use palyra_e2e::{Host, Ran, cli, text};
use serde_json::{Value, json};
use std::fs;

fn skills(host: &Host, args: &[&str]) -> Ran {
    let mut command = host.command("palyra");
    command.args(["--output", "json", "skills"]).args(args).current_dir(host.path(""));
    cli::run(command, &[])
}

fn status(host: &Host) -> Value {
    skills(host, &["list"]).good()["skills"][0].clone()
}

/// Asserts that the skill is quarantined for a check, is not listed and does not run.
fn is_quarantined(host: &Host, check: &str) {
    let skill = status(host);
    assert_eq!((text(&skill, "/runtime_status"), &skill["checks"]), ("quarantined", &json!([check])), "{skill}");
    let tools = host.palyra(&["tools", "list"]).good();
    assert!(!tools.to_string().contains("skill.acme.greeter"), "{tools}");
    assert_ne!(host.call("skill.acme.greeter.run", &json!({}), &[]).code, 0);
}

#[test]
fn the_whole_story_of_a_skill() {
    let outside = tempfile::tempdir().unwrap();
    let policy = outside.path().join("audit.toml");
    fs::write(&policy, "format = 1\n").unwrap();
    let host = Host::with(&format!(
        "[tool_call]\nallowed_tools = [\"palyra.echo\", \"skill.acme.greeter.run\"]\n[skills]\naudit_policy = {policy:?}\n"
    ));
    // Scaffold, build, sign, verify.
    skills(&host, &["new", "--lang", "wat", "--publisher", "acme", "greeter"]).exits(0).done();
    skills(&host, &["build", "greeter"]).exits(0).done();
    let public =
        text(&skills(&host, &["package", "keygen", "--out", "publisher.key"]).good(), "/public_key").to_owned();
    let package = skills(&host, &["package", "build", "greeter", "--key", "publisher.key"]).good();
    let file = text(&package, "/file");
    skills(&host, &["package", "verify", file, "--trust", &format!("acme={public}")]).exits(0).done();
    // Refused, then installed by trust on first use; listed and called by an MCP client.
    assert_eq!(skills(&host, &["install", file]).error()["code"], "trust_publisher_unknown");
    skills(&host, &["install", file, "--allow-tofu"]).exits(0).done();
    assert_eq!((&status(&host)["eligible"], text(&status(&host), "/trust")), (&json!(true), "tofu_newly_pinned"));
    let mut client = host.mcp(&[]);
    let called = client.call("skill_acme_greeter_run", &json!({ "name": "Ada" }));
    assert_eq!(called["structuredContent"], json!({ "name": "Ada" }), "{called}");
    // Tampered with on the disk.
    let module = host.state().join("skills-managed/acme.greeter/0.1.0/modules/greeter.wasm");
    let good = fs::read(&module).unwrap();
    fs::write(&module, [&good[..], b"\0"].concat()).unwrap();
    assert_ne!(host.call("skill.acme.greeter.run", &json!({}), &[]).code, 0);
    is_quarantined(&host, "artifact.drift");
    fs::write(&module, &good).unwrap();
    skills(&host, &["release", "acme.greeter", "--reason", "put back from the package"]).exits(0).done();
    host.call("skill.acme.greeter.run", &json!({}), &[]).exits(0).done();
    // Outlawed by a tightened audit policy, and released when that is mended.
    fs::write(&policy, "format = 1\n[limits]\nmax_wall_clock_ms = 10\n").unwrap();
    skills(&host, &["check"]).exits(0).done();
    is_quarantined(&host, "limits.quotas");
    fs::write(&policy, "format = 1\n").unwrap();
    skills(&host, &["release", "acme.greeter", "--reason", "the policy was too tight"]).exits(0).done();
    host.call("skill.acme.greeter.run", &json!({}), &[]).exits(0).done();
    // The publisher's key is revoked: nothing brings the skill back.
    let key = text(&skills(&host, &["trust", "list"]).good(), "/0/key_id").to_owned();
    skills(&host, &["trust", "revoke", &key, "--reason", "it leaked"]).exits(0).done();
    is_quarantined(&host, "trust.publisher");
    assert_ne!(skills(&host, &["release", "acme.greeter", "--reason", "please"]).code, 0);
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_new_key_follows_an_old_one_by_a_statement_of_both() {
    let host = Host::up();
    skills(&host, &["new", "--lang", "wat", "--publisher", "acme", "greeter"]).exits(0).done();
    skills(&host, &["build", "greeter"]).exits(0).done();
    for key in ["old.key", "new.key", "other.key"] {
        skills(&host, &["package", "keygen", "--out", key]).exits(0).done();
    }
    let package = |key: &str, out: &str| {
        skills(&host, &["package", "build", "greeter", "--key", key, "--out", out]).exits(0).done();
    };
    package("old.key", "old.palyra-skill");
    skills(&host, &["install", "old.palyra-skill", "--allow-tofu"]).exits(0).done();
    let manifest = host.path("greeter/skill.toml");
    let next = fs::read_to_string(&manifest).unwrap().replace("0.1.0\"\npublisher", "0.2.0\"\npublisher");
    fs::write(&manifest, next).unwrap();
    package("new.key", "new.palyra-skill");
    assert_eq!(skills(&host, &["install", "new.palyra-skill"]).error()["code"], "trust_key_unknown");
    let rotate = |old: &str, out: &str| {
        let args = ["package", "rotate", "--publisher", "acme", "--old", old, "--new", "new.key", "--out", out];
        skills(&host, &args).exits(0).done();
        skills(&host, &["trust", "rotate", host.path(out).to_str().unwrap()])
    };
    assert_ne!(rotate("other.key", "wrong.json").code, 0, "a key that nobody trusts passes nothing on");
    rotate("old.key", "rotation.json").exits(0).done();
    let installed = skills(&host, &["install", "new.palyra-skill", "--accept-changes"]).good();
    assert_eq!((text(&installed, "/version"), text(&installed, "/runtime_status")), ("0.2.0", "eligible"));
}
