//! The screen as it is drawn: a title, one page, and a bar that says what keys do.

use super::app::{App, LineKind, Page};
use super::opened::Opened;
use crate::answering::Choice;
use crate::answering::gate::QUIET;
use crate::answering::screen::{cut, wrap};
use crate::output::{remaining, when};
use crate::review::StyledLine;
use crate::text::{pretty, safe, safe_lines};
use anstyle::{AnsiColor, Effects, Style as Ansi};
use palyra_protocol::{GrantEffect, Timestamp};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use serde_json::Value;
use std::time::Instant;

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const BAR: Style = Style::new().add_modifier(Modifier::REVERSED);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let [title, body, note, bar] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)])
            .areas(frame.area());
    put(frame, title, vec![Line::styled(title_of(app), TITLE)]);
    match app.page {
        Page::Inbox => list(frame, body, app, "nothing waits for you"),
        Page::Calls => list(frame, body, app, "no calls yet"),
        Page::Grants => list(frame, body, app, "no standing answers"),
        Page::Runs => list(frame, body, app, "no runs yet; `palyra run` starts one"),
        Page::Run => super::draw_run::run(frame, body, &app.open_run),
        Page::Approval => approval(frame, body, app),
        Page::Call => call(frame, body, app),
        Page::Help => put(frame, body, HELP.lines().map(Line::raw).collect()),
    }
    let columns = usize::from(bar.width);
    put(frame, note, vec![Line::raw(cut(&note_of(app), columns))]);
    put(frame, bar, vec![Line::styled(cut(&format!("{:columns$}", bar_of(app)), columns), BAR)]);
}

const HELP: &str =
    "Lists: j k or arrows move, Enter or o opens, / filters, : takes a command (inbox, calls, grants, runs, quit)
1 inbox   2 calls   3 grants   4 runs   q or Esc goes back, then quits

An opened approval, once its end was on screen:
  y  yes, this once                n  no, with a reason that the agent reads
  s  exactly this, for the session N  no, also when it is asked again in this session
  p  commands that begin alike     d  the whole input
  w  files under this directory    u  takes a yes back, within two seconds
  h  this host and method          l  later
Enter never allows. Keys typed before it appeared do not count.
Grants: x withdraws the selected one. An opened run: x ends it.";

pub fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

fn title_of(app: &App) -> String {
    let page = match app.page {
        Page::Inbox => "inbox",
        Page::Approval => "approval",
        Page::Calls => "calls",
        Page::Call => "call",
        Page::Grants => "grants",
        Page::Runs => "runs",
        Page::Run => "run",
        Page::Help => "keys",
    };
    let filter = if app.filter.is_empty() { String::new() } else { format!("  /{}", safe(&app.filter)) };
    format!("palyra  {page}  ({} waiting){filter}", app.approvals.len())
}

fn note_of(app: &App) -> String {
    if let Some(why) = &app.lost {
        return format!("the daemon cannot be reached: {}", safe(why));
    }
    app.note.as_deref().map(safe).unwrap_or_default()
}

fn bar_of(app: &App) -> String {
    if let Some(line) = &app.line {
        let name = match line.kind {
            LineKind::Filter => "/",
            LineKind::Command => ":",
            LineKind::Reason { standing: false } => "no, because (Enter sends, Esc goes back): ",
            LineKind::Reason { standing: true } => "no, for this session, because (Enter sends, Esc goes back): ",
        };
        return format!("{name}{}", safe(&line.text));
    }
    match (app.page, &app.opened) {
        (Page::Approval, Some(opened)) => approval_bar(opened),
        (Page::Inbox, _) => "Enter open  / filter  2 calls  3 grants  4 runs  ? keys  q quit".to_owned(),
        (Page::Calls, _) => "Enter open  / filter  1 inbox  3 grants  4 runs  ? keys  q back".to_owned(),
        (Page::Grants, _) => "x withdraw  / filter  1 inbox  2 calls  4 runs  ? keys  q back".to_owned(),
        (Page::Runs, _) => "Enter open  / filter  1 inbox  2 calls  3 grants  ? keys  q back".to_owned(),
        (Page::Run, _) => "x end it  1 inbox  2 calls  ? keys  q back".to_owned(),
        _ => "q back  ? keys".to_owned(),
    }
}

fn approval_bar(opened: &Opened) -> String {
    if let Some(armed) = &opened.armed {
        let key = armed.choice.key();
        let now = if armed.since.elapsed() < QUIET { String::new() } else { format!(", {key} sends it now") };
        return format!("yes, {}, in two seconds: u takes it back{now}", armed.choice.word());
    }
    if opened.gate.quiet_until() > Instant::now() {
        return "…".to_owned();
    }
    if !opened.gate.saw_end() {
        let left = opened.lines.saturating_sub(opened.top + opened.rows);
        return format!("{left} more lines: space shows them  n no  Esc back");
    }
    let fits = Choice::ALL.into_iter().filter(|choice| choice.fits(&opened.shown.review));
    let keys: Vec<_> = fits.map(|choice| format!("{} {}", choice.key(), choice.word())).collect();
    format!("{}  n no  N never  d details  ? keys  Esc back", keys.join("  "))
}

/// A list with its selection, which stays in view.
fn list(frame: &mut Frame<'_>, area: Rect, app: &App, empty: &str) {
    let (listed, selected) = (app.listed(), app.selection());
    if listed.is_empty() {
        return put(frame, area, vec![Line::styled(format!("  {empty}"), FAINT)]);
    }
    let rows = usize::from(area.height).max(1);
    let at = listed.iter().position(|id| Some(id) == selected.as_ref()).unwrap_or(0);
    let top = at.saturating_sub(rows.saturating_sub(1));
    let columns = usize::from(area.width);
    let lines = listed.iter().skip(top).take(rows).map(|id| {
        let text = cut(&format!(" {:columns$}", row(app, id, columns)), columns);
        if Some(id) == selected.as_ref() { Line::styled(text, SELECTED) } else { Line::raw(text) }
    });
    put(frame, area, lines.collect());
}

/// Below so many columns a row leaves out what the opened approval shows anyway.
const WIDE: usize = 72;

fn row(app: &App, id: &str, columns: usize) -> String {
    match app.page {
        Page::Calls => app.calls.iter().find(|call| call["call_id"] == id).map_or_else(String::new, call_row),
        Page::Runs => app.runs.iter().find(|run| run["run"] == id).map_or_else(String::new, super::draw_run::row),
        Page::Grants => {
            let grant = app.grants.iter().find(|grant| grant.grant_id.as_str() == id);
            grant.map_or_else(String::new, |grant| {
                let no = if grant.effect == GrantEffect::Deny { "no " } else { "yes" };
                let holds = match (grant.revoked_at, grant.expires_at) {
                    (Some(_), _) => "ended".to_owned(),
                    (None, Some(at)) => remaining(at),
                    (None, None) => "always".to_owned(),
                };
                let what = safe(&grant.matcher.describe());
                format!("{no} {holds:>7}  {:>4} uses  {}  {}: {what}", grant.uses, grant.principal, grant.tool)
            })
        }
        _ => app.approvals.get(id).map_or_else(String::new, |shown| {
            let review = &shown.review;
            if columns < WIDE {
                return format!("{:8} {}  {}", review.risk.to_string(), review.tool, review.headline());
            }
            let left = remaining(review.expires_at);
            format!(
                "{:8} {left:>7}  {}  {}  {}",
                review.risk.to_string(),
                review.principal,
                review.tool,
                review.headline()
            )
        }),
    }
}

fn call_row(call: &Value) -> String {
    let text = |key: &str| safe(call[key].as_str().unwrap_or(""));
    let at = call["at"].as_u64().map_or_else(String::new, |ms| when(Timestamp::from_unix_ms(ms)));
    format!("{at}  {:17} {}  {}  {}", text("state"), text("principal"), text("tool"), text("what"))
}

fn approval(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let Some(opened) = &mut app.opened else { return };
    let mut lines = crate::review::lines(&opened.shown.review);
    if opened.details {
        let plain = |text: &str| StyledLine { style: Ansi::new(), text: text.to_owned() };
        lines.push(plain("input, whole:"));
        lines.extend(pretty(&opened.shown.review.input).lines().map(plain));
    }
    let lines = wrap(&lines, usize::from(area.width));
    opened.drawn(lines.len(), usize::from(area.height));
    let shown = lines.iter().skip(opened.top).take(opened.rows);
    let shown: Vec<_> = shown.map(|line| Line::styled(line.text.as_str(), style(line.style))).collect();
    put(frame, area, shown);
}

/// A call: where it stands, and the end of what its process wrote.
fn call(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let open = &app.open_call;
    let mut text = vec![call_row(&open.call), format!("now {}", safe(&open.state))];
    if open.output.is_empty() && !open.outcome.is_null() {
        let outcome = &open.outcome["output"];
        let streams = [outcome["stdout"].as_str(), outcome["stderr"].as_str()];
        match streams {
            [None, None] => text.extend(pretty(&open.outcome).lines().map(str::to_owned)),
            streams => text.extend(
                streams
                    .into_iter()
                    .flatten()
                    .flat_map(|s| safe_lines(s).lines().map(str::to_owned).collect::<Vec<_>>()),
            ),
        }
    } else {
        text.extend(open.output.lines().map(str::to_owned));
    }
    let plain: Vec<_> =
        text.into_iter().map(|text| StyledLine { style: Ansi::new(), text: text.replace('\t', "    ") }).collect();
    let lines = wrap(&plain, usize::from(area.width));
    let rows = usize::from(area.height);
    // The head, and then the newest of what there is room for.
    let head = lines.len().min(2);
    let from = lines.len().saturating_sub(rows.saturating_sub(head)).max(head);
    let shown = lines.iter().take(head).chain(lines.iter().skip(from));
    put(frame, area, shown.map(|line| Line::raw(line.text.clone())).collect());
}

fn style(style: Ansi) -> Style {
    let mut shown = Style::new();
    if let Some(anstyle::Color::Ansi(colour)) = style.get_fg_color() {
        shown = shown.fg(match colour {
            AnsiColor::Green => Color::Green,
            AnsiColor::Red => Color::Red,
            AnsiColor::Yellow => Color::Yellow,
            AnsiColor::Cyan => Color::Cyan,
            _ => Color::Reset,
        });
    }
    if style.get_effects().contains(Effects::BOLD) {
        shown = shown.add_modifier(Modifier::BOLD);
    }
    if style.get_effects().contains(Effects::DIMMED) {
        shown = shown.add_modifier(Modifier::DIM);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answering::Shown;
    use palyra_protocol::review::every_fact;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The record that belongs to a review; the tests look at the review alone.
    fn opened() -> Option<Opened> {
        let review = every_fact();
        let record = serde_json::json!({
            "approval_id": review.approval_id, "call_id": review.call_id, "subject_id": "tool:x", "tool": review.tool,
            "call_digest": review.digest, "decision_id": palyra_protocol::DecisionId::mint(), "policy_hash": review.policy_hash,
            "risk": review.risk, "principal": review.principal, "proposed_by": review.proposed_by, "session": review.session,
            "input": review.input, "facets": {}, "why": "", "requested_at": review.requested_at,
            "expires_at": review.expires_at, "state": "pending",
        });
        Some(Opened::new(Shown { record: serde_json::from_value(record).unwrap(), review }))
    }

    #[test]
    fn the_screen_shows_every_fact_by_its_end() {
        let mut app = App::new();
        (app.page, app.opened) = (Page::Approval, opened());
        let mut terminal = Terminal::new(TestBackend::new(200, 300)).unwrap();
        terminal.draw(|frame| draw(frame, &mut app)).unwrap();
        let screen = terminal.backend().to_string();
        for row in every_fact().rows() {
            // Ids are minted anew each time.
            for fact in row.texts().filter(|fact| !fact.contains('_') && fact.len() < 120) {
                assert!(screen.contains(fact), "`{fact}` is not on the screen:\n{screen}");
            }
        }
        assert!(app.opened.as_ref().is_some_and(|opened| opened.gate.saw_end()));
        let mut small = Terminal::new(TestBackend::new(40, 12)).unwrap();
        (app.page, app.opened) = (Page::Approval, opened());
        small.draw(|frame| draw(frame, &mut app)).unwrap();
        assert!(!app.opened.as_ref().is_some_and(|opened| opened.gate.saw_end()));
    }
}
