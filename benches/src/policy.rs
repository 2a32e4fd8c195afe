//! Deciding: `evaluate_with_context` with its explanation, against Cedar's `is_authorized` on the same request.

use crate::Result;
use crate::report::{Report, alternate, show};
use cedar_policy::Authorizer;
use palyra_policy::{
    Membership, PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicyResource, PolicySource,
};
use palyra_protocol::{
    Containment, ContainmentTier, Facets, NetworkReach, Principal, RiskLevel, ToolCapability, ToolMetadata,
    WorkspaceUse,
};
use std::hint::black_box;

const BATCH: usize = 500;

pub fn run(report: &mut Report) -> Result {
    let engine = PolicyEngine::with_defaults(&Membership::single_user())?;
    let agent: Principal = "agent:demo".parse()?;
    let echo = ToolMetadata { capabilities: [].into(), risk: RiskLevel::Low };
    let shell = ToolMetadata { capabilities: [ToolCapability::ProcessExec].into(), risk: RiskLevel::High };
    let command = Facets {
        executable: Some("/usr/bin/git".to_owned()),
        argv: ["git", "commit", "-m", "message"].map(str::to_owned).to_vec(),
        working_directory: Some(".".to_owned()),
        ..Facets::default()
    };
    for (what, tool, metadata, facets, approved) in [
        ("echo, allowed", "palyra.echo", &echo, Facets::default(), false),
        ("process, approved: allowed", "palyra.process.run", &shell, command.clone(), true),
        ("process, not approved: denied", "palyra.process.run", &shell, command, false),
    ] {
        let request = PolicyRequest {
            principal: agent.clone(),
            action: PolicyAction::ToolExecute,
            resource: PolicyResource::Tool(tool.to_owned()),
        };
        let context = PolicyRequestContext {
            is_allowlisted_tool: true,
            allow_sensitive_tools: approved,
            tool: Some(tool.to_owned()),
            session_id: Some("bench".parse()?),
            run_id: Some("bench".parse()?),
            proposed_by: Some(Principal::local_owner()),
            ..PolicyRequestContext::for_tool("cli".parse()?, metadata, facets)
        };
        let raw = engine.raw_parts(&request, &context)?;
        let authorizer = Authorizer::new();
        let (ours, cedar) = alternate(
            200,
            || {
                for _ in 0..BATCH {
                    black_box(engine.evaluate_with_context(black_box(&request), black_box(&context)));
                }
            },
            || {
                for _ in 0..BATCH {
                    black_box(authorizer.is_authorized(black_box(&raw.request), raw.all, &raw.entities));
                }
            },
        );
        let batch = u32::try_from(BATCH)?;
        report.at_most(&format!("evaluate_with_context: {what}"), ours / batch, cedar / batch, 2.0);
    }
    curve(report)?;
    containment(report)?;
    crate::replay::run(report)
}

/// What a decision costs as the operator's rules grow, most of them about others.
fn curve(report: &mut Report) -> Result {
    let few = with_operator_rules(10)?;
    let (request, context) = question()?;
    let decide = |engine: &PolicyEngine| {
        for _ in 0..BATCH {
            black_box(engine.decide(black_box(&request), black_box(&context)));
        }
    };
    let batch = u32::try_from(BATCH)?;
    for count in [1_000, 10_000] {
        let many = with_operator_rules(count)?;
        let (ours, base) = alternate(60, || decide(&many), || decide(&few));
        if count == 1_000 {
            report.at_most("a decision, 1,000 operator rules against 10", ours / batch, base / batch, 3.0);
        } else {
            let ratio = ours.as_secs_f64() / base.as_secs_f64();
            let figures = format!("{} and {}, {ratio:.1}×", show(ours / batch), show(base / batch));
            report.figure("a decision, 10,000 operator rules and 10", &figures);
        }
    }
    Ok(())
}

/// What it costs that rules know what would hold a run: the coding set about a contained run, and about one of which
/// nothing is known.
fn containment(report: &mut Report) -> Result {
    let coding = include_str!("../../policies/examples/coding/rules.cedar");
    let sources = [PolicySource::defaults(), PolicySource::new("coding.cedar", coding.to_owned())];
    let engine = PolicyEngine::load(&sources, &Membership::single_user())?;
    let (request, without) = question()?;
    let held = Containment {
        tier: ContainmentTier::C,
        network: NetworkReach::None,
        hosts: Vec::new(),
        workspace: WorkspaceUse::View,
        other_roots: false,
        reversible: true,
        secrets: false,
    };
    let facets = Facets { containment: Some(held), ..without.facets.clone() };
    let with = PolicyRequestContext { facets, ..without.clone() };
    let decide = |context: &PolicyRequestContext| {
        for _ in 0..BATCH {
            black_box(engine.decide(black_box(&request), black_box(context)));
        }
    };
    let (ours, base) = alternate(100, || decide(&with), || decide(&without));
    let batch = u32::try_from(BATCH)?;
    report.at_most("a decision with containment facts against one without", ours / batch, base / batch, 1.1);
    Ok(())
}

/// A call that needs a person: both questions are asked.
pub fn question() -> Result<(PolicyRequest, PolicyRequestContext)> {
    let facets = Facets {
        executable: Some("/usr/bin/true".to_owned()),
        argv: ["true", "--workspace", "--all-targets"].map(str::to_owned).to_vec(),
        working_directory: Some(".".to_owned()),
        ..Facets::default()
    };
    let metadata = ToolMetadata { capabilities: [ToolCapability::ProcessExec].into(), risk: RiskLevel::High };
    let context = PolicyRequestContext {
        is_allowlisted_tool: true,
        workspace: Some("/srv/project".to_owned()),
        tool: Some("palyra.process.run".to_owned()),
        session_id: Some("bench".parse()?),
        run_id: Some("bench".parse()?),
        proposed_by: Some(Principal::local_owner()),
        ..PolicyRequestContext::for_tool("cli".parse()?, &metadata, facets)
    };
    let request = PolicyRequest {
        principal: "agent:demo".parse()?,
        action: PolicyAction::ToolExecute,
        resource: PolicyResource::Tool("palyra.process.run".to_owned()),
    };
    Ok((request, context))
}

/// Rules of an operator with many agents: one in a hundred is about this one.
fn with_operator_rules(count: usize) -> Result<PolicyEngine> {
    let mut text = String::new();
    for n in 0..count {
        let who = if n % 100 == 0 { "demo".to_owned() } else { format!("a{n}") };
        text.push_str(&format!(
            "@id(\"rule_{n}\") @reason(\"Rule {n}.\")\nforbid (principal == Agent::\"{who}\", action == Action::\"tool.execute\", resource)\nwhen {{ context.argv_prefixes.contains(\"rm -rf {n}\") || context.written_under.contains(\"secret{n}\") }};\n",
        ));
    }
    let sources = [PolicySource::defaults(), PolicySource::new("many.cedar", text)];
    Ok(PolicyEngine::load(&sources, &Membership::single_user())?)
}
