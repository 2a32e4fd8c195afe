//! The question: who wants to do what on what, and under which circumstances.

use crate::resource::PolicyResource;
use palyra_protocol::{
    ApprovalDecision, ChannelId, DeviceId, EffectCounts, Facets, MemoryTrust, PolicyAction, Principal, RiskLevel,
    RunId, SessionId, ToolCapability, ToolMetadata, WorkspaceRole,
};
use serde::{Deserialize, Serialize};

/// Who wants to do what on what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    /// In whose name.
    pub principal: Principal,
    /// The verb.
    pub action: PolicyAction,
    /// The object.
    pub resource: PolicyResource,
}

/// How far a skill is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillTrust {
    /// Nobody vouches for its publisher.
    Unknown,
    /// Its publisher is in the trust store.
    Trusted,
    /// So it is, and an audit of this very version passed.
    Verified,
}

impl SkillTrust {
    /// The name that rules use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Trusted => "trusted",
            Self::Verified => "verified",
        }
    }
}

/// The circumstances, established by the daemon and never by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequestContext {
    /// The door it came through.
    pub channel: ChannelId,
    /// The device it came from.
    #[serde(default)]
    pub device_id: Option<DeviceId>,
    /// The directory that tools work in: its real path.
    #[serde(default)]
    pub workspace: Option<String>,
    /// What the principal is to this daemon, besides what the configuration's lists say.
    #[serde(default)]
    pub roles: Vec<WorkspaceRole>,
    /// The role that the principal's token leaves it. It takes the place of every role that the principal has.
    #[serde(default)]
    pub role: Option<WorkspaceRole>,
    /// Everybody who had a hand in the token that this request shows.
    #[serde(default)]
    pub issued_by: Vec<Principal>,
    /// Everybody who had a hand in the token that the call was proposed with, for the call and for whoever decides
    /// about it.
    #[serde(default)]
    pub proposal_issued_by: Vec<Principal>,
    /// The session it belongs to.
    #[serde(default)]
    pub session_id: Option<SessionId>,
    /// The run it belongs to.
    #[serde(default)]
    pub run_id: Option<RunId>,
    /// Who made the proposal, when that is not the principal: an owner acting as an agent.
    #[serde(default)]
    pub proposed_by: Option<Principal>,
    /// Whose call, approval or grant the resource is.
    #[serde(default)]
    pub owned_by: Option<Principal>,
    /// The tool an approval is about; for `tool.execute` the resource says it.
    #[serde(default)]
    pub tool: Option<String>,
    /// The skill that brought the tool.
    #[serde(default)]
    pub skill_id: Option<String>,
    /// Who published that skill.
    #[serde(default)]
    pub publisher: Option<String>,
    /// How far that skill is trusted.
    #[serde(default)]
    pub trust: Option<SkillTrust>,
    /// What the tool can do to the world.
    #[serde(default)]
    pub capabilities: Vec<ToolCapability>,
    /// How bad a wrong call can be.
    #[serde(default)]
    pub risk: Option<RiskLevel>,
    /// What is answered, for `approval.decide`.
    #[serde(default)]
    pub answer: Option<ApprovalDecision>,
    /// Whether a passkey of the person who answers has confirmed the answer, with its user verified.
    #[serde(default)]
    pub approver_verified: bool,
    /// Whether *this* action is sensitive. Deciding about a sensitive call is not itself sensitive.
    #[serde(default)]
    pub is_sensitive_action: bool,
    /// Whether the operator's list of allowed tools has this one.
    #[serde(default)]
    pub is_allowlisted_tool: bool,
    /// Whether a person's approval, or a live grant of theirs, covers exactly this call.
    #[serde(default)]
    pub allow_sensitive_tools: bool,
    /// How many different people have approved exactly this call.
    #[serde(default)]
    pub approval_count: u32,
    /// What the call would touch; for the effect of a call that has run, what it wrote.
    #[serde(default)]
    pub facets: Facets,
    /// What a call that has run would change besides the paths it wrote.
    #[serde(default)]
    pub effect: EffectUse,
    /// The lowest trust of what the session has recalled from memory; none where it recalled nothing.
    #[serde(default)]
    pub recalled_trust: Option<MemoryTrust>,
    /// How far the memory entry is trusted that the request is about.
    #[serde(default)]
    pub memory_trust: Option<MemoryTrust>,
}

/// What rules can say about the effect of a call that has run, besides the paths in [`Facets::paths_written`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EffectUse {
    /// Paths that would be gone.
    pub deletes: Vec<String>,
    /// Paths that nothing writes without consent.
    pub guarded: Vec<String>,
    /// How many changes of each kind.
    pub counts: EffectCounts,
    /// Bytes of new file content.
    pub bytes: u64,
}

impl PolicyRequestContext {
    /// Circumstances of a request that is no tool call: only the door is known.
    #[must_use]
    pub fn new(channel: ChannelId) -> Self {
        Self {
            channel,
            device_id: None,
            workspace: None,
            roles: Vec::new(),
            role: None,
            issued_by: Vec::new(),
            proposal_issued_by: Vec::new(),
            session_id: None,
            run_id: None,
            proposed_by: None,
            owned_by: None,
            tool: None,
            skill_id: None,
            publisher: None,
            trust: None,
            capabilities: Vec::new(),
            risk: None,
            answer: None,
            approver_verified: false,
            is_sensitive_action: false,
            is_allowlisted_tool: false,
            allow_sensitive_tools: false,
            approval_count: 0,
            facets: Facets::default(),
            effect: EffectUse::default(),
            recalled_trust: None,
            memory_trust: None,
        }
    }

    /// Circumstances of a tool call: sensitivity, capabilities and risk come from the tool's definition.
    #[must_use]
    pub fn for_tool(channel: ChannelId, metadata: &ToolMetadata, facets: Facets) -> Self {
        Self {
            capabilities: metadata.capabilities_of(&facets),
            risk: Some(metadata.risk),
            is_sensitive_action: metadata.is_sensitive(),
            facets,
            ..Self::new(channel)
        }
    }
}
