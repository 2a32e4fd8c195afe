//! Which options of which programs start others: reviewed data.

/// One program's options that start others.
pub(super) struct Dangerous {
    /// Their base names, without version and target.
    pub(super) programs: &'static [&'static str],
    /// Long options, without the dashes; alone, with `=`, or shortened as getopt allows.
    pub(super) long: &'static [&'static str],
    /// Long options that are harmless and shorter than one of those.
    pub(super) harmless: &'static [&'static str],
    /// Short options, alone, bundled or with a value attached.
    pub(super) short: &'static str,
    /// Harmless short options that take the rest of the word as their value.
    pub(super) valued: &'static str,
    /// Beginnings of words that are no options.
    pub(super) words: &'static [&'static str],
    /// What no word may hold, in small letters.
    pub(super) parts: &'static [&'static str],
}

const NOTHING: Dangerous =
    Dangerous { programs: &[], long: &[], harmless: &[], short: "", valued: "", words: &[], parts: &[] };

/// The table.
pub(super) const DANGEROUS: &[Dangerous] = &[
    Dangerous {
        programs: &["tar", "gtar", "bsdtar", "star"],
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
        valued: "fCbTXgKNVHL",
        ..NOTHING
    },
    Dangerous {
        programs: &["rsync"],
        long: &["rsh", "rsync-path", "daemon", "config"],
        short: "e",
        valued: "fTB",
        ..NOTHING
    },
    Dangerous { programs: &["scp", "sftp"], short: "SDFobs", valued: "cilP", ..NOTHING },
    Dangerous { programs: &["sort"], long: &["compress-program"], ..NOTHING },
    Dangerous { programs: &["split"], long: &["filter"], ..NOTHING },
    Dangerous { programs: &["cpio"], long: &["rsh-command"], ..NOTHING },
    Dangerous { programs: &["zip"], long: &["unzip-command"], ..NOTHING },
    Dangerous { programs: &["rg"], long: &["pre", "hostname-bin"], ..NOTHING },
    Dangerous {
        programs: &["fd", "fdfind"],
        long: &["exec", "exec-batch"],
        short: "xX",
        valued: "dEteSocjC",
        ..NOTHING
    },
    Dangerous { programs: &["bat", "batcat"], long: &["pager"], ..NOTHING },
    Dangerous { programs: &["fzf", "sk"], long: &["preview", "bind", "listen"], ..NOTHING },
    Dangerous {
        programs: &["rpm", "rpmbuild", "rpmspec"],
        long: &["eval", "define", "pipe", "load", "macros", "rcfile"],
        short: "ED",
        ..NOTHING
    },
    Dangerous { programs: &["rpcgen"], short: "Y", ..NOTHING },
    Dangerous {
        programs: &["go"],
        words: &["-toolexec", "--toolexec", "-exec", "--exec", "-vettool", "--vettool"],
        parts: &["-extld"],
        ..NOTHING
    },
    Dangerous {
        programs: &["tex", "latex", "pdftex", "pdflatex", "xetex", "xelatex", "luatex", "lualatex", "luahbtex"],
        words: &["-shell", "--shell", "-en", "--en", "-cn", "--cn", "-lua", "--lua"],
        ..NOTHING
    },
    Dangerous {
        programs: &["wget", "wget2"],
        long: &["use-askpass", "execute", "config"],
        short: "e",
        valued: "oaiBtOTwQPURADIXl",
        ..NOTHING
    },
    Dangerous { programs: &["tcpdump", "dumpcap", "tshark"], short: "z", valued: "wrciFEyGCWs", ..NOTHING },
    Dangerous {
        programs: &["man", "apropos", "whatis"],
        long: &["pager", "html", "browser", "preprocessor", "config-file", "troff", "gxditview"],
        short: "PHCptTX",
        ..NOTHING
    },
    Dangerous {
        programs: &["groff", "troff", "gtroff", "nroff", "pic", "gpic", "eqn", "tbl", "grn", "groffer", "ditroff"],
        short: "UFP",
        valued: "mMdrTwWo",
        ..NOTHING
    },
    Dangerous {
        programs: &["make", "gmake", "bmake"],
        long: &["eval"],
        short: "E",
        valued: "CfIjlOoW",
        words: &["SHELL", "MAKEFLAGS", "GNUMAKEFLAGS", ".SHELLFLAGS", "MAKE="],
        parts: &["$(", "${", "!=", "`"],
        ..NOTHING
    },
    Dangerous {
        programs: &[
            "cc",
            "gcc",
            "g++",
            "c++",
            "cpp",
            "clang",
            "clang++",
            "clang-cpp",
            "ld",
            "ld.bfd",
            "ld.gold",
            "ld.lld",
            "lld",
            "gold",
            "gfortran",
            "gnat",
            "gccgo",
            "gdc",
            "tcc",
            "collect2",
            "c89",
            "c99",
        ],
        words: &[
            "-wrapper",
            "--wrapper",
            "-fplugin",
            "-Xclang",
            "-plugin",
            "--plugin",
            "-B",
            "--prefix",
            "-specs",
            "--specs",
            "-iplugindir",
            "-fuse-ld=/",
            "-fuse-ld=.",
            "--ld-path",
            "-ccc-gcc-name",
            "--gcc-toolchain",
            "-Xlinker",
            "-load",
            "-fpass-plugin",
            "--config",
            "@",
        ],
        parts: &[",-plugin", ",--plugin"],
        ..NOTHING
    },
    Dangerous {
        programs: &[
            "ar",
            "nm",
            "ranlib",
            "strip",
            "objdump",
            "objcopy",
            "size",
            "strings",
            "gcc-ar",
            "gcc-nm",
            "gcc-ranlib",
        ],
        long: &["plugin"],
        words: &["@"],
        ..NOTHING
    },
    Dangerous { programs: &["rustc"], words: &["@"], parts: &["linker=", "codegen-backend"], ..NOTHING },
    Dangerous {
        programs: &["sqlite3", "sqlite"],
        words: &["-init", "--init"],
        parts: &["edit(", "edit (", "load_extension", "|"],
        ..NOTHING
    },
    Dangerous {
        programs: &["psql", "mysql", "mariadb"],
        parts: &["\\!", "\\o", "\\g", "\\w", "\\e", "\\i", "\\setenv", "system", "pager", "program"],
        ..NOTHING
    },
    Dangerous { programs: &["dc"], parts: &["!"], ..NOTHING },
    Dangerous { programs: &["patch"], long: &["ed"], short: "e", valued: "DFGBVYdgiorzp", ..NOTHING },
    Dangerous { programs: &["sdiff", "diff3"], long: &["diff-program"], ..NOTHING },
    Dangerous { programs: &["install"], long: &["strip-program"], ..NOTHING },
    Dangerous {
        programs: &["apt", "apt-get", "apt-cache", "apt-config", "aptitude", "dpkg", "dpkg-deb", "dpkg-query"],
        long: &["option", "config-file", "pre-invoke", "post-invoke"],
        short: "oc",
        ..NOTHING
    },
    Dangerous { programs: &["nmap"], long: &["script"], words: &["-sC", "-A"], ..NOTHING },
    Dangerous {
        programs: &["openssl"],
        words: &["-engine", "--engine", "-provider", "--provider", "-config", "--config", "engine"],
        ..NOTHING
    },
    Dangerous {
        programs: &["gpg", "gpg2", "gpgv", "gpgsm"],
        long: &["photo-viewer", "agent-program", "dirmngr-program", "exec-path", "options", "keyboxd-program"],
        harmless: &["export", "export-options", "import-options", "list-options", "verify-options"],
        ..NOTHING
    },
    // What they are told to begin with, and files of settings for less, which say how it opens a file.
    Dangerous {
        programs: &["less", "more", "most", "pg", "info"],
        long: &["lesskey-file", "lesskey-src", "lesskey-content"],
        short: "k",
        valued: "bhjopPtTxyzD#",
        words: &["+"],
        ..NOTHING
    },
    Dangerous { programs: &["ctags", "etags", "cscope"], long: &["options"], ..NOTHING },
];
