//! How much is under way, by whom: what the limits are held against.
//!
//! Counting costs a look-up a call. Whoever is over a limit is refused before anything is kept for them.

use crate::config::CallLimits;
use palyra_protocol::{Principal, Problem};
use std::collections::HashMap;

/// The most bytes of questions that may wait: they are held in memory, and one can be a megabyte.
const QUESTION_BYTES_EACH: usize = 8 << 20;
const QUESTION_BYTES: usize = 32 << 20;
/// How many principals without calls are remembered, so that the next call of one costs no allocation.
const IDLE: usize = 1024;

/// What is under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    calls: usize,
    questions: usize,
    bytes: usize,
}

/// What is under way, of each principal and in all.
#[derive(Debug, Default)]
pub(crate) struct Load {
    all: Count,
    each: HashMap<Principal, Count>,
}

impl Load {
    /// Counts a call, unless there are too many.
    pub(crate) fn call(&mut self, who: &Principal, limits: Option<&CallLimits>) -> Result<(), Problem> {
        if let Some(limits) = limits {
            let own = self.each.get(who).map_or(0, |count| count.calls);
            if own >= limits.calls_each {
                let key = "max_calls_under_way_per_principal";
                return Err(crowded("too_many_calls", format!("{own} calls of `{who}` are under way"), key));
            }
            if self.all.calls >= limits.calls {
                let message = format!("{} calls are under way", self.all.calls);
                return Err(crowded("too_many_calls", message, "max_calls_under_way"));
            }
        }
        self.change(who, |count| count.calls += 1);
        Ok(())
    }

    /// Counts a question of this size, unless too many wait.
    pub(crate) fn question(
        &mut self,
        who: &Principal,
        bytes: usize,
        limits: Option<&CallLimits>,
    ) -> Result<(), Problem> {
        if let Some(limits) = limits {
            let own = self.each.get(who).copied().unwrap_or_default();
            if own.questions >= limits.questions_each || own.bytes + bytes > QUESTION_BYTES_EACH {
                let message = format!("{} calls of `{who}` wait for a person already", own.questions);
                return Err(crowded("too_many_questions", message, "max_questions_per_principal"));
            }
            if self.all.questions >= limits.questions || self.all.bytes + bytes > QUESTION_BYTES {
                let message = format!("{} calls wait for a person already", self.all.questions);
                return Err(crowded("too_many_questions", message, "max_questions"));
            }
        }
        self.change(who, |count| {
            count.questions += 1;
            count.bytes += bytes;
        });
        Ok(())
    }

    /// A question was answered, or ended without an answer.
    pub(crate) fn answered(&mut self, who: &Principal, bytes: usize) {
        self.change(who, |count| {
            count.questions -= 1;
            count.bytes -= bytes;
        });
    }

    /// A call has ended.
    pub(crate) fn ended(&mut self, who: &Principal) {
        self.change(who, |count| count.calls -= 1);
        if self.each.len() > IDLE {
            self.each.retain(|_, count| *count != Count::default());
        }
    }

    fn change(&mut self, who: &Principal, change: impl Fn(&mut Count)) {
        change(&mut self.all);
        match self.each.get_mut(who) {
            Some(count) => change(count),
            None => change(self.each.entry(who.clone()).or_default()),
        }
    }
}

fn crowded(code: &str, message: String, key: &str) -> Problem {
    let hint = format!("wait until some have ended, then try again; the operator sets `{key}` in palyra.toml");
    Problem::new(code, format!("{message}, and no more may be"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Principal {
        name.parse().unwrap()
    }

    #[test]
    fn one_principal_and_all_together_are_limited() {
        let limits = CallLimits { calls_each: 2, calls: 3, questions_each: 1, questions: 2 };
        let mut load = Load::default();
        let (a, b, c) = (who("agent:a"), who("agent:b"), who("agent:c"));
        assert!(load.call(&a, Some(&limits)).is_ok() && load.call(&a, Some(&limits)).is_ok());
        assert!(load.call(&a, Some(&limits)).unwrap_err().hint.unwrap().contains("per_principal"));
        assert!(load.call(&b, Some(&limits)).is_ok());
        assert_eq!(load.call(&c, Some(&limits)).unwrap_err().code, "too_many_calls", "in all");
        assert!(load.call(&c, None).is_ok(), "what a restart takes up is not refused");
        load.ended(&a);
        load.ended(&c);
        assert!(load.call(&b, Some(&limits)).is_ok());

        assert!(load.question(&a, 10, Some(&limits)).is_ok());
        assert_eq!(load.question(&a, 10, Some(&limits)).unwrap_err().code, "too_many_questions");
        assert!(load.question(&b, 10, Some(&limits)).is_ok());
        assert!(load.question(&c, 10, Some(&limits)).is_err());
        load.answered(&a, 10);
        assert!(load.question(&a, QUESTION_BYTES_EACH + 1, Some(&limits)).is_err(), "nor are they too large");
        assert!(load.question(&a, 10, Some(&limits)).is_ok());
    }

    #[test]
    fn those_who_are_gone_are_forgotten() {
        let mut load = Load::default();
        for n in 0..3 * IDLE {
            let who = who(&format!("agent:n{n}"));
            load.call(&who, None).unwrap();
            load.ended(&who);
        }
        assert!(load.each.len() <= IDLE);
        assert_eq!(load.all, Count::default());
    }
}
