//! The table of rights: which right every method and route of every door needs.
//!
//! Each door's gate enforces it before a method sees a request, so one that has no line here cannot be reached at all.
//! Tests compare the table with the doors' own descriptions: the gRPC interface and the OpenAPI document.

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
    /// What the request names: the gate asks scopes and role, the engine asks policy once it knows the thing and whose
    /// it is.
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

/// One method or route and what it needs.
#[derive(Debug)]
pub(crate) struct Right {
    /// `palyra.v1.Service/Method`, or `VERB /path`
    pub(crate) method: &'static str,
    pub(crate) action: PolicyAction,
    pub(crate) on: On,
}

macro_rules! rights {
    (
        http { $($route:literal: $right:ident on $thing:ident,)+ }
        $($service:ident { $($method:ident: $action:ident on $on:ident,)+ })+
    ) => {
        /// Every method and every route but the open ones.
        pub(crate) const RIGHTS: &[Right] = &[
            $($(Right {
                method: concat!("palyra.v1.", stringify!($service), "/", stringify!($method)),
                action: PolicyAction::$action,
                on: On::$on,
            },)+)+
            $(Right { method: $route, action: PolicyAction::$right, on: On::$thing },)+
        ];
    };
}

rights! {
    http {
        "GET /v1/tools": ToolList on Daemon,
        "POST /v1/tools/invoke": ToolExecute on Named,
        "GET /v1/calls/{call_id}": CallRead on Named,
        "GET /v1/calls/{call_id}/events": CallRead on Named,
        "DELETE /v1/calls/{call_id}": CallCancel on Named,
        "GET /v1/approvals": ApprovalList on Daemon,
        "GET /v1/approvals/{approval_id}": ApprovalList on Daemon,
        "POST /v1/approvals/{approval_id}/decide": ApprovalDecide on Named,
        "POST /v1/chat/completions": CompatChatCreate on Daemon,
        "POST /v1/responses": CompatChatCreate on Daemon,
        "GET /v1/responses/{response_id}": CompatChatCreate on Daemon,
        "POST /v1/responses/{response_id}/cancel": CompatChatCreate on Daemon,
        "GET /v1/models": CompatModelsList on Daemon,
        "GET /console/api/me": AccessRead on Daemon,
        "GET /console/api/sessions": ConsoleOpen on Daemon,
        "POST /console/api/sessions/{session}/end": ConsoleOpen on Daemon,
        "GET /console/api/stream": AccessRead on Daemon,
        "GET /console/api/inbox": ApprovalList on Daemon,
        "GET /console/api/inbox/{approval_id}": ApprovalList on Daemon,
        "POST /console/api/inbox/{approval_id}/decide": ApprovalDecide on Named,
        "GET /console/api/calls": CallRead on Named,
        "GET /console/api/calls/{call_id}": CallRead on Named,
        "GET /console/api/calls/{call_id}/evidence": CallRead on Named,
        "GET /console/api/calls/{call_id}/events": CallRead on Named,
        "POST /console/api/calls/{call_id}/cancel": CallCancel on Named,
        "GET /console/api/grants": GrantList on Daemon,
        "POST /console/api/grants/{grant_id}/revoke": GrantRevoke on Named,
        "GET /console/api/policy": PolicyShow on PolicySet,
        "POST /console/api/policy/check": PolicyShow on PolicySet,
        "POST /console/api/policy/simulate": PolicySimulate on PolicySet,
        "POST /console/api/policy/adopt": PolicyReload on PolicySet,
        "GET /console/api/runs": RunRead on Daemon,
        "POST /console/api/runs": RunStart on Named,
        "GET /console/api/runs/{run}": RunRead on Daemon,
        "GET /console/api/runs/{run}/news": RunRead on Daemon,
        "POST /console/api/runs/{run}/cancel": RunCancel on Named,
        "POST /console/api/runs/{run}/resume": RunCancel on Named,
        "GET /console/api/skills": SkillList on Daemon,
        "POST /console/api/skills/check": SkillManage on Daemon,
        "GET /console/api/skills/{skill}": SkillList on Daemon,
        "POST /console/api/skills/{skill}/quarantine": SkillManage on Named,
        "POST /console/api/skills/{skill}/release": SkillManage on Named,
        "POST /console/api/skills/{skill}/use/{version}": SkillManage on Named,
        "GET /console/api/memory": MemorySearch on Named,
        "POST /console/api/memory": MemoryRetain on Named,
        "POST /console/api/memory/{entry_id}/forget": MemoryForget on Named,
        "GET /console/api/routines": CronList on Daemon,
        "POST /console/api/routines": CronCreate on Named,
        "POST /console/api/routines/{routine}/pause": CronDelete on Named,
        "POST /console/api/routines/{routine}/resume": CronCreate on Named,
        "POST /console/api/routines/{routine}/run": CronRun on Named,
        "POST /console/api/routines/{routine}/rehearse": CronRun on Named,
        "POST /console/api/routines/{routine}/remove": CronDelete on Named,
        "GET /console/api/vault": VaultList on Daemon,
        "GET /console/api/vault/blame": VaultList on Named,
        "GET /console/api/devices": DeviceList on Daemon,
        "POST /console/api/devices/code": DevicePair on Daemon,
        "POST /console/api/devices/{device}/revoke": DeviceRevoke on Named,
        "GET /console/api/access": AccessRead on Daemon,
        "POST /console/api/access/tokens/{token_id}/revoke": TokenRevoke on Named,
        "GET /console/api/passkeys": ConsoleOpen on Daemon,
        "POST /console/api/passkeys": ConsoleOpen on Daemon,
        "GET /console/api/effects": EffectRead on Daemon,
        "POST /console/api/effects/{view}/undo": EffectUndo on Daemon,
        "GET /console/api/journal": JournalRead on Journal,
        "GET /console/api/journal/links": JournalRead on Journal,
        "POST /console/api/journal/checkpoint": JournalCheckpoint on Journal,
        "GET /console/api/health": DaemonStatus on Daemon,
        "POST /mcp": ToolExecute on Named,
        "GET /mcp": ToolExecute on Named,
        "DELETE /mcp": ToolExecute on Named,
    }
    Runs {
        Start: RunStart on Named,
        Get: RunRead on Daemon,
        List: RunRead on Daemon,
        Stream: RunRead on Daemon,
        Cancel: RunCancel on Named,
        Resume: RunCancel on Named,
    }
    Models {
        List: CompatModelsList on Daemon,
        Test: ModelInvoke on Named,
    }
    Daemon {
        Status: DaemonStatus on Daemon,
        Stop: DaemonStop on Daemon,
    }
    Tools {
        List: ToolList on Daemon,
        Get: ToolList on Daemon,
    }
    Calls {
        Propose: ToolExecute on Named,
        Get: CallRead on Named,
        Follow: CallRead on Named,
        List: CallRead on Named,
        Cancel: CallCancel on Named,
        Redeem: ToolExecute on Named,
        Report: ToolExecute on Named,
    }
    Approvals {
        List: ApprovalList on Daemon,
        Get: ApprovalList on Daemon,
        Decide: ApprovalDecide on Named,
        Watch: ApprovalList on Daemon,
        TakeBack: ApprovalDecide on Named,
    }
    Grants {
        List: GrantList on Daemon,
        Get: GrantList on Daemon,
        Revoke: GrantRevoke on Named,
    }
    Effects {
        List: EffectRead on Daemon,
        Show: EffectRead on Daemon,
        Diff: EffectRead on Daemon,
        Undo: EffectUndo on Daemon,
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
    Vault {
        Put: VaultPut on Named,
        Get: VaultGet on Named,
        List: VaultList on Daemon,
        Delete: VaultDelete on Named,
        Versions: VaultList on Named,
        EndGrace: VaultDelete on Named,
        Bind: VaultPut on Named,
        Unbind: VaultPut on Named,
        Bindings: VaultList on Daemon,
        Blame: VaultList on Named,
        Status: VaultList on Daemon,
        Unlock: VaultManage on Daemon,
        AddSlot: VaultManage on Daemon,
        RemoveSlot: VaultManage on Daemon,
        Rekey: VaultManage on Daemon,
        Migrate: VaultManage on Daemon,
        Export: VaultManage on Daemon,
        Import: VaultManage on Daemon,
    }
    Memory {
        Add: MemoryRetain on Named,
        List: MemorySearch on Named,
        Search: MemorySearch on Named,
        Show: MemorySearch on Named,
        Forget: MemoryForget on Named,
    }
    Routines {
        Add: CronCreate on Named,
        List: CronList on Daemon,
        Show: CronList on Daemon,
        Pause: CronDelete on Named,
        Resume: CronCreate on Named,
        Run: CronRun on Named,
        Rehearse: CronRun on Named,
        Remove: CronDelete on Named,
        History: CronList on Daemon,
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
    Console {
        CreateCode: ConsoleOpen on Daemon,
        ListSessions: ConsoleOpen on Daemon,
        EndSession: ConsoleOpen on Daemon,
        ListPasskeys: ConsoleOpen on Daemon,
        RemovePasskey: ConsoleOpen on Daemon,
    }
    Skills {
        List: SkillList on Daemon,
        Info: SkillList on Daemon,
        Examine: SkillList on Daemon,
        Install: SkillManage on Daemon,
        Diff: SkillList on Daemon,
        Check: SkillManage on Daemon,
        Quarantine: SkillManage on Named,
        Release: SkillManage on Named,
        Use: SkillManage on Named,
        Remove: SkillManage on Named,
        Replay: CallRead on Named,
        TrustList: SkillList on Daemon,
        TrustAdd: SkillManage on Daemon,
        TrustRemove: SkillManage on Daemon,
        TrustRevoke: SkillManage on Daemon,
        TrustRotate: SkillManage on Daemon,
        TrustResetVersions: SkillManage on Named,
        TrustReset: SkillManage on Daemon,
    }
    Devices {
        List: DeviceList on Daemon,
        Get: DeviceList on Daemon,
        Rename: DeviceRevoke on Named,
        SetRole: DeviceRevoke on Named,
        Rotate: DeviceRevoke on Named,
        Revoke: DeviceRevoke on Named,
        Remove: DeviceRevoke on Named,
        Own: AccessRead on Daemon,
        Renew: AccessRead on Daemon,
        AddBrowser: AccessRead on Daemon,
        Authority: DeviceList on Daemon,
        RotateAuthority: DevicePair on Daemon,
        Exposure: DeviceList on Daemon,
        CreateCode: DevicePair on Daemon,
        WithdrawCode: DevicePair on Daemon,
    }
}

/// The routes that need no token: they tell nothing but that the daemon is there, what its interface is, and the
/// console's pages without any data. A console session is opened by a one-time code.
pub(crate) const OPEN: &[&str] = &[
    "GET /healthz",
    "GET /readyz",
    "GET /openapi.json",
    "GET /",
    "GET /console/",
    "GET /console/{page}",
    "GET /console/assets/{file}",
    "POST /console/session",
];

/// The methods that every gRPC server has, and that standard clients ask first.
const STANDARD: &[Right] = &[
    Right { method: "grpc.health.v1.Health/Check", action: PolicyAction::DaemonStatus, on: On::Daemon },
    Right { method: "grpc.health.v1.Health/Watch", action: PolicyAction::DaemonStatus, on: On::Daemon },
    Right {
        method: "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        action: PolicyAction::AccessRead,
        on: On::Daemon,
    },
    Right {
        method: "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        action: PolicyAction::AccessRead,
        on: On::Daemon,
    },
];

/// What a gRPC path needs; nothing for a path that is no method.
pub(crate) fn of(path: &str) -> Option<&'static Right> {
    let method = path.strip_prefix('/')?;
    RIGHTS.iter().chain(STANDARD).find(|right| right.method == method)
}

/// What a route needs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Need {
    /// Nothing.
    Open,
    /// A token with this right.
    Right(&'static Right),
}

/// What a route needs, by its verb and the pattern of its path; nothing for what is no route.
pub(crate) fn of_route(verb: &str, pattern: &str) -> Option<Need> {
    let is = |line: &str| line.split_once(' ') == Some((verb, pattern));
    if OPEN.iter().any(|line| is(line)) {
        return Some(Need::Open);
    }
    RIGHTS.iter().find(|right| is(right.method)).map(Need::Right)
}

/// The verbs that a path can be asked with.
pub(crate) fn verbs(pattern: &str) -> impl Iterator<Item = &'static str> {
    let lines = OPEN.iter().copied().chain(RIGHTS.iter().map(|right| right.method));
    lines.filter_map(|line| line.split_once(' ')).filter(move |(_, path)| *path == pattern).map(|(verb, _)| verb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use std::collections::BTreeSet;

    /// The routes that the OpenAPI document describes: it is made of those that the router has.
    fn routes() -> BTreeSet<String> {
        let described = serde_json::to_value(crate::http::description()).unwrap();
        let paths = described["paths"].as_object().unwrap();
        let verbs = |path: &serde_json::Value| path.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let routes = paths.iter().flat_map(|(path, item)| {
            verbs(item).into_iter().map(move |verb| format!("{} {path}", verb.to_uppercase()))
        });
        // MCP describes itself, and OpenAI its own routes.
        let own = ["POST /mcp", "GET /mcp", "DELETE /mcp"].into_iter().chain(crate::http::COMPAT_ROUTES);
        let console = crate::console::ROUTES.iter().map(|route| (*route).to_owned());
        let routes: BTreeSet<String> = routes.chain(own.map(str::to_owned)).chain(console).collect();
        assert!(routes.len() >= 10, "{routes:?}");
        routes
    }

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
        let routes = routes();
        let listed = RIGHTS.iter().map(|right| right.method).chain(OPEN.iter().copied());
        let listed: Vec<String> = listed.map(str::to_owned).collect();
        let methods: BTreeSet<String> = methods.union(&routes).cloned().collect();
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
        assert!(matches!(of_route("GET", "/healthz"), Some(Need::Open)));
        assert!(matches!(of_route("GET", "/v1/calls/{call_id}"), Some(Need::Right(_))));
        for (verb, path) in [("HEAD", "/v1/tools"), ("get", "/v1/tools"), ("GET", "/v1/tools/"), ("GET", "/v1/calls/x")]
        {
            assert!(of_route(verb, path).is_none(), "{verb} {path}");
        }
        assert_eq!(verbs("/v1/calls/{call_id}").collect::<Vec<_>>(), ["GET", "DELETE"]);
    }
}
