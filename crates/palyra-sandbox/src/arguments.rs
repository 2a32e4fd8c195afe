//! Which files a command line names, and whether they lie where the process may go.
//!
//! A prediction, made before anything runs so that a person and a policy can see it: the kernel enforces the same rule whatever
//! is predicted here. It looks at every word that is, holds or leads to an existing path: plain, relative, through
//! symlinks and `..`, after `--flag=`, `-I`, `@` and `file://`. A word that names nothing on this machine is not judged: it
//! may be a pattern, a URL or prose. The daemon's own state is judged apart: whoever names it is refused in every tier, even
//! where the process would find something else under that name. It must never be taken for the enforcement.

use crate::error::SandboxError;
use crate::layout;
use crate::policy::SandboxProcessRunnerPolicy;
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
            if candidate.starts_with('~') {
                // Nothing expands it on the way, but many programs do themselves.
                let path = PathBuf::from(candidate);
                return Err(SandboxError::ArgumentOutside { argument: argument.clone(), path });
            }
            let reached = nearest(&working_directory.join(candidate));
            if protected.iter().any(|path| reached.starts_with(path)) {
                return Err(SandboxError::ArgumentOutside { argument: argument.clone(), path: reached });
            }
            let Some(path) = existing(&working_directory.join(candidate)) else { continue };
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

/// The parts of a word that may be paths.
fn candidates(word: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut add = |text: &'_ str| {
        // `/a:/b`, as in search paths and volume options; a plain file name may hold a colon too.
        if text.contains(":/") && !text.contains("://") {
            found.extend(text.split(':').map(str::len).scan(0, |at, length| {
                let part = (*at, *at + length);
                *at += length + 1;
                Some(part)
            }));
        }
        found.push((0, text.len()));
    };
    let inner = strip(word);
    add(inner);
    found.into_iter().map(|(from, to)| &inner[from..to]).filter(|text| is_pathlike(text)).collect()
}

/// A word without what options put before a path.
fn strip(word: &str) -> &str {
    let mut inner = word;
    if let Some(option) = word.strip_prefix('-') {
        inner = match option.split_once('=') {
            Some((_, value)) => value,
            // `-I/usr/include`, `-C../x`.
            None => match option.find(|c| c == '~' || std::path::is_separator(c)) {
                Some(at) => option[..at].rfind(|c| c != '.').map_or(option, |last| &option[last + 1..]),
                None => "",
            },
        };
    } else if let Some((name, value)) = word.split_once('=')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    {
        // `of=/dev/sda`.
        inner = value;
    }
    let inner = inner.strip_prefix('@').unwrap_or(inner);
    inner.strip_prefix("file://localhost").or_else(|| inner.strip_prefix("file://")).unwrap_or(inner)
}

/// Whether a word is worth looking for on disk. A bare name counts: it may be a symlink to anywhere.
fn is_pathlike(text: &str) -> bool {
    let home = text.strip_prefix('~').is_some_and(|rest| rest.is_empty() || rest.starts_with(std::path::is_separator));
    let url = text.contains("://");
    home || (!text.is_empty() && !url && !text.starts_with('~') && !text.contains(['\n', '\0']) && text.len() < 4096)
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
    fn words_are_stripped_to_what_they_name() {
        for (word, expect) in [
            ("--file=/a/b", "/a/b"),
            ("-I/usr/include", "/usr/include"),
            ("-C../x", "../x"),
            ("@list", "list"),
            ("file:///etc/passwd", "/etc/passwd"),
            ("of=/dev/sda", "/dev/sda"),
            ("-x", ""),
            ("plain", "plain"),
        ] {
            assert_eq!(strip(word), expect, "{word}");
        }
        assert_eq!(candidates("/a:/b"), ["/a", "/b", "/a:/b"]);
        assert!(candidates("https://example.org/x").is_empty());
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
