//! What an action acts on. Written `tool:palyra.echo`, or `daemon` where there is only one.

use crate::names::EntityKind;
use palyra_protocol::{Principal, PrincipalKind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The thing a request is about. Names are untrusted text: they become entity ids and are never parsed as Cedar.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PolicyResource {
    /// A tool, by canonical name.
    Tool(String),
    /// A skill, by id.
    Skill(String),
    /// A question to a person, by id.
    Approval(String),
    /// A standing grant, by id.
    Grant(String),
    /// A call, by id.
    Call(String),
    /// A secret, by its vault reference.
    Secret(String),
    /// A memory scope.
    Memory(String),
    /// A scheduled job, by id.
    CronJob(String),
    /// A program in whose name somebody would act.
    Agent(String),
    /// A token, by its id.
    Token(String),
    /// A paired device, by its id.
    Device(String),
    /// An agent's run, by id.
    Run(String),
    /// A model, as it is named.
    Model(String),
    /// The journal.
    Journal,
    /// The rules themselves.
    PolicySet,
    /// The daemon as a whole.
    Daemon,
}

impl PolicyResource {
    /// The resource of `act_as`: nobody but a program can be acted as.
    #[must_use]
    pub fn agent(principal: &Principal) -> Option<Self> {
        (principal.kind() == PrincipalKind::Agent).then(|| Self::Agent(principal.name().to_owned()))
    }

    /// The Cedar entity type.
    pub(crate) fn entity_kind(&self) -> EntityKind {
        match self {
            Self::Tool(_) => EntityKind::Tool,
            Self::Skill(_) => EntityKind::Skill,
            Self::Approval(_) => EntityKind::Approval,
            Self::Grant(_) => EntityKind::Grant,
            Self::Call(_) => EntityKind::Call,
            Self::Secret(_) => EntityKind::Secret,
            Self::Memory(_) => EntityKind::Memory,
            Self::CronJob(_) => EntityKind::CronJob,
            Self::Agent(_) => EntityKind::Agent,
            Self::Token(_) => EntityKind::Token,
            Self::Device(_) => EntityKind::Device,
            Self::Run(_) => EntityKind::Run,
            Self::Model(_) => EntityKind::Model,
            Self::Journal => EntityKind::Journal,
            Self::PolicySet => EntityKind::PolicySet,
            Self::Daemon => EntityKind::Daemon,
        }
    }

    /// The entity id; the only one of its kind is called `local`.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tool(name)
            | Self::Skill(name)
            | Self::Approval(name)
            | Self::Grant(name)
            | Self::Call(name)
            | Self::Secret(name)
            | Self::Memory(name)
            | Self::CronJob(name)
            | Self::Agent(name)
            | Self::Token(name)
            | Self::Device(name)
            | Self::Run(name)
            | Self::Model(name) => name,
            Self::Journal | Self::PolicySet | Self::Daemon => "local",
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Tool(_) => "tool",
            Self::Skill(_) => "skill",
            Self::Approval(_) => "approval",
            Self::Grant(_) => "grant",
            Self::Call(_) => "call",
            Self::Secret(_) => "secret",
            Self::Memory(_) => "memory",
            Self::CronJob(_) => "cron",
            Self::Agent(_) => "agent",
            Self::Token(_) => "token",
            Self::Device(_) => "device",
            Self::Run(_) => "run",
            Self::Model(_) => "model",
            Self::Journal => "journal",
            Self::PolicySet => "policy",
            Self::Daemon => "daemon",
        }
    }
}

impl fmt::Display for PolicyResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal | Self::PolicySet | Self::Daemon => f.write_str(self.kind()),
            named => write!(f, "{}:{}", named.kind(), named.name()),
        }
    }
}

/// A text that names no resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a resource; write `tool:NAME`, `skill:ID`, `approval:ID`, `grant:ID`, `call:ID`, `secret:REF`, `memory:SCOPE`, `cron:ID`, `agent:NAME`, `token:ID`, `device:ID`, `run:ID`, `model:NAME`, `journal`, `policy` or `daemon`"
)]
pub struct ResourceError;

impl FromStr for PolicyResource {
    type Err = ResourceError;
    fn from_str(text: &str) -> Result<Self, ResourceError> {
        let Some((kind, name)) = text.split_once(':') else {
            return match text {
                "journal" => Ok(Self::Journal),
                "policy" => Ok(Self::PolicySet),
                "daemon" => Ok(Self::Daemon),
                _ => Err(ResourceError),
            };
        };
        let make = match kind {
            "tool" => Self::Tool,
            "skill" => Self::Skill,
            "approval" => Self::Approval,
            "grant" => Self::Grant,
            "call" => Self::Call,
            "secret" => Self::Secret,
            "memory" => Self::Memory,
            "cron" => Self::CronJob,
            "agent" => Self::Agent,
            "token" => Self::Token,
            "device" => Self::Device,
            "run" => Self::Run,
            "model" => Self::Model,
            _ => return Err(ResourceError),
        };
        Ok(make(name.to_owned()))
    }
}

impl TryFrom<String> for PolicyResource {
    type Error = ResourceError;
    fn try_from(text: String) -> Result<Self, ResourceError> {
        text.parse()
    }
}

impl From<PolicyResource> for String {
    fn from(resource: PolicyResource) -> Self {
        resource.to_string()
    }
}
