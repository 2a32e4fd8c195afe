//! When a key counts: after what is on screen was there for a while, and for a yes only after its end was.

use palyra_protocol::Review;
use std::time::{Duration, Instant};

/// For how long after a change of what is on screen keys do not count. Each key in that time begins it anew: a person
/// who is typing into something else has not seen the change.
pub const QUIET: Duration = Duration::from_millis(350);
/// How long a yes can be taken back.
pub const ARMED: Duration = Duration::from_secs(2);

/// What is on screen, as far as keys depend on it.
#[derive(Debug, Clone)]
pub struct Gate {
    quiet_until: Instant,
    end_shown: bool,
}

impl Gate {
    /// Something new is on screen.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { quiet_until: now + QUIET, end_shown: false }
    }

    /// What is on screen has changed; its end has to be shown again.
    pub fn changed(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// The end is on screen.
    pub fn end_shown(&mut self) {
        self.end_shown = true;
    }

    /// Whether the end was on screen.
    #[must_use]
    pub fn saw_end(&self) -> bool {
        self.end_shown
    }

    /// When keys begin to count.
    #[must_use]
    pub fn quiet_until(&self) -> Instant {
        self.quiet_until
    }

    /// Whether keys that were typed at this time count. Those that come too early put that time off.
    pub fn counts(&mut self, typed_at: Instant) -> bool {
        if typed_at >= self.quiet_until {
            return true;
        }
        self.quiet_until = self.quiet_until.max(typed_at + QUIET);
        false
    }

    /// Whether these may be allowed from here.
    ///
    /// # Errors
    /// Why not.
    pub fn may_allow<'r>(&self, reviews: impl IntoIterator<Item = &'r Review>) -> Result<(), String> {
        if !self.end_shown {
            return Err("not taken: read it to its end first (space shows more)".to_owned());
        }
        match reviews.into_iter().all(Review::is_whole) {
            true => Ok(()),
            false => {
                Err("not taken: what is shown is cut; read all of it elsewhere and use `approvals decide`".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::review::every_fact;

    #[test]
    fn early_keys_do_not_count_and_put_the_time_off() {
        let start = Instant::now();
        let mut gate = Gate::new(start);
        assert!(!gate.counts(start - Duration::from_secs(5)), "typed before it appeared");
        assert!(!gate.counts(start + QUIET / 2));
        assert!(!gate.counts(start + QUIET), "hammered keys never begin to count");
        assert!(gate.counts(start + 3 * QUIET));
        gate.changed(start + 4 * QUIET);
        assert!(!gate.counts(start + 4 * QUIET));
    }

    #[test]
    fn only_what_was_shown_to_its_end_and_whole_is_allowed() {
        let mut review = every_fact();
        let mut gate = Gate::new(Instant::now());
        assert!(gate.may_allow([&review]).unwrap_err().contains("end"));
        gate.end_shown();
        assert!(gate.may_allow([&review]).unwrap_err().contains("cut"));
        review.changes.clear();
        assert_eq!(gate.may_allow([&review]), Ok(()));
        gate.changed(Instant::now());
        assert!(gate.may_allow([&review]).is_err());
    }
}
