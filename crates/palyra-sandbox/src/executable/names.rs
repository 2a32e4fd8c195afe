//! The names by which shells, interpreters and wrappers are known: reviewed data.
//!
//! A family is what an operator allows (`python` covers `python3.12`); its members are the base names, without version
//! suffix. A list like this is never complete, which is why it is only the first of several looks at a file, and why
//! an operator who can should name `allowed_executables` instead.

mod launchers;

use launchers::LAUNCHERS;

/// What kind of danger a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Runs commands or code that arrive as arguments or input.
    Interpreter(&'static str),
    /// Starts the program named in its arguments.
    Wrapper,
    /// Starts other programs, as another user, elsewhere, or in ways that cannot be seen through.
    Launcher,
    /// Does something else, and starts other programs when its options say so. Never known by name alone: see `options`.
    Tool,
}

/// Family, members.
const INTERPRETERS: &[(&str, &[&str])] = &[
    ("sh", &["sh", "dash", "ash", "rbash", "posh", "static-sh", "sash", "smrsh", "git-shell"]),
    ("bash", &["bash", "bash-static"]),
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

/// Programs that start what their arguments name, and that `wrappers` can see through.
const WRAPPERS: &[&str] = &[
    "env", "nice", "ionice", "chrt", "taskset", "timeout", "nohup", "setsid", "stdbuf", "time", "xargs", "find",
    "gtimeout", "genv", "gfind", "gxargs", "gnice", "gnohup", "gstdbuf", "unbuffer", "setarch", "linux64", "linux32",
    "x86_64",
];

/// What a base name stands for, if it is on any list.
pub(super) fn kind_of(name: &str) -> Option<Kind> {
    let lower = name.to_ascii_lowercase();
    let lower = lower.strip_suffix(".exe").unwrap_or(&lower);
    // `-bash` is how a login shell is called.
    let lower = lower.strip_prefix('-').unwrap_or(lower);
    candidates(lower).find_map(lookup).or_else(|| is_loader(lower).then_some(Kind::Launcher))
}

/// `ld-2.31.so`, `ld-linux-x86-64.so.2`: whatever the C library calls its loader.
fn is_loader(name: &str) -> bool {
    name.starts_with("ld-") && name.contains(".so")
}

/// Whether an operator's word means a whole family: its name, with or without a version.
pub(super) fn means_family(entry: &str, family: &str) -> bool {
    candidates(&entry.to_ascii_lowercase()).any(|name| name == family)
}

fn lookup(name: &str) -> Option<Kind> {
    if let Some((family, _)) = INTERPRETERS.iter().find(|(_, members)| members.contains(&name)) {
        return Some(Kind::Interpreter(family));
    }
    if WRAPPERS.contains(&name) {
        return Some(Kind::Wrapper);
    }
    // Elsewhere `arch` only tells the machine's name.
    let launches = LAUNCHERS.contains(&name) || (cfg!(target_os = "macos") && name == "arch");
    launches.then_some(Kind::Launcher)
}

/// The name itself, then without its version: `python3.12` → `python`, `node-22` → `node`, `perl5.36-x86_64-linux-gnu` →
/// `perl`, `python3.11d` → `python`, `vim.basic` → `vim`.
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
            assert_eq!(kind_of(name), Some(Kind::Interpreter(family)), "{name}");
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
            assert_eq!(kind_of(name), None, "{name}");
        }
    }

    #[test]
    fn wrappers_and_launchers() {
        assert_eq!(kind_of("env"), Some(Kind::Wrapper));
        assert_eq!(kind_of("sudo"), Some(Kind::Launcher));
        for name in [
            "ld-linux-x86-64.so.2",
            "ld-2.31.so",
            "ssh-agent",
            "gpg-agent",
            "fstab-decode",
            "systemd-cat",
            "coreutils",
            "not",
            "not-14",
            "msgexec",
            "msgfilter",
            "opt-14",
            "ccache",
        ] {
            assert_eq!(kind_of(name), Some(Kind::Launcher), "{name}");
        }
    }
}
