//! Each hostile example is stopped by the limit that is meant for it, and says its name and value.

use crate::support::{OneSecret, allowing, bytes_of, call_of, failure, files, guest, host, hostile, load, output, run};
use palyra_plugins::{
    Doors, Limit, Limits, PluginError, RequestedCapabilities, RequestedLimits, WasmPluginRunnerPolicy,
};
use palyra_protocol::Digest;
use std::sync::Arc;

fn limited(limits: RequestedLimits) -> RequestedCapabilities {
    RequestedCapabilities { limits, ..RequestedCapabilities::default() }
}

/// Runs a guest and compares the limit that it exceeded.
fn check(text: &str, limits: RequestedLimits, limit: Limit, value: u64) -> String {
    let execution = run(text, &limited(limits), "{}", Doors::default());
    match failure(&execution) {
        PluginError::LimitExceeded { limit: found, value: found_value } => {
            assert_eq!((*found, *found_value), (limit, value));
        }
        other => panic!("{other:?}"),
    }
    assert!(execution.usage.peak_memory_bytes <= execution.grant.limits().memory_bytes);
    failure(&execution).to_string()
}

#[test]
fn an_infinite_loop_ends_when_its_fuel_does() {
    let limits = RequestedLimits { fuel: Some(1_000_000), ..RequestedLimits::default() };
    let said = check(hostile!("infinite-loop"), limits, Limit::Fuel, 1_000_000);
    assert_eq!(said, "the guest exceeded its limit `fuel` of 1000000 units");
}

#[test]
fn an_infinite_loop_ends_when_its_time_does() {
    let limits = RequestedLimits { fuel: Some(u64::MAX), wall_clock_ms: Some(50), ..RequestedLimits::default() };
    check(hostile!("infinite-loop"), limits, Limit::WallClockMs, 50);
}

#[test]
fn a_sleeper_is_woken_by_its_deadline() {
    let limits = RequestedLimits { wall_clock_ms: Some(20), ..RequestedLimits::default() };
    check(guest!("sleeper"), limits, Limit::WallClockMs, 20);
}

#[test]
fn a_memory_grower_is_refused_and_named() {
    let limits = RequestedLimits { memory_bytes: Some(8 << 20), ..RequestedLimits::default() };
    check(hostile!("memory-grower"), limits, Limit::MemoryBytes, 8 << 20);
}

#[test]
fn a_guest_that_begins_with_more_memory_than_it_may_have_is_named() {
    let limits = RequestedLimits { memory_bytes: Some(65_536), ..RequestedLimits::default() };
    check(guest!("echo"), limits, Limit::MemoryBytes, 65_536);
}

#[test]
fn deep_recursion_ends_at_the_stack() {
    check(hostile!("deep-recursion"), RequestedLimits::default(), Limit::StackBytes, 1 << 20);
}

#[test]
fn a_huge_output_is_not_copied() {
    let limits = RequestedLimits { output_bytes: Some(1000), ..RequestedLimits::default() };
    check(hostile!("huge-output"), limits, Limit::OutputBytes, 1000);
}

#[test]
fn a_flood_of_host_calls_ends() {
    let limits = RequestedLimits { host_calls: Some(5000), ..RequestedLimits::default() };
    check(hostile!("host-call-flood"), limits, Limit::HostCalls, 5000);
}

#[test]
fn a_flood_of_lines_ends_and_what_was_written_stays() {
    let limits = RequestedLimits { log_bytes: Some(1000), ..RequestedLimits::default() };
    let execution = run(hostile!("log-flood"), &limited(limits), "{}", Doors::default());
    assert_eq!(failure(&execution).code(), "plugin_limit_log");
    assert_eq!((execution.log.len(), execution.log[0].text.as_str()), (33, "Fills the log."));
}

#[test]
fn too_many_handles_end_a_guest() {
    check(guest!("handles"), RequestedLimits::default(), Limit::Handles, Limits::default().handles);
}

#[test]
fn one_host_call_cannot_hand_over_everything() {
    check(guest!("transfer"), RequestedLimits::default(), Limit::TransferBytes, Limits::default().transfer_bytes);
}

#[test]
fn an_input_that_is_too_large_is_not_handed_over() {
    let limits = RequestedLimits { input_bytes: Some(1), ..RequestedLimits::default() };
    check(guest!("echo"), limits, Limit::InputBytes, 1);
}

#[test]
fn invalid_utf8_is_no_output() {
    let execution = run(hostile!("invalid-utf8"), &RequestedCapabilities::default(), "{}", Doors::default());
    assert!(matches!(failure(&execution), PluginError::NotUtf8));
}

#[test]
fn exit_is_no_answer() {
    let execution = run(guest!("exits"), &RequestedCapabilities::default(), "{}", Doors::default());
    assert!(matches!(failure(&execution), PluginError::Exited));
}

#[test]
fn no_import_without_grant() {
    let host = host(WasmPluginRunnerPolicy::default());
    let plugin = load(&host, hostile!("undeclared-import"));
    let grant = host.grant(&RequestedCapabilities::default());
    let refused = host.check(&plugin, &grant).unwrap_err();
    assert_eq!(refused.code(), "plugin_import_not_granted");
    assert!(refused.to_string().contains("palyra:skill/secrets@1.0.0"), "{refused}");
    let refused = host.call(call_of(&plugin, grant, "{}", Doors::default())).unwrap_err();
    assert_eq!(refused.code(), "plugin_import_not_granted");
    // Asking what it offers is harmless: no door is open.
    assert_eq!(host.describe(&plugin).unwrap()[0].name, "run");
}

fn wat_of(text: &str) -> Vec<u8> {
    palyra_plugins_build::parse_text(text).unwrap()
}

#[test]
fn a_secret_that_was_not_granted_is_denied() {
    let asked =
        RequestedCapabilities { secrets: vec!["web/token".parse().unwrap()], ..RequestedCapabilities::default() };
    let doors = Doors { secrets: Some(Arc::new(OneSecret("hunter2"))), ..Doors::default() };
    let execution = run(hostile!("secret-not-granted"), &asked, "{}", doors);
    assert_eq!(output(&execution), "\"denied\"");
    assert!(execution.observed.denied.contains("secrets bank/pin"), "{:?}", execution.observed);
}

#[test]
fn paths_do_not_lead_out() {
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().join("workspace");
    std::fs::create_dir_all(workspace.join("data")).unwrap();
    std::fs::create_dir(workspace.join("other")).unwrap();
    std::fs::write(place.path().join("outside"), "secret").unwrap();
    std::fs::write(workspace.join("other/file"), "secret").unwrap();
    std::fs::write(workspace.join("data/file"), "fine").unwrap();
    std::os::unix::fs::symlink("../other/file", workspace.join("data/link")).unwrap();
    std::os::unix::fs::symlink("..", workspace.join("data/up")).unwrap();
    let asked = RequestedCapabilities { read_roots: vec!["data".parse().unwrap()], ..RequestedCapabilities::default() };
    let (denied, link, none) = ("31", "15", "20");
    for (path, expected) in [
        ("file", "\"fine\""),
        ("./x/../file", "\"fine\""),
        ("../other/file", denied),
        ("../../outside", denied),
        ("x/../../other/file", denied),
        ("/etc/passwd", denied),
        ("link", link),
        ("up/other/file", link),
        ("nothing", none),
    ] {
        let doors = Doors { files: Some(files(&workspace)), ..Doors::default() };
        let execution = run(hostile!("path-traversal"), &asked, &format!("\"{path}\""), doors);
        assert_eq!(output(&execution), expected, "{path}");
    }
    let execution = run(hostile!("path-traversal"), &RequestedCapabilities::default(), "\"file\"", Doors::default());
    assert_eq!(output(&execution), "\"no directory\"");
}

#[test]
fn sockets_are_denied_by_their_type() {
    let execution = run(guest!("socket"), &RequestedCapabilities::default(), "{}", Doors::default());
    assert_eq!(output(&execution), "1");
    assert!(execution.observed.denied.contains("wasi sockets"));
}

#[test]
fn what_is_no_component_is_named() {
    let host = host(WasmPluginRunnerPolicy { max_component_bytes: 100_000, ..WasmPluginRunnerPolicy::default() });
    let mut cut = bytes_of(guest!("echo"));
    cut.truncate(cut.len() / 2);
    let core = wat_of("(module)");
    for (bytes, code) in [
        (b"#!/bin/sh".to_vec(), "plugin_not_wasm"),
        (core, "plugin_core_module"),
        (cut, "plugin_malformed"),
        (vec![0; 100_001], "plugin_limit_component"),
        (wat_of("(component)"), "plugin_missing_export"),
    ] {
        let error = host.load(Digest::of(&bytes), &bytes, &mut |_| {}).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    let bytes = bytes_of(guest!("echo"));
    let error = host.load(Digest::ZERO, &bytes, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "plugin_digest_mismatch");
}

#[test]
fn a_component_of_too_many_parts_is_named() {
    let policy = WasmPluginRunnerPolicy {
        max_limits: Limits { instances: 1, tables: 1, memories: 1, ..Limits::maxima() },
        ..allowing(&RequestedCapabilities::default())
    };
    let host = host(policy);
    let bytes = bytes_of(guest!("oracle"));
    let error = host.load(Digest::of(&bytes), &bytes, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "plugin_limit_instances", "{error}");
}
