//! Why a change of the registry is refused.

use crate::document::{MAX_LABEL, MAX_LIFE, MAX_RATE};
use palyra_protocol::access::{GroupName, TokenScope, TokenState, WorkspaceRecord};
use palyra_protocol::{
    PolicyAction, Principal, Problem, ProblemCode, TokenId, UnknownAction, WorkspaceId, WorkspaceRole,
};

/// Whose fault a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request makes no sense.
    Invalid,
    /// It speaks of something that does not exist.
    NotFound,
    /// The one who asks does not hold enough.
    Forbidden,
    /// It does not fit how things stand.
    Conflict,
    /// The host cannot now.
    Unavailable,
}

/// A change that is refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A label is too long, or has control characters.
    #[error("a label has at most {MAX_LABEL} characters and no control characters")]
    Label,
    /// A rate is out of bounds.
    #[error("a rate is 1 to {MAX_RATE} a minute")]
    Rate,
    /// A token's life is out of bounds.
    #[error("a token holds longer than nothing and at most {} days", MAX_LIFE.as_secs() / 86_400)]
    Life,
    /// Both secrets of a token would hold for too long.
    #[error("both secrets hold for at most seven days")]
    Overlap,
    /// A program would be a member.
    #[error("`{0}` is no person, and only people are members")]
    NotAPerson(Principal),
    /// Something else would be an agent.
    #[error("`{0}` is not an agent's name")]
    NotAnAgent(Principal),
    /// A scope names no action.
    #[error("`{scope}`: {source}")]
    UnknownScope {
        /// The scope.
        scope: TokenScope,
        /// What there is.
        source: UnknownAction,
    },
    /// A token's role would be above its principal's.
    #[error("`{principal}` is {standing} here, so a token of theirs cannot be {role}")]
    RoleBeyondPrincipal {
        /// Whom it would speak for.
        principal: Principal,
        /// What they are.
        standing: WorkspaceRole,
        /// What it would be.
        role: WorkspaceRole,
    },
    /// A token's scope is not in its role.
    #[error("the role {role} does not include `{action}`")]
    ScopeBeyondRole {
        /// The role.
        role: WorkspaceRole,
        /// The action.
        action: PolicyAction,
    },
    /// A program would do what only people do.
    #[error("`{principal}` is a program, and programs never do `{action}`")]
    AgentsNeverHold {
        /// The program.
        principal: Principal,
        /// The action.
        action: PolicyAction,
    },

    /// A token would speak for somebody who is not here.
    #[error("`{0}` is neither a member nor a registered agent here")]
    NoSuchPrincipal(Principal),
    /// There is no such member.
    #[error("`{0}` is not a member here")]
    NoSuchMember(Principal),
    /// There is no such agent.
    #[error("`{0}` is not registered")]
    NoSuchAgent(Principal),
    /// There is no such token.
    #[error("there is no token `{0}`")]
    NoSuchToken(TokenId),
    /// There is no such group.
    #[error("there is no group `{0}`")]
    NoSuchGroup(GroupName),

    /// Only an owner may.
    #[error("only owners {0}")]
    OnlyOwners(&'static str),
    /// Only an owner of every workspace that is concerned may.
    #[error("another workspace is concerned, and only those who own it too {0}")]
    OnlyOwnersOfAll(&'static str),
    /// The role that is given or touched is above the giver's.
    #[error("`{principal}` is {} here, and this takes {needed}", role.map_or("without a role", WorkspaceRole::as_str))]
    RoleTooLow {
        /// Who asks.
        principal: Principal,
        /// What they are.
        role: Option<WorkspaceRole>,
        /// What it takes.
        needed: WorkspaceRole,
    },
    /// A token would speak for an equal or better of its issuer.
    #[error("a token of `{principal}` would speak as an equal of `{issuer}`")]
    SpeaksAsEqual {
        /// Whom it would speak for.
        principal: Principal,
        /// Who would issue it.
        issuer: Principal,
    },
    /// The issuing token lacks a scope.
    #[error("the token that issues this one lacks the scope `{0}`")]
    ScopeNotHeld(TokenScope),
    /// A token would outlive the one that issues it.
    #[error("a token does not issue one that outlives it")]
    OutlivesIssuer,
    /// A token would have a higher rate than the one that issues it.
    #[error("a token of {0} requests a minute does not issue one of more")]
    FasterThanIssuer(u32),

    /// The token does not open any more.
    #[error("`{id}` is {}; only active tokens are replaced", state.as_str())]
    TokenNotActive {
        /// The token.
        id: TokenId,
        /// How it stands.
        state: TokenState,
    },
    /// Whom the token speaks for is gone.
    #[error("`{0}` is no longer a member here")]
    TokenPrincipalGone(Principal),
    /// The token was revoked before.
    #[error("`{0}` was withdrawn before")]
    TokenAlreadyRevoked(TokenId),
    /// A workspace would have no owner.
    #[error("`{0}` is the last owner of this workspace")]
    LastOwner(Principal),
    /// The daemon's own user would own nothing.
    #[error("`user:local` runs this daemon and stays an owner of its workspaces")]
    LocalOwnerStays,
    /// The agent is registered.
    #[error("`{0}` is registered already")]
    AgentExists(Principal),
    /// The directory is registered.
    #[error("`{}` is registered already, as {}", .0.root, .0.workspace_id)]
    WorkspaceExists(WorkspaceRecord),
    /// There is no such workspace.
    #[error("there is no workspace `{0}`")]
    NoSuchWorkspace(WorkspaceId),
    /// Another group holds it.
    #[error("the group `{within}` holds `{name}`")]
    GroupInUse {
        /// The group that holds it.
        within: GroupName,
        /// The group.
        name: GroupName,
    },

    /// There is no randomness.
    #[error("the system has no randomness to give: {0}")]
    NoRandomness(getrandom::Error),
}

const NOT_FOUND: &str = ProblemCode::NotFound.as_str();
const ADD_FIRST: &str = "add them first: `palyra access member add user:NAME` or `palyra access agent add agent:NAME`";
const ISSUE_ANOTHER: &str = "issue another: `palyra access token create`";

impl AccessError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.row().0
    }

    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.row().1
    }

    /// Code, message and hint, as a caller is told.
    #[must_use]
    pub fn problem(&self) -> Problem {
        let (_, code, hint) = self.row();
        Problem { hint: hint.map(str::to_owned), ..Problem::plain(code, self.to_string()) }
    }

    /// Fault, code and hint of each.
    fn row(&self) -> (Fault, &'static str, Option<&'static str>) {
        use Fault::{Conflict, Forbidden, Invalid, NotFound, Unavailable};
        let (fault, code, hint) = match self {
            Self::Label => (Invalid, "label", "say it shorter"),
            Self::Rate => (Invalid, "rate", "try `--rate 600`"),
            Self::Life => (Invalid, "expiry", "try `--expires 90d`"),
            Self::Overlap => (Invalid, "overlap", "try `--overlap 1h`"),
            Self::NotAPerson(_) => {
                (Invalid, "not_a_person", "register a program as an agent: `palyra access agent add agent:NAME`")
            }
            Self::NotAnAgent(_) => (Invalid, "not_an_agent", "write `agent:NAME`"),
            Self::UnknownScope { .. } => (Invalid, "unknown_scope", "write the name of an action"),
            Self::RoleBeyondPrincipal { .. } => (
                Invalid,
                "role_beyond_principal",
                "give the token a lower role, or the person a higher one: `palyra access member role`",
            ),
            Self::ScopeBeyondRole { .. } => {
                (Invalid, "scope_beyond_role", "leave this scope out, or give the token a higher role with `--role`")
            }
            Self::AgentsNeverHold { .. } => {
                (Forbidden, "agents_never_hold", "issue the token to a person, or leave this scope out")
            }
            Self::NoSuchPrincipal(_) => (NotFound, NOT_FOUND, ADD_FIRST),
            Self::NoSuchMember(_) => (NotFound, NOT_FOUND, "`palyra access member list` shows who is"),
            Self::NoSuchAgent(_) => (NotFound, NOT_FOUND, "`palyra access agent list` shows them"),
            Self::NoSuchToken(_) => (NotFound, NOT_FOUND, "`palyra access token list` shows them"),
            Self::NoSuchGroup(_) => (NotFound, NOT_FOUND, "`palyra access group list` shows them"),
            Self::OnlyOwners(_)
            | Self::OnlyOwnersOfAll(_)
            | Self::RoleTooLow { .. }
            | Self::SpeaksAsEqual { .. }
            | Self::ScopeNotHeld(_)
            | Self::OutlivesIssuer
            | Self::FasterThanIssuer(_) => (Forbidden, "more_than_held", "ask an owner to do it"),
            Self::TokenNotActive { .. } => (Conflict, "token_not_active", ISSUE_ANOTHER),
            Self::TokenPrincipalGone(_) => (Conflict, "token_principal_gone", ISSUE_ANOTHER),
            Self::TokenAlreadyRevoked(_) => {
                (Conflict, ProblemCode::TokenAlreadyRevoked.as_str(), "nothing is left to do")
            }
            Self::LastOwner(_) => (Conflict, "last_owner", "make another member an owner first"),
            Self::LocalOwnerStays => (Conflict, "local_owner_stays", "run the daemon as another user"),
            Self::WorkspaceExists(_) => (Conflict, "workspace_exists", "use it as it is: `palyra workspaces list`"),
            Self::NoSuchWorkspace(_) => (NotFound, NOT_FOUND, "`palyra workspaces list` shows them"),
            Self::AgentExists(_) => (Conflict, "agent_exists", "use it as it is"),
            Self::GroupInUse { .. } => (Conflict, "group_in_use", "take it out of that group first"),
            Self::NoRandomness(_) => return (Unavailable, "no_randomness", None),
        };
        (fault, code, Some(hint))
    }
}
