//! The profile, read back by a reader of its language.

use super::*;
use crate::testing::policy;
use proptest::prelude::*;

/// A profile as a reader of the language sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Word(String),
    Text(String),
    List(Vec<Form>),
}

/// Reads every form of a text. Strict: what it does not know is an error.
fn read(text: &str) -> Result<Vec<Form>, String> {
    let mut open: Vec<Vec<Form>> = vec![Vec::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\n' => {}
            '(' => open.push(Vec::new()),
            ')' => {
                let list = open.pop().filter(|_| !open.is_empty()).ok_or("an end without a beginning")?;
                open.last_mut().ok_or("nothing is open")?.push(Form::List(list));
            }
            '"' => open.last_mut().ok_or("nothing is open")?.push(Form::Text(string(&mut chars)?)),
            c if c.is_control() => return Err(format!("a control character {c:?}")),
            c => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| !matches!(c, ' ' | '\n' | '(' | ')' | '"')) {
                    word.push(c);
                }
                open.last_mut().ok_or("nothing is open")?.push(Form::Word(word));
            }
        }
    }
    match <[_; 1]>::try_from(open) {
        Ok([forms]) => Ok(forms),
        Err(_) => Err("a beginning without an end".into()),
    }
}

fn string(chars: &mut impl Iterator<Item = char>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next().ok_or("a string without an end")? {
            '"' => return Ok(text),
            '\\' => match chars.next() {
                Some(c @ ('"' | '\\')) => text.push(c),
                other => return Err(format!("an escape {other:?}")),
            },
            c if c.is_control() => return Err(format!("a control character {c:?} in a string")),
            c => text.push(c),
        }
    }
}

fn roots(workspace: &str) -> Roots {
    let policy = policy("/");
    Roots {
        workspace: workspace.into(),
        workspace_access: Access::Write,
        read: Vec::new(),
        write: Vec::new(),
        #[cfg(target_os = "linux")]
        filled: Vec::new(),
        protected: policy.protected_paths,
    }
}

fn text(roots: &Roots, guarded: &[Guard], network: Network) -> Result<String, SandboxError> {
    let hidden = &[PathBuf::from("/bin/bash")];
    profile(&Blueprint { roots, guarded, hidden, scratch: Path::new("/private/var/folders/run"), network })
}

fn forms(roots: &Roots, guarded: &[Guard], network: Network) -> Vec<Form> {
    read(&text(roots, guarded, network).unwrap()).unwrap()
}

/// What the profile says about an operation on a path: the last rule that matches decides. Knows the filters by which
/// files are named here.
fn decides(forms: &[Form], operation: &str, path: &str) -> bool {
    let mut allowed = false;
    for form in forms {
        let Form::List(rule) = form else { panic!("{form:?} is no rule") };
        let Form::Word(action) = &rule[0] else { panic!("{rule:?} has no action") };
        let about = |word: &str| match word.strip_suffix('*') {
            Some(prefix) => operation.starts_with(prefix),
            None => word == operation || word == "default",
        };
        let words = rule[1..].iter().filter_map(|form| if let Form::Word(word) = form { Some(word) } else { None });
        let filters: Vec<_> =
            rule[1..].iter().filter_map(|form| if let Form::List(list) = form { Some(list) } else { None }).collect();
        let matches = |filter: &&Vec<Form>| match filter.as_slice() {
            [Form::Word(kind), Form::Text(text)] if kind == "subpath" => Path::new(path).starts_with(text),
            [Form::Word(kind), Form::Text(text)] if kind == "literal" => path == text,
            _ => false,
        };
        if words.into_iter().any(|word| about(word)) && (filters.is_empty() || filters.iter().any(matches)) {
            match action.as_str() {
                "allow" => allowed = true,
                "deny" => allowed = false,
                "version" => {}
                other => panic!("an action {other}"),
            }
        }
    }
    allowed
}

#[test]
fn everything_is_denied_that_nothing_allows() {
    let forms = forms(&roots("/homes/u/work"), &[], Network::Nothing);
    assert_eq!(forms[..2], read("(version 1) (deny default)").unwrap());
    for (operation, path) in [
        ("file-read-data", "/homes/u/.ssh/id_ed25519"),
        ("file-read-data", "/homes/u/Library/Keychains/login.keychain-db"),
        ("file-read-data", "/private/etc/master.passwd"),
        ("file-read-data", "/private/tmp/other"),
        ("file-read-data", "/homes/u/work-not"),
        ("file-read-data", "/homes/u"),
        ("file-write-data", "/usr/lib/x"),
        ("file-write-create", "/private/tmp/x"),
        ("file-write-data", "/dev/disk0"),
        ("file-read-data", "/dev/disk0"),
        ("process-exec", "/private/tmp/x"),
        ("mach-lookup", ""),
        ("appleevent-send", ""),
        ("iokit-open", ""),
        ("network-outbound", ""),
    ] {
        assert!(!decides(&forms, operation, path), "{operation} {path}");
    }
    for (operation, path) in [
        ("file-read-data", "/usr/lib/libSystem.dylib"),
        ("process-exec", "/bin/ls"),
        ("file-read-metadata", "/homes/u"),
        ("file-read-data", "/homes/u/work/a"),
        ("file-write-create", "/homes/u/work/a/b"),
        ("process-exec", "/homes/u/work/target/x"),
        ("file-write-data", "/private/var/folders/run/x"),
        ("file-write-data", "/dev/null"),
        ("process-fork", ""),
    ] {
        assert!(decides(&forms, operation, path), "{operation} {path}");
    }
}

#[test]
fn roots_are_as_writable_as_the_policy_says() {
    let mut roots = roots("/w");
    roots.workspace_access = Access::Execute;
    roots.write = vec!["/w/out".into(), "/both".into()];
    roots.read = vec!["/w/out/fixed".into(), "/both".into(), "/sdk".into()];
    let forms = forms(&roots, &[], Network::Nothing);
    for (path, writable) in
        [("/w/x", false), ("/w/out/x", true), ("/w/out/fixed/x", false), ("/both/x", false), ("/sdk/x", false)]
    {
        assert_eq!(decides(&forms, "file-write-data", path), writable, "{path}");
        assert!(decides(&forms, "file-read-data", path), "{path}");
    }
    assert!(!decides(&forms, "file-write-setugid", "/w/out/x"));
}

#[test]
fn guarded_paths_can_be_read_and_neither_written_nor_moved() {
    let guarded = [
        Guard::Pinned("/w/.git".into()),
        Guard::ReadOnly("/w/.git/hooks".into()),
        Guard::ReadOnly("/w/.git/config".into()),
    ];
    let forms = forms(&roots("/w"), &guarded, Network::Nothing);
    assert!(!decides(&forms, "file-write-create", "/w/.git/hooks/post-commit"));
    assert!(!decides(&forms, "file-write-data", "/w/.git/config"));
    assert!(!decides(&forms, "file-write-unlink", "/w/.git"));
    assert!(decides(&forms, "file-read-data", "/w/.git/config"));
    assert!(decides(&forms, "file-write-create", "/w/.git/objects/00"));
    assert!(decides(&forms, "file-write-unlink", "/w/.git/index.lock"));
}

#[test]
fn hidden_programs_can_be_neither_executed_nor_copied() {
    let forms = forms(&roots("/w"), &[], Network::Nothing);
    for operation in ["process-exec", "file-read-data", "file-map-executable"] {
        assert!(!decides(&forms, operation, "/bin/bash"), "{operation}");
        assert!(decides(&forms, operation, "/bin/cat"), "{operation}");
    }
}

#[test]
fn protected_paths_have_the_last_word() {
    let mut roots = roots("/w");
    roots.read = vec!["/w/a/state/inner".into()];
    roots.protected = vec!["/w/a/state".into(), "/usr/local/palyra".into()];
    for network in [Network::Host, Network::Nothing, Network::Proxy(8080)] {
        let all = forms(&roots, &[Guard::ReadOnly("/w/.git/hooks".into())], network);
        for protected in ["/w/a/state", "/w/a/state/key", "/w/a/state/inner/x", "/usr/local/palyra/x"] {
            for operation in ["file-read-data", "file-read-metadata", "file-write-data", "process-exec"] {
                assert!(!decides(&all, operation, protected), "{operation} {protected}");
            }
        }
        assert!(!decides(&all, "file-write-unlink", "/w/a"), "moved away, it would have another name");
        assert!(!decides(&all, "file-write-unlink", "/w"));
        let Form::List(last) = all.last().unwrap() else { panic!() };
        assert_eq!(last[0], Form::Word("deny".into()));
    }
}

#[test]
fn the_network_is_what_the_mode_leaves() {
    let line = |network| text(&roots("/w"), &[], network).unwrap();
    let strict = line(Network::Nothing);
    assert!(strict.contains("(deny network*)\n") && !strict.contains(" ip "));
    assert!(!strict.contains("mDNSResponder") && !strict.contains("configd"));
    let proxied = line(Network::Proxy(3128));
    assert!(proxied.contains("(deny network*)\n(allow network-outbound (remote ip \"localhost:3128\"))\n"));
    assert_eq!(proxied.matches(" ip ").count(), 1);
    let open = line(Network::Host);
    assert!(open.contains("(allow network-outbound (remote ip \"*:*\"))"));
    // In no mode the sockets of the host, such as those of an agent with keys.
    for profile in [strict, proxied, open] {
        assert!(!profile.contains("(remote unix-socket)") && !profile.contains("(allow network*)"));
    }
    assert_eq!(Network::of(EgressEnforcementMode::Strict), Network::Nothing);
    assert_eq!(Network::of(EgressEnforcementMode::Preflight), Network::Host);
}

#[test]
fn names_that_cannot_be_written_are_refused() {
    for (name, code) in [
        ("/w\0", "sandbox_nul_byte"),
        ("/w\n(allow default)", "sandbox_invalid_policy"),
        ("/w\u{7f}", "sandbox_invalid_policy"),
        ("/w\u{85}", "sandbox_invalid_policy"),
        ("relative", "sandbox_invalid_policy"),
        ("/w/../x", "sandbox_invalid_policy"),
    ] {
        assert_eq!(text(&roots(name), &[], Network::Nothing).unwrap_err().code(), code, "{name:?}");
    }
}

#[cfg(unix)]
#[test]
fn names_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let mut roots = roots("/w");
    roots.protected = vec![std::ffi::OsStr::from_bytes(b"/w/\xff").into()];
    assert_eq!(text(&roots, &[], Network::Nothing).unwrap_err().code(), "sandbox_invalid_policy");
}

#[test]
fn the_command_line_names_the_program_after_the_options_end() {
    let words = arguments("(version 1)".into(), Path::new("/bin/ls"), &["ls".into(), "-p".into(), "x".into()]);
    assert_eq!(words, ["-p", "(version 1)", "--", "/bin/ls", "-p", "x"]);
}

#[test]
fn every_rule_says_why() {
    for list in [READ_TREES, READ_FILES, METADATA, READ_DEVICES, WRITE_DEVICES, SERVICES, NETWORK_SERVICES, FACTS] {
        for Allowed { name, reason } in list {
            assert!(reason.len() > 4, "{name}");
        }
    }
    // Kernel paths only: a rule about `/etc/x` would match nothing.
    for Allowed { name, .. } in READ_TREES.iter().chain(READ_FILES) {
        assert!(!["/etc", "/tmp", "/var"].iter().any(|link| Path::new(name).starts_with(link)), "{name}");
    }
}

proptest! {
    /// No name injects a rule.
    #[test]
    fn a_path_stays_a_path(name in "/[ -~é\"\\\\();#|'\\n\\x00\u{202e}]{0,40}") {
        let plain = forms(&roots("/plain"), &[], Network::Nothing);
        let named = Roots { protected: vec![name.clone().into()], write: vec![name.clone().into()], ..roots(&name) };
        let Ok(text) = text(&named, &[Guard::ReadOnly(name.clone().into())], Network::Nothing) else { return Ok(()) };
        let got = read(&text).map_err(TestCaseError::fail)?;
        // Every rule begins with a word we wrote, and the name is in no place but a string.
        let word = |form: &Form| match form { Form::List(rule) => rule[0].clone(), other => other.clone() };
        for form in &got {
            prop_assert!(["version", "allow", "deny"].iter().any(|w| word(form) == Form::Word((*w).into())));
        }
        let reads = |forms: &[Form]| forms.iter().filter(|f| word(f) == Form::Word("allow".into())).count();
        prop_assert!(reads(&got) <= reads(&plain) + 16);
        let wanted = Form::List(vec![Form::Word("subpath".into()), Form::Text(name)]);
        let Some(Form::List(last)) = got.last() else { return Err(TestCaseError::fail("no rules")) };
        let Some(Form::List(filter)) = last.last() else { return Err(TestCaseError::fail("no filter")) };
        prop_assert_eq!(&last[..2], [Form::Word("deny".into()), Form::Word("network-bind".into())]);
        prop_assert_eq!(filter.last(), Some(&wanted));
    }

    #[test]
    fn a_literal_reads_back_as_itself(name in "\\PC{0,60}") {
        let literal = Literal::new(&name).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(read(&literal.to_string()).map_err(TestCaseError::fail)?, vec![Form::Text(name)]);
    }
}
