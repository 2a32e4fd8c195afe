//! The host of Tier A: loads components, runs their tools, replays recorded calls.
//!
//! Making one costs nothing: the runtime is started by the first component that is loaded, threads by the first call. A
//! daemon without skills stays as small as it was.

use crate::alarm::Alarm;
use crate::cache::{self, CodeCache, Entry, Key};
use crate::call::{Execution, PendingCall, PluginCall, ToolDescription, broken};
use crate::capabilities::RequestedCapabilities;
use crate::compile::{CompileProgress, OnProgress, compile};
use crate::control::CallControl;
use crate::doors::{Doors, SecretsDoor};
use crate::engine;
use crate::error::PluginError;
use crate::execute::{self, Prepared, Runtime};
use crate::grant::Grant;
use crate::guest::Birth;
use crate::names::SkillName;
use crate::plugin::Plugin;
use crate::policy::WasmPluginRunnerPolicy;
use crate::queue::{Bounds, Queue};
use crate::record::{CallRecord, Divergence, Ending, ReplayError, Tape};
use crate::wording::limit_in;
use palyra_protocol::{Clock, Digest, Secret, SystemClock};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wasmtime::component::Component;

/// How much longer a replay may take than the call did: it may run on a slower machine.
const REPLAY_PATIENCE: u64 = 4;

/// What a host is made of.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// What skills may get at most.
    pub policy: WasmPluginRunnerPolicy,
    /// Where compiled code is kept. Without it every start compiles again.
    pub code_cache: Option<CodeCacheSettings>,
    /// The time that guests are told.
    pub clock: Arc<dyn Clock>,
}

/// Where compiled code is kept, and the secret that says it is ours.
#[derive(Debug, Clone)]
pub struct CodeCacheSettings {
    /// A directory of the daemon's own; created if it is not there.
    pub directory: PathBuf,
    /// A secret that nobody else can read, the same at every start.
    pub secret: Secret,
}

impl HostSettings {
    /// A host without a cache, on the machine's clock.
    #[must_use]
    pub fn new(policy: WasmPluginRunnerPolicy) -> Self {
        Self { policy, code_cache: None, clock: Arc::new(SystemClock) }
    }
}

/// Where the bytes of a component come from when they have to be compiled.
pub trait ComponentSource {
    /// Reads them.
    ///
    /// # Errors
    /// The reader's own.
    fn read(&self) -> std::io::Result<Vec<u8>>;
}

impl ComponentSource for Vec<u8> {
    fn read(&self) -> std::io::Result<Vec<u8>> {
        Ok(self.clone())
    }
}

impl ComponentSource for PathBuf {
    fn read(&self) -> std::io::Result<Vec<u8>> {
        std::fs::read(self)
    }
}

/// The host.
pub struct PluginHost {
    settings: HostSettings,
    queue: Queue,
    started: Mutex<Option<Arc<Started>>>,
    loaded: Mutex<HashMap<Digest, Weak<Plugin>>>,
    /// One component is compiled at a time: compiling takes a processor, and calls need the others.
    compiling: Mutex<()>,
}

impl fmt::Debug for PluginHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginHost").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What exists once the first component is loaded.
struct Started {
    runtime: Runtime,
    identity: Digest,
    cache: Option<CodeCache>,
}

impl PluginHost {
    /// Prepares a host; nothing is started.
    ///
    /// # Errors
    /// When the policy makes no sense.
    pub fn new(settings: HostSettings) -> Result<Self, PluginError> {
        settings.policy.check().map_err(|error| PluginError::Runtime { detail: error.to_string() })?;
        let queue = Queue::new(Bounds::of(&settings.policy));
        Ok(Self { settings, queue, started: Mutex::default(), loaded: Mutex::default(), compiling: Mutex::default() })
    }

    /// What skills may get at most.
    #[must_use]
    pub fn policy(&self) -> &WasmPluginRunnerPolicy {
        &self.settings.policy
    }

    /// What a skill gets that asks for this.
    #[must_use]
    pub fn grant(&self, asked: &RequestedCapabilities) -> Grant {
        self.settings.policy.grant(asked)
    }

    /// Whether the runtime has been started.
    #[must_use]
    pub fn is_started(&self) -> bool {
        lock(&self.started).is_some()
    }

    fn started(&self) -> Result<Arc<Started>, PluginError> {
        let mut started = lock(&self.started);
        if let Some(ready) = started.as_ref() {
            return Ok(Arc::clone(ready));
        }
        let policy = &self.settings.policy;
        let engine = engine::running(policy)?;
        let cache = match &self.settings.code_cache {
            None => None,
            Some(settings) => Some(CodeCache::open(&settings.directory, Key::derive(&settings.secret))?),
        };
        let identity = engine::identity(&engine);
        let alarm = Arc::new(Alarm::new(engine.clone()));
        let runtime = Runtime { engine, alarm, stack_bytes: policy.stack_bytes };
        let ready = Arc::new(Started { runtime, identity, cache });
        *started = Some(Arc::clone(&ready));
        Ok(ready)
    }

    /// Loads a component by its digest: from the cache, or compiled now from its bytes. Blocks; not for asynchronous
    /// threads.
    ///
    /// # Errors
    /// When the bytes are no component, another one, or not one of a skill.
    pub fn load(
        &self,
        digest: Digest,
        source: &dyn ComponentSource,
        on_progress: OnProgress<'_>,
    ) -> Result<Arc<Plugin>, PluginError> {
        let started = self.started()?;
        if let Some(plugin) = self.find(digest) {
            return Ok(plugin);
        }
        let _one_at_a_time = lock(&self.compiling);
        if let Some(plugin) = self.find(digest) {
            return Ok(plugin);
        }
        let component = started.component(&self.settings.policy, (digest, source), on_progress)?;
        let plugin = Arc::new(Plugin::new(digest, component)?);
        let mut loaded = lock(&self.loaded);
        loaded.retain(|_, plugin| plugin.strong_count() > 0);
        loaded.insert(digest, Arc::downgrade(&plugin));
        Ok(plugin)
    }

    fn find(&self, digest: Digest) -> Option<Arc<Plugin>> {
        lock(&self.loaded).get(&digest).and_then(Weak::upgrade)
    }

    /// Checks that a component can run with a grant: that it imports nothing which the grant does not include.
    ///
    /// # Errors
    /// Names the import.
    pub fn check(&self, plugin: &Plugin, grant: &Grant) -> Result<(), PluginError> {
        plugin.linked(&self.started()?.runtime.engine, grant.interfaces()).map(drop)
    }

    /// Asks a component which tools it has, with every door shut. Blocks.
    ///
    /// # Errors
    /// When the component fails at that.
    pub fn describe(&self, plugin: &Arc<Plugin>) -> Result<Vec<ToolDescription>, PluginError> {
        let started = self.started()?;
        let grant = Arc::new(self.grant(&RequestedCapabilities::default()));
        let control = started.control(grant.limits().wall_clock_ms);
        let birth = self.birth(grant, Doors::default(), &control)?;
        let (send, answer) = oneshot::channel();
        let described = Arc::clone(plugin);
        let job = move || drop(send.send(execute::describe(&started.runtime, &described, birth)));
        self.queue.push(&own_line("describe", plugin.digest())?, Box::new(job))?;
        answer.blocking_recv().unwrap_or_else(|_| Err(broken()))
    }

    /// Puts a call into its skill's line. It runs when its turn comes; await it, or wait for it.
    ///
    /// # Errors
    /// When too many calls wait, or the component may not run with this grant.
    pub fn call(&self, call: PluginCall) -> Result<PendingCall, PluginError> {
        let control = self.started()?.control(call.grant.limits().wall_clock_ms);
        let birth = self.birth(Arc::clone(&call.grant), call.doors, &control)?;
        let prepared = Prepared { plugin: call.plugin, birth, tool: call.tool, input: call.input_json };
        self.enqueue(&call.skill, prepared, control)
    }

    fn enqueue(
        &self,
        skill: &SkillName,
        call: Prepared,
        control: Arc<CallControl>,
    ) -> Result<PendingCall, PluginError> {
        let started = self.started()?;
        call.plugin.linked(&started.runtime.engine, call.birth.grant.interfaces())?;
        let (send, answer) = oneshot::channel();
        let own = Arc::clone(&control);
        let job = move || {
            let done = execute::invoke(&started.runtime, call);
            own.finish();
            // Whoever asked may be gone.
            drop(send.send(done));
        };
        self.queue.push(skill, Box::new(job))?;
        Ok(PendingCall::new(control, answer))
    }

    /// For benchmarks: makes the same call so many times on one guest's thread, and says how long each took. What is
    /// left out is the way to that thread and back.
    #[doc(hidden)]
    pub fn time_calls(self: &Arc<Self>, call: &PluginCall, count: usize) -> Result<Vec<Duration>, PluginError> {
        let (send, times) = oneshot::channel();
        let (host, repeated) = (Arc::clone(self), call.clone());
        let job = move || {
            let time = |_| {
                let call = repeated.clone();
                let began = Instant::now();
                let started = host.started()?;
                let control = started.control(call.grant.limits().wall_clock_ms);
                let birth = host.birth(Arc::clone(&call.grant), call.doors, &control)?;
                let prepared = Prepared { plugin: call.plugin, birth, tool: call.tool, input: call.input_json };
                let done = execute::invoke(&started.runtime, prepared)?;
                let took = began.elapsed();
                done.result.map(|_| took)
            };
            drop(send.send((0..count).map(time).collect()));
        };
        self.queue.push(&call.skill, Box::new(job))?;
        times.blocking_recv().unwrap_or_else(|_| Err(broken()))
    }

    /// Runs a recorded call again, with every answer from its record and nothing from outside. Blocks.
    ///
    /// A call that read secrets needs the vault for them; no other door is used.
    ///
    /// # Errors
    /// When it cannot be replayed, or comes out differently.
    pub fn replay(
        &self,
        plugin: &Arc<Plugin>,
        record: &CallRecord,
        input_json: &str,
        secrets: Option<Arc<dyn SecretsDoor>>,
    ) -> Result<Execution, ReplayError> {
        record.check(plugin.digest(), input_json)?;
        let grant = Arc::new(record.grant.clone());
        let patience = grant.limits().wall_clock_ms.saturating_mul(REPLAY_PATIENCE);
        let control = self.started()?.control(patience);
        let birth = Birth {
            grant,
            doors: Doors { secrets, ..Doors::default() },
            control: Arc::clone(&control),
            clock: Arc::clone(&self.settings.clock),
            seed: record.seed,
            tape: Tape::replaying(record),
        };
        let prepared =
            Prepared { plugin: Arc::clone(plugin), birth, tool: record.tool.clone(), input: input_json.to_owned() };
        let done = self.enqueue(&own_line("replay", plugin.digest())?, prepared, control)?.wait()?;
        compare(record, done)
    }

    /// Forgets what was compiled of a component. Plugins that are loaded stay until they are dropped.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(&self, digest: Digest) -> Result<(), PluginError> {
        let started = self.started()?;
        let Some(cache) = &started.cache else { return Ok(()) };
        cache.remove(started.entry(digest)).map_err(PluginError::io("remove compiled code"))
    }

    /// Forgets what was compiled of every other component, and by other versions.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn retain(&self, digests: &[Digest]) -> Result<(), PluginError> {
        let started = self.started()?;
        let Some(cache) = &started.cache else { return Ok(()) };
        let entries: Vec<Entry> = digests.iter().map(|digest| started.entry(*digest)).collect();
        cache.retain(&entries).map_err(PluginError::io("remove compiled code"))
    }

    fn birth(&self, grant: Arc<Grant>, doors: Doors, control: &Arc<CallControl>) -> Result<Birth, PluginError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|error| PluginError::Runtime { detail: format!("no random numbers: {error}") })?;
        let tape = Tape::recording(grant.limits().record_bytes);
        let clock = Arc::clone(&self.settings.clock);
        Ok(Birth { grant, doors, control: Arc::clone(control), clock, seed, tape })
    }
}

impl Started {
    fn control(&self, wall_clock_ms: u64) -> Arc<CallControl> {
        Arc::new(CallControl::new(wall_clock_ms, &self.runtime.alarm))
    }

    fn entry(&self, digest: Digest) -> Entry {
        Entry::new(digest, self.identity)
    }

    fn component(
        &self,
        policy: &WasmPluginRunnerPolicy,
        (digest, source): (Digest, &dyn ComponentSource),
        on_progress: OnProgress<'_>,
    ) -> Result<Component, PluginError> {
        let (engine, entry) = (&self.runtime.engine, self.entry(digest));
        if let Some(component) = self.cache.as_ref().and_then(|cache| cache.load(engine, entry)) {
            return Ok(component);
        }
        let bytes = source.read().map_err(PluginError::io("read a component"))?;
        let found = Digest::of(&bytes);
        if found != digest {
            return Err(PluginError::DigestMismatch { expected: digest, found });
        }
        let code = compile(policy, &bytes, on_progress)?;
        on_progress(CompileProgress::Writing { bytes: code.len() as u64 });
        if let Some(cache) = &self.cache
            && cache.store(entry, &code).is_ok()
            && let Some(component) = cache.load(engine, entry)
        {
            return Ok(component);
        }
        // A disk that is full, or an engine that refuses the component: the latter says why here.
        cache::load_fresh(engine, &code).map_err(|error| too_demanding(policy, &error))
    }
}

/// What the pool says to a component that asks for more than any grant may have.
fn too_demanding(policy: &WasmPluginRunnerPolicy, error: &wasmtime::Error) -> PluginError {
    let detail = format!("{error:#}");
    match limit_in(&detail, &policy.max_limits) {
        Some((limit, value)) => PluginError::LimitExceeded { limit, value },
        None => PluginError::Malformed { detail },
    }
}

fn compare(record: &CallRecord, done: Execution) -> Result<Execution, ReplayError> {
    match &done.result {
        Err(PluginError::Diverged(Divergence::Secret(name))) => return Err(ReplayError::NeedsSecret(name.clone())),
        Err(PluginError::Diverged(divergence)) => return Err(ReplayError::Diverged(divergence.clone())),
        _ => {}
    }
    let replayed: &Ending = &done.record.ending;
    if *replayed != record.ending {
        let (recorded, replayed) = (record.ending.clone(), replayed.clone());
        return Err(ReplayError::OtherEnding { recorded, replayed });
    }
    match done.record.events.first() {
        Some(left) => Err(ReplayError::Diverged(Divergence::NotAsked { recorded: left.answer.kind() })),
        None => Ok(done),
    }
}

/// A line of its own for work that no skill asked for.
fn own_line(what: &str, digest: Digest) -> Result<SkillName, PluginError> {
    format!("palyra/{what}/{}", digest.short()).parse()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
