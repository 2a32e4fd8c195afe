//! `palyra doctor`: everything that calls depend on, and how to fix what is missing.

use super::read;
use super::workspaces::Workspace;
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use crate::output::{self, BAD, DIM, GOOD, WARN, say, styled};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{ExposureRequest, StatusReply, StatusRequest};
use rustix::fs::{StatVfsMountFlags, statvfs};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// As much as the record of one call may take.
const LEAST_SPACE: u64 = 32 << 20;
/// So little that somebody should look after it.
const LITTLE_SPACE: u64 = 512 << 20;

#[derive(Debug, Deserialize)]
struct Host {
    platform: String,
    tier_b: bool,
    tier_c: bool,
    capabilities: Vec<Capability>,
}

#[derive(Debug, Deserialize)]
struct Capability {
    name: String,
    available: bool,
    detail: String,
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Finding {
    Good,
    /// Missing, but nothing that is configured needs it; or there still, and soon gone.
    Notice,
    Bad,
}

#[derive(Debug, Serialize)]
struct Check {
    name: String,
    finding: Finding,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

fn check(name: &str, good: bool, detail: impl Into<String>, fix: &str) -> Check {
    let finding = if good { Finding::Good } else { Finding::Bad };
    Check { name: name.to_owned(), finding, detail: detail.into(), fix: (!good).then(|| fix.to_owned()) }
}

pub async fn doctor(context: &Context) -> Result<(), Failure> {
    let mut checks = Vec::new();
    match context.connect().await {
        Ok(connection) => match connection.daemon().status(StatusRequest { probe_sandbox: true }).await {
            Ok(status) => {
                let status = status.into_inner();
                checks.push(check("daemon", true, format!("palyrad {} answers", status.version), ""));
                checks.push(version(&status));
                examine(&status, &mut checks)?;
                checks.push(exposure(&connection).await);
            }
            // What is wrong with it is what one wants to know.
            Err(status) => match Failure::from(status) {
                failure if failure.exit == FAILED => {
                    let fix = "see `palyrad.log` in the state directory; `palyra journal verify` looks at the journal";
                    checks.push(check("daemon", false, failure.message, fix));
                }
                failure => return Err(failure),
            },
        },
        Err(failure) => checks.push(check("daemon", false, failure.message, "palyra up")),
    }
    if context.host().is_none() {
        checks.push(privacy(context));
        checks.extend(space(&context.state_dir));
    }
    if context.json() {
        output::json(&checks)?;
    } else {
        checks.iter().for_each(print);
    }
    let bad = checks.iter().filter(|c| c.finding == Finding::Bad).count();
    if bad == 0 {
        return Ok(());
    }
    Err(Failure::new(
        FAILED,
        "unwell",
        format!("{bad} of {} checks failed", checks.len()),
        Some("each failed check says how to fix it"),
    ))
}

/// What is exposed to whom.
async fn exposure(connection: &Connection) -> Check {
    let told = connection.devices().exposure(ExposureRequest {}).await;
    let exposed =
        told.map_err(Failure::from).and_then(|told| read::<serde_json::Value>(&told.into_inner().document_json));
    match exposed {
        Ok(exposed) => exposed_check(&exposed),
        Err(failure) => {
            let fix = failure.hint.unwrap_or_else(|| "see `palyrad.log` in the state directory".to_owned());
            Check { name: "devices".to_owned(), finding: Finding::Notice, detail: failure.message, fix: Some(fix) }
        }
    }
}

fn exposed_check(exposed: &serde_json::Value) -> Check {
    let devices = &exposed["devices"];
    let roles = devices["active"].as_object().into_iter().flatten();
    let roles: Vec<_> = roles.map(|(role, count)| format!("{count} {role}")).collect();
    let who = match roles.len() {
        0 => "no paired device".to_owned(),
        _ => format!("paired devices ({})", roles.join(", ")),
    };
    let pairing = match exposed["pairing_address"].as_str() {
        Some(at) => format!("; pairing is open to anybody who reaches {at} and has the code"),
        None => String::new(),
    };
    let warned = devices["with_warnings"].as_u64().unwrap_or(0);
    let (detail, beyond) = match exposed["address"].as_str() {
        None => ("closed: nothing is reached from elsewhere".to_owned(), false),
        Some(at) if exposed["loopback_only"] == true => (format!("{at}, this machine only, to {who}{pairing}"), false),
        Some(at) => (format!("{at}, beyond this machine, to {who}{pairing}"), true),
    };
    let look = match warned {
        0 => None,
        1 => Some("one device is worth a look: `palyra devices list`".to_owned()),
        count => Some(format!("{count} devices are worth a look: `palyra devices list`")),
    };
    let finding = if beyond || look.is_some() { Finding::Notice } else { Finding::Good };
    let fix = look.or_else(|| {
        beyond.then(|| "if that is not meant: leave `listen` of `[remote]` out of the configuration".to_owned())
    });
    Check { name: "remote door".to_owned(), finding, detail, fix }
}

fn version(status: &StatusReply) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    check(
        "version",
        status.version == ours,
        format!("palyra {ours}, palyrad {}", status.version),
        "palyra down && palyra up",
    )
}

/// Whether what calls change can be looked at before it counts, and put back.
fn effects(status: &StatusReply) -> Vec<Check> {
    let effects = super::status::effects(status);
    let told = |name: &str, field: &str| effects[name][field].as_str().map(str::to_owned);
    let notice = |name: &str, good: &str, problem: &str| Check {
        name: name.to_owned(),
        finding: if effects[problem].is_object() { Finding::Notice } else { Finding::Good },
        detail: told(problem, "message").unwrap_or_else(|| good.to_owned()),
        fix: told(problem, "hint"),
    };
    vec![
        notice("undo", "what calls replace is kept", "problem"),
        notice("views", "processes work on a view of the workspace", "views_problem"),
    ]
}

fn examine(status: &StatusReply, checks: &mut Vec<Check>) -> Result<(), Failure> {
    for Workspace { root, problem, .. } in super::status::workspaces(status)? {
        let detail = problem.as_ref().map_or_else(|| root.clone(), |problem| problem.message.clone());
        let fix = problem.as_ref().and_then(|problem| problem.hint.clone()).unwrap_or_default();
        checks.push(check("workspace", problem.is_none(), detail, &fix));
    }
    let rules = format!("{} rules, {}", status.policy_rules, &status.policy_hash[..12]);
    let refused = super::status::refused(&super::status::policy(status));
    let detail = refused.as_ref().map_or_else(|| rules.clone(), |refused| format!("{rules}; {refused}"));
    let good = status.policy_rules > 0 && refused.is_none();
    checks.push(check("policy", good, detail, "mend the files in the policy directory, then `palyra policy reload`"));
    if !status.effects_json.is_empty() {
        checks.extend(effects(status));
    }
    let host: Host = read(&status.sandbox_json)?;
    let works = if status.process_tier == "c" { host.tier_c } else { host.tier_b };
    checks.push(check(
        "process tier",
        works,
        format!("tier {} on {}", status.process_tier, host.platform),
        "see the sandbox checks below; until then `palyra.process.run` is refused",
    ));
    for Capability { name, available, detail, fix } in host.capabilities {
        let finding = match (available, works) {
            (true, _) => Finding::Good,
            (false, true) => Finding::Notice,
            (false, false) => Finding::Bad,
        };
        checks.push(Check { name: format!("sandbox: {name}"), finding, detail, fix });
    }
    Ok(())
}

fn privacy(context: &Context) -> Check {
    let dir = &context.state_dir;
    match std::fs::metadata(dir) {
        Ok(metadata) => check(
            "state directory",
            metadata.mode() & 0o077 == 0,
            format!("{}, mode {:o}", dir.display(), metadata.mode() & 0o777),
            &format!("chmod 700 {}", dir.display()),
        ),
        Err(error) => check("state directory", false, format!("{}: {error}", dir.display()), "palyra up"),
    }
}

/// The room that is left where the state is: without any, nothing can be recorded and so nothing runs.
fn space(state: &Path) -> Option<Check> {
    let disk = statvfs(state).ok()?;
    let left = disk.f_bavail.saturating_mul(disk.f_frsize);
    let no_more_files = disk.f_files > 0 && disk.f_favail == 0;
    let read_only = disk.f_flag.contains(StatVfsMountFlags::RDONLY);
    Some(room(left, no_more_files, read_only))
}

fn room(left: u64, no_more_files: bool, read_only: bool) -> Check {
    let fix = "free some space on the disk that holds the state directory";
    let (finding, detail, fix) = match left {
        _ if read_only => (Finding::Bad, "its file system is read-only".to_owned(), "mount it writable"),
        _ if no_more_files => (Finding::Bad, "its file system has room for no more files".to_owned(), fix),
        left if left < LEAST_SPACE => {
            (Finding::Bad, format!("{} KiB left, too little to record calls", left >> 10), fix)
        }
        left if left < LITTLE_SPACE => (Finding::Notice, format!("{} MiB left", left >> 20), fix),
        left => (Finding::Good, format!("{} MiB left", left >> 20), ""),
    };
    let fix = (!fix.is_empty()).then(|| fix.to_owned());
    Check { name: "state disk".to_owned(), finding, detail, fix }
}

fn print(check: &Check) {
    let mark = match check.finding {
        Finding::Good => styled(GOOD, "✔"),
        Finding::Notice => styled(WARN, "–"),
        Finding::Bad => styled(BAD, "✘"),
    };
    say!("{mark} {}{} {}", check.name, " ".repeat(34_usize.saturating_sub(check.name.len())), safe(&check.detail));
    if let Some(fix) = &check.fix {
        say!("    {}", styled(DIM, format!("fix: {}", safe(fix))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exposed_is_told_with_its_reach() {
        let told = |address: Option<&str>, loopback_only: bool, pairing: Option<&str>| {
            exposed_check(&serde_json::json!({
                "address": address, "loopback_only": loopback_only, "pairing_address": pairing,
                "devices": { "active": { "operator": 2 }, "with_warnings": 0 },
            }))
        };
        let check = told(Some("127.0.0.1:7443"), true, None);
        assert_eq!((check.finding, check.fix), (Finding::Good, None));
        assert_eq!(check.detail, "127.0.0.1:7443, this machine only, to paired devices (2 operator)");
        let check = told(Some("10.0.0.5:7443"), false, Some("10.0.0.5:7444"));
        assert!(check.finding == Finding::Notice && check.fix.is_some());
        assert!(check.detail.contains("beyond this machine") && check.detail.contains("10.0.0.5:7444"));
        assert!(told(None, true, None).detail.starts_with("closed"));
    }

    #[test]
    fn a_disk_without_room_is_found() {
        for (left, finding) in [
            (0, Finding::Bad),
            (LEAST_SPACE - 1, Finding::Bad),
            (LEAST_SPACE, Finding::Notice),
            (LITTLE_SPACE - 1, Finding::Notice),
            (LITTLE_SPACE, Finding::Good),
        ] {
            let check = room(left, false, false);
            assert_eq!((check.finding, check.fix.is_some()), (finding, finding != Finding::Good), "{left}");
        }
        assert_eq!(room(u64::MAX, true, false).finding, Finding::Bad);
        assert_eq!(room(u64::MAX, false, true).finding, Finding::Bad);
        assert!(space(Path::new("/")).is_some());
    }
}
