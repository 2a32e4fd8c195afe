//! `palyra sandbox`: what the host can enforce, what a command would get, and trying it without a daemon.

use palyra_e2e::{Host, Ran, Running, cli, fields, text};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

const REFUSED: i32 = 125;

fn command(host: &Host, what: &str, options: &[&str], argv: &[&str]) -> Command {
    let mut command = host.command("palyra");
    command.args(["sandbox", what, "--workspace"]).arg(host.path("w")).args(options);
    // Tier b has the host's network, and whoever wants that says so.
    if options.windows(2).any(|option| option == ["--tier", "b"]) && !options.contains(&"--allow-host") {
        command.args(["--egress", "none"]);
    }
    command.arg("--").args(argv).env_remove("PALYRA_CONFIG");
    command
}

fn run(host: &Host, options: &[&str], argv: &[&str]) -> Ran {
    cli::run(command(host, "run", options, argv), &[])
}

fn explain(host: &Host, options: &[&str], argv: &[&str]) -> Ran {
    cli::run(command(host, "explain", &[&["-o", "json"], options].concat(), argv), &[])
}

fn pipe(host: &Host) {
    let made = Command::new("mkfifo").arg("-m").arg("666").arg(host.work("pipe")).status().unwrap();
    assert!(made.success());
}

fn feed(host: &Host, bytes: &[u8]) {
    File::options().write(true).open(host.work("pipe")).unwrap().write_all(bytes).unwrap();
}

/// The names of the walls and whether each stood.
fn walls(layers: &Value) -> Vec<(String, bool)> {
    let layers = layers.as_array().unwrap().iter();
    let mut walls: Vec<_> = layers.map(|l| (text(l, "/name").to_owned(), l["applied"] == true)).collect();
    walls.sort();
    walls
}

#[test]
fn detect_says_what_can_be_had() {
    let host = Host::idle();
    let found = host.palyra(&["sandbox", "detect"]).good();
    assert_eq!(
        fields(&found),
        ["available", "capabilities", "container", "platform", "root", "tier_b", "tier_c", "wanted_tier"]
    );
    assert_eq!((&found["wanted_tier"], &found["available"]), (&json!("c"), &json!(true)));
    for capability in found["capabilities"].as_array().unwrap() {
        assert!(!text(capability, "/detail").is_empty(), "{capability}");
    }
    let shown = host.palyra_text(&["sandbox", "detect", "--tier", "b"]).exits(0);
    assert!(shown.stdout.contains("✔ tier b") && shown.stdout.contains("bubblewrap"), "{shown:?}");
    host.palyra_text(&["sandbox", "detect", "--tier", "d"]).exits(2).done();
}

#[test]
fn a_tier_that_cannot_be_had_is_told_with_the_fix_and_never_weakened() {
    let host = Host::idle();
    // The same programs on a host whose bubblewrap is gone.
    let without = |args: &[&str]| {
        let mut shell = Command::new("unshare");
        let mount = "mount --bind /dev/null /usr/bin/bwrap && exec \"$@\"";
        shell.args(["--mount", "sh", "-c", mount, "sh"]).arg(palyra_e2e::host::binary("palyra"));
        shell.arg("--state-dir").arg(host.state()).arg("sandbox").args(args).env("HOME", host.path("home"));
        shell.current_dir(host.path("w"));
        cli::run(shell, &[])
    };
    let detected = without(&["-o", "json", "detect"]).exits(REFUSED).json();
    assert_eq!((&detected["tier_c"], &detected["tier_b"]), (&json!(false), &json!(true)), "{detected}");
    let bubblewrap = detected["capabilities"].as_array().unwrap().iter().find(|c| c["name"] == "bubblewrap").unwrap();
    assert!(text(bubblewrap, "/fix").contains("install bubblewrap"), "{bubblewrap}");
    without(&["detect", "--tier", "b"]).exits(0).done();
    without(&["-o", "json", "run", "--", "touch", "made"]).fails(REFUSED, "sandbox_backend_missing");
    let explained = without(&["-o", "json", "explain", "--", "touch", "made"]).exits(REFUSED).json();
    assert_eq!(explained["refusal"]["code"], "sandbox_backend_missing");
    without(&["run", "--tier", "b", "--egress", "none", "--", "true"]).exits(0).done();
    assert!(!host.work("made").exists());
}

#[test]
fn explain_predicts_what_a_run_reports() {
    let host = Host::idle();
    for tier in ["b", "c"] {
        let explained = explain(&host, &["--tier", tier], &["env"]).exits(0).json();
        let ran = run(&host, &["-o", "json", "--tier", tier], &["env"]).exits(0);
        let report: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(walls(&explained["layers"]), walls(&report["enforcement"]["layers"]), "tier {tier}");
        assert_eq!(explained["uid"], report["enforcement"]["uid"]);
        let mut names: Vec<_> = ran.stdout.lines().map(|line| line.split('=').next().unwrap()).collect();
        // Bubblewrap sets it to the directory it starts in.
        names.retain(|name| *name != "PWD");
        names.sort_unstable();
        assert_eq!(fields(&explained["environment"]), names, "tier {tier}");
    }
}

#[test]
fn explain_shows_programs_arguments_and_files_and_runs_nothing() {
    let host = Host::idle();
    host.put("inside", "x");
    host.put("script", "#!/bin/sh\ntouch made\n");
    fs::set_permissions(host.work("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(host.path("outside"), "x").unwrap();
    symlink(host.path("outside"), host.work("link")).unwrap();

    let wrapped = explain(&host, &[], &["nice", "-n", "5", "touch", "inside", "made"]).exits(0).json();
    let roles: Vec<_> = wrapped["program"]["chain"].as_array().unwrap().iter().map(|s| text(s, "/role")).collect();
    assert_eq!(roles, ["wrapper", "program"]);
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata("/usr/bin/nice").unwrap());
    assert_eq!(wrapped["program"]["inode"], inode);
    let file = &wrapped["arguments"][0]["files"][0];
    assert_eq!((text(file, "/access"), text(file, "/path")), ("read_write", host.work("inside").to_str().unwrap()));

    let denied = explain(&host, &[], &["./script"]).exits(REFUSED).json();
    assert_eq!(denied["refusal"]["code"], "sandbox_interpreter_denied");
    let allowed = explain(&host, &["--allow-interpreter", "sh"], &["./script"]).exits(0).json();
    let roles: Vec<_> = allowed["program"]["chain"].as_array().unwrap().iter().map(|s| text(s, "/role")).collect();
    assert_eq!(roles, ["script", "interpreter sh"]);
    let hidden = |explained: &Value| explained["hidden_programs"].as_array().unwrap().contains(&json!("sh"));
    assert!(hidden(&denied) && !hidden(&allowed));

    let outside = explain(&host, &["--tier", "b"], &["cat", "inside", "link", "/etc/shadow"]).exits(REFUSED).json();
    assert_eq!(outside["refusal"]["code"], "sandbox_argument_outside");
    let refused = outside["arguments"].as_array().unwrap().iter().filter(|a| a["refusal"].is_object()).count();
    assert_eq!(refused, 2, "each argument by itself: {outside}");
    let root = host.path("outside").to_str().unwrap().to_owned();
    explain(&host, &["--tier", "b", "--read", &root], &["cat", "link"]).exits(0).done();

    let shown = cli::run(command(&host, "explain", &["--read-only"], &["ls", "a\u{1b}[2Kb"]), &[]).exits(0);
    assert!(shown.stdout.contains("would run in tier c") && shown.stdout.contains("\\u{1b}[2K"), "{shown:?}");
    assert!(!shown.stdout.contains('\u{1b}'));
    assert!(!host.work("made").exists());
}

#[test]
fn exit_codes_and_signals_are_passed_on() {
    let host = Host::idle();
    for tier in ["b", "c"] {
        let bash = |script: &str| run(&host, &["--tier", tier, "--allow-interpreter", "bash"], &["bash", "-c", script]);
        bash("exit 0").exits(0).done();
        bash("exit 7").exits(7).done();
        bash("exit 125").exits(125).done();
        bash("kill -SEGV $$").exits(128 + 11).done();
        bash("kill -KILL $$").exits(128 + 9).done();
        let both = bash("echo out; echo err >&2; exit 3").exits(3);
        let own: Vec<_> = both.stderr.lines().filter(|line| !line.starts_with("palyra: THE HOST'S NETWORK")).collect();
        assert_eq!((both.stdout.as_str(), own), ("out\n", vec!["err"]), "tier {tier}");
    }
}

#[test]
fn output_is_live_and_input_is_passed_on_as_it_comes() {
    let host = Host::idle();
    pipe(&host);
    host.put("first", "one\n");
    for tier in ["b", "c"] {
        let running = Running::start(command(&host, "run", &["--tier", tier], &["cat", "nowhere", "first", "pipe"]));
        running.told("nowhere");
        assert_eq!(running.line(), "one");
        feed(&host, b"two\n");
        assert_eq!(running.end().exits(1).stdout, "two\n");

        let mut child = command(&host, "run", &["--tier", tier], &["cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        for line in ["one\n", "two\n"] {
            stdin.write_all(line.as_bytes()).unwrap();
            let mut back = String::new();
            stdout.read_line(&mut back).unwrap();
            assert_eq!(back, line, "before the input ends");
        }
        drop(stdin);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn bytes_pass_through_unchanged() {
    let host = Host::idle();
    let raw: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let mut child = command(&host, "run", &["--max-output", "8M"], &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let input = raw.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let mut back = Vec::new();
    stdout.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(back == raw, "{} of {} bytes", back.len(), raw.len());
}

#[test]
fn input_that_stays_open_or_is_not_read_holds_nothing_up() {
    let host = Host::idle();
    for tier in ["b", "c"] {
        // Neither read nor closed.
        let mut child = command(&host, "run", &["--tier", tier], &["true"]).stdin(Stdio::piped()).spawn().unwrap();
        let held = child.stdin.take();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        drop(held);
        let flood = cli::run(command(&host, "run", &["--tier", tier], &["true"]), &vec![b'x'; 1 << 20]);
        flood.exits(0).done();
    }
}

#[test]
fn ctrl_c_ends_the_whole_tree_and_leaves_nothing_behind() {
    let host = Host::idle();
    pipe(&host);
    for (tier, signal, code) in [("b", Signal::INT, 130), ("c", Signal::INT, 130), ("b", Signal::TERM, 143)] {
        let script = "trap '' INT TERM; (setsid sleep 1000 &) ; echo $$; cat pipe";
        let options = ["--tier", tier, "--allow-interpreter", "bash"];
        let mut child =
            command(&host, "run", &options, &["bash", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        // Opening waits until the process reads: then it runs.
        let reader = File::options().write(true).open(host.work("pipe")).unwrap();
        palyra_e2e::host::signal(child.id(), signal);
        assert_eq!(child.wait().unwrap().code(), Some(code), "tier {tier}");
        let mut watched = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::empty())];
        assert_eq!(rustix::event::poll(&mut watched, None).unwrap(), 1, "nobody reads the pipe any more");
        let left = fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.file_name());
        let ours = format!("palyra-run-{}-", child.id());
        assert_eq!(left.filter(|name| name.to_string_lossy().starts_with(&ours)).count(), 0);
    }
    let names: Vec<_> = fs::read_dir(host.path("w")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["pipe"]);
    assert!(!host.state().exists(), "no state is made");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_as_a_pipe_would() {
    let host = Host::idle();
    let options = ["--allow-interpreter", "bash"];
    let script = "while :; do echo y; done";
    let mut child = command(&host, "run", &options, &["bash", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut two = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut two).unwrap();
    assert_eq!(&two, b"y\n");
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn a_terminal_gets_no_escape_sequences() {
    let host = Host::idle();
    host.put("hostile", "a\u{1b}[2K\u{9b}1A\u{202e}b\rc\u{1b}]0;owned\u{7}\n");
    let run = command(&host, "run", &[], &["cat", "hostile"]);
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    let line = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ");
    let mut on_a_terminal = Command::new("script");
    on_a_terminal.args(["-qec", &line, "/dev/null"]).env("HOME", host.path("home"));
    let shown = cli::run(on_a_terminal, &[]).exits(0).stdout;
    assert_eq!(shown.replace("\r\n", "\n"), "a\\u{1b}[2K\\u{9b}1A\\u{202e}b\nc\\u{1b}]0;owned\\u{7}\n");
}

#[test]
fn limits_hold_and_are_told() {
    let host = Host::idle();
    let late = run(&host, &["--timeout", "200ms"], &["sleep", "1000"]).exits(137);
    assert!(late.stderr.contains("200 ms from start to end"), "{late:?}");
    host.put("long", "x".repeat(5000));
    let cut = run(&host, &["--max-output", "1000"], &["cat", "long"]).exits(0);
    assert_eq!(cut.stdout.len(), 1000);
    assert!(cut.stderr.contains("1000 of 5000 bytes"), "{cut:?}");
    let options = ["--memory", "64M", "--allow-interpreter", "python3"];
    let memory = run(&host, &options, &["python3", "-c", "x = bytearray(1 << 30)"]);
    assert_ne!(memory.code, 0, "{memory:?}");
    let options = ["--cpu", "1s", "--allow-interpreter", "bash"];
    let cpu = run(&host, &options, &["bash", "-c", "while :; do :; done"]);
    assert!([137, 152].contains(&cpu.code), "SIGXCPU, or SIGKILL where it is ignored: {cpu:?}");
    assert!(cpu.stderr.contains("of CPU time"), "{cpu:?}");
}

#[test]
fn the_options_make_the_policy() {
    let host = Host::idle();
    host.put("inside", "x");
    fs::create_dir(host.path("more")).unwrap();
    fs::write(host.path("more").join("file"), "more\n").unwrap();
    fs::set_permissions(host.path("more"), fs::Permissions::from_mode(0o755)).unwrap();
    let more = host.path("more").to_str().unwrap().to_owned();
    let file = format!("{more}/file");
    let new = format!("{more}/new");
    for tier in ["b", "c"] {
        let with = |options: &[&str], argv: &[&str]| run(&host, &[&["--tier", tier], options].concat(), argv);
        assert_ne!(with(&["--read-only"], &["touch", "made"]).code, 0);
        assert!(!host.work("made").exists());
        with(&[], &["touch", "made"]).exits(0).done();
        fs::remove_file(host.work("made")).unwrap();
        // Tier b refuses; in tier c, whose /tmp is its own, the file is not there.
        assert_ne!(with(&[], &["cat", &file]).code, 0);
        assert_eq!(with(&["--read", &more], &["cat", &file]).exits(0).stdout, "more\n");
        assert_ne!(with(&["--read", &more], &["touch", &new]).code, 0);
        with(&["--write", &more], &["touch", &new]).exits(0).done();
        fs::remove_file(&new).unwrap();
        let env = |options: &[&str]| {
            let mut command = command(&host, "run", &[&["--tier", tier], options].concat(), &["printenv", "GREETING"]);
            cli::run(
                {
                    command.env("GREETING", "hi");
                    command
                },
                &[],
            )
        };
        env(&[]).exits(1).done();
        assert_eq!(env(&["--env", "GREETING"]).exits(0).stdout, "hi\n");
    }
}

#[test]
fn a_shared_network_is_asked_for_by_name_and_said_loudly() {
    let host = Host::idle();
    let line = |options: &[&str]| {
        let mut command = host.command("palyra");
        command.args(["sandbox", "run", "--workspace"]).arg(host.path("w")).args(options).args(["--", "touch", "made"]);
        cli::run(command, &[])
    };
    for options in
        [&["--tier", "b"][..], &["--tier", "b", "--egress", "strict"], &["--tier", "b", "--allow-host", "a.test"]]
    {
        let refused = line(options).exits(REFUSED);
        assert!(refused.stderr.contains("--egress none") && refused.stderr.contains("--tier c"), "{refused:?}");
        assert!(!host.work("made").exists());
    }
    for options in [&["--tier", "b", "--egress", "none"][..], &["--egress", "none"], &["--egress", "preflight"]] {
        let ran = line(options).exits(0);
        assert!(ran.stderr.contains("THE HOST'S NETWORK IS SHARED"), "{ran:?}");
    }
    assert!(!line(&[]).exits(0).stderr.contains("NETWORK"));
    // The same where the configuration says it.
    host.configure("[process_runner]\ntier = \"c\"\negress = \"none\"\n");
    let mut command = host.command("palyra");
    command.args(["sandbox", "run", "--workspace"]).arg(host.path("w")).args(["--", "true"]);
    command.env("PALYRA_CONFIG", host.config());
    assert!(cli::run(command, &[]).exits(0).stderr.contains("THE HOST'S NETWORK IS SHARED"));
}

#[test]
fn a_denied_host_is_named_with_what_to_type() {
    let host = Host::idle();
    let ran = run(&host, &["--allow-host", "example.org"], &["curl", "-sS", "https://denied.example/"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("no rule allows denied.example:443"), "{ran:?}");
    assert!(ran.stderr.contains("--allow-host denied.example:443"), "{ran:?}");
}

#[test]
fn the_report_tells_what_held() {
    let host = Host::idle();
    let shown = run(&host, &["--report"], &["true"]).exits(0);
    assert!(shown.stderr.contains("tier c, bubblewrap") && shown.stderr.contains("✔ network_namespace"), "{shown:?}");
    let loud = run(&host, &["--report", "--tier", "b"], &["true"]).exits(0);
    assert!(loud.stderr.contains("THE HOST'S NETWORK WAS SHARED"), "{loud:?}");
    let path = host.path("report.json");
    let option = format!("--report={}", path.display());
    run(&host, &["-o", "json", &option], &["sh"]).exits(REFUSED).done();
    let ran = run(&host, &["-o", "json", &option], &["ls", "nowhere"]).exits(2);
    assert!(!ran.stderr.contains('{'), "the report is in the file: {ran:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(
        fields(&report),
        [
            "connections",
            "cpu_time_ms",
            "duration_ms",
            "egress",
            "ended_by",
            "enforcement",
            "exit_code",
            "further_connections",
            "missing_programs",
            "not_set_aside",
            "peak_memory_bytes",
            "set_aside",
            "signal",
            "stderr",
            "stdout"
        ]
    );
    assert_eq!((&report["exit_code"], &report["enforcement"]["egress"]), (&json!(2), &json!("strict")));
}

#[test]
fn an_allowed_host_is_reached_and_no_other() {
    let host = Host::idle();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let answer = std::thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        let mut request = [0; 4];
        client.read_exact(&mut request).unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n").unwrap();
        request
    });
    let rule = format!("localhost:{port}");
    let explained = explain(&host, &["--allow-host", &rule], &["true"]).exits(0).json();
    assert_eq!(explained["allowed_hosts"], json!([rule]));
    let url = format!("http://localhost:{port}/");
    let other = "http://localhost:1/";
    let options = ["-o", "json", "--allow-host", &rule];
    let ran = run(&host, &options, &["curl", "--silent", "--fail", &url, "--next", "--silent", "--fail", other]);
    assert_eq!(ran.stdout, "hello\n", "{ran:?}");
    assert_eq!(&answer.join().unwrap(), b"GET ");
    assert_ne!(ran.code, 0, "the other was not reached: {ran:?}");
    let report: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
    let egress = &report["egress"];
    assert_eq!((&egress["allowed"], &egress["denied"]), (&json!(1), &json!(1)));
    assert_eq!((&egress["denials"][0]["host"], &egress["denials"][0]["port"]), (&json!("localhost"), &json!(1)));
    let mut real = walls(&report["enforcement"]["layers"]);
    real.sort();
    assert_eq!(walls(&explained["layers"]), real);
    let mut verdicts: Vec<_> = report["connections"].as_array().unwrap().iter().map(|c| text(c, "/verdict")).collect();
    // Each is recorded when it is over, and the second may be first.
    verdicts.sort_unstable();
    assert_eq!(verdicts, ["allowed", "denied"]);
}

#[test]
fn refusals_have_a_code_of_their_own_and_go_to_standard_error() {
    let host = Host::idle();
    let refused = run(&host, &[], &["bash", "-c", "touch made"]).exits(REFUSED);
    assert_eq!(refused.stdout, "");
    assert!(refused.stderr.contains("--allow-interpreter bash"), "{refused:?}");
    let json = |options: &[&str], argv: &[&str]| run(&host, &[&["-o", "json"], options].concat(), argv);
    json(&[], &["no-such-program"]).fails(REFUSED, "sandbox_executable_not_found");
    json(&[], &["cat", "/etc/shadow"]).fails(REFUSED, "sandbox_argument_outside");
    json(&["--read", "/nowhere"], &["true"]).fails(REFUSED, "sandbox_workspace_unavailable");
    json(&["--read", "/proc"], &["true"]).fails(REFUSED, "sandbox_invalid_policy");
    fs::create_dir_all(host.work("a/sub")).unwrap();
    let inner = host.work("a/sub").to_str().unwrap().to_owned();
    json(&["--write", &inner], &["true"]).fails(REFUSED, "sandbox_nested_roots");
    json(&["--report=/nowhere/x"], &["true"]).fails(REFUSED, "io");
    json(&["--allow-host", "https://example.org"], &["true"]).fails(REFUSED, "egress_rule_malformed");
    json(&["--tier", "b", "--allow-host", "example.org"], &["true"]).fails(REFUSED, "sandbox_egress_needs_tier_c");
    host.configure("[process_runner]\ntier = \"z\"\n");
    let mut broken = command(&host, "run", &["-o", "json"], &["true"]);
    broken.env("PALYRA_CONFIG", host.config());
    cli::run(broken, &[]).fails(REFUSED, "configuration");
    for options in [
        &["--memory", "1T"][..],
        &["--memory", "0"],
        &["--cpu", "5"],
        &["--timeout", "-1s"],
        &["--tier", "a"],
        &["--env", "A=b"],
        &["--bogus"],
    ] {
        run(&host, options, &["true"]).exits(2).done();
    }
    host.palyra_text(&["sandbox", "run"]).exits(2).done();
    host.palyra_text(&["sandbox", "run", "true"]).exits(2).done();
    host.palyra_text(&["sandbox"]).exits(2).done();
    assert!(!host.work("made").exists());
}

#[test]
fn both_programs_teach_the_same() {
    let host = Host::idle();
    for what in ["detect", "explain", "run"] {
        let ask = |program: &str| {
            let mut command = host.command(program);
            command.args(["sandbox", what, "--help"]);
            cli::run(command, &[]).exits(0).stdout
        };
        let (client, daemon) = (ask("palyra"), ask("palyrad"));
        assert!(client.contains("125") && client.contains("Usage: palyra sandbox"), "{client}");
        for line in daemon.lines().map(str::trim).filter(|line| line.starts_with("--tier") || line.starts_with("125")) {
            assert!(client.contains(line), "{line}");
        }
    }
}
