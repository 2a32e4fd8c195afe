//! Who is speaking, and what they may do.
//!
//! Every door turns its caller into a [`VerifiedPeer`] here and nowhere else, and every operation of the engine asks
//! policy about that peer before it does anything. No door decides for itself.

use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyDecision, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::{ChannelId, Principal, Problem};

/// A caller whose identity a door has established.
///
/// INVARIANT (one_notion_of_caller): private fields, no `Clone`, constructed only in this file, by a check.
#[derive(Debug)]
pub struct VerifiedPeer {
    principal: Principal,
    acting_as: Option<Principal>,
    channel: ChannelId,
}

impl VerifiedPeer {
    /// A peer on the daemon's own UNIX socket: the daemon's user, and nobody else.
    ///
    /// # Errors
    /// The peer runs as another user.
    pub fn on_local_socket(peer_uid: Option<u32>, daemon_uid: u32, channel: ChannelId) -> Result<Self, EngineError> {
        if peer_uid != Some(daemon_uid) {
            return Err(EngineError::new(
                ErrorKind::Forbidden,
                Problem::new(
                    "foreign_user",
                    "this socket answers only to the user that runs the daemon",
                    "run the command as that user",
                ),
            ));
        }
        Ok(Self { principal: Principal::local_owner(), acting_as: None, channel })
    }

    /// In whose name the peer acts.
    #[must_use]
    pub fn effective(&self) -> &Principal {
        self.acting_as.as_ref().unwrap_or(&self.principal)
    }

    /// Who the peer is.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The door it came through.
    #[must_use]
    pub fn channel(&self) -> &ChannelId {
        &self.channel
    }
}

impl Engine {
    /// Lets an owner act in an agent's name, if policy says so.
    ///
    /// # Errors
    /// The name is not an agent's, or policy denies.
    pub fn act_as(&self, peer: VerifiedPeer, name: Principal) -> Result<VerifiedPeer, EngineError> {
        if name == peer.principal {
            return Ok(peer);
        }
        let Some(agent) = PolicyResource::agent(&name) else {
            return Err(EngineError::new(
                ErrorKind::Forbidden,
                Problem::new(
                    "act_as_not_agent",
                    format!("nobody can act as `{name}`"),
                    "only `agent:NAME` can be acted as",
                ),
            ));
        };
        self.authorize(&peer, PolicyAction::ActAs, agent, None)?;
        Ok(VerifiedPeer { acting_as: Some(name), ..peer })
    }

    /// Asks policy whether the peer may do this.
    ///
    /// # Errors
    /// Policy denies; the answer says which rule and what would change it.
    pub(crate) fn authorize(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        resource: PolicyResource,
        context: Option<PolicyRequestContext>,
    ) -> Result<(), EngineError> {
        self.authorize_as(peer.effective(), peer, action, resource, context)
    }

    /// Asks policy about the peer under one of its own names.
    pub(crate) fn authorize_as(
        &self,
        principal: &Principal,
        peer: &VerifiedPeer,
        action: PolicyAction,
        resource: PolicyResource,
        context: Option<PolicyRequestContext>,
    ) -> Result<(), EngineError> {
        let context = context.unwrap_or_else(|| PolicyRequestContext::new(peer.channel.clone()));
        let request = PolicyRequest { principal: principal.clone(), action, resource };
        let evaluation = self.policy().evaluate_with_context(&request, &context);
        match evaluation.decision {
            PolicyDecision::Allow => Ok(()),
            PolicyDecision::DenyByDefault => Err(EngineError::new(
                ErrorKind::Forbidden,
                Problem::new(
                    "forbidden",
                    format!(
                        "`{}` may not do `{}`: {}",
                        request.principal,
                        action.as_str(),
                        evaluation.explanation.summary()
                    ),
                    "see which rule decided: `palyra policy explain`",
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_daemons_own_user_is_the_owner() {
        let channel = || "cli".parse().unwrap();
        assert!(VerifiedPeer::on_local_socket(Some(1000), 1000, channel()).is_ok());
        for stranger in [None, Some(0), Some(1001)] {
            let refused = VerifiedPeer::on_local_socket(stranger, 1000, channel()).unwrap_err();
            assert_eq!(refused.problem.code, "foreign_user");
        }
    }
}
