//! The messages of a pairing, read strictly. `docs/formats/pairing.md` is the same in words.

use super::code::{CodeId, CodeKind};
use super::wire::{MessageError, Reader, Writer, frame};
use crate::names::{DeviceName, Zone};
use crate::signing_request::MAX_SIGNING_REQUEST;
use palyra_protocol::{DeviceId, Digest, Principal, Timestamp, WorkspaceRole, display};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The version that is spoken here.
pub const VERSION: u8 = 1;
/// How many bytes a share of the PAKE has.
pub(crate) const SHARE: usize = 32;
/// How many bytes a proof has.
pub(crate) const TAG: usize = 64;
/// The longest certificate.
const MAX_CERTIFICATE: usize = 2048;
/// The most certificates of the authority.
const MAX_AUTHORITIES: usize = 4;
/// The longest name of a platform, in bytes.
const MAX_PLATFORM: usize = 32;
/// The longest code of a refusal.
const MAX_CODE: usize = 64;

const HELLO: u8 = 1;
const OFFER: u8 = 2;
const PROOF: u8 = 3;
const WAIT: u8 = 4;
const ISSUED: u8 = 5;
const REFUSED: u8 = 6;
const STORED: u8 = 7;

/// A pairing, from proof to certificate: `pair_` and 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PairingId(pub(crate) [u8; 16]);

impl fmt::Display for PairingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pair_{}", hex::encode(self.0))
    }
}

impl fmt::Debug for PairingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PairingId({self})")
    }
}

impl FromStr for PairingId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; 16];
        let digits = text.strip_prefix("pair_").filter(|digits| !digits.bytes().any(|b| b.is_ascii_uppercase()));
        digits
            .and_then(|digits| hex::decode_to_slice(digits, &mut bytes).ok())
            .map(|()| Self(bytes))
            .ok_or_else(|| "a pairing is `pair_` and 32 hexadecimal digits".to_owned())
    }
}

impl TryFrom<String> for PairingId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PairingId> for String {
    fn from(id: PairingId) -> Self {
        id.to_string()
    }
}

/// What a device says that it runs on: `linux`, `macos`. Shown to a person, believed by nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Platform(String);

impl Platform {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Platform {
    type Err = MessageError;
    fn from_str(text: &str) -> Result<Self, MessageError> {
        let fits = (1..=MAX_PLATFORM).contains(&text.len()) && !text.chars().any(display::deceives);
        if fits { Ok(Self(text.to_owned())) } else { Err(MessageError::Malformed("platform")) }
    }
}

impl TryFrom<String> for Platform {
    type Error = MessageError;
    fn try_from(text: String) -> Result<Self, MessageError> {
        text.parse()
    }
}

impl From<Platform> for String {
    fn from(platform: Platform) -> Self {
        platform.0
    }
}

/// The device begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) code: CodeSelector,
    /// SHA-256 of the key that it will ask a certificate for.
    pub(crate) key: Digest,
    pub(crate) name: DeviceName,
    pub(crate) platform: Platform,
    pub(crate) share: [u8; SHARE],
}

/// Which code the device was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeSelector {
    /// The one PIN that lives.
    Pin,
    /// The secret with this id.
    Secret(CodeId),
}

/// The daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) pairing: PairingId,
    pub(crate) zone: Zone,
    /// What the device will trust, the one that the server shows first.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    pub(crate) share: [u8; SHARE],
}

/// The device proves that it knows the code, and asks for its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) tag: [u8; TAG],
    pub(crate) request: Vec<u8>,
}

/// The daemon proves the same, and has asked a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) tag: [u8; TAG],
    /// Until when it waits.
    pub(crate) until: Timestamp,
}

/// The person said yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IssuedMessage {
    pub(crate) device_id: DeviceId,
    pub(crate) principal: Principal,
    pub(crate) role: WorkspaceRole,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) authorities: Vec<CertificateDer<'static>>,
}

/// The daemon ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: String,
    /// When another attempt makes sense; zero where waiting helps nothing.
    pub(crate) retry_after: Duration,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Hello(Hello),
    Offer(Offer),
    Proof(Proof),
    Wait(Wait),
    Issued(Box<IssuedMessage>),
    Refused(Refused),
    /// The device has its certificate on disk.
    Stored,
}

/// The part of a hello or an offer that is not its share: what the PAKE authenticates besides.
pub(crate) fn associated(message: &[u8]) -> &[u8] {
    &message[..message.len().saturating_sub(SHARE)]
}

impl Message {
    /// The message's bytes, without a frame.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Self::Hello(Hello { code, key, name, platform, share }) => {
                let (kind, id) = match code {
                    CodeSelector::Pin => (CodeKind::Pin, [0; CodeId::BYTES]),
                    CodeSelector::Secret(id) => (CodeKind::Secret, id.0),
                };
                w.fixed(&[HELLO, VERSION, kind as u8]).fixed(&id).fixed(key.as_bytes());
                w.field(name.as_str().as_bytes()).field(platform.as_str().as_bytes()).fixed(share);
            }
            Self::Offer(Offer { pairing, zone, authorities, share }) => {
                w.fixed(&[OFFER]).fixed(&pairing.0).field(zone.as_str().as_bytes());
                write_authorities(&mut w, authorities);
                w.fixed(share);
            }
            Self::Proof(Proof { tag, request }) => {
                w.fixed(&[PROOF]).fixed(tag).field(request);
            }
            Self::Wait(Wait { tag, until }) => {
                w.fixed(&[WAIT]).fixed(tag).fixed(&until.unix_ms().to_be_bytes());
            }
            Self::Issued(issued) => {
                let IssuedMessage { device_id, principal, role, certificate, authorities } = issued.as_ref();
                w.fixed(&[ISSUED]).field(device_id.as_str().as_bytes()).field(principal.to_string().as_bytes());
                w.field(role.as_str().as_bytes()).field(certificate);
                write_authorities(&mut w, authorities);
            }
            Self::Refused(Refused { code, retry_after }) => {
                // Whoever comes after so many seconds is not too early.
                let seconds = u32::try_from(retry_after.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
                w.fixed(&[REFUSED]).field(code.as_bytes()).fixed(&seconds.to_be_bytes());
            }
            Self::Stored => {
                w.fixed(&[STORED]);
            }
        }
        w.0
    }

    /// The message in its frame.
    pub(crate) fn framed(&self) -> Vec<u8> {
        frame(&self.bytes())
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is none, or not in the one form that it has.
    pub(crate) fn read(message: &[u8]) -> Result<Self, MessageError> {
        let mut r = Reader::new(message);
        let [kind] = r.fixed("kind")?;
        let read = match kind {
            HELLO => Self::Hello(read_hello(&mut r)?),
            OFFER => Self::Offer(Offer {
                pairing: PairingId(r.fixed("pairing id")?),
                zone: parsed(r.text(64, "zone")?, "zone")?,
                authorities: read_authorities(&mut r)?,
                share: r.fixed("share")?,
            }),
            PROOF => {
                Self::Proof(Proof { tag: r.fixed("tag")?, request: r.field(MAX_SIGNING_REQUEST, "request")?.to_vec() })
            }
            WAIT => {
                let (tag, until) = (r.fixed("tag")?, u64::from_be_bytes(r.fixed("time")?));
                Self::Wait(Wait { tag, until: Timestamp::from_unix_ms(until) })
            }
            ISSUED => Self::Issued(Box::new(IssuedMessage {
                device_id: parsed(r.text(128, "device id")?, "device id")?,
                principal: parsed(r.text(128, "principal")?, "principal")?,
                role: parsed(r.text(16, "role")?, "role")?,
                certificate: read_certificate(&mut r)?,
                authorities: read_authorities(&mut r)?,
            })),
            REFUSED => Self::Refused(read_refused(&mut r)?),
            STORED => Self::Stored,
            _ => return Err(MessageError::Malformed("kind")),
        };
        r.end()?;
        Ok(read)
    }
}

fn parsed<T: FromStr>(text: &str, what: &'static str) -> Result<T, MessageError> {
    text.parse().map_err(|_| MessageError::Malformed(what))
}

fn read_hello(r: &mut Reader<'_>) -> Result<Hello, MessageError> {
    let [version] = r.fixed("version")?;
    if version != VERSION {
        return Err(MessageError::Version(version));
    }
    let [kind] = r.fixed("kind of code")?;
    let id = CodeId(r.fixed("code id")?);
    let code = match kind {
        kind if kind == CodeKind::Pin as u8 && id.0 == [0; CodeId::BYTES] => CodeSelector::Pin,
        kind if kind == CodeKind::Secret as u8 => CodeSelector::Secret(id),
        _ => return Err(MessageError::Malformed("kind of code")),
    };
    Ok(Hello {
        code,
        key: Digest::from_bytes(r.fixed("key")?),
        name: parsed(r.text(4 * DeviceName::MAX, "name")?, "name")?,
        platform: parsed(r.text(MAX_PLATFORM, "platform")?, "platform")?,
        share: r.fixed("share")?,
    })
}

fn read_refused(r: &mut Reader<'_>) -> Result<Refused, MessageError> {
    let code = r.text(MAX_CODE, "code")?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if code.is_empty() || !code.bytes().all(plain) {
        return Err(MessageError::Malformed("code"));
    }
    let seconds = u32::from_be_bytes(r.fixed("time to wait")?);
    Ok(Refused { code: code.to_owned(), retry_after: Duration::from_secs(seconds.into()) })
}

fn write_authorities(w: &mut Writer, authorities: &[CertificateDer<'_>]) {
    let count = authorities.len().min(MAX_AUTHORITIES);
    w.fixed(&[count as u8]);
    for authority in authorities.iter().take(count) {
        w.field(authority);
    }
}

fn read_authorities(r: &mut Reader<'_>) -> Result<Vec<CertificateDer<'static>>, MessageError> {
    let [count] = r.fixed("authorities")?;
    if !(1..=MAX_AUTHORITIES).contains(&usize::from(count)) {
        return Err(MessageError::Malformed("authorities"));
    }
    (0..count).map(|_| read_certificate(r)).collect()
}

fn read_certificate(r: &mut Reader<'_>) -> Result<CertificateDer<'static>, MessageError> {
    let der = r.field(MAX_CERTIFICATE, "certificate")?;
    if der.is_empty() {
        return Err(MessageError::Malformed("certificate"));
    }
    Ok(CertificateDer::from(der.to_vec()))
}
