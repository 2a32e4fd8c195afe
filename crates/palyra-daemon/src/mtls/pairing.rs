//! The pairing listener: open while a code lives, and a conversation for each device that comes.
//!
//! The protocol is `docs/formats/pairing.md`; `palyra-identity` has its states. Here are the socket, the time limits,
//! and the person who is asked: an approval of the subject `device_pairing`, answered at any door. A device that leaves
//! takes its approval along.

use super::half_open::{HalfOpen, Place};
use super::listen::HANDSHAKE_TIME;
use crate::doors::Doors;
use palyra_engine::{Engine, EngineError, ErrorKind, OpenDevices, RequestedApproval};
use palyra_identity::pairing::{AwaitingHello, FrameReader, HALF_OPEN_LIFE, MessageError, PairingError, Pending};
use palyra_identity::{PairingAcceptor, ServerStream};
use palyra_protocol::{ApprovalRecord, ApprovalState, Clock as _, DeviceId, Problem, SystemClock};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// How many connections may be in the middle of a handshake or of proving a code.
const MAX_CONNECTIONS: usize = 128;
/// How long a device may take to say that it has stored its certificate.
const STORING_TIME: Duration = Duration::from_secs(30);
/// How long a refused device may take to read why.
const LINGERING: Duration = Duration::from_secs(1);
/// How often the listener looks whether a code lives, whatever it was told.
const LOOK: Duration = Duration::from_secs(5);

type Stream = ServerStream<TcpStream>;

/// The pairing listener, open or not.
#[derive(Debug)]
pub(super) struct PairingDoor {
    doors: Doors,
    address: SocketAddr,
    connections: TaskTracker,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    open: AtomicBool,
    changed: Notify,
    /// Held while the listener opens or closes, so that no code is made for a listener that is about to go.
    turning: tokio::sync::Mutex<()>,
}

impl PairingDoor {
    pub(super) fn new(doors: Doors, address: SocketAddr, connections: TaskTracker) -> Self {
        Self { doors, address, connections, state: Arc::default() }
    }

    /// Where it listens, when it does.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it listens now.
    pub(super) fn is_open(&self) -> bool {
        self.state.open.load(Ordering::Acquire)
    }

    /// Looks again whether a code lives.
    pub(super) fn look_again(&self) {
        self.state.changed.notify_one();
    }

    /// Opens the listener, if it is not open.
    pub(super) async fn ensure_open(&self) -> Result<(), EngineError> {
        let _one_at_a_time = self.state.turning.lock().await;
        if self.is_open() {
            self.look_again();
            return Ok(());
        }
        let open = self.doors.engine.open_devices().await?;
        let listener = TcpListener::bind(self.address).await.map_err(|error| {
            let message = format!("the pairing listener cannot open at `{}`: {error}", self.address);
            let hint = "free the port after the one in `listen` of `[remote]`, or choose another";
            EngineError::new(ErrorKind::Unavailable, Problem::new("pairing_listener", message, hint))
        })?;
        let acceptor = PairingAcceptor::new(open.identity().pairing_server()?);
        self.state.open.store(true, Ordering::Release);
        let listening = Listening {
            doors: self.doors.clone(),
            open,
            acceptor,
            connections: self.connections.clone(),
            half_open: HalfOpen::new(MAX_CONNECTIONS),
            state: Arc::clone(&self.state),
        };
        tokio::spawn(listening.accept(listener));
        Ok(())
    }
}

/// The listener while it is open.
#[derive(Clone)]
struct Listening {
    doors: Doors,
    open: Arc<OpenDevices>,
    acceptor: PairingAcceptor,
    connections: TaskTracker,
    half_open: HalfOpen,
    state: Arc<State>,
}

impl Listening {
    /// Accepts for as long as a code lives.
    async fn accept(self, listener: TcpListener) {
        let closing = self.doors.ending.closing().clone();
        loop {
            self.while_a_code_lives(&listener).await;
            let _one_at_a_time = self.state.turning.lock().await;
            if closing.is_cancelled() || self.open.desk().open_until().is_none() {
                drop(listener);
                self.state.open.store(false, Ordering::Release);
                break;
            }
        }
        // What is over is recorded as such now, not at the next round.
        self.open.desk().tend();
    }

    async fn while_a_code_lives(&self, listener: &TcpListener) {
        let closing = self.doors.ending.closing();
        while let Some(until) = self.open.desk().open_until() {
            let left = SystemClock.now().until(until).clamp(Duration::from_millis(10), LOOK);
            let taken = tokio::select! {
                taken = listener.accept() => taken,
                () = tokio::time::sleep(left) => continue,
                () = self.state.changed.notified() => continue,
                () = closing.cancelled() => return,
            };
            match taken {
                Ok((stream, from)) => {
                    let place = self.half_open.enter();
                    drop(self.connections.spawn(self.clone().connection(stream, from, place)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a pairing connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// One connection, to its end.
    async fn connection(self, stream: TcpStream, from: SocketAddr, place: Place) {
        let source = from.ip().to_string();
        let identity = self.open.identity();
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(HANDSHAKE_TIME, self.acceptor.accept(stream)) => shaken,
            () = place.dismissed() => return identity.count_refusal(&source, "handshake_made_room"),
        };
        let (stream, binding) = match shaken {
            Ok(Ok(shaken)) => shaken,
            Ok(Err(_)) => return identity.count_refusal(&source, "pairing_handshake"),
            Err(_) => return identity.count_refusal(&source, "handshake_too_slow"),
        };
        let mut peer = Peer { stream, frames: FrameReader::default() };
        let conversation = Conversation { engine: &self.doors.engine, open: &self.open, source: &source };
        let paired = match self.open.desk().accept(binding, &source) {
            Ok(hello) => conversation.hold(hello, &mut peer, place).await,
            Err(error) => Err(error),
        };
        // A code may be used up, and with it the listener's reason to be.
        self.state.changed.notify_one();
        match paired {
            Ok(device) => {
                self.doors.engine.device_paired();
                tracing::info!(%device, %source, "a device was paired");
            }
            Err(PairingError::Io(error)) => tracing::debug!(%error, %source, "a pairing broke off"),
            Err(error) => {
                tracing::debug!(code = error.code(), %source, "a pairing was refused");
                peer.refuse(&error).await;
            }
        }
    }
}

/// One device that wants to be paired.
struct Conversation<'a> {
    engine: &'a Engine,
    open: &'a Arc<OpenDevices>,
    source: &'a str,
}

impl Conversation<'_> {
    async fn hold(&self, hello: AwaitingHello, peer: &mut Peer, place: Place) -> Result<DeviceId, PairingError> {
        let proving = async {
            let (proof, reply) = hello.receive(&peer.receive().await?)?;
            peer.send(&reply).await?;
            proof.receive(&peer.receive().await?)
        };
        let proved = tokio::select! {
            proved = tokio::time::timeout(HALF_OPEN_LIFE, proving) => proved.unwrap_or(Err(PairingError::TooSlow)),
            () = place.dismissed() => Err(PairingError::Busy),
        };
        let (pending, reply) = proved.inspect_err(|error| self.count(error))?;
        drop(place);
        peer.send(&reply).await?;
        let pending = self.approved(pending, peer).await?;
        let answer = pending.answered().await;
        // Files are written, and the journal is waited for.
        let concluding = tokio::task::spawn_blocking(move || pending.conclude(answer));
        let (stored, reply) = concluding.await.map_err(io::Error::other)??;
        peer.send(&reply).await?;
        let message = tokio::time::timeout(STORING_TIME, peer.receive()).await.map_err(|_| PairingError::TooSlow)??;
        stored.receive(&message)
    }

    /// Those that the desk does not see are counted here.
    fn count(&self, error: &PairingError) {
        if matches!(error, PairingError::TooSlow | PairingError::Busy | PairingError::Io(_)) {
            let code = if matches!(error, PairingError::Io(_)) { "pairing_broken_off" } else { "pairing_too_slow" };
            self.open.identity().count_refusal(self.source, code);
        }
    }

    /// Asks people, and waits for their answer, the device's leaving, or the end of the time.
    async fn approved(&self, pending: Pending, peer: &mut Peer) -> Result<Pending, PairingError> {
        let asked = self.engine.ask_about_pairing(pending.view()).await.map_err(|error| {
            tracing::warn!(code = error.problem.code, "nobody could be asked about a device");
            PairingError::Busy
        })?;
        let RequestedApproval { record, end } = asked;
        let ended = tokio::select! {
            ended = end => ended.map_err(|_| io::Error::other("the daemon ends"))?,
            gone = peer.silence() => {
                self.withdraw(&record).await;
                return Err(gone);
            }
            () = tokio::time::sleep(pending.time_left()) => {
                self.withdraw(&record).await;
                return Err(PairingError::Unanswered);
            }
        };
        let by = ended.resolution.as_ref().map(|resolution| &resolution.by);
        let (pairing, desk) = (pending.view().pairing, self.open.desk());
        match (ended.state, by) {
            (ApprovalState::Allowed, Some(by)) => drop(desk.approve(pairing, by)?),
            (ApprovalState::Denied, Some(by)) => drop(desk.deny(pairing, by)?),
            _ => return Err(PairingError::Unanswered),
        }
        Ok(pending)
    }

    /// Takes an approval back whose device has left.
    async fn withdraw(&self, record: &ApprovalRecord) {
        let problem = Problem::new("device_left", "the device left before anybody answered", "pair the device again");
        if let Err(error) = self.engine.withdraw_request(record, problem).await {
            tracing::warn!(code = error.problem.code, "an approval of a device that left was not ended");
        }
    }
}

/// The device's end of the conversation.
struct Peer {
    stream: Stream,
    frames: FrameReader,
}

impl Peer {
    async fn send(&mut self, frame: &[u8]) -> Result<(), PairingError> {
        let sending = async {
            self.stream.write_all(frame).await?;
            self.stream.flush().await
        };
        tokio::time::timeout(HANDSHAKE_TIME, sending).await.map_err(|_| PairingError::TooSlow)??;
        Ok(())
    }

    async fn receive(&mut self) -> Result<Vec<u8>, PairingError> {
        loop {
            if let Some(message) = self.frames.take()? {
                return Ok(message);
            }
            let mut piece = [0; FrameReader::PIECE];
            match self.stream.read(&mut piece).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                length => self.frames.push(&piece[..length])?,
            }
        }
    }

    /// Comes when a device that has nothing to say speaks or leaves.
    async fn silence(&mut self) -> PairingError {
        match self.receive().await {
            Ok(_) => MessageError::Unexpected.into(),
            Err(error) => error,
        }
    }

    /// Says why, and reads on for a moment: what arrives at a closed socket would take it back.
    async fn refuse(mut self, error: &PairingError) {
        let saying = async {
            self.send(&error.refusal()).await?;
            self.stream.shutdown().await?;
            let mut piece = [0; 512];
            while self.stream.read(&mut piece).await? > 0 {}
            Ok::<_, PairingError>(())
        };
        // Whether the device hears of it changes nothing.
        drop(tokio::time::timeout(LINGERING, saying).await);
    }
}
