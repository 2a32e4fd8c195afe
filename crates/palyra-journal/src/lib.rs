//! The journal: an append-only, hash-chained record, and the projections that answer questions about the present.
//!
//! `events` is the truth. Sessions, runs, calls, approvals and grants are projections, changed in the same transaction
//! as the event that changes them, so that they can never disagree with it after a crash. One thread writes
//! ([`writer`]); reading happens on connections of their own and never waits for it.
//!
//! The journal records what the engine hands it. It must never interpret policy, and never update or delete an event.

mod approvals;
mod call_list;
mod call_rows;
mod calls;
mod consoles;
mod decisions;
mod error;
mod event_bodies;
mod events;
mod grants;
mod history;
mod indexes;
mod memory;
mod migrate;
mod open_approvals;
mod open_calls;
mod opening;
mod page;
mod prepared_statements;
mod read_only;
mod recorded;
mod routines;
mod runs;
mod schema;
mod store;
mod tables;
mod verify;
mod writer;

pub use approvals::{ApprovalFilter, PastApproval, Rebind, Resolve};
pub use call_list::{CallFilter, CallSummary};
pub use call_rows::CallView;
pub use calls::{Finish, Refused, RefusedCall};
pub use decisions::{DecisionEvent, scan_decisions};
pub use error::JournalError;
pub use history::HistoryFault;
pub use memory::{
    MAX_QUERY, MEMORY_PAGE, MemoryEntry, MemoryQuery, MemoryQuota, MemoryStore, NewMemory, SessionSource,
};
pub use opening::{KeyHolder, NotByGrant, NotOpened, Opening};
pub use page::{Listing, Page};
pub use recorded::Recorded;
pub use routines::AboutWhat;
pub use runs::{OpenedRun, RunHistory};
pub use schema::Head;
pub use store::JournalStore;
pub use verify::{Against, Verdict, verify};
