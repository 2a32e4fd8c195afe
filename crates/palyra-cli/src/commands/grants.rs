//! `palyra grants`: standing answers.

use super::read;
use crate::args::Grants;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, GOOD, remaining, say, styled};
use crate::text::safe;
use palyra_api::v1::{ListGrantsRequest, RevokeGrantRequest};
use palyra_protocol::{Clock as _, GrantRecord, SystemClock};

pub async fn run(context: &Context, command: Grants) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Grants::List => {
            let reply = connection.grants().list(ListGrantsRequest {}).await?.into_inner();
            let grants = reply.grants.iter().map(|grant| read(&grant.grant_json)).collect::<Result<Vec<_>, _>>()?;
            list(context, &grants)
        }
        Grants::Revoke { grant } => {
            let request = RevokeGrantRequest { grant_id: grant.into() };
            let grant: GrantRecord = read(&connection.grants().revoke(request).await?.into_inner().grant_json)?;
            if context.json() {
                return output::json(&grant);
            }
            say!("{} {} is withdrawn; the next call asks again", styled(GOOD, "✔"), grant.grant_id);
            Ok(())
        }
    }
}

fn list(context: &Context, grants: &[GrantRecord]) -> Result<(), Failure> {
    if context.json() {
        return output::json(&grants);
    }
    if grants.is_empty() {
        say!("No standing answers.");
        return Ok(());
    }
    let rows: Vec<_> = grants
        .iter()
        .map(|grant| {
            let holds = match (grant.revoked_at, grant.expires_at, &grant.session) {
                (Some(_), _, _) => "revoked".to_owned(),
                (None, Some(at), _) if at <= SystemClock.now() => "expired".to_owned(),
                (None, Some(at), _) => remaining(at),
                (None, None, Some(session)) => format!("session {session}"),
                (None, None, None) => "always".to_owned(),
            };
            vec![
                grant.grant_id.to_string(),
                holds,
                grant.uses.to_string(),
                grant.principal.to_string(),
                format!("{}: {}", grant.tool, safe(&grant.matcher.describe())),
            ]
        })
        .collect();
    output::table(&["GRANT", "HOLDS", "USES", "WHOSE", "WHAT"], &rows);
    Ok(())
}
