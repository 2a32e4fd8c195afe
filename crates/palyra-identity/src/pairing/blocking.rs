//! Both sides of a pairing over a stream that blocks, in the thread that calls.
//!
//! A device's program uses [`pair`] as it is. The daemon serves many connections in tasks and drives the states itself;
//! [`serve`] is the same for a thread. Time limits are the stream's: set them before.

use super::PairingError;
use super::channel::{ChannelBinding, DeviceChannel};
use super::code::PairingCode;
use super::desk::PairingDesk;
use super::device::{self, DeviceIntroduction, Paired};
use super::wire::FrameReader;
use super::words::MatchingWords;
use crate::device_key::DeviceKey;
use crate::tls::{ConnectionFault, PairingServer, pairing_client_config};
use palyra_protocol::{Clock, DeviceId};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, Stream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

/// How many pieces are read and thrown away after a refusal.
const LINGERING: usize = 8;

/// Serves one device. Returns the device that was paired.
///
/// # Errors
/// Why it was not. The device was told, where it could be.
pub fn serve<S: Read + Write>(
    desk: &Arc<PairingDesk>,
    server: &PairingServer,
    socket: &mut S,
    source: &str,
) -> Result<DeviceId, PairingError> {
    let tls = ServerConnection::new(Arc::clone(&server.config)).map_err(io::Error::other)?;
    let mut peer = Peer { tls, socket, frames: FrameReader::default() };
    peer.handshake()?;
    let served = converse(desk, server, &mut peer, source);
    if let Err(error) = &served
        && !matches!(error, PairingError::Io(_))
    {
        // Whether the device hears of it changes nothing.
        drop(peer.send(&error.refusal()));
        peer.linger();
    }
    served
}

fn converse<S: Read + Write>(
    desk: &Arc<PairingDesk>,
    server: &PairingServer,
    peer: &mut Peer<'_, ServerConnection, S>,
    source: &str,
) -> Result<DeviceId, PairingError> {
    let hello = desk.accept(ChannelBinding::of_server(&peer.tls, server)?, source)?;
    let (proof, reply) = hello.receive(&peer.receive()?)?;
    peer.send(&reply)?;
    let (pending, reply) = proof.receive(&peer.receive()?)?;
    peer.send(&reply)?;
    let answer = pending.wait()?;
    let (stored, reply) = pending.conclude(answer)?;
    peer.send(&reply)?;
    stored.receive(&peer.receive()?)
}

/// What a device's program does in between: show the words, and store what it got.
pub trait PairingProgress {
    /// Shows the words while a person is asked.
    fn show(&mut self, words: MatchingWords);

    /// Stores the certificate and the key, durably. The daemon is told afterwards.
    ///
    /// # Errors
    /// They could not be stored: the device is not paired.
    fn store(&mut self, paired: &Paired) -> Result<(), PairingError>;
}

/// Pairs this device over a stream to the daemon's pairing listener.
///
/// # Errors
/// Why it is not paired.
pub fn pair<S: Read + Write>(
    socket: &mut S,
    code: &PairingCode,
    introduction: DeviceIntroduction,
    clock: Arc<dyn Clock>,
    progress: &mut dyn PairingProgress,
) -> Result<Paired, PairingError> {
    let config = pairing_client_config(code.authority(), Arc::clone(&clock)).map_err(io::Error::other)?;
    // The name is not sent: whose certificate it is, the code finds out.
    let nobody = ServerName::IpAddress(IpAddr::from([0, 0, 0, 0]).into());
    let tls = ClientConnection::new(Arc::new(config), nobody).map_err(io::Error::other)?;
    let mut peer = Peer { tls, socket, frames: FrameReader::default() };
    peer.handshake()?;
    let paired = begin(&mut peer, code, introduction, clock, progress);
    // It is paired or not, whether the daemon hears of it now or when the device comes for the first time.
    if paired.is_ok() {
        drop(peer.send(&Paired::stored()));
    }
    peer.tls.send_close_notify();
    drop(peer.tls.complete_io(peer.socket));
    paired
}

fn begin<S: Read + Write>(
    peer: &mut Peer<'_, ClientConnection, S>,
    code: &PairingCode,
    introduction: DeviceIntroduction,
    clock: Arc<dyn Clock>,
    progress: &mut dyn PairingProgress,
) -> Result<Paired, PairingError> {
    let channel = DeviceChannel::of_client(&peer.tls)?;
    let (offer, hello) = device::begin(channel, code, introduction, DeviceKey::generate()?, clock)?;
    let (daemon, proof) = offer.receive(&peer.ask(&hello)?)?;
    let approval = daemon.receive(&peer.ask(&proof)?)?;
    progress.show(approval.words());
    let paired = approval.receive(&peer.receive()?)?;
    progress.store(&paired)?;
    Ok(paired)
}

/// One end of a connection.
struct Peer<'a, T, S> {
    tls: T,
    socket: &'a mut S,
    frames: FrameReader,
}

impl<T, S, D> Peer<'_, T, S>
where
    T: std::ops::DerefMut<Target = rustls::ConnectionCommon<D>>,
    D: rustls::SideData,
    S: Read + Write,
{
    fn handshake(&mut self) -> Result<(), PairingError> {
        while self.tls.is_handshaking() {
            self.tls.complete_io(self.socket).map_err(|error| match ConnectionFault::of(&error) {
                Some(fault) => PairingError::Daemon(fault),
                None => PairingError::Io(error),
            })?;
        }
        Ok(())
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), PairingError> {
        let mut stream = Stream::new(&mut self.tls, self.socket);
        stream.write_all(frame)?;
        Ok(stream.flush()?)
    }

    /// Sends a message and waits for the answer. A daemon that refused before it was asked has closed already; its
    /// answer may still be there.
    fn ask(&mut self, frame: &[u8]) -> Result<Vec<u8>, PairingError> {
        let sent = self.send(frame);
        let answer = self.receive();
        if answer.is_err() { sent.and(answer) } else { answer }
    }

    /// Reads on for a bounded while after a refusal, so that closing does not take it back: what arrives at a closed
    /// socket resets the connection.
    fn linger(&mut self) {
        self.tls.send_close_notify();
        let mut piece = [0; FrameReader::PIECE];
        for _ in 0..LINGERING {
            match Stream::new(&mut self.tls, self.socket).read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// The next message. Nothing is written meanwhile, so the last word of a peer that has closed is still heard.
    fn receive(&mut self) -> Result<Vec<u8>, PairingError> {
        loop {
            if let Some(message) = self.frames.take()? {
                return Ok(message);
            }
            let mut piece = [0; FrameReader::PIECE];
            match self.tls.reader().read(&mut piece) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(length) => self.frames.push(&piece[..length])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.tls.read_tls(self.socket)? == 0 {
                        return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
                    }
                    self.tls.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
