//! `palyra access`: what can be typed.

use super::duration;
use clap::{Args, Subcommand, ValueEnum};
use palyra_protocol::access::{GroupMember, GroupName, TokenScope};
use palyra_protocol::{Principal, TokenId, WorkspaceRole};
use std::time::Duration;

#[derive(Debug, Subcommand)]
#[command(
    after_help = "A caller may do what three things allow together: the token's scopes, the role, and the policy.

Roles:
  owner     everything, including what the workspace trusts and what it is
  admin     manages tokens, members and agents; answers approvals; sees the journal
  operator  uses: calls tools, follows its own calls

Example, a token that can do exactly one thing:
  palyra access agent add agent:docs
  palyra access token create agent:docs --scope tool.execute:palyra.fs.read --expires 30d
  PALYRA_TOKEN=palyra_… palyra call palyra.fs.read --input '{\"path\":\"README.md\"}'"
)]
pub enum Access {
    /// Say who the daemon takes you for, and what that allows
    Whoami,
    /// Show which right each method of the daemon's interface needs
    Rights,
    /// Issue, list, replace and withdraw tokens
    #[command(subcommand)]
    Token(Token),
    /// Say who is what to this workspace
    #[command(subcommand)]
    Member(Member),
    /// Register programs that tokens can speak for
    #[command(subcommand)]
    Agent(Agent),
    /// Say who belongs to which group; rules speak of groups
    #[command(subcommand)]
    Group(Group),
    /// See and set the few switches there are; none turns a guarantee off
    #[command(subcommand)]
    Feature(Feature),
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Issue a token; it is shown this once
    Create(CreateToken),
    /// List every token, without its secret
    List,
    /// Replace a token's secret; the new one is shown this once
    Rotate {
        /// The token, from `palyra access token list`
        #[arg(value_name = "TOKEN_ID")]
        id: TokenId,
        /// How long the old secret still holds, like `10m`, `1h`, `2d`; at most seven days; `0s`: not at all
        #[arg(long, value_name = "TIME", value_parser = overlap, default_value = "1h")]
        overlap: Duration,
        /// Without an overlap: keep the tokens that were issued with it
        #[arg(long)]
        keep_issued: bool,
    },
    /// Withdraw a token at once, and every token that was issued with it
    Revoke {
        /// The token, from `palyra access token list`
        #[arg(value_name = "TOKEN_ID")]
        id: TokenId,
        /// Keep the tokens that were issued with it
        #[arg(long)]
        keep_issued: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "A token never allows more than the one that issued it: no higher role, no wider scope,
no longer life, no higher rate.
The token alone goes to standard output, so it can be kept like this:
  TOKEN=$(palyra access token create agent:ci --label 'the build' --expires 30d)

Scopes are the actions of the policy (`palyra access whoami` lists them), or an action on one thing:
  --scope tool.execute:palyra.fs.read,tool.list")]
pub struct CreateToken {
    /// Who speaks when it is shown: a member (`user:ana`) or a registered agent (`agent:ci`)
    pub principal: Principal,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub label: String,
    /// The role it is limited to: owner, admin, operator
    #[arg(long, value_name = "ROLE", default_value = "operator")]
    pub role: WorkspaceRole,
    /// What it may do [default: what it takes to call tools]
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub scopes: Vec<TokenScope>,
    /// How long it holds, like `12h`, `30d`; at most 366 days
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "90d")]
    pub expires: Duration,
    /// How many requests a minute [default: 600, or as many as the token that issues it has]
    #[arg(long, value_name = "N")]
    pub rate: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum Member {
    /// List everybody who is something to this workspace
    List,
    /// Add a person
    Add {
        /// Who: `user:NAME`
        principal: Principal,
        /// As what: owner, admin, operator
        #[arg(long, value_name = "ROLE", default_value = "operator")]
        role: WorkspaceRole,
    },
    /// Give a member another role
    Role {
        /// Who: `user:NAME`
        principal: Principal,
        /// owner, admin, operator
        role: WorkspaceRole,
    },
    /// Remove a person; tokens that speak for them are withdrawn
    Remove {
        /// Who: `user:NAME`
        principal: Principal,
    },
}

#[derive(Debug, Subcommand)]
pub enum Agent {
    /// List every agent
    List,
    /// Register an agent
    Add {
        /// Who: `agent:NAME`
        principal: Principal,
        /// What it is for
        #[arg(long, value_name = "TEXT", default_value = "")]
        description: String,
    },
    /// Remove an agent; its tokens are withdrawn
    Remove {
        /// Who: `agent:NAME`
        principal: Principal,
    },
}

#[derive(Debug, Subcommand)]
pub enum Group {
    /// List every group
    List,
    /// Add to a group, making it if there is none
    Add {
        /// The group
        group: GroupName,
        /// Who: `user:NAME`, `agent:NAME`, or `group:NAME` for everybody in another group
        members: Vec<GroupMember>,
    },
    /// Take from a group
    Remove {
        /// The group
        group: GroupName,
        /// Who
        #[arg(required = true)]
        members: Vec<GroupMember>,
    },
    /// Delete a group
    Delete {
        /// The group
        group: GroupName,
    },
}

#[derive(Debug, Subcommand)]
pub enum Feature {
    /// List every feature: what it does, and whether it is on
    List,
    /// Turn a feature on or off
    Set {
        /// The feature
        name: String,
        /// on or off
        #[arg(value_enum)]
        value: Switch,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// A duration, or none.
pub fn overlap(text: &str) -> Result<Duration, String> {
    if text == "0s" { Ok(Duration::ZERO) } else { duration(text) }
}
