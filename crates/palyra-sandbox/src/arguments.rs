//! Which files a command line names, and whether they lie where the process may go.
//!
//! A prediction, made before anything runs so that a person and a policy can see it: the kernel enforces the same rule whatever
//! is predicted here. It looks at every word that is, holds or leads to an existing path: plain, relative, through
//! symlinks and `..`, after `--flag=`, `-I`, `@`, `file://` in any spelling, and behind each of the signs that programs
//! put between a name and a path. A word that names nothing on this machine is not judged: it may be a pattern, a URL or prose. The daemon's own state is judged apart: whoever names it is refused in every tier, even
//! where the process would find something else under that name. It must never be taken for the enforcement.

use crate::error::SandboxError;
use crate::layout;
use crate::policy::SandboxProcessRunnerPolicy;
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

/// The existing files that a command's arguments name, free of symlinks.
///
/// # Errors
/// When one of them lies outside everything the process may see.
pub fn check_arguments(
    policy: &SandboxProcessRunnerPolicy,
    argv: &[String],
    working_directory: &Path,
) -> Result<Vec<PathBuf>, SandboxError> {
    let allowed = allowed_roots(policy);
    let protected = protected_paths(policy);
    let mut named = Vec::new();
    for argument in argv.iter().skip(1) {
        for Candidate { text: candidate, surely } in candidates(argument) {
            if is_home(&candidate) {
                // Nothing expands it on the way, but many programs do themselves.
                let path = PathBuf::from(&*candidate);
                return Err(SandboxError::ArgumentOutside { argument: argument.clone(), path });
            }
            let reached = nearest(&working_directory.join(&*candidate));
            if protected.iter().any(|path| reached.starts_with(path)) {
                return Err(SandboxError::ArgumentOutside { argument: argument.clone(), path: reached });
            }
            let candidate = working_directory.join(&*candidate);
            let found = if surely { existing(&candidate) } else { fs::canonicalize(&candidate).ok() };
            let Some(path) = found else { continue };
            if !allowed.iter().any(|root| path.starts_with(root)) {
                return Err(SandboxError::ArgumentOutside { argument: argument.clone(), path });
            }
            if !named.contains(&path) {
                named.push(path);
            }
        }
    }
    Ok(named)
}

/// The protected paths, as the policy names them and as they really are.
fn protected_paths(policy: &SandboxProcessRunnerPolicy) -> Vec<PathBuf> {
    let mut paths = policy.protected_paths.clone();
    paths.extend(policy.protected_paths.iter().map(|path| nearest(path)));
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Where a path leads as far as it exists; what does not exist keeps its name.
fn nearest(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => nearest(parent).join(name),
        // `missing/..`: nothing can be reached through it.
        _ => path.to_owned(),
    }
}

/// Where a path really leads: itself, or, for one that could be created, its directory. `None` when neither exists.
fn existing(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = fs::canonicalize(path) {
        return Some(real);
    }
    // A symlink to something that does not exist yet would create it there.
    if let Ok(target) = fs::read_link(path) {
        let target = path.parent()?.join(target);
        return Some(fs::canonicalize(target.parent()?).ok()?.join(target.file_name()?));
    }
    let name = path.file_name()?;
    let parent = path.parent().filter(|parent| parent.parent().is_some())?;
    Some(fs::canonicalize(parent).ok()?.join(name))
}

fn allowed_roots(policy: &SandboxProcessRunnerPolicy) -> Vec<PathBuf> {
    let roots = std::iter::once(&policy.workspace_root).chain(&policy.read_roots).chain(&policy.write_roots);
    let mut allowed: Vec<PathBuf> = roots.filter_map(|root| fs::canonicalize(root).ok()).collect();
    allowed.extend(layout::readable(policy.tier));
    allowed
}

/// What programs put between a name and a path, or between paths.
const SEPARATORS: [char; 8] = ['=', ',', ':', '@', '<', '>', ';', '|'];
/// A word with more parts than this is no list of paths.
const MOST_PARTS: usize = 64;

/// A part of a word that may be a path.
#[derive(Debug, PartialEq, Eq)]
struct Candidate<'a> {
    text: Cow<'a, str>,
    /// Whether it stands where paths stand, so that it is one even if nothing is there yet.
    surely: bool,
}

/// The parts of a word that may be paths: the whole, and from behind each separator to the next one or to the end.
fn candidates(word: &str) -> Vec<Candidate<'_>> {
    let mut found: Vec<Candidate<'_>> = Vec::new();
    for (start, surely) in starts(word) {
        let text = &word[start..];
        if let Some(path) = file_url(text) {
            found.push(Candidate { text: path, surely });
            continue;
        }
        let end = text.find(SEPARATORS).unwrap_or(text.len());
        for part in [text, &text[..end]] {
            if is_pathlike(part) && !found.iter().any(|known| known.text == part) {
                found.push(Candidate { text: part.into(), surely });
            }
        }
    }
    found
}

/// Where a path may begin in a word, and whether paths surely stand there.
fn starts(word: &str) -> Vec<(usize, bool)> {
    let mut starts = Vec::new();
    if let Some(option) = word.strip_prefix('-') {
        // `-I/usr/include`, `-C../x`.
        if let Some(at) = option.find(|c| c == '~' || std::path::is_separator(c)) {
            let dots = option[..at].len() - option[..at].trim_end_matches('.').len();
            starts.push((1 + at - dots, true));
        }
    } else {
        starts.push((0, true));
    }
    // What follows the scheme of a URL is a host and no path; only of files it is one, and that is seen from the scheme on.
    let end = scheme_end(word).unwrap_or(word.len());
    let name = word.find(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c));
    let behind = word[..end].match_indices(SEPARATORS).filter_map(|(at, sign)| {
        // `--file=…`, `of=…`, `@…`, `a:/b`.
        let surely = (name == Some(at) && sign == "=") || at == 0 || word[at..].starts_with(":/");
        // Prose and code have such signs for other reasons.
        let counts = surely || !word.contains(char::is_whitespace);
        (counts && at + sign.len() < word.len()).then_some((at + sign.len(), surely))
    });
    starts.extend(behind.take(MOST_PARTS));
    starts
}

/// Where the scheme of a URL ends, before its colon.
fn scheme_end(word: &str) -> Option<usize> {
    word.find("://")
}

/// The path of a `file:` URL: in any case, behind any prefix (`git+file:`), on any host, percent signs undone.
fn file_url(text: &str) -> Option<Cow<'_, str>> {
    let (scheme, rest) = text.split_once(':')?;
    let scheme = scheme.rsplit('+').next().unwrap_or(scheme);
    if !scheme.eq_ignore_ascii_case("file") {
        return None;
    }
    let path = match rest.strip_prefix("//") {
        Some(authority) => authority.find('/').map_or("", |at| &authority[at..]),
        None => rest,
    };
    Some(percent_decoded(path.split(['?', '#']).next().unwrap_or(path)))
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned().into()
}

/// Whether a program that knows homes would read this as somebody's: `~`, `~/x`, `~root/x`.
fn is_home(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('~') else { return false };
    let name = rest.split(std::path::is_separator).next().unwrap_or(rest);
    name.is_empty() || is_user(name)
}

/// Whether somebody of this name has a home here.
fn is_user(name: &str) -> bool {
    let plausible = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    let users = || fs::read_to_string("/etc/passwd").unwrap_or_default();
    plausible && users().lines().any(|line| line.split(':').next() == Some(name))
}

/// Whether a word is worth looking for on disk. A bare name counts: it may be a symlink to anywhere.
fn is_pathlike(text: &str) -> bool {
    !text.is_empty() && scheme_end(text).is_none() && !text.contains('\0') && text.len() < 4096
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::policy::SandboxTier;
    use crate::testing::policy;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn texts(word: &str) -> Vec<String> {
        candidates(word).into_iter().map(|candidate| candidate.text.into_owned()).collect()
    }

    #[test]
    fn every_part_of_a_word_that_may_be_a_path_is_found() {
        for (word, expect) in [
            ("--file=/a/b", "/a/b"),
            ("-I/usr/include", "/usr/include"),
            ("-C../x", "../x"),
            ("@list", "list"),
            ("file:///etc/passwd", "/etc/passwd"),
            ("FILE:///etc%2fpasswd", "/etc/passwd"),
            ("--url=git+File://127.0.0.1/etc/passwd", "/etc/passwd"),
            ("file:/etc/passwd?x", "/etc/passwd"),
            ("of=/dev/sda", "/dev/sda"),
            ("--x=y=/a", "/a"),
            ("a-b=/a", "/a"),
            ("--m=type=bind,source=/a", "/a"),
            ("f=</a", "/a"),
            ("-I/a=x", "/a"),
            ("a:../../b", "../../b"),
            ("--x=~root/y", "~root/y"),
            ("a\nb", "a\nb"),
            ("plain", "plain"),
        ] {
            assert!(texts(word).iter().any(|found| found == expect), "{word}: {:?}", candidates(word));
        }
        assert_eq!(texts("/a:/b"), ["/a:/b", "/a", "/b"]);
        assert_eq!(texts("https://example.org/x?y=/etc/shadow"), ["https"]);
        assert!(candidates("-x").is_empty());
        let long = "=,".repeat(5000);
        assert!(candidates(&long).len() <= 2 * MOST_PARTS + 2);
    }

    #[test]
    fn files_outside_are_refused_however_they_are_named() {
        let dir = TempDir::new().unwrap();
        let workspace = dir.path().join("w");
        fs::create_dir_all(workspace.join("sub")).unwrap();
        fs::write(dir.path().join("secret"), "").unwrap();
        fs::write(workspace.join("ok"), "").unwrap();
        symlink(dir.path().join("secret"), workspace.join("link")).unwrap();
        symlink(dir.path().join("not-yet"), workspace.join("dangling")).unwrap();
        symlink("..", workspace.join("up")).unwrap();
        symlink("../secret", workspace.join("new\nline")).unwrap();
        let policy = policy(&workspace);
        let secret = dir.path().join("secret").display().to_string();
        let check = |word: &str| check_arguments(&policy, &["cat".into(), word.into()], &workspace);
        for word in [
            &secret,
            "../secret",
            "link",
            "dangling",
            "up/secret",
            "sub/../../secret",
            "~/x",
            "~",
            "/etc/shadow",
            "--f=../secret",
            "-I../secret",
            "@../secret",
            &format!("file://{secret}"),
            &format!("if={secret}"),
            &format!("a:{secret}"),
            "up",
            &format!("FILE://{secret}"),
            &format!("file://127.0.0.1{secret}"),
            &format!("git+file://{}", secret.replace('/', "%2f").replacen("%2f", "/", 1)),
            "~root/x",
            "--x=~root/y",
            &format!("--x=y={secret}"),
            &format!("a-b={secret}"),
            &format!("--m=type=bind,source={secret}"),
            &format!("f=<{secret}"),
            &format!("-I{secret}=x"),
            "a:../secret",
            "new\nline",
            "../new-file",
            "/srv/x",
        ] {
            assert!(check(word).is_err(), "{word}");
        }
        for word in [
            "ok",
            "sub/../ok",
            "new-file",
            "/usr/bin/env",
            "/etc/hosts",
            "-la",
            "s,/x/y,/z,",
            "https://a/b",
            "",
            "HEAD~1",
            "a b c",
            "x=~s/a/b/",
            "https://etc/shadow",
            "https://example.org/?x=/etc/shadow",
            "-DNAME=value",
            "fix: a thing, and another",
            "(echo x > new) 2>/dev/null && cat </etc/shadow; true",
            "2>/srv/none",
            "origin/main:ok",
        ] {
            assert!(check(word).is_ok(), "{word} {:?}", check(word));
        }
        assert_eq!(check("sub/../ok").unwrap(), [workspace.canonicalize().unwrap().join("ok")]);
    }

    #[test]
    fn the_daemons_state_is_refused_in_every_tier_however_it_is_named() {
        // Below /tmp, which tier c replaces by its own.
        let dir = tempfile::Builder::new().prefix("palyra-arguments-").tempdir_in("/tmp").unwrap();
        let (workspace, state) = (dir.path().join("w"), dir.path().join("state"));
        fs::create_dir_all(&workspace).unwrap();
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("signing.key"), "").unwrap();
        symlink(&state, workspace.join("link")).unwrap();
        let mut policy = policy(&workspace);
        policy.protected_paths = vec![state.clone()];
        let state = state.display();
        for tier in [SandboxTier::B, SandboxTier::C] {
            policy.tier = tier;
            let check = |word: &str| check_arguments(&policy, &["cat".into(), word.into()], &workspace);
            for word in [
                &format!("{state}"),
                &format!("{state}/signing.key"),
                &format!("{state}/not/there/yet"),
                &format!("{state}/../state/signing.key"),
                &format!("--file={state}/signing.key"),
                &format!("@{state}/signing.key"),
                &format!("file://{state}/signing.key"),
                "../state/signing.key",
                "link",
                "link/signing.key",
                "link/not/there",
            ] {
                assert!(check(word).is_err(), "{tier} {word}");
            }
            if tier == SandboxTier::C {
                for word in [&format!("{state}-other"), &format!("{state}.bak"), "/tmp/anything"] {
                    assert!(check(word).is_ok(), "{word}");
                }
            }
        }
    }
}
