//! The commands that a `find` would start.
//!
//! Every word of its expression is known with the number of words that it takes, since any of those may look like `-exec`. What is
//! not known is refused.

use super::{Inner, Under, refused};
use crate::error::SandboxError;

/// What stands alone: options, tests, actions, operators.
const ALONE: &[&str] = &[
    "(",
    ")",
    "!",
    ",",
    "-not",
    "-a",
    "-and",
    "-o",
    "-or",
    "-d",
    "-daystart",
    "-delete",
    "-depth",
    "-empty",
    "-executable",
    "-false",
    "-follow",
    "-help",
    "--help",
    "-ignore_readdir_race",
    "-ls",
    "-mount",
    "-nogroup",
    "-noignore_readdir_race",
    "-noleaf",
    "-nouser",
    "-nowarn",
    "-print",
    "-print0",
    "-prune",
    "-quit",
    "-readable",
    "-true",
    "-version",
    "--version",
    "-warn",
    "-writable",
    "-xdev",
];

/// What takes the next word.
const WITH_ONE: &[&str] = &[
    "-amin",
    "-anewer",
    "-atime",
    "-cmin",
    "-cnewer",
    "-context",
    "-ctime",
    "-files0-from",
    "-fls",
    "-fprint",
    "-fprint0",
    "-fstype",
    "-gid",
    "-group",
    "-ilname",
    "-iname",
    "-inum",
    "-ipath",
    "-iregex",
    "-iwholename",
    "-links",
    "-lname",
    "-maxdepth",
    "-mindepth",
    "-mmin",
    "-mtime",
    "-name",
    "-newer",
    "-path",
    "-perm",
    "-printf",
    "-regex",
    "-regextype",
    "-samefile",
    "-size",
    "-type",
    "-uid",
    "-used",
    "-user",
    "-wholename",
    "-xtype",
];

/// How many words an element of the expression takes, if it is known.
fn width(element: &str) -> Option<usize> {
    // `-newermt`: one letter says which time, one says of what.
    let compares = |letters: &str| letters.len() == 2 && letters.bytes().all(|letter| b"aBcmt".contains(&letter));
    match element {
        _ if ALONE.contains(&element) => Some(0),
        _ if WITH_ONE.contains(&element) => Some(1),
        "-fprintf" => Some(2),
        _ => element.strip_prefix("-newer").is_some_and(compares).then_some(1),
    }
}

/// Where the expression begins: behind options such as `-L`, and behind the paths.
fn expression(argv: &[String]) -> usize {
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        at += match word.as_str() {
            "-H" | "-L" | "-P" => 1,
            "-D" => 2,
            "--" => {
                at += 1;
                break;
            }
            word if word.strip_prefix("-O").is_some_and(|level| !level.is_empty()) => 1,
            _ => break,
        };
    }
    let begins =
        |word: &&String| word.starts_with('-') && word.len() > 1 || matches!(word.as_str(), "(" | ")" | "!" | ",");
    at + argv.get(at..).unwrap_or(&[]).iter().take_while(|word| !begins(word)).count()
}

/// Every `-exec`, `-execdir`, `-ok`, `-okdir` of a `find`.
pub(super) fn inner(argv: &[String]) -> Result<Vec<Inner>, SandboxError> {
    let mut inner = Vec::new();
    let mut at = expression(argv);
    // Names that are read from a file may look like options.
    let named_elsewhere = argv.iter().any(|word| word == "-files0-from");
    let under = Under { fed: named_elsewhere, ..Under::FIND };
    while let Some(word) = argv.get(at) {
        at += 1;
        let (elsewhere, many) = match word.as_str() {
            "-exec" => (false, true),
            "-execdir" => (true, true),
            "-ok" => (false, false),
            "-okdir" => (true, false),
            word => {
                at += width(word).ok_or_else(|| refused("find", format!("its word `{word}` is not known")))?;
                continue;
            }
        };
        // A plus is an end only behind the braces; anywhere else it is a word like any other.
        let is_end = |n: &usize| argv[*n] == ";" || (many && argv[*n] == "+" && argv[n - 1] == "{}");
        let end = (at..argv.len()).find(is_end).ok_or_else(|| refused("find", format!("`{word}` has no end")))?;
        let program = argv.get(at).filter(|_| at < end).map_or("", String::as_str);
        if program.is_empty() || program.contains("{}") {
            return Err(refused("find", "it would execute the files it finds"));
        }
        if elsewhere && program.contains('/') && !program.starts_with('/') {
            return Err(refused("find", format!("`{program}` is another file in each directory")));
        }
        inner.push(Inner { at, end, under });
        at = end + 1;
    }
    Ok(inner)
}
