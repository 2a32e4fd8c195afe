//! The one way out of a network namespace: a listening socket that was made inside it.
//!
//! A socket belongs to the network namespace that it was created in, wherever its descriptor travels. So nothing has to
//! run in the sandbox to carry bytes out of it: a process that lives for a few microseconds enters the sandbox's
//! network, opens a socket there and ends; the descriptor stays with the daemon, whose threads accept on it and connect
//! from the host's network. The alternative, a bridge inside, would be one more process to start, to trust and to end.
//!
//! Bubblewrap tells the namespace's number before the command exists and waits at a gate until the door is there. The
//! namespace is entered only if it is the one that bubblewrap made and is not the daemon's own.
#![expect(unsafe_code, reason = "a process on the daemon's memory, and the call that tells who owns a namespace")]

use super::child;
use super::plan::Stack;
use super::raw::call;
use super::sys;
use libc::{c_int, c_void};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI32, Ordering};

/// The port of the door. The namespace is new and empty, so any will do; this one is known for what it is.
pub(super) const PORT: u16 = 3128;
/// Connections that may wait to be accepted.
const BACKLOG: c_int = 128;

/// What bubblewrap tells about the sandbox before the command exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inside {
    /// Its first process, as the host counts.
    pub(super) pid: i32,
    /// The number of its network namespace.
    pub(super) network: u64,
}

impl Inside {
    /// From the text of `--json-status-fd`; `None` until it is all there.
    pub(super) fn parse(status: &str) -> Option<Self> {
        let (first, _) = status.split_once('}')?;
        let number = |key: &str| -> Option<u64> {
            let after = first.split_once(key)?.1.trim_start_matches(['"', ':', ' ']);
            after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        Some(Self { pid: i32::try_from(number("\"child-pid")?).ok()?, network: number("\"net-namespace")? })
    }
}

/// The number of the daemon's own network namespace.
pub(super) fn own_network() -> io::Result<u64> {
    std::fs::metadata("/proc/self/ns/net").map(|metadata| metadata.ino())
}

/// Opens the door: a listener on 127.0.0.1 of the sandbox's network, held by the daemon.
pub(super) fn open(inside: Inside) -> io::Result<TcpListener> {
    let network = std::fs::File::open(format!("/proc/{}/ns/net", inside.pid))?;
    let number = network.metadata()?.ino();
    // A number that differs: the process is gone and another has its id.
    if number != inside.network || number == own_network()? {
        return Err(io::Error::other("the process that was named does not live in the sandbox's network"));
    }
    // Root may enter any network. Another user first needs the power that its owner has over the user namespace behind
    // it.
    let owner = if rustix::process::geteuid().is_root() { None } else { Some(owner_of(&network)?) };
    listen(network.as_raw_fd(), owner.as_ref().map(AsRawFd::as_raw_fd))
}

/// The user namespace that a network namespace belongs to.
fn owner_of(network: &std::fs::File) -> io::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: the request takes no argument and returns a new descriptor.
    let fd = unsafe { libc::ioctl(network.as_raw_fd(), NS_GET_USERNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the process that enters the sandbox's network is given, and what it leaves behind.
struct Visit {
    /// The daemon: the visitor has its memory and descriptors, so it must never outlive it.
    parent: c_int,
    network: c_int,
    owner: Option<c_int>,
    /// The socket, or a negative error.
    socket: AtomicI32,
}

fn listen(network: c_int, owner: Option<c_int>) -> io::Result<TcpListener> {
    let visit = Visit { parent: sys::own_pid(), network, owner, socket: AtomicI32::new(-libc::ECHILD) };
    let stack = Stack::new();
    let argument = std::ptr::from_ref(&visit).cast_mut().cast();
    let blocked = sys::BlockedSignals::all();
    // One table of descriptors for both: the socket that the visitor opens is the daemon's.
    // SAFETY: the stack and the visit outlive the process, which is waited for below.
    let (pid, _pidfd) = unsafe { sys::spawn(libc::CLONE_FILES, &stack, enter, argument) }?;
    drop(blocked);
    sys::reap(pid);
    match visit.socket.load(Ordering::Acquire) {
        // SAFETY: the visitor opened this descriptor in our own table and is gone: nobody else has it.
        fd @ 0.. => Ok(unsafe { TcpListener::from_raw_fd(fd) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The visitor's whole life. The rule of [`super::child`] holds here too.
extern "C" fn enter(argument: *mut c_void) -> c_int {
    // SAFETY: `listen` passes a pointer to a live visit.
    let visit = unsafe { &*argument.cast::<Visit>() };
    child::die_with(visit.parent);
    visit.socket.store(socket_inside(visit) as c_int, Ordering::Release);
    0
}

/// The listening socket, or a negative error.
fn socket_inside(visit: &Visit) -> isize {
    if let Some(owner) = visit.owner {
        // SAFETY: numbers only.
        let entered = unsafe { call!(libc::SYS_setns, owner, libc::CLONE_NEWUSER) };
        if entered < 0 {
            return entered;
        }
    }
    // SAFETY: numbers only.
    let entered = unsafe { call!(libc::SYS_setns, visit.network, libc::CLONE_NEWNET) };
    if entered < 0 {
        return entered;
    }
    // SAFETY: numbers only.
    let socket = unsafe { call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return socket;
    }
    let prepared = prepare(socket);
    if prepared < 0 {
        // SAFETY: our own descriptor.
        unsafe { call!(libc::SYS_close, socket) };
        return prepared;
    }
    socket
}

fn prepare(socket: isize) -> isize {
    let on: c_int = 1;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    // Bubblewrap may not have given the loopback device its address yet.
    // SAFETY: the option is a live int of its size.
    let free = unsafe {
        call!(libc::SYS_setsockopt, socket, libc::IPPROTO_IP, libc::IP_FREEBIND, &raw const on, size_of::<c_int>())
    };
    // SAFETY: the address is a live struct of the size given.
    let bound = unsafe { call!(libc::SYS_bind, socket, &raw const address, size_of::<libc::sockaddr_in>()) };
    // SAFETY: numbers only.
    let listening = unsafe { call!(libc::SYS_listen, socket, BACKLOG) };
    free.min(bound).min(listening)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bubblewrap_tells_is_read_when_it_is_complete() {
        let whole = r#"{ "child-pid": 14158, "cgroup-namespace": 1, "net-namespace": 4026532183, "uts-namespace": 9 }"#;
        assert_eq!(Inside::parse(whole), Some(Inside { pid: 14158, network: 4_026_532_183 }));
        for length in 0..whole.len() {
            assert_eq!(Inside::parse(&whole[..length]), None, "{length}");
        }
        assert_eq!(Inside::parse(r#"{ "exit-code": 1 }"#), None);
        assert_eq!(Inside::parse(r#"{ "child-pid": 99999999999, "net-namespace": 1 }"#), None);
    }

    #[test]
    fn the_hosts_own_network_is_never_entered() {
        let inside = Inside { pid: sys::own_pid(), network: own_network().unwrap() };
        assert!(open(inside).is_err());
        assert!(open(Inside { network: 1, ..inside }).is_err());
    }
}
