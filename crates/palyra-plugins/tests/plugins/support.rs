//! What the tests share: a host, guests made from text, doors that count.

use palyra_plugins::{
    CallControl, DirectoryFiles, Doors, Execution, Grant, HostSettings, HttpAllowance, HttpDoor, HttpFault, HttpReply,
    HttpRequest, Plugin, PluginCall, PluginError, PluginHost, RequestedCapabilities, SecretFault, SecretsDoor,
    ToolAnswer, WasmPluginRunnerPolicy,
};
use palyra_plugins_build::component_of_text;
use palyra_protocol::{Digest, Secret};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The text of a guest of these tests.
macro_rules! guest {
    ($name:literal) => {
        include_str!(concat!("../guests/", $name, ".wat"))
    };
}

/// The text of a hostile example.
macro_rules! hostile {
    ($name:literal) => {
        include_str!(concat!("../../../../examples/skills/hostile/", $name, ".wat"))
    };
}

pub(crate) use {guest, hostile};

pub(crate) fn host(policy: WasmPluginRunnerPolicy) -> PluginHost {
    PluginHost::new(HostSettings::new(policy)).unwrap()
}

pub(crate) fn bytes_of(text: &str) -> Vec<u8> {
    component_of_text(text).unwrap()
}

pub(crate) fn load(host: &PluginHost, text: &str) -> Arc<Plugin> {
    let bytes = bytes_of(text);
    host.load(Digest::of(&bytes), &bytes, &mut |_| {}).unwrap()
}

/// A policy that allows this, and a request for the same.
pub(crate) fn allowing(asked: &RequestedCapabilities) -> WasmPluginRunnerPolicy {
    WasmPluginRunnerPolicy {
        allowed_hosts: asked.http_hosts.clone(),
        allowed_secrets: asked.secrets.clone(),
        allowed_read_roots: asked.read_roots.clone(),
        allowed_write_roots: asked.write_roots.clone(),
        max_storage_bytes: asked.storage_bytes,
        ..WasmPluginRunnerPolicy::default()
    }
}

pub(crate) fn call_of(plugin: &Arc<Plugin>, grant: Grant, input: &str, doors: Doors) -> PluginCall {
    PluginCall {
        skill: "test".parse().unwrap(),
        plugin: Arc::clone(plugin),
        grant: Arc::new(grant),
        tool: "run".into(),
        input_json: input.into(),
        doors,
    }
}

/// Runs a guest that asks for this and is allowed it.
pub(crate) fn run(text: &str, asked: &RequestedCapabilities, input: &str, doors: Doors) -> Execution {
    let host = host(allowing(asked));
    let plugin = load(&host, text);
    host.call(call_of(&plugin, host.grant(asked), input, doors)).unwrap().wait().unwrap()
}

pub(crate) fn output(execution: &Execution) -> &str {
    match &execution.result {
        Ok(ToolAnswer::Output(output)) => output,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn failure(execution: &Execution) -> &PluginError {
    match &execution.result {
        Err(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Answers every request with its own path, and counts.
#[derive(Debug, Default)]
pub(crate) struct EchoDoor {
    pub(crate) requests: AtomicU64,
}

impl HttpDoor for EchoDoor {
    fn send(&self, request: &HttpRequest, _: HttpAllowance, _: &CallControl) -> Result<HttpReply, HttpFault> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let body = format!("\"{} {number}\"", request.target()).into_bytes();
        Ok(HttpReply { status: 200, headers: vec![("x".into(), "y".into())], body })
    }
}

/// A vault with one secret.
#[derive(Debug)]
pub(crate) struct OneSecret(pub(crate) &'static str);

impl SecretsDoor for OneSecret {
    fn read(&self, scope: &str, key: &str, _: &CallControl) -> Result<Secret, SecretFault> {
        if (scope, key) == ("web", "token") {
            Ok(Secret::new(self.0.as_bytes().to_vec()))
        } else {
            Err(SecretFault::NotFound)
        }
    }
}

/// The files of a directory.
pub(crate) fn files(path: &Path) -> Arc<DirectoryFiles> {
    Arc::new(DirectoryFiles::new(std::fs::File::open(path).unwrap().into()))
}
