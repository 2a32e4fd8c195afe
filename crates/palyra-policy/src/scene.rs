//! Scenes: what stays the same while one principal does one thing to one resource through one channel.
//!
//! A scene holds the entities of such a request with their groups, and the rules whose scope fits them. Both depend
//! only on the scene's key, so they are made once and kept in a table of fixed size: a decision with ten thousand rules
//! loaded evaluates the few that can apply. However many names callers invent, the table does not grow; a scene that is
//! pushed out is made again.
//!
//! Where those rules look at nothing but the scene and three flags, what they allow is known after the first time.
//!
//! INVARIANT (cedar_itself_agrees): evaluating the rules of a scene gives the decision and the deciding rules that
//! evaluating all rules gives. A rule is left out only if its head cannot match, which Cedar would find out as well.

use crate::attribute::Attributes;
use crate::circumstances::{Approval, Circumstances};
use crate::error::PolicyError;
use crate::literal;
use crate::membership::Membership;
use crate::names::{EntityKind, Names};
use crate::request::{PolicyRequest, PolicyRequestContext, SkillTrust};
use crate::resource::PolicyResource;
use crate::rule::Rule;
use cedar_policy::{
    Entities, Entity, EntityTypeName, EntityUid, PolicySet, Request, RestrictedExpression as Value, Schema,
};
use palyra_protocol::{ChannelId, DeviceId, PolicyAction, Principal, PrincipalKind, ToolCapability, WorkspaceRole};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// Everything a scene depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SceneKey {
    pub(crate) principal: Principal,
    pub(crate) action: PolicyAction,
    pub(crate) resource: PolicyResource,
    pub(crate) channel: ChannelId,
    owned_by: Option<Principal>,
    proposed_by: Option<Principal>,
    device: Option<DeviceId>,
    workspace: Option<String>,
    tool: Option<String>,
    skill: Option<String>,
    publisher: Option<String>,
    trust: Option<SkillTrust>,
    capabilities: u8,
    roles: u8,
    role: Option<WorkspaceRole>,
}

impl SceneKey {
    fn new(request: &PolicyRequest, context: &PolicyRequestContext) -> Self {
        Self {
            principal: request.principal.clone(),
            action: request.action,
            resource: request.resource.clone(),
            channel: context.channel.clone(),
            owned_by: context.owned_by.clone(),
            proposed_by: context.proposed_by.clone(),
            device: context.device_id.clone(),
            workspace: context.workspace.clone(),
            tool: context.tool.clone(),
            skill: context.skill_id.clone(),
            publisher: context.publisher.clone(),
            trust: context.trust,
            capabilities: capability_bits(&context.capabilities),
            roles: role_bits(&context.roles),
            role: context.role,
        }
    }

    fn is_of(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> bool {
        self.action == request.action
            && self.resource == request.resource
            && self.principal == request.principal
            && self.channel == context.channel
            && self.owned_by == context.owned_by
            && self.proposed_by == context.proposed_by
            && self.device == context.device_id
            && self.workspace == context.workspace
            && self.tool == context.tool
            && self.skill == context.skill_id
            && self.publisher == context.publisher
            && self.trust == context.trust
            && self.capabilities == capability_bits(&context.capabilities)
            && self.roles == role_bits(&context.roles)
            && self.role == context.role
    }
}

fn role_bits(roles: &[WorkspaceRole]) -> u8 {
    roles.iter().fold(0, |bits, role| bits | 1 << *role as u8)
}

fn capability_bits(capabilities: &[ToolCapability]) -> u8 {
    capabilities.iter().fold(0, |bits, capability| bits | 1 << *capability as u8)
}

/// The rules that can apply in a scene.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) policies: PolicySet,
    /// The context attributes that any of them looks at.
    pub(crate) attributes: Attributes,
}

/// One scene.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) key: SceneKey,
    pub(crate) principal: EntityUid,
    pub(crate) resource: EntityUid,
    pub(crate) channel: EntityUid,
    pub(crate) entities: Arc<Entities>,
    pub(crate) slice: Arc<Slice>,
    /// What was allowed before, by [`Circumstances::which`](crate::circumstances::Circumstances::which).
    pub(crate) allowed: [OnceLock<Allowed>; 8],
}

/// A question that was answered with yes, and the rules that did.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    pub(crate) asked: Request,
    pub(crate) rules: Vec<Arc<Rule>>,
}

/// What scenes are made from.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) names: Names,
    pub(crate) membership: Membership,
    pub(crate) rules: Vec<Arc<Rule>>,
    /// The rules that can speak of an action, by `PolicyAction as usize`, as indices into `rules`.
    by_action: Vec<Vec<u32>>,
    /// The types that an action applies to, by `PolicyAction as usize`.
    applies_to: Vec<AppliesTo>,
    /// The places that rules about reading name.
    places: Vec<String>,
}

#[derive(Debug)]
struct AppliesTo {
    principals: Vec<EntityTypeName>,
    resources: Vec<EntityTypeName>,
}

impl AppliesTo {
    fn new(action: PolicyAction, names: &Names, schema: &Schema) -> Result<Self, PolicyError> {
        let uid = names.action(action);
        let lacking = || PolicyError::Bug(format!("the schema lacks the action `{action}`"));
        let principals = schema.principals_for_action(uid).ok_or_else(lacking)?.cloned().collect();
        let resources = schema.resources_for_action(uid).ok_or_else(lacking)?.cloned().collect();
        Ok(Self { principals, resources })
    }
}

impl Stage {
    pub(crate) fn new(membership: Membership, rules: Vec<Arc<Rule>>, schema: &Schema) -> Result<Self, PolicyError> {
        let names = Names::new()?;
        let (mut by_action, mut applies_to) = (Vec::new(), Vec::new());
        for action in PolicyAction::ALL {
            let uid = names.action(*action);
            let speaking = (0u32..).zip(&rules).filter(|(_, rule)| rule.speaks_of(*action, uid));
            by_action.push(speaking.map(|(n, _)| n).collect());
            applies_to.push(AppliesTo::new(*action, &names, schema)?);
        }
        let places = literal::places(&rules);
        Ok(Self { names, membership, rules, by_action, applies_to, places })
    }

    /// What a context is built from, in one of these scenes.
    pub(crate) fn circumstances<'a>(
        &'a self,
        request: &'a PolicyRequest,
        context: &'a PolicyRequestContext,
        scene: &'a Scene,
        approval: Approval,
    ) -> Circumstances<'a> {
        let (names, places) = (&self.names, self.places.as_slice());
        Circumstances { names, request, context, channel: &scene.channel, approval, places }
    }

    /// The rules that can speak of an action.
    pub(crate) fn rules_for(&self, action: PolicyAction) -> impl Iterator<Item = &Arc<Rule>> {
        self.by_action[action as usize].iter().map(|n| &self.rules[*n as usize])
    }

    fn make(&self, key: SceneKey, slices: &Slices) -> Result<Scene, String> {
        let principal = self.names.principal(&key.principal);
        let resource = self.names.uid(key.resource.entity_kind(), key.resource.name());
        let channel = self.names.uid(EntityKind::Channel, key.channel.as_str());
        self.check_types(key.action, &principal, &resource)?;
        let entities = self.entities(&key, &principal, &resource, &channel)?;
        let fitting: Vec<u32> = self.by_action[key.action as usize]
            .iter()
            .copied()
            .filter(|n| self.rules[*n as usize].scope_fits(&principal, &resource, &entities))
            .collect();
        let slice = slices.shared(fitting, |indices| self.slice(indices))?;
        Ok(Scene {
            key,
            principal,
            resource,
            channel,
            entities: Arc::new(entities),
            slice,
            allowed: Default::default(),
        })
    }

    /// Rules were validated for the schema's combinations of types; no other may reach them.
    fn check_types(&self, action: PolicyAction, principal: &EntityUid, resource: &EntityUid) -> Result<(), String> {
        let applies = &self.applies_to[action as usize];
        let (principal, resource) = (principal.type_name(), resource.type_name());
        if applies.principals.contains(principal) && applies.resources.contains(resource) {
            return Ok(());
        }
        Err(format!("`{action}` is not something that a {principal} does to a {resource}"))
    }

    fn slice(&self, indices: &[u32]) -> Result<Slice, String> {
        let rules = || indices.iter().map(|n| &self.rules[*n as usize]);
        let policies = PolicySet::from_policies(rules().map(|rule| rule.policy.clone())).map_err(|e| e.to_string())?;
        Ok(Slice { policies, attributes: rules().fold(Attributes::NONE, |all, rule| all.union(rule.attributes)) })
    }

    /// Everybody and everything the request names, each with what it belongs to.
    fn entities(
        &self,
        key: &SceneKey,
        principal: &EntityUid,
        resource: &EntityUid,
        channel: &EntityUid,
    ) -> Result<Entities, String> {
        let mut parents: HashMap<EntityUid, HashSet<EntityUid>> = HashMap::new();
        parents.insert(principal.clone(), self.standing(key));
        for other in [&key.owned_by, &key.proposed_by].into_iter().flatten() {
            parents.entry(self.names.principal(other)).or_insert_with(|| self.belongs_to(other, key));
        }
        if let Some(device) = &key.device {
            let groups =
                Principal::new(PrincipalKind::Device, device.as_str()).map(|device| self.belongs_to(&device, key));
            parents
                .entry(self.names.uid(EntityKind::Device, device.as_str()))
                .or_insert_with(|| groups.unwrap_or_default());
        }
        if let Some(tool) = &key.tool {
            parents.insert(self.names.uid(EntityKind::Tool, tool), self.powers(key));
        }
        let groups = self.membership.groups_of_channel(&key.channel);
        parents.insert(channel.clone(), groups.map(|group| self.names.uid(EntityKind::Group, group)).collect());
        let above = match &key.resource {
            PolicyResource::Tool(_) => self.powers(key),
            PolicyResource::Call(_)
            | PolicyResource::Approval(_)
            | PolicyResource::Grant(_)
            | PolicyResource::Memory(_)
            | PolicyResource::CronJob(_)
            | PolicyResource::Run(_)
            | PolicyResource::Token(_) => key.owned_by.iter().map(|owner| self.names.principal(owner)).collect(),
            PolicyResource::Agent(name) => {
                Principal::new(PrincipalKind::Agent, name).map(|agent| self.belongs_to(&agent, key)).unwrap_or_default()
            }
            PolicyResource::Device(name) => Principal::new(PrincipalKind::Device, name)
                .map(|device| self.belongs_to(&device, key))
                .unwrap_or_default(),
            _ => HashSet::new(),
        };
        parents.entry(resource.clone()).or_default().extend(above);
        let mut entities = self.with_attributes(key)?;
        for entity in &entities {
            parents.remove(&entity.uid());
        }
        entities.extend(parents.into_iter().map(|(uid, parents)| Entity::new_no_attrs(uid, parents)));
        Entities::from_entities(entities, None).map_err(|e| e.to_string())
    }

    /// Those that rules can ask more about than where they belong: the workspace, and the skill.
    fn with_attributes(&self, key: &SceneKey) -> Result<Vec<Entity>, String> {
        let text = |text: &str| Value::new_string(text.to_owned());
        let mut entities = Vec::new();
        if let Some(root) = &key.workspace {
            let attributes = HashMap::from([("root".to_owned(), text(root))]);
            entities.push((self.names.uid(EntityKind::Workspace, root), attributes));
        }
        let skill = match &key.resource {
            PolicyResource::Skill(id) => Some(id),
            _ => key.skill.as_ref(),
        };
        if let Some(id) = skill {
            let publisher = key.publisher.as_deref().map(|publisher| ("publisher".to_owned(), text(publisher)));
            let trust = key.trust.map(|trust| ("trust".to_owned(), text(trust.as_str())));
            entities.push((self.names.uid(EntityKind::Skill, id), publisher.into_iter().chain(trust).collect()));
        }
        let make = |(uid, attributes)| Entity::new(uid, attributes, HashSet::new()).map_err(|e| e.to_string());
        entities.into_iter().map(make).collect()
    }

    /// What the request's tool can do, as entities.
    fn powers(&self, key: &SceneKey) -> HashSet<EntityUid> {
        let held = ToolCapability::ALL.into_iter().filter(|c| key.capabilities & (1 << *c as u8) != 0);
        held.map(|c| self.names.uid(EntityKind::Capability, c.policy_name())).collect()
    }

    /// What the principal belongs to. A token can leave it less of a role than it has without one, never more.
    fn standing(&self, key: &SceneKey) -> HashSet<EntityUid> {
        let uid = |role: WorkspaceRole| self.names.uid(EntityKind::Role, role.as_str());
        if let Some(role) = key.role {
            let groups = self.membership.groups_of(&key.principal);
            return groups.map(|group| self.names.uid(EntityKind::Group, group)).chain([uid(role)]).collect();
        }
        let besides = WorkspaceRole::ALL.into_iter().filter(|role| key.roles & (1 << *role as u8) != 0);
        self.belongs_to(&key.principal, key).into_iter().chain(besides.map(uid)).collect()
    }

    fn belongs_to(&self, principal: &Principal, key: &SceneKey) -> HashSet<EntityUid> {
        let groups = self.membership.groups_of(principal).map(|group| self.names.uid(EntityKind::Group, group));
        let roles = self.membership.roles_within(principal, key.workspace.as_deref());
        let roles = roles.map(|role| self.names.uid(EntityKind::Role, role));
        groups.chain(roles).collect()
    }
}

/// Slices in use, so that scenes with the same rules share one.
#[derive(Debug, Default)]
struct Slices(Mutex<HashMap<Vec<u32>, Weak<Slice>>>);

impl Slices {
    fn shared(
        &self,
        indices: Vec<u32>,
        make: impl FnOnce(&[u32]) -> Result<Slice, String>,
    ) -> Result<Arc<Slice>, String> {
        let mut slices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slice) = slices.get(&indices).and_then(Weak::upgrade) {
            return Ok(slice);
        }
        slices.retain(|_, slice| slice.strong_count() > 0);
        let slice = Arc::new(make(&indices)?);
        slices.insert(indices, Arc::downgrade(&slice));
        Ok(slice)
    }
}

/// The table of scenes. Each key has one slot; whoever comes later takes it.
#[derive(Debug)]
pub(crate) struct Scenes {
    slots: Box<[RwLock<Option<Arc<Scene>>>]>,
    hasher: RandomState,
    slices: Slices,
}

impl Scenes {
    const SLOTS: usize = 512;

    /// With very many rules a slice can be large; fewer are kept.
    pub(crate) fn new(rules: usize) -> Self {
        let slots = (Self::SLOTS * 1000 / rules.max(1000)).max(32);
        Self {
            slots: (0..slots).map(|_| RwLock::new(None)).collect(),
            hasher: RandomState::new(),
            slices: Slices::default(),
        }
    }

    /// The scene of a request.
    pub(crate) fn scene(
        &self,
        stage: &Stage,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
    ) -> Result<Arc<Scene>, String> {
        let capabilities = capability_bits(&context.capabilities);
        let people = (&request.principal, &context.owned_by, &context.proposed_by);
        let things = (request.action, &request.resource, &context.channel, &context.device_id, &context.tool);
        let skill = (&context.skill_id, &context.publisher, context.trust);
        let roles = (role_bits(&context.roles), context.role);
        let hash = self.hasher.hash_one((people, things, skill, &context.workspace, capabilities, roles));
        let slot = &self.slots[(hash % self.slots.len() as u64) as usize];
        if let Some(scene) = slot.read().unwrap_or_else(PoisonError::into_inner).as_ref()
            && scene.key.is_of(request, context)
        {
            return Ok(Arc::clone(scene));
        }
        let scene = Arc::new(stage.make(SceneKey::new(request, context), &self.slices)?);
        *slot.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&scene));
        Ok(scene)
    }
}
