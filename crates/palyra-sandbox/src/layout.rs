//! Which parts of the host every process may see: reviewed data.
//!
//! Both tiers use these lists: Tier C binds what is on them and nothing else, Tier B lets Landlock grant what is on
//! them and nothing else. Nothing here may hold secrets: no home, no `/etc` as a whole, no `/var`, no `/run`.

use crate::policy::SandboxTier;
#[cfg(target_os = "linux")]
use crate::roots::Access;
use std::path::{Path, PathBuf};

/// Directories of programs and libraries: read and execute. Missing ones are skipped.
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) const SYSTEM_DIRECTORIES: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/run/current-system/sw",
];

/// Directories that hold programs beside those of the search path, as patterns. `*` stands for one name.
#[cfg(not(any(target_os = "macos", windows)))]
const PROGRAM_DIRECTORIES: &[&str] = &[
    "/usr/games",
    "/usr/local/games",
    "/usr/libexec",
    "/usr/local/libexec",
    "/usr/lib/git-core",
    "/usr/libexec/git-core",
    "/usr/local/libexec/git-core",
    "/usr/local/*/bin",
    "/usr/lib/*/bin",
    "/usr/lib/jvm/*/bin",
    "/usr/lib/libreoffice/program",
    "/run/current-system/sw/bin",
];
#[cfg(target_os = "macos")]
const PROGRAM_DIRECTORIES: &[&str] = &[
    "/usr/libexec",
    "/opt/homebrew/sbin",
    "/opt/homebrew/opt/*/bin",
    "/opt/homebrew/opt/*/libexec/bin",
    "/usr/local/opt/*/bin",
    "/Library/Frameworks/Python.framework/Versions/*/bin",
    "/Library/Developer/CommandLineTools/usr/bin",
    "/Applications/Xcode.app/Contents/Developer/usr/bin",
];
#[cfg(windows)]
const PROGRAM_DIRECTORIES: &[&str] = &[];

/// The directories in which a pattern's `*` stands.
pub(crate) fn pattern_directories() -> impl Iterator<Item = PathBuf> {
    PROGRAM_DIRECTORIES.iter().filter_map(|pattern| pattern.split_once('*')).map(|(before, _)| PathBuf::from(before))
}

/// The directories of this host that hold programs beside those of the search path.
pub(crate) fn program_directories() -> impl Iterator<Item = PathBuf> {
    PROGRAM_DIRECTORIES.iter().flat_map(|pattern| match pattern.split_once('*') {
        None => vec![PathBuf::from(pattern)],
        Some((before, behind)) => {
            let entries = std::fs::read_dir(before).into_iter().flatten().flatten();
            entries.map(|entry| entry.path().join(behind.trim_start_matches('/'))).collect()
        }
    })
}

/// Files below the directories that runs may read in which system-wide credentials are kept: tokens of package
/// registries, of git hosts and of proxies. A run finds them empty, or not at all. Whoever administers the host often
/// leaves them readable by everybody, since everybody on it is trusted; a run is not.
#[cfg(not(windows))]
pub(crate) const CREDENTIAL_FILES: &[&str] = &[
    // git reads the one in its own prefix.
    "/etc/gitconfig",
    "/usr/etc/gitconfig",
    "/usr/local/etc/gitconfig",
    "/opt/homebrew/etc/gitconfig",
    // npm: the global one in its prefix, and the one that comes with it.
    "/etc/npmrc",
    "/usr/etc/npmrc",
    "/usr/local/etc/npmrc",
    "/opt/homebrew/etc/npmrc",
    "/usr/lib/node_modules/npm/npmrc",
    "/usr/local/lib/node_modules/npm/npmrc",
    "/usr/share/nodejs/npm/npmrc",
    "/usr/share/npm/npmrc",
    "/usr/etc/yarnrc",
    "/usr/local/etc/yarnrc",
    "/usr/local/share/.yarnrc",
    "/usr/local/share/.yarnrc.yml",
    // pip: the one of its prefix.
    "/usr/pip.conf",
    "/usr/local/pip.conf",
    // cargo, where its home is the system's.
    "/usr/local/cargo/credentials",
    "/usr/local/cargo/credentials.toml",
    "/usr/local/etc/netrc",
    "/usr/local/etc/wgetrc",
    "/usr/local/etc/curlrc",
];
/// Files of `/etc` that programs need: read. Tier C copies them, which is cheaper than a mount each, and leaves out
/// those that are not open to every user.
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) const ETC_FILES: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/gai.conf",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/ssl/openssl.cnf",
];

/// Directories of `/etc` of the same kind.
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) const ETC_DIRECTORIES: &[&str] = &[
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/fonts",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
];

/// Files of `/etc` that Tier B reads as they are and Tier C replaces by minimal ones.
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) const ACCOUNT_FILES: &[&str] = &["/etc/passwd", "/etc/group"];

/// Facts about the machine that programs ask for, such as the number of processors: read.
#[cfg(target_os = "linux")]
pub(crate) const MACHINE_FACTS: &[&str] = &["/sys/devices/system/cpu", "/sys/devices/system/node"];

/// Devices that hold nothing: read and write.
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) const HARMLESS_DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Everything of the system that a Tier B process may touch, and how.
#[cfg(target_os = "linux")]
pub(crate) fn tier_b_system() -> impl Iterator<Item = (&'static str, Access)> {
    let with = |list: &'static [&'static str], access| list.iter().map(move |path| (*path, access));
    with(SYSTEM_DIRECTORIES, Access::Execute)
        .chain(with(ETC_FILES, Access::Read))
        .chain(with(ETC_DIRECTORIES, Access::Read))
        .chain(with(ACCOUNT_FILES, Access::Read))
        .chain(with(MACHINE_FACTS, Access::Read))
        .chain(with(HARMLESS_DEVICES, Access::Device))
        .chain(with(&["/proc"], Access::Read))
}

/// Paths inside a workspace through which a write becomes code that runs later, outside: read-only where they exist.
#[cfg(any(target_os = "linux", target_os = "macos", test))]
pub(crate) const GUARDED_IN_WORKSPACE: &[&str] = &[
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".git/gitdir",
    ".git/info/attributes",
    ".palyra",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    // What zsh prefers to the files of the same name.
    ".zshrc.zwc",
    ".zshenv.zwc",
    ".zprofile.zwc",
    ".zlogin.zwc",
    ".zlogout.zwc",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
    ".config/fish",
    ".gitconfig",
    ".config/git",
    ".ssh",
    ".envrc",
    ".vimrc",
    ".exrc",
    ".vscode",
    ".idea",
    ".mcp.json",
    ".claude",
    ".codex",
    ".cursor",
];

/// The directories that every process may execute from, as the kernel names them.
fn system_directories() -> Vec<PathBuf> {
    #[cfg(target_os = "macos")]
    return crate::seatbelt::SYSTEM_DIRECTORIES.iter().map(PathBuf::from).collect();
    #[cfg(windows)]
    {
        // The daemon's own environment: whoever sets that is trusted.
        let named = ["SystemRoot", "ProgramFiles", "ProgramFiles(x86)", "ProgramW6432"];
        let named = named.into_iter().filter_map(std::env::var_os);
        named.filter_map(|path| std::fs::canonicalize(path).ok()).collect()
    }
    #[cfg(not(any(target_os = "macos", windows)))]
    return SYSTEM_DIRECTORIES.iter().map(PathBuf::from).collect();
}

/// Everything of the system that a process of this tier may read.
pub(crate) fn readable(tier: SandboxTier) -> Vec<PathBuf> {
    system_directories().into_iter().chain(further_readable(tier).into_iter().map(PathBuf::from)).collect()
}

#[cfg(not(any(target_os = "macos", windows)))]
fn further_readable(tier: SandboxTier) -> Vec<&'static str> {
    let own: &[&str] = match tier {
        SandboxTier::B => &[],
        // Empty at the start.
        SandboxTier::C => &["/tmp", "/dev/shm"],
    };
    let always = &["/proc", "/dev/fd", "/dev/stdin", "/dev/stdout"];
    [ETC_FILES, ETC_DIRECTORIES, ACCOUNT_FILES, HARMLESS_DEVICES, always, own].concat()
}

#[cfg(target_os = "macos")]
fn further_readable(_both_alike: SandboxTier) -> Vec<&'static str> {
    crate::seatbelt::readable().collect()
}

#[cfg(windows)]
fn further_readable(_both_alike: SandboxTier) -> Vec<&'static str> {
    Vec::new()
}

/// Whether a path lies in the directories that every process may execute from.
pub(crate) fn is_system_path(path: &Path) -> bool {
    system_directories().iter().any(|dir| path.starts_with(dir)) && !path.starts_with("/usr/local/src")
}
