//! The approval that is opened: how far it was read, and the answer that is on its way.

use super::app::Wish;
use crate::answering::gate::{ARMED, QUIET};
use crate::answering::{Choice, Gate, Key, Shown, Typed};
use palyra_protocol::{ApprovalScope, GrantMatcher};
use std::time::Instant;

/// A yes that is not sent yet.
#[derive(Debug)]
pub struct Armed {
    pub choice: Choice,
    answer: (ApprovalScope, GrantMatcher),
    pub since: Instant,
}

/// The approval on screen.
#[derive(Debug)]
pub struct Opened {
    pub shown: Shown,
    pub gate: Gate,
    /// The first line on screen.
    pub top: usize,
    /// How many lines there are, and how many fit; as they were drawn last.
    pub lines: usize,
    pub rows: usize,
    /// Whether it was drawn since it was opened or changed.
    pub fresh: bool,
    pub armed: Option<Armed>,
    /// Whether the whole input is shown.
    pub details: bool,
}

impl Opened {
    pub fn new(shown: Shown) -> Self {
        let gate = Gate::new(Instant::now());
        Self { shown, gate, top: 0, lines: 0, rows: 0, fresh: true, armed: None, details: false }
    }

    /// It is another now, or looks otherwise: it has to be read again.
    pub fn changed(&mut self) {
        (self.top, self.fresh, self.armed) = (0, true, None);
        self.gate.changed(Instant::now());
    }

    /// It was drawn with so many lines, of which so many fit.
    pub fn drawn(&mut self, lines: usize, rows: usize) {
        (self.lines, self.rows) = (lines, rows);
        self.top = self.top.min(lines.saturating_sub(rows));
        if self.top + rows >= lines {
            self.gate.end_shown();
        }
    }

    pub fn scroll(&mut self, by: isize) {
        let most = self.lines.saturating_sub(self.rows);
        self.top = self.top.saturating_add_signed(by).min(most);
    }

    /// When something happens by itself next.
    pub fn moment(&self) -> Option<Instant> {
        let quiet = Some(self.gate.quiet_until()).filter(|until| *until > Instant::now());
        let armed = self.armed.as_ref().map(|armed| armed.since);
        armed.map(|since| if since.elapsed() < QUIET { since + QUIET } else { since + ARMED }).or(quiet)
    }

    /// Sends the yes whose time is over.
    pub fn time(&mut self) -> Wish {
        match &self.armed {
            Some(armed) if armed.since.elapsed() >= ARMED => self.send(),
            _ => Wish::Nothing,
        }
    }

    fn send(&mut self) -> Wish {
        let Some(Armed { answer, .. }) = self.armed.take() else { return Wish::Nothing };
        Wish::Send { review: Box::new(self.shown.review.clone()), allow: true, answer, reason: String::new() }
    }

    /// Arms a yes.
    pub fn arm(&mut self, choice: Choice, since: Instant) -> Result<(), String> {
        self.gate.may_allow([&self.shown.review])?;
        let answer = choice.answer(&self.shown.review)?;
        self.armed = Some(Armed { choice, answer, since });
        Ok(())
    }

    /// A no.
    pub fn deny(&self, standing: bool, reason: String) -> Wish {
        let scope = if standing { ApprovalScope::Session } else { ApprovalScope::Once };
        let answer = (scope, GrantMatcher::ExactCall);
        Wish::Send { review: Box::new(self.shown.review.clone()), allow: false, answer, reason }
    }

    /// What a key does while a yes is armed.
    pub fn while_armed(&mut self, typed: &Typed, note: &mut Option<String>) -> Wish {
        let Some(armed) = &self.armed else { return Wish::Nothing };
        if typed.keys.iter().any(|key| matches!(key, Key::Char('u') | Key::Escape | Key::Quit)) {
            self.armed = None;
            *note = Some("taken back; nothing was answered".to_owned());
            return Wish::TakeBack(Box::new(self.shown.review.clone()));
        }
        if typed.only() == Some(Key::Char(armed.choice.key())) && typed.at >= armed.since + QUIET {
            return self.send();
        }
        Wish::Nothing
    }
}
