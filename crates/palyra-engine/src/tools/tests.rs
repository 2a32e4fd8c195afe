//! What each tool makes of its input, and tools that come and go while the engine runs.

use super::{Executing, Input, Job, Place, Prepared, Tool, builtin};
use crate::access::{AccessControl, VerifiedPeer};
use crate::approvals::answer::Answer;
use crate::config::{CallLimits, ToolCallConfig, WasmRuntime};
use crate::engine::{Engine, EngineParts, StartError};
use crate::flow::execute::{Executed, Running};
use crate::flow::propose::{CallInProgress, Proposal};
use crate::flow::resolve::Refusal;
use crate::live::CallUpdate;
use palyra_journal::JournalStore;
use palyra_policy::{Membership, PolicyLoader};
use palyra_protocol::{
    ApprovalDecision, ApprovalId, ApprovalScope, CallState, DaemonKey, Facets, GrantMatcher, RiskLevel, SystemClock,
    ToolCapability, ToolDefinition, ToolSource,
};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier};
use palyra_workspace::Workspace;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const FORECAST: &str = "skill.acme.weather.forecast";

pub(super) fn config(root: &Path, allowed: &[&str]) -> ToolCallConfig {
    ToolCallConfig {
        allowed_tools: super::names()
            .map(str::to_owned)
            .chain(allowed.iter().map(|name| (*name).to_owned()))
            .map(|name| name.parse().unwrap())
            .collect(),
        max_calls_per_run: 100,
        limits: CallLimits::default(),
        execution_timeout: Duration::from_secs(60),
        longest_timeout: Duration::from_secs(3600),
        approval_timeout: Duration::from_secs(60),
        process_runner: SandboxProcessRunnerPolicy::over(root, SandboxTier::C),
        egress_rules: Arc::default(),
        wasm_runtime: WasmRuntime::Disabled,
        effects: crate::EffectsConfig::default(),
        outside_paths: crate::OutsidePaths::Refuse,
    }
}

/// An engine on a directory of its own, with these rules beside the defaults.
async fn engine(dir: &TempDir, rules: &str, allowed: &[&str]) -> Result<Engine, StartError> {
    let (state, root, rules_dir) = (dir.path().join("state"), dir.path().join("work"), dir.path().join("rules"));
    for dir in [&state, &root, &rules_dir] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(rules_dir.join("test.cedar"), rules).unwrap();
    let clock = Arc::new(SystemClock);
    let journal = JournalStore::open(&state.join("journal.db"), clock.clone()).unwrap();
    let access = AccessControl::open(&state, &root, &journal, clock).await.unwrap();
    let membership = Membership::single_user().with_registered(access.registered().unwrap());
    let loader = PolicyLoader { directory: Some(rules_dir), membership, tools: None, custody: None };
    Engine::new(EngineParts {
        policy: loader.load().unwrap(),
        policy_loader: loader,
        access,
        journal,
        workspace: Workspace::open(&root).unwrap(),
        config: config(&root, allowed),
        key: DaemonKey::generate().unwrap(),
        vault: crate::vault::VaultSettings::default(),
    })
}

fn owner() -> VerifiedPeer {
    VerifiedPeer::on_local_socket(Some(1), 1, "cli".parse().unwrap()).unwrap().at_home()
}

fn propose(engine: &Engine, tool: &str, input: &Value) -> CallInProgress {
    let input = input.to_string().into_bytes();
    engine.propose(&owner(), Proposal { tool: tool.to_owned(), input, ..Proposal::default() })
}

async fn call(engine: &Engine, tool: &str, input: Value) -> CallUpdate {
    propose(engine, tool, &input).end.await.unwrap().unwrap()
}

fn code(update: &CallUpdate) -> &str {
    update.outcome.as_ref().and_then(|outcome| outcome.problem.as_ref()).map_or("", |problem| &problem.code)
}

async fn asked(call: &mut CallInProgress) -> ApprovalId {
    loop {
        if let Some(approval) = call.updates.recv().await.unwrap().approval {
            return approval.approval_id.clone();
        }
    }
}

async fn allow(engine: &Engine, approval_id: ApprovalId) {
    let (decision, scope, matcher) = (ApprovalDecision::Allow, ApprovalScope::Once, GrantMatcher::ExactCall);
    let answer = Answer { approval_id, decision, scope, matcher, reason: None, digest: None, signature: None };
    engine.decide_approval(&owner(), answer).await.unwrap();
}

/// A tool as a skill brings it, which counts how often it ran.
#[derive(Debug)]
struct Forecast {
    definition: ToolDefinition,
    ran: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Count(Arc<AtomicUsize>);

impl Tool for Forecast {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let facets = Facets { hosts: vec![format!("{}:443", input.text("/host"))], ..Facets::default() };
        Ok(Prepared::new(facets, Count(Arc::clone(&self.ran))))
    }
}

impl Job for Count {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move {
            let times = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            Executed::in_daemon(Ok(json!({ "times": times, "tool": run.call().tool() })))
        })
    }
}

fn forecast(capability: Option<ToolCapability>) -> (Arc<dyn Tool>, Arc<AtomicUsize>) {
    let echo = builtin().unwrap().remove(0);
    let definition = ToolDefinition {
        name: FORECAST.parse().unwrap(),
        input_schema: json!({ "type": "object", "properties": { "host": { "type": "string" } }, "required": ["host"] }),
        output_schema: json!({ "type": "object" }),
        capabilities: capability.into_iter().collect(),
        risk: if capability.is_some() { RiskLevel::High } else { RiskLevel::Low },
        ..echo.definition().clone()
    };
    let ran = Arc::default();
    (Arc::new(Forecast { definition, ran: Arc::clone(&ran) }), ran)
}

fn weather() -> ToolSource {
    ToolSource::skill("acme.weather").unwrap()
}

fn listed(engine: &Engine) -> Vec<String> {
    engine.tools(&owner()).unwrap().iter().map(|(tool, _)| tool.name().to_string()).collect()
}

#[tokio::test]
async fn a_tool_comes_and_goes_while_the_engine_runs() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir, "", &[FORECAST]).await.unwrap();
    let mut news = engine.watch_tools();
    let before = listed(&engine);
    assert_eq!(code(&call(&engine, FORECAST, json!({})).await), "unknown_tool");
    let (tool, ran) = forecast(None);
    engine.replace_tools(&weather(), vec![tool]).unwrap();
    assert!(news.has_changed().unwrap(), "whoever watches is told");
    assert!(news.borrow_and_update().find(FORECAST).is_ok());
    assert_eq!(listed(&engine).len(), before.len() + 1);
    assert!(engine.callable(&owner()).unwrap().iter().any(|tool| tool.name().as_str() == FORECAST));
    assert!(engine.tool(&owner(), FORECAST).unwrap().1, "it was allowed before it was there");
    assert!(engine.whoami(&owner()).unwrap().rights.iter().any(|right| right.resource.ends_with(FORECAST)));
    // The path is the same: schema, decision, record.
    assert_eq!(code(&call(&engine, FORECAST, json!({ "city": 1 })).await), "schema_violation");
    let done = call(&engine, FORECAST, json!({ "host": "a.example" })).await;
    assert_eq!(done.outcome.unwrap().output.clone().unwrap(), json!({ "times": 1, "tool": FORECAST }));
    engine.replace_tools(&weather(), vec![]).unwrap();
    assert!(news.has_changed().unwrap());
    assert_eq!(listed(&engine), before);
    assert_eq!(code(&call(&engine, FORECAST, json!({ "host": "a.example" })).await), "unknown_tool");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let (other, _) = forecast(None);
    assert!(engine.replace_tools(&ToolSource::Builtin, vec![other]).is_err());
    assert_eq!(listed(&engine), before, "a catalog that cannot be made changes nothing");
}

#[tokio::test]
async fn what_was_resolved_runs_or_nothing_does() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir, "", &[FORECAST]).await.unwrap();
    let (first, first_ran) = forecast(Some(ToolCapability::Network));
    engine.replace_tools(&weather(), vec![Arc::clone(&first)]).unwrap();
    let input = json!({ "host": "a.example" });
    let mut waiting = propose(&engine, FORECAST, &input);
    let approval = asked(&mut waiting).await;
    // Another tool of the same name, that needs nobody's approval, while the question is open.
    let (second, second_ran) = forecast(None);
    engine.replace_tools(&weather(), vec![second]).unwrap();
    allow(&engine, approval).await;
    let ended = waiting.end.await.unwrap().unwrap();
    // The answer was for the call as it was decided then; it is decided again and comes out otherwise.
    assert_eq!((ended.state, code(&ended)), (CallState::Cancelled, "policy_changed"));
    // The first one put back is a tool that came later than the question too.
    let mut waiting = {
        engine.replace_tools(&weather(), vec![Arc::clone(&first)]).unwrap();
        propose(&engine, FORECAST, &input)
    };
    let approval = asked(&mut waiting).await;
    engine.replace_tools(&weather(), vec![]).unwrap();
    engine.replace_tools(&weather(), vec![Arc::clone(&first)]).unwrap();
    allow(&engine, approval).await;
    assert_eq!(code(&waiting.end.await.unwrap().unwrap()), "tool_replaced");
    assert_eq!((first_ran.load(Ordering::SeqCst), second_ran.load(Ordering::SeqCst)), (0, 0));
    // One that stayed while its source was replaced around it, or another was, is the same tool.
    let mut waiting = propose(&engine, FORECAST, &input);
    let approval = asked(&mut waiting).await;
    engine.replace_tools(&weather(), vec![first]).unwrap();
    engine.replace_tools(&ToolSource::skill("acme.other").unwrap(), vec![]).unwrap();
    allow(&engine, approval).await;
    assert_eq!(waiting.end.await.unwrap().unwrap().state, CallState::Succeeded);
    assert_eq!(first_ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn only_a_skills_tool_may_be_allowed_before_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    for unknown in ["palyra.fs.raed", "acme.deploy", "skill.weather"] {
        let refused = engine(&dir, "", &[unknown]).await.unwrap_err();
        assert!(matches!(&refused, StartError::UnknownTool { name, .. } if name.as_str() == unknown), "{refused}");
    }
}

#[tokio::test]
async fn a_patch_that_renames_a_file_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let rule = r#"@id("no_secrets") @reason("r")
        forbid (principal, action == Action::"tool.execute", resource) when { context.read_under.contains("secrets") };"#;
    let engine = engine(&dir, rule, &[]).await.unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir(work.join("secrets")).unwrap();
    std::fs::write(work.join("secrets/key"), "k\n").unwrap();
    let rename =
        "diff --git a/secrets/key b/src/key\nsimilarity index 100%\nrename from secrets/key\nrename to src/key\n";
    let denied = call(&engine, "palyra.fs.apply_patch", json!({ "patch": rename })).await;
    assert_eq!((denied.state, code(&denied)), (CallState::Denied, "policy_denied"));
    assert_eq!(denied.decision.unwrap().rules, ["no_secrets"]);
    assert!(work.join("secrets/key").exists());
    // What stays in its place is not carried out of it.
    let edit = "--- a/secrets/key\n+++ b/secrets/key\n@@ -1 +1 @@\n-k\n+l\n";
    let mut waiting = propose(&engine, "palyra.fs.apply_patch", &json!({ "patch": edit }));
    asked(&mut waiting).await;
}

#[tokio::test]
async fn nobody_is_asked_about_an_argument_with_a_nul() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir, "", &[]).await.unwrap();
    for input in [
        json!({ "argv": ["echo", "a\u{0}b"] }),
        json!({ "argv": ["ec\u{0}ho"] }),
        json!({ "argv": ["echo"], "env": { "A": "\u{0}" } }),
    ] {
        let refused = call(&engine, "palyra.process.run", input.clone()).await;
        assert_eq!((refused.state, code(&refused)), (CallState::Rejected, "sandbox_nul_byte"), "{input}");
        assert!(refused.approval.is_none());
    }
    let refused = call(&engine, "palyra.process.run", json!({ "argv": ["echo"], "cwd": "a\u{0}" })).await;
    assert_eq!((refused.state, code(&refused)), (CallState::Rejected, "path_invalid"));
}

/// What rules, people and grants judge a call by, for one input of each kind.
#[tokio::test]
async fn every_input_names_what_it_touches() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir, "", &[]).await.unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir_all(work.join("real/sub")).unwrap();
    std::fs::write(work.join("real/a"), "x\n").unwrap();
    std::os::unix::fs::symlink("real", work.join("link")).unwrap();
    let create = "--- /dev/null\n+++ b/link/new\n@@ -0,0 +1 @@\n+x\n";
    let rename = "diff --git a/real/a b/b\nrename from real/a\nrename to b\n";
    for (tool, input, expect) in [
        ("palyra.echo", json!({ "text": "x" }), json!({})),
        ("palyra.sleep", json!({ "duration_ms": 1 }), json!({})),
        ("palyra.fs.read", json!({ "path": "link/a" }), json!({ "paths_read": ["real/a"] })),
        ("palyra.fs.list", json!({}), json!({ "paths_read": ["."] })),
        ("palyra.fs.list", json!({ "path": "link", "depth": 1e0 }), json!({ "paths_read": ["real"] })),
        ("palyra.fs.list", json!({ "depth": 2 }), json!({ "paths_read": ["."], "trees_read": ["."] })),
        (
            "palyra.fs.search",
            json!({ "pattern": "x", "path": "link" }),
            json!({ "paths_read": ["real"], "trees_read": ["real"] }),
        ),
        ("palyra.fs.write", json!({ "path": "link/n", "content": "" }), json!({ "paths_written": ["real/n"] })),
        ("palyra.fs.apply_patch", json!({ "patch": create }), json!({ "paths_written": ["real/new"] })),
        (
            "palyra.fs.apply_patch",
            json!({ "patch": rename }),
            json!({ "paths_read": ["real/a"], "paths_written": ["b", "real/a"] }),
        ),
    ] {
        let proposal = Proposal { tool: tool.to_owned(), input: input.to_string().into_bytes(), ..Proposal::default() };
        let (record, _) = engine.explain(&owner(), proposal).await.unwrap();
        assert_eq!(serde_json::to_value(&record.facets).unwrap(), expect, "{tool} {input}");
    }
    let run = json!({ "argv": ["true", "x"], "cwd": "link/sub", "env": { "B": "1", "A": "2" }, "stdin": "y" });
    let proposal =
        Proposal { tool: "palyra.process.run".to_owned(), input: run.to_string().into_bytes(), ..Proposal::default() };
    let facets = engine.explain(&owner(), proposal).await.unwrap().0.facets.clone();
    assert_eq!(
        (facets.argv.as_slice(), facets.env_names()),
        (&["true".into(), "x".into()][..], &["A".into(), "B".into()][..])
    );
    assert_eq!((facets.working_directory.as_deref(), facets.stdin_sha256.is_some()), (Some("real/sub"), true));
    assert!(facets.executable.unwrap().ends_with("/true"));
}
