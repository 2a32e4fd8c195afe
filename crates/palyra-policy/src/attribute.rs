//! The attributes of a request's context, and sets of them.
//!
//! Building a context costs more than evaluating most rules, so a request carries only those attributes that some rule
//! for its action mentions. [`Attributes`] is how rules say what they mention.

use cedar_policy::pst::{Expr, Var};

macro_rules! attributes {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// One attribute of the context, as the schema spells it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Attribute { $($variant),+ }

        impl Attribute {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

attributes! {
    // Known for every request: `Door`.
    Channel = "channel",
    Device = "device",
    Workspace = "workspace",
    Session = "session",
    Run = "run",
    ProposedBy = "proposed_by",
    IssuedBy = "issued_by",
    IsSensitiveAction = "is_sensitive_action",
    AllowSensitiveTools = "allow_sensitive_tools",
    // Known for a tool's use as well: `ToolUse`.
    Tool = "tool",
    ProposalIssuedBy = "proposal_issued_by",
    ApprovalCount = "approval_count",
    Skill = "skill",
    Publisher = "publisher",
    IsAllowlistedTool = "is_allowlisted_tool",
    Capabilities = "capabilities",
    Risk = "risk",
    Answer = "answer",
    ApproverVerified = "approver_verified",
    RecalledTrust = "recalled_trust",
    // From here on, what a call's arguments say: `ARGUMENTS`.
    Executable = "executable",
    Executables = "executables",
    Argv = "argv",
    ArgvPrefixes = "argv_prefixes",
    CommandLine = "command_line",
    WorkingDirectory = "working_directory",
    EnvNames = "env_names",
    HasStdin = "has_stdin",
    PathsRead = "paths_read",
    TreesRead = "trees_read",
    PathsWritten = "paths_written",
    ReadUnder = "read_under",
    WrittenUnder = "written_under",
    ReadRoot = "read_root",
    WrittenRoot = "written_root",
    Outside = "outside",
    Hosts = "hosts",
    Endpoints = "endpoints",
    HostDomains = "host_domains",
    Method = "method",
    Containment = "containment",
    Secrets = "secrets",
    ByClient = "by_client",
    TimeLimitMs = "time_limit_ms",
    // Known for the effect of a call that has run: `EffectUse`.
    Deletes = "deletes",
    DeletedUnder = "deleted_under",
    Guarded = "guarded",
    Counts = "counts",
    Bytes = "bytes",
    // Known for a secret: `SecretUse`.
    SecretScope = "scope",
    SecretScopeKind = "scope_kind",
    SecretKey = "key",
    // Known for a memory entry, with the scope: `MemoryUse`.
    Trust = "trust",
}

impl Attribute {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|a| a.as_str() == name)
    }
}

/// What is known of an answer alone.
const ANSWERING: u64 = 1 << Attribute::Answer as u64 | 1 << Attribute::ApproverVerified as u64;

/// A set of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Attributes(u64);

impl Attributes {
    pub(crate) const NONE: Self = Self(0);
    /// All that a `Door` has.
    pub(crate) const DOOR: Self = Self((1 << Attribute::Tool as u64) - 1);
    /// All that a `ToolUse` has.
    pub(crate) const TOOL_USE: Self = Self((1 << Attribute::Deletes as u64) - 1);
    /// All that an `EffectUse` has.
    pub(crate) const EFFECT_USE: Self = Self(((1 << Attribute::SecretScope as u64) - 1) & !ANSWERING);
    /// All that any context has.
    pub(crate) const EVERY: Self = Self((1 << Attribute::ALL.len()) - 1);
    /// All that a `SecretUse` has.
    pub(crate) const SECRET_USE: Self =
        Self::DOOR.with(Attribute::SecretScope).with(Attribute::SecretScopeKind).with(Attribute::SecretKey);
    /// All that a `MemoryUse` has.
    pub(crate) const MEMORY_USE: Self =
        Self::DOOR.with(Attribute::SecretScope).with(Attribute::SecretScopeKind).with(Attribute::Trust);

    /// What a scene fixes, and three flags beside it: rules that look at nothing else have few answers to give.
    pub(crate) const FLAGS: Self = Self::NONE
        .with(Attribute::Channel)
        .with(Attribute::IsSensitiveAction)
        .with(Attribute::AllowSensitiveTools)
        .with(Attribute::IsAllowlistedTool);

    /// What a call's arguments say.
    pub(crate) const ARGUMENTS: Self = Self(Self::TOOL_USE.0 & !((1 << Attribute::Executable as u64) - 1));

    pub(crate) const fn with(self, attribute: Attribute) -> Self {
        Self(self.0 | 1 << attribute as u64)
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn contains(self, attribute: Attribute) -> bool {
        self.0 & (1 << attribute as u64) != 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Its members, in the order of declaration.
    pub(crate) fn iter(self) -> impl Iterator<Item = Attribute> {
        Attribute::ALL.iter().copied().filter(move |a| self.contains(*a))
    }

    /// The attributes an expression mentions; all of them where it uses `context` as a whole.
    ///
    /// INVARIANT (cedar_itself_agrees): leaving out what this does not return never changes what the expression
    /// evaluates to.
    pub(crate) fn mentioned(expr: &Expr) -> Self {
        expr.reduce(&mentioned_here, &Self::union, Self::NONE)
    }
}

fn mentioned_here(expr: &Expr) -> Option<Attributes> {
    let (base, name) = match expr {
        Expr::GetAttr { expr, attr } => (expr, attr.as_str()),
        Expr::HasAttr { expr, attrs } => (expr, attrs.first().as_str()),
        Expr::Var(Var::Context) => return Some(Attributes::EVERY),
        _ => return None,
    };
    matches!(**base, Expr::Var(Var::Context))
        .then(|| Attribute::named(name).map_or(Attributes::NONE, |a| Attributes::NONE.with(a)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cedar_policy::Policy;

    fn mentioned(condition: &str) -> Vec<&'static str> {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        let policy = Policy::parse(None, text).unwrap().to_pst().unwrap();
        let mut all = Attributes::NONE;
        for clause in policy.body().clauses() {
            let (cedar_policy::pst::Clause::When(e) | cedar_policy::pst::Clause::Unless(e)) = clause;
            all = all.union(Attributes::mentioned(e));
        }
        all.iter().map(Attribute::as_str).collect()
    }

    #[test]
    fn finds_attributes_wherever_they_stand() {
        assert_eq!(mentioned("context.is_allowlisted_tool"), ["is_allowlisted_tool"]);
        assert_eq!(mentioned("context has method && context[\"method\"] like \"G*\""), ["method"]);
        assert_eq!(mentioned("if context.risk == \"low\" then true else [context.hosts].isEmpty()"), ["risk", "hosts"]);
        assert_eq!(mentioned("principal in Group::\"x\""), Vec::<&str>::new());
    }

    #[test]
    fn the_whole_context_means_every_attribute() {
        assert_eq!(mentioned("context == {}").len(), Attribute::ALL.len());
        assert_eq!(mentioned("{ x: context }.x.risk == \"low\"").len(), Attribute::ALL.len());
    }
}
