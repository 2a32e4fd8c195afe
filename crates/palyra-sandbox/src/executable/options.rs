//! Options by which an ordinary program starts another: `tar --to-command`, `git -c core.pager=…`, `sort --compress-program`.
//!
//! Shells and interpreters are denied unless an operator allows them, and these options would be a way to one. Reviewed data,
//! like the list of interpreters, and never complete: a Makefile, a build script, a test runner and a `sed` script in a file start
//! whatever they say, inside the same sandbox. Where a shell is allowed anyway nothing is looked at here.

use crate::error::SandboxError;
use crate::git::is_harmless_setting;

/// One program's options that start others.
struct Dangerous {
    programs: &'static [&'static str],
    /// Long options, without the dashes; alone, with `=`, or shortened as getopt allows.
    long: &'static [&'static str],
    /// Long options that are harmless and shorter than one of those.
    harmless: &'static [&'static str],
    /// Short options, alone, bundled or with a value attached.
    short: &'static str,
    /// Beginnings of words that are no options.
    words: &'static [&'static str],
}

const NOTHING: Dangerous = Dangerous { programs: &[], long: &[], harmless: &[], short: "", words: &[] };

const DANGEROUS: &[Dangerous] = &[
    Dangerous {
        programs: &["tar", "gtar", "bsdtar"],
        long: &[
            "to-command",
            "checkpoint-action",
            "use-compress-program",
            "rsh-command",
            "rmt-command",
            "info-script",
            "new-volume-script",
        ],
        harmless: &["checkpoint"],
        short: "IF",
        ..NOTHING
    },
    Dangerous { programs: &["rsync"], long: &["rsh", "rsync-path"], short: "e", ..NOTHING },
    Dangerous { programs: &["scp", "sftp"], short: "SDFo", ..NOTHING },
    Dangerous { programs: &["sort"], long: &["compress-program"], ..NOTHING },
    Dangerous { programs: &["split"], long: &["filter"], ..NOTHING },
    Dangerous { programs: &["cpio"], long: &["rsh-command"], ..NOTHING },
    Dangerous { programs: &["zip"], long: &["unzip-command"], words: &["-TT"], ..NOTHING },
    Dangerous { programs: &["wget"], long: &["use-askpass"], ..NOTHING },
    Dangerous { programs: &["tcpdump"], short: "z", ..NOTHING },
    Dangerous { programs: &["man"], long: &["pager", "html", "browser"], short: "PH", ..NOTHING },
    Dangerous {
        programs: &["make", "gmake", "bmake"],
        long: &["eval"],
        words: &["SHELL=", "MAKEFLAGS=", ".SHELLFLAGS="],
        ..NOTHING
    },
    Dangerous {
        programs: &["cc", "gcc", "g++", "c++", "clang", "clang++", "ld", "gfortran"],
        words: &["-wrapper", "-fplugin", "-Xclang", "-plugin", "-B"],
        ..NOTHING
    },
    Dangerous {
        programs: &["sqlite3", "sqlite"],
        words: &[".shell", ".system", ".load", ".excel", ".edit"],
        ..NOTHING
    },
    Dangerous { programs: &["patch"], long: &["ed"], short: "e", ..NOTHING },
    Dangerous { programs: &["apt", "apt-get", "apt-cache", "dpkg"], long: &["option"], short: "o", ..NOTHING },
    Dangerous { programs: &["nmap"], long: &["script"], words: &["-sC", "-A"], ..NOTHING },
    Dangerous { programs: &["openssl"], words: &["-engine", "-provider"], ..NOTHING },
    Dangerous {
        programs: &["git"],
        long: &["upload-pack", "receive-pack", "exec-path", "extcmd", "open-files-in-pager", "config-env", "template"],
        words: &["ext::"],
        ..NOTHING
    },
];

/// Subcommands of git whose purpose is to start something.
const GIT_LAUNCHES: &[&str] = &[
    "difftool",
    "mergetool",
    "filter-branch",
    "send-email",
    "instaweb",
    "web--browse",
    "daemon",
    "shell",
    "hook",
    "credential",
    "for-each-repo",
    "upload-pack",
    "receive-pack",
    "remote-ext",
];

/// Refuses a command whose options start another program; `name` is the program's base name.
pub(super) fn check(name: &str, argv: &[String]) -> Result<(), SandboxError> {
    let refused = |reason: String| Err(SandboxError::WrapperRefused { name: name.to_owned(), reason });
    let words = argv.get(1..).unwrap_or(&[]);
    for dangerous in DANGEROUS.iter().filter(|dangerous| dangerous.programs.contains(&name)) {
        for (at, word) in words.iter().enumerate() {
            if word == "--" {
                break;
            }
            if let Some(option) = dangerous.found_in(word, at == 0 && name.ends_with("tar")) {
                return refused(format!("its option `{option}` names a program to start"));
            }
        }
    }
    match name {
        "git" => git(words).map_or(Ok(()), refused),
        "sed" | "gsed" => match sed_scripts(words).into_iter().any(sed_executes) {
            true => refused("its script has an `e` command, which executes what it finds".into()),
            false => Ok(()),
        },
        _ => Ok(()),
    }
}

impl Dangerous {
    /// The dangerous option in a word, if there is one.
    fn found_in(&self, word: &str, old_style: bool) -> Option<String> {
        if let Some(begin) = self.words.iter().find(|begin| word.starts_with(**begin)) {
            return Some((*begin).to_owned());
        }
        if let Some(long) = word.strip_prefix("--") {
            let given = long.split('=').next().unwrap_or(long);
            let means = |option: &&&str| option.starts_with(given) && !self.harmless.contains(&given);
            return self
                .long
                .iter()
                .find(|option| given.len() > 1 && means(option))
                .map(|option| format!("--{option}"));
        }
        let bundle = match word.strip_prefix('-') {
            Some(bundle) => bundle,
            // `tar xIf PROGRAM ARCHIVE`.
            None if old_style && word.bytes().all(|b| b.is_ascii_alphabetic()) => word,
            None => return None,
        };
        let letters = bundle.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
        letters.chars().find(|letter| self.short.contains(*letter)).map(|letter| format!("-{letter}"))
    }
}

/// What of a git command line starts another program.
fn git(words: &[String]) -> Option<String> {
    let mut subcommand: Option<&str> = None;
    let mut at = 0;
    while let Some(word) = words.get(at).map(String::as_str) {
        let following = words.get(at + 1).map(String::as_str);
        let setting = match word {
            "-c" | "--config" if subcommand.is_none() || subcommand == Some("clone") => following,
            _ => word.strip_prefix("--config=").filter(|_| subcommand == Some("clone")),
        };
        if let Some(setting) = setting.filter(|setting| !is_harmless_setting(setting)) {
            let key = setting.split('=').next().unwrap_or(setting);
            return Some(format!("the setting `{key}` may name a program to start"));
        }
        match (subcommand, word) {
            (None, "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace") => at += 1,
            (None, word) if !word.starts_with('-') => {
                if GIT_LAUNCHES.contains(&word) {
                    return Some(format!("`git {word}` starts other programs"));
                }
                subcommand = Some(word);
            }
            (Some("rebase"), word)
                if word == "-x" || word == "--exec" || word.starts_with("--exec=") || word.starts_with("-x") =>
            {
                return Some("`git rebase --exec` starts other programs".into());
            }
            (Some("bisect"), "run") | (Some("submodule"), "foreach") => {
                return Some(format!("`git {} {word}` starts other programs", subcommand.unwrap_or("")));
            }
            (Some("archive" | "push" | "fetch-pack" | "send-pack"), word) if word.starts_with("--exec") => {
                return Some("its option `--exec` names a program to start".into());
            }
            (Some("clone" | "ls-remote" | "grep"), word) if word.starts_with("-u") || word.starts_with("-O") => {
                return Some(format!("its option `{}` names a program to start", word.get(..2).unwrap_or(word)));
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The scripts that a sed command line holds; files are not opened.
fn sed_scripts(words: &[String]) -> Vec<&str> {
    let mut scripts = Vec::new();
    let mut plain = None;
    let (mut at, mut by_option) = (0, false);
    while let Some(word) = words.get(at) {
        at += 1;
        if let Some(script) =
            word.strip_prefix("--expression=").or_else(|| word.strip_prefix("-e").filter(|s| !s.is_empty()))
        {
            scripts.push(script);
        } else if matches!(word.as_str(), "-e" | "--expression" | "-f" | "--file")
            || (word.starts_with('-') && !word.starts_with("--") && word.ends_with('e'))
        {
            scripts.extend(words.get(at).map(String::as_str).filter(|_| !word.contains('f')));
            at += 1;
        } else if !word.starts_with('-') && plain.is_none() {
            plain = Some(word.as_str());
            continue;
        } else {
            continue;
        }
        by_option = true;
    }
    if !by_option {
        scripts.extend(plain);
    }
    scripts
}

/// Whether a sed script has an `e` command, or the flag of that name on a substitution.
fn sed_executes(script: &str) -> bool {
    let bytes = script.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        at = after_addresses(bytes, at);
        let Some(command) = bytes.get(at).copied() else { return false };
        at += 1;
        match command {
            b'e' => return true,
            b's' | b'y' => {
                let Some(delimiter) = bytes.get(at).copied() else { return false };
                let Some(middle) = after_delimited(bytes, at + 1, delimiter) else { return false };
                let Some(end) = after_delimited(bytes, middle, delimiter) else { return false };
                let flags = bytes[end..].iter().take_while(|b| !b";}\n#w".contains(b)).count();
                if command == b's' && bytes[end..end + flags].contains(&b'e') {
                    return true;
                }
                at = end + flags;
                if bytes.get(at) == Some(&b'w') {
                    at = end_of(bytes, at, b"\n");
                }
            }
            b'a' | b'i' | b'c' | b'r' | b'R' | b'w' | b'W' | b'#' => at = end_of(bytes, at, b"\n"),
            b'b' | b't' | b'T' | b':' => at = end_of(bytes, at, b"\n;"),
            _ => {}
        }
    }
    false
}

/// Past blanks, separators, line numbers, patterns and `!`.
fn after_addresses(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            b'/' => at = after_delimited(bytes, at + 1, b'/').unwrap_or(bytes.len()),
            b'\\' => {
                let delimiter = bytes.get(at + 1).copied().unwrap_or(0);
                at = after_delimited(bytes, at + 2, delimiter).unwrap_or(bytes.len());
            }
            b'I' | b'M' | b'$' | b',' | b'~' | b'+' | b'!' | b'{' | b'}' | b';' | b'0'..=b'9' => at += 1,
            byte if byte.is_ascii_whitespace() => at += 1,
            _ => break,
        }
    }
    at
}

/// Past the next delimiter that no backslash precedes.
fn after_delimited(bytes: &[u8], mut at: usize, delimiter: u8) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            byte if byte == delimiter => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn end_of(bytes: &[u8], at: usize, ends: &[u8]) -> usize {
    bytes[at..].iter().position(|byte| ends.contains(byte)).map_or(bytes.len(), |length| at + length)
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
            "tar|-czf|a.tgz|dir",
            "tar|xzf|a.tgz",
            "tar|--exclude=I|-cf|a|b|--checkpoint=5",
            "tar|-xf|a.tar|-C|Images",
            "rsync|-av|--delete|a/|b/",
            "sort|-u|a",
            "split|-b|5|a",
            "make|-j4|test|CC=clang",
            "gcc|-O2|-Wall|-o|a|a.c",
            "sed|-i|s/one/three/g|f",
            "sed|-n|1,20p|f",
            "sed|s|a,e|b,e|g",
            "sed|/^#/d;s/[a-e]/x/2w out",
            "sed|-e|s/a/e/|-e|/e/p|f",
            "sed|-E|s/(a|e)/\\1/|f",
            "sed|y/abc/def/",
            "sed|$!N;P;D",
            "patch|-p1|-i|x.diff",
            "ls|--to-command",
        ] {
            assert!(passes(line), "{line}");
        }
    }

    #[test]
    fn scripts_cut_anywhere_do_not_confuse_the_reader() {
        let script = "1,/a\\/b/{s,x\\,y,z,gw f\n}; $!e id";
        for length in 0..=script.len() {
            let _answer = sed_executes(&script[..length]);
        }
    }
}
