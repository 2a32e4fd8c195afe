//! Routines: what one tick of the scheduler costs with one routine and with 10,000.

use crate::Result;
use crate::report::Report;
use palyra_engine::routines::Agenda;
use palyra_protocol::Timestamp;
use std::time::{Duration, Instant};

const TICKS: u32 = 20_000;

pub fn run(report: &mut Report) -> Result {
    let times = [1, 10_000].map(tick);
    println!("  a tick with 1 routine {:?}, with 10,000 {:?}", times[0], times[1]);
    report.at_most("a tick with 10,000 routines, over 1", times[1], times[0], 3.0);
    Ok(())
}

/// Taking the routine out that is due first, and entering when it is due next.
fn tick(routines: usize) -> Duration {
    let mut agenda = Agenda::default();
    for n in 0..routines {
        agenda.enter(n as u64, Timestamp::from_unix_ms(n as u64));
    }
    let started = Instant::now();
    for _ in 0..TICKS {
        if let Some((routine, at)) = agenda.pop_due(Timestamp::from_unix_ms(u64::MAX)) {
            agenda.enter(routine, Timestamp::from_unix_ms(at.unix_ms() + routines as u64));
        }
    }
    started.elapsed() / TICKS
}
