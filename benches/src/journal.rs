//! The journal as history grows: appending must not slow down, verifying must cost little more than reading.

use crate::Result;
use crate::report::{Report, alternate, median, show};
use palyra_journal::{JournalStore, Verdict, verify};
use palyra_protocol::{JournalEvent, SystemClock};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHORT: u64 = 1_000;
const LONG: u64 = 1_000_000;
const SAMPLES: usize = 400;

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

fn event(n: u64) -> Result<JournalEvent> {
    let call: palyra_protocol::CallId = palyra_protocol::CallId::mint();
    Ok(JournalEvent::ToolEnded {
        call_id: call,
        state: palyra_protocol::CallState::Denied,
        problem: palyra_protocol::Problem::new(
            "benchmark",
            format!("event number {n}, of a length that events have"),
            "x".repeat(200),
        ),
    })
}

fn grown(runtime: &tokio::runtime::Runtime, path: &Path, size: u64) -> Result<Arc<JournalStore>> {
    let store = Arc::new(JournalStore::open(path, Arc::new(SystemClock))?);
    runtime.block_on(async {
        let workers: Vec<_> = (0..200)
            .map(|worker| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for n in 0..size / 200 {
                        let event = event(worker * size + n).map_err(|e| e.to_string())?;
                        store.note(&event).await.map_err(|e| e.to_string())?;
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

fn append(runtime: &tokio::runtime::Runtime, store: &JournalStore) -> Result<Duration> {
    let event = event(0)?;
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
                    tokio::spawn(async move {
                        let event = event(n).map_err(|e| e.to_string())?;
                        store.note(&event).await.map_err(|e| e.to_string())
                    })
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
