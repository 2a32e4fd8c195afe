//! Many calls at once: bounded, fair, and each with its own deadline.

use crate::support::{call_of, failure, guest, host, hostile, load, output};
use palyra_plugins::{Doors, PendingCall, PluginCall, RequestedCapabilities, RequestedLimits, WasmPluginRunnerPolicy};

fn asking(limits: RequestedLimits) -> RequestedCapabilities {
    RequestedCapabilities { limits, ..RequestedCapabilities::default() }
}

#[test]
fn a_thousand_calls_at_once_are_all_answered_by_a_few_threads() {
    let policy = WasmPluginRunnerPolicy {
        max_concurrent_calls: 4,
        max_concurrent_calls_per_skill: 4,
        ..WasmPluginRunnerPolicy::default()
    };
    let host = host(policy);
    let plugin = load(&host, guest!("echo"));
    let grant = host.grant(&RequestedCapabilities::default());
    let call = |number: u32| call_of(&plugin, grant.clone(), &number.to_string(), Doors::default());
    let pending: Vec<PendingCall> = (0..1000).map(|number| host.call(call(number)).unwrap()).collect();
    for (number, pending) in pending.into_iter().enumerate() {
        assert_eq!(output(&pending.wait().unwrap()), number.to_string());
    }
    let threads = std::fs::read_dir("/proc/self/task").map(|tasks| {
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        tasks.flatten().map(name).filter(|name| name.trim() == "palyra-guest").count()
    });
    // Other tests of this program have threads too; a thousand calls would be seen all the same.
    assert!(threads.unwrap_or(0) < 200);
}

#[test]
fn beyond_the_queue_calls_are_refused_by_name() {
    let policy = WasmPluginRunnerPolicy {
        max_concurrent_calls: 1,
        max_queued_calls_per_skill: 3,
        ..WasmPluginRunnerPolicy::default()
    };
    let host = host(policy);
    let plugin = load(&host, guest!("sleeper"));
    let grant = host.grant(&RequestedCapabilities::default());
    let call = || host.call(call_of(&plugin, grant.clone(), "{}", Doors::default()));
    let mut pending = Vec::new();
    let refused = loop {
        match call() {
            Ok(waiting) => pending.push(waiting),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), "plugin_limit_queued_calls_per_skill");
    // One runs, if its thread has taken it by now, and three wait.
    assert!((3..=4).contains(&pending.len()), "{}", pending.len());
}

#[test]
fn one_expiry_does_not_end_a_neighbour() {
    let host = host(WasmPluginRunnerPolicy::default());
    let busy = load(&host, hostile!("infinite-loop"));
    let long =
        asking(RequestedLimits { fuel: Some(u64::MAX), wall_clock_ms: Some(300_000), ..RequestedLimits::default() });
    let short = asking(RequestedLimits { fuel: Some(u64::MAX), wall_clock_ms: Some(10), ..RequestedLimits::default() });
    let skill = |name: &str, call: PluginCall| PluginCall { skill: name.parse().unwrap(), ..call };
    let neighbour = call_of(&busy, host.grant(&long), "{}", Doors::default());
    let neighbour = host.call(skill("neighbour", neighbour)).unwrap();
    for _ in 0..5 {
        let call = call_of(&busy, host.grant(&short), "{}", Doors::default());
        let execution = host.call(skill("short", call)).unwrap().wait().unwrap();
        assert_eq!(failure(&execution).code(), "plugin_limit_wall_clock");
    }
    // It has been woken five times and runs still: cancelling is what ends it.
    neighbour.control().cancel();
    assert_eq!(failure(&neighbour.wait().unwrap()).code(), "plugin_cancelled");
}

#[test]
fn a_call_that_nobody_waits_for_makes_room() {
    let policy = WasmPluginRunnerPolicy { max_concurrent_calls: 1, ..WasmPluginRunnerPolicy::default() };
    let host = host(policy);
    let (sleeper, echo) = (load(&host, guest!("sleeper")), load(&host, guest!("echo")));
    let grant = host.grant(&asking(RequestedLimits { wall_clock_ms: Some(300_000), ..RequestedLimits::default() }));
    let asleep = host.call(call_of(&sleeper, grant.clone(), "{}", Doors::default())).unwrap();
    let waiting = host.call(call_of(&echo, grant, "1", Doors::default())).unwrap();
    drop(asleep);
    assert_eq!(output(&waiting.wait().unwrap()), "1");
}
