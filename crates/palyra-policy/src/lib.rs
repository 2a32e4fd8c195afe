//! Decides what may happen: Cedar, its schema, the default rules and the operator's.
//!
//! A [`PolicyEngine`] is parsed and validated once and never changes; a reload makes a new one. It is asked with
//! a [`PolicyRequest`] (who, what, on what) and a [`PolicyRequestContext`] (from where, with which arguments), and
//! answers with a decision and a [`PolicyExplanation`]: the rules that decided, the facts they looked at, and what
//! would change the answer.
//!
//! [`PolicyEngine::decide`] asks twice, as things stand and as they would stand with a person's approval. Allowed now:
//! allow. Allowed only then: a person must be asked, unless a rule permits `approval.waive`. Neither: deny. There is no
//! second place that knows what needs a person.
//!
//! # What this room must never do
//! - Know transports, storage or sandboxes.
//! - Allow because something went wrong. Whatever cannot be evaluated is denied, and the explanation says why.
//! - Parse anything that a caller sent as Cedar. Names become entity ids and strings, never policy text.

mod attribute;
pub mod cases;
mod change;
mod circumstances;
mod condition;
mod denial;
mod diff;
mod directory;
mod engine;
mod error;
mod explain;
#[doc(hidden)]
pub mod fuzzing;
mod hint;
mod lint;
mod literal;
mod load;
mod membership;
mod mixed_scripts;
mod names;
mod nesting_guard;
mod place;
mod registered;
mod replay;
mod request;
mod resource;
mod rule;
mod scene;
mod set;
mod source;
mod suggest;
mod toolbox;
mod verdict;

pub use change::{Change, ConditionState, Needs};
pub use diff::{ChangedRule, PolicyDiff, RuleText};
pub use directory::{MAX_FILES, MAX_SET_BYTES, PolicyFile, PolicyFiles};
pub use engine::{Evaluation, PolicyDecision, PolicyEngine, RawParts};
pub use error::{Flaw, FlawKind, PolicyError};
pub use explain::{Detail, ExplanationRecord, Fact, PolicyExplanation, RuleRecord};
pub use membership::{Membership, MembershipError};
pub use palyra_protocol::{PolicyAction, UnknownAction};
pub use registered::Registered;
pub use replay::{Example, PastDecision, Replay, ReplayReport, Shift};
pub use request::{EffectUse, PolicyRequest, PolicyRequestContext, SkillTrust};
pub use resource::{PolicyResource, ResourceError};
pub use rule::{Effect, Rule};
pub use set::{CheckedSet, Note, PolicyLoader, RefusedSet};
pub use source::{DEFAULT_POLICY_SRC, PolicySource, Position, SCHEMA_SRC};
pub use suggest::{PastAnswer, Suggestion, suggest};
pub use toolbox::{RehearsedCall, Toolbox};
pub use verdict::{MAX_APPROVERS, Questions, Verdict, VerdictRecord};
