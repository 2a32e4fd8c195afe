//! What grants open: hosts, storage, secrets, files; and what a call that ran tells about itself.

use crate::support::{EchoDoor, OneSecret, allowing, call_of, failure, files, guest, host, load, output, run};
use palyra_plugins::{
    Doors, HostCallKind, LogLevel, PluginError, RequestedCapabilities, StorageDirectory, ToolAnswer,
    WasmPluginRunnerPolicy,
};
use palyra_plugins_build::parse_text;
use palyra_protocol::Digest;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn nothing() -> RequestedCapabilities {
    RequestedCapabilities::default()
}

#[test]
fn a_guest_answers_and_says_what_it_used() {
    let execution = run(guest!("echo"), &nothing(), r#"{"text":"grüße"}"#, Doors::default());
    assert_eq!(output(&execution), r#"{"text":"grüße"}"#);
    assert!(execution.usage.fuel > 0 && execution.usage.fuel < 10_000, "{:?}", execution.usage);
    assert_eq!(execution.usage.peak_memory_bytes, 2 * 65_536);
    assert_eq!(execution.usage.host_calls.total(), 0);
    assert!(execution.log.is_empty() && execution.record.complete);
}

#[test]
fn a_tool_may_fail_in_its_own_words() {
    let execution = run(guest!("fails"), &nothing(), "{}", Doors::default());
    let expected = ToolAnswer::Failed { code: "not_found".into(), message: "there is none".into() };
    assert_eq!(execution.result.unwrap(), expected);
}

#[test]
fn a_component_describes_its_tools() {
    let host = host(WasmPluginRunnerPolicy::default());
    let tools = host.describe(&load(&host, guest!("echo"))).unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!((tools[0].name.as_str(), tools[0].input_schema.as_str()), ("run", r#"{"type":"object"}"#));
    assert_eq!((tools[0].description.as_str(), &tools[0].output_schema), ("A guest of the tests.", &None));
}

#[test]
fn host_calls_are_counted_by_kind_and_lines_are_kept() {
    let execution = run(guest!("oracle"), &nothing(), "{}", Doors::default());
    let calls = execution.usage.host_calls;
    let counts = [HostCallKind::Clock, HostCallKind::Random, HostCallKind::Log].map(|kind| calls.of(kind));
    assert_eq!((counts, calls.total()), ([2, 1, 1], 4));
    assert_eq!(serde_json::to_value(calls).unwrap(), serde_json::json!({"clock": 2, "random": 1, "log": 1}));
    assert_eq!((execution.log[0].level, execution.log[0].text.as_str()), (LogLevel::Info, "A guest of the tests."));
}

#[test]
fn only_granted_hosts_are_reached() {
    let asked = RequestedCapabilities { http_hosts: vec!["api.example.org".parse().unwrap()], ..nothing() };
    let door = Arc::new(EchoDoor::default());
    let doors = Doors { http: Some(Arc::clone(&door) as _), ..Doors::default() };
    let (denied, invalid) = ("0", "1");
    for (url, expected) in [
        ("https://api.example.org/a?b", "\"/a?b 0\""),
        ("https://example.org/", denied),
        ("https://api.example.org:8443/", denied),
        ("https://api.example.org.evil.test/", denied),
        ("https://evil.test/https://api.example.org/", denied),
        ("https://api.example.org@evil.test/", invalid),
        ("file:///etc/passwd", invalid),
        ("https://api.example.org/c", "\"/c 1\""),
    ] {
        let execution = run(guest!("fetch"), &asked, &format!("\"{url}\""), doors.clone());
        assert_eq!(output(&execution), expected, "{url}");
    }
    assert_eq!(door.requests.load(Ordering::SeqCst), 2);
}

#[test]
fn a_door_that_is_missing_is_shut() {
    let asked = RequestedCapabilities { http_hosts: vec!["a.test".parse().unwrap()], ..nothing() };
    let execution = run(guest!("fetch"), &asked, "\"https://a.test/\"", Doors::default());
    assert_eq!(output(&execution), "0");
}

#[test]
fn storage_outlives_calls() {
    let asked = RequestedCapabilities { storage_bytes: 1000, ..nothing() };
    let place = tempfile::tempdir().unwrap();
    for expected in ["1", "2", "3"] {
        let storage = StorageDirectory::open(&place.path().join("s")).unwrap();
        let doors = Doors { storage: Some(Arc::new(storage)), ..Doors::default() };
        assert_eq!(output(&run(guest!("counter"), &asked, "{}", doors)), expected);
    }
}

#[test]
fn a_granted_secret_is_read_and_never_recorded() {
    let asked = RequestedCapabilities { secrets: vec!["web/*".parse().unwrap()], ..nothing() };
    let doors = Doors { secrets: Some(Arc::new(OneSecret("\"hunter2\""))), ..Doors::default() };
    let execution = run(guest!("secret"), &asked, "{}", doors);
    assert_eq!(output(&execution), "\"hunter2\"");
    let record = execution.record.to_json().unwrap();
    assert!(!record.contains("hunter2") && execution.record.may_hold_secrets(), "{record}");
    assert!(execution.observed.secrets.contains("web/token"));
}

#[test]
fn writing_needs_its_own_grant() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("out")).unwrap();
    let write_there = |asked: &RequestedCapabilities, input: &str| {
        let doors = Doors { files: Some(files(place.path())), ..Doors::default() };
        output(&run(guest!("writer"), asked, input, doors)).to_owned()
    };
    let reading = RequestedCapabilities { read_roots: vec!["out".parse().unwrap()], ..nothing() };
    assert_eq!(write_there(&reading, "\"f\""), "31");
    assert!(!place.path().join("out/f").exists());
    let writing = RequestedCapabilities { write_roots: vec!["out".parse().unwrap()], ..nothing() };
    assert_eq!(write_there(&writing, "\"f\""), "00");
    assert_eq!(std::fs::read_to_string(place.path().join("out/f")).unwrap(), "mine");
    assert_eq!(write_there(&writing, "\"../g\""), "31");
}

/// A component whose tools have another shape, with imports before them.
fn odd_component(imports: &str) -> Vec<u8> {
    let text = format!(
        r#"(component {imports}
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            (instance $tools (export "describe" (func $f)) (export "invoke" (func $f)))
            (export "palyra:skill/tools@1.0.0" (instance $tools)))"#
    );
    parse_text(&text).unwrap()
}

#[test]
fn imports_that_no_host_has_do_not_exist() {
    let host = host(allowing(&nothing()));
    for (import, code) in [
        (r#"(import "acme:shell/run@1.0.0" (instance (export "run" (func))))"#, "plugin_unknown_import"),
        (r#"(import "wasi:http/incoming-handler@0.2.0" (instance))"#, "plugin_unknown_import"),
        (r#"(import "palyra:skill/admin@1.0.0" (instance (export "all" (func))))"#, "plugin_unknown_import"),
        (r#"(import "run" (func))"#, "plugin_unknown_import"),
        (r#"(import "palyra:skill/storage@1.0.0" (instance))"#, "plugin_import_not_granted"),
        (r#"(import "palyra:skill/log@1.0.0" (instance (export "shout" (func))))"#, "plugin_malformed"),
    ] {
        let bytes = odd_component(import);
        let plugin = host.load(Digest::of(&bytes), &bytes, &mut |_| {}).unwrap();
        let error = host.check(&plugin, &host.grant(&nothing())).unwrap_err();
        assert_eq!(error.code(), code, "{import}: {error}");
    }
}

#[test]
fn tools_of_another_shape_are_named() {
    let host = host(allowing(&nothing()));
    let bytes = odd_component("");
    let plugin = host.load(Digest::of(&bytes), &bytes, &mut |_| {}).unwrap();
    let call = call_of(&plugin, host.grant(&nothing()), "{}", Doors::default());
    let execution = host.call(call).unwrap().wait().unwrap();
    assert!(matches!(failure(&execution), PluginError::MissingExport { export: "invoke" }));
    assert_eq!(host.describe(&plugin).unwrap_err().code(), "plugin_missing_export");
}

#[test]
fn a_host_that_nobody_uses_starts_nothing() {
    let host = host(WasmPluginRunnerPolicy::default());
    let _grant = host.grant(&nothing());
    assert!(!host.is_started());
    load(&host, guest!("echo"));
    assert!(host.is_started());
}
