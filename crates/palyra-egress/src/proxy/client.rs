//! One client, from its first byte to the record of what it did.

use super::super::denial::{Denial, DenialCode};
use super::super::dial::{DialError, dial};
use super::super::gate::{AnswerHead, Body, Gate, Hello, Seen, Shut};
use super::super::host::{Host, shown};
use super::super::http::{Forward, MAX_HEAD, Malformed, Request, Scan, parse_request, scan};
use super::super::rules::{Purpose, Target};
use super::super::socks::{self, Reply};
use super::super::wait::{Woken, wait};
use super::Shared;
use super::answer;
use super::flow::{Broken, Flow};
use super::relay::{Ending, Kind, Relay};
use palyra_protocol::egress::{EgressEnd, EgressProtocol, EgressRecord, EgressVerdict, TlsName};
use palyra_protocol::{Clock as _, SystemClock};
use rustix::event::PollFlags;
use rustix::net::sockopt::set_socket_linger;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// How long a client is listened to after its answer, so that the answer is not lost in a reset.
const LINGER: Duration = Duration::from_secs(1);
/// How much of a path is kept in a record.
const MAX_RECORDED_PATH: usize = 1024;

/// Serves a connection to its end.
pub(super) fn serve(socket: TcpStream, shared: &Shared) -> EgressRecord {
    let began = Instant::now();
    let record = EgressRecord::new(EgressProtocol::Unknown, SystemClock.now());
    let mut client = Client { socket, shared, buffer: Vec::new(), dialect: Dialect::None, record };
    if client.socket.set_nonblocking(true).is_ok() {
        // Without it small answers wait for nothing; a socket that refuses it is no worse than slow.
        let _fast = client.socket.set_nodelay(true);
        if let Err(trouble) = client.run() {
            client.conclude(trouble);
        }
    } else {
        client.record.ended = EgressEnd::ClientError;
    }
    client.record.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    client.record
}

/// How answers are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Nothing can be said.
    None,
    Http,
    HttpHead,
    Socks,
}

pub(super) struct Client<'a> {
    pub(super) socket: TcpStream,
    pub(super) shared: &'a Shared,
    /// What was read and not yet understood.
    pub(super) buffer: Vec<u8>,
    pub(super) dialect: Dialect,
    pub(super) record: EgressRecord,
}

/// Why a client is not served, or not further.
pub(super) enum Trouble {
    Denied(Denial),
    Unreachable(DialError),
    Ended(EgressEnd),
}

impl From<Denial> for Trouble {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

pub(super) fn bad_request(Malformed(why): Malformed) -> Trouble {
    let hint = "send one well-formed HTTP/1.1 request with the whole URL, or CONNECT host:port";
    Trouble::Denied(Denial::unreadable(DenialCode::BadRequest, format!("the request was refused: {why}"), hint))
}

impl Client<'_> {
    fn run(&mut self) -> Result<(), Trouble> {
        let deadline = Instant::now() + self.shared.limits.head_timeout;
        self.fill(deadline)?;
        match self.buffer.first() {
            Some(&socks::VERSION) => self.socks(deadline),
            Some(byte) if byte.is_ascii_graphic() => self.http(deadline),
            _ => Err(bad_request(Malformed("this port speaks HTTP and SOCKS5"))),
        }
    }

    /// Reads what is there, or waits for it; the deadline is for the whole head, so dribbling gains nothing.
    pub(super) fn fill(&mut self, deadline: Instant) -> Result<(), Trouble> {
        match wait(&self.shared.dialer.stop, [(self.socket.as_fd(), PollFlags::IN)], deadline) {
            Ok(Woken::Ready(_)) => {}
            Ok(Woken::Stopped) => return Err(Trouble::Ended(EgressEnd::Stopped)),
            Ok(Woken::Timeout) => {
                let (what, hint) = ("the request did not arrive in time", "send the whole request at once");
                return Err(Denial::unreadable(DenialCode::RequestTimeout, what, hint).into());
            }
            Err(_) => return Err(Trouble::Ended(EgressEnd::ClientError)),
        }
        let mut piece = [0; 4096];
        match self.socket.read(&mut piece) {
            Ok(0) => Err(Trouble::Ended(EgressEnd::ClientError)),
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(Trouble::Ended(EgressEnd::ClientError)),
        }
    }

    fn http(&mut self, deadline: Instant) -> Result<(), Trouble> {
        self.dialect = Dialect::Http;
        let end = loop {
            match scan(&self.buffer).map_err(bad_request)? {
                Scan::End(end) if end <= MAX_HEAD => break end,
                Scan::More if self.buffer.len() <= MAX_HEAD => self.fill(deadline)?,
                _ => {
                    let what = format!("the request's head is larger than {MAX_HEAD} bytes");
                    return Err(Denial::unreadable(
                        DenialCode::RequestTooLarge,
                        what,
                        "send fewer or shorter header fields",
                    )
                    .into());
                }
            }
        };
        let rest = self.buffer.split_off(end);
        let head = std::mem::replace(&mut self.buffer, rest);
        match parse_request(&head).map_err(bad_request)? {
            Request::Connect { host, port } => {
                self.record.protocol = EgressProtocol::HttpConnect;
                self.record.method = Some("CONNECT".to_owned());
                self.tunnel(host, port, b"HTTP/1.1 200 Connection established\r\n\r\n")
            }
            Request::Forward(forward) => self.forward(&forward),
        }
    }

    fn socks(&mut self, deadline: Instant) -> Result<(), Trouble> {
        self.record.protocol = EgressProtocol::Socks5;
        let open = loop {
            match socks::greeting(&self.buffer) {
                Some((open, used)) => {
                    self.buffer.drain(..used);
                    break open;
                }
                None => self.fill(deadline)?,
            }
        };
        self.say(&[socks::VERSION, if open { 0 } else { 0xff }]);
        if !open {
            return Err(bad_request(Malformed("the only SOCKS5 method here is `no authentication`")));
        }
        self.dialect = Dialect::Socks;
        let target = loop {
            match socks::request(&self.buffer) {
                Some((target, used)) => {
                    self.buffer.drain(..used);
                    break target;
                }
                None => self.fill(deadline)?,
            }
        };
        match target {
            Ok((host, port)) => self.tunnel(host, port, &Reply::Succeeded.bytes()),
            Err((reply, why)) => {
                self.say(&reply.bytes());
                self.dialect = Dialect::None;
                Err(bad_request(Malformed(why)))
            }
        }
    }

    /// Asks the rules; the answer goes into the record.
    fn check(&mut self, target: &Target) -> Result<bool, Trouble> {
        self.record.host = Some(target.host.to_string());
        self.record.port = Some(target.port);
        let rule = self.shared.dialer.rules.check(target)?;
        self.record.verdict = EgressVerdict::Allowed;
        self.record.rule = Some(rule.to_string());
        Ok(rule.http.is_some())
    }

    fn connect(&mut self, host: &Host, port: u16) -> Result<TcpStream, Trouble> {
        let (server, address) = dial(&self.shared.dialer, host, port).map_err(Trouble::Unreachable)?;
        self.record.address = Some(address.to_string());
        let _fast = server.set_nodelay(true);
        Ok(server)
    }

    fn tunnel(&mut self, host: Host, port: u16, established: &[u8]) -> Result<(), Trouble> {
        let target = Target { host, port, purpose: Purpose::Tunnel };
        self.check(&target)?;
        if self.is_bound(&target.host, port) {
            return self.inspect(&target.host, port, established);
        }
        let server = self.connect(&target.host, port)?;
        let up = Flow::new(Vec::new(), Some(Gate::Hello(Hello::new(target.host))));
        let down = Flow::new(established.to_vec(), None);
        self.relay(&server, Relay::new(up, down, Kind::Tunnel))
    }

    fn forward(&mut self, forward: &Forward) -> Result<(), Trouble> {
        self.record.protocol = EgressProtocol::Http;
        self.record.method = Some(forward.method.clone());
        self.record.path = Some(forward.path.chars().take(MAX_RECORDED_PATH).collect());
        if forward.method == "HEAD" {
            self.dialect = Dialect::HttpHead;
        }
        let purpose = Purpose::Http { method: forward.method.clone(), path: forward.path.clone() };
        let limited = self.check(&Target { host: forward.host.clone(), port: forward.port, purpose })?;
        if limited && let Some(field) = forward.overriding_field() {
            let message = format!("the field `{}` replaces what the rules allowed", shown(field));
            return Err(Trouble::Denied(Denial::of(
                DenialCode::EgressDenied,
                (&forward.host, forward.port),
                message,
                "send the request that is meant, without that field",
            )));
        }
        if self.carries_credentials(forward)? {
            return self.exchange_plain(forward);
        }
        let server = self.connect(&forward.host, forward.port)?;
        let up = match Body::new(forward.body) {
            Some(body) => Flow::new(forward.to_bytes(), Some(Gate::Body(body))),
            None => {
                // What follows a request without a body is another request: it is never read.
                self.buffer.clear();
                Flow::new(forward.to_bytes(), None).without_source()
            }
        };
        let up = up.without_close();
        let down = Flow::new(Vec::new(), Some(Gate::Answer(AnswerHead::to(&forward.method))));
        self.relay(&server, Relay::new(up, down, Kind::Request))?;
        self.hear_out();
        Ok(())
    }

    /// Moves bytes until it is over, and notes what happened.
    fn relay(&mut self, server: &TcpStream, mut relay: Relay) -> Result<(), Trouble> {
        let early = std::mem::take(&mut self.buffer);
        let ending = match relay.up.feed(&early) {
            Ok(()) => {
                if relay.kind == Kind::Tunnel {
                    // From here on the client's bytes are the server's: nothing of ours may be said in between.
                    self.dialect = Dialect::None;
                }
                relay.run(self.shared, &self.socket, server)
            }
            Err(Broken::Shut(shut)) => Ending::Shut(shut),
            Err(_) => Ending::Ended(EgressEnd::ClientError),
        };
        self.record.bytes_sent = relay.up.written;
        self.record.bytes_received = relay.down.read;
        self.record.tls = relay.up.seen.map(|seen| match seen {
            Seen::SameHost => TlsName::Matched,
            Seen::NoName => TlsName::Absent,
            Seen::NotTls => TlsName::NotTls,
        });
        let answered = relay.down.written > 0;
        if relay.kind == Kind::Request && answered {
            // The client has the beginning of an answer: another one would be taken for its body.
            self.dialect = Dialect::None;
        }
        match ending {
            Ending::Ended(EgressEnd::Closed) => {
                self.record.ended = EgressEnd::Closed;
                Ok(())
            }
            Ending::Torn => {
                self.record.ended = EgressEnd::ServerError;
                Ok(())
            }
            Ending::Ended(end) => {
                // The other side must not take a torn stream for a finished one.
                for socket in [&self.socket, server] {
                    let _reset = set_socket_linger(socket, Some(Duration::ZERO));
                }
                Err(Trouble::Ended(end))
            }
            Ending::Shut(shut) => Err(self.shut(shut, relay.down.read > 0)),
        }
    }

    fn shut(&mut self, shut: Shut, server_spoke: bool) -> Trouble {
        let target = (self.record.host.clone().unwrap_or_default(), self.record.port.unwrap_or(0));
        match shut {
            Shut::Request(malformed) => bad_request(malformed),
            Shut::Answer(Malformed(why)) => {
                let body = format!("{} gave an answer that cannot be passed on: {why}", target.0);
                self.answer_failure("bad_answer", &body);
                Trouble::Ended(EgressEnd::ServerError)
            }
            Shut::BadHello | Shut::OtherHost(_) => {
                // A client that was not yet told that its tunnel stands gets an answer that says more.
                if self.dialect == Dialect::None && !server_spoke {
                    self.say(&answer::TLS_ALERT);
                }
                let (code, message) = match shut {
                    Shut::OtherHost(name) => (
                        DenialCode::SniMismatch,
                        format!("a tunnel to {} was used to greet {}", target.0, shown(&name)),
                    ),
                    _ => (DenialCode::BadTlsHello, format!("the TLS greeting to {} cannot be read", target.0)),
                };
                Trouble::Denied(Denial::of(code, target, message, "open a tunnel to the host that is meant"))
            }
            Shut::OtherRequest(Malformed(why)) => {
                let message = format!("the HTTP request in a tunnel to {} was refused: {why}", target.0);
                let hint =
                    "open a tunnel to the host that is meant, or send the request to the proxy with its whole URL";
                if self.dialect == Dialect::None && !server_spoke {
                    // It speaks HTTP, and nothing was answered yet.
                    self.dialect = Dialect::Http;
                }
                Trouble::Denied(Denial::of(DenialCode::HostMismatch, target, message, hint))
            }
        }
    }

    /// Tells the client what went wrong, and notes it.
    fn conclude(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Ended(end) => self.record.ended = end,
            Trouble::Denied(denial) => self.deny(&denial),
            Trouble::Unreachable(DialError::Denied(denial)) => self.deny(&denial),
            Trouble::Unreachable(DialError::Stopped) => self.record.ended = EgressEnd::Stopped,
            Trouble::Unreachable(DialError::Resolve(why)) => {
                self.record.ended = EgressEnd::ResolveFailed;
                self.fail("resolve_failed", &why, Reply::HostUnreachable);
            }
            Trouble::Unreachable(DialError::Connect(error)) => {
                self.record.ended = EgressEnd::ConnectFailed;
                let reply = match error.kind() {
                    io::ErrorKind::ConnectionRefused => Reply::Refused,
                    io::ErrorKind::NetworkUnreachable => Reply::NetworkUnreachable,
                    _ => Reply::HostUnreachable,
                };
                self.fail("connect_failed", &format!("could not connect: {error}"), reply);
            }
        }
    }

    fn deny(&mut self, denial: &Denial) {
        self.shared.note(denial);
        self.record.verdict = EgressVerdict::Denied;
        self.record.code = Some(denial.code.to_string());
        self.record.rule = None;
        self.record.ended = EgressEnd::Refused;
        match self.dialect {
            Dialect::None => {}
            Dialect::Http => self.say(&answer::denied(denial, false)),
            Dialect::HttpHead => self.say(&answer::denied(denial, true)),
            Dialect::Socks if denial.host.is_some() => self.say(&Reply::NotAllowed.bytes()),
            Dialect::Socks => self.say(&Reply::GeneralFailure.bytes()),
        }
        self.hear_out();
    }

    fn fail(&mut self, code: &str, message: &str, reply: Reply) {
        match self.dialect {
            Dialect::Socks => self.say(&reply.bytes()),
            _ => self.answer_failure(code, message),
        }
        self.hear_out();
    }

    fn answer_failure(&mut self, code: &str, message: &str) {
        let head_only = self.dialect == Dialect::HttpHead;
        if matches!(self.dialect, Dialect::Http | Dialect::HttpHead) {
            let host = self.record.host.clone().unwrap_or_default();
            self.say(&answer::failed(code, (&host, self.record.port.unwrap_or(0)), message, head_only));
        }
    }

    /// Says something short. A client that does not take it does not get it.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        let deadline = Instant::now() + LINGER;
        let mut left = bytes;
        while !left.is_empty() {
            match self.socket.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match wait(&self.shared.dialer.stop, [(self.socket.as_fd(), PollFlags::OUT)], deadline) {
                        Ok(Woken::Ready(_)) => {}
                        _ => return,
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Ends our side and reads the client's to its end for a moment: a close with bytes unread would be a reset, and
    /// take the answer with it.
    pub(super) fn hear_out(&mut self) {
        let _told = self.socket.shutdown(Shutdown::Write);
        let deadline = Instant::now() + LINGER;
        let mut piece = [0; 4096];
        let mut left = 256 * 1024usize;
        loop {
            match self.socket.read(&mut piece) {
                Ok(count) if count > 0 && count < left => left -= count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match wait(&self.shared.dialer.stop, [(self.socket.as_fd(), PollFlags::IN)], deadline) {
                        Ok(Woken::Ready(_)) => {}
                        _ => return,
                    }
                }
                _ => return,
            }
        }
    }
}
