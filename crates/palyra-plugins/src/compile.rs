//! Compiling a component: checked first, counted, done on a thread of its own, told as it goes.
//!
//! A component of a large language takes seconds, so this happens when a skill is installed and whoever installs it
//! sees how far it is. The runtime has no word for progress, but it asks its function cache about every function that
//! it is about to compile: ours holds nothing and counts.

use crate::engine;
use crate::error::PluginError;
use crate::limits::Limit;
use crate::policy::WasmPluginRunnerPolicy;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use wasmparser::{Encoding, Parser, Payload};
use wasmtime::CacheStore;

/// The compiler recurses over what it compiles.
const COMPILER_STACK: usize = 16 << 20;
/// How many functions are compiled between two words about it.
const STEP: u64 = 64;

/// How far compiling is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileProgress {
    /// The component is well-formed so far; this much is to be compiled.
    Started {
        /// Its functions.
        functions: u64,
        /// Its size.
        bytes: u64,
    },
    /// So many functions are done.
    Compiled {
        /// How many.
        done: u64,
        /// Of how many; adapters that the runtime adds may exceed it.
        functions: u64,
    },
    /// It is compiled and being written to the cache.
    Writing {
        /// The size of the code.
        bytes: u64,
    },
}

/// What is told about compiling.
pub type OnProgress<'a> = &'a mut dyn FnMut(CompileProgress);

/// Looks at the first bytes: what is this at all?
pub(crate) fn check_kind(bytes: &[u8]) -> Result<(), PluginError> {
    if !bytes.starts_with(b"\0asm") {
        return Err(PluginError::NotWasm);
    }
    match Parser::new(0).parse_all(bytes).next() {
        Some(Ok(Payload::Version { encoding: Encoding::Component, .. })) => Ok(()),
        Some(Ok(Payload::Version { encoding: Encoding::Module, .. })) => Err(PluginError::CoreModule),
        Some(Err(error)) => Err(PluginError::Malformed { detail: error.to_string() }),
        _ => Err(PluginError::NotWasm),
    }
}

/// Compiles a component for the engine that runs guests.
pub(crate) fn compile(
    policy: &WasmPluginRunnerPolicy,
    bytes: &[u8],
    on_progress: OnProgress<'_>,
) -> Result<Vec<u8>, PluginError> {
    if bytes.len() as u64 > policy.max_component_bytes {
        return Err(PluginError::LimitExceeded { limit: Limit::ComponentBytes, value: policy.max_component_bytes });
    }
    check_kind(bytes)?;
    let functions = count_functions(bytes)?;
    on_progress(CompileProgress::Started { functions, bytes: bytes.len() as u64 });
    let (told, news) = mpsc::channel();
    let engine = engine::compiling(policy, Arc::new(Counter { done: AtomicU64::new(0), told }))?;
    std::thread::scope(|scope| {
        let compiler = std::thread::Builder::new().name("palyra-compile".into()).stack_size(COMPILER_STACK);
        let compiler = compiler.spawn_scoped(scope, move || {
            let code = engine.precompile_component(bytes);
            // The counter goes with the engine, and with it the sender: the loop below ends.
            drop(engine);
            code
        });
        let compiler = compiler.map_err(PluginError::io("start a thread for compiling"))?;
        for done in news {
            on_progress(CompileProgress::Compiled { done, functions });
        }
        match compiler.join() {
            Ok(Ok(code)) => Ok(code),
            Ok(Err(error)) => Err(PluginError::Malformed { detail: format!("{error:#}") }),
            Err(_) => Err(PluginError::Bug { detail: "the compiler panicked".to_owned() }),
        }
    })
}

fn count_functions(bytes: &[u8]) -> Result<u64, PluginError> {
    let mut functions = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::CodeSectionStart { count, .. }) => functions += u64::from(count),
            Ok(_) => {}
            Err(error) => return Err(PluginError::Malformed { detail: error.to_string() }),
        }
    }
    Ok(functions)
}

/// Holds no function and counts those that it is asked about.
#[derive(Debug)]
struct Counter {
    done: AtomicU64,
    told: mpsc::Sender<u64>,
}

impl CacheStore for Counter {
    fn get(&self, _key: &[u8]) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn insert(&self, _key: &[u8], _function: Vec<u8>) -> bool {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(STEP) {
            // Compiling goes on all the same.
            let _nobody_listens = self.told.send(done);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_components_pass() {
        let check = |bytes: &[u8]| check_kind(bytes).map_err(|error| error.code());
        assert_eq!(check(b""), Err("plugin_not_wasm"));
        assert_eq!(check(b"\x7fELF"), Err("plugin_not_wasm"));
        assert_eq!(check(b"\0asm\x01\0\0\0"), Err("plugin_core_module"));
        assert_eq!(check(b"\0asm\x0d\0\x01\0"), Ok(()));
        assert_eq!(check(b"\0asm\x63\0\0\0"), Err("plugin_malformed"));
        assert_eq!(check(b"\0asm"), Err("plugin_malformed"));
    }
}
