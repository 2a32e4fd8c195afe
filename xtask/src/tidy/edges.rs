//! Which crate may use which.
//!
//! ```text
//! protocol ◀ egress, workspace ◀ sandbox, plugins ◀┐
//! protocol ◀ policy, journal, skills, vault, identity, access ◀ engine ◀ agent ◀ daemon ▶ api ◀ cli
//! ```
//!
//! The middle crates do not know each other, except that sandbox and plugins use egress and workspace. The command line
//! does not reach into the daemon's crates. Each heavy dependency is used by one crate, so that exchanging it is a
//! change in one crate. Dev-dependencies are not checked.

use super::Violation;
use serde_json::Value;

const MIDDLE: [&str; 10] =
    ["policy", "journal", "egress", "workspace", "sandbox", "plugins", "skills", "vault", "identity", "access"];

/// A dependency that only some of our crates may have.
struct Door {
    dependency: &'static str,
    rooms: &'static [&'static str],
}

const DOORS: [Door; 28] = [
    Door { dependency: "cedar-policy", rooms: &["policy"] },
    Door { dependency: "rusqlite", rooms: &["journal"] },
    Door { dependency: "wasmtime", rooms: &["plugins"] },
    Door { dependency: "wit-component", rooms: &["plugins-build"] },
    Door { dependency: "landlock", rooms: &["sandbox"] },
    Door { dependency: "seccompiler", rooms: &["sandbox"] },
    Door { dependency: "ureq", rooms: &["egress"] },
    Door { dependency: "jsonschema", rooms: &["engine", "skills"] },
    Door { dependency: "zip", rooms: &["skills"] },
    // Components are looked at before they are installed, and by the host that runs them.
    Door { dependency: "wasmparser", rooms: &["skills", "plugins", "plugins-build"] },
    Door { dependency: "tonic", rooms: &["api", "daemon", "cli"] },
    Door { dependency: "askama", rooms: &["daemon"] },
    Door { dependency: "axum", rooms: &["daemon"] },
    Door { dependency: "rmcp", rooms: &["daemon"] },
    // Certificates and pairing; egress is a TLS client too.
    Door { dependency: "rcgen", rooms: &["identity", "egress"] },
    Door { dependency: "rustls", rooms: &["identity", "egress"] },
    Door { dependency: "rustls-webpki", rooms: &["identity"] },
    Door { dependency: "tokio-rustls", rooms: &["identity"] },
    Door { dependency: "x509-parser", rooms: &["identity"] },
    Door { dependency: "pakery-cpace", rooms: &["identity"] },
    Door { dependency: "p12-keystore", rooms: &["identity"] },
    Door { dependency: "keyring-core", rooms: &["vault"] },
    Door { dependency: "zbus-secret-service-keyring-store", rooms: &["vault"] },
    Door { dependency: "apple-native-keyring-store", rooms: &["vault"] },
    Door { dependency: "windows-native-keyring-store", rooms: &["vault"] },
    Door { dependency: "chacha20poly1305", rooms: &["vault"] },
    Door { dependency: "argon2", rooms: &["vault"] },
    // The vocabulary, the decision and the sandbox are not asynchronous.
    Door {
        dependency: "tokio",
        rooms: &["journal", "plugins", "vault", "identity", "engine", "agent", "api", "daemon", "cli"],
    },
];

/// The rooms that a room may use; nothing for a room that is not in the plan.
fn may_use(room: &str) -> Option<Vec<&'static str>> {
    let with_middle = |more: &[&'static str]| [&["protocol"], &MIDDLE[..], more].concat();
    match room {
        "protocol" => Some(vec![]),
        "engine" => Some(with_middle(&[])),
        "agent" => Some(vec!["protocol", "egress", "engine"]),
        "daemon" => Some(with_middle(&["engine", "agent", "api", "plugins-build"])),
        // A device's side: what it keeps of its daemons, and how it connects to them.
        "api" => Some(vec!["protocol", "identity"]),
        // The keyring of the vault holds a device's keys.
        "cli" => Some(vec!["protocol", "identity", "vault", "api"]),
        "sandbox" | "plugins" => Some(vec!["protocol", "egress", "workspace"]),
        // Makes components out of sources; knows nothing of ours but the interface package. So does the SDK.
        "plugins-build" | "plugins-sdk" => Some(vec![]),
        middle if MIDDLE.contains(&middle) => Some(vec!["protocol"]),
        _ => None,
    }
}

/// Checks what `cargo metadata --no-deps` says.
///
/// What is shipped lies below `crates/` and `sdk/`. What measures or tests it may use any crate; this program alone
/// uses none, so that it compiles in seconds. `palyra-testkit` is in no list: only tests use it.
pub fn check(metadata: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in array(&metadata["packages"]) {
        let name = package["name"].as_str().unwrap_or("");
        if name != "xtask" && !is_room(metadata, package) {
            continue;
        }
        let used = array(&package["dependencies"]).iter().filter(|dependency| dependency["kind"] != "dev");
        let used: Vec<_> = used.filter_map(|dependency| dependency["name"].as_str()).collect();
        found.extend(of_crate(name, &used).into_iter().map(|message| Violation::new(name, None, message)));
    }
    found
}

fn is_room(metadata: &Value, package: &Value) -> bool {
    let root = metadata["workspace_root"].as_str().unwrap_or("");
    let manifest = package["manifest_path"].as_str().unwrap_or("");
    manifest.strip_prefix(root).is_some_and(|path| path.starts_with("/crates/") || path.starts_with("/sdk/"))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn of_crate(name: &str, used: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let room = name.strip_prefix("palyra-");
    let allowed = match room {
        None => vec![],
        Some(room) => match may_use(room) {
            Some(allowed) => allowed,
            None => {
                return vec!["this room is not in the plan; say in xtask/src/tidy/edges.rs what it may use".to_owned()];
            }
        },
    };
    for dependency in used {
        if let Some(other) = dependency.strip_prefix("palyra-")
            && !allowed.contains(&other)
        {
            let allowed = if allowed.is_empty() { "no crate of ours".to_owned() } else { allowed.join(", ") };
            found.push(format!("must not depend on `{dependency}`; it may use {allowed}"));
        }
        let door = DOORS.iter().find(|door| door.dependency == *dependency);
        if let Some(door) = door.filter(|door| room.is_none_or(|room| !door.rooms.contains(&room))) {
            found.push(format!("`{dependency}` belongs behind {}", door.rooms.join(", ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SDK: &str = "palyra-plugins-sdk";

    fn check_one(name: &str, dependency: &str, kind: Value, expect: &str) {
        check_at(&format!("crates/{name}"), name, dependency, kind, expect);
    }

    fn check_at(folder: &str, name: &str, dependency: &str, kind: Value, expect: &str) {
        let package = json!({
            "name": name,
            "manifest_path": format!("/repo/{folder}/Cargo.toml"),
            "dependencies": [{ "name": dependency, "kind": kind }],
        });
        let found = check(&json!({ "workspace_root": "/repo", "packages": [package] }));
        let found: Vec<_> = found.into_iter().map(|violation| violation.message).collect();
        assert_eq!(found.join("; "), expect, "{name} -> {dependency}");
    }

    #[test]
    fn edges_of_the_plan_are_allowed() {
        check_one("palyra-engine", "palyra-journal", Value::Null, "");
        check_one("palyra-cli", "palyra-api", Value::Null, "");
        check_one("palyra-policy", "cedar-policy", Value::Null, "");
        check_one("palyra-skills", "palyra-protocol", Value::Null, "");
        check_one("palyra-skills", "zip", Value::Null, "");
        check_one("palyra-cli", "palyra-daemon", json!("dev"), "");
        check_one("palyra-cli", "palyra-testkit", json!("dev"), "");
        check_at("tests/e2e", "palyra-e2e", "palyra-testkit", Value::Null, "");
        check_at("benches", "palyra-bench", "rusqlite", Value::Null, "");
        check_at("xtask", "xtask", "serde_json", Value::Null, "");
    }

    #[test]
    fn other_edges_are_found() {
        check_one(
            "palyra-policy",
            "palyra-journal",
            Value::Null,
            "must not depend on `palyra-journal`; it may use protocol",
        );
        check_one(
            "palyra-protocol",
            "palyra-api",
            json!("build"),
            "must not depend on `palyra-api`; it may use no crate of ours",
        );
        check_one(
            "palyra-cli",
            "palyra-engine",
            Value::Null,
            "must not depend on `palyra-engine`; it may use protocol, identity, vault, api",
        );
        check_one(
            "xtask",
            "palyra-protocol",
            Value::Null,
            "must not depend on `palyra-protocol`; it may use no crate of ours",
        );
        // What tests share is not shipped, by a crate or by what authors of skills build with.
        for (folder, name) in [("crates/palyra-egress", "palyra-egress"), ("sdk/palyra-plugins-sdk", SDK)] {
            let allowed = if name == SDK { "no crate of ours" } else { "protocol" };
            let message = format!("must not depend on `palyra-testkit`; it may use {allowed}");
            check_at(folder, name, "palyra-testkit", Value::Null, &message);
            check_at(folder, name, "palyra-testkit", json!("build"), &message);
        }
        check_one("palyra-engine", "rusqlite", Value::Null, "`rusqlite` belongs behind journal");
        check_one("palyra-daemon", "rustls", Value::Null, "`rustls` belongs behind identity, egress");
        check_one("palyra-engine", "zip", Value::Null, "`zip` belongs behind skills");
        check_one(
            "palyra-skills",
            "tokio",
            Value::Null,
            "`tokio` belongs behind journal, plugins, vault, identity, engine, agent, api, daemon, cli",
        );
        check_one("palyra-vault", "keyring-core", Value::Null, "");
        check_one("palyra-engine", "keyring-core", Value::Null, "`keyring-core` belongs behind vault");
        check_one(
            "palyra-protocol",
            "tokio",
            Value::Null,
            "`tokio` belongs behind journal, plugins, vault, identity, engine, agent, api, daemon, cli",
        );
        check_one(
            "palyra-attic",
            "serde",
            Value::Null,
            "this room is not in the plan; say in xtask/src/tidy/edges.rs what it may use",
        );
    }
}
