//! `sandbox detect`: what this host can enforce, what is missing, how to get it.

use super::{Refused, policy, say, say_json};
use crate::serve::Setup;
use palyra_api::command_line::{Detect, Format, REFUSED};
use palyra_protocol::display::safe;
use palyra_sandbox::{Capability, HostCapabilities, SandboxTier};
use serde::Serialize;
use std::process::ExitCode;

/// The answer as a document.
#[derive(Debug, Serialize)]
struct Found<'a> {
    /// The tier that must be there: the one asked for, or the configured one.
    wanted_tier: SandboxTier,
    /// Whether it is.
    available: bool,
    #[serde(flatten)]
    host: &'a HostCapabilities,
}

pub(super) fn detect(setup: &Setup, detect: &Detect, format: Format) -> Result<ExitCode, Refused> {
    let wanted = match detect.tier {
        Some(tier) => policy::tier(tier),
        None => setup.configured_tier()?,
    };
    let host = palyra_sandbox::detect();
    let available = host.has(wanted);
    match format {
        Format::Json => say_json(&Found { wanted_tier: wanted, available, host: &host })?,
        Format::Text => print(&host, wanted),
    }
    Ok(if available { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

fn print(host: &HostCapabilities, wanted: SandboxTier) {
    say(&format!("host       {}", safe(&host.platform)));
    let user = if host.root { "root: processes run as another user" } else { "ordinary: processes run as this user" };
    say(&format!("user       {user}"));
    if let Some(container) = &host.container {
        say(&format!("container  {}", safe(container)));
    }
    say("");
    for (tier, what) in [
        (SandboxTier::B, "limits, Landlock, seccomp; the host's network"),
        (SandboxTier::C, "namespaces with a file tree, a process table and a network of their own"),
    ] {
        let mark = mark(host.has(tier), tier == wanted);
        let note = match (tier == wanted, host.has(tier)) {
            (true, true) => "  <- wanted here, works",
            (true, false) => "  <- WANTED HERE, CANNOT BE HAD",
            (false, true) => "  works",
            (false, false) => "  cannot be had",
        };
        say(&format!("{mark} tier {tier}  {what}{note}"));
    }
    say("");
    for Capability { name, available, detail, needed_by, fix } in &host.capabilities {
        say(&format!("{} {name:<16} {}", mark(*available, needed_by.contains(&wanted)), safe(detail)));
        if let Some(fix) = fix {
            say(&format!("    fix: {}", safe(fix)));
        }
    }
}

/// There; missing and needed; missing.
fn mark(there: bool, needed: bool) -> char {
    match (there, needed) {
        (true, _) => '✔',
        (false, true) => '✘',
        (false, false) => '–',
    }
}
