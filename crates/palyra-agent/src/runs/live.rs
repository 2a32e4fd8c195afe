//! Runs that are carried on in this process: who watches them, and how to end them.
//!
//! What is here is only news; the journal has the record. One watcher, the caller that began the run, may hold it up
//! for a moment while its connection is slow. Everybody else who cannot keep up is let go, and may look at the record.

use palyra_protocol::{ApprovalId, CallId, CallState, Principal, Problem, RunId, RunResult, RunState, SessionId};
use serde::Serialize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How many pieces of news wait for a watcher.
const BACKLOG: usize = 1024;
/// How long a run waits for the caller that began it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Something that happens in a run.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunNews {
    /// It begins.
    Opened {
        /// The run.
        run: RunId,
        /// Its session.
        session: SessionId,
        /// The model, as it was named.
        model: String,
    },
    /// The model is asked.
    Asking {
        /// For which answer.
        turn: u64,
    },
    /// More of the model's text.
    Text {
        /// Of which answer.
        turn: u64,
        /// The text.
        text: String,
    },
    /// The model begins to ask for a tool.
    ToolCall {
        /// In which answer.
        turn: u64,
        /// Its place among the calls of this answer.
        index: usize,
        /// The model's name for it.
        id: String,
        /// The tool's alias.
        name: String,
    },
    /// More of a tool call's input.
    Arguments {
        /// In which answer.
        turn: u64,
        /// Which call.
        index: usize,
        /// The next part.
        part: String,
    },
    /// An answer is on record.
    Turn {
        /// Which.
        turn: u64,
        /// Who answered.
        model: String,
        /// Tokens that were read.
        input_tokens: u64,
        /// Tokens that were written.
        output_tokens: u64,
        /// How many calls it asks for.
        calls: usize,
    },
    /// A call is on its way.
    Call {
        /// The answer that asked for it.
        turn: u64,
        /// Its place there.
        index: usize,
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// Where it stands.
        state: CallState,
    },
    /// A person is asked.
    Approval {
        /// The answer that asked for the call.
        turn: u64,
        /// Its place there.
        index: usize,
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// The approval.
        approval_id: ApprovalId,
    },
    /// A call's process writes.
    Output {
        /// The call.
        call_id: CallId,
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// What it wrote, as text.
        text: String,
    },
    /// What a call gave.
    Result {
        /// The answer that asked for it.
        turn: u64,
        /// Its place there.
        index: usize,
        /// As the model is told.
        result: RunResult,
    },
    /// The run has ended.
    Ended {
        /// How.
        state: RunState,
        /// Why, where it did not complete.
        problem: Option<Problem>,
    },
}

/// What somebody sees of a run.
#[derive(Debug)]
pub struct Watch {
    news: mpsc::Receiver<Arc<RunNews>>,
}

impl Watch {
    /// The next piece of news; nothing when no more come, or when the watcher could not keep up.
    pub async fn next(&mut self) -> Option<Arc<RunNews>> {
        self.news.recv().await
    }
}

#[derive(Debug)]
struct Watcher {
    sender: mpsc::Sender<Arc<RunNews>>,
    patient: bool,
}

/// One run that is carried on.
#[derive(Debug, Default)]
pub(super) struct LiveRun {
    watchers: Mutex<Vec<Watcher>>,
    /// What the model has said of its present answer, for those who come late.
    said: Mutex<Option<(u64, String)>>,
    cancel: CancellationToken,
    by: OnceLock<Principal>,
    ended: CancellationToken,
}

impl LiveRun {
    /// Cancelled when somebody ends the run.
    pub(super) fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Who ended it.
    pub(super) fn cancelled_by(&self) -> Option<&Principal> {
        self.by.get()
    }

    pub(super) fn cancel(&self, by: &Principal) {
        self.by.get_or_init(|| by.clone());
        self.cancel.cancel();
    }

    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    pub(super) fn end(&self) {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.ended.cancel();
    }

    /// Watches from here on; what the model has begun to say comes first.
    pub(super) fn watch(&self) -> Watch {
        let watch = self.enter(false);
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((turn, text)) = said {
            let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(own) = watchers.last() {
                // There is room: it has just been made.
                drop(own.sender.try_send(Arc::new(RunNews::Text { turn, text })));
            }
        }
        watch
    }

    /// The watch of the caller that begins the run, which misses nothing.
    pub(super) fn enter(&self, patient: bool) -> Watch {
        let (sender, news) = mpsc::channel(BACKLOG);
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(Watcher { sender, patient });
        Watch { news }
    }

    /// Tells everybody.
    pub(super) async fn tell(&self, news: RunNews) {
        self.remember(&news);
        let news = Arc::new(news);
        let mut waiting = Vec::new();
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).retain(|watcher| {
            match watcher.sender.try_send(Arc::clone(&news)) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) if watcher.patient => {
                    waiting.push(watcher.sender.clone());
                    true
                }
                Err(_) => false,
            }
        });
        for sender in waiting {
            let sent = tokio::time::timeout(PATIENCE, sender.send(Arc::clone(&news))).await;
            if !matches!(sent, Ok(Ok(()))) {
                let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
                watchers.retain(|watcher| !watcher.sender.same_channel(&sender));
            }
        }
    }

    fn remember(&self, news: &RunNews) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match (news, &mut *said) {
            (RunNews::Text { text, .. }, Some((_, all))) => all.push_str(text),
            (RunNews::Text { turn, text }, none) => *none = Some((*turn, text.clone())),
            (RunNews::Asking { .. } | RunNews::Turn { .. } | RunNews::Ended { .. }, said) => *said = None,
            _ => {}
        }
    }
}
