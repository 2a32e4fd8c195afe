//! Pages: listings that are never larger than what a door can send, however large the records are.

/// How much a listing may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// At most so many records.
    pub records: u32,
    /// At most so many bytes of records; one record is always told, whatever its size.
    pub bytes: usize,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<T> {
    /// The records.
    pub records: Vec<T>,
    /// Whether others follow.
    pub more: bool,
}

impl Page {
    pub(crate) fn start(self) -> Room {
        Room { records: self.records, bytes: self.bytes, empty: true }
    }
}

/// What is left of a page.
pub(crate) struct Room {
    records: u32,
    bytes: usize,
    empty: bool,
}

impl Room {
    /// Whether a record of this size still fits; if so, it is counted.
    pub(crate) fn takes(&mut self, size: usize) -> bool {
        if self.records == 0 || (size > self.bytes && !self.empty) {
            return false;
        }
        self.records -= 1;
        self.bytes = self.bytes.saturating_sub(size);
        self.empty = false;
        true
    }
}
