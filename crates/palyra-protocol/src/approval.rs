//! Approvals and grants: a human's answer to one call, and the standing answer it may leave behind.
//!
//! An approval binds to the call that was shown: its digest and the policy it was asked under. Its scope says how long
//! the answer holds, its matcher how wide. The subject's name (`tool:name|skill:id`) groups approvals for people; it is
//! never a licence for other arguments.

use crate::access::ShownToken;
use crate::capability::RiskLevel;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::facets::Facets;
use crate::grant_match::GrantMatcher;
use crate::id::{ApprovalId, CallId, DecisionId, GrantId, SessionId, WorkspaceId};
use crate::principal::Principal;
use crate::signed_decision::DecisionSignature;
use crate::subject::ApprovalSubject;
use crate::tool::ToolName;
use serde::{Deserialize, Serialize};

/// Where an approval stands. It leaves `Pending` exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has answered.
    Pending,
    /// A human said yes.
    Allowed,
    /// A human said no.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The call was withdrawn.
    Cancelled,
}

impl ApprovalState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Allowed, Self::Denied, Self::Expired, Self::Cancelled];

    /// The name in listings and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// What a human says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// Yes.
    Allow,
    /// No.
    Deny,
}

impl ApprovalDecision {
    /// Its name, as rules and records spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// How long a yes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// For this call alone.
    Once,
    /// For the rest of the session it was asked in.
    Session,
    /// For a time, in any session of the same principal.
    Window {
        /// How long, in milliseconds.
        ms: u64,
    },
}

/// The longest time window: a day.
pub const MAX_WINDOW_MS: u64 = 24 * 60 * 60 * 1000;

/// A question to a human, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRecord {
    /// The approval's id.
    pub approval_id: ApprovalId,
    /// The call that waits; an id of its own where the subject is no call.
    pub call_id: CallId,
    /// The subject: `tool:name|skill:id`.
    pub subject_id: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "ApprovalSubject::is_call")]
    pub subject: ApprovalSubject,
    /// The tool.
    pub tool: ToolName,
    /// The digest of the call that was shown.
    pub call_digest: Digest,
    /// The decision that asks for a human.
    pub decision_id: DecisionId,
    /// The policy it was asked under.
    pub policy_hash: Digest,
    /// How bad a wrong yes can be.
    pub risk: RiskLevel,
    /// In whose name the call is made.
    pub principal: Principal,
    /// Who made the proposal.
    pub proposed_by: Principal,
    /// The token they showed. When it is withdrawn, the question ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// The session it was asked in.
    pub session: SessionId,
    /// The workspace that it is about; none in records from before there could be several, and for what is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// What will run, exactly and unredacted: the canonical input.
    pub input: serde_json::Value,
    /// What it will touch.
    pub facets: Facets,
    /// Why a human is asked.
    pub why: String,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// How many different people have to say yes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub people: u32,
    /// Whether a rule counts the people who approve this very call: no grant covers it, and a yes leaves none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// Those who have said yes while others are still needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<GivenApproval>,
    /// Where it stands.
    pub state: ApprovalState,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ApprovalResolution>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over by reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// One person's yes to a question that needs several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenApproval {
    /// Who.
    pub by: Principal,
    /// The token they showed; none on the daemon's own socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Their browser's signature, where they said it in the console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Box<DecisionSignature>>,
}

/// How an approval ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResolution {
    /// Who ended it: a person, whoever withdrew the call, or the daemon.
    pub by: Principal,
    /// The token they showed; none on the daemon's own socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// When.
    pub at: Timestamp,
    /// How long a yes holds.
    pub scope: ApprovalScope,
    /// How wide a yes is.
    pub matcher: GrantMatcher,
    /// The approver's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The grant it left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
    /// The signature of the person's browser, where they answered in the console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Box<DecisionSignature>>,
}

/// What a standing answer says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantEffect {
    /// Yes: calls that it covers start without a person.
    #[default]
    Allow,
    /// No: calls that it covers, and that a person would be asked about, are denied.
    Deny,
}

impl GrantEffect {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over by reference")]
    fn is_allow(&self) -> bool {
        *self == Self::Allow
    }
}

/// A standing answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrantRecord {
    /// The grant's id.
    pub grant_id: GrantId,
    /// The approval it came from.
    pub approval_id: ApprovalId,
    /// The subject: `tool:name|skill:id`.
    pub subject_id: String,
    /// The tool.
    pub tool: ToolName,
    /// Whose calls it covers.
    pub principal: Principal,
    /// The session it is bound to, for session scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Whether it is a yes or a no.
    #[serde(default, skip_serializing_if = "GrantEffect::is_allow")]
    pub effect: GrantEffect,
    /// How wide it is.
    pub matcher: GrantMatcher,
    /// The policy it was given under; another policy voids it.
    pub policy_hash: Digest,
    /// Who gave it.
    pub granted_by: Principal,
    /// When it was given.
    pub created_at: Timestamp,
    /// When it ends, for a time window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// How many calls it has covered.
    pub uses: u64,
    /// The workspace whose calls it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The call that was shown when it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<ShownCall>,
    /// The key it is found by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_key: Option<Digest>,
    /// Why it no longer holds, though nobody revoked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}

/// What a person saw when they left a standing answer: enough to know later what it covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCall {
    /// The command, or the paths, or the hosts, on one line that may be cut.
    pub what: String,
    /// The program that would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// The directory it would run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
}

/// The longest line of a shown call, in characters.
const MAX_SHOWN: usize = 200;

impl ShownCall {
    /// What is kept of a call's facets.
    #[must_use]
    pub fn of(facets: &Facets) -> Self {
        let listed = |list: &[String]| (!list.is_empty()).then(|| list.join(", "));
        let what = facets
            .command_line()
            .or_else(|| listed(&facets.paths_written))
            .or_else(|| listed(&facets.hosts))
            .or_else(|| listed(&facets.paths_read))
            .unwrap_or_default();
        let cut = |text: &str| {
            let mut kept: String = text.chars().take(MAX_SHOWN).collect();
            if kept.len() < text.len() {
                kept.push('…');
            }
            kept
        };
        Self {
            what: cut(&what),
            executable: facets.executable.as_deref().map(cut),
            working_directory: facets.working_directory.as_deref().map(cut),
        }
    }
}
