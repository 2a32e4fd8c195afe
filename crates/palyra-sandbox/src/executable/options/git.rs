//! What a git command line starts.
//!
//! Git starts programs by settings, by options and by subcommands that are none of its own (aliases, `git-NAME` on the search
//! path). So its own options and subcommands are listed, those that are not listed are refused, and among the options of
//! subcommands those that name a program. What a repository's configuration says is not looked at here.

use crate::git::is_harmless_setting;

/// Options before the subcommand that take the next word.
const VALUED: &[&str] = &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"];

/// Options before the subcommand that stand alone.
const FLAGS: &[&str] = &[
    "-p",
    "--paginate",
    "-P",
    "--no-pager",
    "--bare",
    "--no-replace-objects",
    "--literal-pathspecs",
    "--glob-pathspecs",
    "--noglob-pathspecs",
    "--icase-pathspecs",
    "--no-optional-locks",
    "--no-lazy-fetch",
    "--no-advice",
    "-v",
    "--version",
    "-h",
    "--help",
    "--html-path",
    "--man-path",
    "--info-path",
    "--exec-path",
];

/// Git's own subcommands that do their work themselves.
const OWN: &[&str] = &[
    "add",
    "am",
    "annotate",
    "apply",
    "archive",
    "bisect",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "check-attr",
    "check-ignore",
    "check-mailmap",
    "check-ref-format",
    "checkout",
    "checkout-index",
    "cherry",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "commit-graph",
    "commit-tree",
    "config",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "fast-export",
    "fast-import",
    "fetch",
    "fetch-pack",
    "fmt-merge-msg",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "get-tar-commit-id",
    "grep",
    "hash-object",
    "index-pack",
    "init",
    "init-db",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "mailinfo",
    "mailsplit",
    "merge",
    "merge-base",
    "merge-file",
    "merge-tree",
    "mktag",
    "mktree",
    "multi-pack-index",
    "mv",
    "name-rev",
    "notes",
    "pack-objects",
    "pack-refs",
    "patch-id",
    "prune",
    "prune-packed",
    "pull",
    "push",
    "range-diff",
    "read-tree",
    "rebase",
    "reflog",
    "remote",
    "repack",
    "replace",
    "request-pull",
    "rerere",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "send-pack",
    "shortlog",
    "show",
    "show-branch",
    "show-index",
    "show-ref",
    "sparse-checkout",
    "stage",
    "stash",
    "status",
    "stripspace",
    "submodule",
    "switch",
    "symbolic-ref",
    "tag",
    "unpack-file",
    "unpack-objects",
    "update-index",
    "update-ref",
    "update-server-info",
    "var",
    "verify-commit",
    "verify-pack",
    "verify-tag",
    "version",
    "whatchanged",
    "worktree",
    "write-tree",
];

/// Long options, of any subcommand, that name a program or a directory of programs.
const LONG: &[&str] =
    &["upload-pack", "receive-pack", "exec", "exec-path", "extcmd", "open-files-in-pager", "config-env", "template"];

/// What of a git command line starts another program.
pub(super) fn starts(words: &[String]) -> Option<String> {
    let mut at = 0;
    let subcommand = loop {
        let word = words.get(at).map(String::as_str)?;
        let following = words.get(at + 1).map(String::as_str);
        match word {
            "-c" => {
                if let Some(reason) = setting(following.unwrap_or("")) {
                    return Some(reason);
                }
                at += 2;
            }
            word if VALUED.contains(&word) => at += 2,
            word if FLAGS.contains(&word) || has_harmless_value(word) => at += 1,
            word if word.starts_with('-') => return Some(format!("its option `{word}` is not known")),
            word => break word,
        }
    };
    if !OWN.contains(&subcommand) {
        return Some(format!("`git {subcommand}` is not among its commands that start no others"));
    }
    of_subcommand(subcommand, words.get(at + 1..).unwrap_or(&[]))
}

/// `--git-dir=…` and the like.
fn has_harmless_value(word: &str) -> bool {
    let listed = |name: &str| name.starts_with("--") && VALUED.contains(&name);
    word.split_once('=').is_some_and(|(name, _)| listed(name) || name == "--list-cmds")
}

fn setting(setting: &str) -> Option<String> {
    let key = setting.split('=').next().unwrap_or(setting);
    (!is_harmless_setting(setting)).then(|| format!("the setting `{key}` may name a program to start"))
}

fn of_subcommand(subcommand: &str, words: &[String]) -> Option<String> {
    for (at, word) in words.iter().enumerate() {
        let following = words.get(at + 1).map_or("", String::as_str);
        if let Some(reason) = long(subcommand, word, following).or_else(|| short(subcommand, word, following)) {
            return Some(reason);
        }
        // `ext::sh -c …`, and every other helper that an address names.
        let helper = word.split_once("::").is_some_and(|(name, _)| !name.is_empty() && is_word(name));
        if helper && !matches!(subcommand, "commit" | "log" | "grep" | "tag" | "notes" | "merge" | "stash") {
            return Some(format!("`{word}` names a program to start"));
        }
    }
    let first = words.iter().map(String::as_str).find(|word| !word.starts_with('-'));
    match (subcommand, first) {
        ("config", _) => config(words),
        ("bisect", Some("run" | "view" | "visualize")) | ("submodule", Some("foreach")) => {
            Some(format!("`git {subcommand} {}` starts other programs", first.unwrap_or("")))
        }
        _ => None,
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// A long option, or any beginning of it, that names a program.
fn long(subcommand: &str, word: &str, following: &str) -> Option<String> {
    let name = word.strip_prefix("--")?;
    let (name, value) = name.split_once('=').map_or((name, following), |(name, value)| (name, value));
    if subcommand == "clone" && name.len() > 1 && "config".starts_with(name) {
        return setting(value);
    }
    // Git takes any beginning that only one of a subcommand's options has, be it a single letter.
    let option = LONG.iter().find(|option| option.starts_with(name) && !name.is_empty())?;
    Some(format!("its option `--{option}` names a program to start"))
}

/// A short option that names a program, wherever it stands in its bundle.
fn short(subcommand: &str, word: &str, following: &str) -> Option<String> {
    let bundle = word.strip_prefix('-').filter(|bundle| !bundle.starts_with('-'))?;
    let (dangerous, valued) = match subcommand {
        "clone" => ("cu", "bjo"),
        "ls-remote" => ("u", "o"),
        "grep" => ("O", "efABCm"),
        "rebase" => ("x", "sXCS"),
        _ => return None,
    };
    let at = bundle.find(|letter| dangerous.contains(letter) || valued.contains(letter))?;
    let (letter, rest) = (&bundle[at..=at], &bundle[at + 1..]);
    if subcommand == "clone" && letter == "c" {
        return setting(if rest.is_empty() { following } else { rest });
    }
    dangerous.contains(letter).then(|| format!("its option `-{letter}` names a program to start"))
}

/// Options of `git config` that stand alone, and those that take the next word.
const CONFIG_FLAGS: &[&str] = &[
    "--global",
    "--system",
    "--local",
    "--worktree",
    "--bool",
    "--int",
    "--bool-or-int",
    "--bool-or-str",
    "--path",
    "--expiry-date",
    "--no-type",
    "-z",
    "--null",
    "--name-only",
    "--show-names",
    "--show-origin",
    "--show-scope",
    "--includes",
    "--no-includes",
    "--fixed-value",
    "--all",
    "--regexp",
    "--append",
    "--add",
    "--replace-all",
];
const CONFIG_VALUED: &[&str] =
    &["-f", "--file", "--blob", "--type", "-t", "--default", "--comment", "--value", "--url"];
/// What only reads or removes, by an option or as a subcommand.
const CONFIG_HARMLESS: &[&str] = &[
    "--get",
    "--get-all",
    "--get-regexp",
    "--get-urlmatch",
    "--get-color",
    "--get-colorbool",
    "--list",
    "-l",
    "--unset",
    "--unset-all",
    "--remove-section",
];
const CONFIG_SUBCOMMANDS: &[&str] = &["get", "list", "unset", "remove-section"];

/// `git config`: reading is harmless; what is written must be, nothing is renamed into something else, and no editor is started.
/// Its options are read in order, since the value of one may look like another.
fn config(words: &[String]) -> Option<String> {
    let mut words = words.iter().map(String::as_str).peekable();
    if words.next_if(|word| CONFIG_SUBCOMMANDS.contains(word)).is_some() {
        return None;
    }
    words.next_if_eq(&"set");
    let key = loop {
        let word = words.next()?;
        let attached = word.split_once('=').is_some_and(|(name, _)| CONFIG_VALUED.contains(&name));
        match word {
            _ if CONFIG_HARMLESS.contains(&word) => return None,
            _ if CONFIG_FLAGS.contains(&word) || attached => {}
            _ if CONFIG_VALUED.contains(&word) => _ = words.next(),
            _ if word.starts_with('-') => return Some(format!("its option `{word}` is not known to be harmless")),
            key => break key,
        }
    };
    let rest: Vec<&str> = words.collect();
    // Without a dot it is a subcommand that is not known, or nothing. Options may stand behind the key as well.
    let reads = |word: &&str| CONFIG_HARMLESS.contains(word);
    match rest.as_slice() {
        [] if key.contains('.') => None,
        rest if rest.iter().any(|word| word.starts_with('-') && !reads(word) && !CONFIG_FLAGS.contains(word)) => {
            Some("it has an option behind the key, or a value that looks like one".into())
        }
        [last] if reads(last) => None,
        _ => setting(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(line: &str) -> bool {
        let words: Vec<String> = line.split('|').map(str::to_owned).collect();
        starts(&words).is_none()
    }

    #[test]
    fn what_starts_a_program_is_refused() {
        for line in [
            "clone|-ccore.hooksPath=x|a|b",
            "clone|-qcore.hooksPath=x|a|b",
            "clone|-qu|sh|a",
            "clone|--conf|core.fsmonitor=x|a",
            "grep|-lOsh|x",
            "grep|-lO|x",
            "rebase|-fx|sh|main",
            "rebase|--exe|sh|main",
            "--attr-source|HEAD|-c|alias.y=!sh|y",
            "--attr-source=HEAD|y",
            "--unknown|status",
            "--exec-path=.|status",
            "config|alias.x|!sh",
            "config|--global|core.pager|sh",
            "config|set|core.fsmonitor|sh",
            "config|--add|core.sshCommand|sh",
            "config|-e",
            "config|--edit",
            "config|--rename-section|user|core",
            "config|gc.recentObjectsHook|sh",
            "-c|gc.recentObjectsHook=sh|gc",
            "x",
            "lfs|pull",
            "help|status",
            "fetch|foo::bar",
            "remote|add|o|ext::sh -c id",
            "submodule|-q|foreach|sh",
            "push|--receive-p=sh",
            "archive|--exe=sh|HEAD",
            "ls-remote|--up=id >&2; git-upload-pack|.",
            "ls-remote|--u=id|.",
            "clone|--u=id|a",
            "clone|--up|id|a",
            "clone|--c=core.fsmonitor=x|a",
            "clone|--t=x|a",
            "rebase|--ex=id|HEAD~1",
            "rebase|--e=id|HEAD~1",
            "push|--ex=id >&2;|.|HEAD:z",
            "push|--r=id|.",
            "push|--re=id|.",
            "send-pack|--ex=id|.",
            "fetch-pack|--exe=id|.",
            "grep|--o=sh|x",
            "grep|--op|x",
            "init|--te=x",
            "config|core.pager|sh|list",
            "config|core.pager|sh|get",
            "config|--comment|--get|core.pager|sh",
            "config|--file|--list|core.pager|sh",
            "config|--file|user.name|core.pager|sh",
            "config|--|core.pager|sh|--list",
            "config|core.pager|sh|--list",
            "config|filter.a b.clean|sh",
            "config|remote.a/b.uploadpack|sh",
            "config|set|--type|get|core.pager|sh",
            "config|--ed",
            "config|edit",
            "config|rename-section|user|core",
            "config|--ren|user|core",
        ] {
            assert!(!passes(line), "{line}");
        }
    }

    #[test]
    fn ordinary_use_passes() {
        for line in [
            "--version",
            "config|user.name|Somebody Else",
            "config|user.email|a@b.example",
            "config|--global|init.defaultBranch|main",
            "config|--get|core.pager",
            "config|core.pager",
            "config|--global|--get|core.pager",
            "config|get|core.pager",
            "config|unset|core.pager",
            "config|set|user.name|J.Doe",
            "config|user.email|j.doe",
            "config|--file|x|user.name|a",
            "config|--type=bool|core.filemode|true",
            "config|user.name|--get",
            "config|--list",
            "--git-dir=x|--work-tree|y|status|--short",
            "clone|-b|cuO|--depth|1|https://example.org/x.git",
            "grep|-e|O|-n|x",
            "rebase|-Xours|main",
            "log|--oneline|-5|--graph|--exclude=x",
            "commit|-m|std::fs is used",
            "checkout|-b|topic",
            "diff|--unified=3|HEAD~1",
            "fetch|--tags|origin",
            "show|HEAD:src/a.rs",
        ] {
            assert!(passes(line), "{line}");
        }
    }
}
