//! The table of rights: which right every method of the interface needs.
//!
//! [`Gate`](super::gate::Gate) enforces it before a method sees a request, so a method that has no line here cannot be
//! reached at all. A test compares the table with the interface's own description.

use palyra_policy::{PolicyAction, PolicyResource};

/// What a method's action is asked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// The daemon as a whole.
    Daemon,
    /// The journal.
    Journal,
    /// The rules.
    PolicySet,
    /// What the request names: the gate asks scopes and role, the engine asks policy once it knows the thing and whose it
    /// is.
    Named,
}

impl On {
    pub(crate) fn resource(self) -> Option<PolicyResource> {
        match self {
            Self::Daemon => Some(PolicyResource::Daemon),
            Self::Journal => Some(PolicyResource::Journal),
            Self::PolicySet => Some(PolicyResource::PolicySet),
            Self::Named => None,
        }
    }
}

/// One method and what it needs.
#[derive(Debug)]
pub(crate) struct Right {
    /// `palyra.v1.Service/Method`
    pub(crate) method: &'static str,
    pub(crate) action: PolicyAction,
    pub(crate) on: On,
}

macro_rules! rights {
    ($($service:ident { $($method:ident: $action:ident on $on:ident,)+ })+) => {
        /// Every method.
        pub(crate) const RIGHTS: &[Right] = &[
            $($(Right {
                method: concat!("palyra.v1.", stringify!($service), "/", stringify!($method)),
                action: PolicyAction::$action,
                on: On::$on,
            },)+)+
        ];
    };
}

rights! {
    Daemon {
        Status: DaemonStatus on Daemon,
    }
    Tools {
        List: ToolList on Daemon,
        Get: ToolList on Daemon,
    }
    Calls {
        Propose: ToolExecute on Named,
        Get: CallRead on Named,
        Follow: CallRead on Named,
        Cancel: CallCancel on Named,
    }
    Approvals {
        List: ApprovalList on Daemon,
        Get: ApprovalList on Daemon,
        Decide: ApprovalDecide on Named,
        Watch: ApprovalList on Daemon,
    }
    Grants {
        List: GrantList on Daemon,
        Revoke: GrantRevoke on Named,
    }
    Policy {
        Explain: PolicyExplain on PolicySet,
        Show: PolicyShow on PolicySet,
        Reload: PolicyReload on PolicySet,
        Compare: PolicyShow on PolicySet,
        Simulate: PolicySimulate on PolicySet,
        Suggest: PolicyShow on PolicySet,
    }
    Journal {
        Tail: JournalRead on Journal,
        Get: JournalRead on Journal,
        OfCall: JournalRead on Journal,
        Verify: JournalVerify on Journal,
        Checkpoint: JournalCheckpoint on Journal,
    }
    Access {
        WhoAmI: AccessRead on Daemon,
        Rights: AccessRead on Daemon,
        ListTokens: TokenList on Daemon,
        CreateToken: TokenCreate on Daemon,
        RotateToken: TokenRotate on Named,
        RevokeToken: TokenRevoke on Named,
        ListMembers: MemberList on Daemon,
        SetMember: MemberManage on Daemon,
        RemoveMember: MemberManage on Daemon,
        ListAgents: MemberList on Daemon,
        AddAgent: AgentManage on Daemon,
        RemoveAgent: AgentManage on Daemon,
        ListGroups: MemberList on Daemon,
        SetGroup: MemberManage on Daemon,
        RemoveGroup: MemberManage on Daemon,
        ListFeatures: FeatureList on Daemon,
        SetFeature: FeatureSet on Daemon,
    }
}

/// What a path needs; nothing for a path that is no method.
pub(crate) fn of(path: &str) -> Option<&'static Right> {
    let method = path.strip_prefix('/')?;
    RIGHTS.iter().find(|right| right.method == method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_a_right_and_every_right_a_method() {
        let described = prost_types::FileDescriptorSet::decode(palyra_api::DESCRIPTORS).unwrap();
        let methods: BTreeSet<String> = described
            .file
            .iter()
            .flat_map(|file| {
                file.service.iter().flat_map(move |service| {
                    let path = move |method: &str| format!("{}.{}/{method}", file.package(), service.name());
                    service.method.iter().map(move |method| path(method.name()))
                })
            })
            .collect();
        let listed: Vec<String> = RIGHTS.iter().map(|right| right.method.to_owned()).collect();
        let unique: BTreeSet<String> = listed.iter().cloned().collect();
        assert_eq!(listed.len(), unique.len(), "a method stands in the table once");
        let missing: Vec<_> = methods.difference(&unique).collect();
        assert!(missing.is_empty(), "methods without a right; say in rights.rs what they need: {missing:?}");
        let stale: Vec<_> = unique.difference(&methods).collect();
        assert!(stale.is_empty(), "rights of methods that do not exist: {stale:?}");
    }

    #[test]
    fn other_paths_have_no_right() {
        assert!(of("/palyra.v1.Daemon/Status").is_some());
        for path in ["", "/", "palyra.v1.Daemon/Status", "/palyra.v1.Daemon/status", "/palyra.v1.Daemon/Status/", "/x"]
        {
            assert!(of(path).is_none(), "{path}");
        }
    }
}
