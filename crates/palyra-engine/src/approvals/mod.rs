//! Approvals, in one place: asking people ([`ask`]), their answers ([`answer`]), the grants that a yes can leave
//! ([`grants`]), and deciding again about what waits when other rules take over ([`reconsider`]). Approvals that are
//! about no call that waits to run begin in [`request`]; [`build_review`] makes what people are shown. Here is what
//! doors can list.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod build_review;
pub(crate) mod grants;
pub(crate) mod reconsider;
pub(crate) mod request;

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::queries::seen::no_such_approval;
use palyra_journal::{ApprovalFilter, JournalError, Listing, Page};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{ApprovalId, ApprovalRecord};
use std::sync::Arc;
use tokio::sync::broadcast;

/// How far back approvals are listed.
pub const MAX_LISTED: u32 = 1000;
/// A page of a listing: far smaller than the largest message, because a record is told in one piece.
pub(crate) const PAGE: Page = Page { records: 250, bytes: 4 << 20 };
impl Engine {
    /// A page of approvals after the one named, oldest first.
    ///
    /// # Errors
    /// The peer may not see them.
    pub async fn approvals(
        &self,
        peer: &VerifiedPeer,
        filter: ApprovalFilter,
        after: Option<&ApprovalId>,
    ) -> Result<Listing<ApprovalRecord>, EngineError> {
        self.authorize(peer, PolicyAction::ApprovalList, PolicyResource::Daemon, None)?;
        let mut after = after.cloned();
        loop {
            let mut page = self.journal().approvals(filter, after.as_ref(), PAGE).await?;
            let last = page.records.last().map(|asked| asked.approval_id.clone());
            page.records.retain(|asked| self.sees_approval(peer, asked));
            // Whoever turns pages goes by the last record of each, so an empty one is the last.
            if !page.more || !page.records.is_empty() {
                return Ok(page);
            }
            after = last;
        }
    }

    /// One approval.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn approval(&self, peer: &VerifiedPeer, id: &ApprovalId) -> Result<ApprovalRecord, EngineError> {
        self.authorize(peer, PolicyAction::ApprovalList, PolicyResource::Daemon, None)?;
        let asked = self.journal().approval(id).await?;
        if self.sees_approval(peer, &asked) { Ok(asked) } else { Err(no_such_approval(id)) }
    }

    /// What is pending now, and every change from now on.
    ///
    /// # Errors
    /// The peer may not see them.
    pub async fn watch_approvals(
        &self,
        peer: &VerifiedPeer,
    ) -> Result<(Vec<ApprovalRecord>, broadcast::Receiver<Arc<ApprovalRecord>>), EngineError> {
        let news = self.approval_news().subscribe();
        let mut pending: Vec<ApprovalRecord> = Vec::new();
        loop {
            let last = pending.last().map(|record| record.approval_id.clone());
            let page = self.approvals(peer, ApprovalFilter::Pending, last.as_ref()).await?;
            pending.extend(page.records);
            if !page.more {
                return Ok((pending, news));
            }
        }
    }

    /// Whether the peer may still see what it watches.
    ///
    /// # Errors
    /// It may not any more.
    pub fn may_watch_approvals(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::ApprovalList, PolicyResource::Daemon, None)
    }

    /// Ends every approval whose call was proposed with a token that opens nothing any more. What was withdrawn leaves
    /// nothing behind that goes on once somebody says yes.
    pub(crate) async fn end_orphaned_questions(&self) -> Result<(), EngineError> {
        for asked in self.pending_approvals().await? {
            let Some(problem) = self.token_gone(asked.token.as_ref()) else { continue };
            match self.settle_approval(self.cancelled(&asked, problem), None).await {
                // Whoever was faster wins.
                Ok(_) | Err(JournalError::AlreadyResolved { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Every approval that waits, whoever may see it.
    pub(crate) async fn pending_approvals(&self) -> Result<Vec<ApprovalRecord>, JournalError> {
        let mut pending: Vec<ApprovalRecord> = Vec::new();
        loop {
            let last = pending.last().map(|record| &record.approval_id);
            let page = self.journal().approvals(ApprovalFilter::Pending, last, PAGE).await?;
            pending.extend(page.records);
            if !page.more {
                return Ok(pending);
            }
        }
    }
}
