//! The runtime: one configuration of wasmtime for compiling and running, and the pool that instances come from.
//!
//! What runs is deterministic: NaNs are canonical, there are no threads and no relaxed vector operations, so that a
//! recorded call comes out the same again. Fuel and epochs are compiled into the code. Memory comes from a pool whose
//! slots are reserved address space and cost nothing until they are used; where the host does not give that much,
//! instances are made one by one.

use crate::error::PluginError;
use crate::limits::Limits;
use crate::policy::WasmPluginRunnerPolicy;
use palyra_protocol::{Digest, DigestBuilder};
use std::hash::{Hash as _, Hasher};
use std::sync::Arc;
use wasmtime::{CacheStore, Config, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

/// How much of a used memory stays with the pool instead of going back to the system: zeroing a little is cheaper than
/// asking for it again.
const KEEP_RESIDENT: usize = 128 << 10;

/// The engine that runs guests.
pub(crate) fn running(policy: &WasmPluginRunnerPolicy) -> Result<Engine, PluginError> {
    let mut config = shared(policy);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(policy)));
    let on_demand = |_| Engine::new(&shared(policy));
    Engine::new(&config).or_else(on_demand).map_err(|error| PluginError::Runtime { detail: format!("{error:#}") })
}

/// An engine that only compiles, for the one above, and tells somebody about every function.
pub(crate) fn compiling(policy: &WasmPluginRunnerPolicy, told: Arc<dyn CacheStore>) -> Result<Engine, PluginError> {
    let runtime = |error: wasmtime::Error| PluginError::Runtime { detail: format!("{error:#}") };
    let mut config = shared(policy);
    config.enable_incremental_compilation(told).map_err(runtime)?;
    Engine::new(&config).map_err(runtime)
}

/// What compiled code depends on: wasmtime's version, the processor and every setting that shapes code.
pub(crate) fn identity(engine: &Engine) -> Digest {
    let mut hasher = DigestHasher(Some(DigestBuilder::new("palyra.plugins.engine.v1")));
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.map_or(Digest::ZERO, DigestBuilder::finish)
}

/// What both have in common: everything that shapes code.
fn shared(policy: &WasmPluginRunnerPolicy) -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(usize::try_from(policy.stack_bytes).unwrap_or(usize::MAX))
        .wasm_component_model(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .concurrency_support(false)
        .generate_address_map(false)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(16))
        .native_unwind_info(false)
        .memory_init_cow(true)
        .memory_reservation(4 << 30)
        .memory_guard_size(32 << 20)
        .table_lazy_init(true);
    config
}

/// Slots for as many instances as may run at the same time, each as large as any grant may be.
fn pool(policy: &WasmPluginRunnerPolicy) -> PoolingAllocationConfig {
    let Limits { memory_bytes, table_elements, tables, memories, instances, .. } = policy.max_limits;
    let calls = policy.max_concurrent_calls;
    let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .total_core_instances(calls.saturating_mul(count(instances)))
        .total_memories(calls.saturating_mul(count(memories)))
        .total_tables(calls.saturating_mul(count(tables)))
        .max_core_instances_per_component(count(instances))
        .max_memories_per_component(count(memories))
        .max_memories_per_module(count(memories))
        .max_tables_per_component(count(tables))
        .max_tables_per_module(count(tables))
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .table_elements(size(table_elements))
        .max_memory_size(size(memory_bytes))
        .linear_memory_keep_resident(KEEP_RESIDENT)
        .table_keep_resident(KEEP_RESIDENT);
    pool
}

/// A hasher for a digest: what is hashed becomes its fields.
struct DigestHasher(Option<DigestBuilder>);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.take().map(|digest| digest.field(bytes));
    }

    /// Nobody asks for sixty-four bits of it.
    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl CacheStore for Nobody {
        fn get(&self, _: &[u8]) -> Option<std::borrow::Cow<'_, [u8]>> {
            None
        }

        fn insert(&self, _: &[u8], _: Vec<u8>) -> bool {
            true
        }
    }

    #[test]
    fn what_compiles_and_what_runs_agree_and_settings_tell_them_apart() {
        let policy = WasmPluginRunnerPolicy::default();
        let (running, compiling) = (running(&policy).unwrap(), compiling(&policy, Arc::new(Nobody)).unwrap());
        assert_eq!(identity(&running), identity(&compiling));
        let mut other = shared(&policy);
        other.consume_fuel(false);
        assert_ne!(identity(&running), identity(&Engine::new(&other).unwrap()));
    }
}
