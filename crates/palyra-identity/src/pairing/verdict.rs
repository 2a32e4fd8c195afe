//! A person's answer to a pairing, and waiting for it: in a task or in a thread.

use super::message::PairingId;
use palyra_protocol::Principal;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A person's answer to one pairing. Only the desk makes one, and it fits that pairing alone.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub(super) pairing: PairingId,
    pub(super) by: Principal,
    pub(super) yes: Verdict,
}

/// What the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Approved,
    Denied,
}

#[derive(Debug, Default)]
struct Cell {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// Where the answer arrives. Both ends hold one.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerSlot(Arc<(Mutex<Cell>, Condvar)>);

impl AnswerSlot {
    /// Puts the answer there. The first one stays.
    pub(super) fn put(&self, answer: Answer) {
        let (cell, arrived) = &*self.0;
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if cell.answer.is_none() {
            cell.answer = Some(answer);
            arrived.notify_all();
            if let Some(waker) = cell.waker.take() {
                waker.wake();
            }
        }
    }

    /// Waits in this thread; nothing when no answer came in time.
    pub(super) fn wait(&self, at_most: Duration) -> Option<Answer> {
        let (cell, arrived) = &*self.0;
        let cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = arrived.wait_timeout_while(cell, at_most, |cell| cell.answer.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.answer.take()
    }

    /// Waits in a task.
    pub(super) fn arrival(&self) -> AnswerArrival {
        AnswerArrival(self.clone())
    }
}

/// Comes when a person has answered. To be waited for together with the end of the connection and of the time.
#[derive(Debug)]
pub struct AnswerArrival(AnswerSlot);

impl Future for AnswerArrival {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let mut cell = self.0.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        match cell.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                cell.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
