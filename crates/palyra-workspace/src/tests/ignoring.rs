//! What ignore files leave out of searches and deep listings.

use super::super::limits::{MAX_IGNORE_BYTES, MAX_IGNORE_FILE_BYTES, MAX_IGNORE_LINE_BYTES};
use super::super::{ListOptions, Listing, PatternSyntax, SearchQuery, SearchResult, fuzzing};
use super::{Room, SECRET, going_on};
use std::fs;

fn search_in(room: &Room, path: &str, include_ignored: bool) -> SearchResult {
    let query = SearchQuery {
        pattern: "hit".to_owned(),
        syntax: PatternSyntax::Literal,
        path: room.workspace.resolve(path).unwrap(),
        glob: None,
        include_ignored,
        case_insensitive: false,
        max_matches: 100,
        context_lines: 0,
    };
    room.workspace.search(&query, &going_on).unwrap()
}

fn found(room: &Room, path: &str) -> Vec<String> {
    search_in(room, path, false).matches.into_iter().map(|hit| hit.path).collect()
}

fn list_in(room: &Room, path: &str, depth: usize, include_ignored: bool) -> Listing {
    let options = ListOptions { depth, include_ignored, ..ListOptions::default() };
    room.workspace.list(&room.workspace.resolve(path).unwrap(), options, &going_on).unwrap()
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| entry.path.as_str()).collect()
}

/// A project whose environment holds more matches than an answer has room for.
fn project() -> Room {
    let room = Room::with(&[
        (".gitignore", ".venv/\n*.log\n/build\n!keep.log\n"),
        ("src/main.py", "hit\n"),
        ("src/build/notes", "hit\n"),
        ("build/out", "hit\n"),
        ("keep.log", "hit\n"),
        ("a.log", "hit\n"),
        ("src/deep/.gitignore", "local\n!kept.log\n"),
        ("src/deep/kept.log", "hit\n"),
        ("src/deep/local/x", "hit\n"),
    ]);
    for n in 0..150 {
        room.put(&format!(".venv/lib/p{n}.py"), "hit\n");
    }
    room
}

#[test]
fn a_search_finds_the_project_and_not_its_environment() {
    let room = project();
    let result = search_in(&room, ".", false);
    let paths: Vec<_> = result.matches.iter().map(|hit| hit.path.as_str()).collect();
    assert_eq!(paths, ["keep.log", "src/build/notes", "src/deep/kept.log", "src/main.py"]);
    assert_eq!((result.truncated, result.skipped_ignored, result.unreadable), (false, 4, 0));
    let everything = search_in(&room, ".", true);
    assert_eq!((everything.matches.len(), everything.truncated, everything.skipped_ignored), (100, true, 0));
}

#[test]
fn rules_from_above_the_start_count_unless_they_ignore_it() {
    let room = project();
    assert_eq!(found(&room, "src/deep"), ["src/deep/kept.log"]);
    room.put("src/x.log", "hit\n");
    assert_eq!(found(&room, "src"), ["src/build/notes", "src/deep/kept.log", "src/main.py"]);
    // Whoever names what is ignored wants to see it, with all that is beneath it.
    assert_eq!(found(&room, "build"), ["build/out"]);
    assert_eq!(search_in(&room, ".venv/lib", false).matches.len(), 100);
    assert_eq!(found(&room, "a.log"), ["a.log"]);
}

#[test]
fn a_deep_listing_leaves_out_and_a_flat_one_does_not() {
    let room = project();
    room.put(".git/objects/x", "x");
    let deep = list_in(&room, ".", 9, false);
    assert_eq!(
        names(&deep),
        [
            ".git",
            ".gitignore",
            "keep.log",
            "src",
            "src/build",
            "src/build/notes",
            "src/deep",
            "src/deep/.gitignore",
            "src/deep/kept.log",
            "src/main.py"
        ]
    );
    assert_eq!(deep.skipped_ignored, 4);
    let whole = list_in(&room, ".", 9, true);
    assert!(names(&whole).contains(&".venv/lib/p0.py") && names(&whole).contains(&".git/objects/x"));
    let flat = list_in(&room, ".", 1, false);
    assert_eq!(names(&flat), [".git", ".gitignore", ".venv", "a.log", "build", "keep.log", "src"]);
    assert_eq!(names(&list_in(&room, ".git", 9, false)), [".git/objects", ".git/objects/x"]);
}

#[test]
fn ignore_outranks_gitignore_and_a_repository_has_rules_of_its_own() {
    let room = Room::with(&[
        (".gitignore", "*.gen\n"),
        (".ignore", "*.tmp\n!a.gen\n"),
        ("a.gen", "hit\n"),
        ("b.gen", "hit\n"),
        ("nested/.git", "gitdir: elsewhere\n"),
        ("nested/c.gen", "hit\n"),
        ("nested/d.tmp", "hit\n"),
    ]);
    // The outer `.gitignore` is another repository's; `.ignore` knows no repositories.
    assert_eq!(found(&room, "."), ["a.gen", "nested/c.gen"]);
    assert_eq!(found(&room, "nested"), ["nested/c.gen"]);
}

#[test]
fn no_ignore_file_outside_the_workspace_is_read() {
    let room = Room::with(&[("a", "hit\n"), ("sub/b", "hit\n")]);
    // Above the root, behind links, and in git's own directory.
    fs::write(room.root.parent().unwrap().join(".gitignore"), "a\nsub\n").unwrap();
    fs::write(room.outside.join("rules"), "a\nb\n").unwrap();
    room.link("../outside/rules", ".gitignore");
    room.link("../../outside/rules", "sub/.ignore");
    room.put(".git/info/exclude", "a\nb\n");
    let result = search_in(&room, ".", false);
    assert_eq!(result.matches.len(), 2, "{result:?}");
    assert_eq!((result.skipped_ignored, result.unreadable), (0, 2), "links are counted, not followed");
    fs::remove_file(room.outside.join("rules")).unwrap();
    assert_eq!(fs::read_to_string(room.outside.join("secret")).unwrap(), SECRET);
}

#[test]
fn an_ignore_file_beyond_the_limits_has_no_effect_and_is_counted() {
    let room = Room::with(&[("a", "hit\n")]);
    let large = "a\n".repeat(usize::try_from(MAX_IGNORE_FILE_BYTES).unwrap() / 2 + 1);
    room.put(".gitignore", &large);
    let result = search_in(&room, ".", false);
    assert_eq!((result.matches.len(), result.unreadable), (1, 1));
    // Each within its limit, all of them beyond theirs.
    let most = usize::try_from(MAX_IGNORE_FILE_BYTES).unwrap();
    let files = usize::try_from(MAX_IGNORE_BYTES / MAX_IGNORE_FILE_BYTES).unwrap() + 2;
    room.put(".gitignore", "");
    for n in 0..files {
        room.put(&format!("d{n:02}/.gitignore"), "#".repeat(most));
    }
    assert_eq!(search_in(&room, ".", false).unreadable, 2);
}

#[test]
fn hostile_ignore_files_are_harmless() {
    let nested = |depth: usize| format!("{}{}", "{".repeat(depth), "}".repeat(depth));
    let seeds = [
        String::new(),
        "\u{feff}a\r\n# c\n\\#x\n!\n/\n//\n**\n!**\n\\\n[\n[z-a]\n{\n}\n{a,{b,c}}\n".to_owned(),
        nested(MAX_IGNORE_LINE_BYTES / 2),
        nested(30_000),
        "*".repeat(60_000),
        "*a".repeat(500),
        "[!a]*\n".repeat(9_000),
        "\u{0}\u{1b}\u{202e}\n\\ ".to_owned(),
    ];
    for seed in &seeds {
        fuzzing::ignore_file(seed.as_bytes());
        let room = Room::with(&[("a", "hit\n")]);
        room.put(".gitignore", seed);
        search_in(&room, ".", false);
    }
    fuzzing::ignore_file(&[0xff, b'\n', 0xc3, 0x28, b'*']);
}
