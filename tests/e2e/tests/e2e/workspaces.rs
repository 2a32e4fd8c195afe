//! One daemon, two workspaces: through no door does a caller of one reach the other.

use palyra_e2e::cli::run;
use palyra_e2e::host::{Restart, behind_client, binary};
use palyra_e2e::mcp::BEFORE;
use palyra_e2e::{Host, Proposal, Ran, text};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `palyra` with JSON output, typed in a directory: nothing but the directory says which workspace is meant.
fn typed_in<S: AsRef<OsStr>>(host: &Host, directory: &Path, args: &[S]) -> Ran {
    let mut command = host.command("palyra");
    command.env_remove("PALYRA_WORKSPACE").current_dir(directory).args(["--output", "json"]).args(args);
    run(command, &[])
}

fn call_in(host: &Host, directory: &Path, tool: &str, input: &Value, options: &[&str]) -> Ran {
    let input = input.to_string();
    typed_in(host, directory, &[&["call", tool, "--input", &input], options].concat())
}

/// A host with a second workspace, each with a file `name` that says which it is.
fn two() -> (Host, PathBuf) {
    let host = Host::up();
    let second = second_of(&host);
    typed_in(&host, &second, &["workspaces", "add"]).exits(0).done();
    (host, second)
}

fn second_of(host: &Host) -> PathBuf {
    let second = host.path("b");
    std::fs::create_dir_all(second.join("deep")).unwrap();
    std::fs::write(second.join("name"), "second").unwrap();
    host.put("name", "first");
    second.canonicalize().unwrap()
}

fn read_name(host: &Host, directory: &Path) -> String {
    let read = call_in(host, directory, "palyra.fs.read", &json!({ "path": "name" }), &[]).good();
    text(&read, "/output/content").to_owned()
}

fn roots(host: &Host) -> Vec<String> {
    let listed = host.palyra(&["workspaces", "list"]).good();
    listed.as_array().unwrap().iter().map(|workspace| text(workspace, "/root").to_owned()).collect()
}

#[test]
fn palyra_in_a_directory_means_the_workspace_that_it_lies_in() {
    let (host, second) = two();
    let first = host.work("").canonicalize().unwrap();
    assert_eq!(read_name(&host, &first), "first");
    assert_eq!(read_name(&host, &second), "second");
    assert_eq!(read_name(&host, &second.join("deep")), "second");
    let named = ["--workspace", second.to_str().unwrap(), "call", "palyra.fs.read", "--input", r#"{"path":"name"}"#];
    assert_eq!(text(&typed_in(&host, &first, &named).good(), "/output/content"), "second");
    // A process of one sees nothing of the other.
    let ran = call_in(&host, &second, "palyra.process.run", &json!({ "argv": ["cat", "name"] }), &["--detach"]).good();
    host.decide(text(&ran, "/approval/approval_id"), "allow", &[]).fails(10, "not_found");
    let approval = text(&ran, "/approval/approval_id");
    typed_in(&host, &second, &["approvals", "decide", approval, "allow"]).exits(0).done();
    let ended = typed_in(&host, &second, &["calls", "follow", text(&ran, "/call_id")]).exits(0);
    assert!(ended.stdout.contains("second") && !ended.stdout.contains("first"), "{ended:?}");
    // Elsewhere nothing is guessed.
    let lost = call_in(&host, &host.path(""), "palyra.echo", &json!({ "text": "x" }), &[]);
    assert!(
        lost.stdout.contains("workspace_not_registered") && lost.stdout.contains("palyra workspaces add"),
        "{lost:?}"
    );
    // What is about the daemon works anywhere.
    typed_in(&host, &host.path(""), &["status"]).exits(0).done();
}

#[test]
fn what_happened_in_one_is_not_seen_from_the_other() {
    let (host, second) = two();
    let first = host.work("").canonicalize().unwrap();
    let done = call_in(&host, &first, "palyra.echo", &json!({ "text": "x" }), &["--session", "work"]).good();
    let call = text(&done, "/call_id");
    typed_in(&host, &second, &["calls", "show", call]).fails(10, "not_found");
    typed_in(&host, &first, &["calls", "show", call]).exits(0).done();
    let taken = call_in(&host, &second, "palyra.echo", &json!({ "text": "x" }), &["--session", "work"]);
    assert!(taken.stdout.contains("session_other_workspace"), "{taken:?}");
    let listed = |directory: &Path| typed_in(&host, directory, &["calls", "list"]).stdout;
    assert!(listed(&first).contains(call) && !listed(&second).contains(call));
}

/// Effects are kept, shown and undone where they happened, also after a restart.
#[test]
fn effects_belong_to_their_workspace() {
    let (mut host, second) = two();
    let first = host.work("").canonicalize().unwrap();
    let mut calls = Vec::new();
    for directory in [&first, &second] {
        let input = json!({ "path": "name", "content": "changed" });
        let asked = call_in(&host, directory, "palyra.fs.write", &input, &["--detach"]).good();
        typed_in(&host, directory, &["approvals", "decide", text(&asked, "/approval/approval_id"), "allow"])
            .exits(0)
            .done();
        let call = text(&asked, "/call_id").to_owned();
        typed_in(&host, directory, &["calls", "follow", &call]).exits(0).done();
        calls.push(call);
    }
    host.restart(Restart::Kill);
    let kept = |directory: &Path| typed_in(&host, directory, &["effects", "list"]).exits(0).stdout;
    assert!(kept(&first).contains(&calls[0]) && !kept(&first).contains(&calls[1]));
    assert!(kept(&second).contains(&calls[1]) && !kept(&second).contains(&calls[0]));
    typed_in(&host, &second, &["undo", &calls[0]]).fails(10, "effect_not_kept");
    typed_in(&host, &second, &["undo", &calls[1]]).exits(0).done();
    assert_eq!(std::fs::read_to_string(second.join("name")).unwrap(), "second");
    assert_eq!(host.content("name"), "changed", "the other workspace is as it was");
}

#[test]
fn a_token_opens_one_workspace_over_every_door() {
    let (host, second) = two();
    let first = host.work("").canonicalize().unwrap();
    typed_in(&host, &second, &["access", "agent", "add", "agent:two"]).exits(0).done();
    let made = typed_in(&host, &second, &["access", "token", "create", "agent:two", "--rate", "100000"]).good();
    let token = text(&made, "/token");
    // HTTP: the token says it, and a header that says otherwise is refused.
    let door = host.http().with(token);
    let body = json!({ "tool": "palyra.fs.read", "input": { "path": "name" } }).to_string();
    let answer = door.send("POST", "/v1/tools/invoke", &[("content-type", "application/json")], Some(body.as_bytes()));
    assert_eq!(text(&answer.is(200).json(), "/outcome/output/content"), "second");
    let elsewhere = [("palyra-workspace", first.to_str().unwrap())];
    door.send("GET", "/v1/tools", &elsewhere, None).refuses(403, "token_other_workspace");
    door.send("GET", "/v1/tools", &[("palyra-workspace", "a b")], None).refuses(422, "workspace_malformed");
    door.send("GET", "/v1/tools", &[("palyra-workspace", second.to_str().unwrap())], None).is(200);
    // The socket: a client of one, in the directory of the other.
    let echo = |directory: &Path| {
        typed_in(&host, directory, &["--token", token, "call", "palyra.echo", "--input", r#"{"text":"x"}"#])
    };
    echo(&second).exits(0).done();
    echo(&host.path("")).exits(0).done();
    echo(&first).fails(10, "token_other_workspace");
    // MCP over HTTP.
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": BEFORE, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let mcp = |headers: &[(&str, &str)]| {
        let both = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
        door.send("POST", "/mcp", &[&both, headers].concat(), Some(hello.to_string().as_bytes()))
    };
    mcp(&[]).is(200);
    mcp(&elsewhere).refuses(403, "token_other_workspace");
}

/// What the daemon answers to `palyra mcp serve` with these options, in a directory, as an agent's client starts it.
fn greeted(host: &Host, directory: &Path, options: &[&str]) -> (Option<Value>, String) {
    let mut command = host.command("palyra");
    command.env_remove("PALYRA_WORKSPACE").args(["mcp", "serve"]).args(options).current_dir(directory);
    let mut child = behind_client(&command);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let read = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "palyra_fs_read", "arguments": { "path": "name" } } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": BEFORE, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    // A client that is refused hangs up while it is spoken to.
    drop(stdin.write_all(format!("{hello}\n{ready}\n{read}\n").as_bytes()));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let answer = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap()).find(|message| message["id"] == 2);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    (answer, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_client_connected_in_one_project_never_works_in_another() {
    let (host, second) = two();
    let first = host.work("").canonicalize().unwrap();
    let connected = typed_in(&host, &first, &["connect", "generic", "--project", second.to_str().unwrap()]).good();
    let token = text(&connected, "/token_file");
    let options = ["--token-file", token, "--workspace", second.to_str().unwrap()];
    let (answer, _) = greeted(&host, &second, &options);
    assert_eq!(text(&answer.unwrap(), "/result/structuredContent/content"), "second");
    let (answer, said) = greeted(&host, &first, &options);
    assert!(answer.is_none() && said.contains("was connected for") && said.contains("palyra connect"), "{said}");
    // One without a token is an agent of the directory's workspace; where there is none, it is refused.
    let (answer, _) = greeted(&host, &first, &[]);
    assert_eq!(text(&answer.unwrap(), "/result/structuredContent/content"), "first");
    let (answer, said) = greeted(&host, &host.path(""), &[]);
    assert!(answer.is_none() && said.contains("no registered workspace"), "{said}");
    let (answer, said) = greeted(&host, &first, &["--workspace", second.to_str().unwrap()]);
    assert!(answer.is_none() && said.contains("was connected for"), "{said}");
}

/// A client keeps its shell, and what it starts there has the daemon's user: it is kept to the client's workspace.
#[test]
fn what_a_client_starts_is_kept_to_its_workspace() {
    let (host, second) = two();
    let first = host.work("").canonicalize().unwrap();
    let connected = typed_in(&host, &second, &["connect", "generic"]).good();
    let token = text(&connected, "/token_file");
    let palyra = binary("palyra");
    let [palyra, state] = [palyra.as_path(), &host.state()].map(|path| path.to_str().unwrap().to_owned());
    let read = format!(
        "{palyra} --state-dir {state} --output json --workspace \"$1\" call palyra.fs.read --input '{{\"path\":\"name\"}}'"
    );
    // A shell is no client, so `timeout` is: it connects, and then its shell types commands.
    // The server answers once the daemon knows whose client it is.
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": BEFORE, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let script = format!(
        "mkfifo \"$2\"; exec 5<>\"$2\"; exec 4< <(exec {palyra} --state-dir {state} mcp serve --token-file {token} <&5 2>/dev/null); \
         server=$!; echo '{hello}' >&5; read -r said <&4; {read}; echo; set -- \"$3\"; {read}; kill $server"
    );
    let mut client = Command::new("timeout");
    client.args(["--kill-after=1", "600", "bash", "-c", &script, "client"]).current_dir(&second);
    client
        .arg(&first)
        .arg(host.path("pipe"))
        .arg(&second)
        .env_remove("PALYRA_WORKSPACE")
        .env("HOME", host.path("home"));
    let ran = run(client, &[]);
    assert!(ran.stderr.contains("token_other_workspace"), "{ran:?}");
    assert!(!ran.stdout.contains("\"first\"") && ran.stdout.contains("second"), "{ran:?}");
    assert_eq!(read_name(&host, &first), "first", "the person goes where they want");
}

#[test]
fn registrations_survive_and_are_on_record() {
    let mut host = Host::up();
    let second = second_of(&host);
    let first = host.work("").canonicalize().unwrap();
    let both = vec![second.to_str().unwrap().to_owned(), first.to_str().unwrap().to_owned()];
    assert_eq!(roots(&host), both[1..], "`--workspace` of the start is registered");
    let id = text(&typed_in(&host, &second, &["workspaces", "add"]).good(), "/workspace_id").to_owned();
    assert_eq!(
        text(&typed_in(&host, &second, &["workspaces", "add", "."]).good(), "/workspace_id"),
        id,
        "again is safe"
    );
    for by in [Restart::Terminate, Restart::Kill] {
        host.restart(by);
        assert_eq!(roots(&host), both);
        assert_eq!(read_name(&host, &second), "second");
    }
    let journal = host.palyra(&["journal", "export"]).stdout;
    assert!(journal.contains("workspace.added") && journal.contains(&id), "{journal}");
    typed_in(&host, &first, &["workspaces", "remove", &id]).exits(0).done();
    host.restart(Restart::Kill);
    assert_eq!(roots(&host), both[1..]);
    assert!(host.palyra(&["journal", "export"]).stdout.contains("workspace.removed"));
    call_in(&host, &second, "palyra.echo", &json!({ "text": "x" }), &[]).exits(3).done();
    host.palyra(&["journal", "verify"]).exits(0).done();
}

/// SIGKILL while directories are registered, at whatever step: each is registered whole, or not at all.
#[test]
fn a_registration_that_is_cut_off_is_whole_or_not_there() {
    let mut host = Host::up();
    for turn in 0..6_usize {
        let names: Vec<PathBuf> = (0..8).map(|n| host.path(&format!("p{turn}-{n}"))).collect();
        names.iter().for_each(|name| std::fs::create_dir(name).unwrap());
        let mut told = Vec::new();
        let mut adding: Vec<_> = names
            .iter()
            .map(|name| {
                let mut command = host.command("palyra");
                command.args(["--output", "json", "workspaces", "add"]).arg(name);
                command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        // As many as the turn says have their answer; the others are somewhere on the way.
        for child in adding.drain(..turn + 1) {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            told.push(text(&answer, "/root").to_owned());
        }
        host.kill();
        adding.into_iter().for_each(|child| drop(child.wait_with_output().unwrap()));
        host.start();
        let known = roots(&host);
        assert!(told.iter().all(|root| known.contains(root)), "acknowledged and gone: {told:?} {known:?}");
        for root in known.iter().filter(|root| root.contains(&format!("/p{turn}-"))) {
            call_in(&host, Path::new(root), "palyra.echo", &json!({ "text": "x" }), &[]).exits(0).done();
        }
        host.palyra(&["journal", "verify"]).exits(0).done();
    }
}

#[test]
fn a_replaced_directory_is_noticed_and_accepted_by_name() {
    let (host, second) = two();
    std::fs::rename(&second, second.with_file_name("moved")).unwrap();
    std::fs::create_dir(&second).unwrap();
    std::fs::write(second.join("name"), "another").unwrap();
    for (tool, input) in [
        ("palyra.fs.read", json!({ "path": "name" })),
        ("palyra.process.run", json!({ "argv": ["cat", "name"] })),
        ("palyra.fs.write", json!({ "path": "x", "content": "x" })),
    ] {
        let refused = call_in(&host, &second, tool, &input, &[]);
        assert!(refused.stdout.contains("workspace_replaced"), "{tool}: {refused:?}");
    }
    assert_eq!(read_name(&host, &host.work("")), "first", "the other one goes on");
    let unwell = typed_in(&host, &host.path(""), &["doctor"]);
    assert!(unwell.stdout.contains("replaced while") && unwell.stdout.contains("palyra workspaces add"), "{unwell:?}");
    let listed = host.palyra(&["workspaces", "list"]).good();
    assert!(listed.to_string().contains("workspace_replaced"), "{listed}");
    host.palyra(&["workspaces", "add", second.to_str().unwrap()]).exits(0).done();
    assert_eq!(read_name(&host, &second), "another");
}

#[test]
fn a_workspace_is_removed_when_nothing_waits_there() {
    let (host, second) = two();
    let asked =
        call_in(&host, &second, "palyra.fs.write", &json!({ "path": "x", "content": "x" }), &["--detach"]).good();
    let name = second.to_str().unwrap();
    let busy = host.palyra(&["workspaces", "remove", name]).fails(10, "workspace_busy");
    assert!(text(&busy, "/message").contains("approvals that wait: 1"), "{busy}");
    typed_in(&host, &second, &["calls", "cancel", text(&asked, "/call_id")]).exits(5).done();
    host.palyra(&["workspaces", "remove", name]).exits(0).done();
    let home = host.work("").canonicalize().unwrap();
    host.palyra(&["workspaces", "remove", home.to_str().unwrap()]).fails(10, "workspace_home");
    assert!(second.join("name").exists(), "its files stay");
}

#[test]
fn what_decides_is_out_of_the_reach_of_every_workspace() {
    let host = Host::idle();
    let (rules, shared) = (host.path("rules"), host.path("shared"));
    std::fs::create_dir_all(rules.join("cases")).unwrap();
    std::fs::create_dir_all(shared.join("inner")).unwrap();
    host.configure(&format!("policy_dir = {rules:?}\n[process_runner]\nwrite_roots = [{shared:?}]\n"));
    let mut host = host;
    host.start();
    for (directory, why) in [
        (host.path("rules"), "agents could change"),
        (host.path("s"), "the daemon's state"),
        (shared.join("inner"), "writable root"),
        (host.path(""), "overlap"),
    ] {
        let refused = host.palyra(&["workspaces", "add", directory.to_str().unwrap()]).exits(10).error();
        assert!(text(&refused, "/message").contains(why), "{refused}");
    }
    assert_eq!(roots(&host).len(), 1, "nothing was registered");
}

/// The owner of the library's connection names a workspace that nobody registered.
#[tokio::test]
async fn an_unregistered_workspace_is_refused_before_anything_else() {
    let host = Host::up();
    let caller = host.caller(None, &host.path("nowhere")).await;
    let refused = caller.call(Proposal::new("palyra.echo", &json!({ "text": "x" }))).await.unwrap_err();
    assert_eq!(refused.code, "workspace_not_registered", "{refused:?}");
}

/// `palyra up --workspace` on a daemon that runs registers the directory.
#[test]
fn up_registers_its_workspace() {
    let host = Host::up();
    let second = second_of(&host);
    let mut up = Command::new(binary("palyra"));
    up.arg("--state-dir").arg(host.state()).args(["up", "--workspace"]).arg(&second);
    run(up, &[]).exits(0).done();
    assert_eq!(read_name(&host, &second), "second");
}
