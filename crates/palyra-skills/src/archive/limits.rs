//! How large an archive may be, before a byte of it is inflated.

/// Limits on an archive. The defaults are wide enough for components of Python and JavaScript, which weigh 12 to 20
/// MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// The largest file.
    pub archive_bytes: usize,
    /// The most entries.
    pub entries: usize,
    /// The largest entry, inflated.
    pub entry_bytes: usize,
    /// All entries together, inflated.
    pub total_bytes: usize,
    /// How many times its compressed size an entry may be.
    pub ratio: usize,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { archive_bytes: 64 << 20, entries: 1024, entry_bytes: 64 << 20, total_bytes: 128 << 20, ratio: 200 }
    }
}

impl ArchiveLimits {
    /// Small texts may be repetitive; nobody is harmed by inflating this much.
    pub(super) const RATIO_FLOOR: usize = 256 << 10;
}
