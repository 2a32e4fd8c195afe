//! The names by which shells and interpreters are known: reviewed data.
//!
//! A family is what an operator allows (`python` covers `python3.12`); its members are the base names, without version
//! suffix. The promise is that these programs are gone from a run, not that nothing interprets: a list of names is
//! never complete.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Family, members.
const INTERPRETERS: &[(&str, &[&str])] = &[
    ("sh", &["sh", "dash", "ash", "posh", "static-sh", "sash", "smrsh", "git-shell"]),
    ("bash", &["bash", "rbash", "bash-static"]),
    ("zsh", &["zsh", "zsh-static", "rzsh"]),
    ("ksh", &["ksh", "ksh93", "mksh", "lksh", "oksh", "pdksh", "rksh", "yash", "mksh-static"]),
    ("csh", &["csh", "tcsh", "bsd-csh"]),
    ("fish", &["fish"]),
    ("pwsh", &["pwsh", "powershell", "cmd"]),
    ("nu", &["nu", "elvish", "xonsh", "rc", "es", "osh", "ysh"]),
    ("busybox", &["busybox", "toybox", "sbase-box", "ubase-box", "busybox-static"]),
    ("python", &["python", "pypy", "ipython", "bpython", "pythonw", "micropython", "jython", "graalpy"]),
    (
        "node",
        &[
            "node",
            "nodejs",
            "deno",
            "bun",
            "qjs",
            "d8",
            "js",
            "gjs",
            "cjs",
            "tsx",
            "ts-node",
            "mujs",
            "duk",
            "jrunscript",
            "rhino",
            "coffee",
        ],
    ),
    ("perl", &["perl", "raku", "perl6", "rakudo"]),
    ("ruby", &["ruby", "irb", "jruby", "truffleruby", "mruby"]),
    ("php", &["php", "phpdbg", "php-cgi", "hhvm"]),
    ("lua", &["lua", "luajit", "texlua", "texluajit", "luau", "fennel", "janet"]),
    ("tcl", &["tclsh", "wish", "expect", "jimsh"]),
    ("awk", &["awk", "gawk", "mawk", "nawk", "goawk", "original-awk", "bwk"]),
    (
        "lisp",
        &[
            "guile",
            "scheme",
            "sbcl",
            "clisp",
            "ecl",
            "racket",
            "chicken-csi",
            "gosh",
            "bb",
            "clojure",
            "clj",
            "mit-scheme",
            "chez",
            "petite",
            "gsi",
            "newlisp",
            "picolisp",
        ],
    ),
    ("r", &["r", "rscript", "littler"]),
    ("julia", &["julia"]),
    ("java", &["java", "jshell", "groovy", "kotlin", "scala", "nashorn", "jjs", "groovysh", "jdb"]),
    ("dotnet", &["dotnet", "mono", "mono-sgen", "csi", "fsi"]),
    ("erlang", &["erl", "escript", "elixir", "iex"]),
    ("haskell", &["ghci", "runghc", "runhaskell"]),
    ("ocaml", &["ocaml", "utop"]),
    ("swift", &["swift"]),
    ("octave", &["octave", "octave-cli", "gnuplot", "maxima", "gp", "scilab", "scilab-cli", "gap"]),
    ("m4", &["m4"]),
    ("prolog", &["swipl", "prolog", "gprolog", "yap"]),
    ("forth", &["gforth", "pforth"]),
    ("smalltalk", &["gst", "squeak"]),
    ("rexx", &["rexx", "regina"]),
    ("pike", &["pike"]),
    ("ghostscript", &["gs", "gsc", "ghostscript"]),
    ("optscript", &["optscript"]),
    (
        "llvm",
        &["lli", "lli-child-target", "llvm-jitlink", "llvm-jitlink-executor", "llvm-rtdyld", "clang-repl", "cling"],
    ),
    ("gdb", &["gdb", "lldb", "gdbserver", "cgdb", "gdb-multiarch", "gdbtui", "lldb-server"]),
    (
        "editor",
        &[
            "vi",
            "vim",
            "nvim",
            "view",
            "ex",
            "rvim",
            "vimdiff",
            "emacs",
            "ed",
            "red",
            "nano",
            "pico",
            "kak",
            "hx",
            "emacsclient",
            "gvim",
            "nvi",
            "vile",
            "jed",
            "joe",
            "mg",
            "micro",
        ],
    ),
    ("applescript", &["osascript"]),
    ("wsh", &["wscript", "cscript", "mshta"]),
    ("wine", &["wine", "wine64", "qemu-x86_64", "qemu-i386", "qemu-aarch64", "qemu-arm", "box64", "box86"]),
    ("wasm", &["wasmtime", "wasmer", "wazero"]),
];

/// What a shell includes: whoever may run it can do all that these can.
const INCLUDED: &[(&str, &[&str])] =
    &[("bash", &["sh", "awk"]), ("zsh", &["sh", "awk"]), ("ksh", &["sh", "awk"]), ("sh", &["awk"])];

/// An operator's word for every family.
const ANY: &str = "*";

/// The family that a base name belongs to.
pub(crate) fn family_of(name: &str) -> Option<&'static str> {
    static MEMBERS: OnceLock<HashMap<&str, &str>> = OnceLock::new();
    let by_member = || {
        let of = |(family, members): &(&'static str, &'static [&'static str])| {
            let family = *family;
            members.iter().map(move |member| (*member, family))
        };
        INTERPRETERS.iter().flat_map(of).collect()
    };
    let lower = name.to_ascii_lowercase();
    let lower = lower.strip_suffix(".exe").unwrap_or(&lower);
    // `-bash` is how a login shell is called.
    let lower = lower.strip_prefix('-').unwrap_or(lower);
    let members = MEMBERS.get_or_init(by_member);
    candidates(lower).find_map(|name| members.get(name).copied())
}

/// Whether an operator's word means a family: by its name, with or without a version, or by a shell that includes it.
pub(crate) fn means_family(entry: &str, family: &str) -> bool {
    if entry == ANY {
        return true;
    }
    let entry = entry.to_ascii_lowercase();
    let includes = |name: &str| INCLUDED.iter().any(|(shell, all)| *shell == name && all.contains(&family));
    candidates(&entry).any(|name| name == family || includes(name))
}

/// The name itself, then without its version: `python3.12` → `python`, `node-22` → `node`, `perl5.36-x86_64-linux-gnu`
/// → `perl`, `python3.11d` → `python`, `vim.basic` → `vim`.
fn candidates(name: &str) -> impl Iterator<Item = &str> {
    let without_version = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_'));
    let before_digit = name.find(|c: char| c.is_ascii_digit()).map_or(name, |at| &name[..at]);
    let before_digit = before_digit.trim_end_matches(['.', '-', '_']);
    let before_dot = name.split('.').next().unwrap_or(name);
    [name, without_version, before_digit, before_dot].into_iter().filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_variants_are_recognised() {
        for (name, family) in [
            ("python3.12", "python"),
            ("python3.11d", "python"),
            ("PYTHON3", "python"),
            ("python2", "python"),
            ("node-22", "node"),
            ("nodejs", "node"),
            ("perl5.36-x86_64-linux-gnu", "perl"),
            ("ruby3.1", "ruby"),
            ("lua5.4", "lua"),
            ("php8.2", "php"),
            ("tclsh8.6", "tcl"),
            ("ksh93", "ksh"),
            ("-bash", "bash"),
            ("bash.exe", "bash"),
            ("vim.basic", "editor"),
            ("gawk-5.2.1", "awk"),
            ("R", "r"),
            ("dash", "sh"),
            ("lli", "llvm"),
            ("lli-14", "llvm"),
            ("llvm-jitlink-14", "llvm"),
            ("optscript", "optscript"),
            ("swipl", "prolog"),
            ("gs", "ghostscript"),
        ] {
            assert_eq!(family_of(name), Some(family), "{name}");
        }
    }

    #[test]
    fn ordinary_programs_are_not() {
        for name in [
            "git",
            "cargo",
            "ls",
            "cat",
            "grep",
            "gcc",
            "gcc-12",
            "make",
            "curl",
            "true",
            "rustc",
            "tar",
            "7z",
            "sha256sum",
            "msgfmt",
            "llvm-objdump-14",
            "factor",
            "less",
        ] {
            assert_eq!(family_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_shell_includes_what_is_less_than_it() {
        for (entry, family, expect) in [
            ("bash", "bash", true),
            ("bash", "sh", true),
            ("bash", "awk", true),
            ("sh", "awk", true),
            ("sh", "bash", false),
            ("python3", "python", true),
            ("python3", "sh", false),
            ("awk", "sh", false),
            ("*", "sh", true),
            ("*", "editor", true),
        ] {
            assert_eq!(means_family(entry, family), expect, "{entry} {family}");
        }
    }
}
