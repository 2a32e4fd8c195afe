//! Texts that try to leave, and texts that only look as if they did.

use super::super::{Errand, FileError, ListOptions, ReadRange, Workspace, WriteOptions};
use super::{Room, SECRET, code, going_on};
use palyra_protocol::CallId;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// The room of the table: files, and links of every kind.
fn furnished() -> Room {
    let room = Room::with(&[("a/b/file", "inside\n"), ("top", "top\n"), ("back\\slash", "odd\n"), ("~tilde", "t\n")]);
    room.link("a", "dir_link");
    room.link("a/b/file", "file_link");
    room.link("../outside", "out_dir");
    room.link("../outside/secret", "out_file");
    room.link(room.outside.join("secret"), "out_absolute");
    room.link("../outside/not-yet", "out_dangling");
    room.link("/", "slash");
    room.link("/proc/self/root", "magic");
    room.link("../ws/top", "out_and_back");
    room.link("a/new", "dangling");
    room.link("loop2", "loop1");
    room.link("loop1", "loop2");
    room.link("self/x", "self");
    room.link("..", "a/up");
    room.link(room.root.join("a"), "absolute_inside");
    room.link("a/b/file/", "file_as_dir");
    room
}

#[test]
fn the_table_of_paths() {
    let room = furnished();
    let absolute = |rest: &str| format!("{}{rest}", room.root.display());
    let deep = "x/".repeat(200);
    let long = "x".repeat(5000);
    let name = "x".repeat(300);
    let table: Vec<(String, Result<&str, &str>)> = [
        // Plain and not so plain ways inside.
        (".", Ok(".")),
        ("./", Ok(".")),
        ("a/..", Ok(".")),
        ("top", Ok("top")),
        ("./top", Ok("top")),
        ("a//b/./file", Ok("a/b/file")),
        ("a/../top", Ok("top")),
        ("a/b/", Ok("a/b")),
        ("a/b/.", Ok("a/b")),
        ("a/b/../../a/b/file", Ok("a/b/file")),
        ("back\\slash", Ok("back\\slash")),
        ("./~tilde", Ok("~tilde")),
        ("new\nname", Ok("new\nname")),
        ("dir_link", Ok("a")),
        ("dir_link/b/file", Ok("a/b/file")),
        ("dir_link/", Ok("a")),
        ("file_link", Ok("a/b/file")),
        ("absolute_inside/b/file", Ok("a/b/file")),
        ("a/up/top", Ok("top")),
        ("a/up/a/up/a/b", Ok("a/b")),
        // What a link's `..` means is what the kernel means: the parent of its target.
        ("dir_link/../top", Ok("top")),
        // Not there yet.
        ("new", Ok("new")),
        ("new/deeper/file", Ok("new/deeper/file")),
        ("dir_link/new", Ok("a/new")),
        ("dangling", Ok("a/new")),
        ("...", Ok("...")),
        // Ways out.
        ("..", Err("path_outside_workspace")),
        ("../ws/top", Err("path_outside_workspace")),
        ("../outside/secret", Err("path_outside_workspace")),
        ("a/../../outside/secret", Err("path_outside_workspace")),
        ("a/up/../outside/secret", Err("path_outside_workspace")),
        ("dir_link/../../outside", Err("path_outside_workspace")),
        ("/", Err("path_outside_workspace")),
        ("/etc/passwd", Err("path_outside_workspace")),
        ("//etc/passwd", Err("path_outside_workspace")),
        ("out_dir", Err("path_outside_workspace")),
        ("out_dir/secret", Err("path_outside_workspace")),
        ("out_file", Err("path_outside_workspace")),
        ("out_absolute", Err("path_outside_workspace")),
        ("out_dangling", Err("path_outside_workspace")),
        ("out_and_back", Err("path_outside_workspace")),
        ("slash/etc/passwd", Err("path_outside_workspace")),
        ("magic/etc/passwd", Err("path_outside_workspace")),
        // Nonsense.
        ("", Err("path_invalid")),
        ("a\0b", Err("path_invalid")),
        ("~", Err("path_invalid")),
        ("~/x", Err("path_invalid")),
        ("~root/x", Err("path_invalid")),
        ("loop1", Err("symlink_loop")),
        ("loop1/x", Err("symlink_loop")),
        ("self", Err("symlink_loop")),
        ("top/", Err("not_a_directory")),
        ("top/x", Err("not_a_directory")),
        ("top/..", Err("not_a_directory")),
        ("file_as_dir", Err("not_a_directory")),
        ("file_link/x", Err("not_a_directory")),
        ("new/", Err("not_found")),
        ("new/../top", Err("not_found")),
        ("new/../../outside", Err("not_found")),
        (&deep, Err("path_too_long")),
        (&long, Err("path_too_long")),
        (&name, Err("path_too_long")),
    ]
    .into_iter()
    .map(|(text, expect)| (text.to_owned(), expect))
    .chain([
        (absolute(""), Ok(".")),
        (absolute("/"), Ok(".")),
        (absolute("/a/b/file"), Ok("a/b/file")),
        (absolute("/../outside/secret"), Err("path_outside_workspace")),
        (absolute("x/top"), Err("path_outside_workspace")),
        (absolute("/../ws/top"), Err("path_outside_workspace")),
    ])
    .collect();
    for (text, expect) in table {
        let got = room.workspace.resolve(&text);
        let got = got.as_ref().map(super::super::ResolvedPath::as_str).map_err(FileError::code);
        assert_eq!(got, expect, "{text:?}");
    }
}

#[test]
fn nothing_that_leaves_is_read_or_written() {
    let room = furnished();
    let ways = ["out_file", "out_dir/secret", "out_absolute", "../outside/secret", "slash/etc/passwd", "out_dangling"];
    for way in ways {
        assert_eq!(code(room.read(way)), "path_outside_workspace", "{way}");
        assert_eq!(code(room.write(way, "x")), "path_outside_workspace", "{way}");
        let create = format!("--- /dev/null\n+++ b/{way}\n@@ -0,0 +1 @@\n+x\n");
        let edit = format!("--- a/{way}\n+++ b/{way}\n@@ -1 +1 @@\n-{SECRET}+x\n");
        assert_eq!(code(room.patch(&create)), "path_outside_workspace", "{way}");
        assert_eq!(code(room.patch(&edit)), "path_outside_workspace", "{way}");
    }
    room.assert_clean();
}

#[test]
fn a_dangling_link_inside_is_written_where_it_points() {
    let room = furnished();
    assert!(room.write("dangling", "made\n").unwrap().created);
    assert_eq!(room.text("a/new"), "made\n");
    assert!(fs::symlink_metadata(room.root.join("dangling")).unwrap().is_symlink());
    room.assert_clean();
}

#[test]
fn a_name_that_is_not_utf8_is_refused_behind_a_link_and_flagged_in_a_listing() {
    let room = Room::new();
    let name = std::ffi::OsStr::from_bytes(b"bad\xff");
    fs::write(room.root.join(name), "x").unwrap();
    room.link(name, "to_bad");
    assert_eq!(code(room.workspace.resolve("to_bad")), "path_not_utf8");
    let listing = room.workspace.list(&room.workspace.resolve(".").unwrap(), Default::default(), &going_on).unwrap();
    let flags: Vec<_> = listing.entries.iter().map(|entry| (entry.path.as_str(), entry.lossy_name)).collect();
    assert_eq!(flags, [("bad\u{fffd}", true), ("to_bad", false)]);
}

#[test]
fn the_root_is_resolved_once_and_must_be_a_directory() {
    let room = Room::with(&[("file", "x")]);
    let alias = room.outside.join("alias");
    std::os::unix::fs::symlink(&room.root, &alias).unwrap();
    let workspace = Workspace::open(&alias).unwrap();
    assert_eq!(workspace.root(), room.root);
    assert_eq!(workspace.resolve(alias.join("file").to_str().unwrap()).unwrap().as_str(), "file");
    fs::remove_file(&alias).unwrap();
    std::os::unix::fs::symlink(&room.outside, &alias).unwrap();
    let path = workspace.resolve(alias.join("secret").to_str().unwrap()).unwrap();
    assert_eq!((path.as_str(), path.existed()), ("secret", false));
    assert_eq!(code(Workspace::open(&room.root.join("file"))), "not_a_directory");
    assert_eq!(code(Workspace::open(&room.root.join("none"))), "not_found");
}

#[test]
fn messages_name_the_path_and_are_bounded() {
    let room = Room::new();
    let error = room.workspace.resolve(&"y".repeat(100_000)).unwrap_err();
    assert!(error.to_string().len() < 1000);
    let error = room.workspace.resolve("~/x").unwrap_err().to_string();
    assert!(error.contains("`~/x`") && error.contains("not expanded"), "{error}");
}

/// Moved away, removed, or exchanged for another: nothing is opened in either.
#[test]
fn a_root_that_was_replaced_is_noticed_by_every_operation() {
    let room = Room::new();
    fs::write(room.root.join("file"), "old").unwrap();
    let path = room.workspace.resolve("file").unwrap();
    let root = room.workspace.resolve(".").unwrap();
    let moved = room.root.with_file_name("ws.old");
    let replaced = |what: &str| {
        let workspace = &room.workspace;
        let call = CallId::mint();
        let errand = Errand { call: &call, stop: &|| false };
        let options = WriteOptions::default();
        let never = || false;
        let codes = [
            workspace.in_place().map(drop),
            workspace.resolve("file").map(drop),
            workspace.read(&path, ReadRange::default()).map(drop),
            workspace.write(&path, b"new", &options, errand).map(drop),
            workspace.list(&root, ListOptions::default(), &never).map(drop),
            workspace.plan_patch("--- a/file\n+++ b/file\n@@ -1 +1 @@\n-old\n+new\n").map(drop),
        ];
        for (n, result) in codes.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert_eq!(error.code(), "workspace_replaced", "{what} {n}: {error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("palyra up --workspace")));
        }
    };
    fs::rename(&room.root, &moved).unwrap();
    replaced("moved");
    fs::create_dir(&room.root).unwrap();
    replaced("another");
    fs::remove_dir(&room.root).unwrap();
    std::os::unix::fs::symlink(&room.outside, &room.root).unwrap();
    replaced("a link");
    fs::remove_file(&room.root).unwrap();
    fs::rename(&moved, &room.root).unwrap();
    assert_eq!(room.workspace.read(&path, ReadRange::default()).unwrap().bytes, b"old", "put back, all is well");
}
