//! Pairing: how a device that nobody knows becomes one that is let in.
//!
//! The daemon opens a listener only while a code lives. A device connects, both sides prove to each other that they
//! know the code, both screens show the same four words, a person says yes, and the device gets a certificate for a key
//! that never leaves it. `docs/formats/pairing.md` is the protocol in words; the vectors beside this crate hold both to
//! each other.
//!
//! # Why CPace, and why this crate
//!
//! A code of eight digits must not be guessed offline, so the sides run a PAKE: somebody in between learns nothing and
//! has one guess an attempt. Two crates were looked at.
//!
//! - `spake2` of RustCrypto has the widest use: magic-wormhole's Rust program runs it. Its stable version, 0.4 of 2023,
//!   belongs to the generation before ours (curve25519-dalek 4, sha2 0.10) and would lock a second one of each; its
//!   next version has been a pre-release since. It predates RFC 9382 and is not compatible with it, so the RFC's
//!   vectors do not apply; its documentation says that it is probably not constant-time; it has no place for associated
//!   data and does not wipe what it knows of the password.
//! - `pakery-cpace` implements CPace, which the CFRG chose as its balanced PAKE. It forbids unsafe code, wipes its
//!   secrets, takes a channel identifier and associated data where this protocol needs them, belongs to our generation
//!   (curve25519-dalek 5, which the signatures here use already, and sha2 0.11), and passes the draft's vectors. It is
//!   600 lines over that curve, by one author, and not audited.
//!
//! The second was chosen. What speaks against it is answered thus: its version is pinned, its lines were read, the
//! draft's vectors are tested here in our own copy (`vectors/cpace_ristretto255.json`), and only its ristretto255 suite
//! is used, since its P-256 suite is not the draft's. Nothing but [`pake`](self) knows which PAKE it is: another takes
//! one file and a new version of the protocol.
//!
//! # What a pairing is bound to
//!
//! The channel identifier holds 32 bytes of the TLS exporter and the fingerprints of both keys, the device's first.
//! Somebody in between, with a valid certificate of their own, has two connections with two exporters; relaying either
//! side's messages proves nothing to the other. Key confirmation is explicit and the device's comes first: the daemon
//! says nothing that depends on the code until the device has committed to its guess, so every guess is counted.

mod blocking;
mod channel;
mod code;
mod daemon;
mod desk;
mod device;
mod error;
mod lifetime;
mod message;
mod pake;
#[cfg(test)]
mod vectors;
mod verdict;
mod wire;
mod words;

pub use blocking::{PairingProgress, pair, serve};
pub use channel::{ChannelBinding, DeviceChannel, EXPORTER_LABEL};
pub use code::{Address, CodeError, CodeId, PairingCode, Pin, QrCode};
pub use daemon::{AwaitingHello, AwaitingProof, AwaitingStored, Pending};
pub use desk::{
    CODE_LIFE, CodeRequest, DEFAULT_CODE_LIFE, GUESSES, HALF_OPEN_LIFE, MAX_BACK_OFF, MAX_HALF_OPEN, MAX_PENDING,
    MAX_SECRETS, NewCode, PENDING_LIFE, PairingDesk, PendingView,
};
pub use device::{AwaitingApproval, AwaitingDaemon, AwaitingOffer, DeviceIntroduction, Paired, begin};
pub use error::PairingError;
pub use message::{PairingId, Platform, VERSION};
pub use pake::PakeError;
pub use verdict::{Answer, AnswerArrival};
pub use wire::{FrameReader, MAX_FRAME, MessageError};
pub use words::MatchingWords;

pub(crate) use message::Message;
