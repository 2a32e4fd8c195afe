//! Where in a command the code stands that an interpreter would run.
//!
//! `bash -c` with any third word is any program at all, so a grant for a command's first words must reach past the code
//! or the script. This reads words as a person would, to keep grants narrow; it contains nothing, and no wall depends
//! on it.

use crate::facets::Facets;

/// Programs that run what a word or a file says, by their names without version numbers.
const INTERPRETERS: [&str; 40] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "mksh",
    "ash",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "python",
    "pypy",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "deno",
    "bun",
    "php",
    "lua",
    "luajit",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "tclsh",
    "expect",
    "rscript",
    "r",
    "osascript",
    "pwsh",
    "powershell",
    "guile",
    "julia",
    "elixir",
    "groovy",
    "jshell",
    "sed",
    "gdb",
];

/// Programs that start the program that their arguments name.
const STARTERS: [&str; 26] = [
    "env", "nice", "ionice", "timeout", "nohup", "setsid", "stdbuf", "time", "xargs", "find", "fd", "parallel",
    "watch", "entr", "script", "flock", "strace", "ltrace", "sudo", "doas", "su", "ssh", "docker", "podman", "chroot",
    "unshare",
];

/// Options, whole words, after which code stands.
const CODE_OPTIONS: [&str; 9] =
    ["--eval", "--print", "--command", "--execute", "--run", "--code", "-Command", "-EncodedCommand", "eval"];

/// Letters of short options after which code stands.
const CODE_LETTERS: [char; 6] = ['c', 'e', 'E', 'p', 'r', 'm'];

/// How many leading words leave code open: a prefix has to be longer. None where no prefix of the command closes it.
#[must_use]
pub fn open_words(facets: &Facets) -> Option<usize> {
    let argv = &facets.argv;
    let named = |word: &str| INTERPRETERS.contains(&family(word).as_str());
    let starter = argv.first().is_some_and(|word| STARTERS.contains(&family(word).as_str()));
    let resolved: Vec<String> = facets.all_executables().map(family).collect();
    let first = facets.executable.as_deref().is_some_and(named) || argv.first().is_some_and(|word| named(word));
    let counts = |at: usize, word: &String| match at {
        0 => first,
        _ => named(word) && (starter || resolved.contains(&family(word))),
    };
    let at: Vec<usize> = (0..argv.len()).filter(|at| counts(*at, &argv[*at])).collect();
    // An interpreter behind a starter, under a name that is not its own: no word says where its code is.
    let seen = at.iter().any(|at| *at > 0) || first;
    if starter && !seen && resolved.iter().any(|name| named(name)) {
        return None;
    }
    at.into_iter().map(|at| code_after(argv, at)).try_fold(0, |most, open| Some(most.max(open?)))
}

/// How many words leave the code of the interpreter at `at` open; none where the command has no code and no script.
fn code_after(argv: &[String], at: usize) -> Option<usize> {
    // Behind the code stand its arguments, which are no scripts.
    let (mut operand, mut code, mut closed) = (None, None, false);
    let mut index = at + 1;
    while let Some(word) = argv.get(index) {
        match kind(word) {
            Word::Operand if !closed => operand = operand.or(Some(index)),
            Word::Operand | Word::Option => {}
            Word::WithCode => {
                code = Some(index);
                closed = true;
            }
            Word::BeforeCode { closes } => {
                index += 1;
                argv.get(index)?;
                code = Some(index);
                closed |= closes;
            }
        }
        index += 1;
    }
    operand.max(code)
}

enum Word {
    /// No option.
    Operand,
    /// An option that holds no code.
    Option,
    /// An option with its code in the same word.
    WithCode,
    /// An option whose code is the next word.
    BeforeCode {
        /// Whether no script follows it: `node -r MODULE` still takes one.
        closes: bool,
    },
}

fn kind(word: &str) -> Word {
    if CODE_OPTIONS.contains(&word) {
        return Word::BeforeCode { closes: true };
    }
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or(long);
        return match CODE_OPTIONS.iter().any(|option| option.strip_prefix("--") == Some(name)) {
            true => Word::WithCode,
            false => Word::Option,
        };
    }
    let Some(letters) = word.strip_prefix(['-', '+']).filter(|letters| !letters.is_empty()) else {
        return Word::Operand;
    };
    match letters.find(CODE_LETTERS) {
        None => Word::Option,
        // `-lc CODE`, `-c CODE`; `-cCODE`, which Python and Perl know.
        Some(_) if letters.chars().all(|c| c.is_ascii_alphabetic()) && letters.len() <= 4 => {
            Word::BeforeCode { closes: letters.contains(['c', 'e', 'E', 'm']) }
        }
        Some(_) => Word::WithCode,
    }
}

/// A program's name without its directory, its version and its case: `/usr/bin/python3.12` is `python`.
fn family(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')).to_ascii_lowercase()
}

/// The words of the shortest prefix that is worth offering: the program and its subcommand, or up to its script. None
/// for a shell that is given its code, and where every prefix leaves code open.
#[must_use]
pub fn offered_prefix(facets: &Facets) -> Option<Vec<String>> {
    let argv = &facets.argv;
    if argv.is_empty() {
        return None;
    }
    let open = open_words(facets)?;
    let least = (open + 1).min(argv.len());
    let coded = argv.iter().any(|word| matches!(kind(word), Word::BeforeCode { .. } | Word::WithCode));
    if open > 0 && coded && !is_module(argv) {
        return None;
    }
    let words = match argv.get(1) {
        _ if open > 0 => least,
        Some(second) if is_subcommand(second) => 2,
        // `ls -la` says less about `ls` than about itself.
        Some(_) => argv.len(),
        None => 1,
    };
    (words <= crate::facets::MAX_PREFIX_WORDS).then(|| argv[..words.min(argv.len())].to_vec())
}

/// `python -m pytest` runs a module that has a name.
fn is_module(argv: &[String]) -> bool {
    argv.get(1).is_some_and(|word| word == "-m") && argv.first().is_some_and(|word| family(word) == "python")
}

fn is_subcommand(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && word.len() <= 24
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(argv: &[&str]) -> Option<usize> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let executable = Some(format!("/usr/bin/{}", argv[0]));
        offered_prefix(&Facets { argv, executable, ..Facets::default() }).map(|words| words.len())
    }

    #[test]
    fn what_is_offered_is_narrow_and_never_a_shells_code() {
        for (argv, words) in [
            (&["git", "status", "-s"][..], Some(2)),
            (&["cargo", "test", "--all"], Some(2)),
            (&["ls", "-la"], Some(2)),
            (&["rm", "-rf", "build"], Some(3)),
            (&["make"], Some(1)),
            (&["bash", "-c", "echo one"], None),
            (&["sh"], None),
            (&["python3", "manage.py", "migrate"], Some(2)),
            (&["python3", "-m", "pytest", "-q"], Some(3)),
            (&["python3", "-c", "print()"], None),
            (&["cat", "a", "b", "c", "d", "e", "f", "g", "h"], Some(2)),
            (&["cat", "A", "b", "c", "d", "e", "f", "g", "h"], None),
        ] {
            assert_eq!(offered(argv), words, "{argv:?}");
        }
    }
}
