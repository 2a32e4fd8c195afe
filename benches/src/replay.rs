//! Replaying a journal: `simulate` over 100,000 recorded decisions, against Cedar alone on the same questions.
//!
//! Two real calls are proposed, one that is allowed and one that asks; what the journal recorded of them is repeated,
//! so that reading and parsing cost what they cost.

use crate::Result;
use crate::path::{echo, engine, peer};
use crate::policy::question;
use crate::report::{Report, show};
use cedar_policy::Authorizer;
use palyra_engine::{Engine, Proposal, SimulationNews, VerifiedPeer};
use palyra_policy::{Membership, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::Timestamp;
use rusqlite::Connection;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

const DECISIONS: u64 = 100_000;
const ROUNDS: usize = 3;

pub fn run(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engine = runtime.block_on(engine(dir.path()))?;
    let peer = peer(&engine)?;
    runtime.block_on(async {
        echo(&engine, &peer).await?;
        let input = br#"{"argv":["true","--workspace","--all-targets"]}"#.to_vec();
        let tool = "palyra.process.run".to_owned();
        let mut asking = engine.propose(
            &peer,
            Proposal {
                tool,
                input,
                session: Some("bench".parse()?),
                run: Some("bench".parse()?),
                idempotency_key: None,
                request: None,
                carrier: palyra_protocol::Carrier::Daemon,
            },
        );
        while asking.updates.recv().await?.approval.is_none() {}
        Result::Ok(())
    })?;
    repeat(&dir.path().join("journal.db"))?;
    let mut ours = Vec::new();
    let mut raw = Vec::new();
    for _ in 0..ROUNDS {
        ours.push(runtime.block_on(simulate(&engine, &peer))?);
        raw.push(cedar_alone()?);
    }
    let (ours, raw) = (fastest(&ours), fastest(&raw));
    report.figure("simulate, 100,000 decisions", &show(ours));
    report.at_most("simulate against Cedar alone", ours, raw, 2.0);
    Ok(())
}

fn fastest(times: &[Duration]) -> Duration {
    times.iter().min().copied().unwrap_or_default()
}

/// Repeats the two recorded decisions until there are enough.
fn repeat(journal: &Path) -> Result {
    let mut connection = Connection::open(journal)?;
    let events: Vec<(String, String, String)> = connection
        .prepare("SELECT kind, call_id, body FROM events WHERE kind IN ('tool.proposed', 'tool.decided') ORDER BY seq")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<std::result::Result<_, _>>()?;
    let mut seq: u64 = connection.query_row("SELECT max(seq) FROM events", [], |row| row.get(0))?;
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare(
            "INSERT INTO events (seq, at, kind, call_id, body, prev, hash)
             VALUES (?1, 4102444800000, ?2, ?3, ?4, zeroblob(32), zeroblob(32))",
        )?;
        for _ in 0..DECISIONS / 2 {
            for (kind, call_id, body) in &events {
                seq += 1;
                insert.execute((seq, kind, call_id, body))?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

async fn simulate(engine: &Engine, peer: &VerifiedPeer) -> Result<Duration> {
    let start = Instant::now();
    let mut news = engine.simulate_policy(peer, Timestamp::from_unix_ms(0), Vec::new()).await?;
    while let Some(update) = news.recv().await {
        if let SimulationNews::Done(result) = update {
            let simulated = (*result)?;
            if simulated.replayed < DECISIONS || simulated.unchanged != simulated.replayed {
                return Err(format!("the replay came out otherwise: {simulated:?}").into());
            }
            return Ok(start.elapsed());
        }
    }
    Err("the replay broke off".into())
}

/// The same questions, one `is_authorized` each.
fn cedar_alone() -> Result<Duration> {
    let policy = PolicyEngine::with_defaults(&Membership::single_user())?;
    let (process, asking) = question()?;
    let allowed = PolicyRequestContext { is_allowlisted_tool: true, ..PolicyRequestContext::new("cli".parse()?) };
    let echo = PolicyRequest { resource: PolicyResource::Tool("palyra.echo".to_owned()), ..process.clone() };
    let (first, second) = (policy.raw_parts(&echo, &allowed)?, policy.raw_parts(&process, &asking)?);
    let authorizer = Authorizer::new();
    let start = Instant::now();
    for _ in 0..DECISIONS / 2 {
        for raw in [&first, &second] {
            black_box(authorizer.is_authorized(black_box(&raw.request), raw.all, &raw.entities));
        }
    }
    Ok(start.elapsed())
}
