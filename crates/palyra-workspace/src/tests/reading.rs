//! Reading and listing.

use super::super::limits::MAX_READ_BYTES;
use super::super::{EntryKind, ListOptions, ReadRange};
use super::{Room, code, going_on};
use std::fs;

#[test]
fn a_read_gives_a_part_and_the_digest_of_the_whole() {
    let room = Room::with(&[("f", "0123456789")]);
    let path = room.workspace.resolve("f").unwrap();
    let whole = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
    for (offset, limit, bytes, truncated) in [
        (0, 100, "0123456789", false),
        (0, 10, "0123456789", false),
        (0, 9, "012345678", true),
        (3, 4, "3456", true),
        (8, 10, "89", false),
        (10, 5, "", false),
        (u64::MAX, usize::MAX, "", false),
        (0, 0, "", true),
    ] {
        let content = room.workspace.read(&path, ReadRange { offset, limit }).unwrap();
        assert_eq!(content.bytes, bytes.as_bytes(), "{offset} {limit}");
        assert_eq!((content.truncated, content.total_bytes), (truncated, 10), "{offset} {limit}");
        assert_eq!(content.sha256_hex.as_deref(), Some(whole));
    }
}

#[test]
fn a_large_file_comes_in_parts() {
    let room = Room::new();
    let bytes: Vec<u8> = (0..MAX_READ_BYTES + 77_777).map(|n| (n % 251) as u8).collect();
    room.put("big", &bytes);
    let path = room.workspace.resolve("big").unwrap();
    let first = room.workspace.read(&path, ReadRange { offset: 0, limit: usize::MAX }).unwrap();
    assert_eq!((first.bytes.len(), first.truncated), (MAX_READ_BYTES, true));
    let second = room.workspace.read(&path, ReadRange { offset: MAX_READ_BYTES as u64, limit: usize::MAX }).unwrap();
    assert!(!second.truncated);
    assert_eq!([first.bytes, second.bytes].concat(), bytes);
}

#[test]
fn a_file_beyond_the_digest_limit_is_read_without_one() {
    let room = Room::new();
    let file = fs::File::create(room.root.join("sparse")).unwrap();
    file.set_len(10 * 1024 * 1024 * 1024).unwrap();
    let path = room.workspace.resolve("sparse").unwrap();
    let content = room.workspace.read(&path, ReadRange { offset: 9 * 1024 * 1024 * 1024, limit: 16 }).unwrap();
    assert_eq!((content.bytes.len(), content.truncated, content.sha256_hex), (16, true, None));
}

#[test]
fn only_regular_files_are_opened_and_nothing_hangs() {
    let room = Room::with(&[("d/x", "x")]);
    let fifo = room.root.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(room.root.join("socket")).unwrap();
    // One that waited for a writer would wait forever.
    for (path, expect) in
        [("fifo", "not_a_regular_file"), ("socket", "not_a_regular_file"), ("d", "is_directory"), (".", "is_directory")]
    {
        assert_eq!(code(room.read(path)), expect, "{path}");
        assert_eq!(code(room.write(path, "x")), expect, "{path}");
        let diff = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n");
        assert_eq!(code(room.patch(&diff)), expect, "{path}");
    }
    assert_eq!(code(room.read("none")), "not_found");
    room.assert_clean();
}

#[test]
fn a_hard_link_is_read_and_never_written_through() {
    let room = Room::new();
    fs::hard_link(room.outside.join("secret"), room.root.join("linked")).unwrap();
    assert!(room.read("linked").is_ok());
    room.write("linked", "mine\n").unwrap();
    room.assert_clean();
    assert_eq!(room.text("linked"), "mine\n");
}

#[test]
fn a_listing_is_sorted_and_follows_no_link() {
    let room = Room::with(&[("b/z", "1"), ("b/a/x", "22"), ("a", ""), ("c", "333")]);
    room.link("../outside", "out");
    let list = |path: &str, depth, max_entries| {
        let path = room.workspace.resolve(path).unwrap();
        room.workspace.list(&path, ListOptions { depth, max_entries, ..ListOptions::default() }, &going_on).unwrap()
    };
    let names = |listing: &super::super::Listing| -> Vec<String> {
        listing.entries.iter().map(|entry| entry.path.clone()).collect()
    };
    assert_eq!(names(&list(".", 1, 100)), ["a", "b", "c", "out"]);
    assert_eq!(names(&list(".", 0, 100)), ["a", "b", "c", "out"]);
    assert_eq!(names(&list(".", 99, 100)), ["a", "b", "b/a", "b/a/x", "b/z", "c", "out"]);
    assert_eq!(names(&list("b", 2, 100)), ["b/a", "b/a/x", "b/z"]);
    let cut = list(".", 99, 3);
    assert_eq!((names(&cut).len(), cut.truncated), (3, true));
    let whole = list(".", 99, 7);
    assert!(!whole.truncated);
    let kinds: Vec<_> = whole.entries.iter().map(|entry| entry.kind).collect();
    use EntryKind::{Directory, File, Symlink};
    assert_eq!(kinds, [File, Directory, Directory, File, File, File, Symlink]);
    assert_eq!(whole.entries[3].size, 2);
    assert!(whole.entries[3].modified_ms > 1_500_000_000_000);
    assert_eq!(
        code(room.workspace.list(&room.workspace.resolve("c").unwrap(), Default::default(), &going_on)),
        "not_a_directory"
    );
    assert_eq!(
        code(room.workspace.list(&room.workspace.resolve("no").unwrap(), Default::default(), &going_on)),
        "not_found"
    );
}
