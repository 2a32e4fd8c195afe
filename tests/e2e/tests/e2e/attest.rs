//! Attestations: recomputed from what the caller received; whatever was changed is found.

use palyra_e2e::{Host, text};
use palyra_protocol::{PublicKey, ToolAttestation};
use serde_json::{Value, json};
use std::fs;

/// A process's result, whose attestation has every part, and the daemon's key.
fn result(host: &Host) -> (Value, PublicKey) {
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["ls", "-a"] }), &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let result = host.palyra(&["calls", "follow", &call]).good();
    let key = text(&host.palyra(&["status"]).good(), "/public_key").parse().unwrap();
    (result, key)
}

fn holds(result: &Value, key: &PublicKey) -> bool {
    ToolAttestation::verify(&result["attestation"], &result["output"], result.get("problem"), Some(key)).is_ok()
}

/// Every place in a document that holds a plain value.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| leaves(inner, &format!("{at}/{key}"), found)),
        Value::Array(list) => list.iter().enumerate().for_each(|(n, inner)| leaves(inner, &format!("{at}/{n}"), found)),
        _ => found.push(at.to_owned()),
    }
}

/// Other values of the same kind, near and far.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![json!(0), json!("")],
        Value::Bool(b) => vec![json!(!b), Value::Null],
        Value::Number(n) => vec![json!(n.as_u64().unwrap() + 1), Value::Null],
        Value::String(s) => {
            let mut flipped = s.clone().into_bytes();
            if let Some(last) = flipped.last_mut() {
                *last = if *last == b'a' { b'b' } else { b'a' };
            }
            vec![json!(String::from_utf8(flipped).unwrap()), json!(format!("{s}x")), json!("")]
                .into_iter()
                .filter(|other| other != value)
                .collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn any_change_to_output_or_statement_is_found() {
    let host = Host::up();
    let (result, key) = result(&host);
    assert!(holds(&result, &key));
    let mut places = Vec::new();
    leaves(&result["output"], "/output", &mut places);
    leaves(&result["attestation"], "/attestation", &mut places);
    assert!(places.len() > 30, "{places:?}");
    for place in places {
        for other in others(result.pointer(&place).unwrap()) {
            let mut forged = result.clone();
            *forged.pointer_mut(&place).unwrap() = other.clone();
            assert!(!holds(&forged, &key), "{place} = {other}");
        }
        let (parent, name) = place.rsplit_once('/').unwrap();
        let mut forged = result.clone();
        match forged.pointer_mut(parent).unwrap() {
            Value::Object(map) => drop(map.remove(name)),
            Value::Array(list) => drop(list.remove(name.parse().unwrap())),
            _ => unreachable!("a leaf lies in an object or a list"),
        }
        assert!(!holds(&forged, &key), "without {place}");
    }
}

#[test]
fn the_command_verifies_a_file_a_pipe_and_a_given_key() {
    let mut host = Host::up();
    let (result, key) = result(&host);
    let file = host.path("result.json");
    fs::write(&file, result.to_string()).unwrap();
    let verify = ["attest", "verify", file.to_str().unwrap()];
    let valid = host.palyra(&verify).good();
    assert_eq!(
        palyra_e2e::fields(&valid),
        ["call_id", "execution_sha256", "fault", "not_attested", "output_sha256", "public_key", "valid"]
    );
    let not_attested = valid["not_attested"].as_array().unwrap();
    for field in ["decision.summary", "session", "run", "ended_at"] {
        assert!(not_attested.contains(&json!(field)), "{field}: {not_attested:?}");
    }
    assert!(!not_attested.contains(&json!("decision.decision_id")));
    assert_eq!((&valid["valid"], &valid["call_id"]), (&json!(true), &result["call_id"]));
    let shown = host.palyra_text(&verify).exits(0);
    assert!(shown.stdout.contains("as attested"), "{shown:?}");
    assert!(shown.stdout.contains("not attested: session, run,"), "{shown:?}");
    host.palyra_fed(&["attest", "verify", "-"], result.to_string().as_bytes()).exits(0).done();
    let mut forged = result.clone();
    forged["output"]["stdout"] = json!("nothing to see");
    fs::write(&file, forged.to_string()).unwrap();
    let found = host.palyra(&verify);
    assert_eq!(found.json()["valid"], false);
    found.fails(8, "attestation_invalid");
    host.palyra_text(&verify).exits(8).done();
    fs::write(&file, result.to_string()).unwrap();
    host.kill();
    host.palyra(&verify).fails(7, "daemon_unreachable");
    let key = key.to_string();
    host.palyra(&[&verify[..], &["--key", &key]].concat()).exits(0).done();
    let other = Host::up();
    other.palyra(&verify).fails(8, "attestation_invalid");
    let other_key = text(&other.palyra(&["status"]).good(), "/public_key").to_owned();
    host.palyra(&[&verify[..], &["--key", &other_key]].concat()).fails(8, "attestation_invalid");
}

#[test]
fn a_result_that_claims_more_than_its_attestation_is_found() {
    let host = Host::up();
    let (result, _) = result(&host);
    let other = host.call("palyra.echo", &json!({ "text": "hi" }), &[]).good();
    for field in ["call_id", "tool", "state"] {
        let mut forged = result.clone();
        forged[field] = if field == "state" { json!("failed") } else { other[field].clone() };
        let found = host.palyra_fed(&["attest", "verify", "-"], forged.to_string().as_bytes());
        assert_eq!(found.code, 8, "`{field}` was changed and nobody noticed: {found:?}");
    }
    for (place, value) in [("attestation", json!("user:alice")), ("decision", other["decision"]["decision_id"].clone())]
    {
        let mut forged = result.clone();
        forged[place][if place == "decision" { "decision_id" } else { "approved_by" }] = value;
        host.palyra_fed(&["attest", "verify", "-"], forged.to_string().as_bytes()).fails(8, "attestation_invalid");
    }
}

#[test]
fn what_did_not_run_is_not_attested() {
    let host = Host::up();
    let rejected = host.palyra(&["call", "palyra.echo"]).exits(6).stdout;
    host.palyra_fed(&["attest", "verify", "-"], rejected.as_bytes()).fails(8, "not_attested");
    for nonsense in ["", "{}", "[]", r#"{"output":1,"attestation":{"call_id":"x"}}"#] {
        let refused = host.palyra_fed(&["attest", "verify", "-"], nonsense.as_bytes());
        assert!([1, 8].contains(&refused.code), "{nonsense}: {refused:?}");
    }
}

#[test]
fn the_journal_holds_the_same_attestation() {
    let host = Host::up();
    let (result, _) = result(&host);
    let events = host.palyra(&["journal", "show", text(&result, "/call_id")]).exits(0).json_lines();
    let finished = events.iter().find(|event| event["kind"] == "tool.finished").unwrap();
    assert_eq!(finished["body"]["attestation"], result["attestation"]);
    assert_eq!(finished["body"]["output"], result["output"]);
}
