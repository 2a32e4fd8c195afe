//! Checking a token with few and with many beside it, against SHA-256 of the same bytes.

use crate::Result;
use crate::report::{Report, alternate};
use palyra_access::Registry;
use palyra_protocol::SystemClock;
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const BATCH: usize = 1000;

pub fn run(report: &mut Report) -> Result {
    let (mut fewest, mut most) = (Duration::MAX, Duration::ZERO);
    for count in [10, 1_000, 100_000] {
        let (access, tokens) = Registry::measured(count, Arc::new(SystemClock)).ok_or("no randomness")?;
        // Spread over the registry, so that the many are not served from one cache line.
        let shown: Vec<&str> = tokens.iter().map(String::as_str).cycle().take(BATCH).collect();
        if !shown.iter().all(|token| access.check(token).is_ok()) {
            return Err("a right token does not open".into());
        }
        let (checks, hashes) = alternate(
            200,
            || {
                for token in &shown {
                    let _checked = black_box(access.check(black_box(token)));
                }
            },
            || {
                for token in &shown {
                    black_box(Sha256::digest(black_box(token.as_bytes())));
                }
            },
        );
        let batch = u32::try_from(BATCH)?;
        let (check, hash) = (checks / batch, hashes / batch);
        report.figure(
            &format!("check with {count} tokens, and SHA-256 alone"),
            &format!("{} ns and {} ns", check.as_nanos(), hash.as_nanos()),
        );
        report.at_most(&format!("check with {count} tokens against 5 µs"), check, Duration::from_micros(5), 1.0);
        if count == 10 {
            fewest = check;
        }
        most = check;
    }
    report.at_most("check with 100,000 tokens against 10", most, fewest, 2.0);
    Ok(())
}
