//! The journal as history grows: appending must not slow down, verifying must cost little more than reading. Verifying
//! includes replaying every call and holding the tables against it, so the history is one of calls.

use crate::Result;
use crate::report::{Report, alternate, median, show};
use palyra_journal::{Finish, JournalStore, Opening, Verdict, verify};
use palyra_protocol::{
    CallRecord, CallState, DaemonKey, DecisionKind, FinishedCall, JournalEvent, Origin, Principal, SystemClock,
    ToolDecision,
};
use palyra_testkit::records;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHORT: u64 = 1_000;
const LONG: u64 = 1_000_000;
const SAMPLES: usize = 400;
/// How many calls are under way at once while a history grows.
const WORKERS: u64 = 50;

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let short = grown(&runtime, &dir.path().join("short.db"), SHORT)?;
    let start = Instant::now();
    let long = grown(&runtime, &dir.path().join("long.db"), LONG)?;
    let rate = LONG as f64 / start.elapsed().as_secs_f64();
    report.figure("appending in groups", &format!("{rate:.0} events/s"));

    let (mut in_long, mut in_short) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        in_long.push(append(&runtime, &long)?);
        in_short.push(append(&runtime, &short)?);
    }
    report.at_most("one durable append at 1,000,000 and at 1,000", median(in_long), median(in_short), 1.2);
    let (grouped_long, grouped_short) = (group(&runtime, &long)?, group(&runtime, &short)?);
    report.figure(
        "a group of 256 at 1,000,000 and at 1,000",
        &format!("{} and {}", show(grouped_long), show(grouped_short)),
    );
    drop((short, long));

    let path = dir.path().join("long.db");
    let (ours, raw) = alternate(3, || drop(black_box(verified(&path))), || drop(black_box(read_and_hash(&path))));
    report.at_most("journal verify against reading and hashing", ours, raw, 3.0);
    verified(&path)
}

/// How many events a call has: proposed, decided, started, finished.
const EVENTS_PER_CALL: u64 = 4;

/// A call as the engine records one, with a decision of the length that decisions have.
fn call(n: u64) -> Result<Arc<CallRecord>> {
    let session = format!("session-{}", n % 100).parse()?;
    let run = format!("run-{}", n % 10_000).parse()?;
    let origin = Origin { session, run, ..records::origin() };
    Ok(records::call(origin, json!({ "text": format!("call number {n}") }), None))
}

fn decision(call: &CallRecord) -> Arc<ToolDecision> {
    Arc::new(ToolDecision {
        rules: vec!["allowlisted_execution".to_owned()],
        summary: "The tool is allow-listed, and this principal may call tools through this channel.".to_owned(),
        explanation: json!({ "facts": "x".repeat(200) }),
        ..records::decision(call, DecisionKind::Allow)
    })
}

fn finish(call: &CallRecord, key: &DaemonKey) -> Result<Finish> {
    let output = json!({ "text": "x".repeat(100) });
    let (call_id, state, attestation) =
        (call.call_id.clone(), CallState::Succeeded, records::statement(call).sign(key)?);
    Ok(Finish::new(FinishedCall { call_id, state, output, problem: None, attestation }, &[])?)
}

/// One call from its proposal to its end.
async fn one(store: &JournalStore, n: u64, key: &DaemonKey) -> std::result::Result<(), String> {
    let text = |e: Box<dyn std::error::Error>| e.to_string();
    let call = call(n).map_err(text)?;
    let finish = finish(&call, key).map_err(text)?;
    let opening = Opening { decision: decision(&call), call, run_limit: u64::MAX >> 1 };
    let opened = store.start(opening, ()).await.map_err(|e| e.to_string())?;
    opened.map(drop).map_err(|why| format!("{why:?}"))?;
    store.finish_call(&finish).await.map(drop).map_err(|e| e.to_string())
}

fn grown(runtime: &tokio::runtime::Runtime, path: &Path, size: u64) -> Result<Arc<JournalStore>> {
    let store = Arc::new(JournalStore::open(path, Arc::new(SystemClock))?);
    let key = Arc::new(DaemonKey::generate()?);
    let each = size / EVENTS_PER_CALL / WORKERS;
    runtime.block_on(async {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (store, key) = (Arc::clone(&store), Arc::clone(&key));
                tokio::spawn(async move {
                    for n in 0..each {
                        one(&store, worker * each + n, &key).await?;
                    }
                    Ok::<_, String>(())
                })
            })
            .collect();
        for worker in workers {
            worker.await??;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    Ok(store)
}

/// An event that changes no table.
fn event(n: u64) -> JournalEvent {
    JournalEvent::AccessRefused {
        by: Principal::local_owner(),
        action: "benchmark".to_owned(),
        resource: n.to_string(),
        problem: palyra_protocol::Problem::new("benchmark", "of a length that events have", "x".repeat(200)),
    }
}

fn append(runtime: &tokio::runtime::Runtime, store: &JournalStore) -> Result<Duration> {
    let event = event(0);
    let start = Instant::now();
    runtime.block_on(store.note(&event))?;
    Ok(start.elapsed())
}

fn group(runtime: &tokio::runtime::Runtime, store: &Arc<JournalStore>) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        runtime.block_on(async {
            let tasks: Vec<_> = (0..256)
                .map(|n| {
                    let store = Arc::clone(store);
                    tokio::spawn(async move { store.note(&event(n)).await.map_err(|e| e.to_string()) })
                })
                .collect();
            for task in tasks {
                task.await??;
            }
            Ok::<_, Box<dyn std::error::Error>>(())
        })?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

fn verified(path: &Path) -> Result {
    match verify(path, None, &mut |_| {})? {
        Verdict::Intact(head) if head.size >= LONG => Ok(()),
        other => Err(format!("the journal should be intact, but: {other:?}").into()),
    }
}

/// The raw limit: read every row and hash its bytes, with no chain between them.
fn read_and_hash(path: &Path) -> Result {
    let connection = Connection::open(path)?;
    let mut statement = connection.prepare("SELECT kind, call_id, body, prev, hash FROM events ORDER BY seq")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let mut hash = Sha256::new();
        for column in 0..5 {
            hash.update(bytes(row.get_ref(column)?));
        }
        black_box(hash.finalize());
    }
    Ok(())
}

fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    }
}
