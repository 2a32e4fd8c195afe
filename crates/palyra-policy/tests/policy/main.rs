//! The room through its door: cases as data, loading, explaining, and what must hold for every request.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests stop where something is not as it should be")]

mod cases;
mod explaining;
mod loading;
mod operators;
mod properties;

use palyra_policy::{Membership, PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicySource};

/// An engine with the default rules, for `agent:demo` and people on `cli`.
fn defaults() -> PolicyEngine {
    PolicyEngine::with_defaults(&membership()).unwrap()
}

fn membership() -> Membership {
    Membership::from_lists(&["user:*", "agent:demo"], &["cli"], &["user:local"]).unwrap()
}

/// The default rules and one file of an operator's.
fn with_rules(text: &str) -> PolicyEngine {
    PolicyEngine::load(&[PolicySource::defaults(), PolicySource::new("operator.cedar", text)], &membership()).unwrap()
}

fn ask(principal: &str, action: PolicyAction, resource: &str) -> PolicyRequest {
    PolicyRequest { principal: principal.parse().unwrap(), action, resource: resource.parse().unwrap() }
}

/// The circumstances of an allow-listed call from the command line.
fn listed() -> PolicyRequestContext {
    PolicyRequestContext { is_allowlisted_tool: true, ..PolicyRequestContext::new("cli".parse().unwrap()) }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
