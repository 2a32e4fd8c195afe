//! Which settings of git are harmless: reviewed data.
//!
//! Many settings name a program that git starts: a pager, an editor, a hook, a filter, a credential helper. The list of those
//! grows with git, so this is the list of the others.

/// Settings that may be given on a command line, with `git -c`: a whole section, or one key.
const ON_A_COMMAND_LINE: &[&str] = &[
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

/// Whether a setting may be given with `git -c`.
pub(crate) fn is_harmless_setting(setting: &str) -> bool {
    is_listed(ON_A_COMMAND_LINE, setting.split('=').next().unwrap_or(setting))
}

/// Whether a repository's configuration holds nothing but harmless settings, written plainly.
pub(crate) fn is_harmless_config(text: &str) -> bool {
    let mut section = None;
    text.lines().map(str::trim).all(|line| {
        if line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        // Goes on in the next line, or begins a setting behind the section's name: read by git, not by this.
        if line.ends_with('\\') {
            return false;
        }
        if let Some(header) = line.strip_prefix('[') {
            section = header.strip_suffix(']').map(|inner| inner.split([' ', '.']).next().unwrap_or(inner).to_owned());
            return section.is_some();
        }
        let Some(section) = &section else { return false };
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let value = value.trim();
        // `ext::sh -c …` is a program; a leading dash would be an option.
        let plain = !value.contains("::") && !value.starts_with(['-', '"', '!']);
        plain && is_listed(IN_A_REPOSITORY, &format!("{section}.{}", key.trim()))
    })
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
            "[core]\n\tsshCommand",
        ] {
            assert!(!is_harmless_config(text), "{text}");
        }
    }
}
