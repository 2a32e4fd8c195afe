//! The witness that something is in the journal.

/// A value whose recording has been committed.
///
/// INVARIANT (recorded_means_durable): the only constructor is in this crate, and the store calls it after the
/// transaction that recorded the value was committed to disk. Executors take `Recorded<Permit>`, so an effect without a
/// durable intent does not compile. It cannot be cloned: one record, one execution.
#[derive(Debug)]
pub struct Recorded<T> {
    value: T,
}

impl<T> Recorded<T> {
    pub(crate) fn after_commit(value: T) -> Self {
        Self { value }
    }

    /// The value that was recorded.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// Gives the value up; the witness is spent.
    pub fn into_inner(self) -> T {
        self.value
    }
}
