//! Clear: from a decision to a recorded permit, by policy, by a grant, or by a person's answer.
//!
//! Where the rules that decided, or the grant that was found, are gone by the time of the record, nothing is recorded
//! and there is no permit: the path resolves and decides the call anew.

use crate::engine::Engine;
use crate::flow::decide::{AllowedCall, Decided, DeniedCall, GrantableCall};
use crate::flow::permit::Permit;
use crate::flow::stop::Stop;
use crate::live::LiveCall;
use crate::reload::RulesStay;
use palyra_journal::{NotByGrant, Opening, Recorded};
use palyra_protocol::{GrantId, ToolDecision};

/// A permit whose intent is on the disk, or none where the call has to be decided again.
pub(crate) type Cleared = Result<Option<Recorded<Permit>>, Stop>;

impl Engine {
    /// Takes a decided call to its permit.
    pub(crate) async fn clear(&self, decided: Decided, live: &LiveCall) -> Cleared {
        match decided {
            Decided::Denied(call) => self.deny(call).await,
            Decided::Allowed(call) => self.start(call).await,
            Decided::Askable(call) => match self.live_denial(call.call(), call.decision().policy_hash).await? {
                Some(denial) => {
                    let opening = call.opening(self.config().max_calls_per_run);
                    self.deny_by_grant(opening, call.decision(), denial).await
                }
                None => self.ask(call, live).await,
            },
            Decided::Grantable(call) => self.by_grant(call, live).await,
        }
    }

    /// A call that standing answers may cover: a no before a yes.
    async fn by_grant(&self, call: GrantableCall, live: &LiveCall) -> Cleared {
        if let Some(denial) = self.live_denial(call.call(), call.decision().policy_hash).await? {
            let opening = call.opening(self.config().max_calls_per_run);
            return self.deny_by_grant(opening, call.decision(), denial).await;
        }
        match self.live_grant(call.call(), call.decision().policy_hash).await? {
            Some(grant) => self.start_by_grant(call, grant).await,
            None => self.ask(call.without_grant(), live).await,
        }
    }

    async fn deny_by_grant(&self, opening: Opening, decision: &ToolDecision, denial: GrantId) -> Cleared {
        let Some(_rules_stay) = self.rules_of(decision).await else { return Ok(None) };
        let problem = self.denied_before(&denial).await?;
        match self.journal().deny_by_grant(opening, denial, problem).await? {
            Ok(outcome) => Err(Stop::Ended(outcome)),
            Err(NotByGrant::GrantGone) => Ok(None),
            Err(NotByGrant::NotOpened(why)) => Err(why.into()),
        }
    }

    async fn deny(&self, call: DeniedCall) -> Cleared {
        let Some(_rules_stay) = self.rules_of(call.decision()).await else { return Ok(None) };
        let (opening, problem) = call.into_opening(self.config().max_calls_per_run);
        Err(Stop::Ended(self.journal().deny(opening, problem).await??))
    }

    async fn start(&self, call: AllowedCall) -> Cleared {
        let Some(_rules_stay) = self.rules_of(call.decision()).await else { return Ok(None) };
        let opening = call.opening(self.config().max_calls_per_run);
        Ok(Some(self.journal().start(opening, Permit::by_policy(call)).await??))
    }

    async fn start_by_grant(&self, call: GrantableCall, grant: GrantId) -> Cleared {
        let Some(_rules_stay) = self.rules_of(call.decision()).await else { return Ok(None) };
        let opening = call.opening(self.config().max_calls_per_run);
        let permit = Permit::by_grant(call, grant.clone());
        match self.journal().start_by_grant(opening, grant, permit).await? {
            Ok(permit) => Ok(Some(permit)),
            Err(NotByGrant::GrantGone) => Ok(None),
            Err(NotByGrant::NotOpened(why)) => Err(why.into()),
        }
    }

    /// Keeps the rules that decided in force until what follows is recorded; none where others have taken over.
    ///
    /// INVARIANT (decided_by_rules_in_force): nothing is opened by rules that others have replaced in the journal.
    pub(crate) async fn rules_of(&self, decision: &ToolDecision) -> Option<RulesStay> {
        let rules_stay = self.running_policy().stay().await;
        (decision.policy_hash == self.policy_hash()).then_some(rules_stay)
    }
}
