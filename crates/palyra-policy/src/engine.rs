//! The engine: asks Cedar and says what it answered, and why.
//!
//! It is immutable and cheap to share. Everything that can be known before a request comes is known by then: rules are
//! parsed, checked, taken apart and sorted by action; scenes are remembered. A decision builds the few context values
//! that its rules look at and runs Cedar's own authorizer once.

use crate::attribute::Attribute;
use crate::circumstances::{Approval, known_for};
use crate::error::PolicyError;
use crate::explain::{Grounds, PolicyExplanation};
use crate::load::{self, Known};
use crate::membership::Membership;
use crate::place;
use crate::request::{PolicyRequest, PolicyRequestContext};
use crate::rule::{Effect, Rule};
use crate::scene::{Allowed, Scene, Scenes, Stage};
use crate::source::{DEFAULT_NAME, PolicySource, SCHEMA_SRC};
use crate::toolbox::Toolbox;
use cedar_policy::{Authorizer, Decision, Entities, PolicyId, PolicySet, Request, Response, Schema};
use palyra_protocol::{Digest, DigestBuilder, PolicyAction};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// The two answers that Cedar gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyDecision {
    /// A rule permits it and none forbids it.
    Allow,
    /// Nothing permits it, or something forbids it, or something could not be evaluated: see the explanation.
    DenyByDefault,
}

/// A decision with its explanation.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The answer.
    pub decision: PolicyDecision,
    /// Why.
    pub explanation: PolicyExplanation,
}

/// A parsed, validated set of rules with everything needed to ask it.
#[derive(Debug, Clone)]
pub struct PolicyEngine(pub(crate) Arc<Inner>);

/// What explanations keep a share of.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) stage: Stage,
    all: PolicySet,
    by_id: HashMap<PolicyId, Arc<Rule>>,
    scenes: Scenes,
    schema: Schema,
    authorizer: Authorizer,
    hash: Digest,
}

impl PolicyEngine {
    /// The rules that Palyra ships with.
    ///
    /// # Errors
    /// What ships is broken, which would be a bug.
    pub fn with_defaults(membership: &Membership) -> Result<Self, PolicyError> {
        Self::load(&[PolicySource::defaults()], membership)
    }

    /// Rules from several sources, in order; later ones may replace rules of earlier ones with `@replaces`.
    ///
    /// # Errors
    /// Any source has any flaw: all are reported, and nothing is loaded.
    pub fn load(sources: &[PolicySource], membership: &Membership) -> Result<Self, PolicyError> {
        Self::load_for(sources, membership, None)
    }

    /// The same, for a daemon with these tools.
    pub(crate) fn load_for(
        sources: &[PolicySource],
        membership: &Membership,
        tools: Option<&dyn Toolbox>,
    ) -> Result<Self, PolicyError> {
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA_SRC).map_err(|e| PolicyError::Bug(e.to_string()))?;
        membership.check()?;
        let rules = load::load(sources, Known { membership, tools }, &schema)?;
        Self::assemble(rules, membership, schema)
    }

    fn assemble(rules: Vec<Arc<Rule>>, membership: &Membership, schema: Schema) -> Result<Self, PolicyError> {
        let all = PolicySet::from_policies(rules.iter().map(|rule| rule.policy.clone()))
            .map_err(|e| PolicyError::Bug(e.to_string()))?;
        Ok(Self(Arc::new(Inner {
            all,
            by_id: rules.iter().map(|rule| (rule.policy.id().clone(), Arc::clone(rule))).collect(),
            scenes: Scenes::new(rules.len()),
            hash: hash(&rules, membership),
            stage: Stage::new(membership.clone(), rules, &schema)?,
            schema,
            authorizer: Authorizer::new(),
        })))
    }

    /// What this set is: changes when the schema, any rule or anybody's membership does, and not otherwise.
    #[must_use]
    pub fn policy_hash(&self) -> Digest {
        self.0.hash
    }

    /// Every rule, in the order of the sources.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.0.stage.rules.iter().map(AsRef::as_ref)
    }

    /// The operator's rules.
    pub fn operator_rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules().filter(|rule| rule.position().source != DEFAULT_NAME)
    }

    /// The rule with an id.
    #[must_use]
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.0.by_id.get(&PolicyId::new(id)).map(AsRef::as_ref)
    }

    /// Who belongs to what.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        &self.0.stage.membership
    }

    /// The same rules for other members: nothing is read or parsed again.
    ///
    /// # Errors
    /// A rule speaks of a group that these members lack.
    pub fn with_membership(&self, membership: &Membership) -> Result<Self, PolicyError> {
        membership.check()?;
        let rules = self.0.stage.rules.clone();
        let lacking =
            rules.iter().find_map(|rule| load::unknown_group(&rule.policy, membership).map(|uid| (rule, uid)));
        if let Some((rule, uid)) = lacking {
            return Err(PolicyError::Flawed(vec![load::unknown_group_flaw(rule, &uid)]));
        }
        Self::assemble(rules, membership, self.0.schema.clone())
    }

    /// Decides as things stand.
    #[must_use]
    pub fn evaluate_with_context(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> Evaluation {
        self.evaluate(request, context, Approval::AsItStands)
    }

    pub(crate) fn evaluate(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        approval: Approval,
    ) -> Evaluation {
        match self.ask(request, context, approval) {
            Ok(evaluation) => evaluation,
            // INVARIANT (errors_deny): whatever goes wrong on the way to Cedar is a denial that says so.
            Err(error) => Evaluation {
                decision: PolicyDecision::DenyByDefault,
                explanation: PolicyExplanation::failed(request, error),
            },
        }
    }

    fn ask(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        approval: Approval,
    ) -> Result<Evaluation, String> {
        let inner = &*self.0;
        place::check(&context.facets).map_err(|e| e.to_string())?;
        let scene = inner.scenes.scene(&inner.stage, request, context)?;
        let circumstances = inner.stage.circumstances(request, context, &scene, approval);
        let which = circumstances.which(scene.slice.attributes);
        if let Some(Allowed { asked, rules }) = which.and_then(|n| scene.allowed[n].get()).cloned() {
            let grounds = Grounds { inner: Arc::clone(&self.0), scene, request: asked };
            let explanation = PolicyExplanation::new(PolicyDecision::Allow, rules, Vec::new(), grounds);
            return Ok(Evaluation { decision: PolicyDecision::Allow, explanation });
        }
        let asked = inner.request(&scene, circumstances.build(scene.slice.attributes)?)?;
        let response = inner.authorizer.is_authorized(&asked, &scene.slice.policies, &scene.entities);
        let mut errors: Vec<String> = response.diagnostics().errors().map(ToString::to_string).collect();
        errors.sort();
        let allowed = response.decision() == Decision::Allow && errors.is_empty();
        // If an error is all that stands against a permit, no rule decided.
        let overruled = response.decision() == Decision::Allow && !allowed;
        let rules = if overruled { Vec::new() } else { inner.deciding(&response)? };
        if let Some(n) = which.filter(|_| allowed) {
            // Whoever was first has given the same answer.
            drop(scene.allowed[n].set(Allowed { asked: asked.clone(), rules: rules.clone() }));
        }
        // Explaining a denial looks at rules whose head did not fit as well; they may mention more.
        let asked =
            if allowed { asked } else { inner.request(&scene, circumstances.build(known_for(request.action))?)? };
        let decision = if allowed { PolicyDecision::Allow } else { PolicyDecision::DenyByDefault };
        let grounds = Grounds { inner: Arc::clone(&self.0), scene, request: asked };
        Ok(Evaluation { decision, explanation: PolicyExplanation::new(decision, rules, errors, grounds) })
    }

    /// Whether Cedar says yes, and nothing more. What cannot be evaluated is no.
    pub(crate) fn allows(&self, request: &PolicyRequest, context: &PolicyRequestContext, approval: Approval) -> bool {
        let inner = &*self.0;
        if place::check(&context.facets).is_err() {
            return false;
        }
        let Ok(scene) = inner.scenes.scene(&inner.stage, request, context) else { return false };
        let circumstances = inner.stage.circumstances(request, context, &scene, approval);
        let asked = circumstances.build(scene.slice.attributes).and_then(|context| inner.request(&scene, context));
        let Ok(asked) = asked else { return false };
        let response = inner.authorizer.is_authorized(&asked, &scene.slice.policies, &scene.entities);
        response.decision() == Decision::Allow && response.diagnostics().errors().next().is_none()
    }

    /// This set with further rules: what tools need that try a rule before anybody adds it.
    ///
    /// # Errors
    /// The rules have flaws, or an id is taken.
    pub fn with_rules(&self, source: PolicySource) -> Result<Self, PolicyError> {
        let added = Self::load(&[PolicySource::defaults(), source], self.membership())?;
        let mut rules = self.0.stage.rules.clone();
        rules.extend(added.0.stage.rules.iter().filter(|rule| rule.position().source != DEFAULT_NAME).cloned());
        Self::assemble(rules, self.membership(), self.0.schema.clone())
    }

    /// What a benchmark needs to ask Cedar the same question without us.
    ///
    /// # Errors
    /// The request cannot be put to Cedar at all.
    #[doc(hidden)]
    pub fn raw_parts(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> Result<RawParts<'_>, String> {
        let inner = &*self.0;
        let scene = inner.scenes.scene(&inner.stage, request, context)?;
        let circumstances = inner.stage.circumstances(request, context, &scene, Approval::AsItStands);
        let asked = circumstances.build(known_for(request.action))?;
        let request = Request::new(
            scene.principal.clone(),
            inner.stage.names.action(request.action).clone(),
            scene.resource.clone(),
            asked,
            Some(&inner.schema),
        )
        .map_err(|e| e.to_string())?;
        Ok(RawParts { request, all: &inner.all, entities: Arc::clone(&scene.entities), scene })
    }
}

/// The same question as plain Cedar.
#[doc(hidden)]
#[derive(Debug)]
pub struct RawParts<'e> {
    /// The request, with every attribute, validated against the schema.
    pub request: Request,
    /// Every rule.
    pub all: &'e PolicySet,
    /// The entities.
    pub entities: Arc<Entities>,
    scene: Arc<Scene>,
}

impl RawParts<'_> {
    /// Only the rules whose scope fits: what a decision evaluates.
    #[must_use]
    pub fn slice(&self) -> &PolicySet {
        &self.scene.slice.policies
    }
}

impl Inner {
    fn request(&self, scene: &Scene, context: cedar_policy::Context) -> Result<Request, String> {
        let action = self.stage.names.action(scene.key.action).clone();
        // Not validated against the schema: every context comes from `Circumstances`, which a test validates.
        Request::new(scene.principal.clone(), action, scene.resource.clone(), context, None).map_err(|e| e.to_string())
    }

    fn deciding(&self, response: &Response) -> Result<Vec<Arc<Rule>>, String> {
        let mut rules = Vec::with_capacity(1);
        for id in response.diagnostics().reason() {
            let rule = self.by_id.get(id).ok_or_else(|| format!("the deciding rule `{id}` is unknown"))?;
            rules.push(Arc::clone(rule));
        }
        rules.sort_by(|a, b| a.id().cmp(b.id()));
        Ok(rules)
    }
}

impl Inner {
    /// Whether any rule lets another rule stand in for a person.
    pub(crate) fn waives(&self) -> bool {
        self.stage.rules_for(PolicyAction::ApprovalWaive).any(|rule| rule.effect() == Effect::Permit)
    }

    /// Whether any rule counts the people who approved an action.
    pub(crate) fn counts_people(&self, action: PolicyAction) -> bool {
        self.stage.rules_for(action).any(|rule| rule.attributes.contains(Attribute::ApprovalCount))
    }
}

fn hash(rules: &[Arc<Rule>], membership: &Membership) -> Digest {
    let mut sorted: Vec<_> = rules.iter().map(|rule| (rule.id(), rule.text())).collect();
    sorted.sort_unstable();
    let mut digest =
        DigestBuilder::new("palyra.policy-set.v1").field(SCHEMA_SRC.as_bytes()).number(sorted.len() as u64);
    for (id, text) in sorted {
        digest = digest.field(id.as_bytes()).field(text.as_bytes());
    }
    membership.digest_into(digest).finish()
}
