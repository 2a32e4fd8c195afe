//! A recorded call comes out the same again, without the outside; anything else is said.

use crate::support::{EchoDoor, OneSecret, allowing, call_of, failure, files, guest, host, hostile, load, output};
use palyra_plugins::{
    CallRecord, Doors, Ending, Execution, Limits, Plugin, PluginHost, ReplayError, RequestedCapabilities,
    RequestedLimits, StorageDirectory, WasmPluginRunnerPolicy,
};
use std::sync::Arc;

struct Kept {
    host: PluginHost,
    plugin: Arc<Plugin>,
    execution: Execution,
}

fn record(text: &str, asked: &RequestedCapabilities, input: &str, doors: Doors) -> Kept {
    let host = host(allowing(asked));
    let plugin = load(&host, text);
    let execution = host.call(call_of(&plugin, host.grant(asked), input, doors)).unwrap().wait().unwrap();
    Kept { host, plugin, execution }
}

impl Kept {
    /// The record, written and read again.
    fn record(&self) -> CallRecord {
        CallRecord::from_json(self.execution.record.to_json().unwrap().as_bytes()).unwrap()
    }

    fn replay(&self, record: &CallRecord, input: &str) -> Result<Execution, ReplayError> {
        self.host.replay(&self.plugin, record, input, None)
    }
}

#[test]
fn what_nobody_can_know_is_the_same_again() {
    let recorded = record(guest!("oracle"), &RequestedCapabilities::default(), "{}", Doors::default());
    let first = output(&recorded.execution).to_owned();
    let again = recorded.replay(&recorded.record(), "{}").unwrap();
    assert_eq!(output(&again), first);
    assert_eq!((again.usage.fuel, &again.log), (recorded.execution.usage.fuel, &recorded.execution.log));
    let other = record(guest!("oracle"), &RequestedCapabilities::default(), "{}", Doors::default());
    assert_ne!(output(&other.execution), first);
}

#[test]
fn replies_storage_and_files_come_from_the_record() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("data")).unwrap();
    let storage = Arc::new(StorageDirectory::open(&place.path().join("s")).unwrap());
    let doors = Doors {
        http: Some(Arc::new(EchoDoor::default())),
        storage: Some(Arc::clone(&storage) as _),
        files: Some(files(place.path())),
        ..Doors::default()
    };
    let asked = RequestedCapabilities {
        http_hosts: vec!["a.test".parse().unwrap()],
        storage_bytes: 1000,
        read_roots: vec!["data".parse().unwrap()],
        write_roots: vec!["data".parse().unwrap()],
        ..RequestedCapabilities::default()
    };
    for (text, input, expected) in [
        (guest!("fetch"), "\"https://a.test/x\"", "\"/x 0\""),
        (guest!("counter"), "{}", "1"),
        (hostile!("path-traversal"), "\"file\"", "\"then\""),
        (guest!("writer"), "\"new\"", "00"),
    ] {
        std::fs::write(place.path().join("data/file"), "then").unwrap();
        let recorded = record(text, &asked, input, doors.clone());
        assert_eq!(output(&recorded.execution), expected);
        // The world goes on.
        std::fs::write(place.path().join("data/file"), "now").unwrap();
        std::fs::write(place.path().join("data/new"), "theirs").unwrap();
        let again = recorded.replay(&recorded.record(), input).unwrap();
        assert_eq!(output(&again), expected);
        // A replay changes nothing.
        assert_eq!(std::fs::read_to_string(place.path().join("data/new")).unwrap(), "theirs");
    }
}

#[test]
fn a_secret_is_read_from_the_vault_or_not_at_all() {
    let asked =
        RequestedCapabilities { secrets: vec!["web/token".parse().unwrap()], ..RequestedCapabilities::default() };
    let doors = Doors { secrets: Some(Arc::new(OneSecret("\"s\""))), ..Doors::default() };
    let recorded = record(guest!("secret"), &asked, "{}", doors);
    let record = recorded.record();
    let without = recorded.replay(&record, "{}").unwrap_err();
    assert!(matches!(&without, ReplayError::NeedsSecret(name) if name == "web/token"), "{without}");
    let vault = |value| Some(Arc::new(OneSecret(value)) as _);
    let again = recorded.host.replay(&recorded.plugin, &record, "{}", vault("\"s\"")).unwrap();
    assert_eq!(output(&again), "\"s\"");
    let changed = recorded.host.replay(&recorded.plugin, &record, "{}", vault("\"t\"")).unwrap_err();
    assert_eq!(changed.code(), "replay_other_ending");
}

#[test]
fn failures_are_replayed_too() {
    let limits = RequestedLimits { fuel: Some(100_000), ..RequestedLimits::default() };
    let asked = RequestedCapabilities { limits, ..RequestedCapabilities::default() };
    let recorded = record(hostile!("infinite-loop"), &asked, "{}", Doors::default());
    let record = recorded.record();
    assert_eq!(record.ending, Ending::Failed("plugin_limit_fuel".into()));
    assert_eq!(failure(&recorded.replay(&record, "{}").unwrap()).code(), "plugin_limit_fuel");
}

#[test]
fn what_ended_from_outside_is_not_replayed() {
    let limits = RequestedLimits { wall_clock_ms: Some(20), ..RequestedLimits::default() };
    let asked = RequestedCapabilities { limits, ..RequestedCapabilities::default() };
    let recorded = record(guest!("sleeper"), &asked, "{}", Doors::default());
    assert_eq!(recorded.replay(&recorded.record(), "{}").unwrap_err().code(), "replay_ended_from_outside");
}

#[test]
fn a_record_that_was_changed_is_noticed() {
    let asked =
        RequestedCapabilities { http_hosts: vec!["a.test".parse().unwrap()], ..RequestedCapabilities::default() };
    let doors = || Doors { http: Some(Arc::new(EchoDoor::default())), ..Doors::default() };
    let input = "\"https://a.test/x\"";
    let recorded = record(guest!("fetch"), &asked, input, doors());
    let record = recorded.record();
    assert_eq!(recorded.replay(&record, "\"https://a.test/y\"").unwrap_err().code(), "replay_other_input");

    let text = record.to_json().unwrap();
    let changed = |from: &str, to: &str| CallRecord::from_json(text.replace(from, to).as_bytes()).unwrap();
    let reply = changed("/x 0", "/x 1");
    assert_eq!(recorded.replay(&reply, input).unwrap_err().code(), "replay_other_ending");
    let mut question = record.clone();
    question.events[0].asked = None;
    assert_eq!(recorded.replay(&question, input).unwrap_err().code(), "replay_diverged");
    let mut short = record.clone();
    short.events.clear();
    assert_eq!(recorded.replay(&short, input).unwrap_err().code(), "replay_diverged");
    let mut long = record.clone();
    long.events.push(long.events[0].clone());
    assert_eq!(recorded.replay(&long, input).unwrap_err().code(), "replay_diverged");

    let other = load(&recorded.host, guest!("echo"));
    let refused = recorded.host.replay(&other, &record, input, None).unwrap_err();
    assert_eq!(refused.code(), "replay_other_component");
}

#[test]
fn a_call_that_does_not_fit_into_its_record_runs_and_is_not_replayed() {
    let policy = WasmPluginRunnerPolicy {
        usual_limits: Limits { record_bytes: 10, ..Limits::default() },
        ..WasmPluginRunnerPolicy::default()
    };
    let host = host(policy);
    let plugin = load(&host, guest!("oracle"));
    let grant = host.grant(&RequestedCapabilities::default());
    let execution = host.call(call_of(&plugin, grant, "{}", Doors::default())).unwrap().wait().unwrap();
    assert!(execution.result.is_ok() && !execution.record.complete);
    let refused = host.replay(&plugin, &execution.record, "{}", None).unwrap_err();
    assert_eq!(refused.code(), "replay_incomplete");
}
