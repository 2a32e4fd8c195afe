//! A journal's event on one line, from its type: a new kind of event does not compile until it has its line here.

use palyra_protocol::{ApprovalDecision, Digest, EgressRecord, JournalEvent, PublicKey, RoutineChange, VaultAccess};

/// What an event says. It may hold text of callers: whoever prints it escapes it.
pub fn event_line(event: &JournalEvent) -> String {
    match event {
        JournalEvent::DaemonStarted { .. }
        | JournalEvent::DaemonKeyAccepted { .. }
        | JournalEvent::JournalBegunAnew { .. }
        | JournalEvent::DaemonStopped {} => of_daemon(event),
        JournalEvent::AccessRefused { .. }
        | JournalEvent::AccessChanged { .. }
        | JournalEvent::AccessRegistryRefused { .. }
        | JournalEvent::AccessAttempts { .. } => of_access(event),
        JournalEvent::DevicesChanged { by, change, .. } => {
            let what = change.get("change").and_then(serde_json::Value::as_str).unwrap_or("changed");
            let device = change.get("name").or_else(|| change.get("device")).and_then(serde_json::Value::as_str);
            format!("{what}{} by {by}", device.map_or_else(String::new, |device| format!(" {device}")))
        }
        JournalEvent::ConsoleOpened { session, principal, label, .. } => format!("{session} by {principal}: {label}"),
        JournalEvent::ConsoleEnded { session, by, reason } => format!("{session} by {by}: {reason}"),
        JournalEvent::ConsoleUsed { session } => session.to_string(),
        JournalEvent::PasskeyAdded { passkey } => format!("{} of {}: {}", passkey.id, passkey.principal, passkey.label),
        JournalEvent::PasskeyRemoved { principal, passkey, by } => format!("{passkey} of {principal} by {by}"),
        JournalEvent::DevicesNoted { what, detail } => format!("{what} {detail}"),
        JournalEvent::SkillInstalled { .. }
        | JournalEvent::SkillStatusChanged { .. }
        | JournalEvent::SkillCurrent { .. }
        | JournalEvent::SkillRemoved { .. }
        | JournalEvent::SkillTrustChanged { .. } => of_skills(event),
        JournalEvent::ApprovalRequested { .. }
        | JournalEvent::ApprovalGiven { .. }
        | JournalEvent::ApprovalRebound { .. }
        | JournalEvent::ApprovalResolved { .. }
        | JournalEvent::ApprovalTakenBack { .. }
        | JournalEvent::GrantCreated { .. }
        | JournalEvent::GrantRevoked { .. }
        | JournalEvent::GrantsVoided { .. } => of_approvals(event),
        JournalEvent::PolicyReloaded { from, to, by, .. } => format!("{} → {} by {by}", from.short(), to.short()),
        JournalEvent::PolicyRejected { running, flaws, count, .. } => {
            let first = flaws.first().map_or("", String::as_str);
            format!("{} goes on; {count} flaws, the first: {first}", running.short())
        }
        JournalEvent::ToolRejected { call_id, tool, origin, state, problem, .. } => {
            format!("{} {tool} by {} ({call_id}): {}", state.as_str(), origin.principal, problem.message)
        }
        JournalEvent::ToolProposed { call } => format!("{} by {} ({})", call.tool, call.origin.principal, call.call_id),
        JournalEvent::ToolDecided { decision, .. } => format!("{}: {}", decision.decision.as_str(), decision.summary),
        JournalEvent::ToolStarted { call_id, .. } => call_id.to_string(),
        JournalEvent::CallsSettled { before } => format!("every call opened before event {before} has ended"),
        JournalEvent::ToolFinished(ended) => {
            let attested = ended.attestation.execution_sha256.short();
            format!("{} {}, attested {attested}", ended.call_id, ended.state.as_str())
        }
        JournalEvent::EffectIntended { .. }
        | JournalEvent::EffectSettled { .. }
        | JournalEvent::EffectUndone { .. } => of_effects(event),
        JournalEvent::ClientReported { call_id, by, succeeded, message } => {
            let end = if *succeeded { "succeeded" } else { "failed" };
            let message = if message.is_empty() { String::new() } else { format!(": {message}") };
            format!("{by} says that {call_id} {end}{message}")
        }
        JournalEvent::EgressConnection { connection, .. } => of_connection(connection),
        JournalEvent::RunOpened(_)
        | JournalEvent::RunTurn(_)
        | JournalEvent::RunResults(_)
        | JournalEvent::RunResumed(_)
        | JournalEvent::RunEnded(_)
        | JournalEvent::RunsSettled { .. }
        | JournalEvent::ModelInvoked { .. } => of_runs(event),
        JournalEvent::VaultAccessed { access } => of_secret(access),
        JournalEvent::VaultChanged { change } => {
            let secret = change.secret.as_ref().map_or_else(String::new, |secret| format!(" {secret}"));
            format!("{}{secret} by {}", change.what.as_str(), change.by)
        }
        JournalEvent::MemoryRetained { .. }
        | JournalEvent::MemoryForgotten { .. }
        | JournalEvent::RoutineChanged { .. }
        | JournalEvent::RoutineSlot { .. } => of_own_things(event),
        JournalEvent::ToolEnded { call_id, state, problem, .. } => {
            format!("{call_id} {}: {}", state.as_str(), problem.message)
        }
    }
}

/// `vault.get vault://global/github by agent:demo for call_01K…: a process, as a file`.
fn of_runs(event: &JournalEvent) -> String {
    match event {
        JournalEvent::RunOpened(opened) => {
            format!("{} asks {} for {}", opened.run, opened.model, opened.origin.principal)
        }
        JournalEvent::RunTurn(turn) => {
            let tokens = turn.input_tokens + turn.output_tokens;
            format!("{} turn {}: {} answered, {tokens} tokens", turn.run, turn.turn, turn.model)
        }
        JournalEvent::RunResults(results) => {
            format!("{} turn {}: {} results", results.run, results.turn, results.results.len())
        }
        JournalEvent::RunResumed(resumed) => match &resumed.by {
            Some(by) => format!("{} by {by}", resumed.run),
            None => format!("{} at the start", resumed.run),
        },
        JournalEvent::RunEnded(ended) => {
            let why = ended.problem.as_ref().map_or_else(String::new, |problem| format!(": {}", problem.message));
            format!("{} {}{why}", ended.run, ended.state.as_str())
        }
        JournalEvent::ModelInvoked { by, model, input_tokens, output_tokens, problem, .. } => match problem {
            Some(problem) => format!("{model} for {by}: {}", problem.message),
            None => format!("{model} for {by}, {} tokens", input_tokens + output_tokens),
        },
        _ => String::new(),
    }
}

fn of_secret(access: &VaultAccess) -> String {
    let secret = access.secret.as_ref().map_or_else(String::new, |secret| format!(" {secret}"));
    let call = access.call_id.as_ref().map_or_else(String::new, |call| format!(" for {call}"));
    let via = access.via.map_or_else(String::new, |via| format!(", by {via}"));
    format!("{}{secret} by {}{call}: {}{via}", access.action, access.by, access.purpose)
}

fn of_own_things(event: &JournalEvent) -> String {
    match event {
        JournalEvent::MemoryRetained { entry, .. } => {
            format!("{} for {} by {}, trust {}", entry.entry_id, entry.scope, entry.principal, entry.trust)
        }
        JournalEvent::MemoryForgotten { entry_id, by } => format!("{entry_id} by {by}"),
        JournalEvent::RoutineChanged { by, change } => {
            let what = match change {
                RoutineChange::Added { routine } => {
                    return format!("{} `{}` added by {by}", routine.routine_id, routine.plan.name);
                }
                RoutineChange::Paused { pause, .. } => format!("paused: {}", pause.reason),
                RoutineChange::Resumed { .. } => "resumed".to_owned(),
                RoutineChange::Removed { .. } => "removed".to_owned(),
            };
            format!("{} {what}, by {by}", change.routine_id())
        }
        JournalEvent::RoutineSlot { slot } => {
            format!("{} {} {}: {}", slot.routine_id, slot.slot.kind.as_str(), slot.slot.at, slot.state.as_str())
        }
        _ => String::new(),
    }
}

fn of_daemon(event: &JournalEvent) -> String {
    match event {
        JournalEvent::DaemonStarted { version, policy_hash, .. } => {
            format!("palyrad {version}, policy {}", policy_hash.short())
        }
        JournalEvent::DaemonKeyAccepted { from, to, by } => format!("{} → {} by {by}", short_key(from), short_key(to)),
        JournalEvent::JournalBegunAnew { by, .. } => format!("by {by}, in place of one that was lost"),
        _ => String::new(),
    }
}

fn short_key(key: &PublicKey) -> String {
    key.to_string().chars().take(12).collect()
}

fn of_access(event: &JournalEvent) -> String {
    match event {
        JournalEvent::AccessRefused { by, action, problem, .. } => format!("{action} by {by}: {}", problem.message),
        JournalEvent::AccessChanged { by, change, policy_before, policy_after, .. } => {
            let rules = policy_after.map_or_else(String::new, |after| {
                let before = policy_before.as_ref().map(Digest::short).unwrap_or_default();
                format!(", rules {before} → {}", after.short())
            });
            format!("{} by {by}{rules}", change.name())
        }
        JournalEvent::AccessRegistryRefused { problem, .. } => problem.message.clone(),
        JournalEvent::AccessAttempts { source, refused, .. } => {
            let reasons: Vec<_> = refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            format!("refused from {source}: {}", reasons.join(", "))
        }
        _ => String::new(),
    }
}

fn of_skills(event: &JournalEvent) -> String {
    match event {
        JournalEvent::SkillInstalled { by, skill, version, installed } => {
            format!("{skill} {version} by {}, {}, installed by {by}", installed.publisher, installed.trust)
        }
        JournalEvent::SkillStatusChanged { by, skill, version, change } => {
            let checks =
                if change.checks.is_empty() { String::new() } else { format!(" ({})", change.checks.join(", ")) };
            format!("{skill} {version} {} by {by}: {}{checks}", change.to, change.reason)
        }
        JournalEvent::SkillCurrent { by, skill, version } => format!("{skill} runs as {version} by {by}"),
        JournalEvent::SkillRemoved { by, skill, version } => format!("{skill} {version} removed by {by}"),
        JournalEvent::SkillTrustChanged { by, changes, .. } => format!("{} by {by}", changes.join("; ")),
        other => other.kind().to_owned(),
    }
}

fn of_effects(event: &JournalEvent) -> String {
    match event {
        JournalEvent::EffectIntended { view, plan_sha256, .. } => format!("{view}, plan {}", plan_sha256.short()),
        JournalEvent::EffectSettled { view, state, done, reason, .. } => {
            let state = serde_json::to_value(state).ok().and_then(|state| state.as_str().map(str::to_owned));
            format!("{view} {}, {done} paths: {reason}", state.unwrap_or_default().replace('_', " "))
        }
        JournalEvent::EffectUndone { view, undo, by, done, refused, .. } => {
            format!("{view} by {by} as {undo}: {done} paths put back, {} left", refused.len())
        }
        _ => String::new(),
    }
}

fn of_approvals(event: &JournalEvent) -> String {
    match event {
        JournalEvent::ApprovalTakenBack { approval_id, decision, by, .. } => {
            let answer = if *decision == ApprovalDecision::Allow { "yes" } else { "no" };
            format!("{approval_id}: {by} took a {answer} back before it was given")
        }
        JournalEvent::ApprovalRequested { approval } => {
            let about = approval.subject.headline().map_or_else(String::new, |what| format!(": {what}"));
            format!("{} for {}{about}", approval.approval_id, approval.principal)
        }
        JournalEvent::ApprovalGiven { approval_id, given, count, people, .. } => {
            format!("{approval_id} by {}, {count} of {people}", given.by)
        }
        JournalEvent::ApprovalRebound { approval_id, from, to, .. } => {
            format!("{approval_id} stays: {} → {}", from.short(), to.short())
        }
        JournalEvent::ApprovalResolved { approval_id, state, resolution, .. } => {
            format!("{approval_id} {} by {}", state.as_str(), resolution.by)
        }
        JournalEvent::GrantCreated { grant } => format!("{} for {}", grant.grant_id, grant.principal),
        JournalEvent::GrantRevoked { grant_id, by } => format!("{grant_id} by {by}"),
        JournalEvent::GrantsVoided { grants, .. } => {
            format!("{} grants ended with the rules they were given under", grants.len())
        }
        _ => String::new(),
    }
}

/// `allowed GET example.org:80/x, 120 B sent, 3400 B received, 35 ms, closed`.
fn of_connection(record: &EgressRecord) -> String {
    let verdict = match &record.code {
        None => record.verdict.as_str().to_owned(),
        Some(code) => format!("{} ({code})", record.verdict.as_str()),
    };
    let target = match &record.host {
        None => "no host".to_owned(),
        Some(host) => {
            let path = record.path.as_deref().unwrap_or("");
            format!("{host}:{}{path}", record.port.unwrap_or(0))
        }
    };
    let method = record.method.as_ref().map_or_else(String::new, |method| format!("{method} "));
    let many = if record.count > 1 { format!(", {} times", record.count) } else { String::new() };
    let EgressRecord { bytes_sent, bytes_received, duration_ms, ended, .. } = record;
    let ended = ended.as_str();
    format!(
        "{verdict} {method}{target}{many}, {bytes_sent} B sent, {bytes_received} B received, {duration_ms} ms, {ended}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::access::AccessChange;
    use palyra_protocol::{EgressProtocol, Principal, Timestamp};

    #[test]
    fn a_change_that_changes_the_rules_says_so() {
        let change = AccessChange::FeatureSet { feature: "api_tokens".to_owned(), on: false, before: true };
        let changed = |policy_after: Option<Digest>| JournalEvent::AccessChanged {
            by: Principal::local_owner(),
            change: Box::new(change.clone()),
            revision: 2,
            before: None,
            after: Digest::ZERO,
            policy_before: policy_after.map(|_| Digest::ZERO),
            policy_after,
        };
        assert_eq!(event_line(&changed(None)), "feature.set by user:local");
        let rules = event_line(&changed(Some(Digest::of(b"x"))));
        assert!(rules.starts_with("feature.set by user:local, rules 000000000000 → "), "{rules}");
    }

    #[test]
    fn a_connection_says_where_to_and_how_much() {
        let mut record = EgressRecord::new(EgressProtocol::Http, Timestamp::from_unix_ms(1));
        assert_eq!(of_connection(&record), "denied no host, 0 B sent, 0 B received, 0 ms, refused");
        record.host = Some("a.example".to_owned());
        record.port = Some(80);
        record.method = Some("GET".to_owned());
        record.code = Some("host_not_allowed".to_owned());
        record.count = 3;
        let line = of_connection(&record);
        assert!(line.starts_with("denied (host_not_allowed) GET a.example:80, 3 times, "), "{line}");
    }
}
