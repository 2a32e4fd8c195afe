//! Two workspaces in one engine: what is done in one is nothing to the other.

use super::{WorkspaceNaming, WorkspaceSetup};
use crate::access::VerifiedPeer;
use crate::config::ToolCallConfig;
use crate::engine::Engine;
use crate::flow::propose::Proposal;
use crate::flow::tests::{House, asked, ended};
use crate::live::CallUpdate;
use palyra_access::NewToken;
use palyra_policy::PolicyAction;
use palyra_protocol::{CallState, Problem, SessionId};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The daemon's side: the limits of the home workspace, and a note of where agents can write.
#[derive(Debug)]
struct TestSetup {
    config: ToolCallConfig,
    writable: Mutex<Vec<PathBuf>>,
}

impl WorkspaceSetup for TestSetup {
    fn prepare(&self, root: &Path) -> Result<ToolCallConfig, Problem> {
        if root.ends_with("rules") {
            return Err(Problem::plain("policy_in_reach", "agents could write the rules"));
        }
        let mut config = self.config.clone();
        config.process_runner.workspace_root = root.to_owned();
        Ok(config)
    }

    fn admit(&self, root: &Path) {
        self.writable.lock().unwrap().push(root.to_owned());
    }

    fn dismiss(&self, root: &Path) {
        self.writable.lock().unwrap().retain(|known| known != root);
    }
}

fn user() -> VerifiedPeer {
    VerifiedPeer::on_local_socket(Some(1), 1, "cli".parse().unwrap()).unwrap()
}

fn working_in(engine: &Engine, directory: &Path) -> VerifiedPeer {
    let naming = WorkspaceNaming::parse(None, directory.to_str()).unwrap();
    engine.in_named_workspace(user(), &naming).unwrap()
}

async fn opened(house: &House) -> Arc<TestSetup> {
    let setup = Arc::new(TestSetup { config: house.engine.config().clone(), writable: Mutex::default() });
    house.engine.open_workspaces(Arc::clone(&setup) as Arc<dyn WorkspaceSetup>).await.unwrap();
    setup
}

/// A house with a second workspace beside its own, each with a note of its own in `name`.
async fn two(rules: &str) -> (House, PathBuf) {
    let house = House::with_rules(rules).await;
    opened(&house).await;
    let second = house.workspace().with_file_name("second");
    std::fs::create_dir(&second).unwrap();
    for (root, text) in [(house.workspace(), "first"), (second.clone(), "second")] {
        std::fs::write(root.join("name"), text).unwrap();
    }
    house.engine.workspace_add(&user(), &second).await.unwrap();
    (house, second)
}

async fn call(engine: &Engine, peer: &VerifiedPeer, tool: &str, input: Value, session: Option<&str>) -> CallUpdate {
    let session = session.map(|name| name.parse::<SessionId>().unwrap());
    let input = input.to_string().into_bytes();
    let mut call = engine.propose(peer, Proposal { tool: tool.to_owned(), input, session, ..Proposal::default() });
    ended(&mut call).await
}

fn code(update: &CallUpdate) -> &str {
    update.outcome.as_ref().and_then(|outcome| outcome.problem.as_ref()).map_or("", |problem| problem.code.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_works_where_its_peer_works_and_nowhere_else() {
    let (house, second) = two("").await;
    let (here, there) =
        (working_in(&house.engine, &house.workspace()), working_in(&house.engine, &second.join("deep")));
    for (peer, expected) in [(&here, "first"), (&there, "second")] {
        let read = call(&house.engine, peer, "palyra.fs.read", json!({ "path": "name" }), None).await;
        let outcome = read.outcome.unwrap();
        let output = outcome.output.as_ref().unwrap();
        assert_eq!(output["content"], expected, "{output}");
    }
    // Without a workspace nothing runs, and the refusal says what to do.
    let lost = working_in(&house.engine, Path::new("/"));
    let refused = call(&house.engine, &lost, "palyra.fs.read", json!({ "path": "name" }), None).await;
    assert_eq!((refused.state, code(&refused)), (CallState::Denied, "workspace_not_registered"));
    let refused = call(&house.engine, &user(), "palyra.fs.read", json!({ "path": "name" }), None).await;
    assert_eq!(code(&refused), "workspace_unnamed");
    let unknown = WorkspaceNaming::parse(second.join("deep").to_str(), None).unwrap();
    let unknown = house.engine.in_named_workspace(user(), &unknown).unwrap_err();
    assert_eq!(unknown.problem.code, "workspace_not_registered", "a name means that workspace, not one around it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_in_one_is_not_there_in_the_other() {
    let (house, second) = two("").await;
    let engine = &house.engine;
    let (here, there) = (working_in(engine, &house.workspace()), working_in(engine, &second));
    let done = call(engine, &here, "palyra.echo", json!({ "text": "x" }), Some("work")).await;
    assert_eq!(engine.call(&there, &done.call_id).await.unwrap_err().problem.code, "not_found");
    assert!(engine.call(&here, &done.call_id).await.is_ok() && engine.call(&user(), &done.call_id).await.is_ok());
    let listed = |peer| async move { engine.calls(peer, Default::default()).await.unwrap().0.records.len() };
    assert_eq!((listed(&here).await, listed(&there).await), (1, 0));
    // A session, and an idempotency key, belong to the workspace of their first call.
    let taken = call(engine, &there, "palyra.echo", json!({ "text": "x" }), Some("work")).await;
    assert_eq!(code(&taken), "session_other_workspace");
    let keyed = |peer| {
        let input = json!({ "text": "k" }).to_string().into_bytes();
        let key = Some("once".parse().unwrap());
        engine.propose(
            peer,
            Proposal { tool: "palyra.echo".to_owned(), input, idempotency_key: key, ..Default::default() },
        )
    };
    assert_eq!(ended(&mut keyed(&here)).await.state, CallState::Succeeded);
    assert_eq!(keyed(&there).end.await.unwrap().unwrap_err().problem.code, "idempotency_key_reused");
    // So do questions to people.
    let input = json!({ "path": "new", "content": "x" }).to_string().into_bytes();
    let mut asking =
        engine.propose(&here, Proposal { tool: "palyra.fs.write".to_owned(), input, ..Default::default() });
    let question = asked(&mut asking).await;
    assert!(engine.approval(&there, &question.approval_id).await.is_err());
    assert!(!engine.may_decide(&there, &question) && engine.may_decide(&here, &question));
    assert!(engine.approval(&user(), &question.approval_id).await.is_ok(), "whoever names none sees all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_bound_across_restarts() {
    let (house, second) = two("").await;
    let here = working_in(&house.engine, &house.workspace());
    call(&house.engine, &here, "palyra.echo", json!({ "text": "x" }), Some("work")).await;
    let house = house.restarted().await;
    opened(&house).await;
    let there = working_in(&house.engine, &second);
    let taken = call(&house.engine, &there, "palyra.echo", json!({ "text": "x" }), Some("work")).await;
    assert_eq!(code(&taken), "session_other_workspace", "the second workspace is registered after the restart, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_in_use_is_not_removed_and_one_that_is_gone_opens_nothing() {
    let (house, second) = two("").await;
    let engine = &house.engine;
    let there = working_in(engine, &second);
    let token = NewToken {
        principal: "user:local".parse().unwrap(),
        label: String::new(),
        role: None,
        scopes: vec![],
        life: None,
        rate_per_minute: None,
    };
    let (_, secret) = engine.create_token(&there, token).await.unwrap();
    let secret = String::from_utf8(secret.expose().to_vec()).unwrap();
    let come = || VerifiedPeer::by_token(engine, &secret, "test", "http".parse().unwrap());
    assert_eq!(come().unwrap().workspace().unwrap().root, second.to_str().unwrap());
    let elsewhere = WorkspaceNaming::parse(None, house.workspace().to_str()).unwrap();
    let refused = engine.in_named_workspace(come().unwrap(), &elsewhere).unwrap_err();
    assert_eq!(refused.problem.code, "token_other_workspace");

    let input = json!({ "path": "new", "content": "x" }).to_string().into_bytes();
    let mut asking =
        engine.propose(&there, Proposal { tool: "palyra.fs.write".to_owned(), input, ..Default::default() });
    asked(&mut asking).await;
    let name = second.to_str().unwrap();
    assert_eq!(engine.workspace_remove(&user(), name).await.unwrap_err().problem.code, "workspace_busy");
    engine.cancel(&there, &asking.call_id).await.unwrap();
    (&mut asking.end).await.unwrap().unwrap();
    let home = house.workspace();
    assert_eq!(
        engine.workspace_remove(&user(), home.to_str().unwrap()).await.unwrap_err().problem.code,
        "workspace_home"
    );
    engine.workspace_remove(&user(), name).await.unwrap();
    assert_eq!(come().unwrap_err().problem.code, "token_revoked");
    let late = call(engine, &there, "palyra.echo", json!({ "text": "x" }), None).await;
    assert_eq!(code(&late), "workspace_not_registered", "a peer that was in is not in any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_registers_and_only_what_is_out_of_reach() {
    let (house, second) = two("").await;
    let engine = &house.engine;
    let agent = engine.act_as(working_in(engine, &second), "agent:demo".parse().unwrap()).unwrap();
    assert_eq!(engine.workspace_add(&agent, &second).await.unwrap_err().problem.code, "forbidden");
    assert!(engine.admit(&agent, PolicyAction::WorkspaceManage, None).is_err() || !agent.is_socket_owner());
    let rules = house.workspace().with_file_name("rules");
    for (directory, expected) in [
        (rules.as_path(), "policy_in_reach"),
        (house.workspace().parent().unwrap(), "workspaces_overlap"),
        (Path::new("/nowhere/at/all"), "workspace_unusable"),
    ] {
        let refused = engine.workspace_add(&user(), directory).await.unwrap_err();
        assert_eq!(refused.problem.code, expected, "{}", directory.display());
    }
    std::fs::create_dir(second.join("inner")).unwrap();
    let refused = engine.workspace_add(&user(), &second.join("inner")).await.unwrap_err();
    assert_eq!(refused.problem.code, "workspaces_overlap");
    assert_eq!(engine.workspace_list(&user()).unwrap().len(), 2);
    assert_eq!(engine.workspace_list(&agent).unwrap().len(), 1, "an agent knows of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_replaced_is_refused_until_somebody_accepts_it() {
    let (house, second) = two("").await;
    let engine = &house.engine;
    let there = working_in(engine, &second);
    std::fs::rename(&second, second.with_file_name("moved")).unwrap();
    std::fs::create_dir(&second).unwrap();
    for tool in ["palyra.fs.read", "palyra.echo"] {
        let input = if tool == "palyra.echo" { json!({ "text": "x" }) } else { json!({ "path": "name" }) };
        assert_eq!(code(&call(engine, &there, tool, input, None).await), "workspace_replaced", "{tool}");
    }
    let view = engine.workspace_list(&user()).unwrap().into_iter().find(|view| view.root.ends_with("second")).unwrap();
    assert_eq!(view.problem.unwrap().code, "workspace_replaced");
    let before = engine.journal().head().borrow().size;
    assert!(engine.workspace_add(&user(), &second).await.unwrap().problem.is_none());
    assert!(engine.journal().head().borrow().size > before, "the journal says that it was accepted");
    let read = call(engine, &there, "palyra.echo", json!({ "text": "x" }), None).await;
    assert_eq!(read.state, CallState::Succeeded);
}
