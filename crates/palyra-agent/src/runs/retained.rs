//! Texts that a model has the memory keep: only the memory holds them, so that forgetting destroys them.
//!
//! An answer is recorded before its calls are proposed. Where one of them retains a text, the record says so in the
//! text's place. A run that is carried on from such a record does not propose that call: the text is not there.

use super::Runs;
use super::carry_on::ActiveRun;
use crate::reply::ModelReply;
use palyra_engine::tools::MEMORY_RETAIN;
use serde_json::Value;

/// What stands in a record in place of a text.
const WITHHELD: &str = "[withheld: only the memory holds this text]";

impl Runs {
    /// An answer as the journal keeps it.
    pub(super) fn as_recorded(&self, active: &ActiveRun, reply: &ModelReply) -> ModelReply {
        let mut recorded = reply.clone();
        for call in &mut recorded.tool_calls {
            if self.canonical(&active.opened.tools, &call.name).as_deref() == Some(MEMORY_RETAIN) {
                call.arguments = withheld(&call.arguments);
            }
        }
        recorded
    }
}

/// Arguments without their text. What is no JSON is no call that retains anything, and is not kept either.
fn withheld(arguments: &str) -> String {
    let input: Option<serde_json::Map<String, Value>> = serde_json::from_str(arguments).ok();
    let mut input = input.unwrap_or_default();
    input.insert("text".to_owned(), WITHHELD.into());
    Value::Object(input).to_string()
}

/// Whether the arguments of a call are from such a record.
pub(super) fn is_withheld(tool: &str, arguments: &str) -> bool {
    let text = || serde_json::from_str::<Value>(arguments).ok()?.get("text")?.as_str().map(|text| text == WITHHELD);
    tool == MEMORY_RETAIN && text().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_left_in_a_record_and_the_record_is_known_by_that() {
        for arguments in [r#"{"text":"the code is 4711","scope":"workspace"}"#, "the code is 4711", r#""4711""#] {
            let recorded = withheld(arguments);
            assert!(!recorded.contains("4711"), "{recorded}");
            assert!(!is_withheld(MEMORY_RETAIN, arguments) && !is_withheld("palyra.echo", &recorded));
        }
        let recorded = withheld(r#"{"text":"4711","scope":"workspace"}"#);
        assert!(is_withheld(MEMORY_RETAIN, &recorded) && recorded.contains("workspace"));
    }
}
