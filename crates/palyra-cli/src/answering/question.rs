//! One approval, or several that are alike, on a terminal that is written line by line: shown to the end, then answered
//! by a key.

use super::gate::{ARMED, Gate, QUIET};
use super::screen::{cut_beginning, wrap};
use super::{Choice, Key, Keys, Screen, Shown, Typed, send, take_back};
use crate::exit::{Failure, UNREACHABLE};
use crate::output::{BAD, BOLD, DIM, GOOD, WARN};
use crate::review::StyledLine;
use crate::text::{pretty, safe};
use anstyle::Style;
use palyra_api::Connection;
use palyra_protocol::{ApprovalScope, ApprovalState, GrantMatcher, Review};
use std::pin::pin;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep_until;

/// How a question left the screen.
#[derive(Debug)]
pub enum End<T> {
    /// Something came that ends it: it was answered elsewhere, or has changed.
    News(T),
    /// It was answered here.
    Answered,
    /// The person put it off.
    Later,
    /// The person wants to see all that are alike.
    Group,
    /// The person leaves.
    Quit,
    /// The daemon is gone.
    Lost(Failure),
}

enum Stop {
    Answered,
    Later,
    Group,
    Quit,
    Lost(Failure),
}

impl<T> From<Stop> for End<T> {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Answered => Self::Answered,
            Stop::Later => Self::Later,
            Stop::Group => Self::Group,
            Stop::Quit => Self::Quit,
            Stop::Lost(failure) => Self::Lost(failure),
        }
    }
}

/// A yes that is not sent yet.
struct Armed {
    choice: Choice,
    answers: Vec<(ApprovalScope, GrantMatcher)>,
    since: Instant,
}

/// A no whose reason is being typed.
struct Reason {
    text: String,
    standing: bool,
}

/// What else waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Others {
    /// How many others.
    pub more: usize,
    /// How many of them are like the one on screen.
    pub alike: usize,
}

/// Where it is shown and by whom it is answered.
#[derive(Debug)]
pub struct Desk<'a> {
    pub screen: &'a mut Screen,
    pub keys: &'a mut Keys,
    pub connection: &'a Connection,
}

/// The question on screen.
pub struct Question<'a> {
    desk: Desk<'a>,
    shown: &'a [Shown],
    others: Others,
    gate: Gate,
    lines: Vec<StyledLine>,
    next: usize,
    armed: Option<Armed>,
    reason: Option<Reason>,
    note: Option<String>,
}

/// The longest reason, in characters.
const MAX_REASON: usize = 1000;

const HELP: &str = "y yes, this once · s yes, exactly this for the session · p yes, commands that begin alike · w yes, files under \
this directory · h yes, this host and method · n no, with a reason that the agent reads · N no, also when it is asked again in this \
session · d details · g all that are alike · l later · u takes a yes back within two seconds · q quits. Enter answers nothing.";

impl<'a> Question<'a> {
    pub fn new(desk: Desk<'a>, shown: &'a [Shown]) -> Self {
        let gate = Gate::new(Instant::now());
        Self {
            desk,
            shown,
            others: Others::default(),
            gate,
            lines: Vec::new(),
            next: 0,
            armed: None,
            reason: None,
            note: None,
        }
    }

    /// Shows it and waits for an answer, or until `news` come. `others` is what else waits.
    pub async fn ask<T>(
        mut self,
        mut others: watch::Receiver<Others>,
        news: impl Future<Output = T>,
    ) -> Result<End<T>, Failure> {
        let heard = |kind| signal(kind).map_err(|e| Failure::io("signals cannot be heard", &e));
        let (mut resized, mut interrupted, mut ended) =
            (heard(SignalKind::window_change())?, heard(SignalKind::interrupt())?, heard(SignalKind::terminate())?);
        let mut news = pin!(news);
        let mut counts = true;
        self.open();
        loop {
            self.others = *others.borrow_and_update();
            self.draw();
            let moment = self.moment();
            let at = moment.unwrap_or_else(Instant::now);
            let stop = tokio::select! {
                biased;
                told = &mut news => {
                    self.desk.screen.clear_prompt();
                    return Ok(End::News(told));
                }
                _ = interrupted.recv() => Some(Stop::Quit),
                _ = ended.recv() => Some(Stop::Quit),
                _ = resized.recv() => {
                    // Broken otherwise now: it has to be shown anew before it is answered.
                    self.open();
                    None
                }
                typed = self.desk.keys.next() => match typed {
                    Some(typed) => self.typed(&typed).await,
                    None => Some(Stop::Quit),
                },
                changed = others.changed(), if counts => {
                    counts = changed.is_ok();
                    None
                }
                () = sleep_until(at.into()), if moment.is_some() => self.time().await,
            };
            if let Some(stop) = stop {
                if matches!(stop, Stop::Quit) && self.armed.is_some() {
                    self.disarm().await;
                }
                self.desk.screen.clear_prompt();
                return Ok(stop.into());
            }
        }
    }

    /// Shows it from its beginning. What was typed until now does not count, and no yes stays armed.
    fn open(&mut self) {
        (self.armed, self.reason, self.next) = (None, None, 0);
        let mut lines = Vec::new();
        for (n, Shown { review, .. }) in self.shown.iter().enumerate() {
            let of = if self.shown.len() > 1 { format!(" {} of {}", n + 1, self.shown.len()) } else { String::new() };
            let rule = if self.desk.screen.is_reader() { "" } else { "── " };
            let text = format!("{rule}approval{of}: {} wants {}", review.principal, safe(review.tool.as_str()));
            lines.push(StyledLine { style: BOLD, text });
            lines.extend(crate::review::lines(review));
        }
        self.lines = wrap(&lines, self.desk.screen.size().0);
        self.desk.keys.forget();
        self.page();
    }

    /// Shows as much as fits.
    fn page(&mut self) {
        // The last row is the prompt's.
        let rows = self.desk.screen.size().1.saturating_sub(1).max(2);
        let end = (self.next + rows).min(self.lines.len());
        for StyledLine { style, text } in &self.lines[self.next..end] {
            self.desk.screen.line(*style, text);
        }
        self.next = end;
        self.gate.changed(Instant::now());
        if end == self.lines.len() {
            self.gate.end_shown();
        }
    }

    fn say(&mut self, style: Style, text: &str) {
        let columns = self.desk.screen.size().0;
        for StyledLine { style, text } in wrap(&[StyledLine { style, text: text.to_owned() }], columns) {
            self.desk.screen.line(style, &text);
        }
    }

    /// When something happens by itself next.
    fn moment(&self) -> Option<Instant> {
        let quiet = Some(self.gate.quiet_until()).filter(|until| *until > Instant::now());
        let armed = self.armed.as_ref().map(|armed| armed.since);
        armed.map(|since| if since.elapsed() < QUIET { since + QUIET } else { since + ARMED }).or(quiet)
    }

    async fn time(&mut self) -> Option<Stop> {
        match &self.armed {
            Some(armed) if armed.since.elapsed() >= ARMED => self.send_armed().await,
            _ => None,
        }
    }

    async fn typed(&mut self, typed: &Typed) -> Option<Stop> {
        if self.reason.is_some() {
            return self.edit(&typed.keys).await;
        }
        if self.armed.is_some() {
            return self.while_armed(typed).await;
        }
        if !self.gate.counts(typed.at) {
            return None;
        }
        // Each key has its answer, also where it is the same as that to the key before.
        self.desk.screen.write_prompt_again();
        self.note = None;
        let Some(key) = typed.only() else {
            self.note = Some("several keys at once do not count".to_owned());
            return None;
        };
        match key {
            Key::Quit | Key::Char('q') => return Some(Stop::Quit),
            Key::Char('l') => return Some(Stop::Later),
            Key::Char('g') if self.others.alike > 0 => return Some(Stop::Group),
            Key::Char(' ') | Key::PageDown | Key::Down | Key::Enter if !self.gate.saw_end() => self.page(),
            Key::Enter => self.note = Some("Enter answers nothing".to_owned()),
            Key::Char('d') => self.details(),
            Key::Char('?') => self.say(DIM, HELP),
            Key::Char('n') => self.reason = Some(Reason { text: String::new(), standing: false }),
            Key::Char('N') => self.reason = Some(Reason { text: String::new(), standing: true }),
            Key::Char('u') => self.note = Some("there is nothing to take back".to_owned()),
            Key::Char(key) => match Choice::of(key) {
                Some(choice) => self.note = self.arm(choice, typed.at).err(),
                None => self.note = Some("? shows the keys".to_owned()),
            },
            _ => {}
        }
        None
    }

    fn reviews(&self) -> impl Iterator<Item = &Review> {
        self.shown.iter().map(|shown| &shown.review)
    }

    fn arm(&mut self, choice: Choice, since: Instant) -> Result<(), String> {
        self.gate.may_allow(self.reviews())?;
        if self.shown.len() > 1 && choice != Choice::Once {
            return Err("not taken: several are allowed once each; for more, answer them one by one".to_owned());
        }
        let answers = self.reviews().map(|review| choice.answer(review)).collect::<Result<_, _>>()?;
        self.armed = Some(Armed { choice, answers, since });
        Ok(())
    }

    async fn while_armed(&mut self, typed: &Typed) -> Option<Stop> {
        let (choice, since) = self.armed.as_ref().map(|armed| (armed.choice, armed.since))?;
        if typed.keys.iter().any(|key| matches!(key, Key::Char('u') | Key::Escape | Key::Quit)) {
            self.disarm().await;
            return typed.keys.contains(&Key::Quit).then_some(Stop::Quit);
        }
        // The key that armed it may still be held down.
        if typed.only() == Some(Key::Char(choice.key())) && typed.at >= since + QUIET {
            return self.send_armed().await;
        }
        None
    }

    /// Takes the yes back; the daemon was not told of it, and is told that it was taken back.
    async fn disarm(&mut self) {
        self.armed = None;
        let mut unrecorded = None;
        for Shown { review, .. } in self.shown {
            unrecorded = take_back(self.desk.connection, review).await.err().or(unrecorded);
        }
        self.note = Some(match unrecorded {
            None => "taken back; nothing was answered".to_owned(),
            Some(failure) => {
                format!("taken back; nothing was answered, and that is not recorded: {}", safe(&failure.message))
            }
        });
    }

    async fn send_armed(&mut self) -> Option<Stop> {
        let Armed { answers, .. } = self.armed.take()?;
        self.send(true, answers, "").await
    }

    async fn edit(&mut self, keys: &[Key]) -> Option<Stop> {
        for key in keys {
            let reason = self.reason.as_mut()?;
            match key {
                Key::Char(c) if reason.text.chars().count() < MAX_REASON => {
                    reason.text.push(*c);
                    self.echo(&safe(&c.to_string()));
                }
                Key::Backspace if reason.text.pop().is_some() => self.echo("\u{8} \u{8}"),
                Key::Escape | Key::Quit => self.reason = None,
                Key::Enter => {
                    self.echo("\n");
                    let Reason { text, standing } = self.reason.take()?;
                    let scope = if standing { ApprovalScope::Session } else { ApprovalScope::Once };
                    let answers = self.shown.iter().map(|_| (scope, GrantMatcher::ExactCall)).collect();
                    return self.send(false, answers, &text).await;
                }
                _ => {}
            }
        }
        None
    }

    /// What is typed into a line is echoed where the prompt is not written anew.
    fn echo(&mut self, text: &str) {
        if self.desk.screen.is_reader() {
            self.desk.screen.raw(text);
        }
    }

    /// Sends the answers, each with the digest that was shown.
    async fn send(&mut self, allow: bool, answers: Vec<(ApprovalScope, GrantMatcher)>, reason: &str) -> Option<Stop> {
        let mut refused = false;
        let shown = self.shown;
        for (Shown { review, .. }, answer) in shown.iter().zip(answers) {
            match send(self.desk.connection, review, allow, answer, reason).await {
                Ok(record) => {
                    let style = match record.state {
                        ApprovalState::Allowed => GOOD,
                        ApprovalState::Pending => WARN,
                        _ => BAD,
                    };
                    let text = format!("{} {}", record.approval_id, crate::commands::approvals::state(&record));
                    self.say(style, &text);
                }
                Err(failure) if failure.exit == UNREACHABLE => return Some(Stop::Lost(failure)),
                Err(failure) => {
                    refused = true;
                    self.say(BAD, &format!("not taken: {}", safe(&failure.message)));
                }
            }
        }
        (!refused).then_some(Stop::Answered)
    }

    fn details(&mut self) {
        let shown = self.shown;
        for Shown { record, review } in shown {
            let facts = format!(
                "approval {}\ncall {}\ndecision {}\nsubject {}\ndigest {}\npolicy {}\ninput, whole:\n{}",
                record.approval_id,
                record.call_id,
                record.decision_id,
                safe(&record.subject_id),
                review.digest,
                review.policy_hash,
                pretty(&review.input)
            );
            facts.lines().for_each(|line| self.say(DIM, line));
        }
    }

    fn draw(&mut self) {
        let text = self.prompt_text();
        self.desk.screen.prompt(&text);
    }

    /// The prompt, by single letters where its words do not fit the screen.
    fn prompt_text(&self) -> String {
        let columns = self.desk.screen.size().0;
        let worded = self.prompt_as(columns < 60);
        if worded.chars().count() < columns || self.desk.screen.is_reader() { worded } else { self.prompt_as(true) }
    }

    fn prompt_as(&self, narrow: bool) -> String {
        let note = self.note.as_ref().map_or_else(String::new, |note| format!("{note} — "));
        if let Some(reason) = &self.reason {
            return self.reason_text(reason, narrow);
        }
        if let Some(Armed { choice, since, .. }) = &self.armed {
            // The key that armed it may still be held down: it does not count yet.
            let now = if since.elapsed() < QUIET { String::new() } else { format!(", {} sends it now", choice.key()) };
            let time = if narrow { "" } else { ", in two seconds" };
            return format!("yes, {}{time} — u takes it back{now}", choice.word());
        }
        if self.gate.quiet_until() > Instant::now() {
            return "…".to_owned();
        }
        let left = self.lines.len() - self.next;
        if left > 0 {
            let lines = if left == 1 { "line: space shows it" } else { "lines: space shows them" };
            return format!("{note}{left} more {lines}, n denies, q quits");
        }
        let fits = |choice: &Choice| self.reviews().all(|review| choice.fits(review));
        let fits = |choice: &Choice| fits(choice) && (self.shown.len() == 1 || *choice == Choice::Once);
        let mut keys: Vec<String> = Choice::ALL
            .iter()
            .filter(|choice| fits(choice))
            .map(|choice| if narrow { choice.key().to_string() } else { format!("{} {}", choice.key(), choice.word()) })
            .collect();
        let others = [("n", "no"), ("N", "never"), ("d", "details"), ("l", "later"), ("?", "keys")];
        keys.extend(others.map(|(key, word)| if narrow { key.to_owned() } else { format!("{key} {word}") }));
        let Others { more, alike } = self.others;
        if alike > 0 {
            keys.push(format!("g {alike} alike"));
        }
        let more = if more > 0 { format!("[{more} more] ") } else { String::new() };
        format!("{note}{more}{}", keys.join(if narrow { " " } else { "  " }))
    }

    /// The line in which a reason is typed; its end is always seen.
    fn reason_text(&self, Reason { text, standing }: &Reason, narrow: bool) -> String {
        let no = match (*standing, narrow) {
            (false, false) => "no, because (Enter sends, Esc goes back): ",
            (true, false) => "no, for this session, because (Enter sends, Esc goes back): ",
            (false, true) => "no, because: ",
            (true, true) => "no, for this session: ",
        };
        if self.desk.screen.is_reader() {
            return no.to_owned();
        }
        let room = self.desk.screen.size().0.saturating_sub(no.len() + 1);
        format!("{no}{}", cut_beginning(&safe(text), room))
    }
}
