//! The whole path of `palyra.echo`: resolve, decide, record, execute, attest, sign, record.

use crate::Result;
use crate::report::{Report, median, percentile, show};
use palyra_engine::{
    AccessControl, CallLimits, Engine, EngineParts, Proposal, ToolCallConfig, VerifiedPeer, WasmRuntime,
    WorkspaceNaming,
};
use palyra_journal::JournalStore;
use palyra_policy::{Membership, PolicyLoader};
use palyra_protocol::{CallState, DaemonKey, SystemClock};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier};
use palyra_workspace::Workspace;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CALLS: usize = 2000;
const CALLERS: usize = 64;
/// How often one caller and many take turns, and how many calls each caller then makes.
const TURNS: usize = 10;
const ALONE_EACH: usize = 200;
const TOGETHER_EACH: usize = 40;

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    // One caller needs one thread. With a thread for every core, as the daemon has them, a second one is woken with
    // each answer of the journal's writer for nothing, which on two cores is the writer's own: that is printed beside
    // it.
    let single = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engine = runtime.block_on(engine(dir.path()))?;
    let peer = Arc::new(peer(&engine)?);
    // One call to learn how many bytes a call records, so that the raw commits carry as many.
    runtime.block_on(echo(&engine, &peer))?;
    let sizes = recorded_bytes(&dir.path().join("journal.db"))?;
    let raw = raw_database(&dir.path().join("raw.db"))?;

    let (mut ours, mut with_all, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    // In turns, so that noise falls on both; the caller is a task, as every door's callers are.
    for _ in 0..CALLS / 20 {
        ours.extend(throughput(&single, &engine, &peer, 1, 20)?.1);
        with_all.extend(throughput(&runtime, &engine, &peer, 1, 20)?.1);
        for _ in 0..20 {
            let start = Instant::now();
            two_commits(&raw, sizes)?;
            commits.push(start.elapsed());
        }
    }
    let p99 = percentile(&mut ours, 99);
    let one = median(ours);
    report.figure("bytes recorded before and after", &format!("{} and {}", sizes.0, sizes.1));
    report.figure("palyra.echo, one caller, p50 and p99", &format!("{} and {}", show(one), show(p99)));
    let (commits, with_all) = (median(commits), median(with_all));
    report.at_most("palyra.echo on a thread against two durable commits", one, commits, 1.5);
    let ratio = with_all.as_secs_f64() / commits.as_secs_f64();
    report.figure("the same with a thread for every core", &format!("{} = {ratio:.2}×", show(with_all)));

    let (mut alone, mut together, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        alone.push(throughput(&runtime, &engine, &peer, 1, ALONE_EACH)?.0);
        let (rate, taken) = throughput(&runtime, &engine, &peer, CALLERS, TOGETHER_EACH)?;
        together.push(rate);
        times.extend(taken);
    }
    let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    report.figure("64 callers, p50 and p99", &format!("{} and {}", show(p50), show(p99)));
    report.at_least("palyra.echo, 64 callers against one", middle(together), middle(alone), 8.0);
    Ok(())
}

fn middle(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

pub async fn echo(engine: &Engine, peer: &VerifiedPeer) -> Result {
    call(engine, peer, "palyra.echo").await
}

/// The tool of the minimal skill.
pub const SKILL_TOOL: &str = "skill.examples.minimal.run";

/// A call of a tool that takes a text.
pub async fn call(engine: &Engine, peer: &VerifiedPeer, tool: &str) -> Result {
    let proposal = Proposal { tool: tool.to_owned(), input: br#"{"text":"hello"}"#.to_vec(), ..Proposal::default() };
    let call = engine.propose(peer, proposal);
    let end = call.end.await??;
    if end.state != CallState::Succeeded {
        return Err(format!("the call ended as {}", end.state.as_str()).into());
    }
    Ok(())
}

fn throughput(
    runtime: &tokio::runtime::Runtime,
    engine: &Engine,
    peer: &Arc<VerifiedPeer>,
    callers: usize,
    each: usize,
) -> Result<(f64, Vec<Duration>)> {
    runtime.block_on(async {
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (engine, peer) = (engine.clone(), Arc::clone(peer));
                tokio::spawn(async move {
                    let mut times = Vec::with_capacity(each);
                    for _ in 0..each {
                        let start = Instant::now();
                        echo(&engine, &peer).await.map_err(|e| e.to_string())?;
                        times.push(start.elapsed());
                    }
                    Ok::<_, String>(times)
                })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await??);
        }
        Ok(((callers * each) as f64 / start.elapsed().as_secs_f64(), times))
    })
}

/// The owner, at work in the engine's workspace.
pub fn peer(engine: &Engine) -> Result<VerifiedPeer> {
    let home = engine.access().home().workspace_id.clone();
    let naming = WorkspaceNaming::parse(Some(home.as_str()), None)?;
    Ok(engine.in_named_workspace(VerifiedPeer::on_local_socket(Some(0), 0, "cli".parse()?)?, &naming)?)
}

pub async fn engine(dir: &Path) -> Result<Engine> {
    let workspace = dir.join("workspace");
    std::fs::create_dir_all(&workspace)?;
    let clock = Arc::new(SystemClock);
    let config = ToolCallConfig {
        allowed_tools: palyra_engine::tools::names()
            .chain([SKILL_TOOL])
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?,
        max_calls_per_run: u64::from(u32::MAX),
        execution_timeout: Duration::from_secs(60),
        longest_timeout: Duration::from_secs(3600),
        approval_timeout: Duration::from_secs(60),
        process_runner: SandboxProcessRunnerPolicy::over(&workspace, SandboxTier::C),
        egress_rules: Arc::default(),
        limits: CallLimits::default(),
        // Nothing of it starts before there is a skill.
        wasm_runtime: WasmRuntime::Enabled(Box::default()),
        effects: palyra_engine::EffectsConfig::default(),
        outside_paths: palyra_engine::OutsidePaths::Refuse,
    };
    let journal = JournalStore::open(&dir.join("journal.db"), clock.clone())?;
    let access = AccessControl::open(dir, &workspace, &journal, clock.clone()).await?;
    let loader = PolicyLoader { directory: None, membership: Membership::single_user(), tools: None, custody: None };
    Ok(Engine::new(EngineParts {
        policy: loader.load()?,
        policy_loader: loader,
        access,
        journal,
        workspace: Workspace::open(&workspace)?,
        config,
        key: DaemonKey::generate()?,
        vault: palyra_engine::vault::VaultSettings::default(),
    })?)
}

/// How many bytes of events a call records before its effect, and after it.
fn recorded_bytes(journal: &Path) -> Result<(usize, usize)> {
    let connection = Connection::open(journal)?;
    let total = |kinds: &str| -> Result<usize> {
        let query = format!(
            "SELECT sum(length(body) + length(kind) + length(call_id) + 72) FROM events WHERE kind IN ({kinds})"
        );
        Ok(connection.query_row(&query, [], |r| r.get(0))?)
    };
    Ok((total("'tool.proposed', 'tool.decided', 'tool.started'")?, total("'tool.finished'")?))
}

fn raw_database(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")?;
    Ok(connection)
}

fn two_commits(connection: &Connection, (before, after): (usize, usize)) -> Result {
    for size in [before, after] {
        connection.prepare_cached("INSERT INTO rows (body) VALUES (?1)")?.execute([vec![7_u8; size]])?;
    }
    Ok(())
}
