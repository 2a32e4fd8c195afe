//! `palyra pairing`: codes that let a device in.

use crate::args::devices::{Pairing, PairingCode};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, DIM, GOOD, WARN, note, remaining, say, styled};
use palyra_api::v1::{CreateCodeRequest, PairingCodeReply, WithdrawCodeRequest};
use palyra_protocol::Timestamp;
use serde_json::json;

/// The port that need not be said.
const DEFAULT_PORT: &str = ":7443";

pub async fn run(context: &Context, command: Pairing) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Pairing::Code(wanted) => {
            let reply = connection.devices().create_code(request(&wanted)).await?.into_inner();
            show(context, &reply)
        }
        Pairing::Withdraw { code } => {
            let request = WithdrawCodeRequest { code_id: code.clone() };
            let lived = connection.devices().withdraw_code(request).await?.into_inner().lived;
            if context.json() {
                return output::json(&json!({ "code_id": code, "lived": lived }));
            }
            say!("{} {code} {}", styled(GOOD, "✔"), if lived { "is void" } else { "was over already" });
            Ok(())
        }
    }
}

fn request(wanted: &PairingCode) -> CreateCodeRequest {
    CreateCodeRequest {
        role: wanted.role.to_string(),
        principal: wanted.principal.as_ref().map(ToString::to_string).unwrap_or_default(),
        life_ms: u64::try_from(wanted.ttl.as_millis()).unwrap_or(u64::MAX),
        device: wanted.device.clone().unwrap_or_default(),
        qr: wanted.qr,
        host: wanted.reach.clone().unwrap_or_default(),
    }
}

fn show(context: &Context, reply: &PairingCodeReply) -> Result<(), Failure> {
    let expires_at = Timestamp::from_unix_ms(reply.expires_at_unix_ms);
    if context.json() {
        return output::json(&json!({
            "code_id": reply.code_id, "code": reply.code, "expires_at": expires_at, "addresses": reply.addresses,
            "loopback_only": reply.loopback_only,
        }));
    }
    let host = reply.addresses.first().map_or("HOST", |at| at.strip_suffix(DEFAULT_PORT).unwrap_or(at));
    if reply.picture.is_empty() {
        say!("{}\n", styled(BOLD, &reply.code));
        say!("On the other machine, within {}:", remaining(expires_at));
        say!("  palyra pair {host} --code '{}'", reply.code);
    } else {
        say!("{}", reply.picture);
        say!("Scan it within {}, or type on the other machine:", remaining(expires_at));
        say!("  palyra pair --code '{}'", reply.code);
    }
    say!("Then compare the four words on both screens, here with:");
    say!("  palyra approvals watch");
    say!("{}", styled(DIM, format!("this code is {}; it is good for one device", reply.code_id)));
    if reply.loopback_only {
        note!("\n{} only this machine reaches the daemon", styled(WARN.bold(), "warning:"));
        note!(
            "{} to let others in, write in the configuration: [remote] listen = \"0.0.0.0:7443\", then `palyra down` and `palyra up`",
            styled(BOLD, "hint:")
        );
    }
    Ok(())
}
