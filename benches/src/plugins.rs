//! Tier A: calls of guests, against wasmtime alone with the same limits; loading from the cache, against compiling; a
//! short call beside a busy neighbour; many callers. The Rust and Python examples must have been built (`cargo xtask
//! skills`).

use crate::Result;
use crate::report::{Report, median, percentile, show};
use palyra_plugins::{
    CodeCacheSettings, Doors, HostSettings, Plugin, PluginCall, PluginHost, RequestedCapabilities, RequestedLimits,
    WasmPluginRunnerPolicy,
};
use palyra_plugins_build::component_of_text;
use palyra_protocol::{Digest, Secret};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Store, StoreLimits,
    StoreLimitsBuilder, UpdateDeadline,
};

const MINIMAL: &str = include_str!("../../examples/skills/minimal/skill.wat");
const LOOP: &str = include_str!("../../examples/skills/hostile/infinite-loop.wat");
const INPUT: &str = r#"{"text":"hello"}"#;
const BLOCKS: usize = 60;
const BLOCK: usize = 100;
const CALLERS: usize = 64;

pub fn run(report: &mut Report) -> Result {
    warm(report)?;
    neighbours(report)?;
    callers(report)?;
    for (what, name, tool, input) in
        [("rust", "notes", "show", r#"{"title":"x"}"#), ("python", "csv-query", "query", r#"{"text":"a,b\n1,2\n"}"#)]
    {
        loading(report, what, &built(name)?, (tool, input))?;
    }
    Ok(())
}

fn built(name: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../target/skills/{name}.wasm"));
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("{} is missing: run `cargo xtask skills`", path.display()).into())
    }
}

fn host() -> Result<Arc<PluginHost>> {
    let calls = u32::try_from(CALLERS)?;
    let policy = WasmPluginRunnerPolicy {
        max_concurrent_calls: calls,
        max_concurrent_calls_per_skill: calls,
        max_storage_bytes: 1 << 20,
        ..WasmPluginRunnerPolicy::default()
    };
    Ok(Arc::new(PluginHost::new(HostSettings::new(policy))?))
}

fn load(host: &PluginHost, bytes: Vec<u8>) -> Result<Arc<Plugin>> {
    Ok(host.load(Digest::of(&bytes), &bytes, &mut |_| {})?)
}

fn call(host: &PluginHost, plugin: &Arc<Plugin>, skill: &str, limits: RequestedLimits) -> Result<PluginCall> {
    let asked = RequestedCapabilities { limits, storage_bytes: 1 << 20, ..RequestedCapabilities::default() };
    Ok(PluginCall {
        skill: skill.parse()?,
        plugin: Arc::clone(plugin),
        grant: Arc::new(host.grant(&asked)),
        tool: "run".to_owned(),
        input_json: INPUT.to_owned(),
        doors: Doors::default(),
    })
}

/// The minimal guest with a mebibyte of code that it does not use.
fn large() -> Result<Vec<u8>> {
    let mut text = MINIMAL.trim_end().strip_suffix(')').ok_or("the example has no end")?.to_owned();
    for number in 0..6_000 {
        text.push_str(&format!(
            "(func (export \"f{number}\") (param i32) (result i32) (local i32) (local.set 1 (i32.mul (local.get 0) (i32.const {number}))) \
             (i32.store (i32.const 8000) (i32.xor (local.get 1) (i32.load (local.get 0)))) (i32.add (local.get 1) (i32.load offset=64 (local.get 1))))\n"
        ));
    }
    text.push(')');
    Ok(component_of_text(&text)?)
}

/// A warm call, against wasmtime alone; with little code and with much.
fn warm(report: &mut Report) -> Result {
    let host = host()?;
    let bytes = component_of_text(MINIMAL)?;
    let raw = Raw::new(&bytes)?;
    let (tiny, large) = (load(&host, bytes)?, load(&host, large()?)?);
    let limits = RequestedLimits::default;
    let (tiny_call, large_call) = (call(&host, &tiny, "tiny", limits())?, call(&host, &large, "large", limits())?);
    let (mut ours, mut theirs, mut much) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BLOCKS {
        ours.push(median(host.time_calls(&tiny_call, BLOCK)?));
        theirs.push(median(raw.time_calls(BLOCK)?));
        much.push(median(host.time_calls(&large_call, BLOCK)?));
    }
    let (ours, theirs, much) = (median(ours), median(theirs), median(much));
    report.at_most("a warm call, over wasmtime alone", ours, theirs, 2.0);
    let size = format!("the same with {} KiB of code, over a tiny one", large.code_bytes() / 1024);
    report.at_most(&size, much, ours, 1.2);
    let there_and_back = median((0..1000).map(|_| waited(&host, &tiny_call)).collect::<Result<Vec<_>>>()?);
    report.figure("with the way to a guest's thread and back", &show(there_and_back));
    Ok(())
}

fn waited(host: &PluginHost, call: &PluginCall) -> Result<Duration> {
    let began = Instant::now();
    host.call(call.clone())?.wait()?.result?;
    Ok(began.elapsed())
}

/// A short call while another guest computes for ever.
fn neighbours(report: &mut Report) -> Result {
    let host = host()?;
    let (short, busy) = (load(&host, component_of_text(MINIMAL)?)?, load(&host, component_of_text(LOOP)?)?);
    let short = call(&host, &short, "short", RequestedLimits::default())?;
    let forever = RequestedLimits { fuel: Some(u64::MAX), wall_clock_ms: Some(300_000), ..RequestedLimits::default() };
    let forever = call(&host, &busy, "busy", forever)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        alone.extend((0..200).map(|_| waited(&host, &short)).collect::<Result<Vec<_>>>()?);
        // Dropping it at the end of the block cancels it.
        let _neighbour = host.call(forever.clone())?;
        beside.extend((0..200).map(|_| waited(&host, &short)).collect::<Result<Vec<_>>>()?);
    }
    let (beside, alone) = (percentile(&mut beside, 99), percentile(&mut alone, 99));
    report.at_most("p99 beside a busy neighbour, over alone", beside, alone, 3.0);
    Ok(())
}

/// How much more many callers get done than one.
fn callers(report: &mut Report) -> Result {
    let cores = std::thread::available_parallelism()?.get();
    let host = host()?;
    let plugin = load(&host, component_of_text(&busy_for_a_while())?)?;
    let call = call(&host, &plugin, "many", RequestedLimits::default())?;
    let rate = |callers: usize| -> Result<f64> {
        let began = Instant::now();
        let share = || (0..640 / callers).try_for_each(|_| waited(&host, &call).map(drop).map_err(|e| e.to_string()));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..callers).map(|_| scope.spawn(share)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a caller broke".to_owned())))
        })?;
        Ok(640.0 / began.elapsed().as_secs_f64())
    };
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        one.push(rate(1)?);
        many.push(rate(CALLERS)?);
    }
    let middle = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let what = format!("{CALLERS} callers, over one, on {cores} cores");
    report.at_least(&what, middle(&mut many), middle(&mut one), 0.8 * cores.min(CALLERS) as f64);
    Ok(())
}

/// The minimal guest, which counts to a hundred thousand before it answers.
fn busy_for_a_while() -> String {
    let count = "(local $n i32) (local.set $n (i32.const 100000)) (loop $again (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n))) (call $answer (local.get $input)";
    MINIMAL.replace("(call $answer (local.get $input)", count)
}

/// The first call after a start, from the cache, against compiling.
fn loading(report: &mut Report, what: &str, component: &Path, (tool, input): (&str, &str)) -> Result {
    let place = tempfile::tempdir()?;
    let policy = WasmPluginRunnerPolicy { max_storage_bytes: 1 << 20, ..WasmPluginRunnerPolicy::default() };
    let settings = HostSettings {
        code_cache: Some(CodeCacheSettings {
            directory: place.path().join("code"),
            secret: Secret::new(b"a secret of the benchmark".to_vec()),
        }),
        ..HostSettings::new(policy)
    };
    let bytes = std::fs::read(component)?;
    let digest = Digest::of(&bytes);
    let began = Instant::now();
    PluginHost::new(settings.clone())?.load(digest, &bytes, &mut |_| {})?;
    let compiled = began.elapsed();
    let mut times = Vec::new();
    for _ in 0..10 {
        let began = Instant::now();
        let host = PluginHost::new(settings.clone())?;
        let plugin = host.load(digest, &bytes, &mut |_| {})?;
        let call = PluginCall {
            tool: tool.to_owned(),
            input_json: input.to_owned(),
            ..call(&host, &plugin, "first", RequestedLimits::default())?
        };
        host.call(call)?.wait()?.result?;
        times.push(began.elapsed());
    }
    let first = median(times);
    let ratio = compiled.as_secs_f64() / first.as_secs_f64();
    let figures = format!("{} instead of {} = {ratio:.0}× (promised ≥ 50×)", show(first), show(compiled));
    report.promise(&format!("first call from the cache: {what}"), &figures, ratio >= 50.0);
    let before = resident()?;
    let host = PluginHost::new(settings)?;
    let plugin = host.load(digest, &bytes, &mut |_| {})?;
    let grown = resident()?.saturating_sub(before);
    report.figure(
        &format!("memory of a loaded skill: {what}"),
        &format!("{grown} KiB for {} KiB of code", plugin.code_bytes() / 1024),
    );
    Ok(())
}

/// Memory that this process has touched, in KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no resident size")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

/// Wasmtime alone, configured like the host.
struct Raw {
    engine: Engine,
    ready: InstancePre<StoreLimits>,
}

impl Raw {
    fn new(bytes: &[u8]) -> Result<Self> {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(64)
            .total_core_instances(4096)
            .total_memories(512)
            .total_tables(4096)
            .max_core_instances_per_component(64)
            .max_memories_per_component(8)
            .max_tables_per_component(64)
            .table_elements(20_000)
            .max_memory_size(512 << 20)
            .linear_memory_keep_resident(128 << 10)
            .table_keep_resident(128 << 10);
        let mut config = Config::new();
        config
            .cranelift_opt_level(OptLevel::Speed)
            .cranelift_nan_canonicalization(true)
            .consume_fuel(true)
            .epoch_interruption(true)
            .max_wasm_stack(1 << 20)
            .wasm_relaxed_simd(false)
            .wasm_memory64(false)
            .concurrency_support(false)
            .generate_address_map(false)
            .native_unwind_info(false)
            .memory_reservation(4 << 30)
            .memory_guard_size(32 << 20)
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config)?;
        let component = Component::new(&engine, bytes)?;
        let ready = Linker::new(&engine).instantiate_pre(&component)?;
        Ok(Self { engine, ready })
    }

    /// Calls on a thread of its own, as the host does.
    fn time_calls(&self, count: usize) -> Result<Vec<Duration>> {
        let times = std::thread::scope(|scope| {
            let timed = scope.spawn(|| (0..count).map(|_| self.time().map_err(|error| error.to_string())).collect());
            timed.join().unwrap_or_else(|_| Err("wasmtime broke".to_owned()))
        });
        Ok(times?)
    }

    fn time(&self) -> wasmtime::Result<Duration> {
        let began = Instant::now();
        let limits = StoreLimitsBuilder::new().memory_size(128 << 20).table_elements(20_000).instances(64).build();
        let mut store = Store::new(&self.engine, limits);
        store.limiter(|limits| limits);
        store.set_fuel(5_000_000_000)?;
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Continue(1)));
        let instance = self.ready.instantiate(&mut store)?;
        let tools = instance.get_export_index(&mut store, None, "palyra:skill/tools@1.0.0");
        let invoke = instance.get_export_index(&mut store, tools.as_ref(), "invoke");
        let invoke = invoke.ok_or_else(|| wasmtime::Error::msg("no tool"))?;
        let invoke =
            instance.get_typed_func::<(&str, &str), (std::result::Result<String, RawError>,)>(&mut store, invoke)?;
        let (answer,) = invoke.call(&mut store, ("run", INPUT))?;
        assert!(answer.is_ok(), "the guest answers");
        drop(store);
        Ok(began.elapsed())
    }
}

/// The error of a tool.
#[derive(Debug, wasmtime::component::ComponentType, wasmtime::component::Lift)]
#[component(record)]
struct RawError {
    #[expect(dead_code, reason = "the type is what is measured")]
    code: String,
    #[expect(dead_code, reason = "the type is what is measured")]
    message: String,
}
