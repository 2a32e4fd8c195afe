//! Which settings of git are harmless: reviewed data.
//!
//! Many settings name a program that git starts: a pager, an editor, a hook, a filter, a credential helper. The list of
//! those grows with git, so this is the list of the others.

/// Settings that name no program: a whole section, or one key.
const NAMING_NO_PROGRAM: &[&str] = &[
    "advice.",
    "apply.",
    "author.",
    "blame.",
    "branch.",
    "checkout.",
    "color.",
    "column.",
    "commit.cleanup",
    "commit.gpgsign",
    "commit.status",
    "commit.verbose",
    "committer.",
    "core.abbrev",
    "core.autocrlf",
    "core.bigfilethreshold",
    "core.commentchar",
    "core.compression",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.longpaths",
    "core.precomposeunicode",
    "core.preloadindex",
    "core.quotepath",
    "core.safecrlf",
    "core.symlinks",
    "core.untrackedcache",
    "core.whitespace",
    "diff.algorithm",
    "diff.colormoved",
    "diff.context",
    "diff.mnemonicprefix",
    "diff.noprefix",
    "diff.renamelimit",
    "diff.renames",
    "feature.",
    "fetch.",
    "format.",
    "gc.auto",
    "gc.autodetach",
    "gc.autopacklimit",
    "gc.logexpiry",
    "gc.pruneexpire",
    "gc.reflogexpire",
    "grep.column",
    "grep.linenumber",
    "grep.patterntype",
    "http.",
    "i18n.",
    "index.",
    "init.defaultbranch",
    "log.",
    "merge.conflictstyle",
    "merge.ff",
    "merge.log",
    "merge.renames",
    "merge.stat",
    "pack.",
    "protocol.version",
    "pull.",
    "push.",
    "rebase.autosquash",
    "rebase.autostash",
    "rerere.",
    "safe.",
    "status.",
    "submodule.recurse",
    "tag.gpgsign",
    "tag.sort",
    "user.",
];

/// Settings that a repository may keep when a run made it.
const IN_A_REPOSITORY: &[&str] = &[
    "branch.merge",
    "branch.rebase",
    "branch.remote",
    "color.",
    "core.autocrlf",
    "core.bare",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.symlinks",
    "extensions.objectformat",
    "extensions.refstorage",
    "init.defaultbranch",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "remote.fetch",
    "remote.tagopt",
    "remote.url",
    "submodule.active",
    "submodule.url",
    "user.email",
    "user.name",
];

fn is_listed(list: &[&str], key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    list.iter().any(|known| key == *known || (known.ends_with('.') && key.starts_with(known)))
}

/// One line of settings that are written plainly.
enum Line<'a> {
    Nothing,
    Section(&'a str),
    Setting(&'a str, &'a str),
    /// Read by git, not by this.
    Unclear,
}

fn read_line(line: &str) -> Line<'_> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Line::Nothing;
    }
    // It goes on in the next line.
    if line.ends_with('\\') {
        return Line::Unclear;
    }
    if let Some(header) = line.strip_prefix('[') {
        return section(header).map_or(Line::Unclear, Line::Section);
    }
    let (key, value) = line.split_once('=').unwrap_or((line, ""));
    Line::Setting(key.trim(), value.trim())
}

/// `core]` → core, `remote "origin"]` → remote; `None` for anything else, such as a setting behind the header.
fn section(header: &str) -> Option<&str> {
    let inner = header.strip_suffix(']')?;
    let (name, rest) = inner.split_once(' ').unwrap_or((inner, ""));
    let plain = |text: &str, also: &[char]| text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(&c));
    let named = match rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        // No quote and no backslash: git's rules for those are its own.
        Some(quoted) => !quoted.contains(['"', '\\', '\n']),
        None => rest.is_empty(),
    };
    (named && !name.is_empty() && plain(name, &['-', '.'])).then(|| name.split('.').next().unwrap_or(name))
}

/// Whether a repository's configuration holds nothing but harmless settings, written plainly.
pub(crate) fn is_harmless_config(text: &str) -> bool {
    let mut section = None;
    // A carriage return, a tab or another control character in the midst of a line is not how git writes.
    let plain = !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    plain
        && text.split('\n').all(|line| match read_line(line) {
            Line::Nothing => true,
            Line::Unclear => false,
            Line::Section(name) => {
                section = Some(name.to_owned());
                true
            }
            Line::Setting(key, value) => {
                // `ext::sh -c …` is a program; a leading dash would be an option.
                let plain = !value.contains("::") && !value.starts_with(['-', '"', '!']);
                let listed = |section: &String| is_listed(IN_A_REPOSITORY, &format!("{section}.{key}"));
                plain && section.as_ref().is_some_and(listed)
            }
        })
}

/// A path that a setting names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) path: String,
    /// A directory of hooks, not a file.
    pub(crate) is_directory: bool,
    /// A file of further settings.
    pub(crate) is_settings: bool,
}

/// What might be a path in the settings of a repository that name programs or files. Read generously: what is no path
/// is not there.
pub(crate) fn named_paths(text: &str) -> Vec<NamedPath> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        // A setting may stand behind its section's name.
        let line = line.trim();
        let rest = match line.strip_prefix('[').and_then(|header| header.split_once(']')) {
            Some((header, rest)) => {
                section = header.split([' ', '.', '\t']).next().unwrap_or(header).to_ascii_lowercase();
                rest
            }
            None => line,
        };
        let Some((key, value)) = rest.split_once('=') else { continue };
        let key = format!("{section}.{}", key.trim().to_ascii_lowercase());
        if is_listed(IN_A_REPOSITORY, &key) || is_listed(NAMING_NO_PROGRAM, &key) {
            continue;
        }
        let is_directory = key == "core.hookspath";
        let is_settings = matches!(key.as_str(), "include.path" | "includeif.path");
        let strip = |word: &str| word.trim_matches(['"', '\'', '!', ' ', '\t', '(', ')', ';']).to_owned();
        let words = value.split_whitespace().map(strip).chain([strip(value)]);
        for path in words.filter(|word| !word.is_empty() && !word.starts_with('~')) {
            found.push(NamedPath { path, is_directory, is_settings });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_itself_writes_is_harmless() {
        for text in [
            "",
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
            "[remote \"origin\"]\n\turl = git@example.org:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
             [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n",
            "# a comment\n[user]\n\tname = Somebody Else\n\temail=a@b\n",
        ] {
            assert!(is_harmless_config(text), "{text}");
        }
    }

    #[test]
    fn what_may_start_a_program_is_not() {
        for text in [
            "[core]\n\tpager = sh",
            "[core] fsmonitor = sh",
            "[core]\n\tbare = false\\\n\tx",
            "[CORE]\n\thooksPath = x",
            "[alias]\n\tx = !sh",
            "[include]\n\tpath = x",
            "[includeIf \"gitdir:.\"]\n\tpath = x",
            "[remote \"o\"]\n\turl = ext::sh -c id",
            "[remote \"o\"]\n\tuploadpack = sh",
            "[filter \"x\"]\n\tclean = sh",
            "[submodule \"x\"]\n\tupdate = !sh",
            "bare = false",
            "[core",
            "[core]fsmonitor = \"evil\" ;]",
            "[include]path = x ;]",
            "[core \"]\"]fsmonitor = x\"]",
            "[core \"x\" ]\n\tbare = false",
            "[core]\r\n\tbare = false",
            "[core]\n\tbare = false\rfsmonitor = x",
            "[core]\n\tsshCommand",
        ] {
            assert!(!is_harmless_config(text), "{text}");
        }
    }
}
