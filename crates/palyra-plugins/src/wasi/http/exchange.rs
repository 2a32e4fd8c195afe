//! A request on its way to a reply.

use super::outgoing::OutgoingRequest;
use crate::doors::{HttpFault, HttpReply};
use crate::error::Stop;
use crate::guest::Guest;
use crate::http_request::HttpRequest;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request, and what became of it.
#[derive(Debug)]
pub(crate) struct Exchange {
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Not sent: somebody has to wait for it, and its body has to be finished.
    Waiting { request: OutgoingRequest, timeout: Option<Duration> },
    /// Being sent.
    Sending,
    /// Answered.
    Done(Result<HttpReply, HttpFault>),
    /// Answered, and the answer was taken.
    Taken,
}

/// The body of a request, while a guest writes it. What is written has been counted against the limit before.
#[derive(Debug, Default)]
pub(crate) struct BodyBuffer {
    bytes: Vec<u8>,
    finished: bool,
}

impl BodyBuffer {
    /// Adds bytes; says whether the body still takes any.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        if !self.finished {
            self.bytes.extend_from_slice(bytes);
        }
        !self.finished
    }

    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    pub(crate) fn new(request: OutgoingRequest, timeout: Option<Duration>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { stage: Stage::Waiting { request, timeout } }))
    }

    /// The reply, once; nothing while there is none, an error the second time.
    pub(crate) fn take(&mut self) -> Option<Result<Result<HttpReply, HttpFault>, ()>> {
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Done(answer) => Some(Ok(answer)),
            Stage::Taken => Some(Err(())),
            waiting => {
                self.stage = waiting;
                None
            }
        }
    }

    fn is_sendable(&self) -> bool {
        matches!(&self.stage, Stage::Waiting { request, .. } if request.body.as_ref().is_none_or(|body| lock(body).finished))
    }
}

impl Guest {
    /// Sends a request that can be sent; says whether there is an answer.
    pub(crate) fn fetch(&mut self, exchange: &Arc<Mutex<Exchange>>) -> Result<bool, Stop> {
        let waiting = {
            let mut exchange = lock(exchange);
            if !exchange.is_sendable() {
                return Ok(matches!(exchange.stage, Stage::Done(_) | Stage::Taken));
            }
            std::mem::replace(&mut exchange.stage, Stage::Sending)
        };
        let Stage::Waiting { request, timeout } = waiting else { return Ok(true) };
        let body = request.body.as_ref().map_or_else(Vec::new, |body| std::mem::take(&mut lock(body).bytes));
        let checked = HttpRequest::new(&request.method, &request.url(), request.headers.to_text(), body);
        let answer = self.send(checked, timeout)?;
        lock(exchange).stage = Stage::Done(answer);
        Ok(true)
    }
}
