//! The MCP door over standard input and output: what clients of both revisions see, and what hostile ones get.

use palyra_e2e::host::signal;
use palyra_e2e::mcp::{BEFORE, CURRENT, Mcp};
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::io::Write as _;

/// An agent with a token of its own.
fn token(host: &Host, agent: &str, scopes: &str) -> String {
    host.palyra(&["access", "agent", "add", agent]).exits(0).done();
    let mut args = vec!["access", "token", "create", agent];
    if !scopes.is_empty() {
        args.extend(["--scope", scopes]);
    }
    text(&host.palyra(&args).good(), "/token").to_owned()
}

fn listed(client: &mut Mcp) -> Vec<String> {
    let answer = client.request("tools/list", json!({}));
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| text(tool, "/name").to_owned()).collect()
}

fn show(host: &Host, call: &str) -> Value {
    host.palyra(&["calls", "show", call]).json()
}

#[test]
fn a_handshake_a_list_and_calls_that_are_allowed_or_not() {
    let host = Host::up();
    host.put("a.txt", "hello");
    let token = token(&host, "agent:one", "");
    for revision in [BEFORE, CURRENT] {
        let mut client = if revision == BEFORE {
            let mut client = host.mcp_raw(&["--token", &token]);
            let info = client.initialize(BEFORE);
            assert_eq!((text(&info, "/protocolVersion"), text(&info, "/serverInfo/name")), (BEFORE, "palyra"));
            assert_eq!(info["capabilities"]["tools"]["listChanged"], true);
            client
        } else {
            let mut client = host.mcp_current(&["--token", &token]);
            let info = client.request("server/discover", json!({}));
            let supported = info["result"]["supportedVersions"].as_array().unwrap();
            assert!(supported.contains(&json!(BEFORE)) && supported.contains(&json!(CURRENT)), "{info}");
            client
        };
        let answer = client.request("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        let read = tools.iter().find(|tool| tool["name"] == "palyra_fs_read").unwrap();
        assert_eq!(read["_meta"]["palyra/name"], "palyra.fs.read");
        assert_eq!(read["inputSchema"]["type"], "object");
        assert_eq!(read["outputSchema"]["type"], "object");
        assert_eq!(
            (&read["annotations"]["readOnlyHint"], &read["annotations"]["openWorldHint"]),
            (&json!(true), &json!(false))
        );
        let run = tools.iter().find(|tool| tool["name"] == "palyra_process_run").unwrap();
        assert_eq!(
            (&run["annotations"]["readOnlyHint"], &run["annotations"]["destructiveHint"]),
            (&json!(false), &json!(true))
        );

        // By its alias and by its name.
        for name in ["palyra_fs_read", "palyra.fs.read"] {
            let done = client.call(name, &json!({ "path": "a.txt" }));
            assert_eq!(done["structuredContent"]["content"], "hello", "{done}");
            assert_ne!(done["isError"], true);
            let call = show(&host, text(&done, "/_meta/palyra~1call"));
            assert_eq!(call["tool"], "palyra.fs.read", "the journal knows one name");
        }
        let denied = client.call("palyra_fs_read", &json!({ "path": "../x" }));
        assert_eq!(denied["isError"], true);
        assert_eq!(text(&denied, "/structuredContent/error/code"), "path_outside_workspace");
        assert!(text(&denied, "/content/0/text").contains("path_outside_workspace"));
        assert_eq!(client.hang_up(), 0);
    }
}

#[test]
fn a_list_shows_what_the_caller_may_at_least_ask_for() {
    let host = Host::with("[tool_call]\nallowed_tools = [\"palyra.echo\", \"palyra.process.run\"]\n");
    let token = token(&host, "agent:one", "tool.list,tool.execute:palyra.echo,tool.execute:palyra.fs.read");
    let mut client = host.mcp(&["--token", &token]);
    assert_eq!(listed(&mut client), ["palyra_echo"], "in scope and allowed");
    let mut owner = host.mcp(&["--as", "agent:two"]);
    assert_eq!(listed(&mut owner), ["palyra_echo", "palyra_process_run"], "what needs a person is shown too");
    let denied = owner.call("palyra_fs_write", &json!({ "path": "x", "content": "x" }));
    let error = &denied["structuredContent"]["error"];
    assert_eq!((text(error, "/code"), text(error, "/state")), ("policy_denied", "denied"), "{denied}");
    assert!(error["rules"].is_array() && error["hint"].is_string() && error["call_id"].is_string(), "{denied}");
    let barred = client.call("palyra_process_run", &json!({ "argv": ["ls"] }));
    assert_eq!(text(&barred, "/structuredContent/error/code"), "scope_missing");
}

#[test]
fn a_client_that_waits_for_a_person_hears_where_to_approve() {
    let host = Host::up();
    let token = token(&host, "agent:one", "");
    for current in [false, true] {
        let mut client = if current { host.mcp_current(&["--token", &token]) } else { host.mcp(&["--token", &token]) };
        let id = client.ask(
            "tools/call",
            json!({ "name": "palyra_process_run", "arguments": { "argv": ["echo", "hi"] }, "_meta": { "progressToken": "p" } }),
        );
        let progress = client.notification("notifications/progress");
        let message = text(&progress, "/params/message");
        assert_eq!(progress["params"]["progressToken"], "p");
        let approval = message.split_whitespace().find(|word| word.starts_with("apr_")).unwrap().to_owned();
        assert!(message.contains(&format!("palyra approvals decide {approval}")), "{message}");
        // Other requests are answered meanwhile.
        assert_ne!(client.call("palyra_echo", &json!({ "text": "x" }))["isError"], true);
        host.decide(&approval, "allow", &[]).exits(0).done();
        let running = client.notification("notifications/progress");
        assert!(running["params"]["progress"].as_f64() > progress["params"]["progress"].as_f64());
        let done = client.answer(&json!(id));
        assert_eq!(done["result"]["structuredContent"]["stdout"], "hi\n", "{done}");
        let question =
            client.ask("tools/call", json!({ "name": "palyra_process_run", "arguments": { "argv": ["ls"] } }));
        let asked = wait_for_question(&host);
        host.decide(&asked, "deny", &["--reason", "no"]).exits(0).done();
        let denied = client.answer(&json!(question));
        assert_eq!(text(&denied, "/result/structuredContent/error/code"), "approval_denied", "{denied}");
    }
}

/// The question that is pending, once there is one.
fn wait_for_question(host: &Host) -> String {
    let watching = host.palyra_started(&["approvals", "watch"]);
    loop {
        let approval = watching.json();
        if approval["state"] == "pending" {
            return text(&approval, "/approval_id").to_owned();
        }
    }
}

#[test]
fn an_agent_cannot_approve_itself_by_any_method_of_the_protocol() {
    let host = Host::up();
    let token = token(&host, "agent:one", "");
    let mut client = host.mcp_raw(&["--token", &token]);
    client.request(
        "initialize",
        json!({ "protocolVersion": BEFORE, "capabilities": { "elicitation": {} }, "clientInfo": { "name": "t", "version": "1" } }),
    );
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let id = client.ask("tools/call", json!({ "name": "palyra_process_run", "arguments": { "argv": ["ls"] } }));
    let approval = wait_for_question(&host);
    // It is not asked. Were it, the request would come before the answer to the next one.
    client.call("palyra_echo", &json!({ "text": "x" }));
    host.decide(&approval, "deny", &[]).exits(0).done();
    let end = client.until(|message| {
        assert_ne!(message["method"], "elicitation/create", "{message}");
        message["id"] == id
    });
    assert_eq!(end["result"]["isError"], true, "{end}");
}

#[test]
fn a_person_at_a_client_that_asks_can_answer_there() {
    let host = Host::up();
    host.palyra(&["access", "member", "add", "user:ana", "--role", "admin"]).exits(0).done();
    let scopes = "tool.list,tool.execute,call.read,call.cancel,approval.decide";
    let made = host.palyra(&["access", "token", "create", "user:ana", "--role", "admin", "--scope", scopes]).good();
    let mut client = host.mcp_raw(&["--token", text(&made, "/token")]);
    client.request(
        "initialize",
        json!({ "protocolVersion": BEFORE, "capabilities": { "elicitation": {} }, "clientInfo": { "name": "t", "version": "1" } }),
    );
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let id = client.ask("tools/call", json!({ "name": "palyra_process_run", "arguments": { "argv": ["echo", "hi"] } }));
    let question = client.notification("elicitation/create");
    let message = text(&question, "/params/message");
    // The same card as on the approval screen: what it resolves to, and where.
    for part in ["palyra.process.run", "echo hi", "runs: /", "in: ", "\"argv\""] {
        assert!(message.contains(part), "{part}: {message}");
    }
    client.say(&json!({
        "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": { "allow": true } }
    }));
    let done = client.answer(&json!(id));
    assert_eq!(done["result"]["structuredContent"]["stdout"], "hi\n", "{done}");
    let call = show(&host, text(&done, "/result/_meta/palyra~1call"));
    assert_eq!(call["approval"]["resolution"]["by"], "user:ana", "{call}");

    // Nothing in it deceives, and a question that is answered elsewhere is taken back.
    let argv = json!({ "argv": ["echo", "a\u{202e}b"] });
    let id = client.ask("tools/call", json!({ "name": "palyra_process_run", "arguments": argv }));
    let question = client.notification("elicitation/create");
    let message = text(&question, "/params/message");
    assert!(!message.contains('\u{202e}') && message.contains("\\u{202e}"), "{message}");
    host.decide(&wait_for_question(&host), "deny", &[]).exits(0).done();
    let withdrawn = client.notification("notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"], "{withdrawn}");
    assert_eq!(client.answer(&json!(id))["result"]["isError"], true);

    // One that is too long to be shown whole is not put there.
    let argv = json!({ "argv": ["echo", "x".repeat(20_000)] });
    let id = client.ask("tools/call", json!({ "name": "palyra_process_run", "arguments": argv }));
    host.decide(&wait_for_question(&host), "deny", &[]).exits(0).done();
    let end = client.until(|message| {
        assert_ne!(message["method"], "elicitation/create", "{message}");
        message["id"] == id
    });
    assert_eq!(end["result"]["isError"], true, "{end}");
}

#[test]
fn a_repeated_call_that_still_waits_is_told_about_and_can_be_cancelled() {
    let host = Host::up();
    let token = token(&host, "agent:one", "");
    for current in [false, true] {
        let connect = || if current { host.mcp_current(&["--token", &token]) } else { host.mcp(&["--token", &token]) };
        let call = json!({ "name": "palyra_process_run", "arguments": { "argv": ["ls"] },
            "_meta": { "progressToken": "p", "palyra/idempotency-key": format!("again-{current}") } });
        let mut first = connect();
        first.ask("tools/call", call.clone());
        let told = first.notification("notifications/progress");
        first.lose();
        let mut second = connect();
        let id = second.ask("tools/call", call);
        let again = second.notification("notifications/progress");
        assert_eq!(again["params"]["message"], told["params"]["message"], "the same question");
        second.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
        let call = text(&told, "/params/message").split("(call ").nth(1).unwrap().split(')').next().unwrap().to_owned();
        assert_eq!(host.palyra(&["calls", "follow", &call]).exits(5).json()["state"], "cancelled");
    }
}

#[test]
fn an_ending_daemon_answers_clients_on_standard_input_too() {
    let mut host = Host::up();
    let token = token(&host, "agent:one", "");
    let mut client = host.mcp(&["--token", &token]);
    let runs = client.ask("tools/call", host.cat_from_pipe());
    host.decide(&wait_for_question(&host), "allow", &[]).exits(0).done();
    let mut pipe = host.pipe();
    let waits =
        client.ask("tools/call", json!({ "name": "palyra_fs_write", "arguments": { "path": "a", "content": "x" } }));
    let question = wait_for_question(&host);
    signal(host.pid(), rustix::process::Signal::TERM);
    let told = client.answer(&json!(waits));
    assert_eq!(text(&told, "/result/structuredContent/error/code"), "shutting_down", "{told}");
    let asked = text(&told, "/result/structuredContent/error/call_id").to_owned();
    pipe.write_all(b"to its end").unwrap();
    drop(pipe);
    let done = client.answer(&json!(runs));
    assert_eq!(done["result"]["structuredContent"]["stdout"], "to its end", "{done}");
    assert_eq!(host.terminate_ended().code, Some(0));
    host.start();
    assert_eq!(show(&host, &asked)["state"], "awaiting_approval");
    assert_eq!(text(&host.palyra(&["approvals", "show", &question]).good(), "/call_id"), asked);
}

#[test]
fn cancelling_withdraws_the_call_and_losing_the_connection_does_not() {
    let host = Host::up();
    let token = token(&host, "agent:one", "");
    for current in [false, true] {
        let connect = || if current { host.mcp_current(&["--token", &token]) } else { host.mcp(&["--token", &token]) };
        let mut client = connect();
        let id = client.ask("tools/call", json!({ "name": "palyra_process_run", "arguments": { "argv": ["ls"] } }));
        let approval = wait_for_question(&host);
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
        let asked = host.palyra(&["approvals", "show", &approval]).good();
        let call = host.palyra(&["calls", "follow", text(&asked, "/call_id")]).exits(5).json();
        assert_eq!(call["state"], "cancelled", "{call}");

        let mut client = connect();
        let key = format!("key-{current}");
        let arguments = json!({ "argv": ["echo", "lost"] });
        let call =
            json!({ "name": "palyra_process_run", "arguments": arguments, "_meta": { "palyra/idempotency-key": key } });
        client.ask("tools/call", call.clone());
        let approval = wait_for_question(&host);
        client.lose();
        host.decide(&approval, "allow", &[]).exits(0).done();
        // The same key gives the same outcome, to whoever comes back.
        let again = connect().request("tools/call", call);
        assert_eq!(again["result"]["structuredContent"]["stdout"], "lost\n", "{again}");
        assert_eq!(again["result"]["_meta"]["palyra/replayed"], true, "{again}");
    }
}

#[test]
fn hostile_lines_get_typed_answers_and_the_next_is_served() {
    let host = Host::up();
    let mut client = host.mcp(&["--as", "agent:one"]);
    for (line, code) in [
        (b"{".to_vec(), -32700),
        (b"nonsense".to_vec(), -32700),
        (b"\xff\xfe".to_vec(), -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"id\":8,\"method\":\"ping\"}".to_vec(), -32700),
        (b"[]".to_vec(), -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"ping\"}".to_vec(), -32600),
        (format!("{{\"x\":\"{}\"}}", "x".repeat(5 << 20)).into_bytes(), -32600),
        ([b"[".repeat(100_000), b"]".repeat(100_000)].concat(), -32700),
    ] {
        client.line(&line);
        let answer = client.until(|message| message.get("error").is_some());
        assert_eq!(
            answer["error"]["code"],
            code,
            "{answer} for {}",
            String::from_utf8_lossy(&line[..line.len().min(60)])
        );
        assert!(answer["error"]["data"]["code"].is_string(), "{answer}");
        assert_eq!(answer.get("id"), Some(&Value::Null), "{answer}");
    }
    for (params, code) in [
        (json!({ "name": "palyra_nothing", "arguments": {} }), -32602),
        (json!({ "name": "../../etc", "arguments": {} }), -32602),
        (
            json!({ "name": "palyra_echo", "arguments": { "text": "x" }, "_meta": { "palyra/idempotency-key": "a b" } }),
            -32602,
        ),
        (json!({ "name": "palyra_echo", "arguments": { "text": "x" }, "_meta": { "palyra/session": 7 } }), -32602),
    ] {
        let answer = client.request("tools/call", params.clone());
        assert_eq!(answer["error"]["code"], code, "{params}: {answer}");
    }
    for params in [json!({ "name": "palyra_echo", "arguments": [] }), json!({ "name": 1 }), json!([]), json!({})] {
        let answer = client.request("tools/call", params.clone());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    // What was not declared is not there.
    for method in ["prompts/list", "resources/list", "resources/templates/list", "completion/complete"] {
        let params = json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "" } });
        assert_eq!(client.request(method, params)["error"]["code"], -32601, "{method}");
    }
    // A few bytes each, and too many of them.
    let many = json!({ "text": "x", "list": vec![1; 200_000] });
    client.say(&json!({ "jsonrpc": "2.0", "id": 77, "method": "tools/call",
        "params": { "name": "palyra_echo", "arguments": many } }));
    let answer = client.until(|message| message.get("error").is_some());
    assert_eq!(answer["error"]["data"]["code"], "input_too_many_values", "{answer}");
    assert_eq!(answer["id"], 77, "whoever waits for it hears of it");
    for arguments in [json!({}), json!({ "text": 1 }), json!({ "text": "x", "more": 1 })] {
        let answer = client.call("palyra_echo", &arguments);
        assert_eq!(text(&answer, "/structuredContent/error/code"), "schema_violation", "{answer}");
    }
    assert_eq!(client.request("no/such/method", json!({}))["error"]["code"], -32601);
    // Ids are the client's own: text is as good as a number.
    client.say(&json!({ "jsonrpc": "2.0", "id": "one/two ☂", "method": "tools/call",
        "params": { "name": "palyra_echo", "arguments": { "text": "still here" } } }));
    let answer = client.answer(&json!("one/two ☂"));
    assert_eq!(answer["result"]["structuredContent"]["text"], "still here");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_client_is_an_agent_and_never_the_owner() {
    let host = Host::up();
    let mut client = host.mcp_raw(&[]);
    client.initialize(BEFORE);
    client.told("agent:mcp");
    let done = client.call("palyra_echo", &json!({ "text": "x" }));
    let events = host.palyra(&["journal", "show", text(&done, "/_meta/palyra~1call")]).exits(0).json_lines();
    assert_eq!(text(&events[0], "/body/call/origin/principal"), "agent:mcp");
    assert_eq!(text(&events[0], "/body/call/origin/channel"), "mcp");
    for (options, code) in [
        (&["--token", "palyra_nonsense"][..], "unauthenticated"),
        (&["--token", ""], "unauthenticated"),
        (&["--as", "user:local"], "mcp_needs_an_agent"),
        (&["--as", "user:other"], "act_as_not_agent"),
    ] {
        let refused = host.palyra(&[options, &["mcp", "serve"]].concat());
        refused.fails(10, code);
    }
    // Not even by hand.
    for greeting in [
        "{\"palyra_mcp\":1}",
        "{\"palyra_mcp\":1,\"act_as\":\"user:local\"}",
        "{\"palyra_mcp\":2}",
        "nonsense",
        "{\"palyra_mcp\":1,\"owner\":true}",
    ] {
        use std::io::{BufRead as _, Write as _};
        let mut socket = std::os::unix::net::UnixStream::connect(host.state().join("mcp.sock")).unwrap();
        socket.write_all(format!("{greeting}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::BufReader::new(socket).read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["ok"], false, "{answer}");
    }
    assert_eq!(palyra_e2e::host::mode(&host.state().join("mcp.sock")) & 0o777, 0o600);
}

#[test]
fn a_token_that_is_withdrawn_closes_the_door_at_once() {
    let host = Host::up();
    let token = token(&host, "agent:one", "");
    let mut client = host.mcp(&["--token", &token]);
    client.call("palyra_echo", &json!({ "text": "x" }));
    let id = text(&host.palyra(&["access", "token", "list"]).good(), "/0/token_id").to_owned();
    host.palyra(&["access", "token", "revoke", &id]).exits(0).done();
    let answer = client.request("tools/call", json!({ "name": "palyra_echo", "arguments": { "text": "x" } }));
    assert_eq!(text(&answer, "/error/data/code"), "token_revoked", "{answer}");
}

#[test]
fn a_client_hears_when_its_list_changes() {
    let mut host = Host::idle();
    std::fs::create_dir(host.path("policies")).unwrap();
    host.start();
    host.palyra(&["access", "group", "add", "mute"]).exits(0).done();
    host.kill();
    let rule = "@id(\"mute\")\n@reason(\"The mute do not speak.\")\n\
                forbid (principal in Group::\"mute\", action == Action::\"tool.execute\", resource);\n";
    std::fs::write(host.path("policies").join("a.cedar"), rule).unwrap();
    host.configure(&format!("policy_dir = {:?}\n", host.path("policies")));
    host.start();
    let token = token(&host, "agent:one", "");
    let mut client = host.mcp(&["--token", &token]);
    let mut current = host.mcp_current(&["--token", &token]);
    current.ask("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    current.notification("notifications/subscriptions/acknowledged");
    assert!(listed(&mut client).len() > 3);
    host.palyra(&["access", "group", "add", "mute", "agent:one"]).exits(0).done();
    client.notification("notifications/tools/list_changed");
    current.notification("notifications/tools/list_changed");
    assert_eq!(listed(&mut client), Vec::<String>::new());
}

#[test]
fn serving_starts_the_daemon_if_need_be() {
    let host = Host::idle();
    let mut client = host.mcp(&["--as", "agent:one"]);
    client.told("palyrad was not running");
    assert_ne!(client.call("palyra_echo", &json!({ "text": "x" }))["isError"], true);
    assert_eq!(client.hang_up(), 0);
    host.palyra(&["down"]).exits(0).done();
}
