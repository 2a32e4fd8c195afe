//! Everything the child will need, prepared before it starts.
//!
//! The daemon has many threads, and the supervisor runs on their memory. It may allocate nothing, lock nothing and call
//! nothing that does: a lock that another thread holds would be waited for by a process that the lock's owner knows
//! nothing of. So all strings, arrays and descriptors are made here, by ordinary code, and [`super::child`] only passes
//! them to the kernel.
//!
//! A plan outlives its supervisor, which the compiler sees to: [`super::sys::Supervisor`] borrows the [`Plan`] until it
//! is reaped.

use crate::error::SandboxError;
use libc::{c_char, c_int, rlim_t, sock_filter};
use std::cell::UnsafeCell;
use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

/// Strings in the form that execve takes.
#[derive(Debug)]
pub(super) struct CStrings {
    pointers: Vec<*const c_char>,
    /// Owns what `pointers` points to.
    _strings: Vec<CString>,
}

impl CStrings {
    pub(super) fn new(strings: Vec<CString>) -> Self {
        // A CString's bytes live on the heap: moving the vector does not move them.
        let pointers = strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect();
        Self { pointers, _strings: strings }
    }

    /// The array, ending in a null pointer.
    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// A string for the kernel.
pub(super) fn c_string(text: impl AsRef<OsStr>, what: &str) -> Result<CString, SandboxError> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| SandboxError::NulByte { what: what.to_owned() })
}

/// What to execute.
#[derive(Debug)]
pub(super) enum Program {
    /// This very file, whatever its name leads to by now.
    File(RawFd),
    /// Whatever is at this path: for scripts, whose interpreter has to open them again by name.
    Path(CString),
}

/// One step in building the run's private view of the file tree.
#[derive(Debug)]
pub(super) enum MountStep {
    /// An empty, small file system.
    Tmpfs {
        /// Where.
        target: CString,
        /// Its options, such as `mode=755,size=64k`.
        options: CString,
    },
    /// An empty one that nobody can use, over a directory that is not to be seen.
    Hide(CString),
    /// A directory inside one of those.
    Directory(CString),
    /// An empty file inside one of those.
    File(CString),
    /// A tree that was cloned before the fork.
    Attach {
        /// The tree.
        tree: Arc<OwnedFd>,
        /// Where.
        target: CString,
    },
    /// Clones a tree, without set-id programs and devices, before anything is done to it.
    Copy {
        /// What.
        source: CString,
        /// Where its descriptor is left.
        tree: Arc<AtomicI32>,
    },
    /// Attaches such a copy.
    AttachCopy {
        /// Where its descriptor is.
        tree: Arc<AtomicI32>,
        /// Where it goes.
        target: CString,
    },
    /// What hides a name of the layers below, in the uppermost layer of an overlay.
    Whiteout(CString),
    /// A small program inside one of those file systems.
    Program {
        /// Where.
        path: CString,
        /// What it holds.
        content: Vec<u8>,
    },
    /// Layers of directories as one.
    Overlay {
        /// The layers and how they are put together: `lowerdir=…`.
        options: CString,
        /// Where.
        target: CString,
        /// Whether it may be written, which takes a layer for what is written.
        access: TreeAccess,
    },
    /// One file in the place of another, read-only.
    Cover {
        /// The file.
        source: CString,
        /// Where.
        target: CString,
    },
    /// Takes the uppermost mount off a path. What was put together from it stays.
    Detach(CString),
    /// Everything that is mounted so far becomes read-only.
    ReadOnly,
    /// One mount becomes writable again, if it may.
    Writable(CString),
}

/// Whether a tree may be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TreeAccess {
    /// As far as the file system allows.
    Write,
    /// Not at all.
    ReadOnly,
}

/// The user that the command runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Everything the child will need. Descriptors are numbers here: the child has its own copies from the moment it
/// starts, and the daemon closes its own at once ([`Held`]).
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) program: Program,
    pub(super) argv: CStrings,
    pub(super) env: CStrings,
    pub(super) working_directory: CString,
    /// The child's ends of the three pipes.
    pub(super) stdio: [RawFd; 3],
    /// Where the child tells what it did.
    pub(super) report: RawFd,
    /// Descriptors that the program inherits under the same number.
    pub(super) inherited: Vec<RawFd>,
    pub(super) rlimits: Vec<(u32, rlim_t)>,
    /// The user namespace that owns the view of the file tree, if it is not the host's.
    pub(super) user_namespace: Option<RawFd>,
    /// The view of the file tree; `None`: the host's.
    pub(super) mount_namespace: Option<RawFd>,
    /// What is mounted for this run alone, above that.
    pub(super) own_mounts: Vec<MountStep>,
    /// Whom to become; `None`: stay who we are.
    pub(super) user: Option<User>,
    pub(super) fence: Option<RawFd>,
    pub(super) files: Option<RawFd>,
    pub(super) seccomp: Option<&'static [sock_filter]>,
    pub(super) group: Doors,
    /// The steps that must be done before anything is executed, as a mask.
    pub(super) required: u32,
    /// The daemon's process id, to notice when it is gone already.
    pub(super) parent: i32,
    /// Descriptors to keep after the start, ascending.
    pub(super) keep: Vec<RawFd>,
    pub(super) supervisor_stack: Stack,
    pub(super) command_stack: Stack,
}

/// The ways into the run's control groups; none: it stays in the daemon's.
#[derive(Debug, Default)]
pub(super) struct Doors {
    /// The group itself, for the kernel to start the command in.
    pub(super) directory: Option<RawFd>,
    /// Files that take in whoever writes `0` to them.
    pub(super) entrances: Vec<RawFd>,
}

/// The daemon's copies of a plan's descriptors: closed as soon as the child has its own.
#[derive(Debug, Default)]
pub(super) struct Held {
    own: Vec<OwnedFd>,
    shared: Vec<Arc<OwnedFd>>,
}

impl Held {
    /// Holds a descriptor until the child has started.
    pub(super) fn hold(&mut self, fd: OwnedFd) -> RawFd {
        let number = fd.as_raw_fd();
        self.own.push(fd);
        number
    }

    /// The same for one that others use too.
    pub(super) fn share(&mut self, fd: Arc<OwnedFd>) -> RawFd {
        let number = fd.as_raw_fd();
        self.shared.push(fd);
        number
    }

    /// The numbers of all, ascending.
    pub(super) fn numbers(&self) -> Vec<RawFd> {
        let shared = self.shared.iter().map(|fd| fd.as_raw_fd());
        let mut numbers: Vec<RawFd> = self.own.iter().map(AsRawFd::as_raw_fd).chain(shared).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// Memory for the few calls that a process makes before it executes something or ends.
#[derive(Debug)]
pub(super) struct Stack {
    /// Never read or written through this: only its address is used.
    memory: Box<[UnsafeCell<MaybeUninit<u128>>]>,
}

impl Stack {
    const BYTES: usize = 64 * 1024;

    pub(super) fn new() -> Self {
        let words = Self::BYTES / size_of::<u128>();
        let mut memory = Vec::with_capacity(words);
        memory.resize_with(words, || UnsafeCell::new(MaybeUninit::uninit()));
        Self { memory: memory.into_boxed_slice() }
    }

    /// Its beginning, and how long it is.
    pub(super) fn extent(&self) -> (*mut u8, usize) {
        (self.memory.as_ptr().cast_mut().cast(), size_of_val(&*self.memory))
    }

    /// One past its end: stacks grow down. Aligned to 16 bytes, as a `u128` is.
    pub(super) fn top(&self) -> *mut u8 {
        self.memory.as_ptr_range().end.cast_mut().cast()
    }
}

/// The steps that the child reports, each a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Step {
    Descriptors = 0,
    Mounts,
    Subreaper,
    Fence,
    Session,
    Rlimits,
    WorkingDirectory,
    User,
    NoNewPrivileges,
    Files,
    Seccomp,
    Execute,
    FenceProven,
    Group,
    OwnMounts,
}

impl Step {
    pub(super) const ALL: [Self; 15] = [
        Self::Descriptors,
        Self::Mounts,
        Self::Subreaper,
        Self::Fence,
        Self::Session,
        Self::Rlimits,
        Self::WorkingDirectory,
        Self::User,
        Self::NoNewPrivileges,
        Self::Files,
        Self::Seccomp,
        Self::Execute,
        Self::FenceProven,
        Self::Group,
        Self::OwnMounts,
    ];

    /// Its place in the mask of steps done.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What the child says: always whole, since a pipe takes this much at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Record {
    /// One of the `TAG_` values.
    pub(super) tag: u32,
    /// Ended: the mask of steps done. Failed: the step.
    pub(super) step: u32,
    /// Failed: the error. Ended: the wait status.
    pub(super) value: i64,
    /// Ended: CPU time of all descendants, in microseconds.
    pub(super) cpu_us: i64,
    /// Ended: the largest resident size of any descendant, in KiB.
    pub(super) peak_kib: i64,
}

pub(super) const TAG_FAILED: u32 = 0x5041_0002;
pub(super) const TAG_ENDED: u32 = 0x5041_0003;

impl Record {
    /// The length of a record on the wire.
    pub(super) const BYTES: usize = size_of::<Self>();

    /// Reads a record; `None` for anything that is not one.
    pub(super) fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            i64::from_ne_bytes(eight)
        };
        let record = Self { tag: word(0), step: word(4), value: long(8), cpu_us: long(16), peak_kib: long(24) };
        matches!(record.tag, TAG_FAILED | TAG_ENDED).then_some(record)
    }
}

/// The signals that the supervisor waits for.
pub(super) const STOP_SIGNAL: c_int = libc::SIGTERM;
