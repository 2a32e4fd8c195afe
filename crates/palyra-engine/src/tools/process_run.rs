//! `palyra.process.run`: a native program in Tier B or Tier C.

use super::containment::{self, Walls};
use super::final_directory;
use super::input::printable;
use super::packaged::Packaged;
use super::schema::{effect, notes, object, path};
use super::secrets::{self, Ways};
use super::time_limit::TimeLimit;
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::config::ToolCallConfig;
use crate::effects::{Ending, effect_problem};
use crate::flow::execute::{Executed, Running, timed_out_by};
use crate::flow::resolve::{Refusal, sandbox_problem};
use crate::output::LiveOutput;
use crate::vault::{RedactedOutput, Released, Replaced, redaction_schema};
use crate::workspaces::WorkspaceEngine;
use palyra_egress::{Credentials, EgressObserver, EgressRules};
use palyra_protocol::{
    CallRecord, CallState, Containment, Digest, EgressRecord, Environment, ExecutorKind, Facets, Problem, RiskLevel,
    Secret, SecretDelivery, ToolCapability, ToolDefinition, WorkspaceUse,
};
use palyra_sandbox::{
    CancelSignal, EgressEnforcementMode, LimitHit, MissingPrograms, OutputSink, OutputStream, Package, PrivateFile,
    ProcessExit, ProcessOutcome, ProcessRequest, ResolvedExecutable, RunSecrets, SandboxError,
    SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess, WorkspaceView, check_environment, check_hosts,
    resolve_executable, run_constrained_process,
};
use palyra_vault::Redactor;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) const NAME: &str = "palyra.process.run";

#[derive(Debug)]
struct ProcessRun(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(ProcessRun(ToolDefinition {
        name: NAME.parse()?,
        summary: "Run a program in the sandbox".to_owned(),
        description:
            "Runs one program with its arguments, without a shell, in the configured tier. Both output streams come back \
             whatever the exit code; a non-zero exit makes the call fail, with its output."
                .to_owned(),
        input_schema: input(),
        output_schema: output(),
        capabilities: [ToolCapability::ProcessExec].into(),
        risk: RiskLevel::High,
        executor: ExecutorKind::Process,
        example: json!({ "argv": ["ls", "-l"] }),
    })))
}

pub(super) fn input() -> Value {
    object(
        json!({
            "argv": {
                "type": "array", "minItems": 1, "maxItems": 1024,
                "items": { "type": "string", "maxLength": 131_072 },
                "description": "the program and its arguments, one word each",
            },
            "cwd": path("where to run, relative to the workspace; its root when absent"),
            "stdin": { "type": "string", "description": "what the program reads on standard input" },
            "env": {
                "type": "object", "maxProperties": 256, "additionalProperties": { "type": "string", "maxLength": 32_768 },
                "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
                "description": "further environment variables",
            },
            "timeout_ms": { "type": "integer", "minimum": 1, "description": "how long it may run; more than usual where the operator and the rules allow it" },
            "tell_directory": {
                "type": "boolean",
                "description": "for `bash -c LINE`: tell in `final_directory` where the shell stood when it ended",
            },
            "workspace": {
                "enum": ["view", "live", "discard"],
                "description": "`view` (when absent): work on a view, whose changes count when the program has ended. \
                    `live`: work on the workspace itself, for servers and watchers; a person is asked. \
                    `discard`: a trial, of which nothing counts",
            },
            "requested_egress_hosts": {
                "type": "array", "maxItems": 256, "items": { "type": "string", "minLength": 1, "maxLength": 261 },
                "description": "every host that the program will need, `example.org` or `example.org:443`; it reaches no other",
            },
            "secrets": secrets::schema(Ways::All),
        }),
        &["argv"],
    )
}

pub(super) fn output() -> Value {
    let stream = json!({ "type": "string" });
    object(
        json!({
            "exit_code": { "type": ["integer", "null"] }, "signal": { "type": ["integer", "null"] },
            "ended_by": { "type": ["string", "null"], "description": "the limit that ended it" },
            "stdout": stream, "stdout_encoding": { "enum": ["utf-8", "base64"] },
            "stdout_total_bytes": { "type": "integer" }, "stdout_truncated": { "type": "boolean" },
            "stderr": stream, "stderr_encoding": { "enum": ["utf-8", "base64"] },
            "stderr_total_bytes": { "type": "integer" }, "stderr_truncated": { "type": "boolean" },
            "duration_ms": { "type": "integer" }, "cpu_time_ms": { "type": "integer" },
            "peak_memory_bytes": { "type": "integer" },
            "set_aside": {
                "type": "array", "items": { "type": "string" },
                "description": "new files that would run as code later, under the names they were given: `.envrc.held`",
            },
            "not_set_aside": {
                "type": "array", "items": { "type": "string" },
                "description": "such files that could not be renamed and are still there",
            },
            "egress": connections(),
            "final_directory": { "type": "string", "description": "where the shell stood when it ended, if it was asked for" },
            "effect": effect(), "notes": notes(),
            "redacted": redaction_schema(),
        }),
        &["exit_code", "signal", "ended_by", "stdout", "stderr"],
    )
}

/// What is told about a program's connections.
fn connections() -> Value {
    let denial = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" }, "host": { "type": "string" }, "port": { "type": "integer" },
            "message": { "type": "string" }, "hint": { "type": "string" },
        },
        "required": ["code", "message", "hint"],
    });
    json!({
        "type": "object", "description": "connections through the filtering proxy",
        "properties": {
            "allowed": { "type": "integer" }, "denied": { "type": "integer" },
            "denials": {
                "type": "array", "items": denial, "description": "why connections were denied, and what to ask for",
            },
            "further_denials": { "type": "integer", "description": "denied connections that are not among those" },
        },
    })
}

impl Tool for ProcessRun {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        prepare(input, place, input.number("/timeout_ms").map(Duration::from_millis))
    }

    /// Programs that this host lacks are taken to be in `/usr/bin`.
    fn rehearse(&self, input: Input<'_>, place: &Place<'_>) -> Result<Facets, Refusal> {
        rehearse(input, place)
    }
}

/// A command with the time that it asks for, as facts and a job.
pub(super) fn prepare(input: Input<'_>, place: &Place<'_>, timeout: Option<Duration>) -> Result<Prepared, Refusal> {
    let (facets, run) = prepare_in(input, place, timeout, None)?;
    Ok(Prepared::new(facets, run))
}

/// The same for a script of a package, which gets less than other programs.
pub(crate) fn prepare_in(
    input: Input<'_>,
    place: &Place<'_>,
    timeout: Option<Duration>,
    package: Option<Packaged>,
) -> Result<(Facets, Run), Refusal> {
    let policy = policy_for(place.config, package.as_ref());
    let policy = policy.as_ref();
    let mut command = Command::read(input, place)?;
    let telling = input.flag("/tell_directory").then(|| final_directory::telling(&command.facets.argv)).flatten();
    let tells = telling.is_some();
    let argv = telling.unwrap_or_else(|| command.facets.argv.clone());
    command.facets.time_limit_ms = TimeLimit::raised(place.config, timeout);
    let executable = resolve_executable(policy, &argv, &command.directory)
        .map_err(|error| Refusal::from(error).reaching(command.named()))?;
    command.will_run(&executable);
    let env: BTreeMap<String, String> = input.pairs("/env").collect();
    command.asks_for_hosts(policy)?;
    command.uses_secrets(policy, place)?;
    let workspace = works(input, place);
    let Walls { facts, egress_rules } = containment::walls(policy, &command.asked(), workspace);
    let secrets = facts.secrets || !command.facets.secrets.is_empty();
    command.facets.containment = Some(Containment { secrets, ..facts });
    // A call that would be refused when it is run is not put before anybody.
    let own = SandboxProcessRunnerPolicy { egress_rules: Arc::clone(&egress_rules), ..policy.clone() };
    check_environment(&own, &env)?;
    check_environment(&own, &command.secret_variables())?;
    let discard = input.optional("/workspace") == Some("discard");
    let Command { facets, directory, requested_hosts } = command;
    let request = ProcessRequest {
        argv,
        working_directory: directory,
        stdin: input.text("/stdin").as_bytes().to_vec(),
        env,
        requested_egress_hosts: requested_hosts,
        view: None,
        secrets: RunSecrets::default(),
        package: None,
    };
    let on_view = workspace == WorkspaceUse::View;
    let writes = package.as_ref().is_some_and(|package| !package.parts.write.is_empty());
    if (discard || writes) && !on_view {
        let hint = "run it with `\"workspace\": \"live\"` if its changes may count at once";
        let hint =
            if discard { hint } else { "`palyra doctor` says what is missing; nothing is written without a view" };
        let message = "it needs a view of the workspace, which this host or this tier does not give";
        return Err(Problem::new("views_unavailable", message, hint).into());
    }
    Ok((facets, Run { executable, request, egress_rules, timeout, on_view, discard, tells, package }))
}

/// The configured policy, or what a package has of it.
fn policy_for<'c>(config: &'c ToolCallConfig, package: Option<&Packaged>) -> Cow<'c, SandboxProcessRunnerPolicy> {
    match package {
        Some(package) => Cow::Owned(package.policy(&config.process_runner)),
        None => Cow::Borrowed(&config.process_runner),
    }
}

/// What a command would be decided by on a host that has every program.
pub(super) fn rehearse(input: Input<'_>, place: &Place<'_>) -> Result<Facets, Refusal> {
    let policy = &place.config.process_runner;
    let mut command = Command::read(input, place)?;
    let program = command.facets.argv.first().filter(|name| !name.contains('/')).cloned();
    match (resolve_executable(policy, &command.facets.argv, &command.directory), program) {
        (Ok(executable), _) => command.will_run(&executable),
        (Err(SandboxError::ExecutableNotFound { .. } | SandboxError::InterpreterDenied { .. }), Some(program)) => {
            command.facets.executable = Some(format!("/usr/bin/{program}"));
        }
        (Err(refused), _) => return Err(refused.into()),
    }
    command.asks_for_hosts(policy)?;
    let facts = containment::usual(&command.requested_hosts, works(input, place));
    let secrets = !command.facets.secrets.is_empty();
    command.facets.containment = Some(Containment { secrets, ..facts });
    Ok(command.facets)
}

/// What an input says about a command before anybody has looked for its program.
struct Command {
    facets: Facets,
    directory: PathBuf,
    requested_hosts: Vec<String>,
}

impl Command {
    fn read(input: Input<'_>, place: &Place<'_>) -> Result<Self, Refusal> {
        let directory = place.path(input, "/cwd", |facets, path| facets.working_directory = Some(path))?;
        let argv = input.texts("/argv");
        // No program can be given one, so that nobody is asked about it.
        if let Some(at) = argv.iter().position(|word| word.contains('\0')) {
            return Err(SandboxError::NulByte { what: format!("argv[{at}]") }.into());
        }
        let variables: Vec<_> = input.pairs("/env").collect();
        let stdin = input.text("/stdin");
        let facets = Facets {
            argv,
            working_directory: Some(directory.as_str().to_owned()),
            environment: Environment::new(variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))),
            stdin_sha256: (!stdin.is_empty()).then(|| Digest::of(stdin.as_bytes())),
            secrets: secrets::named(input)?,
            ..Facets::default()
        };
        let requested_hosts = input.texts("/requested_egress_hosts");
        Ok(Self { facets, directory: place.absolute(&directory), requested_hosts })
    }

    /// The facets of a command whose program was not found: where it was looked for, if the command says where.
    fn named(&self) -> Facets {
        let path = self.facets.argv.first().filter(|name| name.contains('/'));
        let executable = path.map(|name| self.directory.join(name).to_string_lossy().into_owned());
        Facets { executable, ..self.facets.clone() }
    }

    /// The variables that hold secrets or placeholders, without their values.
    fn secret_variables(&self) -> BTreeMap<String, String> {
        let variables = self.facets.secrets.iter().filter(|found| found.via != SecretDelivery::File);
        variables.filter_map(|found| Some((found.name.clone()?, String::new()))).collect()
    }

    /// The hosts that its run gets: those that it asked for, and those that its secrets are attached for.
    fn asked(&self) -> Vec<String> {
        let bound = self.facets.secrets.iter().filter(|found| found.via == SecretDelivery::Proxy);
        let bound = bound.flat_map(|found| found.endpoints.iter().cloned());
        self.requested_hosts.iter().cloned().chain(bound).collect()
    }

    /// Names where each secret goes; refuses what is not there, or could not get there.
    fn uses_secrets(&mut self, policy: &SandboxProcessRunnerPolicy, place: &Place<'_>) -> Result<(), Refusal> {
        secrets::bound(&mut self.facets.secrets, place);
        let any = |via: SecretDelivery| self.facets.secrets.iter().any(|found| found.via == via);
        let proxied = policy.egress == EgressEnforcementMode::Strict && !policy.egress_rules.is_empty();
        let problem = if self.facets.secrets.is_empty() {
            None
        } else if policy.tier != SandboxTier::C && (any(SecretDelivery::File) || any(SecretDelivery::Proxy)) {
            let message = "a secret reaches a program by a file or the proxy in Tier C alone";
            Some(Problem::new(
                "secret_needs_tier_c",
                message,
                "run programs in Tier C: `[process_runner] tier = \"c\"`",
            ))
        } else if any(SecretDelivery::Proxy) && !proxied {
            let message = "the proxy attaches secrets, and programs have none here";
            Some(Problem::new("secret_needs_proxy", message, "allow the host: `[egress] allowed_hosts = [\"HOST\"]`"))
        } else {
            secrets::check(&self.facets.secrets, place).err()
        };
        match problem {
            None => Ok(()),
            // Whether it is there is told to those who may use it.
            Some(problem) => Err(Refusal::rejected(problem).reaching(self.facets.clone())),
        }
    }

    /// Names every file that will run.
    fn will_run(&mut self, executable: &ResolvedExecutable) {
        let programs: Vec<String> = executable.programs().map(|path| path.to_string_lossy().into_owned()).collect();
        self.facets.executable = programs.first().cloned();
        self.facets.executables = if programs.len() > 1 { programs } else { Vec::new() };
        self.facets.programs_sha256 = executable.rewritable();
    }

    /// Names the hosts that the command asks for, and those in its arguments. What it reaches beyond them is the
    /// sandbox's business.
    fn asks_for_hosts(&mut self, policy: &SandboxProcessRunnerPolicy) -> Result<(), Refusal> {
        let hosts = check_hosts(policy, &self.facets.argv, &self.requested_hosts)?;
        self.facets.hosts = hosts.iter().map(ToString::to_string).collect();
        Ok(())
    }
}

/// How the program works in the workspace.
fn works(input: Input<'_>, place: &Place<'_>) -> WorkspaceUse {
    if input.optional("/workspace") == Some("live") {
        return WorkspaceUse::Live;
    }
    // Cases beside a policy are decided as on a host that has everything.
    match place.effects.is_none_or(|effects| effects.views(&place.config.process_runner, place.workspace).is_ok()) {
        true => WorkspaceUse::View,
        false => WorkspaceUse::Direct,
    }
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Run {
    executable: ResolvedExecutable,
    request: ProcessRequest,
    /// The rules of its own proxy: what the call asked for.
    egress_rules: Arc<EgressRules>,
    timeout: Option<Duration>,
    /// Whether it works on a view of the workspace.
    on_view: bool,
    /// Whether nothing of what it changes counts.
    discard: bool,
    /// Whether its shell tells where it stood in the end.
    tells: bool,
    /// The package whose script it is.
    package: Option<Packaged>,
}

impl Run {
    /// Gives the script's package its files, as they were admitted.
    pub(crate) fn with_files(mut self, files: Vec<(String, Arc<[u8]>)>) -> Self {
        self.request.package = self.package.as_ref().map(|package| Package { files, ..package.parts.clone() });
        self
    }
}

impl Job for Run {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(ran(*self, run))
    }
}

/// Hands output and connections on while the program runs.
struct Watcher {
    output: RedactedOutput<LiveOutput>,
    connections: EgressObserver,
    /// Takes the shell's directory out of standard error, where it is told there.
    directory: Option<final_directory::Filter>,
}

impl OutputSink for Watcher {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        match &mut self.directory {
            Some(filter) if stream == OutputStream::Stderr => self.output.chunk(stream, &filter.push(bytes)),
            _ => self.output.chunk(stream, bytes),
        }
    }

    fn egress(&mut self, record: &EgressRecord) {
        (self.connections)(record);
    }
}

/// Runs a program on a thread of its own and tells what really happened. Watchers see its output meanwhile.
pub(crate) async fn ran(mut job: Run, run: &Running<'_>) -> Executed {
    let mut policy = policy_for(run.config(), job.package.as_ref()).into_owned();
    policy.egress_rules = Arc::clone(&job.egress_rules);
    if job.package.is_some() && !job.on_view {
        policy.workspace_access = WorkspaceAccess::ReadOnly;
    }
    let time = TimeLimit::under(run.config(), job.timeout);
    policy.wall_clock_limit_ms = u64::try_from(time.limit.as_millis()).unwrap_or(u64::MAX);
    if run.call().facets().time_limit_ms.is_some() {
        // Whoever may run longer may also compute for longer.
        policy.cpu_time_limit_ms = policy.cpu_time_limit_ms.max(policy.wall_clock_limit_ms);
    }
    let (handle, signal) = match CancelSignal::new().map_err(SandboxError::io("prepare a cancellation")) {
        Ok(pair) => pair,
        Err(error) => return refused(&error),
    };
    let programs = job.executable.programs().map(Path::to_owned).collect();
    let released = match run.engine().release_secrets(run.call(), programs).await {
        Ok(released) => released,
        Err(problem) => return Executed::not_run(problem),
    };
    if let Some(Err(problem)) = released.as_ref().map(|released| equip(&mut job.request, released)) {
        return Executed::not_run(problem);
    }
    // Also what an earlier call of the run was given: a program may have kept it.
    let redactor = run.engine().released().of(run.call());
    redactor.iter().for_each(|redactor| run.egress().redact(redactor));
    let output = RedactedOutput::new(run.output().clone(), redactor.as_ref());
    let directory = job.tells.then(final_directory::Filter::default);
    let mut watcher = Watcher { output, connections: run.egress().observer(), directory };
    let (engine, call) = (run.engine().clone(), run.call().record());
    let mut task = tokio::task::spawn_blocking(move || {
        let outcome = |job: &Run, watcher: &mut Watcher| {
            let ran = run_constrained_process(&policy, &job.executable, &job.request, &signal, watcher);
            if let Some(rest) = watcher.directory.as_mut().map(final_directory::Filter::finish) {
                watcher.output.chunk(OutputStream::Stderr, &rest);
            }
            watcher.output.finish();
            ran
        };
        let terms = Terms { time, redactor, tells_in: job.tells.then(|| engine.workspace().root().to_owned()) };
        if job.on_view {
            return on_view(&engine, &call, job, terms, |job| outcome(job, &mut watcher));
        }
        outcome(&job, &mut watcher).map_or_else(|error| refused(&error), |outcome| told(outcome, &terms))
    });
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = run.egress().stop().cancelled() => {
            handle.cancel();
            task.await
        }
    };
    match joined {
        Ok(executed) => executed,
        Err(panic) => {
            tracing::error!(%panic, "the sandbox runner panicked");
            Executed::not_run(Problem::plain("internal", "the process runner failed; the daemon's log says how"))
        }
    }
}

/// How an outcome is told: the limit on its time, and what finds values that were released to its run.
struct Terms {
    time: TimeLimit,
    redactor: Option<Arc<Redactor>>,
    /// The workspace, where the shell tells where it stood.
    tells_in: Option<PathBuf>,
}

/// Runs a program on a view of the workspace and settles what it changed there.
fn on_view(
    engine: &WorkspaceEngine,
    call: &Arc<CallRecord>,
    mut job: Run,
    terms: Terms,
    run: impl FnOnce(&Run) -> Result<ProcessOutcome, SandboxError>,
) -> Executed {
    let view = match engine.effects().begin(&call.call_id, engine.workspace()) {
        Ok(view) => view,
        Err(error) => return Executed::not_run(effect_problem(&error)),
    };
    job.request.view = Some(WorkspaceView { upper: view.upper(), work: view.work() });
    match run(&job) {
        Ok(outcome) => {
            let ending = match outcome.ended_by {
                _ if job.discard => Ending::Discard("it was a trial: nothing of what it changed counts"),
                Some(LimitHit::Cancelled) => Ending::Discard("it was cancelled: nothing of what it changed counts"),
                _ => Ending::AsDecided,
            };
            let hint = moved_directory(&outcome);
            let mut settled = engine.settle_run(call, &view, ending);
            settled.notes.extend(hint);
            told(outcome, &terms).with_effect(settled)
        }
        Err(error) => {
            // Nothing ran, so nothing was changed.
            engine.settle_run(call, &view, Ending::Discard("it did not run"));
            refused(&error)
        }
    }
}

/// What to say about a program that could not move a directory: views cannot do that, and programs do not know of
/// views.
fn moved_directory(outcome: &ProcessOutcome) -> Option<String> {
    let said = [&outcome.stderr.bytes, &outcome.stdout.bytes].map(|bytes| String::from_utf8_lossy(bytes));
    let crossed = said.iter().any(|text| text.contains("Invalid cross-device link") || text.contains("EXDEV"));
    crossed.then(|| {
        "Palyra is the cause of `Invalid cross-device link`: on a view, rename(2) cannot move a directory that was there \
         before. `mv` copes with it; otherwise run the program with `\"workspace\": \"live\"`"
            .to_owned()
    })
}

/// Gives a program the secrets of its call, each in its way.
fn equip(request: &mut ProcessRequest, released: &Released) -> Result<(), Problem> {
    let credentials = released.credentials()?;
    for (found, value) in released.values() {
        let name = found.name.clone().unwrap_or_default();
        let bytes = value.value().expose();
        match found.via {
            SecretDelivery::File => {
                request.secrets.files.push(PrivateFile { name, content: Secret::new(bytes.to_vec()) });
            }
            SecretDelivery::Env => {
                let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
                let unusable = || {
                    let message = format!("`{}` is no text, so it fits into no variable", found.secret);
                    Problem::new("secret_not_text", message, "use it as a file")
                };
                request.env.insert(name, text.ok_or_else(unusable)?.to_owned());
            }
            _ => {
                let placeholder = credentials.as_ref().and_then(|credentials| credentials.placeholder(&found.secret));
                if let (false, Some(placeholder)) = (name.is_empty(), placeholder) {
                    request.env.insert(name, placeholder.to_owned());
                }
            }
        }
    }
    request.secrets.credentials = credentials.map(|credentials| credentials as Arc<dyn Credentials>);
    Ok(())
}

fn refused(error: &SandboxError) -> Executed {
    tracing::warn!(error = error as &dyn std::error::Error, "a process was not run");
    Executed::not_run(sandbox_problem(error))
}

fn told(mut outcome: ProcessOutcome, terms: &Terms) -> Executed {
    let Terms { time, redactor, tells_in } = terms;
    let stood = tells_in.as_ref().filter(|_| !outcome.stderr.truncated).and_then(|root| {
        let before = outcome.stderr.bytes.len();
        let directory = final_directory::take(&mut outcome.stderr.bytes);
        outcome.stderr.total_bytes -= (before - outcome.stderr.bytes.len()) as u64;
        directory.filter(|directory| Path::new(directory).starts_with(root))
    });
    let mut replaced = Replaced::default();
    for stream in [&mut outcome.stdout, &mut outcome.stderr] {
        stream.bytes = replaced.clean(redactor.as_ref(), std::mem::take(&mut stream.bytes), stream.truncated);
    }
    let enforcement = serde_json::to_value(&outcome.enforcement)
        .unwrap_or_else(|e| json!({ "error": format!("the enforcement cannot be told: {e}") }));
    let (exit_code, signal, exit) = match outcome.exit {
        ProcessExit::Code(code) => (Some(code), None, format!("code {code}")),
        ProcessExit::Signal(signal) => (None, Some(signal), format!("signal {signal}")),
    };
    let problem = problem(&outcome, *time, &exit);
    let state = match (&problem, outcome.ended_by) {
        (None, _) => CallState::Succeeded,
        (Some(_), Some(LimitHit::Cancelled)) => CallState::Cancelled,
        (Some(_), _) => CallState::Failed,
    };
    let (stdout, stdout_encoding) = printable(outcome.stdout.bytes);
    let (stderr, stderr_encoding) = printable(outcome.stderr.bytes);
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let output = json!({
        "exit_code": exit_code, "signal": signal, "ended_by": outcome.ended_by,
        "stdout": stdout, "stdout_encoding": stdout_encoding,
        "stdout_total_bytes": outcome.stdout.total_bytes, "stdout_truncated": outcome.stdout.truncated,
        "stderr": stderr, "stderr_encoding": stderr_encoding,
        "stderr_total_bytes": outcome.stderr.total_bytes, "stderr_truncated": outcome.stderr.truncated,
        "duration_ms": ms(outcome.duration), "cpu_time_ms": ms(outcome.cpu_time),
        "peak_memory_bytes": outcome.peak_memory_bytes, "egress": outcome.egress,
        "set_aside": names(&outcome.set_aside), "not_set_aside": names(&outcome.not_set_aside),
    });
    let mut output = output;
    if let Some(directory) = stood {
        output["final_directory"] = json!(directory);
    }
    if !replaced.is_empty() {
        output["redacted"] = replaced.told();
    }
    Executed { state, output, problem, exit: Some(exit), enforcement, effect: None, withheld: false }
}

fn problem(outcome: &ProcessOutcome, time: TimeLimit, exit: &str) -> Option<Problem> {
    let limit = |what: &str, key: &str| {
        Some(Problem::new(
            "limit_reached",
            format!("the {what} limit ended the process"),
            format!("do less, or raise `{key}` in palyra.toml"),
        ))
    };
    match outcome.ended_by {
        Some(LimitHit::Cancelled) => Some(Problem::plain("cancelled", "the call was cancelled; the process was ended")),
        Some(LimitHit::WallClock) => Some(timed_out_by(time.limit, time.remedy)),
        Some(LimitHit::CpuTime) => limit("CPU time", "cpu_time_limit_ms"),
        Some(LimitHit::Memory) => limit("memory", "memory_limit_bytes"),
        Some(LimitHit::Output) => limit("output", "max_output_bytes"),
        Some(LimitHit::FileSize) => limit("file size", "max_file_size_bytes"),
        Some(LimitHit::Processes) if !outcome.exit.success() => limit("process", "max_processes"),
        Some(LimitHit::Seccomp) => {
            Some(Problem::plain("syscall_denied", "the process made a system call that the sandbox never allows"))
        }
        _ if outcome.exit.success() => None,
        _ => Some(Problem {
            hint: hint(outcome),
            ..Problem::plain("nonzero_exit", format!("the process ended with {exit}"))
        }),
    }
}

/// What may have made a process fail that Palyra knows of and the process does not. Programs seldom say that it was the
/// network, and never what to ask for.
fn hint(outcome: &ProcessOutcome) -> Option<String> {
    let denied = outcome.egress.denials.denials.first().map(|denial| format!("{denial}; {}", denial.hint));
    let missing = outcome.missing_programs.as_ref();
    let hidden = |missing: &MissingPrograms| missing.hint("an operator can add it to `allow_interpreters`");
    let named = missing.filter(|missing| !missing.names.is_empty()).map(hidden);
    named.or(denied).or_else(|| missing.map(hidden)).or_else(|| containment::held_back(outcome))
}
