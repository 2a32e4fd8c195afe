//! What a killed daemon leaves, and that nothing else is taken for it.

use super::super::Leftovers;
use super::super::beneath::DirUse;
use super::super::leftovers::temporary_prefix;
use super::super::transaction::{Expect, Place, Rights, Transaction};
use super::{CALL, Room, SECRET};
use palyra_protocol::CallId;
use std::fs;
use std::sync::Arc;

fn place(room: &Room, directory: &str, name: &str) -> Place {
    let dir = Arc::new(room.workspace.open_dir(directory, DirUse::Content).unwrap());
    Place { dir, name: name.to_owned(), path: format!("{directory}/{name}") }
}

fn removed(room: &Room, written: &[&str]) -> Leftovers {
    let written: Vec<_> = written.iter().map(|path| (*path).to_owned()).collect();
    room.workspace.remove_leftovers(&CALL, &written).unwrap()
}

/// A change of one file that was cut off: before its step, or after.
fn cut_off(room: &Room, done: bool) {
    let mut transaction = Transaction::new(&CALL);
    transaction.replace(place(room, "d", "f"), b"new\n", Rights::Plain, Expect::AnyFile).unwrap();
    if done {
        transaction.perform().unwrap();
    }
    // What SIGKILL does to it.
    std::mem::forget(transaction);
}

#[test]
fn what_a_write_left_is_removed_before_and_after_its_step() {
    for (done, content) in [(false, "old\n"), (true, "new\n")] {
        let room = Room::with(&[("d/f", "old\n"), ("beside", "x")]);
        let before = room.snapshot().len();
        cut_off(&room, done);
        assert_eq!(room.snapshot().len(), before + 1);
        assert_eq!(removed(&room, &["d/f"]), Leftovers { removed: 1, kept: Vec::new() });
        assert_eq!((room.snapshot().len(), room.text("d/f").as_str()), (before, content));
        assert_eq!(removed(&room, &["d/f"]), Leftovers::default());
    }
}

#[test]
fn a_patch_that_was_cut_off_halfway_keeps_its_originals() {
    let room = Room::with(&[("a", "old a\n"), ("b", "old b\n")]);
    let mut transaction = Transaction::new(&CALL);
    transaction.replace(place(&room, ".", "a"), b"new\n", Rights::Plain, Expect::AnyFile).unwrap();
    transaction.delete(place(&room, ".", "b"), Expect::AnyFile).unwrap();
    transaction.perform().unwrap();
    transaction.create(place(&room, ".", "c"), b"new\n", Rights::Plain).unwrap();
    std::mem::forget(transaction);
    let Leftovers { removed, kept } = removed(&room, &["a", "b", "c"]);
    assert_eq!((removed, kept.len()), (1, 2), "{kept:?}");
    let mut contents: Vec<_> = kept.iter().map(|name| room.text(name)).collect();
    contents.sort();
    assert_eq!(contents, ["old a\n", "old b\n"]);
    assert!(!room.root.join("c").exists());
}

#[test]
fn nothing_else_is_removed() {
    let room = Room::with(&[("d/f", "old\n")]);
    let prefix = temporary_prefix(&CALL);
    let foreign = format!("d/{}0-0", temporary_prefix(&CallId::mint()));
    for other in [foreign.as_str(), "d/.palyra-tmp-0-0", "d/notes", &format!("e/{prefix}0-0")] {
        room.put(other, "theirs\n");
    }
    fs::create_dir(room.root.join(format!("d/{prefix}directory"))).unwrap();
    room.link(room.outside.join("secret"), &format!("d/{prefix}link"));
    // A directory that is a link by now leads nowhere.
    fs::write(room.outside.join(format!("{prefix}0-0")), SECRET).unwrap();
    room.link(&room.outside, "out");
    let before = room.snapshot();
    for paths in [&["d/f"][..], &["out/f"], &["d/../../outside/f"], &["/d/f"], &[""], &["gone/f"], &["d/f/x"], &[]] {
        assert_eq!(removed(&room, paths), Leftovers::default(), "{paths:?}");
    }
    assert_eq!(room.snapshot(), before);
    assert!(room.outside.join(format!("{prefix}0-0")).exists());
}

#[test]
fn an_exchange_that_stopped_midway_keeps_everything() {
    let room = Room::with(&[("d/f", "old\n")]);
    cut_off(&room, true);
    let prefix = temporary_prefix(&CALL);
    room.put(&format!("d/{prefix}0-0-old-x"), "the only copy\n");
    assert_eq!(removed(&room, &["d/f"]).kept.len(), 2);
}
