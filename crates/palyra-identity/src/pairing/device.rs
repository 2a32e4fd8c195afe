//! The device's side of a pairing, message by message.
//!
//! ```text
//! begin ─hello▶ AwaitingOffer ─proof▶ AwaitingDaemon ▶ AwaitingApproval (show the words) ▶ Paired ─stored▶
//! ```

use super::PairingError;
use super::channel::DeviceChannel;
use super::code::PairingCode;
use super::message::{CodeSelector, Hello, Message, Offer, Platform, Proof, SHARE, associated};
use super::pake::{self, Begun, Keys};
use super::wire::MessageError;
use super::words::MatchingWords;
use crate::authority::AuthorityCertificate;
use crate::device_key::DeviceKey;
use crate::names::{DeviceName, Zone};
use crate::refusal::CertificateRefusal;
use crate::tls::{ConnectionFault, verify_server};
use crate::verify;
use palyra_protocol::{Clock, DeviceId, Digest, Principal, Timestamp, WorkspaceRole};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// What a device says about itself.
#[derive(Debug, Clone)]
pub struct DeviceIntroduction {
    /// What people call it.
    pub name: DeviceName,
    /// What it runs on.
    pub platform: Platform,
}

/// Begins a pairing over a connection whose handshake is over: what to send, and what comes next. The key is made for
/// this pairing and stays here.
///
/// # Errors
/// The machine gives no randomness.
pub fn begin(
    channel: DeviceChannel,
    code: &PairingCode,
    introduction: DeviceIntroduction,
    key: DeviceKey,
    clock: Arc<dyn Clock>,
) -> Result<(AwaitingOffer, Vec<u8>), PairingError> {
    let DeviceIntroduction { name, platform } = introduction;
    let selector = code.id().map_or(CodeSelector::Pin, CodeSelector::Secret);
    let mut hello = Hello { code: selector, key: key.digest(), name: name.clone(), platform, share: [0; SHARE] };
    let verifier = code.verifier();
    let context = pake::Context { code: &verifier, channel: &channel.binding, device_key: hello.key };
    let unshared = Message::Hello(hello.clone()).bytes();
    let (share, begun) = pake::begin(&context, associated(&unshared))?;
    hello.share = share;
    let hello = Message::Hello(hello);
    let next = AwaitingOffer {
        server: channel.server,
        authority: code.authority(),
        name,
        key,
        clock,
        hello: hello.bytes(),
        begun,
    };
    Ok((next, hello.framed()))
}

/// Reads a message of the daemon, or its refusal.
fn read(message: &[u8]) -> Result<Message, PairingError> {
    match Message::read(message)? {
        Message::Refused(refused) => {
            Err(PairingError::Refused { code: refused.code, retry_after: refused.retry_after })
        }
        other => Ok(other),
    }
}

/// The daemon's share is next.
#[derive(Debug)]
pub struct AwaitingOffer {
    server: CertificateDer<'static>,
    authority: Option<Digest>,
    name: DeviceName,
    key: DeviceKey,
    clock: Arc<dyn Clock>,
    hello: Vec<u8>,
    begun: Begun,
}

impl AwaitingOffer {
    /// The daemon's offer: the proof to send, and what comes next.
    ///
    /// # Errors
    /// The daemon refuses, or what it says about itself does not fit its certificate.
    pub fn receive(self, message: &[u8]) -> Result<(AwaitingDaemon, Vec<u8>), PairingError> {
        let Self { server, authority, name, key, clock, hello, begun } = self;
        let Message::Offer(offer) = read(message)? else { return Err(MessageError::Unexpected.into()) };
        check_daemon(&server, authority, &offer, clock.now())?;
        let keys = begun.finish(&hello, message)?;
        let request = key.signing_request(name.as_str())?;
        let proof = Message::Proof(Proof { tag: keys.device_tag(), request }).framed();
        Ok((AwaitingDaemon { zone: offer.zone, key, clock, keys }, proof))
    }
}

/// The certificate that the server showed comes from the authority it offers, and that is the one the code named.
fn check_daemon(
    server: &CertificateDer<'_>,
    authority: Option<Digest>,
    offer: &Offer,
    now: Timestamp,
) -> Result<(), PairingError> {
    let malformed = |_| PairingError::Daemon(ConnectionFault::foreign(&CertificateRefusal::Malformed));
    let authorities = offer.authorities.iter().map(AuthorityCertificate::read);
    let authorities: Vec<_> = authorities.collect::<Result<_, _>>().map_err(malformed)?;
    if let Some(expected) = authority
        && authorities.iter().all(|authority| authority.sha256 != expected)
    {
        let presented = authorities.first().map(|authority| authority.sha256);
        let fault = ConnectionFault::AuthorityChanged { known: vec![expected], presented };
        return Err(PairingError::Daemon(fault));
    }
    verify_server(server, &authorities, &offer.zone, now, None).map_err(PairingError::Daemon)
}

/// The daemon has to prove that it knows the code.
#[derive(Debug)]
pub struct AwaitingDaemon {
    zone: Zone,
    key: DeviceKey,
    clock: Arc<dyn Clock>,
    keys: Keys,
}

impl AwaitingDaemon {
    /// The daemon's proof. From here on the other side is known, and a person is asked.
    ///
    /// # Errors
    /// The daemon refuses, or does not know the code.
    pub fn receive(self, message: &[u8]) -> Result<AwaitingApproval, PairingError> {
        let Message::Wait(wait) = read(message)? else { return Err(MessageError::Unexpected.into()) };
        if !self.keys.is_daemon(&wait.tag) {
            return Err(PairingError::WrongCode);
        }
        let Self { zone, key, clock, keys } = self;
        Ok(AwaitingApproval { zone, key, clock, words: keys.words(), until: wait.until })
    }
}

/// Both sides know the code. A person compares the words and approves.
#[derive(Debug)]
pub struct AwaitingApproval {
    zone: Zone,
    key: DeviceKey,
    clock: Arc<dyn Clock>,
    words: MatchingWords,
    until: Timestamp,
}

impl AwaitingApproval {
    /// The words that the daemon's screen must show too.
    #[must_use]
    pub fn words(&self) -> MatchingWords {
        self.words
    }

    /// Until when the daemon waits, by its clock.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// The daemon's answer.
    ///
    /// # Errors
    /// It is no, or the certificate is not for this device.
    pub fn receive(self, message: &[u8]) -> Result<Paired, PairingError> {
        let Message::Issued(issued) = read(message)? else { return Err(MessageError::Unexpected.into()) };
        let Self { zone, key, clock, .. } = self;
        let paired = Paired {
            zone,
            device_id: issued.device_id,
            principal: issued.principal,
            role: issued.role,
            certificate: issued.certificate,
            authorities: issued.authorities,
            key,
        };
        paired.check(clock.now())?;
        Ok(paired)
    }
}

/// A device with its certificate, which it has to store before it says so.
#[derive(Debug)]
pub struct Paired {
    /// The daemon's zone.
    pub zone: Zone,
    /// The device's id.
    pub device_id: DeviceId,
    /// For whom it acts.
    pub principal: Principal,
    /// With which role.
    pub role: WorkspaceRole,
    /// Its certificate.
    pub certificate: CertificateDer<'static>,
    /// The authority's certificates that it trusts from now on.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: DeviceKey,
}

impl Paired {
    /// What to send once the certificate and the key are on disk.
    #[must_use]
    pub fn stored() -> Vec<u8> {
        Message::Stored.framed()
    }

    /// Whether the certificate is this device's, for this key, from this daemon.
    fn check(&self, now: Timestamp) -> Result<(), PairingError> {
        let authorities = self.authorities.iter().map(AuthorityCertificate::read);
        let authorities: Vec<_> = authorities.collect::<Result<_, _>>().map_err(|_| PairingError::Certificate)?;
        let anchors: Vec<_> = authorities.into_iter().map(|authority| authority.anchor).collect();
        let own = verify::own_device(&self.certificate, &self.zone, &anchors, now);
        let own = own.map_err(|_| PairingError::Certificate)?;
        let named = own.device == self.device_id && own.principal == self.principal;
        if named && own.key == self.key.digest() { Ok(()) } else { Err(PairingError::Certificate) }
    }
}
