//! Seeing through programs whose purpose is to start another: `env`, `timeout`, `xargs`, `find -exec`, …
//!
//! Each known wrapper has a small table of its options. Whatever is not in the table ends in a refusal, never in a guess:
//! a misread option would let the wrapped program hide behind it.

use crate::error::SandboxError;

/// What a wrapper would start: one command, none, or several (`find` with several `-exec`).
pub(super) type Inner = Vec<Vec<String>>;

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
    /// Positional words before the command, such as the duration of `timeout`.
    positionals: usize,
}

fn grammar(name: &str) -> Option<Grammar> {
    let plain = Grammar { flags: "", valued: "", long_flags: &[], long_valued: &[], positionals: 0 };
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
        },
        "nohup" | "time" => Grammar { flags: "pv", long_flags: &["portability", "verbose"], ..plain },
        "setsid" => Grammar { flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..plain },
        "stdbuf" => Grammar { valued: "ioe", long_valued: &["input", "output", "error"], ..plain },
        "unbuffer" => Grammar { flags: "p", ..plain },
        "xargs" => Grammar {
            flags: "0rtxp",
            valued: "dEILnPsa",
            long_flags: &["null", "no-run-if-empty", "verbose", "exit", "interactive", "open-tty"],
            long_valued: &["delimiter", "max-args", "max-procs", "max-chars", "arg-file", "max-lines", "replace"],
            ..plain
        },
        _ => return None,
    })
}

/// The commands that `argv` would start; `name` is the wrapper's base name.
pub(super) fn see_through(name: &str, argv: &[String]) -> Result<Inner, SandboxError> {
    let name = name
        .strip_prefix('g')
        .filter(|rest| grammar(rest).is_some() || matches!(*rest, "env" | "find"))
        .unwrap_or(name);
    match name {
        "env" => env_inner(argv),
        "find" => find_inner(argv),
        _ => {
            let Some(grammar) = grammar(name) else {
                return Err(refused(name, "its options are not known"));
            };
            let rest = after_options(name, &grammar, &argv[1..])?;
            match rest {
                // xargs without a command runs echo; the others print or fail.
                [] => Ok(Vec::new()),
                rest => Ok(vec![rest.to_vec()]),
            }
        }
    }
}

/// The commands that a command line comes to, wrappers seen through as far as they can be. For looking at only: where a wrapper cannot
/// be read, it is taken as it stands.
pub(crate) fn commands(argv: &[String]) -> Inner {
    let (mut open, mut found) = (vec![argv.to_vec()], Vec::new());
    while let Some(command) = open.pop() {
        let name = command.first().and_then(|word| std::path::Path::new(word).file_name()?.to_str()).unwrap_or("");
        match see_through(name, &command) {
            // What is inside is shorter than what is around it, so this ends.
            Ok(inner) if !inner.is_empty() => open.extend(inner.into_iter().rev()),
            _ => found.push(command),
        }
    }
    found
}

fn refused(name: &str, reason: impl Into<String>) -> SandboxError {
    SandboxError::WrapperRefused { name: name.to_owned(), reason: reason.into() }
}

/// What follows a wrapper's own options and positional words.
fn after_options<'a>(name: &str, grammar: &Grammar, words: &'a [String]) -> Result<&'a [String], SandboxError> {
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
    Ok(words.get(at + grammar.positionals..).unwrap_or(&[]))
}

fn long_option_width(name: &str, grammar: &Grammar, long: &str) -> Result<usize, SandboxError> {
    match long.split_once('=') {
        Some((key, _)) if grammar.long_valued.contains(&key) => Ok(1),
        None if grammar.long_flags.contains(&long) => Ok(1),
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
fn env_inner(argv: &[String]) -> Result<Inner, SandboxError> {
    let grammar = Grammar {
        flags: "i0v",
        valued: "u",
        long_flags: &["ignore-environment", "null", "debug"],
        long_valued: &["unset"],
        positionals: 0,
    };
    let mut rest = after_options("env", &grammar, &argv[1..])?;
    while let Some((first, more)) = rest.split_first() {
        if first == "-" {
            rest = more;
        } else if let Some((key, _)) = first.split_once('=') {
            if crate::environment::changes_code(key) || key == "PATH" {
                return Err(SandboxError::EnvironmentRefused { name: key.to_owned() });
            }
            rest = more;
        } else {
            break;
        }
    }
    Ok(if rest.is_empty() { Vec::new() } else { vec![rest.to_vec()] })
}

/// Every `-exec`, `-execdir`, `-ok`, `-okdir` of a `find`.
fn find_inner(argv: &[String]) -> Result<Inner, SandboxError> {
    let mut inner = Vec::new();
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        at += 1;
        if !matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let command = &argv[at..];
        let end = command
            .iter()
            .position(|w| w == ";" || w == "+")
            .ok_or_else(|| refused("find", format!("`{word}` has no end")))?;
        if command.first().is_some_and(|program| program.contains("{}")) {
            return Err(refused("find", "it would execute the files it finds"));
        }
        inner.push(command[..end].to_vec());
        at += end + 1;
    }
    Ok(inner)
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
        assert_eq!(got.iter().map(|c| c.join(" ")).collect::<Vec<_>>(), expect, "{line}");
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
        check("stdbuf -oL perl", &["perl"]);
        check("setsid -f bash", &["bash"]);
        check("gtimeout 3 bash", &["bash"]);
        check("find . -name x", &[]);
        check("find . -exec sh -c a {} ; -execdir rm {} +", &["sh -c a {}", "rm {}"]);
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
        ] {
            let argv = words(line);
            assert!(see_through(&argv[0], &argv).is_err(), "{line}");
        }
        assert!(see_through("env", &words("env LD_PRELOAD=x.so ls")).is_err());
    }
}
