//! Benchmarks. Each prints our figure beside the raw limit that was measured in the same run, and their ratio: machines
//! are noisy, ratios hold. Run them with `cargo xtask bench [NAME…]`.

#![expect(clippy::print_stdout, reason = "a benchmark's answer is what it prints")]
#![expect(unreachable_pub, reason = "a binary exports nothing; `pub` here means: used by other files")]

mod access;
mod console;
mod effects;
mod egress;
mod hooks;
mod http;
mod identity;
mod journal;
mod mcp;
mod memory;
mod path;
mod plugins;
mod policy;
mod process;
mod remote;
mod replay;
mod report;
mod rivals;
mod routines;
mod runs;
mod sandbox;
mod skills;
mod vault;

use std::error::Error;
use std::process::ExitCode;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;
type Benchmark = (&'static str, &'static str, fn(&mut report::Report) -> Result);

const ALL: [Benchmark; 20] = [
    ("policy", "deciding, against Cedar alone", policy::run),
    ("access", "checking a token, against hashing it", access::run),
    ("identity", "handshakes, pairings and checks of devices", identity::run),
    ("path", "a whole call, against two durable commits", path::run),
    ("http", "a call over HTTP, against the same over the socket", http::run),
    ("remote", "a device's call over mutual TLS, against the same over the socket", remote::run),
    ("mcp", "a call over MCP, against the same over the socket", mcp::run),
    ("hooks", "a hooked command, against the sandbox alone", hooks::run),
    ("journal", "appending and verifying as history grows", journal::run),
    ("egress", "the proxy, against a direct connection", egress::run),
    ("sandbox", "a sandboxed process, against one without us", sandbox::run),
    ("effects", "views, writing back and undoing, against the raw work", effects::run),
    ("plugins", "a guest's call, against wasmtime alone", plugins::run),
    ("skills", "verifying and auditing, against the bytes alone", skills::run),
    ("vault", "get, put, list and redaction, against the raw work", vault::run),
    ("memory", "a search at 1,000 and at 100,000 entries", memory::run),
    ("routines", "the next slot of one routine and of 10,000", routines::run),
    ("runs", "a turn of a run with one call, against the model alone", runs::run),
    ("console", "the console in Chromium, against `approvals watch` and a short history", console::run),
    ("process", "daemon start, memory, command line start", process::run),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|name| !ALL.iter().any(|(known, ..)| known == name)) {
        println!("there is no benchmark `{unknown}`; there are:");
        for (name, what, _) in ALL {
            println!("  {name:10} {what}");
        }
        return ExitCode::from(2);
    }
    let mut report = report::Report::default();
    for (name, what, run) in ALL {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            println!("\n{name}: {what}");
            if let Err(error) = run(&mut report) {
                println!("  failed: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    report.summary()
}
