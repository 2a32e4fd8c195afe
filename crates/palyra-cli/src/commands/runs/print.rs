//! Runs for people to read.

use crate::exit::{CANCELLED, DENIED, FAILED, Failure, INDETERMINATE};
use crate::output::{self, BAD, BOLD, DIM, note, say, styled, when};
use crate::text::{safe, safe_lines};
use palyra_protocol::Timestamp;
use serde_json::Value;

fn text(value: &Value) -> String {
    safe(value.as_str().unwrap_or_default())
}

pub(super) fn list(runs: &[Value]) {
    if runs.is_empty() {
        note!("no runs; `palyra run \"…\"` starts one");
        return;
    }
    let rows = runs.iter().map(|run| {
        let at = Timestamp::from_unix_ms(run["opened_at_unix_ms"].as_u64().unwrap_or(0));
        let about = run["input"][0]["parts"][0]["text"].as_str().unwrap_or_default();
        let about: String = about.chars().take(48).collect();
        vec![
            text(&run["run"]),
            when(at),
            text(&run["state"]),
            text(&run["principal"]),
            text(&run["model"]),
            safe(&about),
        ]
    });
    output::table(&["RUN", "BEGUN", "STATE", "FOR", "MODEL", "ABOUT"], &rows.collect::<Vec<_>>());
}

pub(super) fn show(run: &Value) {
    let spent = &run["spent"];
    say!("{}  {}  {}", styled(BOLD, text(&run["run"])), text(&run["state"]), styled(DIM, text(&run["model"])));
    say!("{} {}  {} {}", styled(DIM, "session"), text(&run["session"]), styled(DIM, "for"), text(&run["principal"]));
    for message in run["input"].as_array().into_iter().flatten() {
        for part in message["parts"].as_array().into_iter().flatten() {
            say!("{} {}", styled(BOLD, format!("{}:", text(&message["role"]))), lines(&part["text"]));
        }
    }
    for turn in run["turns"].as_array().into_iter().flatten() {
        if !turn["reply"]["text"].as_str().unwrap_or_default().is_empty() {
            say!("{} {}", styled(BOLD, "model:"), lines(&turn["reply"]["text"]));
        }
        for call in turn["reply"]["tool_calls"].as_array().into_iter().flatten() {
            say!("{} {} {}", styled(DIM, "→"), text(&call["name"]), styled(DIM, text(&call["arguments"])));
        }
        for result in turn["results"].as_array().into_iter().flatten() {
            let mark = if result["is_error"] == true { styled(BAD, "✘") } else { styled(DIM, "←") };
            let content: String = result["content"].as_str().unwrap_or_default().chars().take(400).collect();
            say!("{mark} {} {}", text(&result["call_id"]), safe(&content));
        }
    }
    let number = |name: &str| spent[name].as_u64().unwrap_or(0);
    say!(
        "{} {} of {} calls, {} of {} calls to the model, {} of {} tokens, {} of {} s",
        styled(DIM, "used"),
        number("calls"),
        run["budget"]["calls"],
        number("model_calls"),
        run["budget"]["model_calls"],
        number("input_tokens") + number("output_tokens"),
        run["budget"]["tokens"],
        number("active_ms") / 1000,
        run["budget"]["seconds"],
    );
    if let Some(message) = run["problem"]["message"].as_str() {
        say!("{} {}", styled(BAD, "why"), safe(message));
    }
}

fn lines(value: &Value) -> String {
    safe_lines(value.as_str().unwrap_or_default())
}

/// How a run that has ended ends this program; nothing where it completed.
pub(super) fn ended(state: &str, problem: &Value) -> Option<Failure> {
    let exit = match state {
        "completed" | "caller_tools" => return None,
        "cancelled" => CANCELLED,
        "over_budget" => DENIED,
        "indeterminate" => INDETERMINATE,
        _ => FAILED,
    };
    let code = problem["code"].as_str().unwrap_or(state);
    let message = problem["message"].as_str().map_or_else(|| format!("the run is {state}"), str::to_owned);
    Some(Failure::new(exit, code, message, problem["hint"].as_str()))
}
