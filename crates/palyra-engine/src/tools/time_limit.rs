//! How long a process may run: what the configuration gives by itself, and what a call may raise it to.

use crate::config::ToolCallConfig;
use std::cmp::Ordering;
use std::time::Duration;

/// The limit on a run's time, and what gives it more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeLimit {
    pub(super) limit: Duration,
    pub(super) remedy: &'static str,
}

impl TimeLimit {
    /// From what the call itself wants, what the daemon gives any call, what it gives a process, and the most that a
    /// call may have.
    pub(super) fn of(wanted: Option<Duration>, execution: Duration, wall_clock: Duration, longest: Duration) -> Self {
        let ask = "ask for more with `timeout_ms`";
        let raise = "raise `longest_timeout_ms` in palyra.toml";
        let configured = match execution.cmp(&wall_clock) {
            Ordering::Less | Ordering::Equal => execution,
            Ordering::Greater => wall_clock,
        };
        let longest = longest.max(configured);
        match wanted {
            None if longest > configured => Self { limit: configured, remedy: ask },
            None => Self { limit: configured, remedy: raise },
            Some(limit) if limit < longest => Self { limit, remedy: ask },
            Some(_) => Self { limit: longest, remedy: raise },
        }
    }

    /// The limit of a call under this configuration.
    pub(super) fn under(config: &ToolCallConfig, wanted: Option<Duration>) -> Self {
        let wall_clock = Duration::from_millis(config.process_runner.wall_clock_limit_ms);
        Self::of(wanted, config.execution_timeout, wall_clock, config.longest_timeout)
    }

    /// What a call asks for beyond what the configuration gives by itself: a fact that rules see.
    pub(super) fn raised(config: &ToolCallConfig, wanted: Option<Duration>) -> Option<u64> {
        let usual = Self::under(config, None).limit;
        let limit = Self::under(config, wanted).limit;
        (limit > usual).then(|| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_raises_its_limit_up_to_the_longest_and_is_told_how() {
        let ms = Duration::from_millis;
        for (wanted, execution, wall_clock, longest, limit, named) in [
            (None, 300_000, 2_000, 600_000, 2_000, "`timeout_ms`"),
            (None, 2_000, 300_000, 600_000, 2_000, "`timeout_ms`"),
            (None, 120_000, 120_000, 120_000, 120_000, "`longest_timeout_ms`"),
            (None, 120_000, 120_000, 5, 120_000, "`longest_timeout_ms`"),
            (Some(500), 2_000, 3_000, 9_000, 500, "`timeout_ms`"),
            (Some(8_000), 2_000, 3_000, 9_000, 8_000, "`timeout_ms`"),
            (Some(90_000), 2_000, 3_000, 9_000, 9_000, "`longest_timeout_ms`"),
        ] {
            let time = TimeLimit::of(wanted.map(ms), ms(execution), ms(wall_clock), ms(longest));
            assert_eq!(time.limit, ms(limit));
            assert!(time.remedy.contains(named), "{named} in {}", time.remedy);
        }
    }
}
