//! The processes of agents' clients on this host, and whether a caller on the socket descends from one.
//!
//! A client that keeps its own shell can run `palyra`, and the socket takes it for the daemon's user. So the daemon
//! remembers which process an agent's connection came from, and looks at the ancestors of whoever answers. What it goes
//! by:
//!
//! - the parents of the caller, up to the first process of the host, each by its id and the time it was started;
//! - for a caller that was left behind by its parents (`setsid`, `nohup`), the control group: one that was started
//!   after the client, in the client's group, may be the client's.
//!
//! A process that another service starts on the agent's behalf (`systemd-run`, `at`, a container's daemon) cannot be
//! told from a person's. A rule can demand an approver on another device instead.

use palyra_protocol::WorkspaceId;
use std::fs;
use std::sync::{Mutex, PoisonError};

/// How many generations are looked at.
const MAX_GENERATIONS: usize = 128;
/// How many clients are remembered; the oldest is forgotten first.
const MAX_CLIENTS: usize = 256;
/// What clients start their hooks and servers through.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "fish", "ksh"];

/// A process at a moment: its id is given again after its end, its start is not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    started: u64,
    name: String,
}

impl Process {
    /// The process of this id, if the host shows it.
    fn read(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// From the line that the kernel gives: the name stands in parentheses and may hold any character.
    fn parse(pid: u32, line: &str) -> Option<Self> {
        let name = line.get(line.find('(')? + 1..line.rfind(')')?)?.to_owned();
        let fields: Vec<&str> = line.get(line.rfind(')')? + 1..)?.split_whitespace().collect();
        Some(Self { pid, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()?, name })
    }

    fn is(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }
}

/// The process and its ancestors, nearest first.
fn lineage(pid: u32) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut next = pid;
    while next > 0 && found.len() < MAX_GENERATIONS {
        let Some(process) = Process::read(next) else { break };
        next = process.parent;
        found.push(process);
    }
    found
}

/// The control groups of a process, as one text.
fn control_group(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).ok().filter(|text| !text.trim().is_empty())
}

/// A client, and the workspace that it was connected for; none for one that was connected for several.
#[derive(Debug, Clone)]
struct Client {
    process: Process,
    workspace: Option<WorkspaceId>,
}

/// The clients that are remembered.
#[derive(Debug, Default)]
pub(crate) struct ClientProcesses(Mutex<Vec<Client>>);

impl ClientProcesses {
    /// Remembers the client whose hook or server this process is: the nearest ancestor that is no shell.
    pub(crate) fn remember(&self, pid: u32, workspace: Option<WorkspaceId>) {
        let Some(process) = lineage(pid).into_iter().skip(1).find(|process| !SHELLS.contains(&process.name.as_str()))
        else {
            return;
        };
        // The first process of the host is everybody's ancestor.
        if process.pid <= 1 {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = known.iter_mut().find(|one| one.process.is(&process)) {
            one.workspace = one.workspace.take().filter(|before| Some(before) == workspace.as_ref());
            return;
        }
        known.retain(|one| Process::read(one.process.pid).is_some_and(|now| now.is(&one.process)));
        if known.len() >= MAX_CLIENTS {
            known.remove(0);
        }
        known.push(Client { process, workspace });
    }

    /// The client that a process descends from, or may, in words.
    pub(crate) fn client_of(&self, pid: u32) -> Option<String> {
        self.around(pid).map(|Client { process, .. }| format!("`{}`, process {}", process.name, process.pid))
    }

    /// The workspace of the client that a process descends from, or may.
    pub(crate) fn workspace_of(&self, pid: u32) -> Option<WorkspaceId> {
        self.around(pid)?.workspace
    }

    fn around(&self, pid: u32) -> Option<Client> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_empty() {
            return None;
        }
        let lineage = lineage(pid);
        if let Some(client) = known.iter().find(|client| lineage.iter().any(|one| one.is(&client.process))) {
            return Some(client.clone());
        }
        // Left behind: adopted by the first process, in the group of a client, and younger than it.
        let orphan = lineage.iter().find(|one| one.parent == 1)?;
        let group = control_group(orphan.pid)?;
        let shares = |client: &&Client| {
            client.process.started <= orphan.started && control_group(client.process.pid).as_ref() == Some(&group)
        };
        // A daemon that was started in the same place is no sign: it holds what people type into (tmux, a terminal).
        let has_terminal =
            fs::read_to_string(format!("/proc/{pid}/stat")).ok().is_some_and(|line| terminal(&line) != 0);
        known.iter().find(shares).filter(|_| !has_terminal).cloned()
    }
}

/// The controlling terminal of a process by its number; 0 where it has none.
fn terminal(line: &str) -> i64 {
    let after = line.rfind(')').and_then(|at| line.get(at + 1..));
    after.and_then(|rest| rest.split_whitespace().nth(4)).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read() {
        let line = "7 (a) b (c) S 5 7 7 34816 7 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        let process = Process::parse(7, line).unwrap();
        assert_eq!((process.name.as_str(), process.parent, process.started), ("a) b (c", 5, 4242));
        assert_eq!(terminal(line), 34816);
        assert_eq!(Process::parse(7, "7 (short) S"), None);
    }

    #[test]
    fn a_child_descends_from_the_client_and_its_parent_does_not() {
        // The shell is the client's server or hook; the test process is the client.
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let clients = ClientProcesses::default();
        assert_eq!(clients.client_of(child.id()), None, "no client is known");
        let (first, second) = (WorkspaceId::mint(), WorkspaceId::mint());
        clients.remember(child.id(), Some(first.clone()));
        assert!(clients.client_of(child.id()).is_some());
        assert_eq!(clients.workspace_of(child.id()), Some(first));
        clients.remember(child.id(), Some(second));
        assert_eq!(clients.workspace_of(child.id()), None, "a client that was connected for several is bound to none");
        let parent = Process::read(std::process::id()).unwrap().parent;
        let known = clients.0.lock().unwrap().clone();
        assert!(known.iter().all(|one| one.process.pid == std::process::id()), "{known:?}");
        assert!(lineage(parent).iter().all(|one| one.pid != std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
