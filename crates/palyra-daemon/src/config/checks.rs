//! Checks that several sections share: numbers and times within bounds.

use super::error::ConfigError;
use std::time::Duration;

/// The longest time that anything may be made to wait: thirty days.
const MAX_TIME_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// The largest number that everything it is handed to can hold.
pub(super) const MAX_NUMBER: u64 = 1 << 53;

pub(super) fn positive(key: &'static str, number: u64) -> Result<u64, ConfigError> {
    if number == 0 { Err(ConfigError::value(key, "must be more than 0")) } else { Ok(number) }
}

pub(super) fn at_most(key: &'static str, number: u64, most: u64) -> Result<u64, ConfigError> {
    if number > most { Err(ConfigError::value(key, format!("must be at most {most}"))) } else { Ok(number) }
}

pub(super) fn time(key: &'static str, ms: u64) -> Result<Duration, ConfigError> {
    at_most(key, positive(key, ms)?, MAX_TIME_MS).map(Duration::from_millis)
}
