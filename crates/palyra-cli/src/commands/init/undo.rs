//! `palyra init --undo`: disconnects, stops the daemon, and removes what was written. The journal stays.

use super::files::{Lock, Place, Record, remove};
use super::prove;
use crate::commands::up;
use crate::context::Context;
use crate::exit::{Failure, REFUSED};
use crate::output::{self, GOOD, WARN, note, say, styled};
use palyra_api::v1::StatusRequest;
use serde_json::json;

pub async fn undo(context: &Context, place: &Place, lock: Lock) -> Result<(), Failure> {
    let Some(record) = Record::read(place)? else {
        // An `init` that was killed may have begun to write.
        remove(place, &Record::default())?;
        drop(lock);
        let message = "`palyra init` wrote nothing here";
        return Err(Failure::new(REFUSED, "not_found", message, Some("`palyra init` sets everything up")));
    };
    up::settled(context).await;
    for name in &record.connections {
        match prove::disconnect(context, name) {
            Ok(_) => {}
            // Somebody took it back already, or it was never made.
            Err(failure) if failure.code == "not_found" => {}
            Err(failure) => return Err(failure),
        }
    }
    let stopped = serves_ours(context, place).await && up::down_quietly(context).await.is_ok();
    let (removed, left) = remove(place, &record)?;
    drop(lock);
    if context.json() {
        let connections = &record.connections;
        let document = json!({ "removed": removed, "left": left, "disconnected": connections, "stopped": stopped });
        return output::json(&document);
    }
    for name in &record.connections {
        say!("{} disconnected {name}", styled(GOOD, "✔"));
    }
    if stopped {
        say!("{} stopped the daemon", styled(GOOD, "✔"));
    }
    for path in removed {
        say!("{} removed {}", styled(GOOD, "✔"), path.display());
    }
    for path in left {
        note!("{} {} was edited since and stays", styled(WARN, "note:"), path.display());
    }
    say!("The journal stays in {}", context.state_dir.display());
    Ok(())
}

/// Whether the daemon that answers runs on the configuration that `init` wrote.
async fn serves_ours(context: &Context, place: &Place) -> bool {
    let Ok(connection) = context.connect().await else { return false };
    let Ok(status) = connection.daemon().status(StatusRequest { probe_sandbox: false }).await else { return false };
    std::path::Path::new(&status.into_inner().config_path) == place.config()
}
