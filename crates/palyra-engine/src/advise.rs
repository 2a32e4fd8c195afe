//! The first half of the path alone: resolve and decide, for whoever wants to know and has no daemon.
//!
//! There is no journal here and no executor, so nothing can be recorded or carried out.

use crate::catalog::ToolCatalog;
use crate::config::ToolCallConfig;
use crate::engine::StartError;
use crate::flow::decide::{Detail, ToolFacts, decide};
use crate::flow::propose::Proposal;
use crate::flow::resolve::Resolver;
use crate::tools::Place;
use palyra_egress::{Fetcher, Roots, SystemResolver};
use palyra_policy::PolicyEngine;
use palyra_protocol::{
    CallId, CallRecord, ChannelId, Origin, Principal, Problem, SessionId, ToolDecision, ToolProposal,
};
use palyra_workspace::Workspace;
use std::sync::Arc;

/// Resolves and decides; nothing else.
#[derive(Debug)]
pub struct Advisor {
    policy: PolicyEngine,
    workspace: Workspace,
    config: ToolCallConfig,
    catalog: Arc<ToolCatalog>,
    fetcher: Arc<Fetcher>,
}

impl Advisor {
    /// Puts the parts together.
    ///
    /// # Errors
    /// A tool's definition is broken.
    pub fn new(policy: PolicyEngine, workspace: Workspace, config: ToolCallConfig) -> Result<Self, StartError> {
        let catalog = Arc::new(ToolCatalog::builtin()?);
        let fetcher = Arc::new(Fetcher::new(Arc::clone(&config.egress_rules), Arc::new(SystemResolver), Roots::System));
        Ok(Self { policy, workspace, config, catalog, fetcher })
    }

    /// The rules.
    #[must_use]
    pub fn policy(&self) -> &PolicyEngine {
        &self.policy
    }

    /// What would be decided about a proposal, fully explained.
    ///
    /// # Errors
    /// It is no call, or a rule that no policy can lift forbids it.
    pub fn decide(
        &self,
        principal: Principal,
        proposed_by: Principal,
        channel: ChannelId,
        proposal: Proposal,
    ) -> Result<(Arc<CallRecord>, ToolDecision), Problem> {
        let session = proposal.session.unwrap_or_else(SessionId::mint);
        let run = proposal.run.unwrap_or_else(|| session.default_run());
        let proposal = ToolProposal {
            tool: proposal.tool,
            input: proposal.input,
            idempotency_key: proposal.idempotency_key,
            origin: Origin {
                principal,
                proposed_by,
                channel,
                device: None,
                session,
                run,
                workspace: None,
                request: None,
                token: None,
                carrier: proposal.carrier,
            },
        };
        let (workspace, config, fetcher) = (&self.workspace, &self.config, &self.fetcher);
        let place = Place { workspace, config, fetcher, effects: None, vault: None, memory: None };
        let resolver = Resolver { catalog: Arc::clone(&self.catalog), place };
        let resolved = resolver.resolve(CallId::mint(), &proposal).map_err(|refusal| refusal.problem)?;
        let facts = ToolFacts { catalog: Arc::clone(&self.catalog), config: &self.config, memory: None };
        let decision = decide(&self.policy, facts, &resolved.call, Detail::Full);
        Ok((resolved.call.record(), decision))
    }
}
