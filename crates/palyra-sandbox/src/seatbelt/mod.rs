//! macOS: the profile that `sandbox-exec` is given.
//!
//! [`profile`] is pure and compiled on every platform, so that it is tested on every platform: the same view of the
//! host gives the same text. It denies by default. Where several rules match, the last one decides: first what is
//! allowed, outer directories before inner ones, then what of it is guarded or hidden, and at the very end the daemon's
//! own paths, which nothing gives back. Paths must be those that the kernel knows: `/private/tmp`, not `/tmp`.

mod rules;
mod text;

use crate::error::SandboxError;
use crate::guards::Guard;
use crate::policy::EgressEnforcementMode;
use crate::roots::{Access, Roots};
pub(crate) use rules::SYSTEM_DIRECTORIES;
use rules::{
    Allowed, FACTS, METADATA, NETWORK_SERVICES, READ_DEVICES, READ_FILES, READ_TREES, RESOLVER, SERVICES, WRITE_DEVICES,
};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use text::Literal;

/// What a process has of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// Every host that this machine can reach.
    Host,
    /// Nothing.
    Nothing,
    /// One port of this machine, where a filtering proxy listens, and nothing else.
    #[cfg_attr(not(test), expect(dead_code, reason = "no proxy is started on macOS yet; the profile is ready for one"))]
    Proxy(u16),
}

impl Network {
    /// What a mode leaves of the network when there is no proxy.
    pub(crate) fn of(egress: EgressEnforcementMode) -> Self {
        match egress {
            EgressEnforcementMode::None | EgressEnforcementMode::Preflight => Self::Host,
            EgressEnforcementMode::Strict => Self::Nothing,
        }
    }
}

/// What the profile is made from. All paths as the kernel knows them.
#[derive(Debug)]
pub(crate) struct Blueprint<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) guarded: &'a [Guard],
    /// Programs and files that are hidden from the run.
    pub(crate) hidden: &'a [PathBuf],
    /// The private directory of the run.
    pub(crate) scratch: &'a Path,
    pub(crate) network: Network,
}

/// Files and trees of the system, beyond its programs, that every process may read.
#[cfg(target_os = "macos")]
pub(crate) fn readable() -> impl Iterator<Item = &'static str> {
    READ_TREES.iter().chain(READ_FILES).chain(READ_DEVICES).map(|allowed| allowed.name)
}

/// `sandbox-exec -p PROFILE -- PROGRAM ARGUMENT…`, without the name of the first.
pub(crate) fn arguments(profile: String, program: &Path, argv: &[String]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["-p".into(), profile.into(), "--".into(), program.into()];
    words.extend(argv.iter().skip(1).map(OsString::from));
    words
}

/// The profile.
///
/// # Errors
/// When a path cannot be named in it.
pub(crate) fn profile(blueprint: &Blueprint<'_>) -> Result<String, SandboxError> {
    let mut profile = Profile(String::with_capacity(8 << 10));
    profile.line("(version 1)");
    profile.line("(deny default)");
    profile.processes();
    profile.system()?;
    profile.ancestors(blueprint)?;
    profile.roots(blueprint)?;
    profile.network(blueprint)?;
    profile.guards(blueprint.guarded)?;
    profile.hidden(blueprint.hidden)?;
    profile.protected(blueprint.roots)?;
    Ok(profile.0)
}

/// Collects rules.
struct Profile(String);

impl Profile {
    fn line(&mut self, line: impl AsRef<str>) {
        self.0.push_str(line.as_ref());
        self.0.push('\n');
    }

    /// One rule with a filter for each of these.
    fn each(&mut self, rule: &str, filter: &str, allowed: &[Allowed]) -> Result<(), SandboxError> {
        let mut line = format!("({rule}");
        for Allowed { name, .. } in allowed {
            // A string never fails to be written to.
            let _written = write!(line, " ({filter} {})", Literal::new(name)?);
        }
        line.push(')');
        self.line(line);
        Ok(())
    }

    fn processes(&mut self) {
        // Children inherit the profile; nothing takes it off again.
        self.line("(allow process-fork)");
        self.line("(allow signal (target same-sandbox))");
        self.line("(allow process-info* (target same-sandbox))");
        // Semaphores of python's multiprocessing and the like.
        self.line("(allow ipc-posix-sem)");
        self.line("(allow user-preference-read)");
        // Terminals that the process makes for its own children.
        self.line("(allow pseudo-tty)");
        self.line("(allow file-read* file-write* file-ioctl (literal \"/dev/ptmx\"))");
        self.line(
            "(allow file-read* file-write* file-ioctl \
             (require-all (regex #\"^/dev/ttys[0-9]+$\") (extension \"com.apple.sandbox.pty\")))",
        );
    }

    fn system(&mut self) -> Result<(), SandboxError> {
        for directory in SYSTEM_DIRECTORIES {
            let directory = Literal::new(directory)?;
            self.line(format!("(allow file-read* file-map-executable process-exec* (subpath {directory}))"));
        }
        self.each("allow file-read*", "subpath", READ_TREES)?;
        self.each("allow file-read*", "literal", READ_FILES)?;
        self.each("allow file-read*", "literal", READ_DEVICES)?;
        self.line("(allow file-read* (subpath \"/dev/fd\"))");
        self.each("allow file-write-data file-ioctl", "literal", WRITE_DEVICES)?;
        self.each("allow file-read-metadata", "literal", METADATA)?;
        // The loader opens the root directory; this shows the names in it.
        self.line("(allow file-read* (literal \"/\"))");
        self.each("allow sysctl-read", "sysctl-name-prefix", FACTS)?;
        self.each("allow mach-lookup", "global-name", SERVICES)
    }

    /// Names on the way to the roots can be looked at, or no program could find out where it is.
    fn ancestors(&mut self, blueprint: &Blueprint<'_>) -> Result<(), SandboxError> {
        let places = blueprint.roots.all().map(PathBuf::as_path).chain([blueprint.scratch]);
        let ancestors: BTreeSet<&Path> = places.flat_map(|place| place.ancestors().skip(1)).collect();
        for ancestor in ancestors {
            self.line(format!("(allow file-read-metadata (literal {}))", Literal::path(ancestor)?));
        }
        Ok(())
    }

    /// Outer before inner, so that an inner root decides for itself. One that is named twice may only be read.
    fn roots(&mut self, blueprint: &Blueprint<'_>) -> Result<(), SandboxError> {
        let roots = blueprint.roots;
        let mut places: Vec<(&Path, bool)> = vec![(blueprint.scratch, false)];
        places.push((&roots.workspace, roots.workspace_access != Access::Write));
        places.extend(roots.write.iter().map(|root| (root.as_path(), false)));
        places.extend(roots.read.iter().map(|root| (root.as_path(), true)));
        places.sort_unstable();
        for (place, read_only) in places {
            let place = Literal::path(place)?;
            self.line(format!("(allow file-read* file-map-executable process-exec* (subpath {place}))"));
            let write = if read_only { "deny" } else { "allow" };
            self.line(format!("({write} file-write* (subpath {place}))"));
        }
        // A set-id file, a device node: of use outside only.
        self.line("(deny file-write-setugid)");
        Ok(())
    }

    fn network(&mut self, blueprint: &Blueprint<'_>) -> Result<(), SandboxError> {
        match blueprint.network {
            Network::Host => {
                self.line("(allow network-outbound (remote ip \"*:*\"))");
                self.line("(allow network-inbound (local ip \"*:*\"))");
                self.line("(allow network-bind (local ip \"*:*\"))");
                self.line("(allow system-socket)");
                self.line(format!("(allow network-outbound (literal {}))", Literal::new(RESOLVER)?));
                self.each("allow mach-lookup", "global-name", NETWORK_SERVICES)?;
            }
            Network::Nothing => self.line("(deny network*)"),
            Network::Proxy(port) => {
                self.line("(deny network*)");
                self.line(format!("(allow network-outbound (remote ip \"localhost:{port}\"))"));
            }
        }
        // Sockets between the process's own children. Those of the host stay closed in every mode.
        self.line("(allow system-socket (socket-domain AF_UNIX))");
        let own = blueprint.roots.writable().map(PathBuf::as_path).chain([blueprint.scratch]);
        for place in own {
            let place = Literal::path(place)?;
            self.line(format!("(allow network-outbound (remote unix-socket (subpath {place})))"));
            self.line(format!("(allow network-bind (local unix-socket (subpath {place})))"));
        }
        Ok(())
    }

    fn guards(&mut self, guarded: &[Guard]) -> Result<(), SandboxError> {
        for guard in guarded {
            match guard {
                // Moving a directory away takes it off its name.
                Guard::Pinned(path) => {
                    self.line(format!("(deny file-write-unlink (literal {}))", Literal::path(path)?));
                }
                Guard::ReadOnly(path) => self.line(format!("(deny file-write* (subpath {}))", Literal::path(path)?)),
            }
        }
        Ok(())
    }

    /// A program that cannot be read cannot be copied either.
    fn hidden(&mut self, hidden: &[PathBuf]) -> Result<(), SandboxError> {
        for path in hidden {
            self.line(format!(
                "(deny process-exec* file-read-data file-map-executable (literal {}))",
                Literal::path(path)?
            ));
        }
        Ok(())
    }

    /// Nothing may follow these.
    fn protected(&mut self, roots: &Roots) -> Result<(), SandboxError> {
        for protected in &roots.protected {
            for ancestor in protected.ancestors().skip(1).filter(|ancestor| roots.contain(ancestor)) {
                self.line(format!("(deny file-write-unlink (literal {}))", Literal::path(ancestor)?));
            }
        }
        for protected in &roots.protected {
            let protected = Literal::path(protected)?;
            self.line(format!("(deny file* process-exec* (subpath {protected}))"));
            self.line(format!("(deny network-outbound (remote unix-socket (subpath {protected})))"));
            self.line(format!("(deny network-bind (local unix-socket (subpath {protected})))"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
