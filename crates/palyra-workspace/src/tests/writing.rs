//! Writing.

use super::super::limits::MAX_WRITE_BYTES;
use super::super::{FileError, WriteOptions, Written};
use super::{Room, code, errand, going_on};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

fn write(room: &Room, path: &str, content: &[u8], options: WriteOptions) -> Result<Written, FileError> {
    room.workspace.write(&room.workspace.resolve(path)?, content, &options, errand(&going_on))
}

fn expecting(sha256: &str) -> WriteOptions {
    WriteOptions { expected_sha256: Some(sha256.to_owned()), ..Default::default() }
}

#[test]
fn a_write_creates_and_replaces() {
    let room = Room::new();
    let first = room.write("f", "one\n").unwrap();
    assert!(first.created);
    let second = room.write("f", "two\n").unwrap();
    assert_eq!((second.created, second.bytes), (false, 4));
    assert_eq!(room.text("f"), "two\n");
    let path = room.workspace.resolve("f").unwrap();
    assert_eq!(room.workspace.read(&path, Default::default()).unwrap().sha256_hex, Some(second.sha256));
    room.assert_clean();
}

#[test]
fn parents_are_made_only_when_asked() {
    let room = Room::new();
    assert_eq!(code(room.write("x/y/f", "1")), "not_found");
    assert!(room.snapshot().is_empty());
    let options = WriteOptions { create_parents: true, ..Default::default() };
    assert!(write(&room, "x/y/f", b"1", options.clone()).unwrap().created);
    assert_eq!(room.text("x/y/f"), "1");
    // Parents that were made for a write that fails do not stay.
    let stale = WriteOptions { expected_sha256: Some("00".into()), ..options };
    assert_eq!(code(write(&room, "p/q/f", b"1", stale)), "content_changed");
    assert!(!room.root.join("p").exists());
    room.assert_clean();
}

#[test]
fn conditions_are_kept() {
    let room = Room::with(&[("f", "old\n")]);
    let fresh = WriteOptions { must_not_exist: true, ..Default::default() };
    assert_eq!(code(write(&room, "f", b"new", fresh.clone())), "already_exists");
    assert_eq!(code(write(&room, "f", b"new", expecting("00"))), "content_changed");
    assert_eq!(code(write(&room, "none", b"new", expecting("00"))), "content_changed");
    assert_eq!(room.text("f"), "old\n");
    let path = room.workspace.resolve("f").unwrap();
    let digest = room.workspace.read(&path, Default::default()).unwrap().sha256_hex.unwrap();
    write(&room, "f", b"new", expecting(&digest.to_uppercase())).unwrap();
    assert_eq!(room.text("f"), "new");
    assert!(write(&room, "g", b"new", fresh).unwrap().created);
    room.assert_clean();
}

#[test]
fn the_mode_is_kept_without_set_id_bits() {
    let room = Room::with(&[("script", "#!/bin/sh\n")]);
    let path = room.root.join("script");
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    room.write("script", "#!/bin/sh\nexit\n").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
}

#[test]
fn protected_files_are_never_written() {
    let room = Room::with(&[(".git/config", "x\n"), ("sub/.git/HEAD", "x\n")]);
    room.link(".git", "innocent");
    let options = WriteOptions { create_parents: true, ..Default::default() };
    for path in [".git/config", ".GIT/hooks/pre-commit", "sub/.git/HEAD", "innocent/config", ".palyra/x", ".git"] {
        assert_eq!(code(write(&room, path, b"evil", options.clone())), "protected_path", "{path}");
    }
    for path in [".git/config", "innocent/config", "sub/.git/HEAD"] {
        assert!(room.read(path).is_ok());
        let diff = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n");
        assert_eq!(code(room.workspace.plan_patch(&diff)), "protected_path");
        let rename = format!("diff --git a/{path} b/free\nrename from {path}\nrename to free\n");
        assert_eq!(code(room.workspace.plan_patch(&rename)), "protected_path");
    }
    room.assert_clean();
    let inside = super::super::Workspace::open(&room.root.join("sub/.git")).unwrap();
    let head = inside.resolve("HEAD").unwrap();
    assert_eq!(code(inside.write(&head, b"evil", &options, errand(&going_on))), "protected_path");
    let error = room.write(".git/config", "evil").unwrap_err().to_string();
    assert!(error.contains("`.git/config`") && error.contains("palyra.process.run"), "{error}");
}

#[test]
fn too_much_is_refused() {
    let room = Room::new();
    assert_eq!(code(write(&room, "f", &vec![0; MAX_WRITE_BYTES + 1], WriteOptions::default())), "too_large");
    assert!(room.snapshot().is_empty());
}

#[test]
fn system_errors_have_their_codes() {
    for (errno, expect) in [
        (Errno::NOSPC, "disk_full"),
        (Errno::DQUOT, "disk_full"),
        (Errno::ACCESS, "permission_denied"),
        (Errno::ROFS, "permission_denied"),
        (Errno::NOENT, "not_found"),
        (Errno::LOOP, "symlink_race"),
        (Errno::IO, "io"),
    ] {
        let error = FileError::from_errno("some/path", errno);
        assert_eq!(error.code(), expect);
        assert!(error.to_string().contains("`some/path`"));
    }
}

#[test]
fn a_change_is_stopped_before_it_begins_or_not_at_all() {
    let room = Room::with(&[("a", "old\n"), ("b", "old\n")]);
    let path = room.workspace.resolve("a").unwrap();
    let options = WriteOptions { create_parents: true, ..WriteOptions::default() };
    let before = room.snapshot();
    let new = room.workspace.resolve("new/dir/file").unwrap();
    let diff = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-old\n+new\n";
    let plan = || room.workspace.plan_patch(diff).unwrap();
    assert_eq!(code(room.workspace.write(&path, b"new\n", &options, errand(&|| true))), "cancelled");
    assert_eq!(code(room.workspace.write(&new, b"new\n", &options, errand(&|| true))), "cancelled");
    for last in 0..5 {
        let asked = std::cell::Cell::new(0);
        let late = || asked.replace(asked.get() + 1) >= last;
        assert_eq!(code(room.workspace.apply_patch(plan(), errand(&late))), "cancelled", "{last}");
        assert_eq!(room.snapshot(), before, "{last}");
    }
    // Asked for the last time, it said no; what comes later is too late, and the answer says what was done.
    let asked = std::cell::Cell::new(0);
    let too_late = || asked.replace(asked.get() + 1) >= 5;
    assert!(room.workspace.apply_patch(plan(), errand(&too_late)).is_ok());
    assert_eq!((room.text("a"), room.text("b")), ("new\n".to_owned(), "new\n".to_owned()));
    room.assert_clean();
}
