//! Printing figures, and keeping count of the promises.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The promises that were measured, and whether they held.
#[derive(Debug, Default)]
pub struct Report {
    promises: Vec<(String, bool)>,
}

impl Report {
    /// Prints a ratio to a raw limit, with the promise it is measured against.
    pub fn at_most(&mut self, what: &str, ours: Duration, raw: Duration, limit: f64) {
        let ratio = ours.as_secs_f64() / raw.as_secs_f64();
        self.promise(
            what,
            &format!("{} / {} = {ratio:.2}× (promised ≤ {limit}×)", show(ours), show(raw)),
            ratio <= limit,
        );
    }

    /// Prints a factor that must be reached.
    pub fn at_least(&mut self, what: &str, ours: f64, raw: f64, limit: f64) {
        let ratio = ours / raw;
        self.promise(what, &format!("{ours:.0}/s over {raw:.0}/s = {ratio:.1}× (promised ≥ {limit}×)"), ratio >= limit);
    }

    /// Prints a figure that has no promise, only an aim.
    pub fn figure(&self, what: &str, value: &str) {
        println!("  · {what:46} {value}");
    }

    /// Prints a promise and whether it held.
    pub fn promise(&mut self, what: &str, figures: &str, held: bool) {
        println!("  {} {what:46} {figures}", if held { "✔" } else { "✘" });
        self.promises.push((what.to_owned(), held));
    }

    /// The last word: how many promises held.
    pub fn summary(self) -> ExitCode {
        let broken: Vec<_> = self.promises.iter().filter(|(_, held)| !held).map(|(what, _)| what.as_str()).collect();
        println!("\n{} of {} promises held", self.promises.len() - broken.len(), self.promises.len());
        if broken.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("not held: {}", broken.join("; "));
        ExitCode::FAILURE
    }
}

/// A duration in the unit that fits.
pub fn show(duration: Duration) -> String {
    let us = duration.as_secs_f64() * 1e6;
    match us {
        us if us < 1000.0 => format!("{us:.1} µs"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1000.0),
        us => format!("{:.2} s", us / 1_000_000.0),
    }
}

/// The middle of several measurements.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The value that `percent` of the measurements stay below.
pub fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() - 1) * percent / 100]
}

/// Runs two things in turns and takes the median of each, so that noise falls on both.
pub fn alternate(rounds: usize, mut ours: impl FnMut(), mut raw: impl FnMut()) -> (Duration, Duration) {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        a.push(time(&mut ours));
        b.push(time(&mut raw));
    }
    (median(a), median(b))
}
