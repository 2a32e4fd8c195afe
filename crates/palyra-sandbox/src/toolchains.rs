//! The toolchains that people install in their home directory, and what of each a run may see: reviewed data.
//!
//! Parts are listed one by one because the same directories hold credentials (`~/.cargo/credentials.toml`,
//! `~/.local/share/uv/credentials`, `~/.gradle/gradle.properties`, `~/.m2/settings.xml`). What is not listed is not
//! there. Settings files are left out for the same reason: they may hold tokens of registries.

use crate::layout;
use crate::run_home::RunHome;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One toolchain.
struct Known {
    name: &'static str,
    /// The variable that says where it is, where there is one.
    variable: Option<&'static str>,
    /// Where it is otherwise, in the home directory.
    base: &'static str,
    /// What of it is read. Empty text: all of it.
    shown: &'static [&'static str],
    /// What of it is filled by running.
    caches: &'static [&'static str],
    /// Where its programs are. `*` stands for one name, of which the last in order counts.
    search: &'static [&'static str],
}

const fn plain(name: &'static str, base: &'static str, shown: &'static [&'static str]) -> Known {
    Known { name, variable: None, base, shown, caches: &[], search: &[] }
}

const fn cache(name: &'static str, variable: Option<&'static str>, base: &'static str) -> Known {
    Known { name, variable, base, shown: &[], caches: &[""], search: &[] }
}

/// Several lines may have one name: what belongs together is used together.
const KNOWN: &[Known] = &[
    Known { variable: Some("RUSTUP_HOME"), ..plain("rust", ".rustup", &[""]) },
    Known {
        variable: Some("CARGO_HOME"),
        caches: &["registry", "git"],
        search: &["bin"],
        ..plain("rust", ".cargo", &["bin", "env"])
    },
    Known {
        variable: Some("NVM_DIR"),
        search: &["versions/node/*/bin"],
        ..plain("node", ".nvm", &["versions", "alias", "nvm.sh", "nvm-exec", "bash_completion"])
    },
    Known { search: &["aliases/default/bin"], ..plain("node", ".local/share/fnm", &["node-versions", "aliases"]) },
    Known { variable: Some("VOLTA_HOME"), search: &["bin"], ..plain("node", ".volta", &["bin", "tools"]) },
    Known { search: &["bin"], ..plain("node", ".npm-global", &["bin", "lib"]) },
    cache("node", None, ".npm/_cacache"),
    cache("node", None, ".cache/yarn"),
    Known { caches: &["store"], search: &[""], ..plain("node", ".local/share/pnpm", &["pnpm", "global"]) },
    Known {
        variable: Some("BUN_INSTALL"),
        caches: &["install/cache"],
        search: &["bin"],
        ..plain("bun", ".bun", &["bin"])
    },
    Known { variable: Some("DENO_INSTALL"), search: &["bin"], ..plain("deno", ".deno", &["bin"]) },
    cache("deno", Some("DENO_DIR"), ".cache/deno"),
    Known { variable: Some("PYENV_ROOT"), search: &["shims", "bin"], ..plain("python", ".pyenv", &[""]) },
    plain("python", ".local/share/uv", &["python", "tools"]),
    plain("python", ".local/share/pipx", &["venvs", "py"]),
    plain("python", ".local/share/pypoetry", &["venv", "bin"]),
    Known {
        search: &[""],
        ..plain("python", ".local/bin", &["uv", "uvx", "poetry", "pipx", "pdm", "hatch", "ruff", "black", "mypy"])
    },
    cache("python", Some("UV_CACHE_DIR"), ".cache/uv"),
    cache("python", Some("PIP_CACHE_DIR"), ".cache/pip"),
    Known { variable: Some("GOPATH"), caches: &["pkg/mod"], search: &["bin"], ..plain("go", "go", &["bin"]) },
    Known { search: &["*/bin"], ..plain("go", "sdk", &[""]) },
    Known { search: &["bin"], ..plain("go", ".local/go", &[""]) },
    cache("go", Some("GOCACHE"), ".cache/go-build"),
    plain("java", ".jdks", &[""]),
    Known {
        variable: Some("SDKMAN_DIR"),
        search: &["candidates/*/current/bin"],
        ..plain("java", ".sdkman", &["candidates", "bin", "src"])
    },
    Known { variable: Some("GRADLE_USER_HOME"), caches: &["caches", "wrapper"], ..plain("java", ".gradle", &[]) },
    Known { caches: &["repository", "wrapper"], ..plain("java", ".m2", &[]) },
    Known {
        variable: Some("MISE_DATA_DIR"),
        search: &["shims"],
        ..plain("mise", ".local/share/mise", &["installs", "shims", "plugins", "bin"])
    },
    Known { search: &[""], ..plain("mise", ".local/bin", &["mise"]) },
    Known {
        variable: Some("ASDF_DATA_DIR"),
        search: &["shims", "bin"],
        ..plain("asdf", ".asdf", &["installs", "shims", "plugins", "bin", "lib", "asdf.sh"])
    },
    Known { variable: Some("RBENV_ROOT"), search: &["shims", "bin"], ..plain("ruby", ".rbenv", &[""]) },
    plain("ruby", ".gem", &["ruby"]),
    Known { search: &["bin"], ..plain("haskell", ".ghcup", &["bin", "ghc", "cache"]) },
    Known { caches: &["packages", "store"], search: &["bin"], ..plain("haskell", ".cabal", &["bin"]) },
    Known { variable: Some("DOTNET_ROOT"), search: &["", "tools"], ..plain("dotnet", ".dotnet", &[""]) },
    cache("dotnet", None, ".nuget/packages"),
];

/// The names of all known toolchains.
#[must_use]
pub fn toolchain_names() -> Vec<&'static str> {
    let names: BTreeSet<&str> = KNOWN.iter().map(|known| known.name).collect();
    names.into_iter().collect()
}

/// Where toolchains are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Whereabouts<'a> {
    /// The person's home directory.
    pub home: &'a Path,
    /// Their environment.
    pub variable: fn(&str) -> Option<String>,
}

/// The toolchains that are there, by name.
#[must_use]
pub fn installed_toolchains(at: Whereabouts<'_>) -> Vec<&'static str> {
    let there = |known: &&Known| {
        let Some(base) = base_of(known, at) else { return false };
        known.shown.iter().any(|part| base.join(part).exists())
    };
    let names: BTreeSet<&str> = KNOWN.iter().filter(there).map(|known| known.name).collect();
    names.into_iter().collect()
}

/// The home directory of a run with these toolchains. What is missing, or a link that leads nowhere, is left out; so is
/// what lies in a directory that runs may write, because they could put something else in its place.
#[must_use]
pub fn home_with(names: &[String], at: Whereabouts<'_>, writable: &[PathBuf]) -> RunHome {
    let mut found = RunHome::default();
    let free = |path: &PathBuf| !writable.iter().any(|root| path.starts_with(root) || root.starts_with(path));
    let real = |path: PathBuf| fs::canonicalize(path).ok().filter(|path| free(path) && !layout::is_system_path(path));
    for known in KNOWN.iter().filter(|known| names.iter().any(|name| name == known.name)) {
        let Some(base) = base_of(known, at) else { continue };
        let parts = |parts: &[&str]| parts.iter().filter_map(|part| real(base.join(part))).collect::<Vec<_>>();
        let (shown, caches) = (parts(known.shown), parts(known.caches));
        if shown.is_empty() && caches.is_empty() {
            continue;
        }
        found.shown.extend(shown);
        found.caches.extend(caches.into_iter().filter(|path| path.is_dir()));
        found.search.extend(known.search.iter().flat_map(|pattern| matches(&base, pattern)));
        if let Some(name) = known.variable.filter(|name| (at.variable)(name).is_some()) {
            found.variables.insert(name.to_owned(), base.to_string_lossy().into_owned());
        }
    }
    for list in [&mut found.shown, &mut found.caches] {
        list.sort_unstable();
        list.dedup();
    }
    let home = fs::canonicalize(at.home).ok();
    let around = |home: &PathBuf| !writable.iter().any(|root| home.starts_with(root));
    let system = |home: &PathBuf| layout::is_system_path(home) || home.parent().is_none() || home == Path::new("/tmp");
    found.path = home.filter(|home| around(home) && !system(home));
    search_as_the_person_does(&mut found, at);
    found
}

/// Directories of the person's own search path come first, in their order, as far as a run sees them.
fn search_as_the_person_does(home: &mut RunHome, at: Whereabouts<'_>) {
    let path = (at.variable)("PATH").unwrap_or_default();
    let seen =
        |directory: &Path| layout::is_system_path(directory) || home.roots().any(|root| directory.starts_with(root));
    let theirs = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    let theirs = theirs.filter(|directory| fs::canonicalize(directory).is_ok_and(|real| seen(&real)));
    let mut search: Vec<PathBuf> = Vec::new();
    for directory in theirs.chain(home.search.clone()) {
        if !search.contains(&directory) {
            search.push(directory);
        }
    }
    home.search = search;
}

fn base_of(known: &Known, at: Whereabouts<'_>) -> Option<PathBuf> {
    let named = known.variable.and_then(at.variable).map(PathBuf::from).filter(|path| path.is_absolute());
    fs::canonicalize(named.unwrap_or_else(|| at.home.join(known.base))).ok()
}

/// The directories that a pattern stands for, the last name of each `*` first. Nothing is looked for where it has none.
fn matches(base: &Path, pattern: &str) -> Vec<PathBuf> {
    let Some((before, behind)) = pattern.split_once('*') else {
        return if pattern.is_empty() { vec![base.to_owned()] } else { vec![base.join(pattern)] };
    };
    let entries = fs::read_dir(base.join(before)).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path().join(behind.trim_start_matches('/'))).collect();
    found.retain(|path| path.is_dir());
    found.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    found
}

/// The numbers in a path, by which versions are ordered: `v20.1` comes after `v9.9`.
fn numbers(path: &Path) -> Vec<u64> {
    let text = path.to_string_lossy();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn home() -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for part in [".cargo/bin", ".cargo/registry", ".rustup/toolchains", ".nvm/versions/node/v9/bin", "work"] {
            fs::create_dir_all(top.join(part)).unwrap();
        }
        fs::create_dir_all(top.join(".nvm/versions/node/v20/bin")).unwrap();
        fs::write(top.join(".cargo/credentials.toml"), "token").unwrap();
        fs::write(top.join(".npmrc"), "token").unwrap();
        symlink(top.join("nowhere"), top.join(".pyenv")).unwrap();
        (dir, top)
    }

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn toolchains_are_found_and_a_broken_link_is_none() {
        let (_dir, top) = home();
        assert_eq!(installed_toolchains(Whereabouts { home: &top, variable: nothing }), ["node", "rust"]);
    }

    #[test]
    fn no_credentials_are_shown_and_the_newest_version_comes_first() {
        let (_dir, top) = home();
        let names = ["rust".to_owned(), "node".to_owned(), "python".to_owned()];
        let found = home_with(&names, Whereabouts { home: &top, variable: nothing }, &[top.join("work")]);
        let below = |paths: &[PathBuf]| {
            let names = paths.iter().map(|path| path.strip_prefix(&top).unwrap().display().to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(below(&found.shown), [".cargo/bin", ".nvm/versions", ".rustup"]);
        assert_eq!(below(&found.caches), [".cargo/registry"]);
        assert_eq!(below(&found.search), [".cargo/bin", ".nvm/versions/node/v20/bin", ".nvm/versions/node/v9/bin"]);
        assert_eq!(found.path, Some(top.clone()));
        for secret in [".cargo/credentials.toml", ".npmrc"] {
            assert!(!found.roots().any(|root| top.join(secret).starts_with(root)), "{secret}");
        }
    }

    #[test]
    fn what_runs_may_write_is_no_toolchain() {
        let (_dir, top) = home();
        let found =
            home_with(&["rust".to_owned()], Whereabouts { home: &top, variable: nothing }, std::slice::from_ref(&top));
        assert_eq!(found.path, None);
        assert_eq!(found.roots().count(), 0);
    }
}
