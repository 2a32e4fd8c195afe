//! Which files a command line names, and whether they lie where the process may go.
//!
//! A prediction, made before anything runs so that a person and a rule can see it; the kernel enforces the same
//! whatever is predicted here. A word counts when something exists under it: as it stands, behind the `=` of an option
//! or assignment, behind the letter of a short option, behind `@`, or as a `file:` URL. A word that names nothing on
//! this host may be a pattern, a delimiter or prose, and is not judged. The daemon's own state is judged apart: a
//! command that names it is refused in every tier, also where nothing is there.

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
        for candidate in candidates(argument) {
            let outside = |path| SandboxError::ArgumentOutside { argument: argument.clone(), path };
            let candidate = working_directory.join(&*candidate);
            let reached = nearest(&candidate);
            if protected.iter().any(|path| reached.starts_with(path)) {
                return Err(outside(reached));
            }
            // The root directory is there in every tier, and shows what the tier shows; `/` is mostly a delimiter.
            let Some(path) = fs::canonicalize(&candidate).ok().filter(|path| path.parent().is_some()) else { continue };
            if !allowed.iter().any(|root| path.starts_with(root)) {
                return Err(outside(path));
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

fn allowed_roots(policy: &SandboxProcessRunnerPolicy) -> Vec<PathBuf> {
    let roots = std::iter::once(&policy.workspace_root).chain(policy.read_only()).chain(&policy.write_roots);
    let mut allowed: Vec<PathBuf> = roots.filter_map(|root| fs::canonicalize(root).ok()).collect();
    allowed.extend(layout::readable(policy.tier));
    allowed
}

/// The parts of a word that may be paths.
fn candidates(word: &str) -> Vec<Cow<'_, str>> {
    // `--file=x`, `of=x`; what stands behind a slash is part of a path or URL.
    let value =
        word.split_once('=').filter(|(name, _)| !name.contains(std::path::is_separator)).map(|(_, value)| value);
    // `-I/usr/include`, `-C../x`.
    let attached = word.strip_prefix('-').filter(|option| !option.starts_with('-')).and_then(|option| {
        let letters = option.find(|c: char| !c.is_ascii_alphanumeric())?;
        let rest = &option[letters..];
        rest.trim_start_matches('.').starts_with(std::path::is_separator).then_some(rest)
    });
    let whole = (!word.starts_with('-')).then_some(word);
    let parts = [whole, value, attached, word.strip_prefix('@')].into_iter().flatten();
    parts.filter(|part| is_pathlike(part)).map(|part| file_url(part).unwrap_or(part.into())).collect()
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

/// Whether a word is worth looking for on disk. A bare name counts: it may be a symlink to anywhere.
fn is_pathlike(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0') && text.len() < 4096
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::policy::SandboxTier;
    use crate::testing::policy;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    #[test]
    fn an_argument_that_names_something_outside_is_refused() {
        let dir = TempDir::new().unwrap();
        let workspace = dir.path().join("w");
        fs::create_dir_all(workspace.join("sub")).unwrap();
        fs::write(dir.path().join("secret"), "").unwrap();
        fs::write(workspace.join("ok"), "").unwrap();
        symlink(dir.path().join("secret"), workspace.join("link")).unwrap();
        symlink("..", workspace.join("up")).unwrap();
        symlink("../secret", workspace.join("new\nline")).unwrap();
        let policy = policy(&workspace);
        let secret = dir.path().join("secret").display().to_string();
        let check = |word: &str| check_arguments(&policy, &["cat".into(), word.into()], &workspace);
        for word in [
            &secret,
            "../secret",
            "..",
            "link",
            "up/secret",
            "up",
            "sub/../../secret",
            "/etc/shadow",
            "--f=../secret",
            "-I../secret",
            &format!("-I{secret}"),
            "@../secret",
            &format!("if={secret}"),
            &format!("file://{secret}"),
            &format!("FILE://{secret}"),
            &format!("--url=git+file://127.0.0.1{secret}"),
            &format!("file://{}", secret.replace('/', "%2f").replacen("%2f", "/", 1)),
            "new\nline",
        ] {
            assert!(check(word).is_err(), "{word}");
        }
        assert_eq!(check("sub/../ok").unwrap(), [workspace.canonicalize().unwrap().join("ok")]);
    }

    #[test]
    fn a_word_that_only_looks_like_a_path_is_not_judged() {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("ok"), "").unwrap();
        let policy = policy(dir.path());
        for line in [
            "cut -d/ -f2 ok",
            "tr / _",
            "sort -t/ ok",
            "grep // ok",
            "make PREFIX=/no-such-place/x",
            "cp ok /no-such-place/x",
            "sed s,/etc/shadow,x, ok",
            "ls /usr/bin/env /etc/hosts",
            "git log HEAD~1 origin/main:ok -- ok",
            "curl https://etc/shadow https://example.org/?x=/etc/shadow",
            "cc -DNAME=value -Wl,-rpath,/etc/shadow",
            "echo ~ ~root/x a:/etc/shadow",
        ] {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert!(check_arguments(&policy, &argv, dir.path()).is_ok(), "{line}");
        }
        for word in ["", "a b c", "(echo x > new) 2>/dev/null && cat </etc/shadow; true"] {
            assert!(check_arguments(&policy, &["x".into(), word.into()], dir.path()).is_ok(), "{word}");
        }
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
