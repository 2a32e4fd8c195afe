//! The OpenAI-compatible door, as its clients use it.

use palyra_e2e::{Answer, Host, Http, Model, Say, text};
use serde_json::{Value, json};

const SCOPES: &str = "compat.chat.create,compat.models.list,model.invoke,run.read,run.cancel,tool.list,tool.execute";

fn with(script: Vec<Say>) -> (Model, Host) {
    let model = Model::saying(script);
    let host = Host::with(&model.config("chat_completions", ""));
    host.palyra(&["access", "agent", "add", "agent:coder"]).exits(0).done();
    (model, host)
}

fn coder(host: &Host) -> Http {
    host.http_as("agent:coder", &["--scope", SCOPES])
}

fn ask(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "go" }] })
}

/// A refusal in the shape that these clients read.
#[track_caller]
fn refuses(answer: Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let error = &answer.json()["error"];
    assert_eq!(error["code"], code, "{answer:?}");
    assert!(error["message"].is_string() && error["type"].is_string() && error.get("param").is_some(), "{answer:?}");
}

/// The data of each event of a stream, with its name where it has one.
fn events(answer: &Answer) -> Vec<(String, String)> {
    let field = |block: &str, name: &str| {
        let lines = block.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    answer
        .body
        .split("\n\n")
        .map(|block| (field(block, "event:"), field(block, "data:")))
        .filter(|e| !e.1.is_empty())
        .collect()
}

#[test]
fn an_agent_answers_with_its_calls_made_here() {
    let (_model, host) = with(vec![Say::call("palyra_echo", &json!({ "text": "hi" })), Say::text("it said hi")]);
    let http = coder(&host);
    let answer = http.post("/v1/chat/completions", &ask("palyra/coder")).is(200);
    assert!(!answer.header("x-ratelimit-remaining-requests").is_empty());
    let body = answer.json();
    assert_eq!(text(&body, "/choices/0/message/content"), "it said hi");
    assert_eq!(text(&body, "/choices/0/finish_reason"), "stop");
    assert_eq!(body["usage"]["total_tokens"], 30);
    let noted = text(&body, "/metadata/palyra_call_0").to_owned();
    let call = noted.split(' ').next().unwrap();
    let shown = host.palyra(&["calls", "show", call]).good();
    assert!(noted.contains(text(&shown, "/attestation/execution_sha256")), "{noted}");
    assert_eq!(text(&shown, "/run"), text(&body, "/metadata/palyra_run"));
}

#[test]
fn a_plain_model_is_asked_and_the_callers_tools_go_back_to_the_caller() {
    let (model, host) = with(vec![Say::call("weather", &json!({ "city": "Brno" })), Say::text("sunny it is")]);
    let http = coder(&host);
    let tool = json!({ "type": "function", "function": { "name": "weather", "parameters": { "type": "object" } } });
    let mut body = ask("main");
    body["tools"] = json!([tool]);
    let first = http.post("/v1/chat/completions", &body).is(200).json();
    assert_eq!(text(&first, "/choices/0/finish_reason"), "tool_calls");
    assert_eq!(text(&first, "/choices/0/message/tool_calls/0/function/arguments"), "{\"city\":\"Brno\"}");
    let mut messages = vec![json!({ "role": "user", "content": "go" }), first["choices"][0]["message"].clone()];
    messages.push(json!({ "role": "tool", "tool_call_id": "id_0", "content": "sun" }));
    body["messages"] = messages.into();
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let streamed = http.post("/v1/chat/completions", &body).is(200);
    let events: Vec<String> = events(&streamed).into_iter().map(|(_, data)| data).collect();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    let said: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, "sunny it is");
    assert!(chunks.iter().any(|chunk| chunk["choices"][0]["finish_reason"] == "stop"));
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens"], 10);
    assert!(model.asked()[1].to_string().contains("sun"), "the result reached the model");
    let exported = host.palyra(&["journal", "export"]).exits(0).json_lines();
    assert_eq!(exported.iter().filter(|event| event["kind"] == "model.invoked").count(), 2);
}

#[test]
fn every_tool_call_delta_has_its_index_and_the_finish_is_streamed() {
    let calls = [("a", json!({ "x": 1 })), ("b", json!({ "y": 2 }))];
    let (_model, host) = with(vec![Say::calls(&calls)]);
    let mut body = ask("main");
    body["stream"] = true.into();
    body["tools"] = json!([
        { "type": "function", "function": { "name": "a" } }, { "type": "function", "function": { "name": "b" } },
    ]);
    let streamed = coder(&host).post("/v1/chat/completions", &body).is(200);
    let mut seen = 0;
    for (_, data) in events(&streamed).iter().filter(|(_, data)| data != "[DONE]") {
        let chunk: Value = serde_json::from_str(data).unwrap();
        for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert!(call["index"].is_u64(), "{chunk}");
            seen += 1;
        }
        assert!(chunk.get("usage").is_none(), "nobody asked for it");
    }
    assert_eq!(seen, 4);
    assert!(streamed.body.contains("\"finish_reason\":\"tool_calls\""));
}

#[test]
fn responses_are_streamed_kept_and_asked_for_again() {
    let (_model, host) = with(vec![
        Say::call("palyra_echo", &json!({ "text": "hi" })),
        Say::text("first answer"),
        Say::text("second answer"),
    ]);
    let http = coder(&host);
    let streamed =
        http.post("/v1/responses", &json!({ "model": "palyra/coder", "input": "go", "stream": true })).is(200);
    let told = events(&streamed);
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.first(), Some(&"response.created"));
    assert_eq!(names.last(), Some(&"response.completed"), "{names:?}");
    for (place, (name, data)) in told.iter().enumerate() {
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!((event["sequence_number"].as_u64(), text(&event, "/type")), (Some(place as u64), name.as_str()));
    }
    let last: Value = serde_json::from_str(&told.last().unwrap().1).unwrap();
    let response = &last["response"];
    let id = text(response, "/id");
    let kinds: Vec<_> = response["output"].as_array().unwrap().iter().map(|item| text(item, "/type")).collect();
    assert_eq!(kinds, ["mcp_call", "message"]);
    let kept = http.get(&format!("/v1/responses/{id}")).is(200).json();
    assert_eq!(kept["output"][1]["content"][0]["text"], "first answer");
    let body = json!({ "model": "palyra/coder", "input": "more", "previous_response_id": id });
    let next = http.post("/v1/responses", &body).is(200).json();
    assert_eq!(text(&next, "/output/0/content/0/text"), "second answer");
    refuses(http.get("/v1/responses/resp_01J0000000000000000000000X"), 404, "not_found");
}

#[test]
fn an_approval_is_an_item_that_only_a_person_answers() {
    let input = json!({ "argv": ["tee", "-a", "log"], "stdin": "yes\n" });
    let (_model, host) = with(vec![Say::call("palyra_process_run", &input), Say::text("written")]);
    let (agent, watcher) = (coder(&host), host.palyra_started(&["approvals", "watch"]));
    let body = json!({ "model": "palyra/coder", "input": "go", "background": true });
    let response = agent.post("/v1/responses", &body).is(200).json();
    let id = text(&response, "/id").to_owned();
    assert_eq!(response["status"], "in_progress");
    let approval = text(&watcher.json(), "/approval_id").to_owned();
    let answer = json!({
        "model": "palyra/coder", "previous_response_id": id,
        "input": [{ "type": "mcp_approval_response", "approval_request_id": approval, "approve": true }],
    });
    assert_eq!(agent.post("/v1/responses", &answer).status, 403, "an agent does not approve itself");
    assert_eq!(host.lines("log", "yes"), 0);
    let scopes = format!("{SCOPES},approval.list,approval.decide");
    let person = host.http_as("user:local", &["--role", "owner", "--scope", &scopes]);
    let ended = person.post("/v1/responses", &answer).is(200).json();
    assert_eq!((text(&ended, "/status"), host.lines("log", "yes")), ("completed", 1), "{ended}");
}

#[test]
fn a_stream_shows_the_approval_and_cancelling_ends_it() {
    let (_model, host) = with(vec![Say::call("palyra_process_run", &json!({ "argv": ["true"] }))]);
    let (agent, watcher) = (coder(&host), host.palyra_started(&["approvals", "watch"]));
    let body = json!({ "model": "palyra/coder", "input": "go", "stream": true });
    let waiting = {
        let agent = agent.clone();
        std::thread::spawn(move || agent.post("/v1/responses", &body))
    };
    let asked = watcher.json();
    let runs = host.palyra(&["runs", "list"]).good();
    let id = text(&runs, "/0/run").replace("run_", "resp_");
    assert_eq!(agent.post(&format!("/v1/responses/{id}/cancel"), &json!({})).is(200).json()["status"], "cancelled");
    let streamed = waiting.join().unwrap();
    assert!(streamed.body.contains("mcp_approval_request") && streamed.body.contains(text(&asked, "/approval_id")));
    assert!(streamed.body.contains("response.failed"), "{}", streamed.body);
}

#[test]
fn refusals_have_the_shape_of_their_clients() {
    let (_model, host) = with(vec![]);
    let http = coder(&host);
    refuses(host.http().post("/v1/chat/completions", &ask("main")), 401, "token_missing");
    refuses(http.post("/v1/chat/completions", &ask("nothing")), 404, "unknown_model");
    refuses(http.post("/v1/chat/completions", &ask("palyra/nobody")), 404, "unknown_agent");
    let mut stored = ask("main");
    stored["store"] = true.into();
    refuses(http.post("/v1/chat/completions", &stored), 400, "unsupported_value");
    refuses(
        http.post("/v1/responses", &json!({ "model": "main", "input": "x", "store": true })),
        400,
        "unsupported_value",
    );
    let mut taken = ask("palyra/coder");
    taken["tools"] = json!([{ "type": "function", "function": { "name": "palyra_echo" } }]);
    refuses(http.post("/v1/chat/completions", &taken), 400, "tool_name_taken");
    // Only announced: a client that sends it all may be cut off before it hears the answer.
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        http.host(),
        http.token(),
        17 << 20
    );
    let answer = http.raw(head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"invalid_request_error\""), "{answer}");
    let long = json!({ "model": "main", "messages": [{ "role": "user", "content": "y".repeat(4 << 20) }] });
    http.post("/v1/chat/completions", &long).is(200);
}

#[test]
fn a_narrow_token_does_no_more_than_its_scopes() {
    let (_model, host) = with(vec![Say::call("palyra_echo", &json!({ "text": "x" })), Say::text("could not")]);
    let lists = host.http_as("agent:coder", &["--scope", "compat.models.list"]);
    let ids = lists.get("/v1/models").is(200).json();
    let ids: Vec<_> = ids["data"].as_array().unwrap().iter().map(|model| text(model, "/id").to_owned()).collect();
    assert_eq!(ids, ["palyra/coder", "main", "p/m"]);
    refuses(lists.post("/v1/chat/completions", &ask("main")), 403, "scope_missing");
    let chats = host.http_as("agent:coder", &["--scope", "compat.chat.create,model.invoke"]);
    let body = chats.post("/v1/chat/completions", &ask("palyra/coder")).is(200).json();
    assert_eq!(text(&body, "/choices/0/message/content"), "could not");
    let run = host.palyra(&["runs", "show", text(&body, "/metadata/palyra_run")]).good();
    assert_eq!(run["turns"][0]["results"][0]["is_error"], true, "calling tools takes a scope of its own: {run}");
    refuses(chats.get("/v1/models"), 403, "scope_missing");
}

#[test]
fn a_request_asks_for_palyras_tools_without_naming_an_agent() {
    let (model, host) = with(vec![Say::call("palyra_echo", &json!({ "text": "hi" })), Say::text("it said hi")]);
    let http = coder(&host);
    let mut body = ask("main");
    body["tools"] = json!([
        { "type": "mcp", "server_label": "palyra", "allowed_tools": ["palyra.echo"] },
        { "type": "function", "function": { "name": "weather" } },
    ]);
    let answer = http.post("/v1/chat/completions", &body).is(200).json();
    assert_eq!(text(&answer, "/choices/0/message/content"), "it said hi");
    let run = host.palyra(&["runs", "show", text(&answer, "/metadata/palyra_run")]).good();
    assert_eq!((text(&run, "/model"), text(&run, "/turns/0/results/0/state")), ("main", "succeeded"));
    let offered = model.asked()[0]["tools"].as_array().unwrap().clone();
    let names: Vec<_> = offered.iter().map(|tool| text(tool, "/function/name")).collect();
    assert_eq!(names, ["palyra_echo", "weather"], "no other tool of Palyra's is offered");
    body["tools"] = json!([{ "type": "mcp", "server_label": "palyra", "allowed_tools": ["palyra.nothing"] }]);
    refuses(http.post("/v1/chat/completions", &body), 400, "tool_not_offered");
    body["tools"] = json!([{ "type": "mcp", "server_label": "palyra" }, { "type": "function", "function": { "name": "palyra_echo" } }]);
    refuses(http.post("/v1/chat/completions", &body), 400, "tool_name_taken");
    let stored = json!({ "model": "main", "input": "go", "store": true, "tools": [{ "type": "mcp", "server_label": "palyra" }] });
    let kept = http.post("/v1/responses", &stored).is(200).json();
    assert_eq!(http.get(&format!("/v1/responses/{}", text(&kept, "/id"))).is(200).json()["model"], "main");
}

#[test]
fn a_stream_that_waits_for_a_person_carries_comments() {
    let (_model, host) = with(vec![Say::call("palyra_process_run", &json!({ "argv": ["true"] })), Say::text("done")]);
    let (agent, watcher) = (coder(&host), host.palyra_started(&["approvals", "watch"]));
    let mut body = ask("palyra/coder");
    body["stream"] = true.into();
    let mut lines = agent.lines("/v1/chat/completions", &body);
    let asked = text(&watcher.json(), "/approval_id").to_owned();
    let about = lines.find(|line| line.starts_with(':')).unwrap();
    assert!(about.contains(&asked), "the first says what is waited for: {about}");
    // The next one comes because ten seconds have passed.
    assert!(lines.any(|line| line.starts_with(':')));
    host.decide(&asked, "allow", &[]).exits(0).done();
    assert_eq!(lines.filter(|line| line.starts_with("data: ")).last().as_deref(), Some("data: [DONE]"));
}

#[test]
fn a_token_that_is_used_too_often_is_told_when_to_come_back() {
    let (_model, host) = with(vec![]);
    let http = host.http_as("agent:coder", &["--scope", SCOPES, "--rate", "2"]);
    let first = http.post("/v1/chat/completions", &ask("main")).is(200);
    assert_eq!(
        (first.header("x-ratelimit-limit-requests"), first.header("x-ratelimit-remaining-requests")),
        ("2", "1")
    );
    assert!(first.header("x-ratelimit-reset-requests").ends_with('s'));
    http.post("/v1/chat/completions", &ask("main")).is(200);
    let refused = http.post("/v1/chat/completions", &ask("main"));
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|wait| wait > 0), "{refused:?}");
    refuses(refused, 429, "rate_limited");
    refuses(host.http().with("palyra_wrong").post("/v1/responses", &json!({})), 401, "unauthenticated");
}

#[test]
fn a_model_that_fails_is_an_error_of_the_clients_kind() {
    for (say, status, code) in [
        (Say::status(400, "bad"), 502, "model_refused"),
        (Say::retried(429), 429, "model_rate_limited"),
        (Say::stream("data: {not json\n\n"), 502, "model_answer_malformed"),
    ] {
        for name in ["main", "palyra/coder"] {
            let told = say.clone();
            let model = Model::answering(move |_, _| told.clone());
            let host = Host::with(&model.config("chat_completions", ""));
            host.palyra(&["access", "agent", "add", "agent:coder"]).exits(0).done();
            let http = coder(&host);
            refuses(http.post("/v1/chat/completions", &ask(name)), status, code);
            let body = json!({ "model": name, "input": "go", "stream": true });
            let streamed = http.post("/v1/responses", &body).is(200);
            let (last, data) = events(&streamed).pop().unwrap();
            let data: Value = serde_json::from_str(&data).unwrap();
            assert_eq!(last, "response.failed", "{streamed:?}");
            assert!(text(&data, "/response/error/message").starts_with(code), "{data}");
            let mut body = ask(name);
            body["stream"] = true.into();
            let streamed = events(&http.post("/v1/chat/completions", &body).is(200));
            assert!(streamed.iter().any(|(_, data)| data.contains(code)), "{streamed:?}");
            assert_eq!(streamed.last().unwrap().1, "[DONE]");
        }
    }
}

#[test]
fn a_chats_result_is_verified_by_what_its_metadata_names() {
    let (_model, host) = with(vec![Say::call("palyra_echo", &json!({ "text": "hi" })), Say::text("done")]);
    let answer = coder(&host).post("/v1/chat/completions", &ask("palyra/coder")).is(200).json();
    let noted: Vec<&str> = text(&answer, "/metadata/palyra_call_0").split(' ').collect();
    let shown = host.palyra(&["calls", "show", noted[0]]).good();
    let verified = host.palyra_fed(&["attest", "verify", "-"], shown.to_string().as_bytes()).good();
    assert_eq!(verified["valid"], true);
    assert_eq!(noted[1..], ["succeeded", &format!("sha256:{}", text(&shown, "/attestation/execution_sha256"))]);
    let mut forged = shown;
    forged["output"]["text"] = "bye".into();
    host.palyra_fed(&["attest", "verify", "-"], forged.to_string().as_bytes()).fails(8, "attestation_invalid");
}
