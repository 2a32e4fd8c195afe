//! `palyra pair`: this machine becomes a device of a daemon elsewhere.

use crate::args::devices::Pair;
use crate::context::Context;
use crate::exit::{Failure, UNREACHABLE};
use crate::hosts::{Hosts, failed, not_paired};
use crate::output::{self, BOLD, GOOD, note, say, styled};
use palyra_identity::pairing::{
    Address, DeviceIntroduction, MatchingWords, Paired, PairingCode, PairingError, PairingProgress, Platform,
};
use palyra_identity::{DeviceName, ProfileName};
use palyra_protocol::SystemClock;
use serde_json::json;
use std::io::Read as _;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

/// The port of a daemon's door for devices, where nobody says otherwise.
const DEFAULT_PORT: u16 = 7443;
/// How long connecting may take.
const CONNECTING: Duration = Duration::from_secs(15);
/// How long the daemon may be silent: longer than it waits for a person.
const PATIENCE: Duration = Duration::from_secs(11 * 60);

pub async fn pair(context: &Context, pair: Pair) -> Result<(), Failure> {
    let code = code(&pair.code)?;
    let (door, pairing) = addresses(pair.address.as_deref(), &code)?;
    let profile = profile(pair.profile.as_deref(), &door)?;
    let name = pair.name.unwrap_or_else(own_name);
    let name: DeviceName = name
        .parse()
        .map_err(|_| Failure::usage(format!("`{name}` is no name for a device"), "choose one: `--name laptop`"))?;
    let platform = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let platform: Platform = platform.parse().map_err(|_| Failure::usage("this platform has no name", "report it"))?;
    let hosts = Hosts::open_to_pair(&context.state_dir)?;
    let progress = Progress { hosts, profile: profile.clone(), door: door.clone(), name: name.clone() };
    let introduction = DeviceIntroduction { name, platform };
    // Blocks until a person has answered.
    let done = tokio::task::spawn_blocking(move || talk(&pairing, &code, introduction, progress)).await;
    let paired = done.map_err(|e| Failure::bug(&e))??;
    if context.json() {
        return output::json(&json!({
            "profile": profile.as_str(), "address": door.as_str(), "device_id": paired.device_id,
            "principal": paired.principal, "role": paired.role, "zone": paired.zone.as_str(),
        }));
    }
    say!("{} paired: this machine acts for {} there, as {}", styled(GOOD, "✔"), paired.principal, paired.role);
    say!("  try it:              palyra --host {profile} status");
    say!("  for every command:   palyra hosts use {profile}");
    Ok(())
}

/// The code as it was typed, or as it comes on standard input.
fn code(text: &str) -> Result<PairingCode, Failure> {
    let mut typed = String::new();
    let text = if text == "-" {
        note!("the code:");
        let read = std::io::stdin().lock().take(1024).read_to_string(&mut typed);
        read.map_err(|e| Failure::io("the code cannot be read", &e))?;
        typed.trim()
    } else {
        text.trim()
    };
    text.parse().map_err(|e: palyra_identity::pairing::CodeError| {
        Failure::usage(e.to_string(), "make one on the daemon's machine: `palyra pairing code`")
    })
}

/// Where the daemon's door is, and where it pairs: on the port after it.
fn addresses(given: Option<&str>, code: &PairingCode) -> Result<(Address, Address), Failure> {
    let wrong = |text: &str| {
        Failure::usage(format!("`{text}` is no address"), "write a host or an address, with `:PORT` if need be")
    };
    let given = match given {
        None => None,
        Some(text) => {
            let text = text.to_ascii_lowercase();
            let bare = text.parse::<std::net::Ipv6Addr>().map(|address| format!("[{address}]"));
            let text = bare.unwrap_or(text);
            let address = text.parse().or_else(|_| format!("{text}:{DEFAULT_PORT}").parse());
            Some(address.map_err(|_| wrong(&text))?)
        }
    };
    match (given, code) {
        (Some(door), _) => {
            let pairing = beside(&door, 1).ok_or_else(|| wrong(door.as_str()))?;
            Ok((door, pairing))
        }
        (None, PairingCode::Qr(qr)) => {
            let pairing = qr.address().clone();
            let door = beside(&pairing, -1).ok_or_else(|| wrong(pairing.as_str()))?;
            Ok((door, pairing))
        }
        (None, PairingCode::Pin(_)) => {
            Err(Failure::usage("eight digits do not say where the daemon is", "palyra pair HOST --code …"))
        }
    }
}

/// The same host at a neighbouring port.
fn beside(address: &Address, by: i32) -> Option<Address> {
    let (host, port) = address.as_str().rsplit_once(':')?;
    let port = port.parse::<i32>().ok()?.checked_add(by)?;
    format!("{host}:{port}").parse().ok()
}

/// What this machine calls the daemon.
fn profile(given: Option<&str>, door: &Address) -> Result<ProfileName, Failure> {
    let named = match given {
        Some(name) => name.to_owned(),
        None => {
            let host = door.as_str().rsplit_once(':').map_or(door.as_str(), |(host, _)| host);
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
            host.chars().map(plain).collect::<String>().trim_matches('-').chars().take(48).collect()
        }
    };
    named.parse().map_err(|error| failed(&error))
}

/// This machine's name, as far as it is one that a device can have.
fn own_name() -> String {
    let known = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let name: String = known.unwrap_or_default().chars().filter(|c| c.is_ascii_graphic()).take(48).collect();
    if name.is_empty() { "device".to_owned() } else { name }
}

/// What happens on this screen and disk while the two sides talk.
struct Progress {
    hosts: Hosts,
    profile: ProfileName,
    door: Address,
    name: DeviceName,
}

impl PairingProgress for Progress {
    fn show(&mut self, words: MatchingWords) {
        note!("The daemon's screen must show the same four words:\n\n    {}\n", styled(BOLD, words));
        note!("If they differ, deny it there: another machine stands in between. Waiting for the answer …");
    }

    fn store(&mut self, paired: &Paired) -> Result<(), PairingError> {
        let saved = self.hosts.store().save(&self.profile, &self.door, &self.name, paired);
        saved.map_err(|error| PairingError::Io(std::io::Error::other(error)))
    }
}

fn talk(
    address: &Address,
    code: &PairingCode,
    introduction: DeviceIntroduction,
    mut progress: Progress,
) -> Result<Paired, Failure> {
    let nobody = |e: &std::io::Error| {
        let message = format!("no daemon is pairing at `{address}`: {e}");
        let hint = "is the address right, and does a code live there? `palyra pairing code`";
        Failure::new(UNREACHABLE, "pairing_unreachable", message, Some(hint))
    };
    let mut last = std::io::Error::other("the name leads nowhere");
    let found = address.as_str().to_socket_addrs().map_err(|e| nobody(&e))?;
    for at in found {
        match TcpStream::connect_timeout(&at, CONNECTING) {
            Ok(mut socket) => {
                let limits =
                    socket.set_read_timeout(Some(PATIENCE)).and_then(|()| socket.set_write_timeout(Some(CONNECTING)));
                limits.map_err(|e| nobody(&e))?;
                let clock = Arc::new(SystemClock);
                let paired = palyra_identity::pairing::pair(&mut socket, code, introduction, clock, &mut progress);
                return paired.map_err(|error| not_paired(&error));
            }
            Err(error) => last = error,
        }
    }
    Err(nobody(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_where_to_pair_and_how_it_is_called() {
        let pin: PairingCode = "1234 5678".parse().unwrap();
        for (typed, door, pairing, called) in [
            ("192.168.1.5", "192.168.1.5:7443", "192.168.1.5:7444", "192-168-1-5"),
            ("Home.lan:9000", "home.lan:9000", "home.lan:9001", "home-lan"),
            ("fd00::1", "[fd00::1]:7443", "[fd00::1]:7444", "fd00--1"),
            ("[fd00::1]:80", "[fd00::1]:80", "[fd00::1]:81", "fd00--1"),
        ] {
            let (at, beside) = addresses(Some(typed), &pin).unwrap();
            assert_eq!((at.as_str(), beside.as_str()), (door, pairing));
            assert_eq!(profile(None, &at).unwrap().as_str(), called);
        }
        for bad in ["", "a b", "host:0", "host:65535", "http://x"] {
            assert!(addresses(Some(bad), &pin).is_err(), "{bad}");
        }
        assert!(addresses(None, &pin).is_err());
    }
}
