//! `palyra hosts`: the daemons that this machine was paired with.

use crate::args::devices::Hosts as Command;
use crate::context::Context;
use crate::exit::Failure;
use crate::hosts::{self, Hosts, LOCAL, failed};
use crate::output::{self, BAD, GOOD, remaining, say, styled};
use palyra_api::Connection;
use palyra_identity::ProfileName;
use palyra_protocol::{Clock as _, SystemClock};
use serde_json::{Value, json};

pub async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => list(context),
        Command::Use { profile } => {
            let name = (profile != LOCAL).then(|| named(&profile)).transpose()?;
            Hosts::open(&context.state_dir)?.choose(name.as_ref())?;
            tell(context, &json!({ "chosen": profile }), &format!("commands go to `{profile}` from now on"))
        }
        Command::Remove { profile } => {
            let name = named(&profile)?;
            Hosts::open(&context.state_dir)?.forget(&name)?;
            let sentence = format!("`{profile}` is forgotten; revoke this machine there: `palyra devices revoke`");
            tell(context, &json!({ "removed": profile }), &sentence)
        }
        Command::Renew { profile, all } => {
            let names = match (profile, all) {
                (Some(profile), _) => vec![named(&profile)?],
                (None, _) => Hosts::open(&context.state_dir)?.store().list().map_err(|error| failed(&error))?,
            };
            renew(context, &names).await
        }
    }
}

fn named(text: &str) -> Result<ProfileName, Failure> {
    text.parse().map_err(|error| failed(&error))
}

fn tell(context: &Context, document: &Value, sentence: &str) -> Result<(), Failure> {
    if context.json() {
        return output::json(document);
    }
    say!("{} {sentence}", styled(GOOD, "✔"));
    Ok(())
}

fn list(context: &Context) -> Result<(), Failure> {
    let hosts = Hosts::open(&context.state_dir)?;
    let chosen = hosts::chosen(&context.state_dir)?;
    let mut documents = Vec::new();
    for name in hosts.store().list().map_err(|error| failed(&error))? {
        let is_chosen = chosen.as_ref() == Some(&name);
        documents.push(match hosts.load(&name) {
            Ok(profile) => json!({
                "profile": name.as_str(), "chosen": is_chosen, "address": profile.address(),
                "device_id": profile.device_id(), "principal": profile.principal(), "role": profile.role(),
                "zone": profile.zone().as_str(), "certificate_until": profile.not_after(),
                "certificate_over": profile.not_after() <= SystemClock.now(),
            }),
            Err(failure) => json!({ "profile": name.as_str(), "chosen": is_chosen, "error": failure.error() }),
        });
    }
    if context.json() {
        return output::json(&documents);
    }
    if documents.is_empty() {
        say!("This machine was not paired with any daemon. `palyra pair HOST` does that.");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = documents.iter().map(row).collect();
    output::table(&["", "PROFILE", "ADDRESS", "AS", "ROLE", "CERTIFICATE"], &rows);
    Ok(())
}

fn row(host: &Value) -> Vec<String> {
    let text = |field: &str| host[field].as_str().unwrap_or("").to_owned();
    let mark = if host["chosen"] == true { "*" } else { "" }.to_owned();
    if let Some(message) = host["error"]["message"].as_str() {
        let why = styled(BAD, crate::text::safe(message));
        return vec![mark, text("profile"), String::new(), String::new(), String::new(), why];
    }
    let until = serde_json::from_value(host["certificate_until"].clone()).ok();
    let certificate = match (host["certificate_over"] == true, until) {
        (false, Some(until)) => format!("another {}", remaining(until)),
        _ => styled(BAD, "over: pair again"),
    };
    vec![mark, text("profile"), text("address"), text("principal"), text("role"), certificate]
}

async fn renew(context: &Context, names: &[ProfileName]) -> Result<(), Failure> {
    let mut documents = Vec::new();
    for name in names {
        let connection = Connection::open_remote(&context.remote(name)?, None).await?;
        let until = hosts::renew(&context.state_dir, name, &connection).await?;
        match until {
            Some(until) if !context.json() => {
                say!("{} `{name}`: the certificate holds for another {}", styled(GOOD, "✔"), remaining(until));
            }
            None if !context.json() => say!("`{name}`: another command is renewing it"),
            _ => {}
        }
        documents.push(json!({ "profile": name.as_str(), "certificate_until": until }));
    }
    if context.json() { output::json(&documents) } else { Ok(()) }
}
