//! `cargo xtask setup`: what building, demo and tests need from the system.
//!
//! A machine with Rust lacks little: the sandbox of Tier C is bubblewrap, and the containment tests attack it with a
//! few ordinary programs. When everything is there this costs a handful of file look-ups, so `demo` and `test` always
//! begin with it.

use crate::shell::{Failure, Result, on_path, program};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Something that must be on this machine.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// How to see that it is there.
    found_by: Probe,
    /// Its package on Debian and Ubuntu.
    package: &'static str,
    why: &'static str,
}

/// How to see that something is there.
#[derive(Debug, Clone, Copy)]
enum Probe {
    /// A program on the path.
    Program(&'static str),
    /// One of several programs on the path.
    OneOf(&'static [&'static str]),
    /// A file: for what a sandbox must be able to see, which is `/usr` and not a version manager in somebody's home.
    File(&'static str),
}

impl Probe {
    fn finds(self) -> bool {
        match self {
            Self::Program(name) => on_path(name),
            Self::OneOf(names) => names.iter().any(|name| on_path(name)),
            Self::File(path) => Path::new(path).exists(),
        }
    }
}

/// A Rust of Debian's own, with the sources of its standard library: what checks other targets.
const CROSS_NEEDS: [Need; 3] = [
    Need { found_by: Probe::File("/usr/bin/rustc"), package: "rustc-web", why: "the compiler that fits the sources" },
    Need { found_by: Probe::File("/usr/bin/cargo"), package: "cargo-web", why: "checks the library from source" },
    Need {
        found_by: Probe::File("/usr/lib/rustlib/src/rust/library/std"),
        package: "rust-web-src",
        why: "the sources of the standard library",
    },
];

/// Compilers for guests in C.
const SKILL_NEEDS: [Need; 4] = [
    Need { found_by: Probe::Program("clang"), package: "clang", why: "compiles skills in C" },
    Need { found_by: Probe::Program("wasm-ld"), package: "lld", why: "links WebAssembly" },
    Need {
        found_by: Probe::File("/usr/include/wasm32-wasi/stdio.h"),
        package: "wasi-libc",
        why: "C's library for guests",
    },
    Need {
        found_by: Probe::File("/usr/lib/llvm-14/lib/clang/14.0.6/lib/wasi/libclang_rt.builtins-wasm32.a"),
        package: "libclang-rt-14-dev-wasm32",
        why: "what clang calls in guests",
    },
];

/// By which names a browser of the Chromium family may be here.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// What building and the demo need.
const NEEDS: [Need; 4] = [
    Need { found_by: Probe::Program("bwrap"), package: "bubblewrap", why: "Tier C runs programs inside it" },
    Need { found_by: Probe::Program("cc"), package: "gcc", why: "compiles SQLite and links programs" },
    Need { found_by: Probe::File("/usr/include/stdio.h"), package: "libc6-dev", why: "the headers that SQLite needs" },
    Need { found_by: Probe::Program("git"), package: "git", why: "tidy asks it which files there are" },
];

/// What the tests need besides.
const TEST_NEEDS: [Need; 12] = [
    Need {
        found_by: Probe::File("/usr/bin/python3"),
        package: "python3",
        why: "containment tests attack the sandbox with it",
    },
    Need { found_by: Probe::Program("ip"), package: "iproute2", why: "containment tests lead names astray with it" },
    Need {
        found_by: Probe::File("/usr/bin/curl"),
        package: "curl",
        why: "containment tests go through the proxy with it",
    },
    Need { found_by: Probe::File("/usr/bin/node"), package: "nodejs", why: "the same, and its tests must run inside" },
    Need { found_by: Probe::File("/usr/bin/npm"), package: "npm", why: "`npm test` must run inside" },
    Need {
        found_by: Probe::File("/usr/lib/python3/dist-packages/pytest"),
        package: "python3-pytest",
        why: "`python -m pytest` must run inside",
    },
    Need {
        found_by: Probe::File("/usr/lib/python3/dist-packages/grpc"),
        package: "python3-grpcio",
        why: "a gRPC client that others wrote",
    },
    Need { found_by: Probe::File("/usr/bin/make"), package: "make", why: "builds inside the sandbox must work" },
    Need { found_by: Probe::Program("setpriv"), package: "util-linux", why: "tests become an ordinary user with it" },
    Need {
        found_by: Probe::Program("dbus-run-session"),
        package: "dbus",
        why: "the vault's tests have a session bus of their own",
    },
    Need {
        found_by: Probe::Program("gnome-keyring-daemon"),
        package: "gnome-keyring",
        why: "the vault's tests keep secrets in a real keyring",
    },
    Need { found_by: Probe::OneOf(BROWSERS), package: "chromium", why: "web pages attack the HTTP door in it" },
];

/// What the benchmarks need besides.
const BENCH_NEEDS: [Need; 3] = [
    Need { found_by: Probe::Program("node"), package: "nodejs", why: "other sandboxes are written for it" },
    Need { found_by: Probe::Program("npm"), package: "npm", why: "other sandboxes are fetched with it" },
    Need { found_by: Probe::Program("socat"), package: "socat", why: "one of the other sandboxes needs it" },
];

/// Installs what is missing for building, demo and tests. Returns whether anything was.
pub fn run() -> Result<bool> {
    install(&[&NEEDS[..], &TEST_NEEDS].concat())
}

/// The same for the demo alone.
pub fn demo() -> Result<bool> {
    install(&NEEDS)
}

/// The same for the benchmarks, which fetch other sandboxes to measure them beside ours.
pub fn bench() -> Result<bool> {
    install(&[&NEEDS[..], &BENCH_NEEDS].concat())
}

/// The browser for the tests.
pub fn browser() -> Option<&'static str> {
    BROWSERS.iter().copied().find(|name| on_path(name))
}

/// The same for building skills. A toolchain that has the target for guests needs no other.
pub fn skills() -> Result<bool> {
    let sysroot = program("rustc", ["--print", "sysroot"]).read("asking rustc where it lives")?;
    let has_target = Path::new(sysroot.trim()).join("lib/rustlib/wasm32-unknown-unknown/lib").is_dir();
    let rust: &[Need] = if has_target { &[] } else { &CROSS_NEEDS };
    let others = TEST_NEEDS.iter().filter(|need| matches!(need.package, "python3" | "nodejs" | "npm")).copied();
    install(&[&SKILL_NEEDS[..], rust, &others.collect::<Vec<_>>()].concat())
}

/// The same for `cross-check`.
pub fn cross() -> Result<bool> {
    install(&CROSS_NEEDS)
}

fn install(needs: &[Need]) -> Result<bool> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(false);
    }
    println!("This machine lacks:");
    for need in &missing {
        println!("  {:<12} {}", need.package, need.why);
    }
    let packages: Vec<_> = missing.iter().map(|need| package_here(need.package)).collect();
    let as_root = if !on_path("apt-get") {
        return Err(Failure(format!(
            "this is not Debian or Ubuntu, so nothing was installed; install what these packages hold there: {}",
            packages.join(" ")
        )));
    } else if is_root() {
        &["env"][..]
    } else if on_path("sudo") {
        &["sudo", "env"]
    } else {
        return Err(Failure(format!(
            "installing needs root and there is no sudo; as root, run: apt-get install {}",
            packages.join(" ")
        )));
    };
    apt_get(as_root, &["update", "--quiet"])?;
    let mut install = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    install.extend(&packages);
    apt_get(as_root, &install)?;
    let still: Vec<_> = self::missing(needs).iter().map(|need| need.package).collect();
    if still.is_empty() {
        return Ok(true);
    }
    Err(Failure(format!("these packages were installed and yet what they bring is not found: {}", still.join(" "))))
}

/// What a package of Debian is called on this system.
fn package_here(package: &'static str) -> &'static str {
    let ubuntu = || std::fs::read_to_string("/etc/os-release").is_ok_and(|text| text.lines().any(|l| l == "ID=ubuntu"));
    if package == "chromium" && ubuntu() { "chromium-browser" } else { package }
}

fn missing(needs: &[Need]) -> Vec<Need> {
    needs.iter().copied().filter(|need| !need.found_by.finds()).collect()
}

/// The uid is that of our own entry in `/proc`; without `/proc` we are not root, and sudo says whether it works.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

fn apt_get(as_root: &[&str], words: &[&str]) -> Result<()> {
    let (first, rest) = as_root.split_first().map_or(("env", &[][..]), |(first, rest)| (*first, rest));
    let line = [rest, &["DEBIAN_FRONTEND=noninteractive", "apt-get"], words].concat();
    println!("$ {first} {}", line.join(" "));
    program(first, line).with_terminal().run("installing system packages")
}

/// rustfmt and clippy, for `test`: a toolchain may have been installed without them.
pub fn components() -> Result<()> {
    let sysroot = program("rustc", ["--print", "sysroot"]).read("asking rustc where it lives")?;
    let bin = Path::new(sysroot.trim()).join("bin");
    let missing: Vec<_> = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")]
        .into_iter()
        .filter_map(|(file, component)| (!bin.join(file).exists() && !outside_rustup(file)).then_some(component))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !on_path("rustup") {
        return Err(Failure(format!("install these parts of Rust: {}", missing.join(", "))));
    }
    println!("$ rustup component add {}", missing.join(" "));
    program("rustup", ["component", "add"].iter().chain(&missing)).run("adding parts of Rust")
}

/// With rustup a program of this name is on the path whether or not its component is installed.
fn outside_rustup(name: &str) -> bool {
    !on_path("rustup") && on_path(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_need_is_noticed() {
        assert!(!Probe::Program("no-such-program-anywhere").finds());
        assert!(!Probe::File("/no/such/file").finds());
        assert!(Probe::File("/").finds());
    }
}
