//! Runs on the full screen: a line for the list, and the transcript with its calls.

use super::draw::put;
use crate::answering::screen::wrap;
use crate::output::when;
use crate::review::StyledLine;
use crate::text::{safe, safe_lines};
use anstyle::Style as Ansi;
use palyra_protocol::Timestamp;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use serde_json::Value;

/// How much of one text is shown; `palyra runs show` has all of it.
const MOST_TEXT: usize = 4_000;

fn text(value: &Value) -> String {
    safe(value.as_str().unwrap_or_default())
}

fn long(value: &Value) -> String {
    safe_lines(&value.as_str().unwrap_or_default().chars().take(MOST_TEXT).collect::<String>())
}

/// What a run is about: the first thing that was said.
fn about(run: &Value) -> String {
    text(&run["input"][0]["parts"][0]["text"])
}

pub fn row(run: &Value) -> String {
    let at = when(Timestamp::from_unix_ms(run["opened_at_unix_ms"].as_u64().unwrap_or(0)));
    format!("{at}  {:12} {}  {}  {}", text(&run["state"]), text(&run["principal"]), text(&run["model"]), about(run))
}

/// The head, and then the newest of the transcript that there is room for.
pub fn run(frame: &mut Frame<'_>, area: Rect, run: &Value) {
    let plain = |text: String| StyledLine { style: Ansi::new(), text: text.replace('\t', "    ") };
    let lines: Vec<_> = transcript(run).into_iter().map(plain).collect();
    let lines = wrap(&lines, usize::from(area.width));
    let (rows, head) = (usize::from(area.height), lines.len().min(2));
    let from = lines.len().saturating_sub(rows.saturating_sub(head)).max(head);
    let shown = lines.iter().take(head).chain(lines.iter().skip(from));
    put(frame, area, shown.map(|line| Line::raw(line.text.clone())).collect());
}

fn transcript(run: &Value) -> Vec<String> {
    let number = |name: &str| run["spent"][name].as_u64().unwrap_or(0);
    let mut lines = vec![
        row(run),
        format!("{} calls, {} tokens", number("calls"), number("input_tokens") + number("output_tokens")),
    ];
    let mut say = |who: &str, words: &Value| {
        let words = long(words);
        lines.extend(
            words.lines().enumerate().map(
                |(at, line)| {
                    if at == 0 { format!("{who}: {line}") } else { format!("  {line}") }
                },
            ),
        );
    };
    for message in run["input"].as_array().into_iter().flatten() {
        for part in message["parts"].as_array().into_iter().flatten() {
            say(&text(&message["role"]), &part["text"]);
        }
    }
    for turn in run["turns"].as_array().into_iter().flatten() {
        say("model", &turn["reply"]["text"]);
        for call in turn["reply"]["tool_calls"].as_array().into_iter().flatten() {
            say(&format!("→ {}", text(&call["name"])), &call["arguments"]);
        }
        for result in turn["results"].as_array().into_iter().flatten() {
            let state = result["state"].as_str().unwrap_or("refused");
            say(&format!("← {} {}", safe(state), text(&result["call_id"])), &result["content"]);
        }
    }
    if run["problem"].is_object() {
        say("ended", &run["problem"]["message"]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_transcript_has_every_part_and_nothing_that_deceives() {
        let run = json!({
            "run": "run_1", "state": "failed", "principal": "user:local", "model": "m", "opened_at_unix_ms": 1,
            "input": [{ "role": "user", "parts": [{ "type": "text", "text": "mend\u{1b}[2J it" }] }],
            "turns": [{
                "reply": { "text": "first\nsecond", "tool_calls": [{ "name": "fs_write", "arguments": "{\u{202e}}" }] },
                "results": [{ "state": "denied", "call_id": "call_1", "content": "no" }],
            }],
            "problem": { "message": "over" }, "spent": { "calls": 1 },
        });
        let lines = transcript(&run).join("\n");
        for part in ["user: mend", "model: first", "  second", "→ fs_write", "← denied call_1: no", "ended: over"] {
            assert!(lines.contains(part), "`{part}` is not in:\n{lines}");
        }
        assert!(!lines.contains('\u{1b}') && !lines.contains('\u{202e}'));
    }
}
