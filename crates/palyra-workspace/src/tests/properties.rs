//! What holds for every input.

use super::super::WriteOptions;
use super::{Room, errand, going_on};
use proptest::prelude::*;

/// Texts of few different lines, so that hunks move, repeat and meet; with and without a last newline.
fn text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("a"),
        Just("b"),
        Just(""),
        Just("-- x"),
        Just("++ y"),
        Just("@@ -1 +1 @@"),
        Just("\\ No newline"),
        Just("ü\r"),
        Just(" ")
    ];
    (prop::collection::vec(line, 0..40), any::<bool>()).prop_map(|(lines, end)| {
        let text = lines.join("\n");
        if end && !text.is_empty() { text + "\n" } else { text }
    })
}

/// Lines of a patch in any order: near enough to a real one to reach every corner of the reader.
fn almost_a_patch() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("--- a/f"),
        Just("+++ b/f"),
        Just("+++ b/link"),
        Just("--- /dev/null"),
        Just("+++ /dev/null"),
        Just("--- \"a/\\303\""),
        Just("diff --git a/f b/f"),
        Just("diff --git \"a/f\" b/g"),
        Just("rename from f"),
        Just("rename to new"),
        Just("new file mode 100644"),
        Just("deleted file mode 100644"),
        Just("new mode 100755"),
        Just("@@ -1 +1 @@"),
        Just("@@ -1,2 +1,3 @@ x"),
        Just("@@ -0,0 +1 @@"),
        Just("@@ -18446744073709551615,18446744073709551615 +1 @@"),
        Just("@@ -18446744073709551615 +1 @@"),
        Just("-a"),
        Just("+b"),
        Just(" a"),
        Just(""),
        Just("\\ No newline at end of file"),
        Just("-- "),
        Just("2.1"),
    ];
    prop::collection::vec(line, 0..16).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_diff_leads_from_its_old_text_to_its_new_one(old in text(), new in text(), context in 1_usize..4) {
        prop_assume!(old != new);
        let room = Room::with(&[("f", &old)]);
        let mut options = diffy::DiffOptions::new();
        options.set_context_len(context).set_original_filename("a/f").set_modified_filename("b/f");
        let diff = options.create_patch(&old, &new).to_string();
        room.patch(&diff).map_err(|error| TestCaseError::fail(format!("{error}\n{diff}")))?;
        prop_assert_eq!(room.text("f"), new);
        room.assert_clean();
    }

    #[test]
    fn a_patch_of_anything_never_panics_and_fails_whole(text in prop_oneof![almost_a_patch(), any::<String>()]) {
        let room = Room::with(&[("f", "a\nb\n"), ("d/g", "a\n")]);
        room.link("d/g", "link");
        let before = room.snapshot();
        if room.patch(&text).is_err() {
            prop_assert_eq!(room.snapshot(), before);
        }
        room.assert_clean();
    }

    #[test]
    fn a_resolved_path_is_plain_and_beneath(text in prop_oneof![
        any::<String>(),
        "([.]{1,3}|a|b|l|o|u|/|//|~|[.]/){0,12}",
    ]) {
        let room = Room::with(&[("a/b/a", "x")]);
        room.link("a/b", "l");
        room.link("../outside", "o");
        room.link("..", "a/u");
        if let Ok(path) = room.workspace.resolve(&text) {
            let plain = |part: &str| !part.is_empty() && part != ".." && part != ".";
            prop_assert!(path.is_root() || path.as_str().split('/').all(plain), "{:?}", path);
            // What was resolved resolves to itself, and is opened without meeting a link.
            let text = format!("./{path}");
            prop_assert_eq!(&room.workspace.resolve(&text).unwrap(), &path);
            let options = WriteOptions { create_parents: true, ..Default::default() };
            if let Err(error) = room.workspace.write(&path, b"x", &options, errand(&going_on)) {
                prop_assert!(error.code() != "symlink_race" && error.code() != "io", "{}", error);
            }
        }
        room.assert_clean();
    }
}
