//! Both directions of a connection, until it is over.
//!
//! A client that has sent its request says nothing more, so nobody would read from it and see it go. It is watched all
//! the same: a client that gave up must not keep its place until the server remembers it, and a client that only said
//! that it has no more to send must still get its answer.

use super::super::gate::{Gate, Hello, Shut};
use super::super::wait::{Woken, wait};
use super::flow::{Broken, Flow};
use super::{ProxyLimits, Shared};
use palyra_protocol::egress::EgressEnd;
use rustix::event::PollFlags;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// The two directions.
#[derive(Debug)]
pub(super) struct Relay {
    /// From the client to the server.
    pub(super) up: Flow,
    /// From the server to the client.
    pub(super) down: Flow,
    pub(super) kind: Kind,
    client: Client,
}

/// What is known of a client that has nothing more to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    There,
    /// It has ended its direction: it may have gone, or it may wait for its answer.
    Ended,
    /// Its connection is broken.
    Gone,
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
    /// The server broke off in the middle of an answer, and the client has seen that.
    Torn,
    Shut(Shut),
}

impl Relay {
    pub(super) fn new(up: Flow, down: Flow, kind: Kind) -> Self {
        Self { up, down, kind, client: Client::There }
    }

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
                return if self.down.torn { Ending::Torn } else { Ending::Ended(EgressEnd::Closed) };
            }
            if self.client == Client::Gone {
                return Ending::Ended(EgressEnd::ClientError);
            }
            if self.total() != before {
                moved = Instant::now();
            }
            let mut deadline = moved + self.patience(&shared.limits);
            if self.greeting().is_some() {
                // A greeting that dribbles in is given the time of a request's head.
                let began = *greeting_began.get_or_insert(Instant::now());
                deadline = deadline.min(began + shared.limits.head_timeout);
            } else {
                greeting_began = None;
            }
            match wait(&shared.dialer.stop, self.wanted(client, server), deadline) {
                Ok(Woken::Ready([of_client, _])) => self.see(of_client),
                Ok(Woken::Stopped) => return Ending::Ended(EgressEnd::Stopped),
                Ok(Woken::Timeout) => return self.tired(),
                Err(_) => return Ending::Ended(EgressEnd::ServerError),
            }
        }
    }

    /// A greeting that has begun and is not whole.
    fn greeting(&self) -> Option<&Hello> {
        match &self.up.gate {
            Some(Gate::Hello(hello)) if hello.is_waiting() => Some(hello),
            _ => None,
        }
    }

    /// How long nothing may move.
    fn patience(&self, limits: &ProxyLimits) -> Duration {
        match self.kind {
            Kind::Request if self.client != Client::There => limits.abandoned_timeout.min(limits.idle_timeout),
            Kind::Tunnel if self.up.is_done() || self.down.is_done() => {
                limits.half_closed_timeout.min(limits.idle_timeout)
            }
            _ => limits.idle_timeout,
        }
    }

    /// Nothing has moved for too long.
    fn tired(&self) -> Ending {
        match self.greeting() {
            Some(hello) => Ending::Shut(hello.unfinished()),
            None if self.client != Client::There => Ending::Ended(EgressEnd::ClientError),
            None => Ending::Ended(EgressEnd::IdleTimeout),
        }
    }

    /// Notes what has become of the client.
    fn see(&mut self, of_client: PollFlags) {
        if self.kind == Kind::Request && self.up.has_all() {
            if of_client.intersects(PollFlags::ERR | PollFlags::HUP) {
                self.client = Client::Gone;
            } else if of_client.contains(PollFlags::RDHUP) {
                self.client = Client::Ended;
            }
        }
    }

    fn go(&mut self, client: &TcpStream, server: &TcpStream) -> Result<(), Ending> {
        // The client first: that its tunnel stands has to be said before anything in it can be refused.
        match self.down.go(server, client) {
            Ok(()) => {}
            Err(Broken::Sink) => return Err(Ending::Ended(EgressEnd::ClientError)),
            Err(Broken::Source | Broken::Host) => return Err(Ending::Ended(EgressEnd::ServerError)),
            Err(Broken::Shut(shut)) => return Err(Ending::Shut(shut)),
        }
        match self.up.go(client, server) {
            Ok(()) => Ok(()),
            // A client may stop sending when the server has answered already, and a server may answer and close before
            // it has read the whole request; the answer counts.
            Err(Broken::Source) if self.kind == Kind::Request && self.down.read > 0 => {
                self.up.abandon();
                Ok(())
            }
            Err(Broken::Sink) if self.kind == Kind::Request => {
                self.up.abandon();
                Ok(())
            }
            Err(Broken::Source) => Err(Ending::Ended(EgressEnd::ClientError)),
            Err(Broken::Sink | Broken::Host) => Err(Ending::Ended(EgressEnd::ServerError)),
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
        let mut of_client = flags(&self.up, &self.down);
        if self.kind == Kind::Request && self.up.has_all() {
            // Its end is news once; that its connection broke is told in any case, if anything is asked of it.
            of_client |= if self.client == Client::There { PollFlags::RDHUP } else { PollFlags::ERR };
        }
        [(client.as_fd(), of_client), (server.as_fd(), flags(&self.down, &self.up))]
    }
}
