//! Mapping compiled code: the only unsafe lines of this crate.
//!
//! Wasmtime trusts such code blindly, so this file is called with authenticated files, and with code that was compiled
//! just now.

use rustix::fs::{Stat, fstat};
use std::fs::File;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Maps an authenticated file.
#[expect(unsafe_code, reason = "mapping compiled code is what this file exists for")]
pub(super) fn map(engine: &Engine, file: &File, status: &Stat) -> Option<Component> {
    // The magic link leads to the very file that is open, whatever its name leads to by now.
    #[cfg(target_os = "linux")]
    let mapped = {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: wasmtime asks for bytes that `Engine::precompile_component` made. `CodeCache::find` has verified,
        // through this descriptor, a code under a key that only the daemon has, and `store` is the only one that makes
        // such codes, of such bytes.
        unsafe { Component::deserialize_file(engine, path) }
    };
    #[cfg(not(target_os = "linux"))]
    let mapped = read_all(file).and_then(|bytes| {
        // SAFETY: as above; these bytes were read through the descriptor that was verified.
        unsafe { Component::deserialize(engine, bytes) }
    });
    let unchanged = fstat(file).is_ok_and(|now| same(&now, status));
    mapped.ok().filter(|_| unchanged)
}

/// Loads what was compiled just now and could not be written.
#[expect(unsafe_code, reason = "a full disk must not keep a skill from running")]
pub(crate) fn load_fresh(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the only caller has these bytes from `Engine::precompile_component`, in its own memory.
    unsafe { Component::deserialize(engine, code) }
}

/// Whether a file is as it was before it was read.
fn same(now: &Stat, before: &Stat) -> bool {
    let facts = |status: &Stat| {
        (
            (status.st_dev, status.st_ino, status.st_size, status.st_nlink),
            (status.st_mtime, status.st_mtime_nsec, status.st_ctime, status.st_ctime_nsec),
        )
    };
    facts(now) == facts(before)
}

#[cfg(not(target_os = "linux"))]
fn read_all(mut file: &File) -> wasmtime::Result<Vec<u8>> {
    use std::io::{Seek as _, SeekFrom};
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
