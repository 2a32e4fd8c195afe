//! Patches: what they may say, and that they happen whole or not at all.

use super::super::ChangeKind::{Created, Deleted, Modified, Renamed};
use super::super::FileError;
use super::super::limits::{MAX_PATCH_BYTES, MAX_PATCHED_FILE_BYTES};
use super::{Room, code, errand, going_on};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const ABC: &str = "a\nb\nc\nd\ne\nf\ng\nh\n";

#[test]
fn one_patch_edits_creates_deletes_and_renames() {
    let room = Room::with(&[("edit", ABC), ("dir/gone", "x\ny\n"), ("old name", "1\n2\n3\n"), ("run", "#!\n")]);
    let diff = "\
From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001
Subject: [PATCH] everything
---
 edit | 2 +-

diff --git a/edit b/edit
index 111..222 100644
--- a/edit
+++ b/edit
@@ -1,3 +1,4 @@ fn x()
 a
-b
+B
+B2
 c
@@ -6,3 +7,2 @@
 f
-g
 h
diff --git a/new/deep/file b/new/deep/file
new file mode 100755
index 000..333
--- /dev/null
+++ b/new/deep/file
@@ -0,0 +1,2 @@
+first
+last
\\ No newline at end of file
diff --git a/empty b/empty
new file mode 100644
index 000..e69
diff --git a/dir/gone b/dir/gone
deleted file mode 100644
index 444..000
--- a/dir/gone
+++ /dev/null
@@ -1,2 +0,0 @@
-x
-y
diff --git a/old name b/other/new name
similarity index 80%
rename from old name
rename to other/new name
index 555..666 100644
--- a/old name\t
+++ b/other/new name\t
@@ -1,3 +1,3 @@
 1
-2
+two
 3
diff --git a/run b/run
old mode 100644
new mode 100755
-- 
2.43.0

";
    let plan = room.workspace.plan_patch(diff).unwrap();
    let paths = plan.paths_written();
    let texts =
        |paths: &[super::super::ResolvedPath]| -> Vec<String> { paths.iter().map(ToString::to_string).collect() };
    assert_eq!(texts(&paths.created), ["new/deep/file", "empty", "other/new name"]);
    assert_eq!(texts(&paths.edited), ["edit", "run"]);
    assert_eq!(texts(&paths.deleted), ["dir/gone", "old name"]);
    assert_eq!(paths.all().len(), 7);
    assert_eq!(plan.paths_read().iter().map(ToString::to_string).collect::<Vec<_>>(), ["old name"]);
    let outcome = room.workspace.apply_patch(plan, errand(&going_on)).unwrap();
    let files: Vec<_> =
        outcome.files.iter().map(|file| (file.path.as_str(), file.change, file.added, file.removed)).collect();
    assert_eq!(
        files,
        [
            ("edit", Modified, 2, 2),
            ("new/deep/file", Created, 2, 0),
            ("empty", Created, 0, 0),
            ("dir/gone", Deleted, 0, 2),
            ("other/new name", Renamed, 1, 1),
            ("run", Modified, 0, 0)
        ]
    );
    assert_eq!(room.text("edit"), "a\nB\nB2\nc\nd\ne\nf\nh\n");
    assert_eq!(room.text("new/deep/file"), "first\nlast");
    assert_eq!((room.text("empty"), room.text("other/new name")), (String::new(), "1\ntwo\n3\n".into()));
    assert!(!room.root.join("dir/gone").exists() && !room.root.join("old name").exists());
    for executable in ["run", "new/deep/file"] {
        assert_eq!(fs::metadata(room.root.join(executable)).unwrap().permissions().mode() & 0o111, 0o111);
    }
    room.assert_clean();
}

#[test]
fn a_patch_that_fails_anywhere_changes_nothing() {
    let edit = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n";
    for (second, expect) in [
        ("--- a/g\n+++ b/g\n@@ -1,2 +1,2 @@\n a\n-WRONG\n+B\n", "patch_does_not_apply"),
        ("--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+B\n", "not_found"),
        ("--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+B\n", "already_exists"),
        ("--- /dev/null\n+++ b/g/under\n@@ -0,0 +1 @@\n+B\n", "not_a_directory"),
        ("--- /dev/null\n+++ b/../out\n@@ -0,0 +1 @@\n+B\n", "path_outside_workspace"),
        ("--- /dev/null\n+++ b/new/.git/config\n@@ -0,0 +1 @@\n+B\n", "protected_path"),
        ("--- a/g\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n", "patch_does_not_apply"),
        ("--- a/link\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n", "not_a_regular_file"),
        ("--- a/d\n+++ b/d\n@@ -1 +1 @@\n-a\n+b\n", "is_directory"),
        ("--- a/f\n+++ b/f\n@@ -7 +7 @@\n-g\n+G\n", "patch_malformed"),
        ("--- a/link\n+++ b/link\n@@ -1 +1 @@\n-a\n+A\n--- a/g\n+++ b/g\n@@ -2 +2 @@\n-b\n+B\n", "patch_malformed"),
    ] {
        let room = Room::with(&[("f", ABC), ("g", ABC), ("d/x", "")]);
        room.link("g", "link");
        let before = room.snapshot();
        let created = "--- /dev/null\n+++ b/x/y/z\n@@ -0,0 +1 @@\n+z\n";
        assert_eq!(code(room.patch(&format!("{edit}{created}{second}"))), expect, "{second}");
        assert_eq!(room.snapshot(), before, "{second}");
        room.assert_clean();
    }
}

#[test]
fn a_file_created_or_changed_after_the_plan_stops_the_patch() {
    let room = Room::with(&[("f", ABC)]);
    let diff = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+z\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+A\n";
    let plan = room.workspace.plan_patch(diff).unwrap();
    room.put("new", "theirs");
    assert_eq!(code(room.workspace.apply_patch(plan, errand(&going_on))), "already_exists");
    assert_eq!((room.text("new").as_str(), room.text("f").as_str()), ("theirs", ABC));
    room.assert_clean();
}

#[test]
fn hunks_stand_exactly_or_not_at_all() {
    let check = |content: &str, hunks: &str, expect: Result<&str, &str>| {
        let room = Room::with(&[("f", content)]);
        let outcome = room.patch(&format!("--- a/f\n+++ b/f\n{hunks}"));
        match expect {
            Ok(after) => {
                outcome.unwrap();
                assert_eq!(room.text("f"), after, "{hunks}");
            }
            Err(expect) => {
                assert_eq!(code(outcome), expect, "{hunks}");
                assert_eq!(room.text("f"), content);
            }
        }
        room.assert_clean();
    };
    // At its line; at another line where it is the only one; and not where there are two.
    check(ABC, "@@ -3 +3 @@\n-c\n+C\n", Ok("a\nb\nC\nd\ne\nf\ng\nh\n"));
    check(ABC, "@@ -1 +1 @@\n-c\n+C\n", Ok("a\nb\nC\nd\ne\nf\ng\nh\n"));
    check(ABC, "@@ -900 +900 @@\n-c\n+C\n", Ok("a\nb\nC\nd\ne\nf\ng\nh\n"));
    check("x\nc\nc\n", "@@ -1 +1 @@\n-c\n+C\n", Err("patch_does_not_apply"));
    check("x\nc\nc\n", "@@ -3 +3 @@\n-c\n+C\n", Ok("x\nc\nC\n"));
    // Never before the hunk that came first, never in lines that are new.
    check(ABC, "@@ -5 +5 @@\n-e\n+E\n@@ -6 +6 @@\n-a\n+A\n", Err("patch_does_not_apply"));
    check(ABC, "@@ -1 +1 @@\n-a\n+zz\n@@ -2 +2 @@\n-zz\n+yy\n", Err("patch_does_not_apply"));
    check(ABC, "@@ -5 +5 @@\n-e\n+E\n@@ -2 +2 @@\n-b\n+B\n", Err("patch_malformed"));
    // The drift of one hunk carries to the next.
    check("0\n0\na\nx\nb\nx\n", "@@ -1,2 +1,2 @@\n a\n-x\n+1\n@@ -3,2 +3,2 @@\n b\n-x\n+2\n", Ok("0\n0\na\n1\nb\n2\n"));
    // Context is exact: blanks, ends of lines.
    check("a \nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", Err("patch_does_not_apply"));
    check("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", Err("patch_does_not_apply"));
    check("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n", Ok("a\r\nB\r\n"));
    // A line that looks like a header is a line.
    check("-- a/x\n++ b/x\nz\n", "@@ -1,3 +1,2 @@\n--- a/x\n-++ b/x\n+++ q\n z\n", Ok("++ q\nz\n"));
    // Nothing to hold on to.
    check(ABC, "@@ -3,0 +4 @@\n+new\n", Err("patch_does_not_apply"));
    check("", "@@ -0,0 +1 @@\n+new\n", Ok("new\n"));
    // Ends of files.
    check("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n", Ok("a\nB\n"));
    check("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n\\ No newline at end of file\n", Ok("a\nB"));
    check("a\nb", "@@ -1,2 +1,3 @@\n+0\n a\n b\n\\ No newline at end of file\n", Ok("0\na\nb"));
    check("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", Err("patch_does_not_apply"));
    check("a\nb\n", "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n", Err("patch_does_not_apply"));
    // Lost at the end of the text, or an empty line's blank: still the same lines.
    check("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+B", Ok("a\n\nB\n"));
}

#[test]
fn what_cannot_be_understood_is_refused_with_its_line() {
    let room = Room::with(&[("f", ABC), ("g", ABC)]);
    for (diff, line) in [
        ("", 1),
        ("hello\nworld\n", 3),
        ("@@ -1 +1 @@\n-a\n+b\n", 1),
        ("+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("--- a/f\n+++ b/f\n", 3),
        ("--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+b\n", 1),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n", 5),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n+c\n", 6),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--\n+x\n", 6),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n-b\n", 5),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n a\n", 3),
        ("--- a/f\n+++ b/f\n@@ -0 +1 @@\n-a\n+b\n", 3),
        ("--- a/f\n+++ b/f\n@@ -99999999999999999999 +1 @@\n-a\n+b\n", 3),
        ("--- a/f\n+++ b/f\n@@ -+1 +1 @@\n-a\n+b\n", 3),
        ("--- a/f\n+++ b/f\n@@ -1 @@\n-a\n+b\n", 3),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n\\ No newline\n-a\n+b\n", 4),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-a\n\\ No newline\n-b\n+b\n", 3),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\nhello\n", 4),
        ("--- \"a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("diff --git a/f b/f\n", 1),
        ("diff --git a/f b/g\n--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("diff --git a/f b/f\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", 2),
        ("diff --git a/l b/l\nnew file mode 160000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n", 2),
        ("diff --git a/l b/l\nnew file mode 104755\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n", 2),
        ("diff --git a/f b/f\nindex 1..2 120000\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", 2),
        ("diff --git a/f b/h\ncopy from f\ncopy to h\n", 2),
        ("diff --git a/f b/h\nrename from f\n", 1),
        ("diff --git a/f b/h\nrename from g\nrename to h\n--- a/f\n+++ b/h\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("diff --git a/f b/f\nnew file mode 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("diff --git a/f b/f\nindex 1..2\nGIT binary patch\nliteral 1\n", 3),
        ("diff --git a/f b/f\nindex 1..2\nBinary files a/f and b/f differ\n", 3),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/f\n+++ b/f\n@@ -2 +2 @@\n-b\n+c\n", 6),
    ] {
        match room.workspace.plan_patch(diff) {
            Err(FileError::PatchMalformed { line: got, .. }) => assert_eq!(got, line, "{diff:?}"),
            other => panic!("{diff:?}: {other:?}"),
        }
    }
    assert_eq!(code(room.workspace.plan_patch(&"x".repeat(MAX_PATCH_BYTES + 1))), "too_large");
    let many: String = (0..201).map(|n| format!("--- /dev/null\n+++ b/n{n}\n@@ -0,0 +1 @@\n+x\n")).collect();
    assert_eq!(code(room.workspace.plan_patch(&many)), "too_large");
    room.assert_clean();
}

#[test]
fn an_error_never_tells_what_the_file_holds() {
    let room = Room::with(&[("f", "password=hunter2\n")]);
    let error = room.patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-guess\n+x\n").unwrap_err().to_string();
    assert_eq!(
        error,
        "the patch does not apply to `f` at hunk 1: line 1 of the file is not `guess`; read the file again and make \
         the patch from that"
    );
}

#[test]
fn prefixes_are_taken_off_only_where_both_sides_have_them() {
    let room = Room::with(&[("x", "1\n"), ("a/x", "1\n"), ("b/y", "1\n")]);
    for (old, new, expect) in [("a/x", "b/x", "x"), ("a/x", "a/x", "a/x"), ("x", "x", "x"), ("b/y", "b/y", "b/y")] {
        let plan = room.workspace.plan_patch(&format!("--- {old}\n+++ {new}\n@@ -1 +1 @@\n-1\n+2\n")).unwrap();
        assert_eq!(plan.paths_written().edited[0].as_str(), expect);
    }
    let plan = room
        .workspace
        .plan_patch("diff --git b/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+1\n");
    assert_eq!(plan.unwrap().paths_written().created[0].as_str(), "b/new");
}

#[test]
fn large_and_repetitive_files_are_patched_in_linear_time() {
    let room = Room::new();
    room.put("same", "a\n".repeat(2_000_000));
    let context = " a\n".repeat(200_000);
    let diff = format!("--- a/same\n+++ b/same\n@@ -5,200001 +5,200001 @@\n{context}-b\n+c\n");
    assert_eq!(code(room.patch(&diff)), "patch_does_not_apply");
    let hunks: String = (1..20_000).map(|n| format!("@@ -{n} +{n} @@\n-b\n+c\n")).collect();
    assert_eq!(code(room.patch(&format!("--- a/same\n+++ b/same\n{hunks}"))), "patch_does_not_apply");
    room.put("big", vec![b'\n'; usize::try_from(MAX_PATCHED_FILE_BYTES).unwrap() + 1]);
    assert_eq!(code(room.patch("--- a/big\n+++ b/big\n@@ -1 +1 @@\n-\n+x\n")), "too_large");
    room.assert_clean();
}

#[test]
fn other_line_ends_are_named_as_the_reason() {
    let room = Room::with(&[("dos", "a\r\nb\r\n"), ("unix", "a\nb\n")]);
    let diff =
        |name: &str, end: &str| format!("--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n a{end}\n-b{end}\n+c{end}\n");
    for (name, end) in [("dos", ""), ("unix", "\r")] {
        let error = room.patch(&diff(name, end)).unwrap_err();
        assert!(error.to_string().contains("line 1 of the file has another line end"), "{error}");
    }
    room.patch(&diff("dos", "\r")).unwrap();
    assert_eq!(room.text("dos"), "a\r\nc\r\n");
}

#[test]
fn a_missing_newline_is_named_as_the_reason() {
    let room = Room::with(&[("open", "a\nb"), ("closed", "a\nb\n")]);
    let diff = |name: &str, end: &str| format!("--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n a\n-b\n{end}+c\n");
    let error = room.patch(&diff("open", "")).unwrap_err().to_string();
    assert!(error.contains("line 2 of the file has no newline at its end") && !error.contains("CR"), "{error}");
    assert!(error.contains("`\\ No newline at end of file`"), "{error}");
    let error = room.patch(&diff("closed", "\\ No newline at end of file\n")).unwrap_err().to_string();
    assert!(error.contains("line 2 of the file has a newline at its end") && !error.contains("CR"), "{error}");
}
