//! The room through its door: cases as data, loading, explaining, and what must hold for every request.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests stop where something is not as it should be")]

mod cases;
mod explaining;
mod loading;
mod operators;
mod properties;
mod sets;
mod verdicts;

use palyra_policy::{
    Detail, Membership, PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicySource,
};

/// An engine with the default rules, for `agent:demo` and people on `cli`.
fn defaults() -> PolicyEngine {
    PolicyEngine::with_defaults(&membership()).unwrap()
}

fn membership() -> Membership {
    let membership = Membership::from_lists(&["user:*", "agent:demo"], &["cli"], &["user:local"]).unwrap();
    membership.with_known_channels(&["cli", "http", "mcp"])
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

#[test]
fn engines_and_explanations_are_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    let engine = defaults();
    shared(&engine);
    let request = ask("agent:demo", PolicyAction::ToolExecute, "tool:palyra.echo");
    shared(&engine.evaluate_with_context(&request, &listed()).explanation);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| drop(engine.decide(&request, &listed()).record(Detail::Brief))));
        }
    });
}
