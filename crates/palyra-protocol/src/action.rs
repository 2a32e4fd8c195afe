//! The verbs that policy knows. Every door that does one of these asks first, under this name.
//!
//! The list is closed: a verb that is not here cannot be asked about, and a test holds it to the schema.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// What a principal wants to do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum PolicyAction {
            $($(#[$doc])* #[serde(rename = $name)] $variant),+
        }

        impl PolicyAction {
            /// Every action, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name that rules, listings and the journal use.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

actions! {
    /// Run a tool.
    ToolExecute = "tool.execute",
    /// Run a skill.
    SkillExecute = "skill.execute",
    /// Answer an approval.
    ApprovalDecide = "approval.decide",
    /// See which tools there are.
    ToolList = "tool.list",
    /// Ask how the daemon is.
    DaemonStatus = "daemon.status",
    /// Read a secret.
    VaultGet = "vault.get",
    /// Put a secret in, or bind it to endpoints.
    VaultPut = "vault.put",
    /// Delete a secret.
    VaultDelete = "vault.delete",
    /// See which secrets there are, never their values.
    VaultList = "vault.list",
    /// Tend the vault itself: its keys, its backend, copies of all of it.
    VaultManage = "vault.manage",
    /// Search the memory.
    MemorySearch = "memory.search",
    /// Have something remembered.
    MemoryRetain = "memory.retain",
    /// Have something forgotten.
    MemoryForget = "memory.forget",
    /// Add a routine, or let a paused one go on.
    CronCreate = "cron.create",
    /// Run a routine now.
    CronRun = "cron.run",
    /// Remove or pause a routine.
    CronDelete = "cron.delete",
    /// See the routines and what became of their slots.
    CronList = "cron.list",
    /// See what waits for a person.
    ApprovalList = "approval.list",
    /// See the standing grants.
    GrantList = "grant.list",
    /// Withdraw a grant.
    GrantRevoke = "grant.revoke",
    /// Read the journal.
    JournalRead = "journal.read",
    /// Check the journal's chain.
    JournalVerify = "journal.verify",
    /// Sign the journal's head.
    JournalCheckpoint = "journal.checkpoint",
    /// Ask why.
    PolicyExplain = "policy.explain",
    /// See the rules.
    PolicyShow = "policy.show",
    /// Follow a call.
    CallRead = "call.read",
    /// Withdraw a call.
    CallCancel = "call.cancel",
    /// Propose in an agent's name.
    ActAs = "act_as",
    /// Have a rule count as a person's approval. Nobody does this; it is asked about a call that needs a person.
    ApprovalWaive = "approval.waive",
    /// Read the rules anew.
    PolicyReload = "policy.reload",
    /// Ask what other rules would have decided.
    PolicySimulate = "policy.simulate",
    /// See who one is, and what that allows.
    AccessRead = "access.read",
    /// Issue a token.
    TokenCreate = "token.create",
    /// See the tokens.
    TokenList = "token.list",
    /// Replace a token's secret.
    TokenRotate = "token.rotate",
    /// Withdraw a token.
    TokenRevoke = "token.revoke",
    /// See who has which role.
    MemberList = "member.list",
    /// Give and take roles.
    MemberManage = "member.manage",
    /// Register and remove agents.
    AgentManage = "agent.manage",
    /// See the feature flags.
    FeatureList = "feature.list",
    /// Set a feature flag.
    FeatureSet = "feature.set",
    /// See the paired devices.
    DeviceList = "device.list",
    /// Pair a device.
    DevicePair = "device.pair",
    /// Withdraw a device's identity.
    DeviceRevoke = "device.revoke",
    /// Open the console in a browser, in one's own name.
    ConsoleOpen = "console.open",
    /// See and end the console sessions of others.
    ConsoleManage = "console.manage",
    /// Register workspaces, and remove them.
    WorkspaceManage = "workspace.manage",
    /// End the daemon.
    DaemonStop = "daemon.stop",
    /// Have what a call changed count. Nobody does this; it is asked about a call that has run.
    EffectApply = "effect.apply",
    /// See what a call changed.
    EffectRead = "effect.read",
    /// Put back what a call changed.
    EffectUndo = "effect.undo",
    /// Start an agent's run.
    RunStart = "run.start",
    /// See an agent's run.
    RunRead = "run.read",
    /// End an agent's run.
    RunCancel = "run.cancel",
    /// Have a model answer.
    ModelInvoke = "model.invoke",
    /// Use the daemon as an OpenAI-compatible endpoint.
    CompatChatCreate = "compat.chat.create",
    /// See which models the OpenAI-compatible endpoint has.
    CompatModelsList = "compat.models.list",
    /// See which skills there are, how they stand, and whom the trust store trusts.
    SkillList = "skill.list",
    /// Install, quarantine, release and remove skills; say which publishers are trusted.
    SkillManage = "skill.manage",
}

impl PolicyAction {
    /// Whether its circumstances include a tool call's arguments (`ToolUse` in the schema, otherwise `Door`).
    #[must_use]
    pub fn concerns_tool_use(self) -> bool {
        matches!(
            self,
            Self::ToolExecute | Self::SkillExecute | Self::ApprovalDecide | Self::ApprovalWaive | Self::EffectApply
        )
    }
}

impl PolicyAction {
    /// Whether it answers for a person, or changes who may: never for a process of an agent's client.
    #[must_use]
    pub fn is_peoples(self) -> bool {
        matches!(
            self,
            Self::ApprovalDecide
                | Self::AgentManage
                | Self::ConsoleManage
                | Self::ConsoleOpen
                | Self::CronCreate
                | Self::CronDelete
                | Self::CronRun
                | Self::DaemonStop
                | Self::DevicePair
                | Self::DeviceRevoke
                | Self::EffectUndo
                | Self::FeatureSet
                | Self::GrantRevoke
                | Self::MemberManage
                | Self::MemoryForget
                | Self::MemoryRetain
                | Self::PolicyReload
                | Self::SkillManage
                | Self::TokenCreate
                | Self::TokenRevoke
                | Self::TokenRotate
                | Self::VaultDelete
                | Self::VaultGet
                | Self::VaultManage
                | Self::VaultPut
                | Self::WorkspaceManage
        )
    }
}

impl PolicyAction {
    /// Whether its circumstances include a secret's scope and key (`SecretUse` in the schema).
    #[must_use]
    pub fn concerns_secrets(self) -> bool {
        matches!(self, Self::VaultGet | Self::VaultPut | Self::VaultDelete | Self::VaultList)
    }
}

impl PolicyAction {
    /// Whether its circumstances include a memory scope and a trust (`MemoryUse` in the schema).
    #[must_use]
    pub fn concerns_memory(self) -> bool {
        matches!(self, Self::MemorySearch | Self::MemoryRetain | Self::MemoryForget)
    }

    /// Whether it needs a person's approval wherever nothing else says so: it acts, or lets something act, when nobody
    /// watches.
    #[must_use]
    pub fn is_sensitive_itself(self) -> bool {
        matches!(self, Self::VaultGet | Self::CronCreate | Self::CronRun | Self::CronDelete)
    }
}

impl fmt::Display for PolicyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown action; the actions are {}", known())]
pub struct UnknownAction;

fn known() -> String {
    PolicyAction::ALL.iter().map(|a| a.as_str()).collect::<Vec<_>>().join(", ")
}

impl std::str::FromStr for PolicyAction {
    type Err = UnknownAction;
    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        Self::ALL.iter().copied().find(|a| a.as_str() == text).ok_or(UnknownAction)
    }
}
