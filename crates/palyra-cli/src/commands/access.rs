//! `palyra access`: who may come in, as what.

use super::read;
use crate::args::access::{Access, Agent, CreateToken, Feature, Group, Member, Switch, Token};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BAD, BOLD, DIM, GOOD, WARN, note, remaining, say, styled, when};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{
    AccessDocument, AccessDocuments, AddAgentRequest, CreateTokenRequest, IssuedToken, ListAgentsRequest,
    ListFeaturesRequest, ListGroupsRequest, ListMembersRequest, ListTokensRequest, RemoveAgentRequest,
    RemoveGroupRequest, RemoveMemberRequest, RevokeTokenRequest, RightsRequest, RotateTokenRequest, SetFeatureRequest,
    SetGroupRequest, SetMemberRequest, WhoAmIRequest,
};
use palyra_protocol::access::{
    AgentRecord, ChangedToken, FeatureView, GroupMember, GroupName, GroupRecord, MemberRecord, RightDecision,
    RightView, TokenState, TokenView, WhoAmI,
};
use palyra_protocol::{Principal, WorkspaceRole};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::time::Duration;

pub async fn run(context: &Context, command: Access) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Access::Whoami => whoami(context, &connection).await,
        Access::Rights => rights(context, &connection).await,
        Access::Token(command) => token(context, &connection, command).await,
        Access::Member(command) => member(context, &connection, command).await,
        Access::Agent(command) => agent(context, &connection, command).await,
        Access::Group(command) => group(context, &connection, command).await,
        Access::Feature(command) => feature(context, &connection, command).await,
    }
}

fn one<T: DeserializeOwned>(reply: tonic::Response<AccessDocument>) -> Result<T, Failure> {
    read(&reply.into_inner().document_json)
}

fn all<T: DeserializeOwned>(reply: tonic::Response<AccessDocuments>) -> Result<Vec<T>, Failure> {
    reply.into_inner().documents_json.iter().map(|document| read(document)).collect()
}

/// Prints a record, or a sentence about it.
fn tell<T: Serialize>(context: &Context, record: &T, sentence: &str) -> Result<(), Failure> {
    if context.json() {
        return output::json(record);
    }
    say!("{} {sentence}", styled(GOOD, "✔"));
    Ok(())
}

async fn whoami(context: &Context, connection: &Connection) -> Result<(), Failure> {
    let me: WhoAmI = one(connection.access().who_am_i(WhoAmIRequest {}).await?)?;
    if context.json() {
        return output::json(&me);
    }
    let acting = me.acting_for.as_ref().map_or_else(String::new, |who| format!(" (typed by {who})"));
    say!("{}{acting}", styled(BOLD, &me.principal));
    let scopes = match &me.scopes {
        Some(scopes) => scopes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        None => "not limited by a token".to_owned(),
    };
    let token = match (&me.token, me.expires_at) {
        (None, Some(until)) if me.device.is_some() => {
            format!("none: a paired device, whose certificate holds for {}", remaining(until))
        }
        (Some(id), Some(until)) => format!("{id}, for {}", remaining(until)),
        _ => "none: you run this daemon".to_owned(),
    };
    let groups = if me.groups.is_empty() { "none".to_owned() } else { me.groups.join(", ") };
    let workspace = me.workspace.as_ref().map_or_else(
        || "none is named here: `palyra workspaces list`".to_owned(),
        |workspace| format!("{} ({})", safe(&workspace.root), workspace.workspace_id),
    );
    for (name, value) in [
        ("role", me.role.map_or_else(|| "none".to_owned(), |role| role.to_string())),
        ("scopes", scopes),
        ("token", token),
        ("groups", groups),
        ("workspace", workspace),
        ("channel", me.channel.to_string()),
    ] {
        say!("  {}{}{value}", styled(BOLD, name), " ".repeat(12 - name.len()));
    }
    say!("");
    let rows: Vec<_> = me.rights.iter().map(right_row).collect();
    output::table(&["", "ACTION", "ON", "WHY NOT"], &rows);
    Ok(())
}

fn right_row(right: &RightView) -> Vec<String> {
    let (mark, why) = match right.decision {
        RightDecision::Allow => ("yes", String::new()),
        RightDecision::NeedsApproval => ("ask", "a person must approve it".to_owned()),
        RightDecision::Depends => ("depends", safe(&right.reason)),
        RightDecision::Deny => {
            ("no", format!("{}: {}", right.decided_by.as_deref().unwrap_or("policy"), safe(&right.reason)))
        }
    };
    vec![mark.to_owned(), right.action.clone(), safe(&right.resource), why]
}

async fn rights(context: &Context, connection: &Connection) -> Result<(), Failure> {
    let rights = connection.access().rights(RightsRequest {}).await?.into_inner().rights;
    if context.json() {
        let rows: Vec<_> =
            rights.iter().map(|r| json!({ "method": r.method, "action": r.action, "resource": r.resource })).collect();
        return output::json(&rows);
    }
    let on =
        |resource: &str| if resource.is_empty() { "what the request names".to_owned() } else { resource.to_owned() };
    let rows: Vec<_> = rights.into_iter().map(|r| vec![r.method, r.action, on(&r.resource)]).collect();
    output::table(&["METHOD", "ACTION", "ON"], &rows);
    Ok(())
}

async fn token(context: &Context, connection: &Connection, command: Token) -> Result<(), Failure> {
    let mut access = connection.access();
    match command {
        Token::Create(new) => issued(context, access.create_token(create(new)).await?, "issued"),
        Token::List => list_tokens(context, &all(access.list_tokens(ListTokensRequest {}).await?)?),
        Token::Rotate { id, overlap, keep_issued } => {
            let request = RotateTokenRequest { token_id: id.into(), overlap_ms: ms(overlap), keep_issued };
            issued(context, access.rotate_token(request).await?, "replaced")
        }
        Token::Revoke { id, keep_issued } => {
            let request = RevokeTokenRequest { token_id: id.into(), keep_issued };
            let changed: ChangedToken = one(access.revoke_token(request).await?)?;
            tell(context, &changed, &format!("{} opens nothing any more", changed.token.token_id))?;
            also_revoked(context, &changed);
            Ok(())
        }
    }
}

fn create(new: CreateToken) -> CreateTokenRequest {
    CreateTokenRequest {
        principal: new.principal.to_string(),
        label: new.label,
        role: new.role.to_string(),
        scopes: new.scopes.iter().map(ToString::to_string).collect(),
        life_ms: ms(new.expires),
        rate_per_minute: new.rate.unwrap_or_default(),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The token goes to standard output, alone; what there is to know about it beside it.
fn issued(context: &Context, reply: tonic::Response<IssuedToken>, how: &str) -> Result<(), Failure> {
    let IssuedToken { token_json, secret } = reply.into_inner();
    let changed: ChangedToken = read(&token_json)?;
    if context.json() {
        return output::json(&json!({ "token": secret, "record": changed }));
    }
    also_revoked(context, &changed);
    let record = changed.token;
    let scopes: Vec<_> = record.scopes.iter().map(ToString::to_string).collect();
    note!("{} {} {how} for {}, as {}", styled(GOOD, "✔"), record.token_id, record.principal, record.role);
    note!("  scopes   {}", scopes.join(", "));
    note!("  holds    {}", remaining(record.expires_at));
    if let Some(until) = record.replaced_secret_valid_until {
        note!("  overlap  the old secret holds for {} more", remaining(until));
    }
    note!("{}", styled(WARN, "this is the only time that the token is shown:"));
    say!("{secret}");
    Ok(())
}

/// The tokens that went with another one.
fn also_revoked(context: &Context, changed: &ChangedToken) {
    if !context.json() && !changed.issued_revoked.is_empty() {
        let ids: Vec<_> = changed.issued_revoked.iter().map(ToString::to_string).collect();
        note!("{} issued with it, and withdrawn as well: {}", styled(WARN, "!"), ids.join(", "));
    }
}

fn list_tokens(context: &Context, tokens: &[TokenView]) -> Result<(), Failure> {
    if context.json() {
        return output::json(&tokens);
    }
    if tokens.is_empty() {
        say!("No tokens. Issue one: palyra access token create --help");
        return Ok(());
    }
    let row = |token: &TokenView| {
        let holds = match token.state {
            TokenState::Active => remaining(token.expires_at),
            dead => dead.as_str().to_owned(),
        };
        let scopes: Vec<_> = token.scopes.iter().map(ToString::to_string).collect();
        vec![
            token.token_id.to_string(),
            token.principal.to_string(),
            token.role.to_string(),
            holds,
            token.by.to_string(),
            when(token.created_at),
            token.last_used_at.map_or_else(|| "never".to_owned(), when),
            safe(&token.label),
            scopes.join(","),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    let head = ["TOKEN", "SPEAKS FOR", "ROLE", "HOLDS", "ISSUED BY", "SINCE", "LAST USED", "LABEL", "SCOPES"];
    output::table(&head, &rows);
    Ok(())
}

async fn member(context: &Context, connection: &Connection, command: Member) -> Result<(), Failure> {
    let mut access = connection.access();
    let set = |principal: Principal, role: WorkspaceRole| SetMemberRequest {
        principal: principal.to_string(),
        role: role.to_string(),
    };
    match command {
        Member::List => {
            let members: Vec<MemberRecord> = all(access.list_members(ListMembersRequest {}).await?)?;
            if context.json() {
                return output::json(&members);
            }
            let row =
                |m: &MemberRecord| vec![m.principal.to_string(), m.role.to_string(), when(m.since), m.by.to_string()];
            output::table(&["WHO", "ROLE", "SINCE", "BY"], &members.iter().map(row).collect::<Vec<_>>());
            Ok(())
        }
        Member::Add { principal, role } | Member::Role { principal, role } => {
            let member: MemberRecord = one(access.set_member(set(principal, role)).await?)?;
            tell(context, &member, &format!("{} is {} here", member.principal, member.role))
        }
        Member::Remove { principal } => {
            let request = RemoveMemberRequest { principal: principal.to_string() };
            let member: MemberRecord = one(access.remove_member(request).await?)?;
            tell(context, &member, &format!("{} is no member any more; their tokens open nothing", member.principal))
        }
    }
}

async fn agent(context: &Context, connection: &Connection, command: Agent) -> Result<(), Failure> {
    let mut access = connection.access();
    match command {
        Agent::List => {
            let agents: Vec<AgentRecord> = all(access.list_agents(ListAgentsRequest {}).await?)?;
            if context.json() {
                return output::json(&agents);
            }
            if agents.is_empty() {
                say!("No agents. Register one: palyra access agent add agent:NAME");
                return Ok(());
            }
            let row = |a: &AgentRecord| {
                vec![a.principal.to_string(), when(a.created_at), a.by.to_string(), safe(&a.description)]
            };
            output::table(&["AGENT", "SINCE", "BY", "WHAT FOR"], &agents.iter().map(row).collect::<Vec<_>>());
            Ok(())
        }
        Agent::Add { principal, description } => {
            let request = AddAgentRequest { principal: principal.to_string(), description };
            let agent: AgentRecord = one(access.add_agent(request).await?)?;
            let next = format!("palyra access token create {}", agent.principal);
            tell(context, &agent, &format!("{} is registered; give it a token: {next}", agent.principal))
        }
        Agent::Remove { principal } => {
            let request = RemoveAgentRequest { principal: principal.to_string() };
            let agent: AgentRecord = one(access.remove_agent(request).await?)?;
            tell(context, &agent, &format!("{} is gone; its tokens open nothing", agent.principal))
        }
    }
}

async fn group(context: &Context, connection: &Connection, command: Group) -> Result<(), Failure> {
    let mut access = connection.access();
    let texts = |members: Vec<GroupMember>| members.iter().map(ToString::to_string).collect::<Vec<_>>();
    let set = |name: GroupName, add, remove| SetGroupRequest { name: name.to_string(), add, remove };
    let changed = |group: GroupRecord| {
        let members = texts(group.members.clone());
        let members = if members.is_empty() { "nobody".to_owned() } else { members.join(", ") };
        tell(context, &group, &format!("{} holds {members}", group.name))
    };
    match command {
        Group::List => {
            let groups: Vec<GroupRecord> = all(access.list_groups(ListGroupsRequest {}).await?)?;
            if context.json() {
                return output::json(&groups);
            }
            if groups.is_empty() {
                say!("No groups. Make one: palyra access group add NAME user:NAME");
                return Ok(());
            }
            let row = |g: &GroupRecord| vec![g.name.to_string(), texts(g.members.clone()).join(", ")];
            output::table(&["GROUP", "MEMBERS"], &groups.iter().map(row).collect::<Vec<_>>());
            Ok(())
        }
        Group::Add { group, members } => changed(one(access.set_group(set(group, texts(members), vec![])).await?)?),
        Group::Remove { group, members } => changed(one(access.set_group(set(group, vec![], texts(members))).await?)?),
        Group::Delete { group } => {
            let request = RemoveGroupRequest { name: group.to_string() };
            let group: GroupRecord = one(access.remove_group(request).await?)?;
            tell(context, &group, &format!("the group {} is gone", group.name))
        }
    }
}

async fn feature(context: &Context, connection: &Connection, command: Feature) -> Result<(), Failure> {
    let mut access = connection.access();
    match command {
        Feature::List => {
            let features: Vec<FeatureView> = all(access.list_features(ListFeaturesRequest {}).await?)?;
            if context.json() {
                return output::json(&features);
            }
            for feature in &features {
                let (style, state) = if feature.on { (GOOD, "on") } else { (BAD, "off") };
                let default = if feature.on == feature.default { "" } else { ", not the default" };
                say!("{}  {}{default}", styled(BOLD, &feature.name), styled(style, state));
                say!("  {}", styled(DIM, &feature.about));
            }
            Ok(())
        }
        Feature::Set { name, value } => {
            let request = SetFeatureRequest { name, on: value == Switch::On };
            let feature: FeatureView = one(access.set_feature(request).await?)?;
            tell(context, &feature, &format!("{} is {}", feature.name, if feature.on { "on" } else { "off" }))
        }
    }
}
