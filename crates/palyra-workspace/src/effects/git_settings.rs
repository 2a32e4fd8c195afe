//! Git's settings: which changes are harmless.
//!
//! `.git/config` can name programs in dozens of keys, and git gains new ones. So this is a list of keys that are known
//! to name none, and everything else counts as a program. What this parser does not understand is not harmless.

use super::guarded::Versions;
use palyra_protocol::EffectPath;
use std::collections::BTreeSet;

/// Keys that name neither a program nor a file, as `section.key`; a subsection does not matter.
const HARMLESS: [&str; 45] = [
    "branch.description",
    "branch.gh-merge-base",
    "branch.merge",
    "branch.pushremote",
    "branch.rebase",
    "branch.remote",
    "branch.vscode-merge-base",
    "color.branch",
    "color.diff",
    "color.status",
    "color.ui",
    "core.abbrev",
    "core.autocrlf",
    "core.bare",
    "core.compression",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.quotepath",
    "core.repositoryformatversion",
    "core.symlinks",
    "extensions.objectformat",
    "extensions.refstorage",
    "fetch.prune",
    "init.defaultbranch",
    "merge.conflictstyle",
    "merge.ff",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "push.followtags",
    "rebase.autosquash",
    "rebase.autostash",
    "remote.fetch",
    "remote.prune",
    "remote.pushurl",
    "remote.tagopt",
    "remote.url",
    "submodule.active",
    "submodule.url",
    "user.email",
    "user.name",
];

/// Whether a path is a repository's settings: of one in a `.git`, or of one without work tree, called `x.git`.
pub(super) fn is_settings(path: &EffectPath) -> bool {
    path.as_bytes().to_ascii_lowercase().ends_with(b".git/config")
}

/// Whether every difference between the two versions is harmless.
pub(super) fn is_harmless(versions: &Versions<'_>) -> bool {
    let Some(new) = versions.new.and_then(parse) else { return false };
    let Some(old) = versions.old.map_or(Some(BTreeSet::new()), parse) else { return false };
    old.symmetric_difference(&new).all(Setting::is_harmless)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    /// The section and the key, in lower case.
    key: String,
    subsection: String,
    value: String,
}

impl Setting {
    fn is_harmless(&self) -> bool {
        // A transport's name before `::` makes git start a helper program of that name; a branch's remote may be a URL.
        let names_remote = self.key.ends_with("url") || self.key.ends_with("remote");
        // Quotes may stand anywhere in a value and are taken out of it: `ext:"":x` is `ext::x`.
        let unclear = names_remote && self.value.contains(['"', '\\']);
        let starts_program = self.value.contains("::") || self.value.starts_with('-');
        HARMLESS.contains(&self.key.as_str()) && !starts_program && !unclear
    }
}

/// Reads settings; nothing if a line is not plain.
fn parse(text: &[u8]) -> Option<BTreeSet<Setting>> {
    let text = std::str::from_utf8(text).ok()?;
    let (mut section, mut subsection) = (String::new(), String::new());
    let mut settings = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            (section, subsection) = parse_header(header)?;
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, "true"), |(key, value)| (key.trim(), value.trim()));
        let plain_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if section.is_empty() || !plain_key || value.ends_with('\\') {
            return None;
        }
        let key = format!("{section}.{}", key.to_ascii_lowercase());
        settings.insert(Setting { key, subsection: subsection.clone(), value: value.to_owned() });
    }
    Some(settings)
}

/// `remote "origin"]`, with nothing after it.
fn parse_header(header: &str) -> Option<(String, String)> {
    let header = header.strip_suffix(']')?;
    let (section, subsection) = match header.split_once([' ', '\t']) {
        Some((section, rest)) => (section, rest.trim().strip_prefix('"')?.strip_suffix('"')?),
        None => (header, ""),
    };
    let plain = !section.is_empty() && section.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (plain && !subsection.contains('"')).then(|| (section.to_ascii_lowercase(), subsection.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n";

    fn check(old: Option<&str>, new: &str) -> bool {
        is_harmless(&Versions { old: old.map(str::as_bytes), new: Some(new.as_bytes()) })
    }

    #[test]
    fn branches_remotes_and_identities_are_harmless() {
        for more in [
            "[remote \"origin\"]\n\turl = https://example.org/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n",
            "[user]\n\tname = Mia\n\temail = mia@example.org\n",
            "[pull]\n\trebase\n",
        ] {
            assert!(check(Some(BASE), &format!("{BASE}{more}")), "{more}");
            assert!(check(Some(&format!("{BASE}{more}")), BASE), "removing {more}");
        }
        assert!(check(None, BASE), "a new repository");
    }

    #[test]
    fn everything_else_is_not() {
        for more in [
            "[core]\n\thooksPath = evil\n",
            "[core]\n\tfsmonitor = ./evil\n",
            "[core]\n\tsshCommand = evil\n",
            "[alias]\n\tx = !evil\n",
            "[filter \"x\"]\n\tsmudge = evil\n",
            "[include]\n\tpath = ../evil\n",
            "[remote \"o\"]\n\turl = ext::sh -c evil\n",
            "[remote \"o\"]\n\turl = ext:\"\":sh -c evil\n",
            "[branch \"main\"]\n\tremote = ext::sh -c evil\n",
            "[remote \"o\"]\n\tuploadpack = evil\n",
            "[remote \"o\"]\n\turl = \\\next::x\n",
            "[user] name = x\n",
            "[core \"x\" y]\n\tbare = true\n",
            "[diff \"x\"]\n\ttextconv = evil\n",
            "[url \"x\"]\n\tinsteadOf = y\n",
            "name = x\n[",
            "[credential]\n\thelper = !evil\n",
        ] {
            assert!(!check(Some(BASE), &format!("{BASE}{more}")), "{more}");
        }
        assert!(!is_harmless(&Versions { old: None, new: Some(b"\xff") }));
        assert!(!is_harmless(&Versions { old: None, new: None }), "too large to be read");
    }
}
