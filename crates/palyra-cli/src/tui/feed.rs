//! News from the daemon, each kind by a task of its own; and what the screen wants done there.

use super::app::Wish;
use crate::answering::{self, Shown};
use crate::commands::{approvals, read};
use crate::context::Context;
use crate::exit::Failure;
use palyra_api::v1::{
    CancelRunRequest, FollowCallRequest, GetRunRequest, ListCallsRequest, ListGrantsRequest, ListRunsRequest,
    RevokeGrantRequest, TailRequest, WatchApprovalsRequest,
};
use palyra_protocol::display::Sanitizer;
use palyra_protocol::{ApprovalRecord, ApprovalState, GrantRecord, Review};
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Something new.
#[derive(Debug)]
pub enum News {
    /// All that waits will be told again from here on.
    Connected,
    /// The daemon is gone.
    Lost(String),
    /// An approval waits, has changed, or has ended.
    Approval(Box<Shown>),
    /// What an answer led to.
    Answered(Result<Box<ApprovalRecord>, String>),
    /// The newest calls, newest first.
    Calls(Vec<Value>),
    /// The newest grants, newest first.
    Grants(Vec<GrantRecord>),
    /// The newest runs, newest first.
    Runs(Vec<Value>),
    /// A run as it stands.
    Run(Box<Value>),
    /// What a call's process wrote.
    Output(String),
    /// Where the call that is looked at stands.
    Call(Box<Value>),
    /// The journal grew: what is listed may be others.
    Changed,
    /// Something to say.
    Note(String),
}

/// The news, and how to ask for more.
#[derive(Debug)]
pub struct Feed {
    context: Context,
    sender: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
    /// What follows the call that is looked at.
    following: Option<JoinHandle<()>>,
}

/// How many calls are listed.
const LISTED: u32 = 200;
/// How many runs are listed.
const LISTED_RUNS: u32 = 50;

impl Feed {
    pub fn start(context: Context) -> Self {
        let (sender, news) = mpsc::channel(64);
        tokio::spawn(watch(context.clone(), sender.clone()));
        Self { context, sender, news, following: None }
    }

    pub async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            // The senders live as long as this.
            None => std::future::pending().await,
        }
    }

    pub async fn take_back(&self, review: Review) {
        let Ok(connection) = self.context.connect().await else { return };
        // It was not sent; that this is not recorded changes nothing.
        drop(answering::take_back(&connection, &review).await);
    }

    /// Does what the screen wants, in a task of its own.
    pub fn wish(&mut self, wish: Wish) {
        let (context, sender) = (self.context.clone(), self.sender.clone());
        if let Wish::Follow(_) | Wish::Unfollow = &wish
            && let Some(following) = self.following.take()
        {
            following.abort();
        }
        let follows = matches!(wish, Wish::Follow(_));
        let task = tokio::spawn(async move {
            let done = fulfil(&context, wish, &sender).await;
            let news = done.unwrap_or_else(|failure| Some(News::Note(failure.message)));
            if let Some(news) = news {
                // The screen may have gone.
                drop(sender.send(news).await);
            }
        });
        if follows {
            self.following = Some(task);
        }
    }
}

async fn fulfil(context: &Context, wish: Wish, sender: &mpsc::Sender<News>) -> Result<Option<News>, Failure> {
    let connection = context.connect().await?;
    Ok(match wish {
        Wish::Nothing | Wish::Quit | Wish::Unfollow => None,
        Wish::Send { review, allow, answer, reason } => {
            let sent = answering::send(&connection, &review, allow, answer, &reason).await;
            Some(News::Answered(sent.map(Box::new).map_err(|failure| failure.message)))
        }
        Wish::TakeBack(review) => {
            answering::take_back(&connection, &review).await?;
            None
        }
        Wish::ListCalls => {
            let request = ListCallsRequest { most: LISTED, ..ListCallsRequest::default() };
            let reply = connection.calls().list(request).await?.into_inner();
            Some(News::Calls(reply.calls_json.iter().map(|call| read(call)).collect::<Result<_, _>>()?))
        }
        Wish::ListGrants => {
            let reply = connection.grants().list(ListGrantsRequest::default()).await?.into_inner();
            let grants = reply.grants.iter().map(|grant| read(&grant.grant_json));
            Some(News::Grants(grants.collect::<Result<_, _>>()?))
        }
        Wish::ListRuns => {
            let request = ListRunsRequest { before: 0, most: LISTED_RUNS };
            let reply = connection.runs().list(request).await?.into_inner();
            Some(News::Runs(reply.runs_json.iter().map(|run| read(run)).collect::<Result<_, _>>()?))
        }
        Wish::ShowRun(run) => {
            let reply = connection.runs().get(GetRunRequest { run }).await?.into_inner();
            Some(News::Run(Box::new(read(&reply.run_json)?)))
        }
        Wish::EndRun(run) => {
            connection.runs().cancel(CancelRunRequest { run }).await?;
            Some(News::Note("the run is ended".to_owned()))
        }
        Wish::Revoke(grant) => {
            connection.grants().revoke(RevokeGrantRequest { grant_id: grant.to_string() }).await?;
            Some(News::Note(format!("{grant} is withdrawn")))
        }
        Wish::Follow(call_id) => {
            let request = FollowCallRequest { call_id, live_output: true };
            let mut updates = connection.calls().follow(request).await?.into_inner();
            let mut shown = [Sanitizer::default(), Sanitizer::default()];
            while let Some(update) = updates.message().await? {
                let news = match &update.output {
                    Some(piece) => News::Output(shown[usize::from(piece.stream != 0)].push(&piece.bytes)),
                    None => News::Call(Box::new(serde_json::json!({
                        "state": update.state,
                        "outcome": crate::commands::read_optional::<Value>(&update.outcome_json)?,
                    }))),
                };
                if sender.send(news).await.is_err() {
                    return Ok(None);
                }
            }
            None
        }
    })
}

/// Tells of approvals, and that the journal grew, until the screen is gone. A daemon that goes is waited for.
async fn watch(context: Context, sender: mpsc::Sender<News>) {
    let mut pause = Duration::from_millis(200);
    loop {
        let lost = match watch_once(&context, &sender, &mut pause).await {
            Ok(()) => return,
            Err(failure) => failure.message,
        };
        if sender.send(News::Lost(lost)).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

async fn watch_once(context: &Context, sender: &mpsc::Sender<News>, pause: &mut Duration) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut stream = connection.approvals().watch(WatchApprovalsRequest {}).await?.into_inner();
    // Who may not read the journal sees lists as they were when they were opened.
    let tail = TailRequest { first: 0, last: 1, follow: true };
    let mut events = connection.journal().tail(tail).await.map(tonic::Response::into_inner).ok();
    *pause = Duration::from_millis(200);
    if sender.send(News::Connected).await.is_err() {
        return Ok(());
    }
    loop {
        let news = tokio::select! {
            approval = stream.message() => {
                let approval = approval?.ok_or_else(Failure::daemon_ended)?;
                News::Approval(Box::new(Shown::read(&approval)?))
            }
            event = async {
                match &mut events {
                    Some(events) => events.message().await,
                    None => std::future::pending().await,
                }
            } => match event {
                Ok(Some(_)) => News::Changed,
                Ok(None) | Err(_) => {
                    events = None;
                    continue;
                }
            },
        };
        if sender.send(news).await.is_err() {
            return Ok(());
        }
    }
}

/// What an answer led to, on one line.
pub fn told(record: &ApprovalRecord) -> String {
    let done = if record.state == ApprovalState::Pending { "your yes is recorded; others are needed: " } else { "" };
    format!("{done}{} {}", record.approval_id, approvals::state(record))
}
