//! What a process writes is seen while it runs, by whoever watches and however slowly, and costs the process nothing.
//!
//! The proof is an order of events, not a time: the process waits on a pipe that the test opens only after it has read
//! what was written before.

use palyra_api::v1::{FollowCallRequest, OutputPiece, OutputStream};
use palyra_e2e::{Host, Proposal, Running, api, cli, text};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::Stdio;

/// A host on which session `live` may run programs.
fn host(config: &str) -> Host {
    let host = Host::with(config);
    let (call, approval) =
        host.ask("palyra.process.run", &json!({ "argv": ["true"], "workspace": "live" }), &["--session", "live"]);
    host.decide(&approval, "allow", &["--scope", "session", "--match", "tool"]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    let made = std::process::Command::new("mkfifo").arg("-m").arg("666").arg(host.work("pipe")).status().unwrap();
    assert!(made.success());
    host
}

fn command(host: &Host, argv: &Value) -> std::process::Command {
    let mut command = host.command("palyra");
    // On the workspace itself: a view has no pipe of the host's.
    let input = json!({ "argv": argv, "workspace": "live" }).to_string();
    command.args(["call", "palyra.process.run", "--session", "live", "--input", &input]);
    command
}

/// Lets a process that waits on the pipe go on, with this.
fn feed(host: &Host, bytes: &[u8]) {
    // Opening waits until the process is there to read.
    File::options().write(true).open(host.work("pipe")).unwrap().write_all(bytes).unwrap();
}

#[test]
fn both_streams_arrive_while_the_process_runs_and_are_not_shown_twice() {
    let host = host("");
    host.put("first", "one\n");
    let running = Running::start(command(&host, &json!(["cat", "nowhere", "first", "pipe"])));
    running.told("nowhere: No such file");
    assert_eq!(running.line(), "one");
    // The process needs this to go on: what we have read was written before it could end.
    feed(&host, b"two\n");
    let ran = running.end().exits(1);
    assert_eq!(ran.stdout, "two\n", "each line once");
    assert!(!ran.stderr.contains("nowhere"), "{ran:?}");
    assert!(ran.stderr.contains("failed") && ran.stderr.contains("code 1"), "the summary comes last: {ran:?}");
}

#[test]
fn one_who_comes_later_sees_what_is_buffered_and_what_comes() {
    let host = host("");
    host.put("first", "one\n");
    let input = json!({ "argv": ["cat", "first", "pipe"], "workspace": "live" });
    let call = host.call("palyra.process.run", &input, &["--session", "live", "--detach"]).good();
    let mut follow = host.command("palyra");
    follow.args(["calls", "follow", text(&call, "/call_id")]);
    let follow = Running::start(follow);
    assert_eq!(follow.line(), "one");
    feed(&host, b"two\n");
    assert_eq!(follow.end().exits(0).stdout, "two\n");
    let shown = host.palyra_text(&["calls", "show", text(&call, "/call_id")]).exits(0);
    assert_eq!(shown.stdout, "one\ntwo\n", "and afterwards it is all there");
}

#[test]
fn json_is_one_document_at_the_end() {
    let host = host("");
    host.put("first", "one\n");
    let input = json!({ "argv": ["cat", "first"], "workspace": "live" });
    let ran = host.call("palyra.process.run", &input, &["--session", "live"]).exits(0);
    assert_eq!(ran.stdout.lines().count(), 1);
    assert_eq!(ran.json()["output"]["stdout"], "one\n");
}

#[test]
fn bytes_reach_a_pipe_as_they_are_and_a_terminal_as_text() {
    let host = host("");
    let raw: Vec<u8> = (0..=255).cycle().take(100_000).chain(*b"\x1b[2J\x1b]0;owned\x07").collect();
    host.put("raw", &raw);
    let mut child = command(&host, &json!(["cat", "raw"]));
    let output = child.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == raw, "{} of {} bytes", output.stdout.len(), raw.len());

    host.put("hostile", "a\u{1b}[2K\u{9b}1A\u{202e}b\r\nc\rd\u{1b}]0;owned\u{7}");
    let mut on_a_terminal = command(&host, &json!(["cat", "hostile"]));
    on_a_terminal.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
    let shown = cli::run(on_a_terminal, &[]).exits(0);
    assert_eq!(shown.stdout, "a\\u{1b}[2K\\u{9b}1A\\u{202e}b\nc\nd\\u{1b}]0;owned\\u{7}\n");
}

#[tokio::test]
async fn one_who_does_not_read_holds_nothing_up_and_learns_what_was_dropped() {
    let host = host("[process_runner]\nmax_output_bytes = 4194304\n");
    let truth: Vec<u8> = (0..4_000_000_u32).map(|i| (i % 251) as u8).collect();
    host.put("big", &truth);
    let owner = host.owner().await;
    let input = json!({ "argv": ["cat", "big"], "workspace": "live" });
    let mut proposal = Proposal::new("palyra.process.run", &input).session("live");
    proposal.0.live_output = true;
    let mut slow = owner.0.calls().propose(proposal.0).await.unwrap().into_inner();
    let started = loop {
        let update = api::patiently("its start", slow.message()).await.unwrap().unwrap();
        if update.state == "executing" {
            break update;
        }
    };
    assert!(started.output.is_none(), "the state comes before the output");
    // Over another connection: the call ends although nobody reads its stream.
    let end = host.owner().await.follow(&started.call_id).await.unwrap();
    assert_eq!(api::outcome(&end)["output"]["stdout_total_bytes"], truth.len());

    let (mut position, mut missed) = (0, 0);
    let last = loop {
        let update = api::patiently("an update", slow.message()).await.unwrap().unwrap();
        let Some(OutputPiece { offset, bytes, .. }) = update.output else {
            if update.outcome_json.is_empty() {
                continue;
            }
            break update;
        };
        missed += offset - position;
        position = offset + bytes.len() as u64;
        let from = usize::try_from(offset).unwrap();
        assert!(bytes == truth[from..from + bytes.len()], "the bytes at {offset} are true");
    };
    assert_eq!(position, truth.len() as u64, "the newest part is there");
    assert!(missed > 0, "a small buffer cannot have held it all");
    assert_eq!(last.outcome_json, end.outcome_json, "and the outcome is whole");
    assert!(slow.message().await.unwrap().is_none());
}

#[test]
fn a_flood_in_small_pieces_on_both_streams_is_told_and_ended() {
    let host = host("[process_runner]\nmax_output_bytes = 100000\nallow_interpreters = [\"bash\"]\n");
    let flood = json!(["bash", "-c", "while :; do echo o; echo e >&2; done"]);
    let ran = cli::run(command(&host, &flood), &[]).exits(1);
    let told = ran.stderr.lines().find_map(|line| line.split_once(" bytes of stdout came too fast"));
    let missed = told.map_or(0, |(bytes, _)| bytes.trim_start_matches('(').parse::<usize>().unwrap());
    assert_eq!(ran.stdout.len() + missed, 100_000, "what is kept is shown, or counted");
    assert!(ran.stderr.contains("stdout was cut") && ran.stderr.contains("stderr was cut"), "{}", ran.stderr.len());
    assert!(ran.stderr.contains("limit_reached"));
    host.palyra(&["status"]).exits(0).done();
}

#[tokio::test]
async fn one_who_vanishes_takes_nothing_with_them() {
    let host = host("");
    host.put("first", "one\n");
    let mut child = command(&host, &json!(["cat", "first", "pipe"])).stdout(Stdio::piped()).spawn().unwrap();
    let mut word = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    assert_eq!(&word, b"one\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let calls = host.palyra(&["journal", "tail"]).exits(0).json_lines();
    let call = calls.iter().rev().find_map(|event| event["body"]["call_id"].as_str().or(event["call_id"].as_str()));
    let call = call.unwrap().to_owned();
    let owner = host.owner().await;
    let request = FollowCallRequest { call_id: call.clone(), live_output: true };
    let mut updates = owner.0.calls().follow(request).await.unwrap().into_inner();
    api::patiently("where it stands", updates.message()).await.unwrap().unwrap();
    let piece = api::patiently("output", updates.message()).await.unwrap().unwrap().output.unwrap();
    assert_eq!((piece.stream(), piece.offset, &piece.bytes[..]), (OutputStream::Stdout, 0, &b"one\n"[..]));
    drop(updates);
    feed(&host, b"two\n");
    let end = owner.follow(&call).await.unwrap();
    assert_eq!(api::outcome(&end)["output"]["stdout"], "one\ntwo\n");
}

#[test]
fn a_reader_that_has_gone_ends_the_command_line_and_not_the_call() {
    let host = host("");
    host.put("first", "one\n");
    let mut child = command(&host, &json!(["cat", "first", "pipe"])).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut word = [0; 4];
    stdout.read_exact(&mut word).unwrap();
    drop(stdout);
    feed(&host, b"two\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fs::exists(host.work("first")).unwrap());
}

#[test]
fn ctrl_c_withdraws_a_call_whose_output_is_being_shown() {
    let host = host("");
    host.put("first", "one\n");
    let running = Running::start(command(&host, &json!(["cat", "first", "pipe"])));
    assert_eq!(running.line(), "one");
    running.interrupt();
    let ran = running.end().exits(5);
    assert!(ran.stderr.contains("cancelled"), "{ran:?}");
}
