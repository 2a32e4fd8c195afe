//! The memory: a selective search at 1,000 and at 100,000 entries.

use crate::Result;
use crate::report::Report;
use palyra_journal::{MemoryQuery, MemoryQuota, MemoryStore, NewMemory};
use palyra_protocol::{MemoryId, MemoryRecord, MemorySource, MemoryTrust, Timestamp};
use std::time::{Duration, Instant};

const SIZES: [usize; 2] = [1_000, 100_000];
const QUERIES: usize = 400;

pub fn run(report: &mut Report) -> Result {
    let directory = tempfile::tempdir()?;
    let mut times = Vec::new();
    for size in SIZES {
        let store = MemoryStore::open(&directory.path().join(format!("{size}.db")))?;
        fill(&store, size)?;
        let median = searched(&store, size)?;
        println!("  search at {size} entries: {median:?} p50");
        times.push(median);
    }
    report.at_most("a selective search at 100,000 entries, over 1,000", times[1], times[0], 3.0);
    Ok(())
}

fn fill(store: &MemoryStore, size: usize) -> Result {
    let quota =
        MemoryQuota { scope_entries: u64::MAX >> 1, holder_entries: u64::MAX >> 1, holder_bytes: u64::MAX >> 1 };
    let entries = (0..size).map(|n| {
        let text = format!(
            "Note {n}: the service svc{n} of team {} listens on port {} and owns fn_{n:x}.",
            n % 97,
            1024 + n % 60000
        );
        let record = MemoryRecord {
            entry_id: MemoryId::mint(),
            scope: "principal:agent:demo".parse()?,
            principal: "agent:demo".parse()?,
            proposed_by: "agent:demo".parse()?,
            call_id: None,
            session: None,
            sources: vec![MemorySource::new("agent:agent:demo")],
            trust: MemoryTrust::Agent,
            at: Timestamp::from_unix_ms(1),
            bytes: text.len() as u64,
        };
        Ok((record, text))
    });
    let entries = entries.collect::<Result<Vec<_>>>()?;
    let new = entries.iter().map(|(record, text)| NewMemory { record, text, key: &[7; 32] });
    Ok(store.add_all(new, &quota)?)
}

fn searched(store: &MemoryStore, size: usize) -> Result<Duration> {
    let mut times = Vec::with_capacity(QUERIES);
    for n in 0..QUERIES {
        let wanted = n * 7919 % size;
        let scopes = Some(vec!["principal:agent:demo".parse()?]);
        let query = MemoryQuery { text: format!("svc{wanted}"), scopes };
        let started = Instant::now();
        let found = store.search(&query)?;
        times.push(started.elapsed());
        if !found.first().is_some_and(|entry| entry.text.contains(&format!("svc{wanted} "))) {
            return Err(format!("svc{wanted} was not found").into());
        }
    }
    times.sort();
    Ok(times[QUERIES / 2])
}
