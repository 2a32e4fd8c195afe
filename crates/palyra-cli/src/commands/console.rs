//! `palyra console`: opens the console in a browser, lists and ends its sessions.

use super::read;
use crate::args::console::{Console, ConsoleCommand, Passkeys, Sessions};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, DIM, GOOD, note, say, styled, when};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{
    CreateConsoleCodeRequest, EndConsoleSessionRequest, ListConsoleSessionsRequest, ListPasskeysRequest,
    RemovePasskeyRequest,
};
use palyra_protocol::{Clock as _, Passkey, SystemClock, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::process::{Command, Stdio};

/// A session as the daemon tells it.
#[derive(Debug, Serialize, Deserialize)]
struct Session {
    session: String,
    principal: String,
    label: String,
    key: String,
    opened_at: Timestamp,
    last_used_at: Timestamp,
    ends_at: Timestamp,
}

pub async fn run(context: &Context, console: Console) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match console.command {
        None => open(context, &connection, console.print).await,
        Some(ConsoleCommand::Sessions(Sessions::List)) => list(context, &connection).await,
        Some(ConsoleCommand::Sessions(Sessions::Revoke { sessions, all })) => {
            let named = sessions.into_iter().map(String::from).collect();
            let ids =
                if all { all_sessions(&connection).await?.into_iter().map(|s| s.session).collect() } else { named };
            revoke(context, &connection, ids).await
        }
        Some(ConsoleCommand::Passkeys(Passkeys::List)) => passkeys(context, &connection).await,
        Some(ConsoleCommand::Passkeys(Passkeys::Remove { passkey })) => {
            let request = RemovePasskeyRequest { passkey };
            let reply = connection.console().remove_passkey(request).await?.into_inner();
            let removed: Passkey = read(&reply.passkey_json)?;
            if context.json() {
                return output::json(&removed);
            }
            say!("{} {} of {} confirms nothing any more", styled(GOOD, "✔"), safe(&removed.label), removed.principal);
            Ok(())
        }
    }
}

async fn passkeys(context: &Context, connection: &Connection) -> Result<(), Failure> {
    let told = connection.console().list_passkeys(ListPasskeysRequest {}).await?.into_inner().passkeys_json;
    let passkeys: Vec<Passkey> = told.iter().map(|passkey| read(passkey)).collect::<Result<_, _>>()?;
    if context.json() {
        return output::json(&passkeys);
    }
    if passkeys.is_empty() {
        note!("there are none; the console's page `Access` adds one");
    }
    for passkey in passkeys {
        let at = when(passkey.at);
        say!("{}  {}  {}  since {at}", styled(BOLD, &passkey.id), passkey.principal, safe(&passkey.label));
    }
    Ok(())
}

async fn open(context: &Context, connection: &Connection, print: bool) -> Result<(), Failure> {
    let made = connection.console().create_code(CreateConsoleCodeRequest {}).await?.into_inner();
    if context.json() {
        return output::json(&json!({ "url": made.url, "expires_at": made.expires_at_unix_ms }));
    }
    if print || !show(&made.url) {
        say!("{}", made.url);
        let left = made.expires_at_unix_ms.saturating_sub(SystemClock.now().unix_ms()) / 1000;
        note!("{}", styled(DIM, format!("open this in a browser on this machine; it opens once, within {left} s")));
        return Ok(());
    }
    say!(
        "{} the console is open in your browser; `palyra console --print` shows an address for another",
        styled(GOOD, "✔")
    );
    Ok(())
}

/// Hands the address to the desktop; whether there is one that takes it.
fn show(url: &str) -> bool {
    let desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !desktop && !cfg!(target_os = "macos") {
        return false;
    }
    let mut command = Command::new(opener);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

async fn all_sessions(connection: &Connection) -> Result<Vec<Session>, Failure> {
    let told = connection.console().list_sessions(ListConsoleSessionsRequest {}).await?.into_inner().sessions_json;
    told.iter().map(|session| read(session)).collect()
}

async fn list(context: &Context, connection: &Connection) -> Result<(), Failure> {
    let sessions = all_sessions(connection).await?;
    if context.json() {
        return output::json(&sessions);
    }
    if sessions.is_empty() {
        note!("no console is open; `palyra console` opens one");
    }
    for session in sessions {
        say!("{}  {}  {}", styled(BOLD, &session.session), session.principal, safe(&session.label));
        say!(
            "    opened {}, last used {}, ends {}",
            when(session.opened_at),
            when(session.last_used_at),
            when(session.ends_at)
        );
    }
    Ok(())
}

async fn revoke(context: &Context, connection: &Connection, ids: Vec<String>) -> Result<(), Failure> {
    let mut ended = Vec::new();
    for session in ids {
        let reply = connection.console().end_session(EndConsoleSessionRequest { session }).await?.into_inner();
        let session: Session = read(&reply.session_json)?;
        if !context.json() {
            say!("{} {} is over; its pages get nothing any more", styled(GOOD, "✔"), session.session);
        }
        ended.push(session);
    }
    if context.json() {
        return output::json(&ended);
    }
    if ended.is_empty() {
        note!("no console was open");
    }
    Ok(())
}
