//! What of macOS every process may use: reviewed data, a reason for each.
//!
//! The profile denies by default. What is not on these lists, and not a root of the policy, is closed: the home
//! directory, the keychain, Apple events, the launch services, launchd, other processes, the sockets of the host.

/// Something that is allowed, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed {
    pub(super) name: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for whoever reviews the list, and the test that it is there"))]
    pub(super) reason: &'static str,
}

const fn allow(name: &'static str, reason: &'static str) -> Allowed {
    Allowed { name, reason }
}

/// Directories of programs and libraries: read and execute.
pub(crate) const SYSTEM_DIRECTORIES: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/System",
    "/Library/Apple",
    "/Library/Frameworks",
    "/Library/Developer/CommandLineTools",
    "/Applications/Xcode.app/Contents/Developer",
    "/opt/homebrew",
    "/nix/store",
];

/// Further trees that are read and hold no secret, by the names that the kernel knows them by.
pub(super) const READ_TREES: &[Allowed] = &[
    allow("/private/var/db/timezone", "the time zones"),
    allow("/private/var/db/dyld", "the cache of system libraries on older systems"),
    allow("/private/etc/ssl", "certificates of authorities and the defaults of OpenSSL"),
    allow("/Library/Preferences/Logging", "how verbose the system's log is, read by every program that links it"),
];

/// Single files of the same kind.
pub(super) const READ_FILES: &[Allowed] = &[
    allow("/private/etc/hosts", "names of hosts"),
    allow("/private/etc/resolv.conf", "names of resolvers"),
    allow("/private/etc/services", "names of ports"),
    allow("/private/etc/protocols", "names of protocols"),
    allow("/private/etc/localtime", "the time zone"),
    allow("/private/etc/passwd", "holds no passwords on this system: programs ask for their user's name"),
    allow("/private/etc/group", "the same for groups"),
    allow("/private/etc/gitconfig", "git reads it at every start"),
    allow("/private/var/db/xcode_select_link", "the shims of git, make and clang follow it"),
    allow("/private/var/select/sh", "`/bin/sh` asks it which shell it is"),
];

/// Links and directories that are looked at on the way: their names and kinds, not their content.
pub(super) const METADATA: &[Allowed] = &[
    allow("/etc", "a link to /private/etc"),
    allow("/tmp", "a link to /private/tmp"),
    allow("/var", "a link to /private/var"),
    allow("/private", "on the way to all of those"),
    allow("/private/etc", "on the way to the files above"),
    allow("/private/var", "on the way to the files above"),
    allow("/private/var/db", "on the way to the files above"),
    allow("/private/var/select", "on the way to the files above"),
    allow("/dev", "on the way to the devices"),
    allow("/Library", "on the way to the frameworks"),
    allow("/Library/Preferences", "on the way to the log's settings"),
    allow("/Library/Developer", "on the way to the command line tools"),
    allow("/opt", "on the way to Homebrew"),
    allow("/nix", "on the way to Nix"),
    allow("/Applications", "on the way to Xcode"),
    allow("/Applications/Xcode.app", "on the way to its tools"),
    allow("/Applications/Xcode.app/Contents", "on the way to its tools"),
];

/// Devices that hold nothing: read.
pub(super) const READ_DEVICES: &[Allowed] = &[
    allow("/dev/null", "empty"),
    allow("/dev/zero", "zeros"),
    allow("/dev/random", "randomness"),
    allow("/dev/urandom", "randomness"),
    allow("/dev/dtracehelper", "every program asks it at the start"),
    allow("/dev/autofs_nowait", "the file system asks it before it waits for a mount"),
];

/// Devices that swallow what is written.
pub(super) const WRITE_DEVICES: &[Allowed] = &[
    allow("/dev/null", "swallows"),
    allow("/dev/zero", "swallows"),
    allow("/dev/dtracehelper", "every program announces itself to it at the start"),
];

/// System services that are asked by name.
pub(super) const SERVICES: &[Allowed] = &[
    allow(
        "com.apple.system.opendirectoryd.libinfo",
        "names of users and groups: `getpwuid`, hence every shell and git",
    ),
    allow("com.apple.system.notification_center", "the C library learns from it that the time zone changed"),
    allow("com.apple.logd", "programs that link the system's log wait for it at the start"),
    allow("com.apple.system.logger", "the older log, the same"),
    allow("com.apple.diagnosticd", "the log asks it whether somebody listens"),
];

/// Services of those that may use the network.
pub(super) const NETWORK_SERVICES: &[Allowed] = &[
    allow("com.apple.SystemConfiguration.configd", "which networks there are"),
    allow("com.apple.SystemConfiguration.DNSConfiguration", "which resolvers there are"),
    allow("com.apple.networkd", "connections made by the system's libraries"),
    allow("com.apple.trustd.agent", "checks certificates for programs that use the system's TLS"),
    allow("com.apple.ocspd", "asks whether certificates were revoked"),
];

/// The resolver's socket: names are looked up through it.
pub(super) const RESOLVER: &str = "/private/var/run/mDNSResponder";

/// Facts about the machine that programs ask for, by the beginning of their names.
pub(super) const FACTS: &[Allowed] = &[
    allow("hw.", "processors, caches, memory and page size"),
    allow("machdep.cpu.", "what the processor can do"),
    allow("kern.os", "the system's version"),
    allow("kern.version", "the kernel's version"),
    allow("kern.hostname", "the machine's name"),
    allow("kern.arg", "how long a command line may be"),
    allow("kern.maxfilesperproc", "how many files a process may open"),
    allow("kern.maxproc", "how many processes there may be"),
    allow("kern.ngroups", "how many groups a user may have"),
    allow("kern.usrstack64", "where a thread's stack begins"),
    allow("kern.secure_kernel", "asked by the loader"),
    allow("kern.boottime", "how long the machine runs"),
    allow("kern.tcsm", "asked by the C library before it starts threads"),
    allow("kern.willshutdown", "asked by the C library"),
    allow("sysctl.", "how facts are named and typed, and which processor a program was made for"),
    allow("vm.loadavg", "the load, by which builds choose how many jobs to run"),
    allow("security.mac.lockdown_mode_state", "asked by the loader"),
];
