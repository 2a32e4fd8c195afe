//! Searching.

use super::super::limits::{MAX_FOUND_BYTES, MAX_SEARCH_MATCHES};
use super::super::{FileError, PatternSyntax, SearchQuery, SearchResult};
use super::{Room, code};

fn query(room: &Room, pattern: &str) -> SearchQuery {
    SearchQuery {
        pattern: pattern.to_owned(),
        syntax: PatternSyntax::Regex,
        path: room.workspace.resolve(".").unwrap(),
        glob: None,
        include_ignored: false,
        case_insensitive: false,
        max_matches: usize::MAX,
        context_lines: 0,
    }
}

fn run(room: &Room, query: &SearchQuery) -> Result<SearchResult, FileError> {
    room.workspace.search(query, &|| false)
}

fn hits(result: &SearchResult) -> Vec<(&str, u64, &str)> {
    result.matches.iter().map(|hit| (hit.path.as_str(), hit.line_number, hit.line.as_str())).collect()
}

fn furnished() -> Room {
    let room = Room::with(&[
        ("a.rs", "one\r\nTwo\nthree (3)\n"),
        ("src/b.rs", "two\n"),
        ("src/c.txt", "two"),
        (".git/config", "two\n"),
        ("binary", "two\0two\n"),
    ]);
    room.link("../outside", "out");
    room.link("a.rs", "again.rs");
    room
}

#[test]
fn lines_are_found_once_and_never_outside() {
    let room = furnished();
    let found = run(&room, &query(&room, "two")).unwrap();
    assert_eq!(hits(&found), [("src/b.rs", 1, "two"), ("src/c.txt", 1, "two")]);
    assert_eq!((found.files_searched, found.skipped_binary, found.truncated), (4, 1, false));
    assert!(run(&room, &query(&room, "secret outside")).unwrap().matches.is_empty());
}

#[test]
fn the_query_narrows() {
    let room = furnished();
    let with = |change: &dyn Fn(&mut SearchQuery)| {
        let mut query = query(&room, "two");
        change(&mut query);
        run(&room, &query).unwrap()
    };
    let found = with(&|query| query.case_insensitive = true);
    assert_eq!(hits(&found), [("a.rs", 2, "Two"), ("src/b.rs", 1, "two"), ("src/c.txt", 1, "two")]);
    assert_eq!(hits(&with(&|query| query.glob = Some("*.rs".into()))), [("src/b.rs", 1, "two")]);
    assert_eq!(hits(&with(&|query| query.glob = Some("src/*.txt".into()))), [("src/c.txt", 1, "two")]);
    assert!(with(&|query| query.glob = Some("s*.rs".into())).matches.is_empty());
    let file = room.workspace.resolve("src/c.txt").unwrap();
    assert_eq!(hits(&with(&|query| query.path = file.clone())), [("src/c.txt", 1, "two")]);
    let git = room.workspace.resolve(".git").unwrap();
    assert_eq!(hits(&with(&|query| query.path = git.clone())), [(".git/config", 1, "two")]);
    let one = with(&|query| query.max_matches = 1);
    assert_eq!((one.matches.len(), one.truncated), (1, true));
    assert!(!with(&|query| query.max_matches = 2).truncated);
    let literal = with(&|query| {
        query.pattern = "(3)".into();
        query.syntax = PatternSyntax::Literal;
        query.context_lines = 9;
    });
    assert_eq!(hits(&literal), [("a.rs", 3, "three (3)")]);
    assert_eq!(literal.matches[0].before, ["one", "Two"]);
    // The carriage return belongs to the line's end.
    assert_eq!(hits(&with(&|query| query.pattern = "one$".into())), [("a.rs", 1, "one")]);
}

#[test]
fn limits_hold_and_are_told() {
    let room = Room::new();
    room.put("many", "x\n".repeat(MAX_SEARCH_MATCHES + 5));
    let found = run(&room, &query(&room, "x")).unwrap();
    assert_eq!((found.matches.len(), found.truncated), (MAX_SEARCH_MATCHES, true));
    room.put("many", format!("{}needle{}\n", "ä".repeat(3000), "ö".repeat(3000)));
    let found = run(&room, &query(&room, "needle")).unwrap();
    let hit = &found.matches[0];
    assert!(hit.line_truncated && hit.line.contains("needle") && !hit.line.contains('\u{fffd}'), "{}", hit.line);
    assert_eq!(hit.line.chars().count(), 500);
    room.put("many", vec![b'x'; 9 * 1024 * 1024]);
    assert_eq!(run(&room, &query(&room, "x")).unwrap().skipped_large, 1);
}

#[test]
fn bad_patterns_are_refused_with_a_reason_on_one_line() {
    let room = furnished();
    for bad in ["(", "[z-a]", "", "(?P<", &"a".repeat(5000), "(((a{100}){100}){100})", "\\p{Foo}"] {
        let error = run(&room, &query(&room, bad)).unwrap_err();
        assert_eq!(error.code(), "pattern_invalid", "{bad}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let mut bad_glob = query(&room, "x");
    bad_glob.glob = Some("[".into());
    assert_eq!(code(run(&room, &bad_glob)), "pattern_invalid");
}

#[test]
fn a_search_stops_when_asked() {
    let room = furnished();
    assert_eq!(code(room.workspace.search(&query(&room, "x"), &|| true)), "cancelled");
}

#[test]
fn a_search_stops_within_a_line() {
    let room = Room::new();
    room.put("line", vec![b'a'; 4_000_000]);
    let asked = std::cell::Cell::new(0);
    let soon = || {
        asked.set(asked.get() + 1);
        asked.get() > 5
    };
    // A hundred steps for every byte: were it not asked within the line, this test would not end.
    assert_eq!(code(room.workspace.search(&query(&room, "a[ab]{200}[^ab]"), &soon)), "cancelled");
    assert_eq!(asked.get(), 6);
}

#[test]
fn a_long_line_is_searched_in_pieces_that_overlap() {
    let room = Room::new();
    let at = |place: usize| format!("{}needle{}", "-".repeat(place), "-".repeat(300_000 - place));
    for place in [0, 4090, 16_380, 49_150, 65_531, 65_536, 131_000, 299_999, 300_000] {
        room.put("line", at(place));
        for pattern in ["needle", r"n\w+e\w*", r"(\w{6}){1,3}"] {
            let found = run(&room, &query(&room, pattern)).unwrap();
            assert_eq!(found.matches.len(), 1, "{pattern} at {place}");
            assert!(found.matches[0].line.contains("needle"), "{pattern} at {place}");
            assert_eq!(found.lines_in_pieces, 1);
        }
        // A piece's borders are not the line's.
        assert_eq!(run(&room, &query(&room, "^needle")).unwrap().matches.len(), usize::from(place == 0), "{place}");
        assert_eq!(run(&room, &query(&room, "needle$")).unwrap().matches.len(), usize::from(place == 300_000));
        assert!(run(&room, &query(&room, r"-\b-")).unwrap().matches.is_empty(), "{place}");
    }
    room.put("line", "-".repeat(300_000));
    for none in ["^-$", "--$(?-m:.)", r"-\b"] {
        assert!(run(&room, &query(&room, none)).unwrap().matches.is_empty(), "{none}");
    }
}

#[test]
fn an_answer_has_a_size() {
    let room = Room::new();
    room.put("many", format!("{}\n", "ä".repeat(600)).repeat(MAX_SEARCH_MATCHES));
    let found = run(&room, &SearchQuery { context_lines: 5, ..query(&room, "ä") }).unwrap();
    let size: usize = found.matches.iter().flat_map(|hit| hit.before.iter().chain(&hit.after)).map(String::len).sum();
    assert!(found.truncated && !found.matches.is_empty() && size <= MAX_FOUND_BYTES, "{size}");
}
