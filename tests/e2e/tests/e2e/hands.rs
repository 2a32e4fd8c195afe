//! Whose hand it is: two people are two, whoever holds their tokens; and what a withdrawn token began goes no further.

use palyra_e2e::{Host, Http, text};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const APPROVER: &str = "approval.list,approval.decide,call.read,token.create,tool.execute";

/// A daemon with the ready set of two approvers, and its people: `user:ada` and `user:grace` are on call.
fn production() -> Host {
    let mut host = Host::idle();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/examples/production-two-approvers");
    let rules = host.path("rules");
    fs::create_dir(&rules).unwrap();
    for file in fs::read_dir(example).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), rules.join(file.file_name())).unwrap();
    }
    host.configure(&format!("policy_dir = {:?}\n", rules.to_str().unwrap()));
    host.start();
    for name in ["user:ada", "user:grace"] {
        host.palyra(&["access", "member", "add", name, "--role", "admin"]).exits(0).done();
    }
    host.palyra(&["access", "agent", "add", "agent:deployer"]).exits(0).done();
    host
}

fn approver(host: &Host, name: &str) -> Http {
    host.http_as(name, &["--role", "admin", "--scope", APPROVER])
}

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

#[test]
fn two_different_people_approve_with_two_tokens() {
    let host = production();
    let (ada, grace) = (approver(&host, "user:ada"), approver(&host, "user:grace"));
    let agent = host.http_as("agent:deployer", &[]);
    let (call, question) = agent.ask("palyra.process.run", &append("deployed"));
    let asked = ada.get("/v1/approvals").is(200).json();
    assert_eq!(
        (text(&asked, "/approvals/0/principal"), &asked["approvals"][0]["people"]),
        ("agent:deployer", &json!(2))
    );
    agent.decide(&question, "allow").refuses(403, "forbidden");
    // Whoever issued the agent's token is behind its proposals, and may not approve them.
    let refused = host.decide(&question, "allow", &[]).fails(10, "forbidden");
    assert!(text(&refused, "/message").contains("nobody_approves_their_own"), "{refused}");
    let one = ada.decide(&question, "allow").is(200).json();
    assert_eq!((text(&one, "/state"), text(&one, "/given/0/by")), ("pending", "user:ada"));
    assert_eq!(text(&one, "/given/0/token/issuers/0"), "user:local");
    ada.decide(&question, "allow").refuses(409, "approval_already_given");
    assert_eq!(host.content("log"), "", "one is not two");
    let both = grace.decide(&question, "allow").is(200).json();
    assert_eq!((text(&both, "/state"), text(&both, "/resolution/by")), ("allowed", "user:grace"));
    agent.events(&call).until("succeeded");
    assert_eq!(host.lines("log", "deployed"), 1);
    let card = host.palyra_text(&["approvals", "show", &question]).exits(0).stdout;
    assert!(card.contains("user:ada (by tok_") && card.contains("issued by user:local"), "{card}");
}

#[test]
fn nobody_is_two_people_by_tokens_that_they_issue() {
    let host = production();
    let (ada, grace) = (approver(&host, "user:ada"), approver(&host, "user:grace"));
    // Ada issues the agent's token herself, proposes with it, and is the proposer.
    let issue = |by: &Http, who: &str| {
        let create = ["access", "token", "create", who, "--scope", "tool.execute,call.read", "--expires", "1d"];
        let args = [&["--token", by.token()][..], &create].concat();
        host.http().with(text(&host.palyra(&args).good(), "/token"))
    };
    let her_agent = issue(&ada, "agent:deployer");
    let (_, question) = her_agent.ask("palyra.process.run", &append("hers"));
    ada.decide(&question, "allow").refuses(403, "forbidden");
    assert_eq!(grace.decide(&question, "deny").is(200).json()["state"], "denied");
    // The owner proposes; a token of Ada's that the owner issued is the owner's as well.
    let (_, question) = host.ask("palyra.process.run", &append("mine"), &["--as", "agent:deployer"]);
    ada.decide(&question, "allow").refuses(403, "forbidden");
    assert_eq!(host.content("log"), "");
}

#[test]
fn what_a_withdrawn_token_proposed_ends_with_it() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let token = format!("tok_{}", &agent.token()["palyra_".len()..][..26]);
    let questions = host.palyra_started(&["approvals", "watch"]);
    let waiting = std::thread::spawn(move || agent.invoke("palyra.process.run", &append("no")));
    let asked = questions.json();
    let card = host.palyra_text(&["approvals", "show", text(&asked, "/approval_id")]).exits(0).stdout;
    assert!(card.contains(&format!("agent:web (by {token}, issued by user:local)")), "{card}");
    host.palyra(&["access", "token", "revoke", &token]).exits(0).done();
    waiting.join().unwrap().refuses(401, "token_revoked");
    assert_eq!(questions.json()["state"], "cancelled");
    host.decide(text(&asked, "/approval_id"), "allow", &[]).fails(10, "approval_already_resolved");
    let events = host.palyra(&["journal", "show", text(&asked, "/call_id")]).exits(0).json_lines();
    let kinds: Vec<_> = events.iter().map(|event| text(event, "/kind")).collect();
    assert_eq!(kinds[3..], ["approval.resolved", "tool.ended"]);
    assert_eq!(text(&events[4], "/body/problem/code"), "token_revoked");
    assert_eq!(host.content("log"), "");
}

#[test]
fn an_outcome_is_not_handed_to_a_withdrawn_token() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let minute = json!({ "duration_ms": 60_000 });
    let call = agent.invoke_once("palyra.sleep", &minute, "k", 0).is(202).json();
    let call = text(&call, "/call_id").to_owned();
    let mut events = agent.events(&call);
    events.until("executing");
    // The same key is the same call: this one waits for its end.
    let waiting = std::thread::spawn(move || agent.invoke_once("palyra.sleep", &minute, "k", 60_000));
    host.palyra(&["access", "agent", "remove", "agent:web"]).exits(0).done();
    waiting.join().unwrap().refuses(401, "token_revoked");
    // What runs goes on until it ends or somebody ends it; whoever followed is told nothing more.
    host.palyra(&["calls", "cancel", &call]).fails(5, "cancelled");
    assert_eq!(events.next(), None);
}

#[test]
fn a_token_that_may_only_call_is_told_how_its_call_stands() {
    let host = Host::up();
    host.palyra(&["access", "agent", "add", "agent:narrow"]).exits(0).done();
    let narrow = host.http_as("agent:narrow", &["--scope", "tool.execute:palyra.process.run"]);
    let told = narrow.invoke_once("palyra.process.run", &append("no"), "k", 0).is(202).json();
    assert_eq!(text(&told, "/state"), "awaiting_approval", "{told}");
    narrow.invoke("palyra.echo", &json!({ "text": "x" })).refuses(403, "scope_missing");
}
