//! Asking without acting: calls, status, explanations, the journal, and what other rules would have decided.

pub(crate) mod calls;
pub(crate) mod disclose;
pub(crate) mod explain;
pub(crate) mod journal;
pub(crate) mod review;
pub(crate) mod seen;
pub(crate) mod status;
