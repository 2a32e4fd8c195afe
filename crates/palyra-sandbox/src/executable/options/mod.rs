//! Options by which an ordinary program starts another: `tar --to-command`, `git -c core.pager=…`, `sort --compress-program`.
//!
//! Shells and interpreters are denied unless an operator allows them, and these options would be a way to one. Reviewed data,
//! like the list of interpreters, and never complete: a Makefile, a build script, a test runner and a `sed` script in a file start
//! whatever they say, inside the same sandbox. Where a shell is allowed anyway nothing is looked at here.
//!
//! Looked at in the way that errs to the safe side: every word counts, also behind `--`, which may be the value of the option
//! before it; a short option is found anywhere in its bundle, unless one that takes the rest as its value stands before
//! it; a long one by any beginning. `git` and `sed` are read whole, and what they have that is not known is refused.

mod git;
mod sed;
mod table;

use crate::error::SandboxError;
use table::{DANGEROUS, Dangerous};

/// Names without version and target: `x86_64-linux-gnu-gcc-12` is `gcc`.
fn plain(name: &str) -> &str {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let name = name.strip_suffix('-').unwrap_or(name);
    let listed = |rest: &&str| DANGEROUS.iter().any(|dangerous| dangerous.programs.contains(rest));
    name.match_indices('-').map(|(at, _)| &name[at + 1..]).find(listed).unwrap_or(name)
}

/// The names under which a program is looked up.
fn known_as(name: &str) -> [&str; 2] {
    [name, plain(name)]
}

/// Whether some option of this program starts others.
pub(super) fn are_sensitive(name: &str) -> bool {
    let listed = |name: &&str| DANGEROUS.iter().any(|dangerous| dangerous.programs.contains(name));
    matches!(name, "git" | "sed" | "gsed" | "cmake" | "sqlite3" | "sqlite")
        || name.starts_with("git-")
        || known_as(name).iter().any(listed)
}

/// Refuses a command whose options start another program; `name` is the program's base name.
pub(super) fn check(name: &str, argv: &[String]) -> Result<(), SandboxError> {
    let refused = |reason: String| Err(SandboxError::WrapperRefused { name: name.to_owned(), reason });
    let words = argv.get(1..).unwrap_or(&[]);
    let names = known_as(name);
    for dangerous in DANGEROUS.iter().filter(|dangerous| names.iter().any(|name| dangerous.programs.contains(name))) {
        for (at, word) in words.iter().enumerate() {
            if let Some(option) = dangerous.found_in(word, at == 0 && name.ends_with("tar")) {
                return refused(format!("`{option}` makes it start another program"));
            }
        }
    }
    let found = match name {
        "git" => git::starts(words),
        "sed" | "gsed" => sed::starts(words),
        "cmake" => cmake(words),
        "zip" => zip(words),
        "sqlite3" | "sqlite" => sqlite(words),
        // One of git's commands by a name of its own.
        _ => name.strip_prefix("git-").and_then(|subcommand| git::starts(&[&[subcommand.to_owned()], words].concat())),
    };
    found.map_or(Ok(()), refused)
}

impl Dangerous {
    /// The dangerous option in a word, if there is one.
    fn found_in(&self, word: &str, old_style: bool) -> Option<String> {
        if let Some(begin) = self.words.iter().find(|begin| word.starts_with(**begin)) {
            return Some((*begin).to_owned());
        }
        let small = word.to_ascii_lowercase();
        if let Some(part) = self.parts.iter().find(|part| small.contains(**part)) {
            return Some((*part).to_owned());
        }
        // Some programs do not look at the case of a long option.
        if let Some(long) = small.strip_prefix("--") {
            let given = long.split('=').next().unwrap_or(long);
            let means = |option: &&&str| option.starts_with(given) && !self.harmless.contains(&given);
            return self
                .long
                .iter()
                .find(|option| !given.is_empty() && means(option))
                .map(|option| format!("--{option}"));
        }
        let bundle = match word.strip_prefix('-') {
            Some(bundle) => bundle,
            // `tar xIf PROGRAM ARCHIVE`: the values come afterwards, in words of their own.
            None if old_style => return self.short_in(word, "").map(|letter| letter.to_string()),
            None => return None,
        };
        self.short_in(bundle, self.valued).map(|letter| format!("-{letter}"))
    }

    fn short_in(&self, bundle: &str, valued: &str) -> Option<char> {
        bundle.chars().take_while(|letter| !valued.contains(*letter)).find(|letter| self.short.contains(*letter))
    }
}

/// `zip -TT COMMAND`: an option of two letters, which may stand behind others.
fn zip(words: &[String]) -> Option<String> {
    let named = words.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains("TT"));
    named.then(|| "`-TT` makes it start another program".into())
}

/// The tools inside `cmake -E` that do what they say and start nothing.
const CMAKE_TOOLS: &[&str] = &[
    "capabilities",
    "cat",
    "compare_files",
    "copy",
    "copy_directory",
    "copy_if_different",
    "create_hardlink",
    "create_symlink",
    "echo",
    "echo_append",
    "environment",
    "false",
    "make_directory",
    "md5sum",
    "remove",
    "remove_directory",
    "rename",
    "rm",
    "rmdir",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "sleep",
    "tar",
    "touch",
    "touch_nocreate",
    "true",
];

/// What of a cmake command line starts another program; what its files say is the workspace's business.
fn cmake(words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word == "-E")?;
    let tool = words.get(at + 1)?;
    (!CMAKE_TOOLS.contains(&tool.as_str())).then(|| format!("`cmake -E {tool}` may start another program"))
}

/// Commands of the sqlite shell that neither start nor load anything, written out: it takes any beginning.
const SQLITE_COMMANDS: &[&str] = &[
    ".bail",
    ".changes",
    ".databases",
    ".dbinfo",
    ".dump",
    ".echo",
    ".eqp",
    ".exit",
    ".explain",
    ".fullschema",
    ".headers",
    ".help",
    ".indexes",
    ".limit",
    ".lint",
    ".mode",
    ".nullvalue",
    ".print",
    ".quit",
    ".schema",
    ".separator",
    ".sha3sum",
    ".show",
    ".stats",
    ".tables",
    ".timeout",
    ".timer",
    ".version",
    ".width",
];

/// What of a sqlite command line starts another program.
fn sqlite(words: &[String]) -> Option<String> {
    let commands = words.iter().map(|word| word.trim_start()).filter(|word| word.starts_with('.'));
    let name = |command: &'_ str| command.split_whitespace().next().unwrap_or_default().to_owned();
    // A path such as `./x.db` is none.
    let mut names = commands.map(name).filter(|name| !name.contains('/') && name.len() > 1);
    let unknown = names.find(|name| !SQLITE_COMMANDS.contains(&name.as_str()))?;
    Some(format!("`{unknown}` is not among its commands that are known to start nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words are separated by `|`.
    fn passes(line: &str) -> bool {
        let argv: Vec<String> = line.split('|').map(str::to_owned).collect();
        check(&argv[0], &argv).is_ok()
    }

    #[test]
    fn options_that_start_programs_are_refused() {
        for line in [
            "git|-c|alias.x=!sh|x",
            "git|-c|core.pager=sh|log",
            "git|-c|core.sshCommand=sh|fetch",
            "git|-c|Core.FsMonitor=sh|status",
            "git|-c|diff.external=sh|diff",
            "git|-C|sub|-c|filter.x.clean=sh|add|.",
            "git|--config-env=core.pager=X|log",
            "git|--config-env|core.pager=X|log",
            "git|clone|-c|core.hooksPath=x|a|b",
            "git|clone|--config=core.fsmonitor=x|a",
            "git|clone|--upload-pack=sh|a",
            "git|clone|-u|sh|a",
            "git|clone|ext::sh -c id",
            "git|fetch|--upload-pa=sh",
            "git|--exec-path=.|x",
            "git|rebase|-x|sh|main",
            "git|rebase|--exec=sh|main",
            "git|bisect|run|sh",
            "git|submodule|foreach|sh",
            "git|difftool|-x|sh",
            "git|grep|-Osh|x",
            "git|archive|--exec=sh|HEAD",
            "git|clone|--template=x|a",
            "git-rebase|status|-x|sh",
            "git-ls-remote|--up=sh|.",
            "git-shell|-c|x",
            "zip|-qTT|sh|-T|a|b",
            "rg|--pre|sh|x",
            "fd|-HX|sh",
            "fd|--exec=sh",
            "go|test|-exec|sh|./...",
            "pdflatex|-shell-escape|a.tex",
            "rpm|--eval|%(id)",
            "tar|--to-command=sh|-xf|a",
            "tar|-xf|a|--to-com|sh",
            "tar|-xf|a|--checkpoint=1|--checkpoint-action=exec=sh",
            "tar|-I|sh|-xf|a",
            "tar|xIf|sh|a",
            "tar|-cIf|sh|a",
            "tar|--use-compress-program|sh|-xf|a",
            "rsync|-e|sh|a|b",
            "rsync|-ave|sh|a|b",
            "rsync|--rsh=sh|a|b",
            "scp|-oProxyCommand=sh|a|b:",
            "scp|-S|sh|a|b:",
            "sort|--compress-program=sh|a",
            "split|--filter=sh|a",
            "make|SHELL=/bin/x",
            "make|--eval=x: ; id",
            "gcc|-wrapper|sh|a.c",
            "gcc|-fplugin=x.so|a.c",
            "sqlite3|x.db|.shell id",
            "sed|1e id|f",
            "sed|s/x/id/e|f",
            "sed|-n|-e|/a/,/b/{s,x,y,ge}|f",
            "sed|-ne|$!e id|f",
            "sed|--expression=e|f",
            "sed|p;e",
            "zip|-T|-TT|sh|a",
            "tar|-x|-f|--|--to-command=sh",
            "tar|-x1I|sh|-f|a",
            "git|-C|--|fetch|--upload-pack=sh",
            "make|-C|--|--eval=x",
            "make|-kE|x: ; id",
            "make|SHELL:=/bin/x",
            "make|X!=id",
            "make|X=$(shell id)",
            "sed|--expr=1e id|f",
            "sed|-ne1e id|f",
            "sed|-l|5|1e id|f",
            "sed|--line-length|5|1e id|f",
            "sed|--unknown|p",
            "gcc-12|-wrapper|sh,-c,x|a.c",
            "x86_64-linux-gnu-gcc-12|-wrapper|sh,-c,x|a.c",
            "x86_64-linux-gnu-g++|-fplugin=x|a.c",
            "cpp|-wrapper|sh|a.c",
            "clang-15|-fuse-ld=/bin/sh|a.c",
            "gcc|@file",
            "gcc|-specs=x|a.c",
            "gcc|-Wl,-plugin,x|a.c",
            "ar|--plugin|x|r|a",
            "rustc|-Clinker=sh|a.rs",
            "rustc|-C|linker=sh|a.rs",
            "sqlite3|x.db|.sh id",
            "sqlite3|x.db|.sy id",
            "sqlite3|x.db|.output |id",
            "sqlite3|x.db|.read '|id'",
            "sqlite3|x.db|select edit('x','id')",
            "sqlite3|-cmd|.load x|x.db",
            "groff|-U|x",
            "pic|-nU|x",
            "troff|-U",
            "sdiff|--diff-program=sh|a|b",
            "diff3|--diff=sh|a|b|c",
            "install|-s|--strip-program=sh|a|b",
            "wget|-e|use_askpass=sh|x",
            "wget|-qe|use_askpass=sh|x",
            "wget|--exec=use_askpass=sh|x",
            "cmake|-E|env|sh",
            "cmake|-E|time|sh",
            "dc|-e|!id",
            "psql|-c|\\! id",
            "psql|-c|\\setenv EDITOR sh|-c|\\e",
            "less|--lesskey-src=x|f",
            "less|--LESSKEY-SRC=x|f",
            "less|--lesskey-s=x|f",
            "less|--LessK=x|f",
            "less|-Nkx|f",
            "less|+!id|f",
            "openssl|rand|--engine|x|4",
            "openssl|engine|dynamic|-pre|SO_PATH:x",
        ] {
            assert!(!passes(line), "{line}");
        }
    }

    #[test]
    fn ordinary_use_passes() {
        for line in [
            "git|status",
            "git|-c|user.name=a|-c|user.email=b|commit|-m|-c core.pager",
            "git|-c|color.ui=false|-c|core.quotePath=off|log|--oneline",
            "git|log|-c|--format=%s",
            "git|diff|-u",
            "git|push|origin|main",
            "git|commit|-m|message",
            "git|-C|sub|--no-pager|diff|HEAD~1",
            "git|clone|https://example.org/x",
            "git|rebase|main",
            "git-log|--oneline",
            "zip|-qr|aTT.zip|b",
            "rg|--pretty|x",
            "fd|-e|rs|-tx|--exclude|x",
            "go|test|./...",
            "pdflatex|a.tex",
            "tar|-czf|a.tgz|dir",
            "tar|xzf|a.tgz",
            "tar|--exclude=I|-cf|a|b|--checkpoint=5",
            "tar|-xf|a.tar|-C|Images",
            "rsync|-av|--delete|a/|b/",
            "sort|-u|a",
            "split|-b|5|a",
            "make|-j4|test|CC=clang",
            "make|shell",
            "gcc|-O2|-Wall|-o|a|a.c",
            "sed|-i|s/one/three/g|f",
            "sed|-n|1,20p|f",
            "sed|s/a,e/b,e/g",
            "sed|/^#/d;s/[a-e]/x/2w out",
            "sed|-e|s/a/e/|-e|/e/p|f",
            "sed|-E|s/(a|e)/\\1/|f",
            "sed|y/abc/def/",
            "sed|$!N;P;D",
            "patch|-p1|-i|x.diff",
            "ls|--to-command",
            "tar|-cf|archive-IF.tar|dir",
            "tar|-xfI.tar",
            "gcc-12|-O2|-o|a|a.c",
            "make|-C|sub|-j4",
            "sqlite3|./x.db|.tables",
            "sqlite3|x.db|select 1",
            "cmake|-E|copy|a|b",
            "cmake|-S|.|-B|build",
            "wget|-O|e|https://example.org/",
            "sed|-n|--|p|f",
            "less|-N|-pk|f",
            "openssl|rand|-hex|4",
        ] {
            assert!(passes(line), "{line}");
        }
    }
}
