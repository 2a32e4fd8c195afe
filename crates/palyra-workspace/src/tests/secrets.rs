//! Secret files: which there are, and that nothing leads past the list.

use super::{Room, going_on};
use crate::{PatternSyntax, SearchQuery, SecretRules};
use std::sync::Arc;

fn found(room: &Room) -> Vec<String> {
    room.workspace.secret_files().unwrap().into_iter().map(|file| file.path).collect()
}

fn is_secret(room: &Room, path: &str) -> bool {
    room.workspace.is_secret(&room.workspace.resolve(path).unwrap())
}

#[test]
fn secrets_are_known_by_name_and_keys_by_what_they_hold() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
    let secret = [
        (".env", "A=1\n"),
        ("api/.env.production", "A=1\n"),
        ("deploy/prod.ENV", "A=1\n"),
        ("service-account-x.json", "{}"),
        ("certs/server.pem", key),
        ("id_ed25519", key),
        ("infra/terraform.tfvars", "a = 1\n"),
        (".npmrc", "//registry.example/:_authToken=x\n"),
    ];
    let plain = [
        (".env.example", "A=\n"),
        ("certs/ca.pem", "-----BEGIN CERTIFICATE-----\n"),
        ("node_modules/x/.env", "A=1\n"),
        ("sub/.npmrc", "registry=https://registry.example\n"),
        ("src/env.rs", "fn main() {}\n"),
        ("environment", "x"),
    ];
    let room = Room::with(&[&secret[..], &plain[..]].concat());
    let mut expected: Vec<_> = secret.iter().map(|(path, _)| (*path).to_owned()).collect();
    expected.sort();
    assert_eq!(found(&room), expected);
    for (path, _) in secret {
        assert!(is_secret(&room, path), "{path}");
    }
    for (path, _) in plain {
        assert!(!is_secret(&room, path), "{path}");
    }
}

#[test]
fn what_changes_is_found_again_and_links_lead_to_what_they_name() {
    let room = Room::with(&[("a/b/c.txt", "x"), ("settings.txt", "A=1\n")]);
    assert_eq!(found(&room), [""; 0]);
    room.put("a/b/.env", "A=1\n");
    assert_eq!(found(&room), ["a/b/.env"]);
    std::fs::rename(room.root.join("a"), room.root.join("z")).unwrap();
    assert_eq!(found(&room), ["z/b/.env"]);
    std::fs::remove_file(room.root.join("z/b/.env")).unwrap();
    room.link("settings.txt", ".env");
    assert_eq!(found(&room), ["settings.txt"]);
    assert!(is_secret(&room, "settings.txt") && is_secret(&room, ".env"));
    std::fs::remove_file(room.root.join(".env")).unwrap();
    room.link(room.outside.join("secret"), ".env");
    assert_eq!(found(&room), [""; 0]);
}

#[test]
fn what_git_holds_with_the_same_content_is_no_secret() {
    let room = Room::with(&[(".env", "A=1\n"), ("other.env", "A=1\n")]);
    let git = |words: &[&str]| {
        let done = std::process::Command::new("git").current_dir(&room.root).args(words).output().unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", ".env"]);
    assert_eq!(found(&room), ["other.env"]);
    // An index that names the path and not the content is an agent's word.
    room.put(".env", "A=2\n");
    let files = room.workspace.secret_files().unwrap();
    assert!(files.iter().any(|file| file.path == ".env" && file.is_tracked), "{files:?}");
    assert!(files.iter().any(|file| file.path == "other.env" && !file.is_tracked), "{files:?}");
}

#[test]
fn a_search_passes_secrets_by_and_says_so() {
    let room = Room::with(&[(".env", "KEY=one\n"), ("src/a.rs", "KEY\n")]);
    let query = SearchQuery {
        pattern: "KEY".to_owned(),
        syntax: PatternSyntax::Literal,
        path: room.workspace.resolve(".").unwrap(),
        glob: None,
        include_ignored: true,
        case_insensitive: false,
        max_matches: 10,
        context_lines: 0,
    };
    let result = room.workspace.search(&query, &going_on).unwrap();
    assert_eq!((result.matches.len(), result.skipped_secret), (1, 1));
    assert_eq!(result.matches[0].path, "src/a.rs");
}

#[test]
fn operators_add_and_take_away() {
    let rules = SecretRules::new(["!.env.ci", "/private/", "~*.cfg"]).unwrap();
    let mut room = Room::with(&[(".env.ci", "A=1"), ("private/x", "1"), ("a.cfg", "token=1"), ("b.cfg", "colour=1")]);
    room.workspace = crate::Workspace::open(&room.root).unwrap().with_secret_rules(Arc::new(rules));
    assert_eq!(found(&room), ["a.cfg", "private/x"]);
    for bad in ["../x", "!", "~", "["] {
        assert!(SecretRules::new([bad]).is_err(), "{bad}");
    }
}

#[test]
fn the_index_of_git_is_read_whatever_it_holds() {
    for bytes in [&b""[..], b"DIRC", b"DIRC\0\0\0\x02\xff\xff\xff\xff", b"DIRC\0\0\0\x02\0\0\0\x01short"] {
        crate::fuzzing::git_index(bytes);
    }
}
