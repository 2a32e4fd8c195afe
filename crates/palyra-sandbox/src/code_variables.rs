//! Which environment variables decide what code a program runs: reviewed data.
//!
//! A caller who sets one of these undoes the decision about the program, so that only the operator may. Some programs have so
//! many that the list names the harmless ones instead (`git`, `cargo`, Python); for the others there are names, beginnings and
//! ends. A home or a configuration directory counts as well: what lies there names programs (`.gitconfig`).
//!
//! Not here: `CC`, `CFLAGS` and their like. They say how a build is done, as the Makefile does that is run with them.

/// By exact name.
const NAMES: &[&str] = &[
    // Where configuration is looked for, and which programs are meant by their purpose.
    "HOME",
    "ZDOTDIR",
    "INPUTRC",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "SHELL",
    "TERMINAL",
    // Shells.
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "FPATH",
    "CDPATH",
    // The C library and what every program loads.
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "RESOLV_HOST_CONF",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMCAP",
    "LIBRARY_PATH",
    // Languages.
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "CLASSPATH",
    "_JAVA_OPTIONS",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "AWKPATH",
    "AWKLIBPATH",
    "BC_ENV_ARGS",
    "TCLLIBPATH",
    "PSModulePath",
    // Editors and pagers.
    "VIM",
    "VIMRUNTIME",
    "VIMINIT",
    "GVIMINIT",
    "EXINIT",
    "MYVIMRC",
    "EMACSLOADPATH",
    "EMACSDATA",
    "LESS",
    "MORE",
    "MANOPT",
    "MANROFFSEQ",
    "NETRC",
    // Which words of a command line are options.
    "POSIXLY_CORRECT",
    // Compilers and builds.
    "M4",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "COLLECT_GCC",
    "RUSTC",
    "RUSTDOC",
    "RUSTFMT",
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "MAKE",
    "MAKEFLAGS",
    "MFLAGS",
    "GNUMAKEFLAGS",
    "MAKEFILES",
    "MAKESHELL",
    "GOFLAGS",
    "GOROOT",
    "GOENV",
    "GOTOOLDIR",
    "GOTOOLCHAIN",
    "GOCACHEPROG",
    "GOPATH",
    "GOBIN",
    "YARN_RC_FILENAME",
    // Others that start what they are told to.
    "TAPE",
    "WGETRC",
    "SYSTEM_WGETRC",
    "CURL_HOME",
    "TAR_OPTIONS",
    "GZIP",
    "XZ_DEFAULTS",
    "ZIPOPT",
    "UNZIP",
    "RIPGREP_CONFIG_PATH",
    "FZF_DEFAULT_COMMAND",
    "DIFFPROG",
    "GROFF_COMMAND_PREFIX",
    "GNUPGHOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "SQLITE_HISTORY",
    "PSQLRC",
    "MYSQL_HOME",
    // Windows.
    "ComSpec",
    "PATHEXT",
    "SystemRoot",
    "windir",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
];

/// By their beginning.
const BEGINNINGS: &[&str] = &[
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "MALLOC_",
    "XDG_",
    "SSH_",
    "SUDO_",
    "RSYNC_",
    "npm_",
    "NPM_CONFIG_",
    "YARN_",
    "PNPM_",
    "COREPACK_",
    "RUBY",
    "GEM_",
    "BUNDLE_",
    "PERL",
    "LUA_",
    "JAVA_",
    "JDK_",
    "MAVEN_",
    "GRADLE_",
    "DOTNET_",
    "CORECLR_",
    "COR_",
    "COMPlus_",
    "R_",
    "JULIA_",
    "ERL_",
    "ELIXIR_",
    "GUILE_",
    "OCAML",
    "OPENSSL_",
    "LESSOPEN",
    "LESSCLOSE",
    "LESSKEY",
    "CMAKE_",
    "CCACHE_",
    "SCCACHE_",
    "PYTEST_",
    "TOX_",
    "PIP_",
    "UV_",
    "POETRY_",
    "CONDA_",
    "DEBUGINFOD_",
];

/// By their end: what they name is a program, or options for one.
const ENDS: &[&str] = &[
    "PAGER",
    "EDITOR",
    "ASKPASS",
    "BROWSER",
    "_WRAPPER",
    "_LAUNCHER",
    "_RUNNER",
    "_RSH",
    "_SSH",
    "_SHELL",
    "_PRELOAD",
    "_STARTUP",
    "_HOOK",
    "_HOOKS",
    "_COMMAND",
    "_CMD",
    "_OPTIONS",
    "_OPTS",
    "ADDOPTS",
    "_PLUGINS",
    "_EXEC",
    "_LINKER",
];

/// Families of which all but these do.
const BUT: &[(&str, &[&str])] = &[
    (
        "GIT_",
        &[
            "GIT_AUTHOR_",
            "GIT_COMMITTER_",
            "GIT_TERMINAL_PROMPT",
            "GIT_OPTIONAL_LOCKS",
            "GIT_MERGE_AUTOEDIT",
            "GIT_PS1_",
        ],
    ),
    ("CARGO_", &["CARGO_TERM_", "CARGO_INCREMENTAL", "CARGO_NET_OFFLINE", "CARGO_PROFILE_", "CARGO_BUILD_JOBS"]),
    ("RUSTC_", &["RUSTC_BOOTSTRAP", "RUSTC_LOG"]),
    (
        "PYTHON",
        &[
            "PYTHONUNBUFFERED",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONHASHSEED",
            "PYTHONIOENCODING",
            "PYTHONUTF8",
            "PYTHONFAULTHANDLER",
            "PYTHONDEVMODE",
            "PYTHONOPTIMIZE",
            "PYTHONVERBOSE",
            "PYTHONNOUSERSITE",
            "PYTHONSAFEPATH",
            "PYTHONASYNCIODEBUG",
            "PYTHONTRACEMALLOC",
            "PYTHONMALLOC",
            "PYTHONCOERCECLOCALE",
        ],
    ),
];

/// Whether a variable decides which code a program runs.
pub(crate) fn changes_code(name: &str) -> bool {
    let begins = |prefix: &str| name.get(..prefix.len()).is_some_and(|start| same_name(start, prefix));
    let ends = |suffix: &str| {
        let at = name.len().checked_sub(suffix.len());
        at.and_then(|at| name.get(at..)).is_some_and(|end| same_name(end, suffix))
    };
    let but = |(family, harmless): &(&str, &[&str])| begins(family) && !harmless.iter().any(|known| begins(known));
    NAMES.iter().any(|known| same_name(known, name))
        || BEGINNINGS.iter().any(|prefix| begins(prefix))
        || ENDS.iter().any(|suffix| ends(suffix))
        || BUT.iter().any(but)
}

/// Whether two names are the same variable: Windows does not look at their case.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    if cfg!(windows) { a.eq_ignore_ascii_case(b) } else { a == b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_lead_to_code() {
        for name in [
            "HOME",
            "XDG_CONFIG_HOME",
            "TAR_OPTIONS",
            "RSYNC_RSH",
            "GNUMAKEFLAGS",
            "GCC_EXEC_PREFIX",
            "COMPILER_PATH",
            "RUSTFLAGS",
            "CARGO_HOME",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "CARGO_ENCODED_RUSTFLAGS",
            "GOFLAGS",
            "ZDOTDIR",
            "GIT_COMMON_DIR",
            "GIT_DIR",
            "GIT_CONFIG_COUNT",
            "GIT_EXTERNAL_DIFF",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            "WGETRC",
            "PYTHONUSERBASE",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "RUSTC_WRAPPER",
            "PYTEST_ADDOPTS",
            "JAVA_TOOL_OPTIONS",
            "MANPAGER",
            "SSH_ASKPASS",
            "LD_PRELOAD",
            "DEBIAN_PAGER",
            "VIMINIT",
            "NODE_OPTIONS",
            "npm_config_script_shell",
            "PERL5OPT",
            "RUBYOPT",
            "POSIXLY_CORRECT",
            "M4",
        ] {
            assert!(changes_code(name), "{name}");
        }
    }

    #[test]
    fn ordinary_variables() {
        for name in [
            "LANG",
            "LC_ALL",
            "TZ",
            "TERM",
            "NO_COLOR",
            "FORCE_COLOR",
            "CI",
            "DEBUG",
            "GREETING",
            "RUST_BACKTRACE",
            "RUST_LOG",
            "NODE_ENV",
            "CARGO_TERM_COLOR",
            "CARGO_INCREMENTAL",
            "GIT_AUTHOR_NAME",
            "GIT_COMMITTER_DATE",
            "PYTHONUNBUFFERED",
            "CC",
            "CFLAGS",
            "PORT",
            "DATABASE_URL",
            "HTTP_PROXY",
            "NO_PROXY",
            "SOURCE_DATE_EPOCH",
            "TMPDIR",
            "é",
        ] {
            assert!(!changes_code(name), "{name}");
        }
    }
}
