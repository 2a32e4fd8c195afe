//! Every dialect: a stream as providers send it, and streams that no honest provider sends.

use super::*;
use crate::client::Usage;
use crate::conversation::{Part, Role};
use crate::reply::{FinishReason, ModelReply};
use serde_json::json;

const CHAT: &[&str] = &[
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"Let me "}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"look."}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"fs_read","arguments":""}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"pa"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"echo","arguments":"{}"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"th\":\"a\"}"}}]}}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}"#,
    "[DONE]",
];

const RESPONSES: &[&str] = &[
    r#"{"type":"response.created","response":{"id":"r"}}"#,
    r#"{"type":"response.output_text.delta","output_index":0,"delta":"Let me "}"#,
    r#"{"type":"response.output_text.delta","output_index":0,"delta":"look."}"#,
    r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c1","name":"fs_read","arguments":""}}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"path\":"}"#,
    r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"c2","name":"echo","arguments":""}}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"\"a\"}"}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{}"}"#,
    r#"{"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":5}}}"#,
];

const MESSAGES: &[&str] = &[
    r#"{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Let me look."}}"#,
    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"fs_read","input":{}}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"a\"}"}}"#,
    r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c2","name":"echo","input":{}}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}"#,
    r#"{"type":"message_stop"}"#,
];

const ALL: [(Dialect, &[&str]); 3] =
    [(Dialect::ChatCompletions, CHAT), (Dialect::Responses, RESPONSES), (Dialect::Messages, MESSAGES)];

fn read(dialect: Dialect, events: &[&str]) -> Result<(ModelReply, bool), String> {
    let mut decoder = dialect.decoder();
    let mut reply = ModelReply::default();
    for data in events {
        let event = SseEvent { event: String::new(), data: (*data).to_owned() };
        for piece in decoder.take(&event).map_err(|e| e.to_string())? {
            reply.take(&piece).map_err(|e| e.to_string())?;
        }
    }
    Ok((reply, decoder.is_done()))
}

#[test]
fn every_dialect_says_the_same() {
    for (dialect, events) in ALL {
        let (reply, done) = read(dialect, events).unwrap();
        assert!(done, "{dialect:?}");
        assert_eq!(reply.text, "Let me look.", "{dialect:?}");
        let calls: Vec<_> = reply.tool_calls.iter().map(|c| (&*c.id, &*c.name, &*c.arguments)).collect();
        assert_eq!(calls, [("c1", "fs_read", "{\"path\":\"a\"}"), ("c2", "echo", "{}")], "{dialect:?}");
        assert_eq!(reply.finish, Some(FinishReason::ToolCalls), "{dialect:?}");
        assert_eq!(reply.usage, Usage { input: 7, output: 5 }, "{dialect:?}");
    }
}

#[test]
fn a_stream_that_stops_early_is_not_done() {
    for (dialect, events) in ALL {
        let (_, done) = read(dialect, &events[..events.len() - 3]).unwrap();
        assert!(!done, "{dialect:?}");
    }
}

#[test]
fn what_is_no_answer_is_refused() {
    for (dialect, event) in [
        (Dialect::ChatCompletions, r#"{"error":{"message":"overloaded"}}"#),
        (
            Dialect::ChatCompletions,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}}]}"#,
        ),
        (Dialect::ChatCompletions, "not json"),
        (Dialect::Responses, r#"{"type":"response.failed","response":{"error":{"message":"overloaded"}}}"#),
        (Dialect::Responses, r#"{"type":"error","message":"overloaded"}"#),
        (Dialect::Responses, r#"{"type":"response.function_call_arguments.delta","output_index":9,"delta":"x"}"#),
        (Dialect::Responses, r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"x"}}"#),
        (Dialect::Messages, r#"{"type":"error","error":{"message":"overloaded"}}"#),
        (
            Dialect::Messages,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"x"}}"#,
        ),
    ] {
        assert!(read(dialect, &[event]).is_err(), "{event}");
    }
    let many: Vec<String> = (0..200)
        .map(|n| {
            format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{n},"id":"c","function":{{"name":"x"}}}}]}}}}]}}"#
            )
        })
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(read(Dialect::ChatCompletions, &many).unwrap_err().contains("128"));
}

#[test]
fn requests_are_written_as_providers_want_them() {
    let request = ModelRequest {
        model: "m".to_owned(),
        messages: vec![
            Message::text(Role::System, "be brief"),
            Message::text(Role::User, "read a"),
            Message {
                role: Role::Assistant,
                parts: vec![
                    Part::Text { text: "ok".to_owned() },
                    Part::ToolCall {
                        id: "c1".to_owned(),
                        name: "fs_read".to_owned(),
                        arguments: "{\"path\":\"a\"}".to_owned(),
                    },
                ],
            },
            Message {
                role: Role::Tool,
                parts: vec![Part::ToolResult { id: "c1".to_owned(), content: "denied".to_owned(), is_error: true }],
            },
        ],
        tools: vec![ToolSpec {
            name: "fs_read".to_owned(),
            description: "reads".to_owned(),
            parameters: json!({"type":"object"}),
        }],
        settings: ModelSettings { max_tokens: Some(100), ..ModelSettings::default() },
    };
    let chat = Dialect::ChatCompletions.encode(&request);
    assert_eq!(chat["messages"][2]["tool_calls"][0]["function"]["arguments"], "{\"path\":\"a\"}");
    assert_eq!(chat["messages"][3], json!({ "role": "tool", "tool_call_id": "c1", "content": "denied" }));
    assert_eq!(chat["tools"][0]["function"]["name"], "fs_read");
    let responses = Dialect::Responses.encode(&request);
    let kinds: Vec<_> =
        responses["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "message", "function_call", "function_call_output"]);
    assert_eq!(responses["store"], false);
    let messages = Dialect::Messages.encode(&request);
    assert_eq!(messages["system"], "be brief");
    assert_eq!(messages["messages"][1]["content"][1]["input"], json!({ "path": "a" }));
    assert_eq!(messages["messages"][2]["content"][0]["is_error"], true);
}

#[test]
fn hostile_streams_do_no_harm() {
    for (_, events) in ALL {
        let stream: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
        crate::fuzzing::model_stream(stream.as_bytes());
        for cut in (0..stream.len()).step_by(13) {
            let mut bytes = stream.clone().into_bytes();
            bytes[cut] ^= 0x55;
            crate::fuzzing::model_stream(&bytes);
        }
    }
}
