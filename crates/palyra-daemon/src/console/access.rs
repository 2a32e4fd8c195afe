//! Access: who one is, console sessions, tokens, members and agents; each as far as one may see them.

use super::passkeys;
use super::rendered::document;
use super::session::{self, Nothing};
use super::signed::Signed;
use super::tables::{Act, Cell, Section, page};
use crate::http::{Caller, Door, Id, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_access::IssuedTokens;
use palyra_engine::EngineError;
use palyra_protocol::TokenId;
use palyra_protocol::access::{TokenState, TokenView};

pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let (engine, peer) = (&door.engine, &caller.peer);
    let who = engine.whoami(peer)?;
    let role = who.role.map_or_else(|| "no role".to_owned(), |role| role.to_string());
    let you = Section {
        title: "You",
        about: format!("You act as {} ({role}), through the door `{}`.", who.principal, who.channel),
        columns: &["right", "answer"],
        rows: Vec::new(),
        empty: "`palyra access whoami` lists every right with the rule that gives or refuses it.",
        older: None,
    };
    let mut sections = vec![you];
    if let Ok(sessions) = engine.console_sessions(peer).await {
        sections.push(session::section(&sessions, peer.console_id()));
    }
    if let Ok(passkeys) = engine.passkeys(peer) {
        sections.push(passkeys::section(&passkeys));
    }
    sections.extend(seen(engine.tokens(peer))?.map(|tokens| tokens_section(&tokens)));
    if let Some(members) = seen(engine.members(peer))? {
        let row = |member: &palyra_protocol::access::MemberRecord| {
            vec![
                Cell::text(&member.principal),
                Cell::text(member.role),
                Cell::time(member.since),
                Cell::text(&member.by),
            ]
        };
        sections.push(Section {
            title: "Members",
            about: "People with a role here. A token or a session of theirs never reaches further than it.".to_owned(),
            columns: &["who", "role", "since", "by"],
            rows: members.iter().map(row).collect(),
            empty: "Nobody but the owner. `palyra access member set user:mia --role admin` adds somebody.",
            older: None,
        });
    }
    if let Some(agents) = seen(engine.agents(peer))? {
        let row = |agent: &palyra_protocol::access::AgentRecord| {
            vec![
                Cell::text(&agent.principal),
                Cell::text(&agent.description),
                Cell::time(agent.created_at),
                Cell::text(&agent.by),
            ]
        };
        sections.push(Section {
            title: "Agents",
            about: "Programs that may hold tokens. They propose; they never approve.".to_owned(),
            columns: &["who", "what for", "since", "by"],
            rows: agents.iter().map(row).collect(),
            empty: "No agent is registered. `palyra connect` puts one that you already run behind Palyra.",
            older: None,
        });
    }
    page(&sections, &[])
}

/// What one may not see is left out.
fn seen<T>(found: Result<T, EngineError>) -> Result<Option<T>, Refused> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == palyra_engine::ErrorKind::Forbidden => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn tokens_section(tokens: &[TokenView]) -> Section {
    let row = |token: &TokenView| {
        let (word, tone) = match token.state {
            TokenState::Active => ("active", "good"),
            TokenState::Expired => ("expired", "plain"),
            TokenState::Revoked => ("revoked", "plain"),
        };
        let scopes = token.scopes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let act = || {
            let asks = format!("Revoke {} and every token that was issued with it?", token.prefix);
            let path = format!("/console/api/access/tokens/{}/revoke", token.token_id);
            Cell::Acts(vec![Act::new("Revoke", path, asks)])
        };
        vec![
            Cell::code(format!("{}…", token.prefix)),
            Cell::Badge(word.to_owned(), tone),
            Cell::text(&token.label),
            Cell::text(&token.principal),
            Cell::text(token.role),
            Cell::text(scopes),
            Cell::time(token.expires_at),
            Cell::maybe(token.last_used_at),
            if token.state == TokenState::Active { act() } else { Cell::nothing() },
        ]
    };
    Section {
        title: "Tokens",
        about: "What programs show to come in. Only the beginning of each is known here.".to_owned(),
        columns: &["token", "state", "label", "for", "role", "may", "expires", "last used", ""],
        rows: tokens.iter().map(row).collect(),
        empty: "There are none. `palyra access token create agent:NAME` makes one.",
        older: None,
    }
}

pub(super) async fn revoke_token(
    State(door): State<Door>,
    caller: Caller,
    Id(token): Id<TokenId>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.revoke_token(&caller.peer, token, IssuedTokens::Withdrawn).await?)
}
