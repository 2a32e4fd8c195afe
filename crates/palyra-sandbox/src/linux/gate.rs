//! Where bubblewrap waits when the sandbox is built and the command does not exist yet.
//!
//! Bubblewrap works off its operations in order. The last one before it closes the tree copies a small file into it,
//! and that file is a pipe: bubblewrap reads what is there and waits for the end. The pipe is as small as the kernel
//! makes them and full, so that the daemon learns by `poll` when bubblewrap has come to it: there is room again. Then
//! the daemon looks at what was built and ends the file. `--block-fd` would wait as well, and not tell when.

use super::run;
use crate::error::SandboxError;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The daemon's end. Dropping it lets bubblewrap go on.
#[derive(Debug)]
pub(super) struct Gate(OwnedFd);

impl Gate {
    /// A gate around a file of `#` comments and `text`, and the end that bubblewrap reads.
    pub(super) fn around(text: &str) -> Result<(Self, OwnedFd), SandboxError> {
        let fault = |e: Errno| SandboxError::Io { action: "prepare a pipe", source: e.into() };
        let (inner, outer) = run::pipe()?;
        // The kernel rounds up to what it can do.
        rustix::pipe::fcntl_setpipe_size(&outer, 1).map_err(fault)?;
        let size = rustix::pipe::fcntl_getpipe_size(&outer).map_err(fault)?;
        let bytes = padded(text, size);
        rustix::io::ioctl_fionbio(&outer, true).map_err(fault)?;
        let written = rustix::io::write(&outer, &bytes).map_err(fault)?;
        if written != bytes.len() {
            return Err(fault(Errno::NOBUFS));
        }
        Ok((Self(outer), inner))
    }

    /// Can be written to when bubblewrap has come to the gate, or is gone.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `text` and as many lines of comment as make it `size` bytes.
fn padded(text: &str, size: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    while bytes.len() < size {
        let room = (size - bytes.len()).min(64);
        bytes.extend(std::iter::repeat_n(b'#', room - 1));
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_reached(gate: &Gate) -> bool {
        let mut fds = [PollFd::new(&gate.0, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn it_tells_when_it_is_reached() {
        let (gate, inner) = Gate::around("group:x:1:\n").unwrap();
        assert!(!is_reached(&gate));
        let mut buffer = vec![0; 1 << 17];
        let length = rustix::io::read(&inner, &mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        assert!(
            text.starts_with("group:x:1:\n#") && text.lines().skip(1).all(|line| line.trim_matches('#').is_empty())
        );
        assert!(is_reached(&gate));
        drop(gate);
        assert_eq!(rustix::io::read(&inner, &mut buffer).unwrap(), 0);
    }

    #[test]
    fn one_that_nobody_waits_at_is_reached_too() {
        let (gate, inner) = Gate::around("").unwrap();
        drop(inner);
        assert!(is_reached(&gate));
    }
}
