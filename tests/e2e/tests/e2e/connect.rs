//! `palyra connect` and `palyra disconnect`: what they write, and that it can be taken back.

use palyra_e2e::host::mode;
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Every file below a directory, with its content.
fn tree(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn connect(host: &Host, args: &[&str]) -> Value {
    let project = host.path("w");
    host.palyra(&[&["connect"], args, &["--project", project.to_str().unwrap()]].concat()).good()
}

/// Starts the server that a configuration names, and makes a call through it.
fn works(host: &Host, server: &Value) {
    let args: Vec<&str> = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert_eq!(&args[..2], ["mcp", "serve"]);
    let greeting = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "palyra_echo", "arguments": { "text": "through" } } });
    let mut command = std::process::Command::new(text(server, "/command"));
    command.args(&args).env("HOME", host.path("home"));
    let command = palyra_e2e::host::behind_client(&command);
    let ran = palyra_e2e::cli::run(command, format!("{greeting}\n{call}\n").as_bytes()).exits(0);
    assert!(ran.stdout.contains("through"), "{ran:?}");
}

#[test]
fn claude_code_is_connected_and_taken_back_exactly() {
    let host = Host::up();
    host.put(".mcp.json", "{\n  // mine\n  \"mcpServers\": { \"z\": { \"command\": \"z\" } }\n}\n");
    fs::create_dir(host.work(".claude")).unwrap();
    host.put(".claude/settings.local.json", "{ \"permissions\": { \"deny\": [\"Bash\"], \"allow\": [] } }");
    let before = tree(&host.path("w"));
    let made = connect(&host, &["claude-code", "--exclusive"]);
    assert_eq!(made["principal"], "agent:claude-code");
    let token_file = PathBuf::from(text(&made, "/token_file"));
    assert_eq!(mode(&token_file) & 0o777, 0o600);
    assert!(token_file.starts_with(host.state()));
    let secret = fs::read_to_string(&token_file).unwrap();
    for (path, content) in tree(&host.path("w")) {
        assert!(!content.contains(secret.trim()), "a secret in {}", path.display());
    }
    assert!(host.content(".mcp.json").contains("// mine"));
    let settings: Value = serde_json::from_str(&host.content(".claude/settings.local.json")).unwrap();
    let denied = settings["permissions"]["deny"].as_array().unwrap();
    assert_eq!(denied.iter().filter(|tool| **tool == "Bash").count(), 1);
    assert!(denied.contains(&json!("Write")) && settings["hooks"]["PreToolUse"].is_array());
    assert_eq!(settings["disableAllHooks"], false, "whatever the project's own settings say");
    works(&host, &made["mcp"]["mcpServers"]["palyra"]);

    // A narrow token: it cannot look around.
    let listing = host.palyra(&["--token", secret.trim(), "approvals", "list"]);
    listing.fails(10, "forbidden");
    // Once more changes nothing.
    let after = tree(&host.path("w"));
    assert_eq!(connect(&host, &["claude-code", "--exclusive"])["token_id"], made["token_id"]);
    assert_eq!(tree(&host.path("w")), after);
    let project = host.path("w");
    let again = ["connect", "claude-code", "--exclusive", "--project", project.to_str().unwrap()];
    let again = host.palyra_text(&again).exits(0);
    assert!(!again.stdout.contains("changed ") && again.stdout.contains("kept "), "{again:?}");
    host.palyra(&["connect", "codex", "--name", "claude-code", "--project", project.to_str().unwrap()])
        .fails(10, "connected_otherwise");

    host.palyra(&["disconnect", "claude-code"]).exits(0).done();
    assert_eq!(tree(&host.path("w")), before);
    assert!(!token_file.exists());
    host.palyra(&["--token", secret.trim(), "tools", "list"]).exits(10).done();
    assert_eq!(host.palyra(&["access", "agent", "list"]).good(), json!([]));
    host.palyra(&["disconnect", "claude-code"]).fails(10, "not_found");
}

#[test]
fn what_others_changed_meanwhile_stays() {
    let host = Host::up();
    connect(&host, &["cursor"]);
    let config = host.content(".cursor/mcp.json");
    host.put(".cursor/mcp.json", config.replace("\"mcpServers\": {", "\"theirs\": 1,\n  \"mcpServers\": {"));
    host.palyra(&["disconnect", "cursor"]).exits(0).done();
    let left: Value = serde_json::from_str(&host.content(".cursor/mcp.json")).unwrap();
    assert_eq!(left, json!({ "theirs": 1 }));
}

#[test]
fn connecting_again_keeps_what_others_wrote_meanwhile() {
    let host = Host::up();
    connect(&host, &["cursor"]);
    let config = host.content(".cursor/mcp.json");
    let theirs = config.replace("\"mcpServers\": {", "\"mcpServers\": {\n    \"mine\": { \"command\": \"m\" },");
    assert_ne!(theirs, config);
    host.put(".cursor/mcp.json", &theirs);
    connect(&host, &["cursor"]);
    assert_eq!(host.content(".cursor/mcp.json"), theirs);
    host.palyra(&["disconnect", "cursor"]).exits(0).done();
    let left: Value = serde_json::from_str(&host.content(".cursor/mcp.json")).unwrap();
    assert_eq!(left, json!({ "mcpServers": { "mine": { "command": "m" } } }));

    // What stood in our place comes back as it was written, though the file was written to since.
    let codex = host.path("home/.codex");
    fs::create_dir_all(&codex).unwrap();
    let mine = "[mcp_servers.palyra]\nenv = { A = \"1\" } # mine\nstartup_timeout_sec = 10.5\n";
    fs::write(codex.join("config.toml"), mine).unwrap();
    connect(&host, &["codex"]);
    let trusted = "\n[projects.x]\ntrust_level = \"trusted\"\n";
    let config = fs::read_to_string(codex.join("config.toml")).unwrap();
    assert!(!config.contains("# mine"), "{config}");
    fs::write(codex.join("config.toml"), config + trusted).unwrap();
    connect(&host, &["codex"]);
    host.palyra(&["disconnect", "codex"]).exits(0).done();
    assert_eq!(fs::read_to_string(codex.join("config.toml")).unwrap(), mine.to_owned() + trusted);
}

#[test]
fn without_a_daemon_files_are_restored_and_the_token_is_not_forgotten() {
    let mut host = Host::up();
    let before = tree(&host.path("w"));
    let made = connect(&host, &["cursor"]);
    let token_file = PathBuf::from(text(&made, "/token_file"));
    let secret = fs::read_to_string(&token_file).unwrap();
    host.terminate();
    host.palyra(&["disconnect", "cursor"]).fails(7, "token_not_withdrawn");
    assert_eq!(tree(&host.path("w")), before);
    assert!(!token_file.exists());
    host.start();
    host.palyra(&["--token", secret.trim(), "tools", "list"]).exits(0).done();
    host.palyra(&["disconnect", "cursor"]).exits(0).done();
    host.palyra(&["--token", secret.trim(), "tools", "list"]).exits(10).done();

    // A token whose file was lost is withdrawn when another is issued.
    let made = connect(&host, &["cursor"]);
    let secret = fs::read_to_string(&token_file).unwrap();
    fs::remove_file(&token_file).unwrap();
    assert_ne!(connect(&host, &["cursor"])["token_id"], made["token_id"]);
    host.palyra(&["--token", secret.trim(), "tools", "list"]).exits(10).done();
}

#[test]
fn codex_and_others_are_connected_too() {
    let host = Host::up();
    let codex = host.path("home/.codex");
    fs::create_dir_all(&codex).unwrap();
    let mine = "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"o\"\n";
    fs::write(codex.join("config.toml"), mine).unwrap();
    let made = connect(&host, &["codex", "--exclusive"]);
    let config = fs::read_to_string(codex.join("config.toml")).unwrap();
    assert!(config.contains("# mine") && config.contains("[mcp_servers.palyra]"), "{config}");
    assert!(config.contains("shell_tool = false") && config.contains("sandbox_mode = \"read-only\""), "{config}");
    works(&host, &made["mcp"]["mcpServers"]["palyra"]);
    host.palyra(&["disconnect", "codex"]).exits(0).done();
    assert_eq!(fs::read_to_string(codex.join("config.toml")).unwrap(), mine);

    let before = tree(&host.path("w"));
    let made = connect(&host, &["generic", "--name", "mine"]);
    works(&host, &made["mcp"]["mcpServers"]["palyra"]);
    assert_eq!(tree(&host.path("w")), before, "nothing but the token is written");
    host.palyra(&["disconnect", "mine"]).exits(0).done();

    let printed = connect(&host, &["claude-code", "--print"]);
    assert!(text(&printed, "/files/0/content").contains("palyra"));
    assert_eq!(tree(&host.path("w")), before, "nothing at all is written");
    for bad in ["../x", "a b", ""] {
        let project = host.path("w");
        let refused = host.palyra(&["connect", "generic", "--name", bad, "--project", project.to_str().unwrap()]);
        assert_ne!(refused.code, 0, "{bad}");
    }
    host.put(".mcp.json", "{ broken");
    let project = host.path("w");
    host.palyra(&["connect", "claude-code", "--project", project.to_str().unwrap()]).fails(1, "config_malformed");
    assert_eq!(host.palyra(&["access", "agent", "list"]).good(), json!([]), "nothing was begun");
}

/// Connecting fails like this, and nothing of it is left.
fn comes_to_nothing(host: &Host, args: &[&str], exit: i32, code: &str) -> String {
    let project = host.path("w");
    let ran = host.palyra(&[&["connect"], args, &["--project", project.to_str().unwrap()]].concat());
    let told = ran.stderr.clone();
    ran.fails(exit, code);
    assert_eq!(host.palyra(&["access", "agent", "list"]).good(), json!([]), "{told}");
    let tokens = host.palyra(&["access", "token", "list"]).good();
    assert!(tokens.as_array().unwrap().iter().all(|token| token["state"] != "active"), "{tokens}");
    assert_eq!(tree(&host.state().join("clients")), []);
    told
}

#[test]
fn a_key_that_stands_twice_in_a_configuration_is_refused() {
    let host = Host::up();
    host.put(".mcp.json", "{ \"mcpServers\": {}, \"mcpServers\": {} }");
    let told = comes_to_nothing(&host, &["claude-code"], 1, "config_malformed");
    assert!(told.contains("`mcpServers`"), "{told}");
}

#[test]
fn a_connection_that_fails_half_way_is_taken_back() {
    let host = Host::up();
    host.put(".mcp.json", "{\n  \"mine\": 1\n}\n");
    let before = host.content(".mcp.json");
    // The first file can be written and the second cannot.
    fs::create_dir_all(host.work(".claude/settings.local.json.palyra-new")).unwrap();
    let told = comes_to_nothing(&host, &["claude-code", "--exclusive"], 1, "io");
    assert!(told.contains("nothing is left"), "{told}");
    assert_eq!(host.content(".mcp.json"), before);
    fs::remove_dir(host.work(".claude/settings.local.json.palyra-new")).unwrap();

    // A connection that there was before stays as it was.
    let made = connect(&host, &["claude-code"]);
    let (files, kept) = (tree(&host.path("w")), tree(&host.state().join("clients")));
    fs::remove_file(host.work(".claude/settings.local.json")).unwrap();
    fs::create_dir(host.work(".claude/settings.local.json.palyra-new")).unwrap();
    let project = host.path("w");
    host.palyra(&["connect", "claude-code", "--project", project.to_str().unwrap()]).fails(1, "io");
    assert_eq!(tree(&host.state().join("clients")), kept);
    fs::remove_dir(host.work(".claude/settings.local.json.palyra-new")).unwrap();
    assert_eq!(connect(&host, &["claude-code"])["token_id"], made["token_id"]);
    assert_eq!(tree(&host.path("w")), files);
}

#[test]
fn a_projects_own_codex_configuration_does_not_undo_ours() {
    let host = Host::up();
    fs::create_dir(host.work(".codex")).unwrap();
    for (theirs, keys) in [
        ("sandbox_mode = \"danger-full-access\"\n", "sandbox_mode"),
        ("[features]\nshell_tool = true\n", "features.shell_tool"),
        ("features.unified_exec = true\nweb_search = \"live\"\n", "features.unified_exec, web_search"),
        ("[mcp_servers.x]\ncommand = \"x\"\n", "mcp_servers"),
    ] {
        host.put(".codex/config.toml", theirs);
        let told = comes_to_nothing(&host, &["codex", "--exclusive"], 10, "exclusive_undone");
        assert!(told.contains(keys) && told.contains(".codex/config.toml"), "{told}");
    }
    host.put(".codex/config.toml", "model = \"x\"\nsandbox_mode = \"read-only\"\n");
    connect(&host, &["codex", "--exclusive"]);
}

#[test]
fn a_relative_codex_home_counts_from_where_the_command_is_run() {
    let host = Host::up();
    let mut command = host.command("palyra");
    command.args(["connect", "codex"]).arg("--project").arg(host.path("w"));
    command.current_dir(host.path("w")).env("CODEX_HOME", "here");
    palyra_e2e::cli::run(command, &[]).exits(0).done();
    assert!(host.content("here/config.toml").contains("[mcp_servers.palyra]"));
    assert!(!host.path("home/.codex/config.toml").exists());
}

#[test]
fn what_is_no_file_is_neither_waited_for_nor_replaced() {
    let host = Host::up();
    std::os::unix::fs::symlink("nowhere", host.work(".mcp.json")).unwrap();
    comes_to_nothing(&host, &["claude-code"], 1, "config_no_file");
    assert!(fs::symlink_metadata(host.work(".mcp.json")).unwrap().is_symlink());
    fs::remove_file(host.work(".mcp.json")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(host.work(".mcp.json")).status().unwrap();
    assert!(fifo.success());
    comes_to_nothing(&host, &["claude-code"], 1, "config_no_file");
}

#[test]
fn the_guard_lets_palyras_tools_through_and_no_other() {
    let host = Host::idle();
    for (tool, denied) in [
        ("mcp__palyra__palyra_echo", false),
        ("TodoWrite", false),
        ("Bash", true),
        ("NewTool", true),
        ("mcp__palyra__evil__run", true),
        ("mcp__palyra__", true),
        ("mcp__palyra_evil__run", true),
    ] {
        let question = json!({ "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": {} }).to_string();
        let ran = host.palyra_fed(&["mcp", "guard"], question.as_bytes()).exits(0);
        assert_eq!(ran.stdout.contains("\"deny\""), denied, "{tool}: {ran:?}");
    }
    for nonsense in ["", "{", "[]", "{\"tool_name\":1}"] {
        assert!(host.palyra_fed(&["mcp", "guard"], nonsense.as_bytes()).exits(0).stdout.contains("\"deny\""));
    }
}

#[test]
fn a_guard_that_is_gone_refuses() {
    let host = Host::up();
    connect(&host, &["claude-code", "--exclusive"]);
    let settings: Value = serde_json::from_str(&host.content(".claude/settings.local.json")).unwrap();
    let hook = text(&settings, "/hooks/PreToolUse/0/hooks/0/command");
    let gone = hook.replace("/palyra'", "/palyra-that-was-moved'");
    assert_ne!(hook, gone);
    for (command, code) in [(hook, 0), (gone.as_str(), 2)] {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", command]);
        palyra_e2e::cli::run(shell, b"{\"tool_name\":\"Bash\"}").exits(code).done();
    }
}

#[test]
fn a_daemon_that_a_client_starts_has_the_operators_configuration() {
    let host = Host::idle();
    host.configure("[tool_call]\nallowed_tools = [\"palyra.echo\"]\n");
    let (config, workspace) = (host.config(), host.path("w"));
    let up = ["up", "--config", config.to_str().unwrap(), "--workspace", workspace.to_str().unwrap()];
    host.palyra(&up).exits(0).done();
    let listed = |host: &Host| {
        let mut client = host.mcp(&[]);
        let listed = client.request("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| text(tool, "/name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&host), ["palyra_echo"]);
    host.palyra(&["down"]).exits(0).done();
    // The client starts it, in an environment that knows nothing of the configuration.
    assert_eq!(listed(&host), ["palyra_echo"]);
    let status = host.palyra(&["status"]).good();
    assert_eq!(Path::new(text(&status, "/workspace_root")), workspace.canonicalize().unwrap());
    host.palyra(&["down"]).exits(0).done();
    // So does a start by hand that says nothing else.
    host.palyra(&["up"]).exits(0).done();
    assert_eq!(listed(&host), ["palyra_echo"]);
    host.palyra(&["down"]).exits(0).done();
    // A configuration that is gone is not replaced by none.
    fs::rename(&config, host.path("elsewhere.toml")).unwrap();
    let serve = palyra_e2e::cli::run(
        {
            let mut command = host.command("palyra");
            command.args(["mcp", "serve"]);
            command
        },
        b"",
    );
    assert!(serve.code == 1 && serve.stderr.contains("palyra.toml"), "{serve:?}");
    host.palyra(&["up"]).fails(1, "daemon_did_not_start");
    // Unless its operator says so.
    host.palyra(&["up", "--fresh", "--workspace", workspace.to_str().unwrap()]).exits(0).done();
    assert!(listed(&host).len() > 1);
    host.palyra(&["down"]).exits(0).done();
    fs::write(host.state().join("last-start.json"), "{").unwrap();
    host.palyra(&["up"]).fails(1, "last_start_unknown");
}
