//! What the doors have in common: their names, the engine, how they end, and by which names tools are called.

use crate::ending::Ending;
use crate::mtls::{RemoteDoor, WeakRemoteDoor};
use palyra_agent::Runs;
use palyra_engine::Engine;
use palyra_protocol::ChannelId;
use std::sync::{Arc, OnceLock};

/// A door, by the name that policy and journal know it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DoorName {
    /// The gRPC socket of the command line.
    Cli,
    /// The HTTP interface.
    Http,
    /// MCP, over its socket or over HTTP.
    Mcp,
    /// The console in a browser.
    Console,
    /// Everything that a paired device does, whatever protocol it speaks.
    Remote,
}

impl DoorName {
    pub(crate) const ALL: [Self; 5] = [Self::Cli, Self::Http, Self::Mcp, Self::Console, Self::Remote];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::Console => "console",
            Self::Remote => "remote",
        }
    }

    pub(crate) fn channel(self) -> ChannelId {
        ChannelId::fixed(self.as_str())
    }
}

/// What every door works with.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) engine: Engine,
    pub(crate) ending: Ending,
    pub(crate) runs: Runs,
    /// The remote door, once it is bound: pages show its codes. It holds these doors, so they do not hold it.
    remote: Arc<OnceLock<WeakRemoteDoor>>,
}

impl Doors {
    pub(crate) fn new(engine: Engine, runs: Runs) -> Self {
        Self { engine, ending: Ending::default(), runs, remote: Arc::default() }
    }

    /// Says where the remote door is. The first word counts.
    pub(crate) fn remote_is(&self, remote: &RemoteDoor) {
        self.remote.get_or_init(|| remote.downgrade());
    }

    /// The remote door.
    pub(crate) fn remote(&self) -> Option<RemoteDoor> {
        self.remote.get()?.upgrade()
    }

    /// What a caller calls a tool, as everything behind the doors does. What is no alias stays as it is, also when
    /// there is no such tool: the refusal is recorded like any other.
    pub(crate) fn canonical(&self, text: String) -> String {
        self.engine.catalog().by_alias(&text).map_or(text, ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_has_a_name_that_is_a_channel() {
        for door in DoorName::ALL {
            assert_eq!(door.as_str().parse::<ChannelId>().unwrap(), door.channel());
        }
    }
}
