//! What the screen knows, and what keys do.
//!
//! Selections are kept by id: what comes or goes never moves them. Only the opened approval can be answered.

use super::feed::{News, told};
use super::opened::Opened;
use crate::answering::{Choice, Key, Shown, Typed};
use crate::text::safe;
use palyra_protocol::{ApprovalScope, ApprovalState, GrantId, GrantMatcher, GrantRecord, Review};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// What the screen wants done.
#[derive(Debug)]
pub enum Wish {
    Nothing,
    Quit,
    Send {
        review: Box<Review>,
        allow: bool,
        answer: (ApprovalScope, GrantMatcher),
        reason: String,
    },
    TakeBack(Box<Review>),
    ListCalls,
    ListGrants,
    Revoke(GrantId),
    /// Follow a call, instead of the one before.
    Follow(String),
    Unfollow,
    ListRuns,
    /// Look at a run as it stands.
    ShowRun(String),
    /// End a run, and its calls.
    EndRun(String),
}

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Inbox,
    Approval,
    Calls,
    Call,
    Grants,
    Runs,
    Run,
    Help,
}

/// A line that is being typed.
#[derive(Debug)]
pub struct Line {
    pub kind: LineKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    Filter,
    Command,
    Reason { standing: bool },
}

/// A call that is looked at.
#[derive(Debug, Default)]
pub struct OpenCall {
    pub call: Value,
    pub state: String,
    pub output: String,
    pub outcome: Value,
}

/// How much of a call's output is kept, in bytes.
const MAX_OUTPUT: usize = 256 << 10;

/// The screen.
#[derive(Debug)]
pub struct App {
    pub page: Page,
    pub approvals: BTreeMap<String, Shown>,
    pub opened: Option<Opened>,
    pub calls: Vec<Value>,
    pub open_call: OpenCall,
    pub grants: Vec<GrantRecord>,
    /// The newest runs, and the one that is looked at.
    pub runs: Vec<Value>,
    pub open_run: Value,
    /// What is selected on each list, by its id.
    pub selected: BTreeMap<&'static str, String>,
    pub filter: String,
    pub line: Option<Line>,
    pub note: Option<String>,
    pub lost: Option<String>,
}

impl App {
    pub fn new() -> Self {
        Self {
            page: Page::Inbox,
            approvals: BTreeMap::new(),
            opened: None,
            calls: Vec::new(),
            open_call: OpenCall::default(),
            grants: Vec::new(),
            runs: Vec::new(),
            open_run: Value::Null,
            selected: BTreeMap::new(),
            filter: String::new(),
            line: None,
            note: None,
            lost: None,
        }
    }

    /// Whether something that can be answered was drawn for the first time.
    pub fn drawn(&mut self) -> bool {
        let Some(opened) = self.opened.as_mut().filter(|_| self.page == Page::Approval) else { return false };
        std::mem::take(&mut opened.fresh)
    }

    pub fn moment(&self) -> Option<Instant> {
        self.opened.as_ref().and_then(Opened::moment)
    }

    pub fn time(&mut self) -> Wish {
        self.opened.as_mut().map_or(Wish::Nothing, Opened::time)
    }

    pub fn resized(&mut self) -> Wish {
        if let Some(opened) = &mut self.opened {
            opened.changed();
        }
        Wish::Nothing
    }

    /// The approval whose yes is armed.
    pub fn armed_review(&self) -> Option<Review> {
        self.opened.as_ref().filter(|opened| opened.armed.is_some()).map(|opened| opened.shown.review.clone())
    }

    pub fn news(&mut self, news: News) -> Wish {
        match news {
            News::Connected => {
                self.approvals.clear();
                self.lost = None;
            }
            News::Lost(why) => {
                // What the daemon asked is not known any more, and nothing is sent to another.
                self.approvals.clear();
                self.close("the daemon is gone");
                self.lost = Some(why);
            }
            News::Approval(shown) => self.approval(*shown),
            News::Answered(Ok(record)) => {
                self.close("");
                self.note = Some(told(&record));
            }
            News::Answered(Err(why)) => self.note = Some(format!("not taken: {why}")),
            News::Calls(calls) => self.calls = calls,
            News::Grants(grants) => self.grants = grants,
            News::Runs(runs) => self.runs = runs,
            // One that was left meanwhile is not shown.
            News::Run(run) if self.page == Page::Run && run["run"] == self.open_run["run"] => self.open_run = *run,
            News::Run(_) => {}
            News::Output(text) => {
                let output = &mut self.open_call.output;
                output.push_str(&text);
                if output.len() > MAX_OUTPUT {
                    let cut = output.len() - MAX_OUTPUT / 2;
                    let from = (cut..output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or(0);
                    *output = output.split_off(from);
                }
            }
            News::Call(update) => {
                self.open_call.state = update["state"].as_str().unwrap_or("").to_owned();
                self.open_call.outcome = update["outcome"].clone();
            }
            News::Changed => {
                return match self.page {
                    Page::Calls => Wish::ListCalls,
                    Page::Grants => Wish::ListGrants,
                    Page::Runs => Wish::ListRuns,
                    Page::Run => self.show_run(),
                    _ => Wish::Nothing,
                };
            }
            News::Note(note) => self.note = Some(note),
        }
        Wish::Nothing
    }

    fn approval(&mut self, shown: Shown) {
        let id = shown.record.approval_id.to_string();
        let open = self.opened.as_mut().filter(|opened| opened.shown.record.approval_id == shown.record.approval_id);
        if shown.record.state == ApprovalState::Pending {
            if let Some(opened) = open
                && opened.shown.record != shown.record
            {
                opened.shown = shown.clone();
                opened.changed();
                self.note = Some("it has changed: read it again".to_owned());
            }
            self.approvals.insert(id, shown);
            return;
        }
        self.approvals.remove(&id);
        if open.is_some() {
            let note = told(&shown.record);
            self.close("");
            self.note = Some(note);
        }
    }

    /// Leaves the opened approval.
    fn close(&mut self, note: &str) {
        self.opened = None;
        self.line = None;
        if self.page == Page::Approval {
            self.page = Page::Inbox;
        }
        if !note.is_empty() {
            self.note = Some(note.to_owned());
        }
    }

    /// Takes what was typed together. A list takes several keys one by one; an approval takes one alone, and none that
    /// was typed before it was opened.
    pub fn typed(&mut self, typed: &Typed) -> Vec<Wish> {
        if self.line.is_some() || self.page == Page::Approval {
            return vec![self.typed_at_once(typed)];
        }
        let mut wishes = Vec::new();
        for (at, key) in typed.keys.iter().enumerate() {
            if self.page == Page::Approval {
                break;
            }
            if self.line.is_some() {
                wishes.push(self.edit(&typed.keys[at..]));
                break;
            }
            wishes.push(self.typed_at_once(&Typed { at: typed.at, keys: vec![*key] }));
        }
        wishes
    }

    fn typed_at_once(&mut self, typed: &Typed) -> Wish {
        if self.line.is_some() {
            return self.edit(&typed.keys);
        }
        if let Some(opened) = self.opened.as_mut().filter(|opened| opened.armed.is_some()) {
            return opened.while_armed(typed, &mut self.note);
        }
        if let Some(opened) = self.opened.as_mut().filter(|_| self.page == Page::Approval)
            && !opened.gate.counts(typed.at)
        {
            return Wish::Nothing;
        }
        self.note = None;
        let Some(key) = typed.only() else {
            self.note = Some("several keys at once do not count".to_owned());
            return Wish::Nothing;
        };
        match (self.page, key) {
            (_, Key::Quit) => Wish::Quit,
            (_, Key::Char(':')) => self.begin(LineKind::Command),
            (_, Key::Char('?')) => self.go(Page::Help),
            (Page::Approval, key) => self.on_approval(key, typed.at),
            (_, Key::Char('/')) => self.begin(LineKind::Filter),
            (Page::Run, Key::Char('q') | Key::Escape) => self.go(Page::Runs),
            (_, Key::Char('q') | Key::Escape) if self.page != Page::Inbox => self.go(Page::Inbox),
            (_, Key::Char('q')) => Wish::Quit,
            (_, Key::Char('1')) => self.go(Page::Inbox),
            (_, Key::Char('2')) => self.go(Page::Calls),
            (_, Key::Char('3')) => self.go(Page::Grants),
            (_, Key::Char('4')) => self.go(Page::Runs),
            (_, Key::Up | Key::Char('k')) => self.move_by(-1),
            (_, Key::Down | Key::Char('j')) => self.move_by(1),
            (_, Key::PageUp) => self.move_by(-10),
            (_, Key::PageDown | Key::Char(' ')) => self.move_by(10),
            (_, Key::Enter | Key::Char('o')) => self.open(),
            (Page::Grants, Key::Char('x')) => self.revoke(),
            (Page::Run, Key::Char('x')) => Wish::EndRun(self.open_run["run"].as_str().unwrap_or("").to_owned()),
            (Page::Inbox, Key::Char(key)) if Choice::of(key).is_some() || matches!(key, 'n' | 'N') => {
                self.note = Some("open it first (Enter), and read it to its end".to_owned());
                Wish::Nothing
            }
            _ => {
                self.note = Some("? shows the keys".to_owned());
                Wish::Nothing
            }
        }
    }

    fn on_approval(&mut self, key: Key, at: Instant) -> Wish {
        let Some(opened) = &mut self.opened else { return self.go(Page::Inbox) };
        let page = isize::try_from(opened.rows).unwrap_or(10).max(2) - 1;
        match key {
            Key::Escape | Key::Char('q' | 'l') => return self.go(Page::Inbox),
            Key::Up | Key::Char('k') => opened.scroll(-1),
            Key::Down | Key::Char('j') => opened.scroll(1),
            Key::PageUp => opened.scroll(-page),
            Key::PageDown | Key::Char(' ') => opened.scroll(page),
            Key::Home => opened.scroll(isize::MIN),
            Key::End | Key::Char('G') => opened.scroll(isize::MAX),
            Key::Char('d') => {
                opened.details = !opened.details;
                opened.changed();
            }
            Key::Enter => self.note = Some("Enter answers nothing".to_owned()),
            Key::Char('n') => return self.begin(LineKind::Reason { standing: false }),
            Key::Char('N') => return self.begin(LineKind::Reason { standing: true }),
            Key::Char(key) => match Choice::of(key) {
                Some(choice) => self.note = opened.arm(choice, at).err(),
                None => self.note = Some("? shows the keys".to_owned()),
            },
            _ => {}
        }
        Wish::Nothing
    }

    fn begin(&mut self, kind: LineKind) -> Wish {
        let text = if kind == LineKind::Filter { self.filter.clone() } else { String::new() };
        self.line = Some(Line { kind, text });
        Wish::Nothing
    }

    fn edit(&mut self, keys: &[Key]) -> Wish {
        for key in keys {
            let Some(line) = &mut self.line else { return Wish::Nothing };
            match key {
                Key::Char(c) if line.text.chars().count() < 1000 => line.text.push(*c),
                Key::Backspace => drop(line.text.pop()),
                Key::Escape | Key::Quit => self.line = None,
                Key::Enter => return self.enter(),
                _ => {}
            }
            if let Some(Line { kind: LineKind::Filter, text }) = &self.line {
                self.filter.clone_from(text);
            }
        }
        Wish::Nothing
    }

    fn enter(&mut self) -> Wish {
        let Some(Line { kind, text }) = self.line.take() else { return Wish::Nothing };
        match kind {
            LineKind::Filter => Wish::Nothing,
            LineKind::Reason { standing } => {
                self.opened.as_ref().map_or(Wish::Nothing, |opened| opened.deny(standing, text))
            }
            LineKind::Command => match text.trim() {
                "q" | "quit" => Wish::Quit,
                "inbox" | "approvals" => self.go(Page::Inbox),
                "calls" => self.go(Page::Calls),
                "grants" => self.go(Page::Grants),
                "runs" => self.go(Page::Runs),
                "help" => self.go(Page::Help),
                other => {
                    self.note = Some(format!("there is no `{}`: inbox, calls, grants, runs, help, quit", safe(other)));
                    Wish::Nothing
                }
            },
        }
    }

    fn go(&mut self, page: Page) -> Wish {
        if self.page == Page::Call && page != Page::Call {
            self.page = page;
            return match page {
                Page::Calls => Wish::ListCalls,
                Page::Grants => Wish::ListGrants,
                Page::Runs => Wish::ListRuns,
                _ => Wish::Unfollow,
            };
        }
        // Back from the help, the approval is read from its beginning.
        if page != Page::Approval && page != Page::Help {
            self.opened = None;
        }
        if let Some(opened) = &mut self.opened {
            opened.changed();
        }
        self.page = match (page, &self.opened) {
            (Page::Inbox, _) | (Page::Approval, None) => Page::Inbox,
            (page, _) => page,
        };
        match page {
            Page::Calls => Wish::ListCalls,
            Page::Grants => Wish::ListGrants,
            Page::Runs => Wish::ListRuns,
            _ => Wish::Nothing,
        }
    }

    fn show_run(&self) -> Wish {
        self.open_run["run"].as_str().map_or(Wish::Nothing, |run| Wish::ShowRun(run.to_owned()))
    }

    /// The ids of what is listed on this page, in order, and whether each fits the filter was asked already.
    pub fn listed(&self) -> Vec<String> {
        let fits = |text: &str| self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase());
        match self.page {
            Page::Calls | Page::Call => {
                let text = |call: &Value| call["call_id"].as_str().unwrap_or("").to_owned();
                self.calls.iter().filter(|call| fits(&call.to_string())).map(text).collect()
            }
            Page::Grants => {
                let line =
                    |grant: &GrantRecord| format!("{} {} {}", grant.principal, grant.tool, grant.matcher.describe());
                self.grants.iter().filter(|grant| fits(&line(grant))).map(|grant| grant.grant_id.to_string()).collect()
            }
            Page::Runs | Page::Run => {
                let text = |run: &Value| run["run"].as_str().unwrap_or("").to_owned();
                self.runs.iter().filter(|run| fits(&run.to_string())).map(text).collect()
            }
            Page::Inbox | Page::Approval | Page::Help => {
                let line = |shown: &Shown| {
                    let review = &shown.review;
                    format!("{} {} {}", review.principal, review.tool, review.headline())
                };
                self.approvals.iter().filter(|(_, shown)| fits(&line(shown))).map(|(id, _)| id.clone()).collect()
            }
        }
    }

    fn list_name(&self) -> &'static str {
        match self.page {
            Page::Calls | Page::Call => "calls",
            Page::Grants => "grants",
            Page::Runs | Page::Run => "runs",
            Page::Inbox | Page::Approval | Page::Help => "inbox",
        }
    }

    /// The selected id on this page: the one that was, as long as it is there; else the first.
    pub fn selection(&self) -> Option<String> {
        let listed = self.listed();
        let kept = self.selected.get(self.list_name()).filter(|id| listed.contains(id)).cloned();
        kept.or_else(|| listed.into_iter().next())
    }

    fn move_by(&mut self, by: isize) -> Wish {
        let listed = self.listed();
        let Some(now) = self.selection() else { return Wish::Nothing };
        let at = listed.iter().position(|id| *id == now).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(listed.len().saturating_sub(1));
        if let Some(id) = listed.get(to) {
            self.selected.insert(self.list_name(), id.clone());
        }
        Wish::Nothing
    }

    fn open(&mut self) -> Wish {
        let Some(id) = self.selection() else { return Wish::Nothing };
        // What was shown as selected stays selected, also when others come before it.
        self.selected.insert(self.list_name(), id.clone());
        match self.page {
            Page::Inbox => {
                if let Some(shown) = self.approvals.get(&id) {
                    self.opened = Some(Opened::new(shown.clone()));
                    self.page = Page::Approval;
                }
                Wish::Nothing
            }
            Page::Calls => {
                let call = self.calls.iter().find(|call| call["call_id"] == id.as_str()).cloned().unwrap_or_default();
                self.open_call = OpenCall { call, ..OpenCall::default() };
                self.page = Page::Call;
                Wish::Follow(id)
            }
            Page::Runs => {
                let run = self.runs.iter().find(|run| run["run"] == id.as_str()).cloned().unwrap_or_default();
                (self.open_run, self.page) = (run, Page::Run);
                self.show_run()
            }
            _ => Wish::Nothing,
        }
    }

    fn revoke(&mut self) -> Wish {
        match self.selection().map(|id| id.parse()) {
            Some(Ok(grant)) => Wish::Revoke(grant),
            _ => Wish::Nothing,
        }
    }
}
