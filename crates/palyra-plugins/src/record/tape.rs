//! The tape of a running call: answers are written to it, or read from it.

use super::event::{HostAnswer, HostEvent};
use super::{CallRecord, Divergence};
use crate::error::Stop;
use palyra_protocol::Digest;
use std::collections::VecDeque;

/// Where answers come from and go to.
#[derive(Debug)]
pub(crate) enum Tape {
    /// Answers come from outside and are kept, as long as they fit.
    Recording {
        events: Vec<HostEvent>,
        /// How many more bytes fit; nothing once something did not.
        room: Option<u64>,
    },
    /// Answers come from the record.
    Replaying { events: VecDeque<HostEvent>, at: usize },
}

impl Tape {
    pub(crate) fn recording(limit: u64) -> Self {
        Self::Recording { events: Vec::new(), room: Some(limit) }
    }

    pub(crate) fn replaying(record: &CallRecord) -> Self {
        Self::Replaying { events: record.events.iter().cloned().collect(), at: 0 }
    }

    pub(crate) fn is_replaying(&self) -> bool {
        matches!(self, Self::Replaying { .. })
    }

    /// Keeps an answer. A tape that is full forgets everything: half a record replays nothing.
    pub(crate) fn keep(&mut self, asked: Option<Digest>, answer: &HostAnswer) {
        let Self::Recording { events, room } = self else { return };
        let Some(left) = *room else { return };
        if let Some(last) = events.last_mut()
            && asked.is_none()
            && last.asked.is_none()
            && last.answer == *answer
            && matches!(answer, HostAnswer::Time(_) | HostAnswer::Elapsed(_))
        {
            last.times += 1;
            return;
        }
        match left.checked_sub(answer.weight()) {
            Some(left) => {
                *room = Some(left);
                events.push(HostEvent { asked, answer: answer.clone(), times: 1 });
            }
            None => {
                *room = None;
                *events = Vec::new();
            }
        }
    }

    /// The recorded answer to a question.
    pub(crate) fn next(&mut self, kind: &'static str, asked: Option<Digest>) -> Result<HostAnswer, Stop> {
        let Self::Replaying { events, at } = self else {
            return Err(Stop::Misuse("nothing is replayed"));
        };
        let Some(event) = events.front_mut() else {
            return Err(Stop::Diverged(Divergence::PastEnd { asked: kind }));
        };
        let recorded = event.answer.kind();
        if recorded != kind {
            return Err(Stop::Diverged(Divergence::OtherKind { at: *at, asked: kind, recorded }));
        }
        if event.asked != asked {
            return Err(Stop::Diverged(Divergence::OtherQuestion { at: *at, asked: kind }));
        }
        if event.times > 1 {
            event.times -= 1;
            return Ok(event.answer.clone());
        }
        *at += 1;
        match events.pop_front() {
            Some(event) => Ok(event.answer),
            None => Err(Stop::Diverged(Divergence::PastEnd { asked: kind })),
        }
    }

    /// What was recorded, and whether that is everything; of a replay, what was not asked for.
    pub(crate) fn finish(self) -> (Vec<HostEvent>, bool) {
        match self {
            Self::Recording { events, room } => (events, room.is_some()),
            Self::Replaying { events, .. } => (events.into(), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_of(tape: Tape) -> CallRecord {
        let grant = crate::WasmPluginRunnerPolicy::default().grant(&crate::RequestedCapabilities::default());
        let mut record = CallRecord::begin(Digest::ZERO, &grant, "t", "{}", [7; 32]);
        (record.events, record.complete) = tape.finish();
        CallRecord::from_json(record.to_json().unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn what_is_kept_is_heard_again_in_order() {
        let mut tape = Tape::recording(10_000);
        let asked = Some(Digest::of(b"q"));
        for _ in 0..1000 {
            tape.keep(None, &HostAnswer::Time(5));
        }
        tape.keep(None, &HostAnswer::Time(6));
        tape.keep(asked, &HostAnswer::Stored(Ok(Some(super::super::event::Blob(vec![0xff, 0])))));
        let record = record_of(tape);
        assert!(record.complete && record.events.len() == 3);
        let mut again = Tape::replaying(&record);
        for _ in 0..1000 {
            assert_eq!(again.next("time", None), Ok(HostAnswer::Time(5)));
        }
        assert_eq!(again.next("time", None), Ok(HostAnswer::Time(6)));
        assert!(matches!(again.next("stored", None), Err(Stop::Diverged(Divergence::OtherQuestion { at: 2, .. }))));
        assert!(matches!(again.next("http", asked), Err(Stop::Diverged(Divergence::OtherKind { .. }))));
        assert!(again.next("stored", asked).is_ok());
        assert!(matches!(again.next("time", None), Err(Stop::Diverged(Divergence::PastEnd { .. }))));
    }

    #[test]
    fn a_tape_that_is_full_holds_nothing() {
        let mut tape = Tape::recording(100);
        tape.keep(None, &HostAnswer::Time(1));
        tape.keep(None, &HostAnswer::Time(2));
        tape.keep(None, &HostAnswer::Time(2));
        let record = record_of(tape);
        assert!(!record.complete && record.events.is_empty());
        assert!(matches!(record.check(Digest::ZERO, "{}"), Err(crate::record::ReplayError::Incomplete)));
    }
}
