//! Two machines: two network namespaces with a cable between them. Whoever may not make them fails, and is not skipped.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// Two namespaces, `server` and `device`, and their addresses. They go with this value.
#[derive(Debug)]
pub struct Network {
    names: [String; 2],
    addresses: [String; 2],
}

static MADE: AtomicU8 = AtomicU8::new(0);

impl Network {
    /// Makes the two, and the cable.
    #[must_use]
    pub fn new() -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let names = ["s", "d"].map(|end| format!("pal{id}{end}{number}"));
        let addresses = [1, 2].map(|last| format!("10.77.{number}.{last}"));
        let network = Self { names, addresses };
        let [server, device] = &network.names;
        let (cable, other) = (format!("p{id}a{number}"), format!("p{id}b{number}"));
        for name in &network.names {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        ip(&["link", "add", &cable, "netns", server, "type", "veth", "peer", "name", &other, "netns", device]);
        for ((name, end), address) in network.names.iter().zip([&cable, &other]).zip(&network.addresses) {
            ip(&["-n", name, "addr", "add", &format!("{address}/24"), "dev", end]);
            ip(&["-n", name, "link", "set", end, "up"]);
        }
        network
    }

    /// The namespace of the machine with the daemon, and its address.
    #[must_use]
    pub fn server(&self) -> (&str, &str) {
        (&self.names[0], &self.addresses[0])
    }

    /// The namespace of the other machine, and its address.
    #[must_use]
    pub fn device(&self) -> (&str, &str) {
        (&self.names[1], &self.addresses[1])
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // What was not made cannot be removed; the test has failed for that already.
            drop(Command::new("ip").args(["netns", "del", name]).status());
        }
    }
}

/// A program in a namespace. `ip` becomes it, so that it is the child that is waited for and killed.
#[must_use]
pub fn inside(namespace: &str, program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

fn ip(arguments: &[&str]) {
    let ran = Command::new("ip").args(arguments).output().expect("`ip` of iproute2 is installed");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "network namespaces are needed here: `ip {}`: {said}", arguments.join(" "));
}
