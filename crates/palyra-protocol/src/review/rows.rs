//! A review as rows of text, the same for every screen.

use super::text::{people, replayed, resolution, speaker};
use super::{Offer, Review, ReviewedChange, ReviewedCommand, ReviewedNetwork, ReviewedRule};
use crate::clock::Timestamp;
use crate::display::{safe, safe_lines};
use crate::facets::quote_words;
use crate::subject::ApprovalSubject;
use serde::Serialize;
use serde_json::Value;

/// One row of a review. All text in it is safe to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// What it is about, on one line.
    Headline(String),
    /// A fact with its name.
    Fact {
        /// The name, of at most 12 characters.
        name: &'static str,
        /// The fact.
        value: String,
    },
    /// A time with its name. A screen shows it in its own zone, or by [`super::utc`].
    Time {
        /// The name.
        name: &'static str,
        /// The time.
        at: Timestamp,
    },
    /// Lines that belong together.
    Block {
        /// What they are.
        name: &'static str,
        /// The lines.
        lines: Vec<Line>,
    },
}

/// One line of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// How it reads.
    pub kind: LineKind,
    /// The text, without a line end.
    pub text: String,
}

/// How a line reads; a screen may colour it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// Nothing special.
    Plain,
    /// It would be added.
    Added,
    /// It would be removed.
    Removed,
    /// It says where.
    Place,
    /// It warns.
    Warning,
}

impl Row {
    /// The texts that a screen has to show, none of which it may leave out.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let (first, second, lines): (&str, &str, &[Line]) = match self {
            Self::Headline(text) => (text, "", &[]),
            Self::Fact { name, value } => (name, value, &[]),
            Self::Time { name, at: _ } => (name, "", &[]),
            Self::Block { name, lines } => (name, "", lines),
        };
        [first, second].into_iter().chain(lines.iter().map(|line| line.text.as_str())).filter(|text| !text.is_empty())
    }
}

/// Rows on their way.
#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    fn fact(&mut self, name: &'static str, value: Option<String>) {
        self.0.extend(value.filter(|value| !value.is_empty()).map(|value| Row::Fact { name, value }));
    }

    fn list(&mut self, name: &'static str, list: &[String]) {
        self.fact(name, Some(list.iter().map(|item| safe(item)).collect::<Vec<_>>().join(", ")));
    }

    fn block(&mut self, name: &'static str, lines: Vec<Line>) {
        if !lines.is_empty() {
            self.0.push(Row::Block { name, lines });
        }
    }
}

impl Review {
    /// The review as rows. Each field is taken out by name, so that a new one cannot be left out unseen.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let Self {
            approval_id,
            call_id,
            subject,
            tool,
            risk,
            principal,
            proposed_by,
            token,
            session,
            command,
            reads,
            reads_below,
            writes,
            network,
            secrets,
            containment,
            by_client,
            skill,
            changes,
            input,
            why,
            rules,
            offers,
            people: _,
            fresh: _,
            given: _,
            requested_at,
            expires_at,
            state,
            resolution: end,
            digest,
            policy_hash,
        } = self;
        let mut rows = Rows(vec![Row::Headline(self.headline())]);
        rows.fact("tool", Some(safe(tool.as_str())));
        rows.fact("risk", Some(risk.to_string()));
        if let Some(command) = command {
            command.rows(&mut rows);
        }
        rows.list("reads", reads);
        rows.list("reads below", reads_below);
        rows.list("writes", writes);
        rows.fact("contacts", network.as_ref().map(ReviewedNetwork::text));
        rows.list("secrets", secrets);
        rows.fact("held by", containment.as_ref().map(|held| safe(&held.describe())));
        rows.fact("held by", by_client.then(|| BY_CLIENT.to_owned()));
        rows.fact("skill", skill.as_deref().map(safe));
        rows.fact("for", Some(principal.to_string()));
        let plain = proposed_by == principal && token.is_none();
        rows.fact("proposed by", (!plain).then(|| speaker(proposed_by, token.as_ref())));
        rows.fact("why", Some(safe(why)));
        rows.fact("needs", people(self));
        for change in changes {
            rows.block("change", change.lines());
        }
        // What waits of effects is the change above.
        let detail = subject.detail().filter(|_| !matches!(subject, ApprovalSubject::Effects(_)));
        rows.block(subject.kind(), detail.iter().flat_map(|detail| plain_lines(detail)).collect());
        rows.block("input", input_lines(input, changes));
        rows.fact("session", Some(session.to_string()));
        rows.0.push(Row::Time { name: "asked", at: *requested_at });
        rows.0.push(Row::Time { name: "expires", at: *expires_at });
        rows.fact("state", Some(end.as_ref().map_or_else(|| state.as_str().to_owned(), |end| resolution(*state, end))));
        rows.fact("approval", Some(approval_id.to_string()));
        rows.fact("call", subject.is_call().then(|| call_id.to_string()));
        rows.fact("digest", Some(digest.to_string()));
        rows.fact("policy", Some(policy_hash.to_string()));
        rows.block("rule", rules.iter().flat_map(ReviewedRule::lines).collect());
        rows.block("grants", offers.iter().flat_map(Offer::lines).collect());
        rows.0
    }
}

impl ReviewedCommand {
    fn rows(&self, rows: &mut Rows) {
        let Self { argv, parts, programs, directory, sets, fed } = self;
        // The headline may be about something else.
        rows.fact("command", Some(safe(&quote_words(argv))));
        let parts =
            parts.iter().map(|part| line(LineKind::Plain, safe(&format!("{:2} {}", part.joined_by, part.text))));
        rows.block("parts", parts.collect());
        rows.list("runs", programs);
        rows.fact("in", directory.as_deref().map(safe));
        rows.list("sets", sets);
        rows.fact("feeds", fed.then(|| "standard input".to_owned()));
    }
}

impl ReviewedNetwork {
    fn text(&self) -> String {
        let Self { method, hosts, follows_redirects } = self;
        let hosts = hosts.iter().map(|host| safe(host)).collect::<Vec<_>>().join(", ");
        let method = method.as_ref().map_or_else(String::new, |method| format!("{} ", safe(method)));
        let further = if *follows_redirects { "; redirects to allowed hosts are followed" } else { "" };
        format!("{method}{hosts}{further}")
    }
}

impl ReviewedRule {
    fn lines(&self) -> Vec<Line> {
        let Self { id, text } = self;
        let place = line(LineKind::Place, safe(id));
        // On one line, which a screen breaks by its width; a comment would run into what follows it.
        let text = if text.contains("//") {
            safe_lines(text)
        } else {
            safe_lines(&text.lines().map(str::trim).collect::<Vec<_>>().join(" "))
        };
        std::iter::once(place).chain(plain_lines(&text)).collect()
    }
}

impl ReviewedChange {
    fn lines(&self) -> Vec<Line> {
        let Self { paths, diff, cut, note, shows: _ } = self;
        let paths = paths.iter().map(|path| safe(path)).collect::<Vec<_>>().join(", ");
        let mut lines = vec![line(LineKind::Place, paths)];
        lines.extend(diff.iter().flat_map(|diff| diff_lines(diff)));
        lines.extend(note.as_ref().map(|note| line(LineKind::Warning, safe(note))));
        if *cut && note.is_none() {
            lines.push(line(LineKind::Warning, "this is not all of it".to_owned()));
        }
        lines
    }
}

impl Offer {
    fn lines(&self) -> Vec<Line> {
        let Self { matcher, scope, replay } = self;
        let kept = super::text::scope(*scope);
        let would = replay.as_ref().map_or_else(String::new, |replay| format!(" ({})", replayed(replay)));
        let mut lines = vec![line(LineKind::Plain, format!("{kept}: {}{would}", safe(&matcher.describe())))];
        let Some(replay) = replay else { return lines };
        let denied = replay.denied_examples.iter();
        lines.extend(denied.map(|example| line(LineKind::Warning, format!("    denied: {}", safe(example)))));
        lines
    }
}

fn line(kind: LineKind, text: String) -> Line {
    Line { kind, text }
}

/// Lines of a text that is safe already.
fn plain_lines(text: &str) -> Vec<Line> {
    text.lines().map(|text| line(LineKind::Plain, text.replace('\t', "    "))).collect()
}

/// The lines of a unified difference, each of its kind and safe to show.
#[must_use]
pub fn diff_lines(diff: &str) -> Vec<Line> {
    diff.lines().map(diff_line).collect()
}

fn diff_line(text: &str) -> Line {
    let kind = match text.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] | [b'@', b'@', ..] => LineKind::Place,
        [b'd', b'i', b'f', b'f', b' ', ..] | [b'i', b'n', b'd', b'e', b'x', b' ', ..] => LineKind::Place,
        [b'+', ..] => LineKind::Added,
        [b'-', ..] => LineKind::Removed,
        [b'\\', ..] => LineKind::Warning,
        _ => LineKind::Plain,
    };
    // A tab is as wide as the screen likes; four spaces are not.
    line(kind, safe_lines(text).replace('\t', "    "))
}

/// What holds a call that the client carries out.
const BY_CLIENT: &str = "nothing of Palyra's: the client does it with its own rights, and it cannot be undone here";

/// The longest input that is shown on one line.
const SHORT_INPUT: usize = 100;

/// The input, indented where it is long, without the fields that a difference shows whole.
fn input_lines(input: &Value, changes: &[ReviewedChange]) -> Vec<Line> {
    let mut input = input.clone();
    let shown = changes.iter().filter(|change| change.diff.is_some() && !change.cut).filter_map(|c| c.shows.as_deref());
    for field in shown {
        if let Some(value) = input.get_mut(field) {
            *value = Value::String("(the change above)".to_owned());
        }
    }
    if input.is_null() {
        return Vec::new();
    }
    let short = Some(input.to_string()).filter(|text| text.len() <= SHORT_INPUT);
    let text = short.or_else(|| serde_json::to_string_pretty(&input).ok()).unwrap_or_else(|| input.to_string());
    plain_lines(&safe_lines(&text))
}
