//! Measures what a decision with its explanation costs beside plain Cedar on the same question.
//!
//! Run with `cargo run --release -p palyra-policy --example evaluate_bench`. Each row interleaves the two sides, so
//! that whatever else the machine does happens to both, and prints medians of batches.
#![expect(clippy::print_stdout, clippy::expect_used, reason = "a benchmark prints, and stops when its set-up fails")]

use cedar_policy::Authorizer;
use palyra_policy::{
    Detail, Membership, PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicyResource, PolicySource,
};
use palyra_protocol::{Facets, Principal, RiskLevel, ToolCapability};
use std::hint::black_box;
use std::time::Instant;

const BATCHES: usize = 200;
const BATCH: usize = 200;

fn main() {
    let started = Instant::now();
    let defaults = PolicyEngine::with_defaults(&Membership::single_user()).expect("the defaults load");
    println!("default rules loaded in {:.1?}\n", started.elapsed());
    println!("{:<44} {:>9} {:>9} {:>7}", "allow of a tool call", "raw ns", "ours ns", "ratio");
    for (name, context) in [("default rules, echo", echo()), ("default rules, approved process", process())] {
        compare(name, &defaults, &context);
    }
    for operator in [10, 100, 1_000, 10_000] {
        let started = Instant::now();
        let engine = with_operator_rules(operator);
        let loaded = started.elapsed();
        compare(&format!("{operator} operator rules (loaded in {loaded:.0?})"), &engine, &process());
    }
}

fn compare(name: &str, engine: &PolicyEngine, context: &PolicyRequestContext) {
    let request = PolicyRequest {
        principal: "agent:demo".parse().expect("a principal"),
        action: PolicyAction::ToolExecute,
        resource: PolicyResource::Tool("palyra.process.run".to_owned()),
    };
    let raw = engine.raw_parts(&request, context).expect("a valid request");
    let authorizer = Authorizer::new();
    let all = || drop(black_box(authorizer.is_authorized(&raw.request, raw.all, &raw.entities)));
    let slice = || drop(black_box(authorizer.is_authorized(&raw.request, raw.slice(), &raw.entities)));
    let lazy = || drop(black_box(engine.evaluate_with_context(&request, context)));
    let finished =
        || drop(black_box(engine.evaluate_with_context(&request, context).explanation.record(Detail::Brief)));
    let mut denied = context.clone();
    denied.allow_sensitive_tools = false;
    let asking = || drop(black_box(engine.decide(&request, &denied).record(Detail::Brief)));
    let [all, slice, lazy, finished, asking] = medians([&all, &slice, &lazy, &finished, &asking]);
    println!("{name}");
    row("  explained, against all rules", all, lazy);
    row("  explanation written out, against all rules", all, finished);
    row("  explained, against the rules that fit", slice, lazy);
    row("  explanation written out, against those", slice, finished);
    if context.is_sensitive_action {
        row("  both questions, both explanations written out", all, asking);
    }
}

fn row(name: &str, raw: f64, ours: f64) {
    println!("{name:<44} {raw:>9.0} {ours:>9.0} {:>7.2}", ours / raw);
}

fn medians<const N: usize>(sides: [&dyn Fn(); N]) -> [f64; N] {
    let mut samples: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(BATCHES));
    for _ in 0..BATCHES {
        for (side, samples) in sides.iter().zip(&mut samples) {
            let started = Instant::now();
            let mut rounds = 0u32;
            while rounds < BATCH as u32 && (rounds == 0 || started.elapsed().as_millis() < 2) {
                side();
                rounds += 1;
            }
            samples.push(started.elapsed().as_nanos() as f64 / f64::from(rounds));
        }
    }
    samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    })
}

fn echo() -> PolicyRequestContext {
    let mut context = PolicyRequestContext::new("cli".parse().expect("a channel"));
    context.is_allowlisted_tool = true;
    context
}

fn process() -> PolicyRequestContext {
    let argv = ["cargo", "test", "--workspace", "--all-targets"].map(str::to_owned).to_vec();
    let facets = Facets {
        executable: Some("/usr/bin/cargo".to_owned()),
        argv,
        working_directory: Some(".".to_owned()),
        ..Facets::default()
    };
    PolicyRequestContext {
        facets,
        is_sensitive_action: true,
        allow_sensitive_tools: true,
        capabilities: vec![ToolCapability::ProcessExec],
        risk: Some(RiskLevel::High),
        proposed_by: Some(Principal::local_owner()),
        session_id: Some("bench".parse().expect("a session")),
        ..echo()
    }
}

/// Rules of an operator with many agents, most of them about somebody else.
fn with_operator_rules(count: usize) -> PolicyEngine {
    let mut text = String::new();
    for n in 0..count {
        let who = if n % 100 == 0 { "demo".to_owned() } else { format!("a{n}") };
        text.push_str(&format!(
            "@id(\"rule_{n}\") @reason(\"Rule {n}.\")\nforbid (principal == Agent::\"{who}\", action == Action::\"tool.execute\", resource)\nwhen {{ context.argv_prefixes.contains(\"rm -rf {n}\") || context.written_under.contains(\"secret{n}\") }};\n",
        ));
    }
    let sources = [PolicySource::defaults(), PolicySource::new("many.cedar", text)];
    PolicyEngine::load(&sources, &Membership::single_user()).expect("the rules load")
}
