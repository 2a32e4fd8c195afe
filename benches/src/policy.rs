//! Deciding: `evaluate_with_context` with its explanation, against Cedar's `is_authorized` on the same request.

use crate::Result;
use crate::report::{Report, alternate};
use cedar_policy::Authorizer;
use palyra_policy::{Membership, PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::{Facets, Principal, RiskLevel, ToolCapability, ToolMetadata};
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
    Ok(())
}
