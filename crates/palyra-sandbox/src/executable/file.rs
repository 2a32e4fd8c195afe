//! What a file is to the operating system: its identity, whether it may be executed, and the name it goes by.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Which file it is: a replaced or rewritten file has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified_ns: i128,
    pub(crate) changed_ns: i128,
}

impl FileIdentity {
    /// What the file at `path` is now.
    #[cfg(target_os = "macos")]
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::of(&metadata))
    }

    /// What a file that cannot be opened is now.
    pub(super) fn of_path(path: &Path) -> Option<Self> {
        #[cfg(unix)]
        return fs::metadata(path).ok().map(|metadata| Self::of(&metadata));
        #[cfg(not(unix))]
        {
            let _unknown = path;
            None
        }
    }

    /// What an opened file is now.
    pub(crate) fn of_file(file: &fs::File) -> io::Result<Self> {
        #[cfg(unix)]
        return file.metadata().map(|metadata| Self::of(&metadata));
        #[cfg(windows)]
        return crate::windows::file_identity(file);
        #[cfg(not(any(unix, windows)))]
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(unix)]
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let ns = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether both are names of one file, whatever was written to it in between.
    pub(super) fn is_same_file(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether a further change would surely show in the times: clocks of file systems go in steps, and two changes
    /// within one step look like one.
    pub(super) fn is_settled(self) -> bool {
        const STEP_NS: i128 = 100_000_000;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        i128::try_from(now).is_ok_and(|now| self.modified_ns.max(self.changed_ns) + STEP_NS < now)
    }
}

/// Whether the operating system would try to execute it.
pub(super) fn may_execute(metadata: &fs::Metadata) -> bool {
    #[cfg(unix)]
    let allowed = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
    // Windows knows no such bit: the content decides.
    #[cfg(not(unix))]
    let allowed = true;
    metadata.is_file() && allowed
}

/// Whether only the system's owner can change it. On Windows that is a matter of the directory, which is asked anyway.
pub(super) fn belongs_to_system(metadata: &fs::Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::uid(metadata) == 0;
    #[cfg(not(unix))]
    metadata.is_file()
}

/// The name that programs are known by: the base name, on Windows without `.exe`.
pub(super) fn known_as(path: &Path) -> &str {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or("");
    if cfg!(windows) { without_exe(name) } else { name }
}

/// The file name to look for on the search path.
pub(super) fn with_suffix(name: &str) -> Cow<'_, str> {
    if cfg!(windows) && without_exe(name).len() == name.len() { format!("{name}.exe").into() } else { name.into() }
}

/// A name without `.exe`, in whatever case that is written.
fn without_exe(name: &str) -> &str {
    match name.len().checked_sub(4).and_then(|at| name.split_at_checked(at)) {
        Some((stem, suffix)) if suffix.eq_ignore_ascii_case(".exe") => stem,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exe_is_no_part_of_a_name() {
        for (name, expect) in
            [("cmd.exe", "cmd"), ("CMD.EXE", "CMD"), ("git", "git"), (".exe", ""), ("é.exe", "é"), ("aéé", "aéé")]
        {
            assert_eq!(without_exe(name), expect, "{name}");
        }
    }
}
