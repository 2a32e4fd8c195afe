//! `palyra approvals watch` and `count`: what waits, as it comes and goes; at a terminal, answered where you are.

use super::{every_page, show, state};
use crate::answering::notify::Notify;
use crate::answering::question::{Desk, Others};
use crate::answering::{End, Key, Keys, Question, Screen, Shown, at_terminal};
use crate::args::Watch;
use crate::context::Context;
use crate::exit::{Failure, UNREACHABLE};
use crate::output::{self, BAD, DIM, GOOD, note, say, styled};
use crate::text::safe;
use palyra_api::v1::{Approval, WatchApprovalsRequest};
use palyra_protocol::{ApprovalId, ApprovalRecord, ApprovalState};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tonic::Streaming;

pub async fn watch(context: &Context, options: &Watch) -> Result<(), Failure> {
    let interactive = !context.json() && !options.plain && at_terminal(std::io::stdout());
    if interactive { Watcher::new(options)?.run(context).await } else { tell(context).await }
}

/// Prints approvals as they come and as they end, until Ctrl-C.
async fn tell(context: &Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut stream = connection.approvals().watch(WatchApprovalsRequest {}).await?.into_inner();
    if !context.json() {
        note!("{}", styled(DIM, "watching; Ctrl-C ends"));
    }
    loop {
        let approval = tokio::select! {
            approval = stream.message() => approval?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(approval) = approval else { return Err(Failure::daemon_ended()) };
        let shown = Shown::read(&approval)?;
        if context.json() || shown.record.state == ApprovalState::Pending {
            show(context, &shown)?;
        } else {
            say!("{}  {}", shown.record.approval_id, state(&shown.record));
        }
    }
}

/// Prints how many wait: once, or whenever it changes.
pub async fn count(context: &Context, follow: bool) -> Result<(), Failure> {
    let connection = context.connect().await?;
    // Listening begins before they are counted, so that none is missed.
    let mut stream = connection.approvals().watch(WatchApprovalsRequest {}).await?.into_inner();
    let ids = |records: Vec<ApprovalRecord>| records.into_iter().map(|record| record.approval_id);
    let mut waiting: HashSet<ApprovalId> = ids(every_page(&connection, false).await?).collect();
    let print = |count: usize| match context.json() {
        true => output::json(&serde_json::json!({ "pending": count })),
        false => {
            say!("{count}");
            Ok(())
        }
    };
    print(waiting.len())?;
    if !follow {
        return Ok(());
    }
    loop {
        let approval = tokio::select! {
            approval = stream.message() => approval?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let record = Shown::read(&approval.ok_or_else(Failure::daemon_ended)?)?.record;
        let changed = match record.state {
            ApprovalState::Pending => waiting.insert(record.approval_id),
            _ => waiting.remove(&record.approval_id),
        };
        if changed {
            print(waiting.len())?;
        }
    }
}

/// What waits, as far as this watch knows.
#[derive(Debug)]
struct Waiting {
    approvals: BTreeMap<ApprovalId, Shown>,
    /// Those that the person put off.
    later: HashSet<ApprovalId>,
    notify: Notify,
    bell: Screen,
}

impl Waiting {
    /// Takes news; says whether what is known of that approval has changed.
    fn take(&mut self, approval: &Approval) -> Result<(ApprovalId, bool), Failure> {
        let shown = Shown::read(approval)?;
        let id = shown.record.approval_id.clone();
        if shown.record.state != ApprovalState::Pending {
            self.later.remove(&id);
            return Ok((id.clone(), self.approvals.remove(&id).is_some()));
        }
        let known = self.approvals.get(&id).is_some_and(|known| known.record == shown.record);
        if self.approvals.insert(id.clone(), shown).is_none() {
            self.notify.tell(&mut self.bell, self.approvals.len());
        }
        Ok((id, !known))
    }

    /// The oldest that was not put off.
    fn next(&self) -> Option<Vec<Shown>> {
        let (_, first) = self.approvals.iter().find(|(id, _)| !self.later.contains(*id))?;
        Some(vec![first.clone()])
    }

    /// What waits besides these.
    fn others(&self, shown: &[Shown]) -> Others {
        let more = self.approvals.len().saturating_sub(shown.len());
        let alike = match shown {
            [one] => self.like(one).len().saturating_sub(1),
            _ => 0,
        };
        Others { more, alike }
    }

    fn like(&self, shown: &Shown) -> Vec<Shown> {
        let group = shown.review.group();
        self.approvals.values().filter(|other| other.review.group() == group).cloned().collect()
    }

    /// Takes news until some are about one of these.
    async fn until(
        &mut self,
        stream: &mut Streaming<Approval>,
        shown: &[Shown],
        others: &watch::Sender<Others>,
    ) -> Result<(), Failure> {
        loop {
            let approval = stream.message().await?.ok_or_else(Failure::daemon_ended)?;
            let (id, changed) = self.take(&approval)?;
            others.send_replace(self.others(shown));
            if changed && shown.iter().any(|shown| shown.record.approval_id == id) {
                return Ok(());
            }
        }
    }
}

/// The watch at a terminal.
struct Watcher {
    screen: Screen,
    keys: Keys,
    waiting: Waiting,
}

enum Left {
    Quit,
    Lost(Failure),
}

impl Watcher {
    fn new(options: &Watch) -> Result<Self, Failure> {
        let notify = Notify { bell: options.bell, desktop: options.notify };
        let bell = Screen::open(options.reader)?;
        let waiting = Waiting { approvals: BTreeMap::new(), later: HashSet::new(), notify, bell };
        Ok(Self { screen: Screen::open(options.reader)?, keys: Keys::take()?, waiting })
    }

    /// Watches until the person leaves. A daemon that goes is waited for; what it asked is forgotten until it asks
    /// again.
    async fn run(mut self, context: &Context) -> Result<(), Failure> {
        let mut pause = Duration::from_millis(200);
        let mut first = true;
        loop {
            match self.connected(context, &mut first).await {
                Ok(Left::Quit) => {
                    self.screen.clear_prompt();
                    return Ok(());
                }
                Err(failure) if first || failure.exit != UNREACHABLE => {
                    self.screen.clear_prompt();
                    return Err(failure);
                }
                Ok(Left::Lost(failure)) | Err(failure) => {
                    self.waiting.approvals.clear();
                    let text = format!("the daemon cannot be reached ({}); q quits, or wait", safe(&failure.message));
                    self.screen.prompt(&text);
                }
            }
            if self.left_within(pause).await {
                self.screen.clear_prompt();
                return Ok(());
            }
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// Whether the person leaves within this time.
    async fn left_within(&mut self, time: Duration) -> bool {
        let until = tokio::time::sleep(time);
        tokio::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => return false,
                _ = tokio::signal::ctrl_c() => return true,
                typed = self.keys.next() => match typed {
                    Some(typed) if !typed.keys.iter().any(|key| matches!(key, Key::Quit | Key::Char('q'))) => {}
                    _ => return true,
                },
            }
        }
    }

    async fn connected(&mut self, context: &Context, first: &mut bool) -> Result<Left, Failure> {
        let connection = context.connect().await?;
        let lost = |failure: Failure| Failure { exit: UNREACHABLE, ..failure };
        let mut stream = connection.approvals().watch(WatchApprovalsRequest {}).await?.into_inner();
        if !std::mem::replace(first, false) {
            self.screen.line(GOOD, "connected again");
        }
        loop {
            let Some(mut shown) = self.waiting.next() else {
                match self.idle(&mut stream).await {
                    Ok(true) => continue,
                    Ok(false) => return Ok(Left::Quit),
                    Err(failure) => return Ok(Left::Lost(lost(failure))),
                }
            };
            loop {
                let ids: Vec<_> = shown.iter().map(|shown| shown.record.approval_id.clone()).collect();
                let (others, waiting) = watch::channel(self.waiting.others(&shown));
                let desk = Desk { screen: &mut self.screen, keys: &mut self.keys, connection: &connection };
                let news = self.waiting.until(&mut stream, &shown, &others);
                match Question::new(desk, &shown).ask(waiting, news).await? {
                    End::News(Ok(())) => self.answered_elsewhere(&shown),
                    End::News(Err(failure)) | End::Lost(failure) => return Ok(Left::Lost(lost(failure))),
                    // What a yes of several leaves pending is for other people now.
                    End::Answered | End::Later => self.waiting.later.extend(ids),
                    End::Quit => return Ok(Left::Quit),
                    End::Group => {
                        shown = shown.first().map_or_else(Vec::new, |first| self.waiting.like(first));
                        continue;
                    }
                }
                break;
            }
        }
    }

    fn answered_elsewhere(&mut self, shown: &[Shown]) {
        for Shown { record, .. } in shown {
            let id = &record.approval_id;
            let text = match self.waiting.approvals.contains_key(id) {
                true => format!("{id} has changed; it is shown again"),
                false => format!("{id} was answered elsewhere, or has ended"),
            };
            self.screen.line(BAD, &text);
        }
    }

    /// Waits while nothing is to be answered; says whether the watch goes on.
    async fn idle(&mut self, stream: &mut Streaming<Approval>) -> Result<bool, Failure> {
        let heard = |kind| signal(kind).map_err(|e| Failure::io("signals cannot be heard", &e));
        let (mut interrupted, mut ended) = (heard(SignalKind::interrupt())?, heard(SignalKind::terminate())?);
        let put_off = self.waiting.approvals.len();
        self.screen.prompt(&match put_off {
            0 => "watching: nothing waits — q quits".to_owned(),
            put_off => format!("watching: {put_off} put off — r shows them again, q quits"),
        });
        let approval = tokio::select! {
            approval = stream.message() => approval?.ok_or_else(Failure::daemon_ended)?,
            _ = interrupted.recv() => return Ok(false),
            _ = ended.recv() => return Ok(false),
            typed = self.keys.next() => {
                let Some(typed) = typed else { return Ok(false) };
                if typed.only() == Some(Key::Char('r')) {
                    self.waiting.later.clear();
                }
                return Ok(!typed.keys.iter().any(|key| matches!(key, Key::Quit | Key::Char('q'))));
            }
        };
        self.waiting.take(&approval)?;
        self.screen.clear_prompt();
        Ok(true)
    }
}
