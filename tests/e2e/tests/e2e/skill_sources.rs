//! Where skills come from and how they change: directories, signed registries, updates that wait for a person.

use crate::skills::{ALLOWED, Skill, TOOL, furnished, install, minimal};
use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Ran, text};
use palyra_skills::PublisherKey;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// Puts versions of the minimal skill into a directory.
fn packages(host: &Host, key: &PublisherKey, versions: &[&str]) -> PathBuf {
    let directory = host.path("packages");
    fs::create_dir_all(&directory).unwrap();
    for version in versions {
        let file = Skill::new(version, minimal()).packed(host, key);
        fs::rename(&file, directory.join(file.file_name().unwrap())).unwrap();
    }
    directory
}

fn from(host: &Host, what: &str, options: &[&str]) -> Ran {
    host.palyra(&[&["skills", "install", what][..], options].concat())
}

#[test]
fn a_directory_is_looked_through_and_the_newest_fitting_version_installed() {
    let host = Host::with(ALLOWED);
    let key = PublisherKey::generate().unwrap();
    let directory = packages(&host, &key, &["1.0.0", "1.4.0", "2.0.0"]);
    fs::write(directory.join("odd.palyra-skill"), "no package").unwrap();
    let source = ["--from", directory.to_str().unwrap()];
    let offered = host.palyra(&[&["skills", "available"][..], &source].concat()).good();
    assert_eq!(offered["artifacts"].as_array().unwrap().len(), 3, "{offered}");
    assert_eq!(offered["refused"][0][0], "odd.palyra-skill");
    let options = [&source[..], &["--allow-tofu"]].concat();
    assert_eq!(from(&host, "acme.echo@^3", &options).error()["code"], "registry_not_found");
    assert_eq!(text(&from(&host, "acme.echo@^1.2", &options).good(), "/version"), "1.4.0");
    let update = [&["skills", "update", "acme.echo"][..], &source].concat();
    assert_eq!(text(&host.palyra(&update).good(), "/version"), "2.0.0");
    host.call(TOOL, &json!({ "a": 1 }), &[]).exits(0).done();
}

fn index(host: &Host, options: &[&str]) -> Value {
    let mut command = host.command("palyra");
    command.args([
        "--output",
        "json",
        "skills",
        "package",
        "index",
        "packages",
        "--name",
        "house",
        "--key",
        "house.key",
    ]);
    command.args(options).current_dir(host.path(""));
    palyra_e2e::cli::run(command, &[]).good()
}

#[test]
fn a_registry_is_known_by_its_key_and_never_goes_back() {
    let mut host = Host::with(ALLOWED);
    let key = PublisherKey::generate().unwrap();
    let directory = packages(&host, &key, &["1.0.0", "1.1.0"]);
    for name in ["house.key", "other.key"] {
        let made = PublisherKey::generate().unwrap();
        fs::write(host.path(name), made.to_text().expose()).unwrap();
        fs::set_permissions(host.path(name), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    let public = text(&index(&host, &[]), "/public_key").to_owned();
    let old: Vec<(PathBuf, Vec<u8>)> = ["index.json", "index.signature.json"]
        .map(|name| (directory.join(name), fs::read(directory.join(name)).unwrap()))
        .into();
    index(&host, &["--withdraw", "acme.echo@1.1.0"]);
    let source = ["--registry", directory.to_str().unwrap()];
    let with_key = [&source[..], &["--registry-key", &public, "--allow-tofu"]].concat();
    assert_eq!(from(&host, "acme.echo", &source).error()["code"], "registry_key_unknown");
    // What was withdrawn is not chosen.
    assert_eq!(text(&from(&host, "acme.echo", &with_key).good(), "/version"), "1.0.0");
    // From now on the key is known; another is refused, and so is an older list, also after a restart.
    let offered = host.palyra(&[&["skills", "available"][..], &source].concat()).good();
    assert_eq!((&offered["registry"], &offered["revision"]), (&json!("house"), &json!(2)), "{offered}");
    let other = PublisherKey::generate().unwrap().public().to_string();
    let foreign = [&source[..], &["--registry-key", &other]].concat();
    assert_eq!(from(&host, "acme.echo@1.1.0", &foreign).error()["code"], "registry_other_key");
    host.restart(Restart::Kill);
    let now: Vec<(PathBuf, Vec<u8>)> = old.iter().map(|(path, _)| (path.clone(), fs::read(path).unwrap())).collect();
    old.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert_eq!(from(&host, "acme.echo@1.1.0", &source).error()["code"], "registry_rollback");
    now.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    // A file that is not the one in the list, and a list that somebody else signed.
    let file = directory.join("acme.echo-1.0.0.palyra-skill");
    let good = fs::read(&file).unwrap();
    fs::write(&file, fs::read(directory.join("acme.echo-1.1.0.palyra-skill")).unwrap()).unwrap();
    assert_eq!(from(&host, "acme.echo", &source).error()["code"], "registry_other_file");
    fs::write(&file, good).unwrap();
    fs::write(directory.join("index.json"), now[0].1.iter().chain(b" ").copied().collect::<Vec<u8>>()).unwrap();
    assert_eq!(from(&host, "acme.echo", &source).error()["code"], "registry_signature");
    let events = host.palyra(&["journal", "tail", "-n", "100"]).stdout;
    assert!(events.contains("skill.registry"), "{events}");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

/// A version that tells models something else than the one that runs.
fn wider(host: &Host, key: &PublisherKey, version: &str) -> PathBuf {
    Skill { description: "Returns its input. It is new.", ..Skill::new(version, minimal()) }.packed(host, key)
}

/// Waits until an update is asked about; gives the approval.
fn asked(host: &Host) -> Value {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let pending = host.palyra(&["approvals", "list"]).good();
        let found = pending.as_array().unwrap().iter().find(|record| record["subject"]["kind"] == "skill_change");
        if let Some(record) = found.filter(|record| record["state"] == "pending") {
            return record.clone();
        }
        assert!(std::time::Instant::now() < until, "{pending}");
        std::thread::yield_now();
    }
}

#[test]
fn an_update_that_widens_waits_for_a_person_at_any_door() {
    let (host, key) = furnished("");
    for (version, decision) in [("1.1.0", "deny"), ("1.2.0", "allow")] {
        let file = wider(&host, &key, version);
        let update = host.palyra_started(&["skills", "update", file.to_str().unwrap()]);
        let approval = asked(&host);
        let shown = host.palyra(&["approvals", "show", text(&approval, "/approval_id")]).good().to_string();
        assert!(shown.contains("acme.echo") && shown.contains("It is new."), "{shown}");
        let agent = ["--as", "agent:demo", "approvals", "decide", text(&approval, "/approval_id"), "allow"];
        assert_ne!(host.palyra(&agent).code, 0);
        host.decide(text(&approval, "/approval_id"), decision, &[]).exits(0).done();
        let ran = update.end();
        if decision == "deny" {
            assert_eq!(ran.error()["code"], "skill_update_declined");
        } else {
            assert_eq!(text(&ran.good(), "/version"), version);
        }
    }
    let listing = host.palyra(&["skills", "list"]).good();
    let versions: Vec<_> = listing["skills"].as_array().unwrap().iter().map(|skill| text(skill, "/version")).collect();
    assert_eq!(versions, ["1.0.0", "1.2.0"]);
    assert!(fs::read_dir(host.state().join("skills-pending")).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn an_update_that_waits_goes_on_after_a_restart_and_is_bound_to_what_was_shown() {
    let (mut host, key) = furnished("");
    let file = wider(&host, &key, "1.1.0");
    let update = host.palyra_started(&["skills", "update", file.to_str().unwrap()]);
    let approval = text(&asked(&host), "/approval_id").to_owned();
    host.kill();
    drop(update.end());
    host.start();
    host.decide(&approval, "allow", &[]).exits(0).done();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while host.palyra(&["skills", "info", "acme.echo"]).good()["version"] != "1.1.0" {
        assert!(std::time::Instant::now() < until);
    }
    // Another artifact in the place of the one that waits is not installed.
    let file = wider(&host, &key, "1.2.0");
    let file = {
        fs::write(&file, fs::read(&file).unwrap()).unwrap();
        file
    };
    host.palyra(&["skills", "use", "acme.echo", "1.0.0"]).exits(0).done();
    let update = host.palyra_started(&["skills", "update", file.to_str().unwrap()]);
    let approval = text(&asked(&host), "/approval_id").to_owned();
    let kept = host.state().join(format!("skills-pending/{approval}.palyra-skill"));
    fs::write(&kept, fs::read(wider(&host, &key, "1.3.0")).unwrap()).unwrap();
    host.decide(&approval, "allow", &[]).exits(0).done();
    assert_eq!(update.end().error()["code"], "skill_change_outdated");
    assert_eq!(install(&host, &file, &[]).error()["code"], "skill_update_widens");
}
