//! Whether an installation is still what was hashed.
//!
//! Hashing a large component for every call would cost more than the call. So what was hashed is remembered together
//! with what the file system says about every file: identity, size, and the two times, of which no program can set the
//! second. Where that is unchanged, the content is. A file that changed only just before it was looked at could change
//! again without its times showing it; such a look counts for nothing, and the next one hashes again.

use rustix::fs::{Stat, lstat};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How fine the times of every file system are.
const GRANULARITY: Duration = Duration::from_secs(2);
/// The most entries of one installation.
const MOST_ENTRIES: usize = 4096;

/// What the file system says about an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    entries: Vec<(PathBuf, Mark)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    file: (u64, u64),
    mode: u32,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    fn of(status: &Stat) -> Self {
        let number = |nanoseconds: u64| i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        Self {
            file: (status.st_dev, status.st_ino),
            mode: status.st_mode,
            size: status.st_size,
            modified: (status.st_mtime, number(status.st_mtime_nsec)),
            changed: (status.st_ctime, number(status.st_ctime_nsec)),
        }
    }
}

impl Snapshot {
    /// Looks at every entry below a directory, following no link. Blocks.
    pub(super) fn take(root: &Path) -> std::io::Result<Self> {
        let mut entries = Vec::new();
        let mut waiting = vec![root.to_owned()];
        while let Some(path) = waiting.pop() {
            let status = lstat(&path)?;
            if rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir() {
                for entry in std::fs::read_dir(&path)? {
                    waiting.push(entry?.path());
                }
            }
            entries.push((path, Mark::of(&status)));
            if entries.len() > MOST_ENTRIES {
                return Err(std::io::Error::other("there are more files than a skill has"));
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Self { entries })
    }

    /// Whether every file had rested for a while when it was looked at: only then the times tell of every later change.
    pub(super) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let rested = now.saturating_sub(GRANULARITY).as_secs();
        let newest = self.entries.iter().map(|(_, mark)| mark.changed.0).max().unwrap_or(0);
        u64::try_from(newest).is_ok_and(|newest| newest < rested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_change_shows() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("modules")).unwrap();
        fs::write(dir.path().join("modules/a.wasm"), b"one").unwrap();
        fs::write(dir.path().join("skill.toml"), b"x").unwrap();
        let before = Snapshot::take(dir.path()).unwrap();
        assert!(!before.is_settled(), "it was written a moment ago");
        assert_eq!(Snapshot::take(dir.path()).unwrap(), before);
        fs::write(dir.path().join("modules/b.wasm"), b"").unwrap();
        let with_more = Snapshot::take(dir.path()).unwrap();
        assert_ne!(with_more, before);
        fs::write(dir.path().join("modules/a.wasm"), b"two!").unwrap();
        assert_ne!(Snapshot::take(dir.path()).unwrap(), with_more);
        assert!(Snapshot::take(&dir.path().join("gone")).is_err());
    }
}
