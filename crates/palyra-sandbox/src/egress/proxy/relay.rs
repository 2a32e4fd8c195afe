//! Both directions of a connection, until it is over.

use super::super::gate::{Gate, Shut};
use super::super::wait::{Woken, wait};
use super::Shared;
use super::flow::{Broken, Flow};
use palyra_protocol::egress::EgressEnd;
use rustix::event::PollFlags;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::Instant;

/// The two directions.
#[derive(Debug)]
pub(super) struct Relay {
    /// From the client to the server.
    pub(super) up: Flow,
    /// From the server to the client.
    pub(super) down: Flow,
    pub(super) kind: Kind,
}

/// When it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// When both directions are.
    Tunnel,
    /// When the answer is.
    Request,
}

/// How it went.
#[derive(Debug)]
pub(super) enum Ending {
    Ended(EgressEnd),
    Shut(Shut),
}

impl Relay {
    /// Moves bytes until it is over.
    pub(super) fn run(&mut self, shared: &Shared, client: &TcpStream, server: &TcpStream) -> Ending {
        let mut moved = Instant::now();
        let mut greeting_began: Option<Instant> = None;
        loop {
            let before = self.total();
            if let Err(ending) = self.go(client, server) {
                return ending;
            }
            if self.is_over() {
                return Ending::Ended(EgressEnd::Closed);
            }
            if self.total() != before {
                moved = Instant::now();
            }
            let mut deadline = moved + shared.limits.idle_timeout;
            if matches!(&self.up.gate, Some(Gate::Hello(hello)) if hello.is_waiting()) {
                // A greeting that dribbles in is given the time of a request's head.
                let began = *greeting_began.get_or_insert(Instant::now());
                deadline = deadline.min(began + shared.limits.head_timeout);
            } else {
                greeting_began = None;
            }
            match wait(&shared.dialer.stop, self.wanted(client, server), deadline) {
                Ok(Woken::Ready(_)) => {}
                Ok(Woken::Stopped) => return Ending::Ended(EgressEnd::Stopped),
                Ok(Woken::Timeout) if greeting_began.is_some() => return Ending::Shut(Shut::BadHello),
                Ok(Woken::Timeout) => return Ending::Ended(EgressEnd::IdleTimeout),
                Err(_) => return Ending::Ended(EgressEnd::ServerError),
            }
        }
    }

    fn go(&mut self, client: &TcpStream, server: &TcpStream) -> Result<(), Ending> {
        match self.up.go(client, server) {
            Ok(()) => {}
            // A client may stop sending when the server has answered already.
            Err(Broken::Source) if self.kind == Kind::Request && self.down.read > 0 => self.up.abandon(),
            Err(Broken::Source) => return Err(Ending::Ended(EgressEnd::ClientError)),
            // A server may answer and close before it has read the whole request; the answer counts.
            Err(Broken::Sink) if self.kind == Kind::Request => self.up.abandon(),
            Err(Broken::Sink | Broken::Host) => return Err(Ending::Ended(EgressEnd::ServerError)),
            Err(Broken::Shut(shut)) => return Err(Ending::Shut(shut)),
        }
        match self.down.go(server, client) {
            Ok(()) => Ok(()),
            Err(Broken::Sink) => Err(Ending::Ended(EgressEnd::ClientError)),
            Err(Broken::Source | Broken::Host) => Err(Ending::Ended(EgressEnd::ServerError)),
            Err(Broken::Shut(shut)) => Err(Ending::Shut(shut)),
        }
    }

    fn total(&self) -> u64 {
        self.up.read + self.up.written + self.down.read + self.down.written
    }

    fn is_over(&self) -> bool {
        self.down.is_done() && (self.kind == Kind::Request || self.up.is_done())
    }

    fn wanted<'a>(
        &self,
        client: &'a TcpStream,
        server: &'a TcpStream,
    ) -> [(std::os::fd::BorrowedFd<'a>, PollFlags); 2] {
        let flags = |incoming: &Flow, outgoing: &Flow| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, incoming.wants_to_read());
            flags.set(PollFlags::OUT, outgoing.wants_to_write());
            flags
        };
        [(client.as_fd(), flags(&self.up, &self.down)), (server.as_fd(), flags(&self.down, &self.up))]
    }
}
