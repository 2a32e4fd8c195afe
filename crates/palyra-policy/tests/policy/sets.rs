//! Directories of rules: what is read, what is refused and how, and that a set answers for its own cases.

use palyra_policy::{CheckedSet, FlawKind, Membership, PolicyDiff, PolicyFile, PolicyFiles, PolicyLoader, RefusedSet};
use proptest::prelude::*;
use proptest::sample::select;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

const RULE: &str = r#"@id("no_push") @reason("Nobody pushes.")
forbid (principal, action == Action::"tool.execute", resource) when { context.argv_prefixes.contains("git push") };
"#;
const CASE: &str = r#"[[case]]
name = "pushing is denied"
principal = "agent:demo"
action = "tool.execute"
resource = "tool:palyra.process.run"
context = { channel = "cli", is_allowlisted_tool = true, facets = { argv = ["git", "push"] } }
expect = "deny"
"#;

fn load(dir: &Path) -> Result<CheckedSet, RefusedSet> {
    PolicyLoader { directory: Some(dir.to_owned()), membership: crate::membership(), tools: None, custody: None }.load()
}

/// The kinds of flaws of a directory, each with the file it is in.
fn flaws(dir: &Path) -> Vec<(FlawKind, String)> {
    let refused = load(dir).unwrap_err();
    assert!(!refused.to_string().is_empty());
    refused.error.flaws().iter().map(|flaw| (flaw.kind, flaw.at.source.clone())).collect()
}

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn a_directory_is_rules_groups_and_cases() {
    let group = RULE.replace("principal,", "principal in Group::\"interns\",");
    let case = CASE.replace("agent:demo", "agent:tea");
    let dir = directory(&[
        ("a.cedar", &group),
        ("groups.toml", "[groups]\ninterns = [\"agent:tea\"]\n"),
        ("cases/a.toml", &case),
        ("b.cases.toml", &case),
        ("README.md", "not a rule"),
        (".hidden.cedar", "nonsense"),
    ]);
    let set = load(dir.path()).unwrap();
    assert_eq!((set.cases, set.engine.operator_rules().count(), set.notes.len()), (2, 1, 0));
    assert_eq!(set.engine.rule("no_push").unwrap().position().source, "a.cedar");
    let sent = ["a.cedar", "groups.toml", "cases/a.toml", "b.cases.toml"]
        .map(|name| PolicyFile { name: name.to_owned(), bytes: fs::read(dir.path().join(name)).unwrap() });
    let sent = PolicyFiles::new(sent.to_vec()).unwrap();
    assert_eq!(sent.digest(), set.files, "files that are sent are the same set");
}

#[test]
fn a_set_that_fails_its_own_cases_is_refused_with_their_place() {
    let wrong = CASE.replace("expect = \"deny\"", "expect = \"ask\"\nrules = [\"other\"]");
    let dir = directory(&[("a.cedar", RULE), ("a.cases.toml", &format!("# one\n{wrong}"))]);
    let refused = load(dir.path()).unwrap_err();
    let flaw = &refused.error.flaws()[0];
    assert_eq!((flaw.kind, flaw.at.to_string().as_str()), (FlawKind::CaseFailed, "a.cases.toml:3:8"));
    assert!(flaw.message.contains("expects ask by other, but the answer is deny by no_push"), "{}", flaw.message);
    assert!(flaw.render().contains("name = \"pushing is denied\""), "{}", flaw.render());
}

#[test]
fn what_could_be_mistaken_for_rules_is_refused() {
    for (name, file) in [
        ("sub/x.cedar", "sub"),
        ("cases/x.cedar", "cases/x.cedar"),
        ("x.toml", "x.toml"),
        ("default.cedar", "default.cedar"),
    ] {
        let dir = directory(&[(name, RULE)]);
        assert_eq!(flaws(dir.path()), [(FlawKind::Misplaced, file.to_owned())]);
    }
}

#[test]
fn groups_that_cannot_be_are_refused_where_they_stand() {
    for (text, line, words) in [
        ("[groups]\nx = []\na = [\"group:b\"]\nb = [\"group:a\"]\n", 3, "circle"),
        ("[groups]\n\na = [\"group:gone\"]\n", 3, "does not exist"),
        ("[groups]\na = [\"everybody\"]\n", 2, "not a pattern"),
        ("[groups]\ntool_callers = [\"agent:x\"]\n", 2, "choose another name"),
        ("[group]\n", 1, "unknown field"),
        ("[groups\n", 1, ""),
    ] {
        let dir = directory(&[("groups.toml", text)]);
        let refused = load(dir.path()).unwrap_err();
        let flaw = &refused.error.flaws()[0];
        assert_eq!((flaw.kind, flaw.at.line), (FlawKind::Groups, line), "{text}: {flaw}");
        assert!(flaw.message.contains(words), "{flaw}");
    }
    // A rule about a group that is no longer there.
    let dir = directory(&[("a.cedar", &RULE.replace("principal,", "principal in Group::\"gone\","))]);
    assert_eq!(flaws(dir.path()), [(FlawKind::UnknownGroup, "a.cedar".to_owned())]);
}

#[test]
fn hostile_directories_are_refused_and_not_fatal() {
    let dir = directory(&[]);
    symlink("loop.cedar", dir.path().join("loop.cedar")).unwrap();
    assert_eq!(flaws(dir.path()), [(FlawKind::Unreadable, "loop.cedar".to_owned())]);

    let dir = directory(&[]);
    symlink(dir.path(), dir.path().join("round")).unwrap();
    assert_eq!(flaws(dir.path()), [(FlawKind::Misplaced, "round".to_owned())]);

    let dir = directory(&[]);
    symlink(dir.path(), dir.path().join("cases")).unwrap();
    assert_eq!(flaws(dir.path()), [(FlawKind::Misplaced, "cases/cases".to_owned())]);

    let dir = directory(&[]);
    symlink("/dev/zero", dir.path().join("endless.cedar")).unwrap();
    assert_eq!(flaws(dir.path()), [(FlawKind::Unreadable, "endless.cedar".to_owned())]);

    // A file that vanished between the listing and the reading looks like a link to nothing.
    let dir = directory(&[]);
    symlink("gone", dir.path().join("vanished.cedar")).unwrap();
    assert_eq!(flaws(dir.path()), [(FlawKind::Unreadable, "vanished.cedar".to_owned())]);

    let dir = directory(&[]);
    fs::write(dir.path().join("binary.cedar"), b"// fine\n\xff\xfe").unwrap();
    let refused = load(dir.path()).unwrap_err();
    assert_eq!(refused.error.flaws()[0].at.to_string(), "binary.cedar:2:1");

    let dir = directory(&[]);
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff.cedar")), RULE).unwrap();
    assert_eq!(flaws(dir.path())[0].0, FlawKind::Unreadable);

    let dir = directory(&[]);
    let huge = fs::File::create(dir.path().join("huge.cedar")).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert_eq!(flaws(dir.path()), [(FlawKind::TooLarge, "huge.cedar".to_owned())]);

    let dir = directory(&[("bad.cases.toml", "[[case]]\nnome = 1")]);
    assert_eq!(flaws(dir.path()), [(FlawKind::BadCase, "bad.cases.toml".to_owned())]);

    let nowhere = dir.path().join("nowhere");
    assert_eq!(flaws(&nowhere)[0].0, FlawKind::Unreadable);
}

#[test]
fn too_many_files_are_refused() {
    let file = |n: usize| PolicyFile { name: format!("r{n}.cedar"), bytes: Vec::new() };
    let refused = PolicyFiles::new((0..=palyra_policy::MAX_FILES).map(file).collect()).unwrap_err();
    assert_eq!(refused.flaws()[0].kind, FlawKind::TooLarge);
}

#[test]
fn many_rules_load_and_decide() {
    let text: String = (0..2_000)
        .map(|n| {
            RULE.replace("no_push", &format!("r{n}")).replace("principal,", &format!("principal == Agent::\"a{n}\","))
        })
        .collect();
    let set = PolicyFiles::new(vec![PolicyFile { name: "many.cedar".to_owned(), bytes: text.into_bytes() }])
        .unwrap()
        .check(&crate::membership(), None)
        .unwrap();
    assert_eq!(set.engine.operator_rules().count(), 2_000);
    let request = crate::ask("agent:a7", palyra_policy::PolicyAction::ToolExecute, "tool:x");
    let mut context = crate::listed();
    context.facets.argv = crate::words("git push");
    assert_eq!(set.engine.decide(&request, &context).rule_ids(), ["r7"]);
}

#[test]
fn sets_are_compared_rule_by_rule() {
    let check = |text: &str| {
        let file = PolicyFile { name: "a.cedar".to_owned(), bytes: text.as_bytes().to_vec() };
        PolicyFiles::new(vec![file]).unwrap().check(&crate::membership(), None).unwrap().engine
    };
    let one = check(RULE);
    let changed = check(&RULE.replace("git push", "git pull"));
    let other = check(&RULE.replace("no_push", "no_pull"));
    assert!(PolicyDiff::between(&one, &check(RULE)).is_empty());
    let diff = PolicyDiff::between(&one, &changed);
    assert_eq!((diff.added.len(), diff.removed.len(), diff.changed[0].to.id.as_str()), (0, 0, "no_push"));
    let diff = PolicyDiff::between(&one, &other);
    assert_eq!((diff.added[0].id.as_str(), diff.removed[0].id.as_str()), ("no_pull", "no_push"));
    assert!(!diff.members_changed);
    let members = one.with_membership(&Membership::single_user()).unwrap();
    assert!(PolicyDiff::between(&one, &members).members_changed);
}

#[test]
fn untried_and_waivable_rules_are_worth_a_note() {
    let text = format!(
        "{RULE}{}{}",
        r#"@id("asks") @reason("r") forbid (principal, action == Action::"tool.execute", resource) when { context.written_under.contains("infra") } unless { context.allow_sensitive_tools };
        "#,
        r#"@id("waives") @reason("r") permit (principal == Agent::"demo", action == Action::"approval.waive", resource);"#
    );
    let dir = directory(&[("a.cedar", &text), ("a.cases.toml", CASE)]);
    let set = load(dir.path()).unwrap();
    let notes: Vec<_> =
        set.notes.iter().map(|note| (note.rule.as_str(), note.message.contains("approval.waive"))).collect();
    assert_eq!(notes, [("asks", false), ("waives", false), ("asks", true)]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    /// Whatever the files hold, they are a set or they are refused with places.
    #[test]
    fn no_files_are_fatal(
        name in select(vec!["a.cedar", "groups.toml", "a.cases.toml", "cases/a.toml", "x/y.toml"]),
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            any::<String>().prop_map(String::into_bytes),
            ("[[:print:]]{0,20}", any::<String>()).prop_map(|(key, value)| format!("[groups]\n{key} = [{value:?}]\n").into_bytes()),
            any::<String>().prop_map(|value| CASE.replace("agent:demo", &value).into_bytes()),
        ],
    ) {
        let files = vec![PolicyFile { name: name.to_owned(), bytes }];
        if let Err(refused) = PolicyFiles::new(files).and_then(|files| files.check(&crate::membership(), None)) {
            prop_assert!(!refused.flaws().is_empty(), "{refused}");
            prop_assert!(refused.flaws().iter().all(|flaw| flaw.at.line >= 1 && !flaw.render().is_empty()));
        }
    }
}
