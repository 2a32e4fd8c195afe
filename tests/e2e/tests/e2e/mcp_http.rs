//! MCP over HTTP: the same server behind the HTTP door's gate, in both revisions.

use palyra_e2e::http::{Answer, Http};
use palyra_e2e::mcp::{BEFORE, CURRENT};
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

fn post(door: &Http, headers: &[(&str, &str)], body: &str) -> Answer {
    door.send("POST", "/mcp", &[&[ACCEPT, JSON], headers].concat(), Some(body.as_bytes()))
}

/// The messages of an answer, which is a document or a stream.
fn messages(answer: &Answer) -> Vec<Value> {
    if answer.header("content-type").starts_with("application/json") {
        return vec![answer.json()];
    }
    let data = answer.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// A session of the revision that has them.
fn session(door: &Http) -> String {
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": BEFORE, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let answer = post(door, &[], &hello.to_string()).is(200);
    assert_eq!(messages(&answer)[0]["result"]["protocolVersion"], BEFORE);
    answer.header("mcp-session-id").to_owned()
}

/// A request with an id of its own: a client uses none twice in a session.
fn request(method: &str, mut params: Value, revision: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    if revision == CURRENT {
        let own = params["_meta"].as_object().cloned().unwrap_or_default();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": CURRENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        params["_meta"].as_object_mut().unwrap().extend(own);
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn id(request: &str) -> Value {
    serde_json::from_str::<Value>(request).unwrap()["id"].clone()
}

fn ask(door: &Http, session: Option<&str>, method: &str, params: Value) -> Value {
    let name = params["name"].as_str().map(str::to_owned);
    let body = request(method, params, if session.is_some() { BEFORE } else { CURRENT });
    let answer = match session {
        Some(session) => {
            let headers = [("mcp-session-id", session), ("mcp-protocol-version", BEFORE)];
            post(door, &headers, &body)
        }
        None => {
            let mut headers = vec![("mcp-protocol-version", CURRENT), ("mcp-method", method)];
            headers.extend(name.as_deref().map(|name| ("mcp-name", name)));
            post(door, &headers, &body)
        }
    };
    let messages = messages(&answer);
    messages.into_iter().rfind(|m| m["id"] == id(&body)).unwrap_or_else(|| panic!("no answer in {answer:?}"))
}

#[test]
fn both_revisions_list_and_call() {
    let host = Host::up();
    host.put("a.txt", "hello");
    let door = host.http_agent("agent:one");
    let begun = session(&door);
    for session in [Some(begun.as_str()), None] {
        let listed = ask(&door, session, "tools/list", json!({}));
        assert!(listed["result"]["tools"].as_array().unwrap().len() >= 8, "{listed}");
        let done =
            ask(&door, session, "tools/call", json!({ "name": "palyra_fs_read", "arguments": { "path": "a.txt" } }));
        assert_eq!(done["result"]["structuredContent"]["content"], "hello", "{done}");
        let events = host.palyra(&["journal", "show", text(&done, "/result/_meta/palyra~1call")]).exits(0).json_lines();
        assert_eq!(text(&events[0], "/body/call/origin/channel"), "mcp");
        assert!(text(&events[0], "/body/call/origin/request").starts_with("req_"), "the request leads to the journal");
        let denied =
            ask(&door, session, "tools/call", json!({ "name": "palyra_fs_read", "arguments": { "path": "../x" } }));
        assert_eq!(text(&denied, "/result/structuredContent/error/code"), "path_outside_workspace", "{denied}");
        let unknown = ask(&door, session, "tools/call", json!({ "name": "nothing", "arguments": {} }));
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
}

#[test]
fn a_session_is_its_tokens_alone() {
    let host = Host::up();
    let door = host.http_agent("agent:one");
    let other = host.http_agent("agent:two");
    let begun = session(&door);
    let headers = [("mcp-session-id", begun.as_str())];
    let list = request("tools/list", json!({}), BEFORE);
    assert_eq!(messages(&post(&other, &headers, &list).is(404))[0]["error"]["data"]["code"], "session_not_found");
    assert_eq!(other.send("GET", "/mcp", &[ACCEPT, headers[0]], None).status, 404);
    assert_eq!(other.send("DELETE", "/mcp", &headers, None).status, 404);
    post(&door, &headers, &list).is(200);
    assert_eq!(post(&door, &[("mcp-session-id", "nonsense")], &list).status, 404);
    assert_eq!(door.send("DELETE", "/mcp", &headers, None).status, 204);
    assert_eq!(post(&door, &headers, &list).status, 404, "it has ended");
    for _ in 0..32 {
        session(&door);
    }
    session(&other);
}

#[test]
fn nobody_comes_in_past_the_gate() {
    let host = Host::up();
    let door = host.http_agent("agent:one");
    let list = request("tools/list", json!({}), BEFORE);
    post(&host.http(), &[], &list).refuses(401, "token_missing");
    post(&host.http().with("palyra_nonsense"), &[], &list).refuses(401, "unauthenticated");
    post(&door, &[("origin", "https://evil.example")], &list).is(403);
    post(&door, &[("sec-fetch-site", "cross-site")], &list).is(403);
    assert_eq!(door.send("PUT", "/mcp", &[ACCEPT, JSON], Some(list.as_bytes())).status, 405);
    let bare = host.http_as("agent:one", &["--scope", "tool.list"]);
    post(&bare, &[], &list).refuses(403, "scope_missing");
}

#[test]
fn hostile_bodies_get_typed_answers() {
    let host = Host::up();
    let door = host.http_agent("agent:one");
    for (body, status, code) in [
        ("{".to_owned(), 400, -32700),
        ("nonsense".to_owned(), 400, -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}".to_owned(), 400, -32700),
        (String::new(), 400, -32700),
        ("[]".to_owned(), 400, -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}".to_owned(), 400, -32600),
        (format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)), 400, -32700),
        (format!("{{\"x\":\"{}\"}}", "x".repeat(5 << 20)), 413, -32600),
        // Few bytes, and more values than anybody means.
        (
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"palyra_echo\",\
                  \"arguments\":{{\"text\":[{}1]}}}}}}",
                "1,".repeat(900_000)
            ),
            400,
            -32700,
        ),
    ] {
        let answer = post(&door, &[], &body);
        assert_eq!(answer.status, status, "{}: {answer:?}", &body[..body.len().min(40)]);
        assert_eq!(answer.json()["error"]["code"], code, "{answer:?}");
    }
    let list = request("tools/list", json!({}), BEFORE);
    assert_eq!(door.send("POST", "/mcp", &[JSON], Some(list.as_bytes())).status, 406);
    assert_eq!(door.send("POST", "/mcp", &[ACCEPT, ("content-type", "text/plain")], Some(list.as_bytes())).status, 415);
    let begun = session(&door);
    ask(&door, Some(&begun), "tools/list", json!({}));
}

#[test]
fn a_refused_message_names_its_request() {
    let host = Host::up();
    let door = host.http_agent("agent:one");
    let call = |id: &str, arguments: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"palyra_fs_read\",\
              \"arguments\":{arguments}}}}}"
        )
    };
    for (body, status, id) in [
        (call("45", "{\"path\":\"x\",\"offset\":9007199254740993}"), 400, json!(45)),
        (call("46", "{\"path\":\"\\ud800\"}"), 400, json!(46)),
        (call("\"a\"", "{\"path\":1,\"path\":2}"), 400, json!("a")),
        (call("18446744073709551615", "{}"), 400, json!(u64::MAX)),
        (call("47", &format!("\"{}\"", "x".repeat(3 << 20))), 413, json!(47)),
        ("nonsense".to_owned(), 400, Value::Null),
    ] {
        let told = post(&door, &[], &body).is(status).json();
        assert_eq!(told.get("id"), Some(&id), "{told}");
        assert!(told["error"]["data"]["code"].is_string(), "{told}");
    }
    let lost = post(&door, &[("mcp-session-id", "x")], &call("48", "{}")).is(404).json();
    assert_eq!(lost["id"], 48, "{lost}");
}

/// A request whose answer is a stream, read as it comes.
fn streamed(door: &Http, headers: &[(&str, &str)], body: &str) -> BufReader<std::net::TcpStream> {
    let mut stream = door.connect();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n{more}\r\n",
        door.host(),
        door.token(),
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
    BufReader::new(stream)
}

/// Reads until a line of a stream holds this text.
fn until(stream: &mut BufReader<std::net::TcpStream>, wanted: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ended before `{wanted}`: {seen}");
        if line.contains(wanted) {
            return line;
        }
        seen.push_str(&line);
    }
}

#[test]
fn a_client_hears_where_to_approve_and_may_go_away() {
    let host = Host::up();
    let door = host.http_agent("agent:one");
    let begun = session(&door);
    let call = |key: &str| {
        json!({ "name": "palyra_process_run", "arguments": { "argv": ["echo", "hi"] },
            "_meta": { "progressToken": 7, "palyra/idempotency-key": key } })
    };
    let before = [("mcp-session-id", begun.as_str()), ("mcp-protocol-version", BEFORE)];
    let current = [("mcp-protocol-version", CURRENT), ("mcp-method", "tools/call"), ("mcp-name", "palyra_process_run")];
    for (revision, headers) in [(BEFORE, &before[..]), (CURRENT, &current)] {
        let mut stream = streamed(&door, headers, &request("tools/call", call(&format!("stays-{revision}")), revision));
        let told = until(&mut stream, "approvals decide");
        let approval = told.split("decide ").nth(1).unwrap().split(' ').next().unwrap();
        host.decide(approval, "allow", &[]).exits(0).done();
        assert!(until(&mut stream, "\"result\"").contains("\"stdout\":\"hi\\n\""));

        let body = request("tools/call", call(&format!("goes-{revision}")), revision);
        let mut stream = streamed(&door, headers, &body);
        let told = until(&mut stream, "approvals decide");
        let approval = told.split("decide ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let asked = host.palyra(&["approvals", "show", &approval]).good();
        drop(stream);
        if revision == CURRENT {
            // Closing the response is this revision's way to cancel.
            let ended = host.palyra(&["calls", "follow", text(&asked, "/call_id")]).exits(5).json();
            assert_eq!(ended["state"], "cancelled");
        } else {
            host.decide(&approval, "allow", &[]).exits(0).done();
            let again = ask(&door, Some(&begun), "tools/call", call(&format!("goes-{revision}")));
            assert_eq!(again["result"]["_meta"]["palyra/replayed"], true, "{again}");
            assert_eq!(again["result"]["structuredContent"]["stdout"], "hi\n", "{again}");
        }
    }
    // In a session, a notification cancels.
    let body = request("tools/call", call("cancelled"), BEFORE);
    let mut stream = streamed(&door, &before, &body);
    let told = until(&mut stream, "approvals decide");
    let call_id = told.split("(call ").nth(1).unwrap().split(')').next().unwrap().to_owned();
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id(&body) } });
    post(&door, &before, &cancel.to_string()).is(202);
    assert_eq!(host.palyra(&["calls", "follow", &call_id]).exits(5).json()["state"], "cancelled");
}

/// The question that a call of this tool waits with, once it does.
fn question(host: &Host, tool: &str) -> String {
    let watching = host.palyra_started(&["approvals", "watch"]);
    loop {
        let approval = watching.json();
        if approval["state"] == "pending" && approval["tool"] == tool {
            return text(&approval, "/approval_id").to_owned();
        }
    }
}

#[test]
fn an_ending_daemon_answers_whoever_waits_here_too() {
    for current in [false, true] {
        let mut host = Host::up();
        let door = host.http_agent("agent:one");
        let begun = (!current).then(|| session(&door));
        let asking = |params: Value| {
            let (door, begun) = (door.clone(), begun.clone());
            std::thread::spawn(move || ask(&door, begun.as_deref(), "tools/call", params))
        };
        let runs = asking(host.cat_from_pipe());
        host.decide(&question(&host, "palyra.process.run"), "allow", &[]).exits(0).done();
        let mut pipe = host.pipe();
        let waits = asking(json!({ "name": "palyra_fs_write", "arguments": { "path": "a", "content": "x" } }));
        let question = question(&host, "palyra.fs.write");
        palyra_e2e::host::signal(host.pid(), rustix::process::Signal::TERM);
        let told = waits.join().unwrap();
        assert_eq!(text(&told, "/result/structuredContent/error/code"), "shutting_down", "{told}");
        pipe.write_all(b"to its end").unwrap();
        drop(pipe);
        let done = runs.join().unwrap();
        assert_eq!(done["result"]["structuredContent"]["stdout"], "to its end", "{done}");
        let ended = host.terminate_ended();
        assert!(ended.code == Some(0) && !ended.log.contains("ERROR"), "{ended:?}");
        host.start();
        let asked = host.palyra(&["approvals", "show", &question]).good();
        assert_eq!(asked["state"], "pending", "{asked}");
    }
}

#[test]
fn a_token_begins_as_many_sessions_as_it_likes_and_loses_the_idle_ones() {
    let host = Host::up();
    let door = host.http_agent("agent:one");
    let first = session(&door);
    let others: Vec<_> = (0..32)
        .map(|_| {
            let door = door.clone();
            std::thread::spawn(move || session(&door))
        })
        .collect();
    for other in others {
        other.join().unwrap();
    }
    let headers = [("mcp-session-id", first.as_str()), ("mcp-protocol-version", BEFORE)];
    let gone = post(&door, &headers, &request("tools/list", json!({}), BEFORE)).is(404);
    assert_eq!(gone.json()["error"]["data"]["code"], "session_not_found");
    // The current revision has no sessions, and is not kept waiting by them.
    ask(&door, None, "tools/call", json!({ "name": "palyra_echo", "arguments": { "text": "x" } }));
}

#[test]
fn whatever_goes_wrong_is_told_in_the_way_of_whoever_asked() {
    let host = Host::up();
    let door = host.http_agent("agent:one");
    door.get("/mcp").refuses(406, "not_acceptable");
    door.send("GET", "/mcp", &[ACCEPT], None).refuses(400, "malformed_request");
    door.send("GET", "/mcp", &[ACCEPT, ("mcp-session-id", "x")], None).refuses(404, "session_not_found");
    door.send("DELETE", "/mcp", &[("mcp-session-id", "x")], None).refuses(404, "session_not_found");
    let list = request("tools/list", json!({}), BEFORE);
    for (headers, status) in [(&[JSON][..], 406), (&[ACCEPT, ("content-type", "text/plain")], 415)] {
        let answer = door.send("POST", "/mcp", headers, Some(list.as_bytes())).is(status);
        let told = answer.json();
        assert!(told["error"]["data"]["code"].is_string() && told["id"] == id(&list), "{answer:?}");
    }
    let begun = session(&door);
    for session in [None, Some(begun.as_str())] {
        let answer = ask(&door, session, "tools/call", json!({ "name": "palyra_echo", "arguments": [1] }));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(ask(&door, session, "prompts/list", json!({}))["error"]["code"], -32601);
    }
    assert_eq!(
        ask(&door, None, "initialize", json!({}))["error"]["code"],
        -32601,
        "the current revision has it no more"
    );
}
