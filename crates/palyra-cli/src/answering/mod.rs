//! Answering approvals at a terminal: what is on screen, which keys count, and when an answer is sent.
//!
//! The rules, which the line-by-line watch and the full screen share:
//! - Enter never allows. Only an approval that was shown to its end can be allowed, and only by the digest that was
//!   shown.
//! - A key that was typed before what is on screen appeared does not count, nor do several keys that arrive at once.
//! - A yes is armed for two seconds. Until they are over the daemon is not told, and `u` takes it back; the same key
//!   again sends it at once. Taking back is recorded.
//! - A new approval never moves the one that is being read.

pub mod choice;
pub mod gate;
pub mod keys;
pub mod notify;
pub mod question;
pub mod screen;

pub use choice::{Choice, send, take_back};
pub use gate::Gate;
pub use keys::{Key, Keys, Typed};
pub use question::{End, Question};
pub use screen::Screen;

use palyra_api::v1::Approval;
use palyra_protocol::{ApprovalRecord, Review};

use crate::commands::{read, read_optional};
use crate::exit::Failure;

/// An approval and its review.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    pub record: ApprovalRecord,
    pub review: Review,
}

impl Shown {
    /// From what the daemon sent.
    pub fn read(approval: &Approval) -> Result<Self, Failure> {
        let record: ApprovalRecord = read(&approval.approval_json)?;
        let review = read_optional(&approval.review_json)?.unwrap_or_else(|| Review::of(&record));
        Ok(Self { record, review })
    }
}

/// Whether a person sits at this terminal: they can type, and see what is written to `shown_on`.
pub fn at_terminal(shown_on: impl std::io::IsTerminal) -> bool {
    use std::io::IsTerminal as _;
    std::io::stdin().is_terminal() && shown_on.is_terminal()
}
