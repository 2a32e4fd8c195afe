//! What was shown is what is opened, although things move in between.

use super::super::beneath::{DirUse, walk_dir};
use super::super::rename::{exchange, exchange_in_three, link_then_unlink, rename_no_replace};
use super::super::transaction::{Expect, Identity, Place, Rights, Transaction};
use super::super::{ReadRange, ResolvedPath, SearchQuery, WriteOptions};
use super::{CALL, Room, SECRET, code, errand, going_on};
use crate::PatternSyntax;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Does to a resolved path everything that the room can do, and expects the same refusal of all.
fn every_operation_says(room: &Room, path: &ResolvedPath, expect: &str) {
    let workspace = &room.workspace;
    assert_eq!(code(workspace.read(path, ReadRange::default())), expect);
    assert_eq!(code(workspace.list(path, Default::default(), &going_on)), expect);
    assert_eq!(code(workspace.search(&everything(path), &|| false)), expect);
    for create_parents in [false, true] {
        let options = WriteOptions { create_parents, ..Default::default() };
        assert_eq!(code(workspace.write(path, b"overwritten", &options, errand(&going_on))), expect);
    }
    room.assert_clean();
}

fn everything(path: &ResolvedPath) -> SearchQuery {
    SearchQuery {
        pattern: ".".into(),
        syntax: PatternSyntax::Regex,
        path: path.clone(),
        glob: None,
        include_ignored: false,
        case_insensitive: false,
        max_matches: 10,
        context_lines: 0,
    }
}

#[test]
fn shown_is_opened_when_the_file_becomes_a_link() {
    let room = Room::with(&[("secret", "mine\n")]);
    let path = room.workspace.resolve("secret").unwrap();
    fs::remove_file(room.root.join("secret")).unwrap();
    room.link("../outside/secret", "secret");
    every_operation_says(&room, &path, "symlink_race");
}

#[test]
fn shown_is_opened_when_a_directory_becomes_a_link() {
    let room = Room::with(&[("a/d/secret", "mine\n")]);
    let path = room.workspace.resolve("a/d/secret").unwrap();
    fs::rename(room.root.join("a/d"), room.root.join("a/moved")).unwrap();
    room.link("../../outside", "a/d");
    every_operation_says(&room, &path, "symlink_race");
    // Also when the link stays inside: policy was asked about another path.
    fs::remove_file(room.root.join("a/d")).unwrap();
    room.link("moved", "a/d");
    every_operation_says(&room, &path, "symlink_race");
}

#[test]
fn shown_is_opened_when_a_missing_parent_becomes_a_link() {
    let room = Room::new();
    let path = room.workspace.resolve("new/secret").unwrap();
    room.link("../outside", "new");
    every_operation_says(&room, &path, "symlink_race");
}

#[test]
fn shown_is_opened_when_a_patched_file_becomes_a_link() {
    let room = Room::with(&[("first", "1\n"), ("d/secret", SECRET)]);
    let diff = format!(
        "--- a/first\n+++ b/first\n@@ -1 +1 @@\n-1\n+2\n--- a/d/secret\n+++ b/d/secret\n@@ -1 +1 @@\n-{SECRET}+gone\n"
    );
    let plan = room.workspace.plan_patch(&diff).unwrap();
    fs::rename(room.root.join("d"), room.root.join("e")).unwrap();
    room.link("../outside", "d");
    assert_eq!(code(room.workspace.apply_patch(plan, errand(&going_on))), "symlink_race");
    assert_eq!(room.text("first"), "1\n");
    room.assert_clean();
}

#[test]
fn the_portable_walk_refuses_links_like_the_kernel_does() {
    let room = Room::with(&[("a/b/file", "x")]);
    room.link("a", "link");
    room.link("../../outside", "a/b/out");
    let root = room.workspace.root_fd();
    for usage in [DirUse::Lookup, DirUse::Content] {
        assert!(walk_dir(root, "a/b", usage).is_ok());
        assert!(room.workspace.open_dir("a/b", usage).is_ok());
        for (path, expect) in [
            ("link", "symlink_race"),
            ("link/b", "symlink_race"),
            ("a/b/out", "symlink_race"),
            ("a/b/file", "not_a_directory"),
            ("a/b/file/x", "not_a_directory"),
            ("a/none", "not_found"),
        ] {
            assert_eq!(code(walk_dir(root, path, usage)), expect, "{path}");
            assert_eq!(code(room.workspace.open_dir(path, usage)), expect, "{path}");
        }
    }
}

/// Exchanges two names all the time while `attempt` runs, until both its outcomes were seen often.
fn while_exchanging(room: &Room, one: &str, other: &str, attempt: impl Fn(usize) -> bool) {
    const MOST_ROUNDS: usize = 200_000;
    struct StopOnDrop<'a>(&'a AtomicBool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                exchange(room.workspace.root_fd(), one, other).unwrap();
            }
        });
        // Also when an assertion fails: otherwise the other thread would go on for ever.
        let _stop = StopOnDrop(&over);
        for round in 0..MOST_ROUNDS {
            if round > 2000 && done > 50 && refused > 50 {
                break;
            }
            *(if attempt(round) { &mut done } else { &mut refused }) += 1;
        }
    });
    assert!(done > 0 && refused > 0, "the race did not happen: {done} done, {refused} refused");
    // A write that met the exchange while it was being undone may keep an original under a temporary name.
    room.assert_outside_untouched();
}

/// A directory and a link to the outside change places all the time, while others resolve, read, write and patch
/// through the name. Whatever happens, nobody reads or changes the secret.
#[test]
fn a_directory_that_keeps_changing_never_leads_outside() {
    let room = Room::with(&[("d/secret", "mine\n")]);
    room.link("../outside", "link");
    while_exchanging(&room, "d", "link", |round| {
        let patch = "--- a/d/secret\n+++ b/d/secret\n@@ -1 +1 @@\n-the secret outside\n+gone\n";
        assert!(room.patch(patch).is_err());
        let options = WriteOptions { create_parents: true, ..Default::default() };
        let outcome = room.workspace.resolve("d/secret").and_then(|path| {
            assert_eq!(path.as_str(), "d/secret");
            if round % 3 == 0 {
                room.workspace.write(&path, b"mine\n", &options, errand(&going_on))?;
            }
            room.workspace.read(&path, ReadRange::default())
        });
        outcome.is_ok_and(|content| {
            assert_eq!(content.bytes, b"mine\n");
            true
        })
    });
}

/// The same with the file itself, opened under its last checked name.
#[test]
fn a_file_that_keeps_changing_never_leads_outside() {
    let room = Room::with(&[("f", "mine\n")]);
    let path = room.workspace.resolve("f").unwrap();
    room.link("../outside/secret", "link");
    while_exchanging(&room, "f", "link", |round| {
        if round % 5 == 0 {
            // May land on either name; never outside.
            let written = room.workspace.write(&path, b"mine\n", &WriteOptions::default(), errand(&going_on));
            return written.is_ok();
        }
        room.workspace.read(&path, ReadRange::default()).is_ok_and(|content| {
            assert_eq!(content.bytes, b"mine\n");
            true
        })
    });
}

fn place(room: &Room, name: &str) -> Place {
    let dir = Arc::new(room.workspace.open_dir(".", DirUse::Content).unwrap());
    Place { dir, name: name.to_owned(), path: name.to_owned() }
}

#[test]
fn steps_already_made_are_undone_when_a_later_one_fails() {
    let room = Room::with(&[("edited", "old\n"), ("deleted", "kept\n")]);
    let before = room.snapshot();
    let mut transaction = Transaction::new(&CALL);
    transaction.replace(place(&room, "edited"), b"new\n", Rights::Plain, Expect::AnyFile).unwrap();
    transaction.delete(place(&room, "deleted"), Expect::AnyFile).unwrap();
    transaction.create(place(&room, "created"), b"x\n", Rights::Plain).unwrap();
    transaction.create(place(&room, "conflict"), b"x\n", Rights::Plain).unwrap();
    // Somebody is faster.
    room.put("conflict", "theirs\n");
    assert_eq!(code(transaction.commit(&going_on)), "already_exists");
    assert_eq!(room.text("conflict"), "theirs\n");
    fs::remove_file(room.root.join("conflict")).unwrap();
    assert_eq!(room.snapshot(), before);
}

#[test]
fn what_was_swapped_in_after_the_last_check_is_put_back() {
    for (prepare, expect) in [
        ((|room: &Room| symlink("../outside/secret", room.root.join("f")).unwrap()) as fn(&Room), "symlink_race"),
        (|room: &Room| fs::create_dir(room.root.join("f")).unwrap(), "is_directory"),
        (|_: &Room| (), "content_changed"),
    ] {
        let room = Room::with(&[("f", "old\n")]);
        let mut transaction = Transaction::new(&CALL);
        transaction.replace(place(&room, "f"), b"new\n", Rights::Plain, Expect::AnyFile).unwrap();
        fs::remove_file(room.root.join("f")).unwrap();
        prepare(&room);
        let before = room.snapshot().len() - 1;
        assert_eq!(code(transaction.commit(&going_on)), expect);
        assert_eq!(room.snapshot().len(), before);
        room.assert_clean();
    }
}

#[test]
fn a_file_that_changed_after_it_was_read_is_put_back() {
    for change in [(|room: &Room| room.put("f", "theirs, in place\n")) as fn(&Room), |room: &Room| {
        room.put("g", "old\n");
        fs::rename(room.root.join("g"), room.root.join("f")).unwrap();
    }] {
        let room = Room::with(&[("f", "old\n")]);
        let (_, stat) = room.workspace.open_file(&room.workspace.resolve("f").unwrap()).unwrap();
        let expect = Expect::Exactly(Identity::of(&stat));
        let mut edit = Transaction::new(&CALL);
        edit.replace(place(&room, "f"), b"new\n", Rights::Plain, expect).unwrap();
        let mut delete = Transaction::new(&CALL);
        delete.delete(place(&room, "f"), expect).unwrap();
        change(&room);
        let theirs = room.text("f");
        assert_eq!(code(edit.commit(&going_on)), "content_changed");
        assert_eq!(code(delete.commit(&going_on)), "content_changed");
        assert_eq!(room.text("f"), theirs);
        room.assert_clean();
    }
}

#[test]
fn undoing_never_removes_what_others_put_there() {
    let room = Room::with(&[("e", "old\n")]);
    let mut transaction = Transaction::new(&CALL);
    transaction.create(place(&room, "c"), b"ours\n", Rights::Plain).unwrap();
    transaction.replace(place(&room, "e"), b"ours\n", Rights::Plain, Expect::AnyFile).unwrap();
    transaction.perform().unwrap();
    for name in ["c", "e"] {
        room.put("theirs", "theirs\n");
        fs::rename(room.root.join("theirs"), room.root.join(name)).unwrap();
    }
    drop(transaction);
    assert_eq!(room.text("c"), "theirs\n");
    assert_eq!(room.text("e"), "old\n");
    let kept: Vec<_> = room.snapshot().into_iter().filter(|(name, _)| name.starts_with('.')).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].1.as_deref(), Some(b"theirs\n".as_slice()));
}

#[test]
fn a_transaction_that_is_dropped_leaves_nothing() {
    let room = Room::with(&[("f", "old\n")]);
    let before = room.snapshot();
    let mut transaction = Transaction::new(&CALL);
    transaction.replace(place(&room, "f"), b"new\n", Rights::Plain, Expect::AnyFile).unwrap();
    transaction.create(place(&room, "g"), b"new\n", Rights::Plain).unwrap();
    assert_ne!(room.snapshot(), before);
    drop(transaction);
    assert_eq!(room.snapshot(), before);
}

#[test]
fn the_portable_renames_do_what_the_kernels_do() {
    for rename in [rename_no_replace, link_then_unlink] {
        let room = Room::with(&[("a", "a"), ("b", "b")]);
        let dir = room.workspace.root_fd();
        assert_eq!(rename(dir, "a", "b"), Err(rustix::io::Errno::EXIST));
        rename(dir, "a", "c").unwrap();
        assert_eq!((room.text("b"), room.text("c"), room.root.join("a").exists()), ("b".into(), "a".into(), false));
    }
    for exchange in [exchange, exchange_in_three] {
        let room = Room::with(&[("a", "a"), ("b", "b")]);
        exchange(room.workspace.root_fd(), "a", "b").unwrap();
        assert_eq!((room.text("a"), room.text("b"), room.snapshot().len()), ("b".into(), "a".into(), 2));
        assert!(exchange(room.workspace.root_fd(), "a", "none").is_err());
        assert_eq!(room.snapshot().len(), 2);
    }
}
