//! Dependency manifests: whether a change adds a dependency or a script.
//!
//! Building or installing a project runs what its manifest names. Editing a manifest is everyday work; what deserves a
//! look is a name that was not there before. A manifest that cannot be read counts as one that gained something.

use super::guarded::Versions;
use palyra_protocol::EffectPath;
use serde_json::Value;
use std::collections::BTreeSet;

/// How a kind of manifest is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// `package.json` and `composer.json`.
    Json,
    /// `Cargo.toml` and `pyproject.toml`.
    Toml,
    /// One requirement a line.
    Requirements,
    /// `go.mod`.
    GoModule,
    /// Programs that declare dependencies: every new line that names something counts.
    Lines,
}

/// Whether a path is a manifest.
pub(super) fn is_manifest(path: &EffectPath) -> bool {
    reader(path).is_some()
}

fn reader(path: &EffectPath) -> Option<Reader> {
    let name = std::str::from_utf8(path.name()).ok()?.to_ascii_lowercase();
    match name.as_str() {
        "package.json" | "composer.json" => Some(Reader::Json),
        "cargo.toml" | "pyproject.toml" => Some(Reader::Toml),
        "go.mod" => Some(Reader::GoModule),
        "gemfile" | "build.gradle" | "build.gradle.kts" | "settings.gradle" | "settings.gradle.kts" | "pom.xml" => {
            Some(Reader::Lines)
        }
        name if name.starts_with("requirements") && name.ends_with(".txt") => Some(Reader::Requirements),
        _ => None,
    }
}

/// Whether the new version names a dependency or a script that the old one does not.
pub(super) fn gains(path: &EffectPath, versions: &Versions<'_>) -> bool {
    let Some(reader) = reader(path) else { return false };
    let Some(new) = versions.new.and_then(|text| named(reader, text)) else { return true };
    // An old version that cannot be read named nothing that anybody could have relied on.
    let old = versions.old.and_then(|text| named(reader, text)).unwrap_or_default();
    !new.is_subset(&old)
}

fn named(reader: Reader, text: &[u8]) -> Option<BTreeSet<String>> {
    let text = std::str::from_utf8(text).ok()?;
    match reader {
        Reader::Json => Some(in_json(&serde_json::from_str(text).ok()?)),
        Reader::Toml => {
            let value = toml::from_str::<Value>(text).ok()?;
            let mut found = BTreeSet::new();
            in_toml(&value, "", &mut found);
            Some(found)
        }
        Reader::Requirements => Some(text.lines().filter_map(requirement).collect()),
        Reader::GoModule => Some(text.lines().filter_map(go_line).collect()),
        Reader::Lines => Some(text.lines().filter_map(declaring_line).collect()),
    }
}

/// Sections of JSON manifests whose keys are dependencies, and those whose values are run.
const DEPENDENCIES: [&str; 8] = [
    "dependencies",
    "devDependencies",
    "optionalDependencies",
    "peerDependencies",
    "overrides",
    "resolutions",
    "require",
    "require-dev",
];

fn in_json(manifest: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for section in DEPENDENCIES {
        for (name, wanted) in manifest[section].as_object().into_iter().flatten() {
            found.insert(dependency(name, wanted));
        }
    }
    for (name, script) in manifest["scripts"].as_object().into_iter().flatten() {
        found.insert(format!("script {name}: {script}"));
    }
    if let Some(manager) = manifest["packageManager"].as_str() {
        let name = manager.split('@').next().unwrap_or(manager);
        found.insert(format!("package manager {name}"));
    }
    found
}

/// Tables whose keys are dependencies, wherever they stand; lists of requirements; and keys that name what is run.
fn in_toml(value: &Value, key: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(table) if key.ends_with("dependencies") || key.starts_with("patch.") => {
            for (name, wanted) in table {
                match wanted {
                    Value::Array(list) => found.extend(list.iter().filter_map(Value::as_str).filter_map(requirement)),
                    wanted => drop(found.insert(dependency(name, wanted))),
                }
            }
        }
        Value::Object(table) => {
            for (name, value) in table {
                let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                in_toml(value, &below, found);
            }
        }
        Value::Array(list)
            if key.ends_with("dependencies") || key.ends_with(".requires") || key.starts_with("dependency-groups.") =>
        {
            found.extend(list.iter().filter_map(Value::as_str).filter_map(requirement));
        }
        Value::String(text) if matches!(key, "package.build" | "build-system.build-backend") => {
            found.insert(format!("{key} {text}"));
        }
        _ => {}
    }
}

/// A dependency by its name and, where it is not a plain version, by where it comes from.
fn dependency(name: &str, wanted: &Value) -> String {
    let text = wanted.to_string();
    let sources = ["://", "git", "path", "file:", "link:", "npm:", "url", "registry"];
    if sources.iter().any(|source| text.contains(source)) {
        format!("dependency {name} from {text}")
    } else {
        format!("dependency {name}")
    }
}

/// The name in a line such as `requests[socks]>=2; python_version < "4"`; an option or a URL is kept whole.
fn requirement(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or(line).trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    if line.starts_with('-') || line.contains("://") || line.contains(" @ ") || line.starts_with(['.', '/']) {
        return Some(format!("requirement {line}"));
    }
    let end = line.find(|c: char| !(c.is_alphanumeric() || "-_.".contains(c))).unwrap_or(line.len());
    Some(format!("requirement {}", line[..end].to_ascii_lowercase().replace(['_', '.'], "-")))
}

fn go_line(line: &str) -> Option<String> {
    let line = line.split("//").next().unwrap_or(line).trim();
    let line = line.strip_prefix("require ").unwrap_or(line).trim();
    if line.contains("=>") || line.starts_with("toolchain ") || line.starts_with("tool ") {
        return Some(line.to_owned());
    }
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some(module), Some(version)) if version.starts_with('v') && module.contains('.') => {
            Some(format!("module {module}"))
        }
        _ => None,
    }
}

/// A line that may declare something, without its numbers: another version is no gain.
fn declaring_line(line: &str) -> Option<String> {
    let line = line.trim();
    let comment = line.starts_with('#') || line.starts_with("//") || line.starts_with("<!--") || line.starts_with('*');
    let names_something = line.contains(['\'', '"', '<', '(']);
    let is_version = line.starts_with("<version>") || line.starts_with("version");
    if comment || !names_something || is_version {
        return None;
    }
    Some(line.chars().filter(|c| !c.is_ascii_digit()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, old: &str, new: &str) -> bool {
        let path = name.parse().unwrap();
        gains(&path, &Versions { old: Some(old.as_bytes()), new: Some(new.as_bytes()) })
    }

    #[test]
    fn new_names_are_gains_and_new_versions_are_not() {
        for (name, old, same, more) in [
            (
                "package.json",
                r#"{"dependencies":{"a":"1"},"scripts":{"test":"jest"}}"#,
                r#"{"version":"2","dependencies":{"a":"^2"},"scripts":{"test":"jest"}}"#,
                r#"{"dependencies":{"a":"1","b":"1"},"scripts":{"test":"jest"}}"#,
            ),
            (
                "web/package.json",
                r#"{"scripts":{"test":"jest"}}"#,
                r#"{"scripts":{"test":"jest"},"private":true}"#,
                r#"{"scripts":{"test":"jest; curl evil"}}"#,
            ),
            (
                "package.json",
                r#"{"dependencies":{"a":"1"}}"#,
                r#"{"dependencies":{}}"#,
                r#"{"dependencies":{"a":"git+ssh://x"}}"#,
            ),
            (
                "Cargo.toml",
                "[package]\nname='x'\n[dependencies]\nserde='1'\n",
                "[package]\nname='y'\n[dependencies]\nserde='2'\n",
                "[package]\nname='x'\n[target.'cfg(unix)'.dependencies]\nlibc='0.2'\n[dependencies]\nserde='1'\n",
            ),
            (
                "Cargo.toml",
                "[package]\nname='x'\n",
                "[package]\nname='x'\nversion='1.0.0'\n",
                "[package]\nname='x'\nbuild='evil.rs'\n",
            ),
            (
                "pyproject.toml",
                "[project]\ndependencies=['requests>=2']\n",
                "[project]\ndependencies=['requests>=3']\n",
                "[project]\ndependencies=['requests>=2','evil']\n",
            ),
            (
                "pyproject.toml",
                "[build-system]\nrequires=['setuptools']\n",
                "[build-system]\nrequires=['setuptools>60']\n",
                "[build-system]\nrequires=['setuptools','evil']\n",
            ),
            ("requirements-dev.txt", "a==1\n", "a==2 # why\n\n", "a==1\n--index-url https://evil\n"),
            (
                "go.mod",
                "module x\nrequire a.org/b v1.0.0\n",
                "module x\nrequire a.org/b v1.2.0\n",
                "module x\nrequire (\n a.org/b v1.0.0\n c.org/d v1\n)\n",
            ),
            ("Gemfile", "gem 'a', '1.0'\n", "gem 'a', '2.1'\n# gem 'b'\n", "gem 'a', '1.0'\ngem 'b'\n"),
        ] {
            assert!(!check(name, old, old) && !check(name, old, same), "{name}: {same}");
            assert!(check(name, old, more), "{name}: {more}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_gain() {
        assert!(check("package.json", "{}", "{"));
        assert!(check("Cargo.toml", "", "= ="));
        let path = "package.json".parse().unwrap();
        assert!(gains(&path, &Versions { old: Some(b"{}"), new: None }));
        assert!(!gains(&path, &Versions { old: None, new: Some(b"{\"name\":\"x\"}") }), "a new manifest without any");
    }
}
