//! What strangers do to the listeners that cross the network: floods, silence, halves of messages, and guesses.

use crate::remote::{HOME, Machines};
use palyra_e2e::host::Restart;
use palyra_e2e::network::inside;
use palyra_e2e::{Running, text};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

/// A stranger on the other machine, who does what is told line by line.
struct Stranger(Child);

const STRANGER: &str = r#"
import resource, socket, ssl, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
host = sys.argv[1]
kept = []

def connect(port):
    return socket.create_connection((host, port), timeout=30)

def pairing():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["palyra-pairing/1"])
    return context.wrap_socket(connect(7444))

def told(socket):
    # What is said until the end, as far as it is said.
    said = b""
    try:
        while piece := socket.recv(4096):
            said += piece
    except OSError:
        pass
    return said

for line in sys.stdin:
    word, *rest = line.split()
    try:
        if word == "flood":
            for _ in range(int(rest[1])):
                kept.append(connect(int(rest[0])))
                if len(kept) > 2000:
                    kept.pop(0).close()
        elif word == "half":
            # A handshake's first bytes, and nothing more.
            for _ in range(int(rest[1])):
                one = connect(int(rest[0]))
                one.sendall(bytes.fromhex("1603010200010001fc0303"))
                one.close()
        elif word == "noise":
            for _ in range(int(rest[1])):
                one = connect(int(rest[0]))
                one.sendall(b"GET / HTTP/1.1\r\n\r\n" * 64)
                told(one)
        elif word == "slow":
            for _ in range(int(rest[1])):
                one = connect(int(rest[0]))
                one.sendall(b"\x16")
                kept.append(one)
        elif word == "frame":
            one = pairing()
            one.sendall(bytes.fromhex(rest[0]) + b"x" * int(rest[1]))
            print("said", told(one).hex(), flush=True)
            continue
        elif word == "knock":
            connect(int(rest[0])).close()
        print("done", flush=True)
    except ConnectionRefusedError:
        print("closed", flush=True)
    except OSError as error:
        print("failed", error, flush=True)
"#;

impl Stranger {
    fn new(machines: &Machines) -> Self {
        let script = machines.device.path("stranger.py");
        std::fs::write(&script, STRANGER).unwrap();
        let mut command: Command = inside(machines.network.device().0, "python3".as_ref());
        command.arg(&script).arg(machines.network.server().1);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Does something, and tells how it went.
    fn does(&mut self, what: &str) -> String {
        writeln!(self.0.stdin.as_mut().unwrap(), "{what}").unwrap();
        let mut line = String::new();
        // One byte at a time: nothing of the next answer is read.
        let mut reader = BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap());
        reader.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The daemon's memory.
fn resident(machines: &Machines) -> u64 {
    // `ip netns exec` becomes the daemon, so its process is the daemon's.
    let status = std::fs::read_to_string(format!("/proc/{}/status", machines.server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Every sum of refusals on record, by its code.
fn refusals(machines: &Machines) -> (usize, serde_json::Map<String, Value>) {
    let events = machines.server.palyra(&["journal", "tail", "-n", "1000"]).exits(0).json_lines();
    let mut sums = serde_json::Map::new();
    let told: Vec<_> = events.iter().filter(|event| event["body"]["what"] == "identity.refused").collect();
    for event in &told {
        for (code, count) in event["body"]["detail"]["refused"].as_object().unwrap() {
            let before = sums.get(code).and_then(Value::as_u64).unwrap_or(0);
            sums.insert(code.clone(), json!(before + count.as_u64().unwrap()));
        }
    }
    (told.len(), sums)
}

#[test]
fn ten_thousand_half_open_pairings_and_handshakes_cost_little_and_keep_nobody_out() {
    let mut machines = Machines::paired("operator");
    let code = machines.code(&[]);
    let before = resident(&machines);
    let mut stranger = Stranger::new(&machines);
    assert_eq!(stranger.does("flood 7444 10000"), "done");
    assert_eq!(stranger.does("slow 7443 1000"), "done");
    assert_eq!(stranger.does("half 7443 300"), "done");
    assert_eq!(stranger.does("noise 7443 100"), "done");
    assert_eq!(stranger.does("half 7444 300"), "done");
    // A device is served beside them, and another is paired, by the code that was there all the time.
    machines.remotely(&["call", "palyra.echo", "--input", r#"{"text":"x"}"#]).exits(0).done();
    machines.paired_by(text(&code, "/code"), "phone", "phone");
    let after = resident(&machines);
    assert!(after < before + (64 << 10), "memory is bounded: from {before} KB to {after} KB");
    // The sums are written at the end at the latest; a flood is a few lines.
    machines.server.restart(Restart::Terminate);
    let (events, sums) = refusals(&machines);
    assert!(events < 40, "{events} events: {sums:?}");
    let counted: u64 = sums.values().filter_map(Value::as_u64).sum();
    assert!(counted >= 10_000, "each is counted: {sums:?}");
    for code in ["handshake_made_room", "handshake_truncated", "not_tls", "pairing_handshake"] {
        assert!(sums.contains_key(code), "{code}: {sums:?}");
    }
    machines.remotely(&["status"]).exits(0).done();
    machines.server.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn the_pairing_listener_is_there_while_a_code_lives_and_reads_no_more_than_it_must() {
    let machines = Machines::paired("operator");
    let mut stranger = Stranger::new(&machines);
    closed_in_the_end(&mut stranger);
    let code = machines.code(&[]);
    assert_eq!(stranger.does("knock 7444"), "done");
    // A message that says it is larger than any, one that ends early, and one that means nothing.
    for frame in ["frame ffff 70000", "frame 0000 0", "frame 0010 16"] {
        let said = stranger.does(frame);
        let said = said.strip_prefix("said").expect("an answer").trim().to_owned();
        let bytes: Vec<u8> =
            (0..said.len() / 2).map(|n| u8::from_str_radix(&said[2 * n..2 * n + 2], 16).unwrap()).collect();
        let said = String::from_utf8_lossy(&bytes).into_owned();
        assert!(said.contains("pairing_"), "{frame} is refused by name: {said}");
    }
    machines.server.palyra(&["pairing", "withdraw", text(&code, "/code_id")]).exits(0).done();
    closed_in_the_end(&mut stranger);
    let (_, sums) = refusals(&machines);
    assert!(sums.keys().any(|code| code.starts_with("pairing_")), "{sums:?}");
}

/// Knocks until the listener is gone.
fn closed_in_the_end(stranger: &mut Stranger) {
    let until = std::time::Instant::now() + palyra_e2e::PATIENCE;
    while stranger.does("knock 7444") != "closed" {
        assert!(std::time::Instant::now() < until, "the pairing listener stays open");
    }
}

#[test]
fn three_wrong_guesses_burn_a_code_whoever_makes_them() {
    let machines = Machines::with_clocks();
    let code = machines.code(&["--ttl", "1h"]);
    let right = text(&code, "/code").to_owned();
    let wrong = if right.starts_with('0') { "1111 1111" } else { "0000 0000" };
    let at = machines.network.server().1;
    let guess = |code: &str| machines.device.palyra(&["pair", at, "--code", code, "--name", "x"]);
    for (after, told) in [(60, "wrong_code"), (120, "wrong_code"), (180, "code_burned")] {
        machines.server.set_clock(after);
        machines.device.set_clock(after);
        guess(wrong).fails(10, told);
        // For whom it is closed does not matter, nor that they know the code.
        let refused = guess(&right).exits(if told == "code_burned" { 7 } else { 10 }).error();
        let expected = if told == "code_burned" { "pairing_unreachable" } else { "pairing_back_off" };
        assert_eq!(text(&refused, "/code"), expected, "{refused}");
    }
    assert_eq!(machines.server.palyra(&["devices", "list"]).good(), json!([]));
    let noted = machines.server.palyra(&["journal", "tail", "-n", "30"]).exits(0).stdout;
    assert!(noted.contains("burned"), "{noted}");
}

#[test]
fn what_is_too_large_is_refused_by_name_and_the_next_request_is_served() {
    let machines = Machines::paired("operator");
    let large = machines.device.path("large.json");
    std::fs::write(&large, format!("{{\"text\":\"{}\"}}", "x".repeat(3 << 20))).unwrap();
    let input = format!("@{}", large.to_str().unwrap());
    machines.remotely(&["call", "palyra.echo", "--input", &input]).fails(6, "input_too_large");
    machines.remotely(&["status"]).exits(0).done();
    let running: Running = machines.device.palyra_started(&["--host", HOME, "calls", "list"]);
    running.end().exits(0).done();
}
