//! The run's budget: it holds under concurrency and across restarts.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Proposal, api, text};
use serde_json::json;

const CONFIG: &str = "[tool_call]\nmax_calls_per_run = 7\n";

#[tokio::test(flavor = "multi_thread")]
async fn under_thirty_calls_at_once_exactly_the_budget_runs() {
    let mut host = Host::with(CONFIG);
    let owner = host.owner().await;
    let calls: Vec<_> = (0..30)
        .map(|n| {
            let proposal = Proposal::new("palyra.echo", &json!({ "text": n.to_string() })).run("r");
            let owner = owner.clone();
            tokio::spawn(async move { owner.call(proposal).await.unwrap() })
        })
        .collect();
    let mut ran = 0;
    for call in calls {
        let outcome = api::outcome(&call.await.unwrap());
        match text(&outcome, "/state") {
            "succeeded" => ran += 1,
            state => assert_eq!((state, text(&outcome, "/problem/code")), ("denied", "budget_exhausted")),
        }
    }
    assert_eq!(ran, 7);
    for by in [Restart::Terminate, Restart::Kill] {
        host.restart(by);
        let over = host.call("palyra.echo", &json!({ "text": "more" }), &["--run", "r"]);
        assert_eq!(over.json()["state"], "denied");
        let error = over.fails(3, "budget_exhausted");
        assert!(text(&error, "/hint").contains("max_calls_per_run"), "{error}");
    }
    host.call("palyra.echo", &json!({ "text": "x" }), &["--run", "other"]).exits(0).done();
    host.call("palyra.echo", &json!({ "text": "x" }), &["--run", "r", "--as", "agent:demo"]).exits(0).done();
    let events = host.palyra(&["journal", "export"]).exits(0).json_lines();
    let started = events.iter().filter(|event| event["kind"] == "tool.started").count();
    assert_eq!(started, 9);
}

#[test]
fn questions_count_and_repetitions_do_not() {
    let host = Host::with(CONFIG);
    for n in 0..6 {
        host.call("palyra.echo", &json!({ "text": n.to_string() }), &["--run", "r"]).exits(0).done();
    }
    let options = ["--run", "r", "--idempotency-key", "k"];
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["true"] }), &options);
    host.call("palyra.echo", &json!({ "text": "x" }), &["--run", "r"]).fails(3, "budget_exhausted");
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    let again = host.call("palyra.process.run", &json!({ "argv": ["true"] }), &options).good();
    assert_eq!(again["replayed"], true, "a repetition costs nothing");
}

#[test]
fn a_budget_of_nothing_runs_nothing() {
    let host = Host::with("[tool_call]\nmax_calls_per_run = 0\n");
    host.call("palyra.echo", &json!({ "text": "x" }), &[]).fails(3, "budget_exhausted");
}
