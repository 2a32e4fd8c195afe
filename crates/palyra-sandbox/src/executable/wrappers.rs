//! Seeing through programs whose purpose is to start another: `env`, `timeout`, `xargs`, `find -exec`, …
//!
//! Each known wrapper has a small table of its options. Whatever is not in the table ends in a refusal, never in a guess:
//! a misread option would let the wrapped program hide behind it.

mod find;

use crate::error::SandboxError;

/// A command that a wrapper would start: its place among the wrapper's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inner {
    /// Where its program is named.
    pub(super) at: usize,
    /// Where its arguments end.
    pub(super) end: usize,
    /// What is known of whoever starts it.
    pub(super) under: Under,
}

/// What a program is started by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Under {
    /// Somebody who appends arguments that nobody has seen: `xargs`.
    pub(super) fed: bool,
    /// Somebody who puts words together in ways of its own, so that a further wrapper might start something else: `xargs`, `find`.
    pub(super) mixed: bool,
    /// Somebody who puts what it reads into the words themselves, so that none may be put there by us: `xargs -I`.
    pub(super) pasted: bool,
}

impl Under {
    pub(super) const NOBODY: Self = Self { fed: false, mixed: false, pasted: false };
    const XARGS: Self = Self { fed: true, mixed: true, pasted: false };
    const FIND: Self = Self { fed: false, mixed: true, pasted: false };
}

/// How a wrapper's own options look.
struct Grammar {
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value, attached or following.
    valued: &'static str,
    /// Long options without a value.
    long_flags: &'static [&'static str],
    /// Long options with a value, after `=` or following.
    long_valued: &'static [&'static str],
    /// Long options whose value can only stand after `=`.
    long_optional: &'static [&'static str],
    /// Positional words before the command, such as the duration of `timeout`.
    positionals: usize,
}

fn grammar(name: &str) -> Option<Grammar> {
    let plain =
        Grammar { flags: "", valued: "", long_flags: &[], long_valued: &[], long_optional: &[], positionals: 0 };
    Some(match name {
        "nice" => Grammar { valued: "n", long_valued: &["adjustment"], ..plain },
        "ionice" => {
            Grammar { flags: "t", valued: "cn", long_flags: &["ignore"], long_valued: &["class", "classdata"], ..plain }
        }
        "chrt" => Grammar {
            flags: "bfiordRav",
            long_flags: &["batch", "fifo", "idle", "other", "rr", "verbose", "reset-on-fork"],
            positionals: 1,
            ..plain
        },
        "taskset" => Grammar { flags: "c", long_flags: &["cpu-list"], positionals: 1, ..plain },
        "timeout" => Grammar {
            flags: "vfp",
            valued: "ks",
            long_flags: &["verbose", "foreground", "preserve-status"],
            long_valued: &["kill-after", "signal"],
            positionals: 1,
            ..plain
        },
        "nohup" | "time" => Grammar { flags: "pv", long_flags: &["portability", "verbose"], ..plain },
        "setsid" => Grammar { flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..plain },
        "stdbuf" => Grammar { valued: "ioe", long_valued: &["input", "output", "error"], ..plain },
        "unbuffer" => Grammar { flags: "p", ..plain },
        "xargs" => Grammar {
            flags: "0rtxp",
            valued: "dEILnPsa",
            long_flags: &["null", "no-run-if-empty", "verbose", "exit", "interactive", "open-tty"],
            long_valued: &["delimiter", "max-args", "max-procs", "max-chars", "arg-file"],
            long_optional: &["max-lines", "replace"],
            ..plain
        },
        _ => return None,
    })
}

/// The commands that `argv` would start; `name` is the wrapper's base name.
pub(super) fn see_through(name: &str, argv: &[String]) -> Result<Vec<Inner>, SandboxError> {
    let name = name
        .strip_prefix('g')
        .filter(|rest| grammar(rest).is_some() || matches!(*rest, "env" | "find"))
        .unwrap_or(name);
    match name {
        "env" => env_inner(argv),
        "find" => find::inner(argv),
        _ => {
            let grammar = grammar(name).ok_or_else(|| refused(name, "its options are not known"))?;
            let at = 1 + after_options(name, &grammar, argv.get(1..).unwrap_or(&[]))?;
            if name == "xargs" {
                return xargs_inner(argv, at);
            }
            // Where it may be left out, what stands in its place is the program.
            let priority = argv.get(at.saturating_sub(1)).is_none_or(|word| word.bytes().all(|b| b.is_ascii_digit()));
            if name == "chrt" && !priority {
                return Err(refused(name, "it has no priority"));
            }
            // Without a command the others print something or fail.
            Ok(rest(argv, at, Under::NOBODY))
        }
    }
}

/// The commands that a command line comes to, wrappers seen through as far as they can be. For looking at only: where a wrapper cannot
/// be read, it is taken as it stands.
pub(crate) fn commands(argv: &[String]) -> Vec<Vec<String>> {
    let (mut open, mut found) = (vec![argv.to_vec()], Vec::new());
    while let Some(command) = open.pop() {
        let name = command.first().and_then(|word| std::path::Path::new(word).file_name()?.to_str()).unwrap_or("");
        match see_through(name, &command) {
            // What is inside is shorter than what is around it, so this ends.
            Ok(inner) if !inner.is_empty() => {
                open.extend(inner.iter().rev().filter_map(|inner| Some(command.get(inner.at..inner.end)?.to_vec())));
            }
            _ => found.push(command),
        }
    }
    found
}

/// The command that begins at a word and goes on to the end, if there is one.
fn rest(argv: &[String], at: usize, under: Under) -> Vec<Inner> {
    if at < argv.len() { vec![Inner { at, end: argv.len(), under }] } else { Vec::new() }
}

fn refused(name: &str, reason: impl Into<String>) -> SandboxError {
    SandboxError::WrapperRefused { name: name.to_owned(), reason: reason.into() }
}

/// How many words a wrapper's own options and positional words are.
fn after_options(name: &str, grammar: &Grammar, words: &[String]) -> Result<usize, SandboxError> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if word == "--" {
            at += 1;
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            at += long_option_width(name, grammar, long)?;
        } else if let Some(short) = word.strip_prefix('-').filter(|s| !s.is_empty()) {
            at += short_option_width(name, grammar, short)?;
        } else {
            break;
        }
    }
    Ok(at + grammar.positionals)
}

fn long_option_width(name: &str, grammar: &Grammar, long: &str) -> Result<usize, SandboxError> {
    match long.split_once('=') {
        Some((key, _)) if grammar.long_valued.contains(&key) || grammar.long_optional.contains(&key) => Ok(1),
        None if grammar.long_flags.contains(&long) || grammar.long_optional.contains(&long) => Ok(1),
        None if grammar.long_valued.contains(&long) => Ok(2),
        _ => Err(refused(name, format!("its option `--{long}` is not known"))),
    }
}

fn short_option_width(name: &str, grammar: &Grammar, short: &str) -> Result<usize, SandboxError> {
    // `nice -5`: an old spelling of a number.
    if name == "nice" && short.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        return Ok(1);
    }
    for (i, c) in short.char_indices() {
        if grammar.valued.contains(c) {
            return Ok(if i + c.len_utf8() == short.len() { 2 } else { 1 });
        }
        if !grammar.flags.contains(c) {
            return Err(refused(name, format!("its option `-{c}` is not known")));
        }
    }
    Ok(1)
}

/// `env [-i] [-u NAME] [-C DIR] [NAME=VALUE]… COMMAND`. `-S` splits a string by rules of its own: refused. Variables that
/// change which code runs are refused as everywhere.
fn env_inner(argv: &[String]) -> Result<Vec<Inner>, SandboxError> {
    let grammar = Grammar {
        flags: "i0v",
        valued: "u",
        long_flags: &["ignore-environment", "null", "debug"],
        long_valued: &["unset"],
        long_optional: &[],
        positionals: 0,
    };
    let mut at = 1 + after_options("env", &grammar, argv.get(1..).unwrap_or(&[]))?;
    while let Some(word) = argv.get(at) {
        match word.split_once('=') {
            Some((key, _)) if crate::environment::changes_code(key) || key == "PATH" => {
                return Err(SandboxError::EnvironmentRefused { name: key.to_owned() });
            }
            Some(_) => at += 1,
            None if word == "-" => at += 1,
            None => break,
        }
    }
    Ok(rest(argv, at, Under::NOBODY))
}

/// `xargs` appends what it reads, or puts it in the place of a word.
fn xargs_inner(argv: &[String], at: usize) -> Result<Vec<Inner>, SandboxError> {
    let options = argv.get(1..at).unwrap_or(&[]);
    if argv.get(at).is_some_and(|program| replaced_by_xargs(options).any(|word| program.contains(word))) {
        return Err(refused("xargs", "it would execute what it reads"));
    }
    let pasted = replaced_by_xargs(options).next().is_some();
    // Without a command it runs echo.
    Ok(rest(argv, at, Under { pasted, ..Under::XARGS }))
}

/// The words that an `xargs` replaces by what it reads. Too many are told rather than too few.
fn replaced_by_xargs(options: &[String]) -> impl Iterator<Item = &str> {
    let braces = options.iter().any(|word| word.starts_with("--replace")).then_some("{}");
    let values = options.iter().enumerate().flat_map(|(at, word)| {
        let long = word.strip_prefix("--replace=");
        let attached = word.strip_prefix('-').filter(|short| !short.starts_with('-'));
        let attached = attached.and_then(|short| short.split_once('I')).map(|(_, value)| value);
        let following = attached.filter(|value| value.is_empty()).and_then(|_| options.get(at + 1));
        [long, attached, following.map(String::as_str)].into_iter().flatten()
    });
    braces.into_iter().chain(values).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn check(line: &str, expect: &[&str]) {
        let argv = words(line);
        let got = see_through(&argv[0], &argv).unwrap_or_else(|e| panic!("{line}: {e}"));
        let commands = got.iter().map(|inner| argv[inner.at..inner.end].join(" "));
        assert_eq!(commands.collect::<Vec<_>>(), expect, "{line}");
    }

    #[test]
    fn the_inner_command_is_found() {
        check("env bash", &["bash"]);
        check("env -i A=1 B=2 bash -c x", &["bash -c x"]);
        check("env -u HOME -- python3", &["python3"]);
        check("env", &[]);
        check("nice -n 5 bash", &["bash"]);
        check("nice -n5 bash", &["bash"]);
        check("nice -5 bash", &["bash"]);
        check("nice --adjustment=5 bash", &["bash"]);
        check("timeout -k 5 --signal=KILL 10 sh -c y", &["sh -c y"]);
        check("timeout 10 ls", &["ls"]);
        check("xargs -0 -n 1 -P4 sh -c z", &["sh -c z"]);
        check("xargs", &[]);
        check("xargs --replace bash true", &["bash true"]);
        check("xargs --max-lines bash true", &["bash true"]);
        check("xargs --replace=X --max-lines=3 cat X", &["cat X"]);
        check("xargs -I % mv % old", &["mv % old"]);
        check("stdbuf -oL perl", &["perl"]);
        check("setsid -f bash", &["bash"]);
        check("chrt -f 5 bash", &["bash"]);
        check("gtimeout 3 bash", &["bash"]);
        check("find . -name x", &[]);
        check("find . -exec sh -c a {} ; -execdir rm {} +", &["sh -c a {}", "rm {}"]);
        check("find . -exec env -u + bash -c x ;", &["env -u + bash -c x"]);
        check("find . -exec expr 1 + 1 {} +", &["expr 1 + 1 {}"]);
        check("find . -fprintf -exec true -exec bash -c x ;", &["bash -c x"]);
        check("find -L -O3 -D tree a b ( -newermt -exec -o -name -exec ) -exec sh ;", &["sh"]);
        check("find . -fls -exec -printf -exec -regextype -exec -exec sh ;", &["sh"]);
        check("find -D -exec . -exec sh ;", &["sh"]);
        check("find . -ok cat {} + -exec sh ;", &["cat {} + -exec sh"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for line in [
            "env -S bash",
            "env --split-string=bash",
            "timeout --wat 3 ls",
            "find . -exec {} ;",
            "find . -exec ls",
            "linux64 ls",
            "xargs -Z sh",
            "env -C / ls",
            "xargs -I ls ls -c",
            "xargs -0I ls ls",
            "xargs --replace=ls ls",
            "xargs --replace ./{}",
            "find . -exec ./a{} ;",
            "find . -execdir ./tool ;",
            "find . -okdir sub/tool {} +",
            "find . -exec ;",
            "chrt -o bash ls",
            "find . -wat -exec true -exec ls ;",
            "find . -newerxy -exec ls ;",
            "find . -name x y",
            "find . -f x",
            "find . -ok ls {} +",
            "find . -fprintf x -exec ls ;",
            "find . -D -exec ls ;",
            "find . -O3",
            "find . -depth 1 -exec ls ;",
        ] {
            let argv = words(line);
            assert!(see_through(&argv[0], &argv).is_err(), "{line}");
        }
        assert!(see_through("env", &words("env LD_PRELOAD=x.so ls")).is_err());
    }
}
