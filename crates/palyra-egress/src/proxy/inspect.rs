//! Requests to bound hosts: read whole, sent anew with what is attached, their answers cleaned.
//!
//! A tunnel to a bound host ends here: the client greets the run's own authority. One request is read, the credentials
//! that cover it are attached, and it is sent over a connection of our own, whose certificate is checked as
//! `palyra.http.fetch` checks it. The answer goes back as it comes, through a filter that knows what was attached.
//! Everything that cannot be looked at is refused by name: bytes that are not TLS, HTTP/2, an upgrade, an answer that
//! is compressed unasked.

use super::super::credentials::{AnswerFilter, Attached, Credentials, OutgoingRequest};
use super::super::denial::{Denial, DenialCode};
use super::super::fetch::{FetchError, FetchLimits, FetchRequest, FetchSink, FetchUrl, FetchWatch};
use super::super::gate::collect_chunks;
use super::super::host::Host;
use super::super::http::{Forward, Framing, MAX_HEAD, Malformed, Scan, is_ours, parse_in_tunnel, scan};
use super::super::wait::{Woken, wait};
use super::answer;
use super::client::{Client, Dialect, Trouble, bad_request};
use crate::CancelSignal;
use palyra_protocol::egress::{EgressEnd, EgressProtocol, EgressRecord, TlsName};
use rustix::event::PollFlags;
use rustls::{ServerConnection, Stream};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The largest body that is read before it is sent on.
const MAX_BODY: usize = 64 << 20;
/// How long an exchange with a bound host may take; the run's own limit is shorter as a rule.
const LONGEST: Duration = Duration::from_secs(3600);
/// The first byte of a TLS record that greets.
const HANDSHAKE: u8 = 22;

/// A client's socket that waits for bytes, for the order to stop, or until nothing has moved for too long.
struct Patient<'a> {
    socket: &'a TcpStream,
    stop: &'a CancelSignal,
    idle: Duration,
    /// What was read before.
    early: Vec<u8>,
}

impl Patient<'_> {
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        match wait(self.stop, [(self.socket.as_fd(), flags)], Instant::now() + self.idle)? {
            Woken::Ready(_) => Ok(()),
            Woken::Timeout => Err(io::ErrorKind::TimedOut.into()),
            Woken::Stopped => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.early.is_empty() {
            let count = self.early.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.early[..count]);
            self.early.drain(..count);
            return Ok(count);
        }
        loop {
            match self.socket.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::IN)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.socket.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both directions of a client.
trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

/// Why a stream to a client is no good.
fn broken(error: &io::Error) -> Trouble {
    Trouble::Ended(match error.kind() {
        io::ErrorKind::ConnectionAborted => EgressEnd::Stopped,
        io::ErrorKind::TimedOut => EgressEnd::IdleTimeout,
        _ => EgressEnd::ClientError,
    })
}

/// A protocol that cannot be looked at, where a credential could go along.
fn unreadable(target: (&Host, u16), what: &str, hint: &str) -> Trouble {
    let message = format!("credentials are bound to {}:{}, so {what}", target.0, target.1);
    Trouble::Denied(Denial::of(DenialCode::CredentialProtocolRefused, target, message, hint))
}

impl Client<'_> {
    /// Whether credentials of this run are bound to a host.
    pub(super) fn is_bound(&self, host: &Host, port: u16) -> bool {
        self.shared.credentials.as_ref().is_some_and(|credentials| credentials.is_bound(&host.to_string(), port))
    }

    /// Whether a plain request goes to a bound host. One that shows a placeholder elsewhere is refused.
    pub(super) fn carries_credentials(&self, forward: &Forward) -> Result<bool, Trouble> {
        let Some(credentials) = &self.shared.credentials else { return Ok(false) };
        let attached = credentials.attach(&OutgoingRequest {
            tls: false,
            host: &forward.host.to_string(),
            port: forward.port,
            method: &forward.method,
            path: &forward.path,
            values: &forward.values(),
        })?;
        Ok(!attached.is_empty() || self.is_bound(&forward.host, forward.port))
    }

    /// Ends a tunnel to a bound host here, and serves the request in it.
    pub(super) fn inspect(&mut self, host: &Host, port: u16, established: &[u8]) -> Result<(), Trouble> {
        let shared = self.shared;
        let authority = shared.credentials.as_ref().and_then(|credentials| credentials.authority());
        let config = match authority.map(|authority| authority.server(host)) {
            Some(Ok(config)) => config,
            _ => return Err(unreadable((host, port), "no tunnel is opened there", "send the request by plain HTTP")),
        };
        self.say(established);
        // From here on the client speaks to the host, not to a proxy.
        self.dialect = Dialect::None;
        if self.buffer.is_empty() {
            self.fill(Instant::now() + shared.limits.head_timeout)?;
        }
        if self.buffer.first() != Some(&HANDSHAKE) {
            let hint = "speak TLS in the tunnel; the credential is attached to the request inside it";
            return Err(unreadable((host, port), "a tunnel to it that is not TLS is refused", hint));
        }
        let socket = self.socket.try_clone().map_err(|e| broken(&e))?;
        let early = std::mem::take(&mut self.buffer);
        let idle = shared.limits.idle_timeout;
        let mut wire = Patient { socket: &socket, stop: &shared.dialer.stop, idle, early };
        let mut session = ServerConnection::new(config).map_err(|_| Trouble::Ended(EgressEnd::ClientError))?;
        while session.is_handshaking() {
            if let Err(error) = session.complete_io(&mut wire) {
                return Err(handshake_failed((host, port), &error));
            }
        }
        if session.server_name().is_some_and(|name| Host::parse(name).ok().as_ref() != Some(host)) {
            let message = format!("a tunnel to {host} was used to greet another host");
            let hint = "open a tunnel to the host that is meant";
            return Err(Denial::of(DenialCode::SniMismatch, (host, port), message, hint).into());
        }
        self.record.tls = Some(TlsName::Matched);
        let served = self.serve_inside(&mut Stream::new(&mut session, &mut wire), (host, port));
        session.send_close_notify();
        // A client that has gone needs no goodbye.
        let _told = session.complete_io(&mut wire);
        self.hear_out();
        served
    }

    /// Reads one request out of a tunnel and serves it.
    fn serve_inside(&mut self, wire: &mut dyn Wire, (host, port): (&Host, u16)) -> Result<(), Trouble> {
        let (head, rest) = match read_head(wire) {
            Ok(found) => found,
            Err(trouble) => return Err(self.told_inside(wire, trouble, false)),
        };
        match parse_in_tunnel(&head, host, port) {
            Ok(forward) => {
                let request = Inside { forward: &forward, tls: true, rest };
                self.exchange(wire, request)
            }
            Err(Malformed(why)) => {
                let trouble = if why.contains("Upgrade") || why.contains("HTTP/2") {
                    unreadable((host, port), &format!("this is refused: {why}"), "send plain HTTP/1.1 requests")
                } else {
                    bad_request(Malformed(why))
                };
                Err(self.told_inside(wire, trouble, false))
            }
        }
    }

    /// Serves a plain request to a bound host.
    pub(super) fn exchange_plain(&mut self, forward: &Forward) -> Result<(), Trouble> {
        let shared = self.shared;
        let socket = self.socket.try_clone().map_err(|e| broken(&e))?;
        let rest = std::mem::take(&mut self.buffer);
        let idle = shared.limits.idle_timeout;
        let mut wire = Patient { socket: &socket, stop: &shared.dialer.stop, idle, early: Vec::new() };
        self.dialect = Dialect::None;
        let served = self.exchange(&mut wire, Inside { forward, tls: false, rest });
        self.hear_out();
        served
    }

    /// Sends a request with what is attached to it, and its answer back.
    fn exchange(&mut self, wire: &mut dyn Wire, inside: Inside<'_>) -> Result<(), Trouble> {
        let Inside { forward, tls, rest } = inside;
        let shared = self.shared;
        let head_only = forward.method == "HEAD";
        let Some(fetcher) = &shared.fetcher else { return Err(Trouble::Ended(EgressEnd::ServerError)) };
        let Some(credentials) = &shared.credentials else { return Err(Trouble::Ended(EgressEnd::ServerError)) };
        let request = match self.whole_request(wire, forward, tls, rest) {
            Ok(request) => request,
            Err(trouble) => return Err(self.told_inside(wire, trouble, head_only)),
        };
        let watch = Watch { credentials, record: Mutex::new(None) };
        let limits = FetchLimits { timeout: LONGEST, max_body_bytes: usize::MAX, ..FetchLimits::default() };
        let (filter, state) = (credentials.filter(), SinkState::Nothing);
        let mut sink = Sink { wire: &mut *wire, credentials, filter, head_only, chunked: true, state };
        let done = fetcher.stream(&request, &limits, &shared.dialer.stop, &watch, &mut sink);
        let state = sink.end(done.is_ok());
        self.take_over(&watch, tls);
        match done {
            Ok(true) if state == SinkState::Done => Ok(()),
            Ok(_) if state == SinkState::Compressed => {
                let message = "the answer is compressed, so what was attached could come back unseen";
                let body = self.failed_inside("bad_answer", message, head_only);
                drop(wire.write_all(&body));
                Err(Trouble::Ended(EgressEnd::ServerError))
            }
            Ok(_) => Err(Trouble::Ended(EgressEnd::ClientError)),
            Err(FetchError::Denied(denial)) => Err(self.told_inside(wire, Trouble::Denied(denial), head_only)),
            Err(_) if state != SinkState::Nothing => Err(Trouble::Ended(EgressEnd::ServerError)),
            Err(error) => {
                let body = self.failed_inside(error.code(), &error.to_string(), head_only);
                drop(wire.write_all(&body));
                Err(Trouble::Ended(self.record.ended))
            }
        }
    }

    /// The record of the connection that was really made is the record of this one.
    fn take_over(&mut self, watch: &Watch<'_>, tls: bool) {
        let made = watch.record.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(made) = made {
            let protocol = if tls { EgressProtocol::HttpConnect } else { EgressProtocol::Http };
            let (started_at_ms, tls) = (self.record.started_at_ms, self.record.tls);
            self.record = EgressRecord { started_at_ms, protocol, tls, ..made };
        }
    }

    /// Tells a client in a tunnel what is wrong.
    fn told_inside(&self, wire: &mut dyn Wire, trouble: Trouble, head_only: bool) -> Trouble {
        if let Trouble::Denied(denial) = &trouble {
            drop(wire.write_all(&answer::denied(denial, head_only)));
        }
        trouble
    }

    fn failed_inside(&self, code: &str, message: &str, head_only: bool) -> Vec<u8> {
        let host = self.record.host.clone().unwrap_or_default();
        answer::failed(code, (&host, self.record.port.unwrap_or(0)), message, head_only)
    }

    /// The request with its whole body.
    fn whole_request(
        &self,
        wire: &mut dyn Wire,
        forward: &Forward,
        tls: bool,
        rest: Vec<u8>,
    ) -> Result<FetchRequest, Trouble> {
        if forward.expects_continue() && forward.body != Framing::None && rest.is_empty() {
            wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|e| broken(&e))?;
        }
        let body = read_body(wire, forward.body, rest, (&forward.host, forward.port))?;
        let url = FetchUrl::of_parts(tls, &forward.host, forward.port, &forward.target());
        let fields = forward.end_to_end_text().map_err(bad_request)?;
        Ok(FetchRequest::passed_on(&forward.method, url, fields, body))
    }
}

/// A request that was read, and what followed its head.
struct Inside<'a> {
    forward: &'a Forward,
    tls: bool,
    rest: Vec<u8>,
}

fn handshake_failed(target: (&Host, u16), error: &io::Error) -> Trouble {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::NoApplicationProtocol) => {
            unreadable(target, "HTTP/2 is not spoken to it", "offer `http/1.1` in the TLS greeting")
        }
        Some(_) => unreadable(
            target,
            "the proxy speaks for it here, and the client does not accept that",
            "trust the system's certificates: the run's authority is among them; `SSL_CERT_FILE` and pinned certificates hide it",
        ),
        None => broken(error),
    }
}

/// Reads up to the end of a head; gives what came after it too.
fn read_head(wire: &mut dyn Wire) -> Result<(Vec<u8>, Vec<u8>), Trouble> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match scan(&bytes).map_err(bad_request)? {
            Scan::End(end) if end <= MAX_HEAD => {
                let rest = bytes.split_off(end);
                return Ok((bytes, rest));
            }
            Scan::More if bytes.len() <= MAX_HEAD => {}
            _ => {
                let what = format!("the request's head is larger than {MAX_HEAD} bytes");
                let hint = "send fewer or shorter header fields";
                return Err(Denial::unreadable(DenialCode::RequestTooLarge, what, hint).into());
            }
        }
        match wire.read(&mut piece) {
            Ok(0) => return Err(Trouble::Ended(EgressEnd::ClientError)),
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) => return Err(broken(&error)),
        }
    }
}

fn read_body(wire: &mut dyn Wire, framing: Framing, rest: Vec<u8>, target: (&Host, u16)) -> Result<Vec<u8>, Trouble> {
    let too_large = || {
        let message = format!(
            "a request to {}:{}, to which credentials are bound, has at most {MAX_BODY} bytes",
            target.0, target.1
        );
        Trouble::Denied(Denial::of(DenialCode::RequestTooLarge, target, message, "send it in parts"))
    };
    let mut piece = vec![0; 64 << 10];
    let mut more = |wire: &mut dyn Wire| match wire.read(&mut piece) {
        Ok(0) => Err(bad_request(Malformed("the body ended early"))),
        Ok(count) => Ok(piece[..count].to_vec()),
        Err(error) => Err(broken(&error)),
    };
    match framing {
        Framing::None => Ok(Vec::new()),
        Framing::Length(length) => {
            let length = usize::try_from(length).ok().filter(|length| *length <= MAX_BODY).ok_or_else(too_large)?;
            let mut body = rest;
            while body.len() < length {
                body.extend(more(wire)?);
            }
            body.truncate(length);
            Ok(body)
        }
        Framing::Chunked => {
            let (mut body, mut state, mut input) = (Vec::new(), super::super::gate::Chunks::Size(0, 0), rest);
            while !collect_chunks(&mut state, &input, &mut body).map_err(bad_request)? {
                if body.len() > MAX_BODY {
                    return Err(too_large());
                }
                input = more(wire)?;
            }
            Ok(body)
        }
    }
}

/// Attaches credentials, and keeps the record of the connection.
struct Watch<'a> {
    credentials: &'a Arc<dyn Credentials>,
    record: Mutex<Option<EgressRecord>>,
}

impl FetchWatch for Watch<'_> {
    fn may_go(&self, _: &FetchRequest) -> Result<(), Denial> {
        // A client follows redirects by itself, with a request of its own.
        Ok(())
    }

    fn connection(&self, record: &EgressRecord) {
        *self.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
    }

    fn credentials(&self, request: &FetchRequest) -> Result<Attached, Denial> {
        let url = request.url();
        let values: Vec<&[u8]> = request.field_values().collect();
        self.credentials.attach(&OutgoingRequest {
            tls: url.is_tls(),
            host: &url.host().to_string(),
            port: url.port(),
            method: request.method(),
            path: url.path(),
            values: &values,
        })
    }
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkState {
    Nothing,
    /// Its head went on, and its body follows in chunks.
    Body,
    /// Its head went on, and it has no body.
    Done,
    /// It cannot be looked at.
    Compressed,
    /// The client has gone.
    Gone,
}

/// Passes an answer on, cleaned.
struct Sink<'a> {
    wire: &'a mut dyn Wire,
    credentials: &'a Arc<dyn Credentials>,
    filter: Box<dyn AnswerFilter>,
    head_only: bool,
    /// Whether the body goes on in chunks of our own; otherwise its length was said, and the filter keeps it.
    chunked: bool,
    state: SinkState,
}

impl Sink<'_> {
    fn write(&mut self, bytes: &[u8]) {
        if self.wire.write_all(bytes).is_err() {
            self.state = SinkState::Gone;
        }
    }

    fn chunk(&mut self, bytes: &[u8]) {
        if !self.chunked {
            self.write(bytes);
        } else if !bytes.is_empty() {
            let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
            framed.extend_from_slice(bytes);
            framed.extend_from_slice(b"\r\n");
            self.write(&framed);
        }
    }

    /// Ends the answer. One that broke off is not ended as if it were whole.
    fn end(mut self, whole: bool) -> SinkState {
        if self.state == SinkState::Body && whole {
            let mut rest = Vec::new();
            self.filter.finish(&mut rest);
            self.chunk(&rest);
            if self.state == SinkState::Body && self.chunked {
                self.write(b"0\r\n\r\n");
            }
            if self.state == SinkState::Body {
                self.state = SinkState::Done;
            }
        }
        self.state
    }

    /// A field's value, cleaned by itself.
    fn cleaned(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut filter) = (Vec::with_capacity(bytes.len()), self.credentials.filter());
        filter.push(bytes, &mut out);
        filter.finish(&mut out);
        out
    }
}

impl FetchSink for Sink<'_> {
    fn head(&mut self, status: u16, headers: &[(String, Vec<u8>)]) {
        let identity = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"identity");
        if headers.iter().any(|(name, value)| name == "content-encoding" && !identity(value)) && !self.head_only {
            self.state = SinkState::Compressed;
            return;
        }
        let mut head = format!("HTTP/1.1 {status} {status}\r\n").into_bytes();
        let says = |wanted: &str| headers.iter().any(|(name, _)| name == wanted);
        self.chunked = !says("content-length") || says("transfer-encoding");
        let passes = |name: &str| !is_ours(name) || !self.chunked && name == "content-length";
        for (name, value) in headers.iter().filter(|(name, _)| passes(name)) {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend(self.cleaned(value));
            head.extend_from_slice(b"\r\n");
        }
        let bodiless = self.head_only || status < 200 || matches!(status, 204 | 304);
        if !bodiless && self.chunked {
            head.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        head.extend_from_slice(b"connection: close\r\n\r\n");
        self.state = if bodiless { SinkState::Done } else { SinkState::Body };
        self.write(&head);
    }

    fn piece(&mut self, bytes: &[u8]) -> bool {
        if self.state == SinkState::Body {
            let mut out = Vec::with_capacity(bytes.len());
            self.filter.push(bytes, &mut out);
            self.chunk(&out);
        }
        matches!(self.state, SinkState::Body | SinkState::Done)
    }
}
