//! One call, from a fresh instance to its answer, on the thread of a guest.

use crate::alarm::Alarm;
use crate::call::{Execution, ToolAnswer, ToolDescription, Usage};
use crate::control::CallControl;
use crate::error::{PluginError, Stop};
use crate::grant::Interfaces;
use crate::guest::{Birth, Guest};
use crate::limits::{Limit, Limits};
use crate::plugin::{DescribeResult, InvokeParams, InvokeResult, Plugin};
use crate::record::{CallRecord, Ending};
use crate::wording::{is_too_much_at_once, limit_in};
use std::sync::Arc;
use std::time::Instant;
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{Engine, Store, Trap, UpdateDeadline, WasmBacktrace};

/// What every call needs of the runtime.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) stack_bytes: u64,
}

/// A call that is ready to run.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) birth: Birth,
    pub(crate) tool: String,
    pub(crate) input: String,
}

/// Runs a tool.
pub(crate) fn invoke(runtime: &Runtime, prepared: Prepared) -> Result<Execution, PluginError> {
    let Prepared { plugin, birth, tool, input } = prepared;
    let linked = plugin.linked(&runtime.engine, birth.grant.interfaces())?;
    let grant = Arc::clone(&birth.grant);
    let mut record = CallRecord::begin(plugin.digest(), &grant, &tool, &input, birth.seed);
    let began = Instant::now();
    let (result, mut store) = run(runtime, birth, &linked, |store, instance| {
        let limit = grant.limits().input_bytes;
        if input.len() as u64 > limit {
            return Err(Stop::Limit(Limit::InputBytes, limit).into());
        }
        let invoke = instance.get_typed_func::<InvokeParams<'_>, InvokeResult>(&mut *store, plugin.invoke_export());
        let (answer,) = invoke.map_err(|_| Shape("invoke"))?.call(store, (&tool, &input))?;
        Ok(answer)
    })?;
    let fuel_used = grant.limits().fuel.saturating_sub(store.get_fuel().unwrap_or(0));
    let guest = store.data_mut();
    let result = result.and_then(|answer| checked(answer, grant.limits()));
    (record.events, record.complete) = guest.take_tape().finish();
    record.fuel_used = fuel_used;
    record.ending = ending(&result);
    let guest = store.into_data();
    let usage = Usage {
        fuel: fuel_used,
        peak_memory_bytes: guest.meter.peak(),
        host_calls: guest.calls,
        duration: began.elapsed(),
    };
    Ok(Execution { result, log: guest.log.finish(), usage, observed: guest.observed, grant, record })
}

/// Asks a component which tools it has: everything is linked and every door is shut.
pub(crate) fn describe(runtime: &Runtime, plugin: &Plugin, birth: Birth) -> Result<Vec<ToolDescription>, PluginError> {
    let linked = plugin.linked(&runtime.engine, Interfaces::ALL)?;
    let limit = birth.grant.limits().output_bytes;
    let (result, _) = run(runtime, birth, &linked, |store, instance| {
        let describe = instance.get_typed_func::<(), DescribeResult>(&mut *store, plugin.describe_export());
        let (tools,) = describe.map_err(|_| Shape("describe"))?.call(store, ())?;
        Ok(tools)
    })?;
    let tools: Vec<_> = result?.into_iter().map(ToolDescription::from).collect();
    let size: usize = tools.iter().map(ToolDescription::size).sum();
    if size as u64 > limit {
        return Err(PluginError::LimitExceeded { limit: Limit::OutputBytes, value: limit });
    }
    Ok(tools)
}

/// An export of another shape than the interface has.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` has another type than the interface")]
struct Shape(&'static str);

type Ran<T> = (Result<T, PluginError>, Store<Guest>);

/// Makes an instance within its limits and lets it work.
fn run<T>(
    runtime: &Runtime,
    birth: Birth,
    linked: &InstancePre<Guest>,
    work: impl FnOnce(&mut Store<Guest>, Instance) -> wasmtime::Result<T>,
) -> Result<Ran<T>, PluginError> {
    let limits = birth.grant.limits().clone();
    let control = Arc::clone(&birth.control);
    let mut store = Store::new(&runtime.engine, Guest::new(birth));
    store.limiter(|guest| &mut guest.meter);
    let bug = |error: wasmtime::Error| PluginError::Bug { detail: format!("{error:#}") };
    store.set_fuel(limits.fuel).map_err(bug)?;
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    store.set_hostcall_fuel(count(limits.transfer_bytes.max(limits.output_bytes)));
    store.set_max_component_handles(count(limits.handles));
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |context| {
        context.data().control.check()?;
        Ok(UpdateDeadline::Continue(1))
    });
    let result = watched(runtime, &control, || {
        let instance = linked.instantiate(&mut store)?;
        work(&mut store, instance)
    })?;
    let result = result.map_err(|error| explain(&error, &store, &limits, runtime.stack_bytes));
    Ok((result, store))
}

/// Runs with the alarm set.
fn watched<T>(
    runtime: &Runtime,
    control: &CallControl,
    work: impl FnOnce() -> wasmtime::Result<T>,
) -> Result<wasmtime::Result<T>, PluginError> {
    if let Err(stop) = control.check() {
        return Ok(Err(stop.into()));
    }
    let watch = runtime.alarm.watch(control.deadline()).map_err(PluginError::io("start the alarm of guests"))?;
    let done = work();
    drop(watch);
    Ok(done)
}

/// What an answer may be.
fn checked(answer: Result<String, crate::plugin::RawToolError>, limits: &Limits) -> Result<ToolAnswer, PluginError> {
    let size = match &answer {
        Ok(output) => output.len(),
        Err(error) => error.code.len() + error.message.len(),
    };
    if size as u64 > limits.output_bytes {
        return Err(PluginError::LimitExceeded { limit: Limit::OutputBytes, value: limits.output_bytes });
    }
    Ok(match answer {
        Ok(output) => ToolAnswer::Output(output),
        Err(error) => ToolAnswer::Failed { code: error.code, message: error.message },
    })
}

fn ending(result: &Result<ToolAnswer, PluginError>) -> Ending {
    match result {
        Ok(ToolAnswer::Output(output)) => Ending::output(output),
        Ok(ToolAnswer::Failed { code, message }) => Ending::tool_error(code, message),
        Err(error) => Ending::Failed(error.code().to_owned()),
    }
}

/// Says in our words why a guest has ended.
fn explain(error: &wasmtime::Error, store: &Store<Guest>, limits: &Limits, stack_bytes: u64) -> PluginError {
    let exceeded = |limit, value| PluginError::LimitExceeded { limit, value };
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return stopped(stop);
    }
    if let Some(Shape(export)) = error.downcast_ref::<Shape>() {
        return PluginError::MissingExport { export };
    }
    let in_guest = error.downcast_ref::<WasmBacktrace>();
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => return exceeded(Limit::Fuel, limits.fuel),
        Some(Trap::StackOverflow) => return exceeded(Limit::StackBytes, stack_bytes),
        _ => {}
    }
    // A guest that is refused memory rarely says so: most languages give up with a trap.
    if let Some((limit, value)) = store.data().meter.refused() {
        return exceeded(limit, value);
    }
    if in_guest.is_none() && error.downcast_ref::<std::str::Utf8Error>().is_some() {
        return PluginError::NotUtf8;
    }
    let text = format!("{error:#}");
    if is_too_much_at_once(&text) {
        return match in_guest {
            Some(_) => exceeded(Limit::TransferBytes, limits.transfer_bytes.max(limits.output_bytes)),
            None => exceeded(Limit::OutputBytes, limits.output_bytes),
        };
    }
    if let Some((limit, value)) = limit_in(&text, limits) {
        return exceeded(limit, value);
    }
    let function = in_guest.and_then(|trace| trace.frames().first()?.func_name().map(str::to_owned));
    PluginError::Trapped { trap: error.root_cause().to_string(), function }
}

fn stopped(stop: &Stop) -> PluginError {
    match stop {
        Stop::Limit(limit, value) => PluginError::LimitExceeded { limit: *limit, value: *value },
        Stop::Cancelled => PluginError::Cancelled,
        Stop::Exit => PluginError::Exited,
        Stop::Stuck(detail) => PluginError::Stuck { detail },
        Stop::Misuse(why) => PluginError::Trapped { trap: (*why).to_owned(), function: None },
        Stop::Diverged(divergence) => PluginError::Diverged(divergence.clone()),
    }
}
