//! Seeing through programs whose purpose is to start another: `env`, `timeout`, `xargs`, `find -exec`, …
//!
//! For the approval card and for the facts that rules see. It holds nothing back: what a run cannot execute is gone
//! from its file tree. A wrapper whose options are not known is taken as it stands, and the card says that what it
//! starts cannot be told.

/// A command that a wrapper would start: its place among the wrapper's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inner {
    /// Where its program is named.
    pub(super) at: usize,
    /// Where its arguments end.
    pub(super) end: usize,
    /// Texts that the wrapper replaces in its words, so that none of them may be put there: `find`'s `{}`.
    pub(super) replaced: Vec<String>,
}

/// How a wrapper's own options look.
#[derive(Debug)]
struct Grammar {
    name: &'static str,
    /// Short options with a value, attached or following.
    valued: &'static str,
    /// Short options without one.
    flags: &'static str,
    /// Long options whose value may follow. All others have theirs behind a `=`, or none.
    long_valued: &'static [&'static str],
    /// Words before the command, such as the duration of `timeout`.
    positionals: usize,
}

const fn grammar(name: &'static str, flags: &'static str, valued: &'static str) -> Grammar {
    Grammar { name, valued, flags, long_valued: &[], positionals: 0 }
}

/// The wrappers that can be read.
const WRAPPERS: &[Grammar] = &[
    Grammar { long_valued: &["unset", "chdir"], ..grammar("env", "i0v", "uC") },
    grammar("find", "", ""),
    Grammar { long_valued: &["adjustment"], ..grammar("nice", "", "n") },
    Grammar { long_valued: &["class", "classdata"], ..grammar("ionice", "t", "cn") },
    Grammar { positionals: 1, ..grammar("chrt", "bfiordRav", "") },
    Grammar { positionals: 1, ..grammar("taskset", "c", "") },
    Grammar { positionals: 1, long_valued: &["kill-after", "signal"], ..grammar("timeout", "vfp", "ks") },
    grammar("nohup", "", ""),
    grammar("time", "pvaq", "fo"),
    grammar("setsid", "cfw", ""),
    Grammar { long_valued: &["input", "output", "error"], ..grammar("stdbuf", "", "ioe") },
    Grammar {
        long_valued: &["delimiter", "max-args", "max-procs", "max-chars", "arg-file"],
        ..grammar("xargs", "0rtxp", "dEILnPsa")
    },
];

fn grammar_of(name: &str) -> Option<&'static Grammar> {
    let named = |name: &str| WRAPPERS.iter().find(|grammar| grammar.name == name);
    // `gtimeout`: the same program of a packager who keeps the system's own apart.
    named(name).or_else(|| named(name.strip_prefix('g')?))
}

/// Whether a program of this base name starts what its arguments name.
pub(super) fn is_wrapper(name: &str) -> bool {
    grammar_of(name).is_some()
}

/// The commands that `argv` would start, none if it starts nothing; `None` when that cannot be told.
pub(super) fn see_through(name: &str, argv: &[String]) -> Option<Vec<Inner>> {
    let grammar = grammar_of(name)?;
    if grammar.name == "find" {
        return in_find(argv);
    }
    let mut at = after_options(grammar, argv)?;
    if grammar.name == "env" {
        at += argv.get(at..).unwrap_or(&[]).iter().take_while(|word| word.contains('=') || *word == "-").count();
    }
    let replaced = if grammar.name == "xargs" { replaced_by_xargs(argv.get(1..at).unwrap_or(&[])) } else { Vec::new() };
    let Some(program) = argv.get(at) else { return Some(Vec::new()) };
    // It would execute what it reads.
    let is_fixed = !replaced.iter().any(|text| program.contains(text));
    is_fixed.then(|| vec![Inner { at, end: argv.len(), replaced }])
}

/// The commands that a command line comes to, wrappers seen through as far as they can be.
pub(crate) fn commands(argv: &[String]) -> Vec<Vec<String>> {
    let (mut open, mut found) = (vec![argv.to_vec()], Vec::new());
    while let Some(command) = open.pop() {
        let name = command.first().and_then(|word| std::path::Path::new(word).file_name()?.to_str()).unwrap_or("");
        match see_through(name, &command) {
            // What is inside is shorter than what is around it, so this ends.
            Some(inner) if !inner.is_empty() => {
                open.extend(inner.iter().rev().filter_map(|inner| Some(command.get(inner.at..inner.end)?.to_vec())));
            }
            _ => found.push(command),
        }
    }
    found
}

/// Where a wrapper's options and positional words end.
fn after_options(grammar: &Grammar, argv: &[String]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        if word == "--" {
            at += 1;
            break;
        }
        let option = word.strip_prefix('-').filter(|option| !option.is_empty());
        let Some(option) = option else { break };
        at += match option.strip_prefix('-') {
            // It splits a string into words by rules of its own.
            Some(long) if grammar.name == "env" && long.starts_with("split-string") => return None,
            Some(long) if grammar.long_valued.contains(&long) => 2,
            Some(_) => 1,
            None => short_width(grammar, option)?,
        };
    }
    Some(at + grammar.positionals)
}

/// How many words a bundle of short options takes.
fn short_width(grammar: &Grammar, bundle: &str) -> Option<usize> {
    // `nice -5`: an old spelling of a number.
    if grammar.name == "nice" && bundle.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return Some(1);
    }
    for (at, letter) in bundle.char_indices() {
        if grammar.valued.contains(letter) {
            return Some(if at + letter.len_utf8() == bundle.len() { 2 } else { 1 });
        }
        if !grammar.flags.contains(letter) {
            return None;
        }
    }
    Some(1)
}

/// The words that an `xargs` replaces by what it reads. Too many are told rather than too few.
fn replaced_by_xargs(options: &[String]) -> Vec<String> {
    let braces = options.iter().any(|word| word.starts_with("--replace")).then_some("{}");
    let values = options.iter().enumerate().flat_map(|(at, word)| {
        let long = word.strip_prefix("--replace=");
        let attached = word.strip_prefix('-').filter(|short| !short.starts_with('-'));
        let attached = attached.and_then(|short| short.split_once('I')).map(|(_, value)| value);
        let following = attached.filter(|value| value.is_empty()).and_then(|_| options.get(at + 1));
        [long, attached, following.map(String::as_str)].into_iter().flatten()
    });
    braces.into_iter().chain(values).filter(|value| !value.is_empty()).map(str::to_owned).collect()
}

/// Every `-exec`, `-execdir`, `-ok`, `-okdir` of a `find`.
fn in_find(argv: &[String]) -> Option<Vec<Inner>> {
    let mut inner = Vec::new();
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        at += 1;
        if !matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        // A plus is an end only behind the braces; anywhere else it is a word like any other.
        let is_end = |n: &usize| argv[*n] == ";" || (argv[*n] == "+" && argv[n - 1] == "{}");
        let end = (at..argv.len()).find(is_end)?;
        let program = argv.get(at).filter(|program| at < end && !program.contains("{}"))?;
        if word.ends_with("dir") && program.contains('/') && !program.starts_with('/') {
            // Another file in each directory.
            return None;
        }
        inner.push(Inner { at, end, replaced: vec!["{}".to_owned()] });
        at = end + 1;
    }
    Some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn check(line: &str, expect: &[&str]) {
        let argv = words(line);
        let got = see_through(&argv[0], &argv).unwrap_or_else(|| panic!("{line}"));
        let commands = got.iter().map(|inner| argv[inner.at..inner.end].join(" "));
        assert_eq!(commands.collect::<Vec<_>>(), expect, "{line}");
    }

    #[test]
    fn the_inner_command_is_found() {
        check("env bash", &["bash"]);
        check("env -i A=1 LD_PRELOAD=x bash -c x", &["bash -c x"]);
        check("env -u HOME -C sub -- python3", &["python3"]);
        check("env", &[]);
        check("nice -n 5 bash", &["bash"]);
        check("nice -n5 bash", &["bash"]);
        check("nice -5 bash", &["bash"]);
        check("nice --adjustment=5 bash", &["bash"]);
        check("timeout -k 5 --signal=KILL 10 sh -c y", &["sh -c y"]);
        check("timeout --signal KILL 10 sh", &["sh"]);
        check("timeout 10 ls", &["ls"]);
        check("xargs -0 -n 1 -P4 sh -c z", &["sh -c z"]);
        check("xargs", &[]);
        check("xargs --replace bash true", &["bash true"]);
        check("xargs -I % mv % old", &["mv % old"]);
        check("stdbuf -oL perl", &["perl"]);
        check("setsid -f bash", &["bash"]);
        check("chrt -f 5 bash", &["bash"]);
        check("gtimeout 3 bash", &["bash"]);
        check("find . -name x", &[]);
        check("find . -exec sh -c a {} ; -execdir rm {} +", &["sh -c a {}", "rm {}"]);
        check("find . -exec expr 1 + 1 {} +", &["expr 1 + 1 {}"]);
    }

    #[test]
    fn what_cannot_be_told_is_said_so() {
        for line in [
            "env -S bash",
            "env --split-string=bash",
            "xargs -Z sh",
            "xargs -I ls ls -c",
            "xargs --replace=ls ls",
            "xargs --replace ./{}",
            "find . -exec {} ;",
            "find . -exec ls",
            "find . -exec ;",
            "find . -execdir ./tool ;",
        ] {
            let argv = words(line);
            assert_eq!(see_through(&argv[0], &argv), None, "{line}");
        }
    }
}
