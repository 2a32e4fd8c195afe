//! Control groups: limits on memory and processes for a whole tree, where the host lets us have them.
//!
//! Resource limits count per process or per user; only a control group counts what belongs together. Groups are made
//! below the daemon's own, never elsewhere, and no process but the run's own is ever moved, with one exception that
//! version 2 forces: a group with controlled children may hold no processes itself, so a delegated daemon first steps
//! into a leaf of its own. The supervisor must never be in a run's group: it shares the daemon's memory, and a kernel
//! that ends it for want of memory ends every process that shares it. The command shares that memory too until it is
//! executed, so a group is entered without a limit on memory, and gets it when bubblewrap has built everything and
//! waits at the gate. Version 1, and the mixture of both, is supported because hosts have it. Without any, the run says
//! so.

use super::plan::{Doors, Held};
use crate::error::SandboxError;
use crate::outcome::LimitHit;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// One tree for all controllers.
    V2(PathBuf),
    /// One tree per controller.
    V1 {
        /// The daemon's own group of the memory controller.
        memory: PathBuf,
        /// The daemon's own group of the process controller.
        pids: PathBuf,
    },
}

/// The name of the leaf that the daemon steps into.
const DAEMON_LEAF: &str = "palyra-daemon";
const RUN_PREFIX: &str = "palyra-run-";
/// What a first group is tried with.
const TRIAL: Limits = Limits { memory_bytes: 1 << 30, processes: 16 };

impl Location {
    /// The place of this process, looked up and tried once.
    pub(super) fn find() -> Result<&'static Self, &'static str> {
        static FOUND: OnceLock<Result<Location, String>> = OnceLock::new();
        FOUND.get_or_init(Self::look_up).as_ref().map_err(String::as_str)
    }

    fn look_up() -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
        let location = Self::parse(&own, &mounts)?;
        if let Self::V2(directory) = &location {
            enable_controllers(directory)?;
        }
        location.remove_stale();
        // The proof is in the making.
        let trial = Group::create_in(&location, TRIAL);
        let trial = trial.and_then(|group| group.limit_memory(TRIAL));
        trial.map_err(|e| format!("groups cannot be made in {}: {e}", location.describe()))?;
        Ok(location)
    }

    /// From the text of `/proc/self/cgroup` and `/proc/self/mountinfo`.
    fn parse(own: &str, mounts: &str) -> Result<Self, String> {
        if let Some(directory) = directory_of(own, mounts, None)
            && controllers(&directory).is_ok_and(|found| found.contains("memory") && found.contains("pids"))
        {
            return Ok(Self::V2(directory));
        }
        match (directory_of(own, mounts, Some("memory")), directory_of(own, mounts, Some("pids"))) {
            (Some(memory), Some(pids)) => Ok(Self::V1 { memory, pids }),
            _ => Err("no control group with the memory and pids controllers is mounted".into()),
        }
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::V2(directory) => format!("version 2, {}", directory.display()),
            Self::V1 { memory, pids } => format!("version 1, {} and {}", memory.display(), pids.display()),
        }
    }

    fn directories(&self) -> Vec<&Path> {
        match self {
            Self::V2(directory) => vec![directory],
            Self::V1 { memory, pids } => vec![memory, pids],
        }
    }

    /// Removes empty groups of daemons that are gone.
    fn remove_stale(&self) {
        for entry in
            self.directories().into_iter().filter_map(|d| fs::read_dir(d).ok()).flatten().filter_map(Result::ok)
        {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|n| n.strip_prefix(RUN_PREFIX)).and_then(|n| n.split('-').next());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                // One that is not empty has processes; they are not ours to end.
                let _kept = fs::remove_dir(entry.path());
            }
        }
    }
}

/// The daemon's own directory in the tree of a controller (`None`: version 2).
fn directory_of(own: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let matches = controller.map_or(names.is_empty(), |wanted| names.split(',').any(|name| name == wanted));
        matches.then_some(path)
    })?;
    let kind = if controller.is_some() { "cgroup" } else { "cgroup2" };
    mounts.lines().find_map(|line| {
        // "36 35 98:0 /root /mount/point options - type source super,options"
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (found, super_options) = (right.next()?, right.nth(1).unwrap_or(""));
        let wanted = controller.is_none_or(|name| super_options.split(',').any(|option| option == name));
        if found != kind || !wanted {
            return None;
        }
        let mut left = left.split(' ').skip(3);
        let (root, mount_point) = (left.next()?, left.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        Some(Path::new(mount_point).join(below))
    })
}

fn controllers(directory: &Path) -> io::Result<String> {
    fs::read_to_string(directory.join("cgroup.controllers"))
}

/// Lets children of `directory` have limits. If the daemon is in the way, and alone there, it moves into a leaf.
fn enable_controllers(directory: &Path) -> Result<(), String> {
    let control = directory.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&control).map_err(|e| format!("{}: {e}", control.display()))?;
    if ["memory", "pids"].iter().all(|name| enabled.split_whitespace().any(|e| e == *name)) {
        return Ok(());
    }
    let refused = |e: io::Error| format!("{} cannot be written: {e}", control.display());
    match fs::write(&control, "+memory +pids") {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        other => return other.map_err(refused),
    }
    let inside = fs::read_to_string(directory.join("cgroup.procs")).map_err(refused)?;
    let own = std::process::id().to_string();
    if inside.lines().any(|pid| pid != own) {
        return Err(format!("{} holds other processes than the daemon", directory.display()));
    }
    let leaf = directory.join(DAEMON_LEAF);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(error)),
        _ => {}
    }
    fs::write(leaf.join("cgroup.procs"), own).map_err(refused)?;
    fs::write(&control, "+memory +pids").map_err(refused)
}

/// What a group allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) memory_bytes: u64,
    pub(super) processes: u64,
}

/// The group of one run; removed when dropped.
#[derive(Debug)]
pub(super) struct Group {
    memory: PathBuf,
    pids: PathBuf,
    version: u8,
}

/// What a group saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) peak_bytes: Option<u64>,
    /// How often the kernel ended a process for want of memory.
    pub(super) out_of_memory: u64,
    /// How often a new process was refused.
    pub(super) refused_processes: u64,
}

impl Group {
    /// A group for one run; `None` with the reason when this host has none to give.
    pub(super) fn create(limits: Limits) -> Result<Option<Self>, SandboxError> {
        match Location::find() {
            Ok(location) => {
                let group = Self::create_in(location, limits);
                group.map(Some).map_err(|source| SandboxError::LayerUnavailable { layer: "cgroup", source })
            }
            Err(_) => Ok(None),
        }
    }

    fn create_in(location: &Location, limits: Limits) -> io::Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{RUN_PREFIX}{}-{count}", std::process::id());
        let group = match location {
            Location::V2(directory) => Self { memory: directory.join(&name), pids: directory.join(&name), version: 2 },
            Location::V1 { memory, pids } => Self { memory: memory.join(&name), pids: pids.join(&name), version: 1 },
        };
        fs::create_dir(&group.memory)?;
        if group.version == 1 {
            fs::create_dir(&group.pids)?;
        }
        fs::write(group.pids.join("pids.max"), limits.processes.to_string())?;
        Ok(group)
    }

    /// Limits the memory of whoever is inside. Not earlier: see this file's head.
    pub(super) fn limit_memory(&self, limits: Limits) -> io::Result<()> {
        let memory = limits.memory_bytes.to_string();
        if self.version == 2 {
            fs::write(self.memory.join("memory.max"), &memory)?;
            // Half a tree is worth nothing: end it as a whole.
            write_if_there(&self.memory.join("memory.oom.group"), "1")?;
            return write_if_there(&self.memory.join("memory.swap.max"), "0");
        }
        fs::write(self.memory.join("memory.limit_in_bytes"), &memory).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => io::Error::other("the memory limit is less than an empty sandbox takes"),
            _ => error,
        })?;
        write_if_there(&self.memory.join("memory.memsw.limit_in_bytes"), &memory)
    }

    /// The ways in, for the command to take.
    pub(super) fn doors(&self, held: &mut Held) -> io::Result<Doors> {
        let mut entrance = |path: PathBuf| {
            let file = fs::OpenOptions::new().write(true).open(path)?;
            Ok::<_, io::Error>(held.hold(file.into()))
        };
        if self.version == 1 {
            // One thread, not a process: the kernel has to wait for nobody.
            let entrances = vec![entrance(self.memory.join("tasks"))?, entrance(self.pids.join("tasks"))?];
            return Ok(Doors { directory: None, entrances });
        }
        let entrances = vec![entrance(self.memory.join("cgroup.procs"))?];
        let directory = fs::File::open(&self.memory)?;
        Ok(Doors { directory: Some(held.hold(directory.into())), entrances })
    }

    /// What the group saw so far.
    pub(super) fn seen(&self) -> Seen {
        let number = |path: PathBuf| fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let refused_processes = keyed(&self.pids.join("pids.events"), "max");
        if self.version == 2 {
            return Seen {
                peak_bytes: number(self.memory.join("memory.peak")),
                out_of_memory: keyed(&self.memory.join("memory.events"), "oom_kill"),
                refused_processes,
            };
        }
        Seen {
            peak_bytes: number(self.memory.join("memory.max_usage_in_bytes")),
            out_of_memory: keyed(&self.memory.join("memory.oom_control"), "oom_kill"),
            refused_processes,
        }
    }

    /// For people.
    pub(super) fn describe(&self, limits: Limits) -> String {
        let Limits { memory_bytes, processes } = limits;
        format!("version {}: {memory_bytes} bytes of memory and {processes} processes for the whole tree", self.version)
    }
}

impl Seen {
    /// The limit that ended the run, if one of these did.
    pub(super) fn limit_hit(self, succeeded: bool) -> Option<LimitHit> {
        if self.out_of_memory > 0 && !succeeded {
            return Some(LimitHit::Memory);
        }
        (self.refused_processes > 0 && !succeeded).then_some(LimitHit::Processes)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Every process of the run is gone when this happens; an error path may leave an empty group for
        // `remove_stale`.
        let _removed = fs::remove_dir(&self.memory);
        if self.version == 1 {
            let _removed = fs::remove_dir(&self.pids);
        }
    }
}

fn write_if_there(path: &Path, value: &str) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).open(path) {
        Ok(mut file) => io::Write::write_all(&mut file, value.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// A number from a file of lines `key value`; 0 when it is not there.
fn keyed(path: &Path, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const HYBRID: &str = "8:pids:/\n4:memory:/a/b\n0::/\n";
    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
32 24 0:28 / /nowhere/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn the_daemons_own_group_is_found() {
        assert_eq!(directory_of(HYBRID, MOUNTS, Some("memory")), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(directory_of(HYBRID, MOUNTS, None), Some("/nowhere/unified/".into()));
        assert_eq!(directory_of(HYBRID, MOUNTS, Some("cpu")), None);
        let Ok(Location::V1 { memory, pids }) = Location::parse(HYBRID, MOUNTS) else { panic!() };
        assert_eq!((memory, pids), ("/sys/fs/cgroup/memory/a/b".into(), "/sys/fs/cgroup/pids/".into()));
        // A container sees only a part of the tree.
        let inside = "30 24 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(directory_of("0::/docker/x/y\n", inside, None), Some("/sys/fs/cgroup/y".into()));
        assert_eq!(directory_of("0::/other\n", inside, None), None);
    }

    #[test]
    fn version_2_is_written_as_the_kernel_wants() {
        let dir = TempDir::new().unwrap();
        let location = Location::V2(dir.path().to_owned());
        let limits = Limits { memory_bytes: 4096, processes: 7 };
        let group = Group::create_in(&location, limits).unwrap();
        assert!(!group.memory.join("memory.max").exists());
        group.limit_memory(limits).unwrap();
        // A real group comes with its files; here they are made by hand.
        for (file, text) in
            [("memory.events", "low 0\noom 1\noom_kill 2\n"), ("pids.events", "max 3\n"), ("memory.peak", "99\n")]
        {
            fs::write(group.memory.join(file), text).unwrap();
        }
        assert_eq!(fs::read_to_string(group.memory.join("memory.max")).unwrap(), "4096");
        assert_eq!(fs::read_to_string(group.memory.join("pids.max")).unwrap(), "7");
        let seen = group.seen();
        assert_eq!(seen, Seen { peak_bytes: Some(99), out_of_memory: 2, refused_processes: 3 });
        assert_eq!(seen.limit_hit(false), Some(LimitHit::Memory));
        assert_eq!(seen.limit_hit(true), None);
    }

    #[test]
    fn controllers_are_enabled_once() {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), "cpu").unwrap();
        enable_controllers(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(), "+memory +pids");
        fs::write(dir.path().join("cgroup.subtree_control"), "memory pids\n").unwrap();
        enable_controllers(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(), "memory pids\n");
    }

    /// Reads the process's own groups into the buffer behind `argument`.
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "raw system calls in a process without a C library")]
    extern "C" fn tell_groups(argument: *mut libc::c_void) -> libc::c_int {
        use crate::linux::raw::call;
        let (path, flags) = (c"/proc/self/cgroup".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        // SAFETY: a constant string; the buffer is 4096 bytes long and its owner stands still.
        unsafe {
            let fd = call!(libc::SYS_openat, libc::AT_FDCWD, path, flags);
            call!(libc::SYS_read, fd, argument, 4096) as libc::c_int
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "starts a process and waits for it")]
    fn a_process_starts_in_a_group_of_version_2() {
        use super::super::plan::Stack;
        use super::super::raw;
        use std::os::fd::AsRawFd;
        let flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as usize;
        let (stack, mut buffer) = (Stack::new(), [0u8; 4096]);
        let mut start = |group: i32| {
            // SAFETY: the stack is used by nothing else, the buffer outlives the process, which ends before this goes
            // on.
            unsafe { raw::spawn_in_group(group, flags, stack.extent(), tell_groups, buffer.as_mut_ptr().cast()) }
        };
        assert!(start(-1) < 0, "without a group nothing starts");
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap();
        let Some(own) = directory_of(&read("cgroup"), &read("mountinfo"), None) else { return };
        let group = own.join(format!("palyra-test-{}", std::process::id()));
        // Nothing to try where this user may make no groups.
        if fs::create_dir(&group).is_err() {
            return;
        }
        let command = start(fs::File::open(&group).unwrap().as_raw_fd());
        let mut status = 0;
        // SAFETY: a local status.
        let waited = unsafe { libc::waitpid(command as libc::pid_t, &raw mut status, 0) };
        fs::remove_dir(&group).unwrap();
        assert!(command > 0 && waited as isize == command, "{command}");
        let told = String::from_utf8_lossy(&buffer);
        assert!(told.contains(&format!("/palyra-test-{}\n", std::process::id())), "{told}");
    }
}
