//! Runs that are carried on in this process: who watches them, and how to end them.
//!
//! What is here is only news; the journal has the record. One watcher, the caller that began the run, may hold it up
//! for a moment while its connection is slow. Everybody else who cannot keep up is let go, and may look at the record.

use palyra_protocol::{ApprovalId, CallId, CallState, Principal, Problem, RunId, RunResult, RunState, SessionId};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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

impl RunNews {
    /// Its `type`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Asking { .. } => "asking",
            Self::Text { .. } => "text",
            Self::ToolCall { .. } => "tool_call",
            Self::Arguments { .. } => "arguments",
            Self::Turn { .. } => "turn",
            Self::Call { .. } => "call",
            Self::Approval { .. } => "approval",
            Self::Output { .. } => "output",
            Self::Result { .. } => "result",
            Self::Ended { .. } => "ended",
        }
    }
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
    audience: Mutex<Audience>,
    cancel: CancellationToken,
    by: OnceLock<Principal>,
    ended: CancellationToken,
}

/// Who watches, and what those who come late have to be told.
#[derive(Debug, Default)]
struct Audience {
    watchers: Vec<Watcher>,
    /// What the model has said of its present answer.
    said: Option<(u64, String)>,
    /// The approvals that wait for a person.
    asked: Vec<Arc<RunNews>>,
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
        self.audience().watchers.clear();
        self.ended.cancel();
    }

    /// Watches from here on; what the model has begun to say and the approvals that wait come first.
    pub(super) fn watch(&self) -> Watch {
        let mut audience = self.audience();
        let (sender, watch) = channel();
        let said = audience.said.clone().map(|(turn, text)| Arc::new(RunNews::Text { turn, text }));
        for news in said.into_iter().chain(audience.asked.iter().map(Arc::clone)) {
            // There is room: nothing was sent yet, and a turn has fewer calls than the backlog.
            drop(sender.try_send(news));
        }
        audience.watchers.push(Watcher { sender, patient: false });
        watch
    }

    /// The watch of the caller that begins the run, which misses nothing.
    pub(super) fn watch_from_the_beginning(&self) -> Watch {
        let (sender, watch) = channel();
        self.audience().watchers.push(Watcher { sender, patient: true });
        watch
    }

    /// Tells everybody.
    pub(super) async fn tell(&self, news: RunNews) {
        let news = Arc::new(news);
        let slow = self.audience().tell(&news);
        for sender in slow {
            let sent = tokio::time::timeout(PATIENCE, sender.send(Arc::clone(&news))).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.audience().watchers.retain(|watcher| !watcher.sender.same_channel(&sender));
            }
        }
    }

    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn channel() -> (mpsc::Sender<Arc<RunNews>>, Watch) {
    let (sender, news) = mpsc::channel(BACKLOG);
    (sender, Watch { news })
}

impl Audience {
    /// Tells those who have room; gives back those who have to be waited for.
    fn tell(&mut self, news: &Arc<RunNews>) -> Vec<mpsc::Sender<Arc<RunNews>>> {
        self.remember(news);
        let mut waiting = Vec::new();
        self.watchers.retain(|watcher| match watcher.sender.try_send(Arc::clone(news)) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) if watcher.patient => {
                waiting.push(watcher.sender.clone());
                true
            }
            Err(_) => false,
        });
        waiting
    }

    fn remember(&mut self, news: &Arc<RunNews>) {
        match &**news {
            RunNews::Text { turn, text } => {
                self.said.get_or_insert_with(|| (*turn, String::new())).1.push_str(text);
            }
            RunNews::Asking { .. } | RunNews::Turn { .. } | RunNews::Ended { .. } => self.said = None,
            RunNews::Approval { .. } => self.asked.push(Arc::clone(news)),
            RunNews::Call { call_id, .. } => self.answered(call_id),
            RunNews::Result { result, .. } => {
                if let Some(call_id) = &result.call_id {
                    self.answered(call_id);
                }
            }
            _ => {}
        }
    }

    fn answered(&mut self, call: &CallId) {
        self.asked.retain(|news| !matches!(&**news, RunNews::Approval { call_id, .. } if call_id == call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_who_comes_late_hears_what_was_begun_and_what_waits_and_nothing_twice() {
        let live = LiveRun::default();
        let text = |text: &str| RunNews::Text { turn: 1, text: text.to_owned() };
        let asks = |call_id: &CallId| RunNews::Approval {
            turn: 1,
            index: 0,
            call_id: call_id.clone(),
            tool: "palyra.echo".to_owned(),
            approval_id: ApprovalId::mint(),
        };
        let (answered, waits) = (CallId::mint(), CallId::mint());
        for news in [text("a"), text("b"), asks(&answered), asks(&waits)] {
            live.tell(news).await;
        }
        let state = CallState::Executing;
        let tool = "palyra.echo".to_owned();
        live.tell(RunNews::Call { turn: 1, index: 0, call_id: answered, tool, state }).await;
        let mut watch = live.watch();
        live.tell(text("c")).await;
        let asking = RunNews::Asking { turn: 2 };
        assert_eq!(serde_json::to_value(&asking).unwrap()["type"], asking.name());
        live.end();
        let mut heard = Vec::new();
        while let Some(news) = watch.next().await {
            heard.push(match &*news {
                RunNews::Text { text, .. } => text.clone(),
                RunNews::Approval { call_id, .. } => call_id.to_string(),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(heard, ["ab".to_owned(), waits.to_string(), "c".to_owned()]);
    }
}
