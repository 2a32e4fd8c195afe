//! The daemon is killed at random moments under load, again and again, and every promise is checked after each start.
//!
//! The moment of each kill is a number of things seen: the k-th state of a call that reached a client, or the k-th
//! event that reached the journal's followers. So no clock takes part, and a seed gives the same plan of kills again
//! (set `PALYRA_CRASH_SEED`; a failure prints it).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod check;
mod load;
mod model;

use check::Promises;
use load::Load;
use palyra_e2e::{Host, Proposal};
use serde_json::json;

/// How often the daemon is killed.
const KILLS: u32 = 52;
/// Every so many starts the daemon is killed once more before its door opens.
const EARLY: u32 = 6;
/// The latest moment of a kill, in things seen.
const LATEST: u64 = 240;

/// A small generator (SplitMix64): the plan must be repeatable, not unpredictable.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Prints how to repeat a run that failed.
struct Plan {
    seed: u64,
}

impl Drop for Plan {
    #[expect(clippy::print_stderr, reason = "a failed test says how to repeat it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with PALYRA_CRASH_SEED={}", self.seed);
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var("PALYRA_CRASH_SEED").ok().map(|text| text.parse().unwrap());
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_runs_twice() {
    let plan = Plan { seed: seed() };
    let mut random = Random(plan.seed);
    let mut host = Host::with("[tool_call]\nmax_calls_per_run = 1000000\n");
    grant(&host).await;
    let mut promises = Promises::default();
    let mut load = Load::default();
    for round in 1..=KILLS {
        let attempts = load.until_killed(&mut host, &mut random, round).await;
        if round.is_multiple_of(EARLY) {
            host.start_and_kill_early();
        }
        host.start();
        promises.check(&host, attempts).await;
    }
    promises.check_again(&host).await;
}

/// The first process of a daemon's life is the one for which most has to be made ready, by helpers of the daemon's own.
#[tokio::test]
async fn a_kill_at_the_first_process_leaves_nothing_that_holds_the_state() {
    let mut host = Host::up();
    grant(&host).await;
    for n in 0..25 {
        host.kill();
        // Whatever a dead daemon leaves running would keep its lock, and this start would be refused.
        host.start();
        let run = Proposal::new("palyra.process.run", &json!({ "argv": ["true"] })).session("load");
        let mut call = host.owner().await.propose(run).await.unwrap();
        assert_eq!(call.until("executing").await.state, "executing", "round {n}");
    }
}

/// Writes are cut off until a kill has left something behind, which the next start has to take away.
#[tokio::test(flavor = "multi_thread")]
async fn what_writes_that_were_cut_off_left_is_removed() {
    let mut host = Host::up();
    grant(&host).await;
    let mut seen = 0;
    for round in 0..40_u64 {
        let owner = host.owner().await;
        let writes: Vec<_> = (0..12)
            .map(|n| {
                let owner = owner.clone();
                let input = json!({ "path": format!("file-{round}-{n}"), "content": "x".repeat(500 << 10) });
                tokio::spawn(async move {
                    let proposal = Proposal::new("palyra.fs.write", &input).session("load");
                    if let Ok(call) = owner.propose(proposal).await {
                        drop(call.end().await);
                    }
                })
            })
            .collect();
        // Until something is seen that is being prepared, or there is nothing left to prepare.
        while check::half_done(&host).is_empty() && !writes.iter().all(tokio::task::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        host.kill();
        for write in writes {
            write.await.unwrap();
        }
        seen += check::half_done(&host).len();
        host.start();
        assert_eq!(check::half_done(&host), Vec::<String>::new(), "round {round}");
        if seen > 3 {
            return;
        }
    }
    panic!("no kill came in the middle of a write");
}

/// Lets the session `load` write files and run programs, once and for all.
async fn grant(host: &Host) {
    let owner = host.owner().await;
    for (tool, input) in [
        ("palyra.process.run", json!({ "argv": ["true"] })),
        ("palyra.fs.write", json!({ "path": "first", "content": "" })),
    ] {
        let mut call = owner.propose(Proposal::new(tool, &input).session("load")).await.unwrap();
        owner.allow_tool(call.question().await.approval_id.as_str()).await.unwrap();
        assert_eq!(call.end().await.unwrap().state, "succeeded");
    }
}
