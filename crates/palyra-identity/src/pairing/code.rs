//! Pairing codes: what a person types or a camera reads.
//!
//! A PIN has eight digits: one chance in a hundred million a guess, and three guesses. A QR code carries 128 random
//! bits, the daemon's address and the fingerprint of its authority. What the daemon keeps of either is a digest, in
//! memory only.

use crate::entropy::{self, NoEntropy};
use data_encoding::BASE32_NOPAD;
use palyra_protocol::{Digest, DigestBuilder};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// How many digits a PIN has.
const PIN_DIGITS: usize = 8;
/// One more than the highest PIN.
const PINS: u32 = 100_000_000;
/// What the text of a QR code begins with.
const QR_BEGIN: &str = "PALYRA:1/";
/// The longest address in a QR code.
const MAX_ADDRESS: usize = 260;
/// The longest text of a QR code that is read.
const MAX_TEXT: usize = 512;

/// A code, as events name it: `code_` and 16 hexadecimal digits. Not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CodeId(pub(crate) [u8; Self::BYTES]);

impl CodeId {
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn mint() -> Result<Self, NoEntropy> {
        let mut bytes: [u8; Self::BYTES] = entropy::random()?;
        // All zeroes stand for the PIN.
        bytes[0] |= 1;
        Ok(Self(bytes))
    }
}

impl fmt::Display for CodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code_{}", hex::encode(self.0))
    }
}

impl fmt::Debug for CodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CodeId({self})")
    }
}

impl FromStr for CodeId {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let mut bytes = [0; Self::BYTES];
        let digits = text.strip_prefix("code_").filter(|digits| !digits.bytes().any(|b| b.is_ascii_uppercase()));
        let read = digits.and_then(|digits| hex::decode_to_slice(digits, &mut bytes).ok());
        read.map(|()| Self(bytes)).ok_or(CodeError::Malformed)
    }
}

impl TryFrom<String> for CodeId {
    type Error = CodeError;
    fn try_from(text: String) -> Result<Self, CodeError> {
        text.parse()
    }
}

impl From<CodeId> for String {
    fn from(id: CodeId) -> Self {
        id.to_string()
    }
}

/// The two kinds of codes, as the wire numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CodeKind {
    Pin = 1,
    Secret = 2,
}

/// A text that is no pairing code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Neither form.
    #[error("a pairing code is 8 digits, or the text of a QR code that begins with `{QR_BEGIN}`")]
    Malformed,
}

impl CodeError {
    /// The stable machine code.
    #[must_use]
    pub fn code(self) -> &'static str {
        "pairing_code_malformed"
    }
}

/// Eight digits, shown in two groups: `1234 5678`.
#[derive(Clone, PartialEq, Eq)]
pub struct Pin(Zeroizing<[u8; PIN_DIGITS]>);

impl Pin {
    pub(crate) fn generate() -> Result<Self, NoEntropy> {
        let text = Zeroizing::new(format!("{:0PIN_DIGITS$}", entropy::below(PINS)?));
        let mut digits = Zeroizing::new([b'0'; PIN_DIGITS]);
        digits.copy_from_slice(&text.as_bytes()[..PIN_DIGITS]);
        Ok(Self(digits))
    }

    /// The PIN for a person to read and type. Every call site is a place to review.
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        let digits = String::from_utf8_lossy(&self.0[..]);
        Zeroizing::new(format!("{} {}", &digits[..4], &digits[4..]))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin([redacted])")
    }
}

impl FromStr for Pin {
    type Err = CodeError;
    /// People type spaces and dashes between digits, so they do not count.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let mut digits = Zeroizing::new([b'0'; PIN_DIGITS]);
        let mut count = 0;
        for byte in text.bytes().filter(|b| !b" -".contains(b)) {
            let place = digits.get_mut(count).filter(|_| byte.is_ascii_digit()).ok_or(CodeError::Malformed)?;
            *place = byte;
            count += 1;
        }
        if count == PIN_DIGITS { Ok(Self(digits)) } else { Err(CodeError::Malformed) }
    }
}

/// What a QR code says: where the daemon is, who it is, and the secret.
///
/// The text is upper case throughout, which QR codes write in little more than half the room:
/// `PALYRA:1/HOST:PORT/FINGERPRINT/ID/SECRET`, the last three in base 32.
#[derive(Clone, PartialEq, Eq)]
pub struct QrCode {
    address: Address,
    authority: Digest,
    id: CodeId,
    secret: Zeroizing<[u8; Self::SECRET]>,
}

impl QrCode {
    const SECRET: usize = 16;

    pub(crate) fn generate(address: Address, authority: Digest, id: CodeId) -> Result<Self, NoEntropy> {
        Ok(Self { address, authority, id, secret: Zeroizing::new(entropy::random()?) })
    }

    /// Where the daemon waits.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// SHA-256 of the certificate of the authority that the daemon's server shows.
    #[must_use]
    pub fn authority(&self) -> Digest {
        self.authority
    }

    /// The whole text, secret included. Every call site is a place to review.
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        let Self { address, authority, id, secret } = self;
        let address = address.as_str().to_ascii_uppercase();
        let [authority, id, secret] = [&authority.as_bytes()[..], &id.0, &secret[..]].map(base32);
        Zeroizing::new(format!("{QR_BEGIN}{address}/{authority}/{id}/{secret}"))
    }

    /// The dark modules of the picture, for a screen that draws by itself. They are as secret as the code.
    ///
    /// # Errors
    /// The text does not fit into a QR code, which it always does.
    pub fn modules(&self) -> Result<Modules, CodeError> {
        let code = qrcode::QrCode::with_error_correction_level(self.reveal().as_bytes(), qrcode::EcLevel::M);
        let code = code.map_err(|_| CodeError::Malformed)?;
        let width = code.width();
        let colors = code.to_colors();
        let dark = colors.iter().enumerate().filter(|(_, color)| **color == qrcode::Color::Dark);
        let dark = dark.map(|(at, _)| (at % width + QUIET_ZONE, at / width + QUIET_ZONE)).collect();
        Ok(Modules { side: width + 2 * QUIET_ZONE, dark })
    }

    /// The text as a picture for a terminal: two modules a character, and a light margin as cameras want it.
    ///
    /// # Errors
    /// The text does not fit into a QR code, which it always does.
    pub fn picture(&self) -> Result<Zeroizing<String>, CodeError> {
        use qrcode::render::unicode::Dense1x2;
        let text = self.reveal();
        let code = qrcode::QrCode::with_error_correction_level(text.as_bytes(), qrcode::EcLevel::M);
        let code = code.map_err(|_| CodeError::Malformed)?;
        // Terminals are mostly dark, so what is printed is the light part.
        let picture = code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
        Ok(Zeroizing::new(picture))
    }
}

/// A QR code as modules, with the empty border that scanners need.
pub struct Modules {
    /// How many modules a side has.
    pub side: usize,
    /// The dark ones, by column and row.
    pub dark: Vec<(usize, usize)>,
}

/// How wide the border is.
const QUIET_ZONE: usize = 4;

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Modules({}, [redacted])", self.side)
    }
}

impl fmt::Debug for QrCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QrCode({}, {}, [redacted])", self.address, self.id)
    }
}

impl FromStr for QrCode {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let read = |text: &str| {
            let text = text.strip_prefix(QR_BEGIN).filter(|text| text.len() <= MAX_TEXT)?;
            let mut parts = text.split('/');
            let address = parts.next()?.to_ascii_lowercase().parse().ok()?;
            let authority = Digest::from_bytes(unbase32(parts.next()?)?);
            let id = CodeId(unbase32(parts.next()?).filter(|id: &[u8; CodeId::BYTES]| id[0] & 1 == 1)?);
            let secret = Zeroizing::new(unbase32(parts.next()?)?);
            parts.next().is_none().then_some(Self { address, authority, id, secret })
        };
        // One spelling only: what is read is what would be shown.
        read(text).filter(|code| *code.reveal() == text).ok_or(CodeError::Malformed)
    }
}

/// Where a daemon waits for pairings: a host and a port, `192.168.1.5:7444` or `[fd00::1]:7444`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Address {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let (host, port) = text.rsplit_once(':').ok_or(CodeError::Malformed)?;
        let number: u16 = port.parse().map_err(|_| CodeError::Malformed)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_v6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
        let fits = match bare {
            Some(bare) => is_v6(bare),
            None => host.parse::<crate::names::Host>().is_ok() && !is_v6(host),
        };
        let spelled = number != 0 && number.to_string() == port && text.len() <= MAX_ADDRESS;
        if fits && spelled && !text.bytes().any(|b| b.is_ascii_uppercase()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(CodeError::Malformed)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A code of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingCode {
    /// Eight digits.
    Pin(Pin),
    /// The text of a QR code.
    Qr(Box<QrCode>),
}

impl PairingCode {
    pub(crate) fn kind(&self) -> CodeKind {
        match self {
            Self::Pin(_) => CodeKind::Pin,
            Self::Qr(_) => CodeKind::Secret,
        }
    }

    /// The id that a QR code carries.
    pub(crate) fn id(&self) -> Option<CodeId> {
        match self {
            Self::Pin(_) => None,
            Self::Qr(code) => Some(code.id),
        }
    }

    /// The fingerprint that the daemon's authority must have, where the code says so.
    #[must_use]
    pub fn authority(&self) -> Option<Digest> {
        match self {
            Self::Pin(_) => None,
            Self::Qr(code) => Some(code.authority),
        }
    }

    /// What both sides put into the PAKE.
    pub(crate) fn verifier(&self) -> CodeVerifier {
        let secret = match self {
            Self::Pin(pin) => &pin.0[..],
            Self::Qr(code) => &code.secret[..],
        };
        let digest = DigestBuilder::new("palyra.pairing.code.v1").number(self.kind() as u64).field(secret).finish();
        CodeVerifier(Zeroizing::new(*digest.as_bytes()))
    }
}

impl FromStr for PairingCode {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Self, CodeError> {
        if text.starts_with(QR_BEGIN) {
            return text.parse().map(|code| Self::Qr(Box::new(code)));
        }
        text.parse().map(Self::Pin)
    }
}

/// What is kept of a code. It finds out whether somebody knows the code, and is not the code.
pub(crate) struct CodeVerifier(pub(crate) Zeroizing<[u8; 32]>);

impl fmt::Debug for CodeVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CodeVerifier([redacted])")
    }
}

fn base32(bytes: &[u8]) -> String {
    BASE32_NOPAD.encode(bytes)
}

fn unbase32<const N: usize>(text: &str) -> Option<[u8; N]> {
    // The length is looked at first, so that nothing large is decoded.
    (text.len() == BASE32_NOPAD.encode_len(N)).then(|| BASE32_NOPAD.decode(text.as_bytes()).ok())??.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_as_people_type_it() {
        let pin: Pin = "12345678".parse().unwrap();
        assert_eq!(*pin.reveal(), "1234 5678");
        for text in ["1234 5678", "1234-5678", " 12 34 56 78 "] {
            assert!(text.parse::<Pin>() == Ok(pin.clone()), "{text}");
        }
        for bad in ["", "1234567", "123456789", "1234567a", "１２３４５６７８", "1234_5678"] {
            assert!(bad.parse::<Pin>().is_err(), "{bad}");
        }
        let shown = format!("{:?}", PairingCode::Pin(pin));
        assert!(!shown.contains('1'), "{shown}");
        assert_eq!(Pin::generate().unwrap().reveal().len(), 9);
    }

    #[test]
    fn a_qr_code_reads_the_same_again_and_only_so() {
        for address in ["192.168.1.5:7444", "host.lan:7444", "[fd00::1]:443"] {
            let id = CodeId::mint().unwrap();
            let code = QrCode::generate(address.parse().unwrap(), Digest::of(b"ca"), id).unwrap();
            let text = code.reveal();
            assert!(text.parse::<QrCode>() == Ok(code.clone()), "{address}");
            assert!(!format!("{code:?}").contains(text.rsplit('/').next().unwrap()));
            for bad in [
                text.to_lowercase(),
                format!("{} ", text.as_str()),
                format!("{}A", text.as_str()),
                text[..text.len() - 1].to_owned(),
                text.replace("PALYRA:1", "PALYRA:2"),
                format!("{}/X", text.as_str()),
            ] {
                assert!(bad.parse::<PairingCode>().is_err(), "{bad}");
            }
        }
    }

    #[test]
    fn a_qr_code_has_a_picture() {
        let code = QrCode::generate("127.0.0.1:7444".parse().unwrap(), Digest::of(b""), CodeId::mint().unwrap());
        let picture = code.unwrap().picture().unwrap();
        let lines: Vec<_> = picture.lines().collect();
        assert!(lines.len() > 20 && lines.len() < 40, "{} lines", lines.len());
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()));
        assert!(lines[0].chars().all(|c| c == '█'), "a light margin");
    }

    #[test]
    fn addresses_are_hosts_with_ports() {
        for bad in
            ["", "host", "host:0", "host:70000", "host:07", "fd00::1:7", "[::1]", "a b:1", "HOST:1", "[1.2.3.4]:1"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_do_not_share_a_verifier() {
        let pin = PairingCode::Pin("00000000".parse().unwrap()).verifier();
        let other = PairingCode::Pin("00000001".parse().unwrap()).verifier();
        assert!(pin.0 != other.0);
    }
}
