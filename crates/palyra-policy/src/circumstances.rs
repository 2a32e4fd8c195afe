//! Turns a [`PolicyRequestContext`] into a Cedar context, value by value and without JSON.
//!
//! Only wanted attributes are built. What is optional in the schema is left out when it is not known; what is required
//! is always there, an empty set rather than nothing. A test validates the result of every action against the schema.

use crate::attribute::{Attribute, Attributes};
use crate::names::{EntityKind, Names};
use crate::place;
use crate::request::{PolicyRequest, PolicyRequestContext};
use crate::resource::PolicyResource;
use cedar_policy::{Context, EntityUid, RestrictedExpression as Value};
use palyra_protocol::facets::quote_words;
use palyra_protocol::{Containment, EffectCounts, PolicyAction, Principal, PrincipalKind, SecretRef};

/// Whether a person's approval is assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    /// As the context says.
    AsItStands,
    /// As it would be with a grant or a waiver, which stand in for a person and are none.
    StoodInFor,
    /// As it would be if so many people approved.
    GivenBy(u32),
}

/// What a context is built from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) names: &'a Names,
    pub(crate) request: &'a PolicyRequest,
    pub(crate) context: &'a PolicyRequestContext,
    pub(crate) channel: &'a EntityUid,
    pub(crate) approval: Approval,
    /// The places that rules name: see [`crate::literal::places`].
    pub(crate) places: &'a [String],
}

/// All attributes that the schema knows for an action.
pub(crate) fn known_for(action: PolicyAction) -> Attributes {
    match action {
        PolicyAction::EffectApply => Attributes::EFFECT_USE,
        action if action.concerns_tool_use() => Attributes::TOOL_USE,
        action if action.concerns_secrets() => Attributes::SECRET_USE,
        action if action.concerns_memory() => Attributes::MEMORY_USE,
        _ => Attributes::DOOR,
    }
}

impl Circumstances<'_> {
    /// The Cedar context with the wanted attributes.
    pub(crate) fn build(&self, wanted: Attributes) -> Result<Context, String> {
        let wanted = wanted.intersection(known_for(self.request.action));
        let mut pairs = Vec::with_capacity(wanted.len());
        for attribute in wanted.iter() {
            if let Some(value) = self.value(attribute)? {
                pairs.push((attribute.as_str().to_owned(), value));
            }
        }
        Context::from_pairs(pairs).map_err(|e| e.to_string())
    }

    /// Which of the few possible contexts this is, where the wanted attributes leave only few.
    pub(crate) fn which(&self, wanted: Attributes) -> Option<usize> {
        let wanted = wanted.intersection(known_for(self.request.action));
        let given = self.context.allow_sensitive_tools || self.approval != Approval::AsItStands;
        let flags = [self.is_sensitive(), given, self.context.is_allowlisted_tool];
        (wanted.intersection(Attributes::FLAGS) == wanted)
            .then(|| flags.into_iter().fold(0, |bits, flag| bits << 1 | usize::from(flag)))
    }

    fn value(&self, attribute: Attribute) -> Result<Option<Value>, String> {
        let (context, facets) = (self.context, &self.context.facets);
        Ok(match attribute {
            Attribute::Channel => Some(Value::new_entity_uid(self.channel.clone())),
            Attribute::Device => context.device_id.as_ref().map(|id| self.entity(EntityKind::Device, id.as_str())),
            Attribute::Workspace => context.workspace.as_ref().map(|root| self.entity(EntityKind::Workspace, root)),
            Attribute::Session => context.session_id.as_ref().map(|id| text(id.as_str())),
            Attribute::Run => context.run_id.as_ref().map(|id| text(id.as_str())),
            Attribute::ProposedBy => self.proposed_by(),
            Attribute::IssuedBy => Some(self.people(&context.issued_by)),
            Attribute::ProposalIssuedBy => Some(self.people(&context.proposal_issued_by)),
            Attribute::IsSensitiveAction => Some(Value::new_bool(self.is_sensitive())),
            Attribute::AllowSensitiveTools => {
                Some(Value::new_bool(context.allow_sensitive_tools || self.approval != Approval::AsItStands))
            }
            Attribute::ApprovalCount => Some(Value::new_long(i64::from(match self.approval {
                Approval::AsItStands | Approval::StoodInFor => context.approval_count,
                Approval::GivenBy(people) => people.max(context.approval_count),
            }))),
            Attribute::Tool => self.tool().map(|name| self.entity(EntityKind::Tool, name)),
            Attribute::Skill => context.skill_id.as_ref().map(|id| self.entity(EntityKind::Skill, id)),
            Attribute::Publisher => context.publisher.as_deref().map(text),
            Attribute::IsAllowlistedTool => Some(Value::new_bool(context.is_allowlisted_tool)),
            Attribute::Capabilities => Some(texts(context.capabilities.iter().map(|c| c.policy_name()))),
            Attribute::Risk => context.risk.map(|risk| text(risk.as_str())),
            Attribute::Answer => context.answer.map(|answer| text(answer.as_str())),
            Attribute::ApproverVerified => Some(Value::new_bool(context.approver_verified)),
            Attribute::RecalledTrust => context.recalled_trust.map(|trust| text(trust.as_str())),
            Attribute::Executable => facets.executable.as_deref().map(text),
            Attribute::Executables => Some(texts(facets.all_executables())),
            Attribute::Argv => Some(texts(facets.argv.iter().map(String::as_str))),
            Attribute::ArgvPrefixes => {
                Some(Value::new_set(facets.argv_prefixes().map(|words| Value::new_string(quote_words(words)))))
            }
            Attribute::CommandLine => facets.command_line().map(Value::new_string),
            Attribute::WorkingDirectory => facets.working_directory.as_deref().map(text),
            Attribute::EnvNames => Some(texts(facets.env_names().iter().map(String::as_str))),
            Attribute::HasStdin => Some(Value::new_bool(facets.stdin_sha256.is_some())),
            Attribute::TreesRead => Some(texts(facets.trees_read.iter().map(String::as_str))),
            Attribute::Outside => Some(texts(facets.outside.iter().map(String::as_str))),
            Attribute::PathsRead => Some(texts(facets.paths_read.iter().map(String::as_str))),
            Attribute::PathsWritten => Some(texts(facets.paths_written.iter().map(String::as_str))),
            Attribute::ReadUnder => {
                let mut under = place::under(&facets.paths_read).map_err(told)?;
                under.extend(place::within(&facets.trees_read, self.places).map_err(told)?.map(str::to_owned));
                Some(Value::new_set(under.into_iter().map(Value::new_string)))
            }
            Attribute::WrittenUnder => {
                let under = place::under(&facets.paths_written).map_err(told)?;
                Some(Value::new_set(under.into_iter().map(Value::new_string)))
            }
            Attribute::ReadRoot => place::root(&facets.paths_read).map_err(told)?.map(Value::new_string),
            Attribute::WrittenRoot => place::root(&facets.paths_written).map_err(told)?.map(Value::new_string),
            Attribute::Hosts => Some(Value::new_set(place::hosts(&facets.hosts).into_iter().map(Value::new_string))),
            Attribute::Endpoints => {
                Some(Value::new_set(place::endpoints(&facets.hosts).into_iter().map(Value::new_string)))
            }
            Attribute::HostDomains => {
                Some(Value::new_set(place::domains(&facets.hosts).into_iter().map(Value::new_string)))
            }
            Attribute::Method => facets.method.as_deref().map(text),
            Attribute::Deletes => Some(texts(context.effect.deletes.iter().map(String::as_str))),
            Attribute::DeletedUnder => Some(Value::new_set(
                place::under(&context.effect.deletes).map_err(told)?.into_iter().map(Value::new_string),
            )),
            Attribute::Guarded => Some(texts(context.effect.guarded.iter().map(String::as_str))),
            Attribute::Counts => Some(counts(&context.effect.counts)),
            Attribute::Bytes => Some(number(context.effect.bytes)),
            Attribute::Containment => facets.containment.as_ref().map(containment).transpose()?,
            Attribute::Secrets => {
                Some(Value::new_set(facets.secrets.iter().map(|found| Value::new_string(found.secret.to_string()))))
            }
            Attribute::TimeLimitMs => facets.time_limit_ms.map(number),
            Attribute::ByClient => Some(Value::new_bool(facets.by_client.is_some())),
            Attribute::SecretScope | Attribute::SecretScopeKind => Some(Value::new_string(self.scope(attribute))),
            Attribute::Trust => context.memory_trust.map(|trust| text(trust.as_str())),
            Attribute::SecretKey => {
                Some(Value::new_string(self.secret().map(|s| s.name().to_string()).unwrap_or_default()))
            }
        })
    }

    fn entity(&self, kind: EntityKind, id: &str) -> Value {
        Value::new_entity_uid(self.names.uid(kind, id))
    }

    /// The person who proposed; the schema has no place for a program here, which `resource in Agent::"x"` names.
    fn proposed_by(&self) -> Option<Value> {
        let proposer = self.context.proposed_by.as_ref()?;
        (proposer.kind() == PrincipalKind::User).then(|| Value::new_entity_uid(self.names.principal(proposer)))
    }

    fn people(&self, all: &[Principal]) -> Value {
        let people = all.iter().filter(|one| one.kind() == PrincipalKind::User);
        Value::new_set(people.map(|person| Value::new_entity_uid(self.names.principal(person))))
    }

    /// Reading a secret is sensitive, and running something that can do harm, even if the caller did not say so; and so
    /// is letting a rule stand in for the person who would be asked about it.
    fn is_sensitive(&self) -> bool {
        let runs = matches!(
            self.request.action,
            PolicyAction::ToolExecute | PolicyAction::SkillExecute | PolicyAction::ApprovalWaive
        );
        self.request.action.is_sensitive_itself()
            || self.context.is_sensitive_action
            || runs && self.context.capabilities.iter().any(|c| c.is_sensitive())
    }

    /// The scope of the secret or the memory that the request is about, or that scope's kind; empty where all are
    /// meant.
    fn scope(&self, which: Attribute) -> String {
        let (scope, kind) = match &self.request.resource {
            PolicyResource::Memory(scope) => (scope.clone(), scope.split(':').next().unwrap_or("")),
            _ => {
                let secret = self.secret();
                let kind = secret.as_ref().map_or("", |secret| secret.scope().kind());
                let scope = secret.as_ref().map(|secret| secret.scope().to_string()).unwrap_or_default();
                return if which == Attribute::SecretScopeKind { kind.to_owned() } else { scope };
            }
        };
        if which == Attribute::SecretScopeKind { kind.to_owned() } else { scope }
    }

    /// The secret that the request is about; nothing where all are meant.
    fn secret(&self) -> Option<SecretRef> {
        match &self.request.resource {
            PolicyResource::Secret(reference) => reference.parse().ok(),
            _ => None,
        }
    }

    fn tool(&self) -> Option<&str> {
        match &self.request.resource {
            PolicyResource::Tool(name) => Some(name),
            _ => self.context.tool.as_deref(),
        }
    }
}

fn number(number: u64) -> Value {
    Value::new_long(i64::try_from(number).unwrap_or(i64::MAX))
}

fn counts(counts: &EffectCounts) -> Value {
    let EffectCounts { added, changed, deleted, renamed, metadata } = *counts;
    let fields =
        [("added", added), ("changed", changed), ("deleted", deleted), ("renamed", renamed), ("metadata", metadata)];
    let fields = fields.map(|(name, count)| (name.to_owned(), number(count)));
    // Names that differ make a record; there is no other way to fail.
    Value::new_record(fields).unwrap_or_else(|_| Value::new_bool(false))
}

fn told(error: place::TooDeep) -> String {
    error.to_string()
}

/// What would hold a process, with what follows from it.
fn containment(held: &Containment) -> Result<Value, String> {
    let fields = [
        ("tier", text(held.tier.as_str())),
        ("network", text(held.network.as_str())),
        ("hosts", Value::new_set(place::hosts(&held.hosts).into_iter().map(Value::new_string))),
        ("workspace", text(held.workspace.as_str())),
        ("reversible", Value::new_bool(held.reversible)),
        ("secrets", Value::new_bool(held.secrets)),
        ("contained", Value::new_bool(held.contained())),
    ];
    Value::new_record(fields.map(|(name, value)| (name.to_owned(), value))).map_err(|e| e.to_string())
}

fn text(text: &str) -> Value {
    Value::new_string(text.to_owned())
}

fn texts<'t>(texts: impl Iterator<Item = &'t str>) -> Value {
    Value::new_set(texts.map(text))
}
