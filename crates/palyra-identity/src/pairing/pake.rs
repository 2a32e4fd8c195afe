//! CPace with key confirmation: how two sides that know one code agree on a key, and how each proves it to the other.
//!
//! Suite CPACE-RISTR255-SHA512 of draft-irtf-cfrg-cpace-21 in its initiator-responder form; the device begins.
//! Confirmation is that of the draft's section 10.4. See the parent module for why this PAKE and this crate.

use super::channel::ChannelBinding;
use super::code::CodeVerifier;
use super::message::{SHARE, TAG, associated};
use super::words::{MatchingWords, SHOWN};
use crate::entropy::{NoEntropy, SystemRandom};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use pakery_cpace::{CpaceInitiator, CpaceMode, CpaceOutput, CpaceResponder, InitiatorState};
use pakery_crypto::CpaceRistretto255;
use palyra_protocol::Digest;
use rand_core::CryptoRng;
use sha2::{Digest as _, Sha512};
use std::fmt;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

const MODE: CpaceMode = CpaceMode::InitiatorResponder;
/// What the channel identifier begins with.
const CONTEXT: &[u8] = b"palyra pairing v1";
/// What the words are derived for.
const WORDS: &[u8] = b"palyra pairing v1 words";

/// Why a PAKE cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PakeError {
    /// The other side's share is no point, or the neutral one.
    #[error("the other side's share is not acceptable")]
    Share,
    /// The machine gives no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// What both sides know before the first message.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) code: &'a CodeVerifier,
    pub(crate) channel: &'a ChannelBinding,
    /// SHA-256 of the device's public key.
    pub(crate) device_key: Digest,
}

impl Context<'_> {
    /// INVARIANT (bound_to_the_channel): the TLS connection and both keys are part of the generator. Who sits in
    /// between has two connections, and so two generators.
    pub(super) fn channel_identifier(&self) -> Vec<u8> {
        let keys = [self.device_key, self.channel.server_key()];
        lv_cat(&[CONTEXT, self.channel.exporter(), keys[0].as_bytes(), keys[1].as_bytes()])
    }

    fn session(&self) -> &[u8] {
        self.channel.session()
    }
}

/// The device's half, between its share and the daemon's.
pub(crate) struct Begun {
    state: InitiatorState<CpaceRistretto255>,
    session: Vec<u8>,
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begun([redacted])")
    }
}

/// The device begins: `associated` is what its message says besides the share.
///
/// # Errors
/// The machine gives no randomness.
pub(crate) fn begin(context: &Context<'_>, associated: &[u8]) -> Result<([u8; SHARE], Begun), PakeError> {
    let mut random = SystemRandom::default();
    let begun = begin_with(context, associated, &mut random)?;
    random.finish()?;
    Ok(begun)
}

pub(crate) fn begin_with(
    context: &Context<'_>,
    associated: &[u8],
    random: &mut impl CryptoRng,
) -> Result<([u8; SHARE], Begun), PakeError> {
    let (ci, session) = (context.channel_identifier(), context.session());
    let started = CpaceInitiator::<CpaceRistretto255>::start(&context.code.0[..], &ci, session, associated, random);
    let (share, state) = started.map_err(|_| PakeError::Share)?;
    let share = share.try_into().map_err(|_| PakeError::Share)?;
    Ok((share, Begun { state, session: session.to_vec() }))
}

impl Begun {
    /// The daemon's share came. `hello` and `offer` are the two messages, each with its share at the end.
    ///
    /// # Errors
    /// The share is not acceptable.
    pub(crate) fn finish(self, hello: &[u8], offer: &[u8]) -> Result<Keys, PakeError> {
        let (associated, share) = offer.split_at(associated(offer).len());
        let output = self.state.finish(share, associated, MODE).map_err(|_| PakeError::Share)?;
        Ok(Keys::new(&output, &self.session, hello, offer))
    }
}

/// The daemon answers the device's share. `offer` is its own message but for the share, which comes back.
///
/// # Errors
/// The device's share is not acceptable, or the machine gives no randomness.
pub(crate) fn answer(context: &Context<'_>, hello: &[u8], offer: &[u8]) -> Result<([u8; SHARE], Keys), PakeError> {
    let mut random = SystemRandom::default();
    let answered = answer_with(context, hello, offer, &mut random)?;
    random.finish()?;
    Ok(answered)
}

pub(crate) fn answer_with(
    context: &Context<'_>,
    hello: &[u8],
    offer: &[u8],
    random: &mut impl CryptoRng,
) -> Result<([u8; SHARE], Keys), PakeError> {
    let (ci, session) = (context.channel_identifier(), context.session());
    let (associated, theirs) = hello.split_at(associated(hello).len());
    let answered = CpaceResponder::<CpaceRistretto255>::respond(
        theirs,
        &context.code.0[..],
        &ci,
        session,
        associated,
        offer,
        MODE,
        random,
    );
    let (share, output) = answered.map_err(|_| PakeError::Share)?;
    let share: [u8; SHARE] = share.try_into().map_err(|_| PakeError::Share)?;
    let offer = [offer, &share[..]].concat();
    Ok((share, Keys::new(&output, session, hello, &offer)))
}

/// What came out of the PAKE: two proofs and the words. The key itself is used for nothing else and forgotten.
pub(crate) struct Keys {
    device: Zeroizing<[u8; TAG]>,
    daemon: Zeroizing<[u8; TAG]>,
    words: MatchingWords,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys([redacted])")
    }
}

impl Keys {
    fn new(output: &CpaceOutput, session: &[u8], hello: &[u8], offer: &[u8]) -> Self {
        let isk = output.isk.as_bytes();
        let mac_key = Sha512::new().chain_update(b"CPaceMac").chain_update(session).chain_update(isk).finalize();
        let mac_key = Zeroizing::new(<[u8; 64]>::from(mac_key));
        let tag = |message: &[u8]| Zeroizing::new(tag(&mac_key[..], message));
        let mut words = [0; SHOWN];
        // Four bytes are always less than HKDF can give.
        let _fits = Hkdf::<Sha512>::new(Some(session), isk).expand(WORDS, &mut words);
        Self { device: tag(hello), daemon: tag(offer), words: MatchingWords::of(words) }
    }

    /// What the device sends to prove that it knows the code.
    pub(crate) fn device_tag(&self) -> [u8; TAG] {
        *self.device
    }

    /// What the daemon sends.
    pub(crate) fn daemon_tag(&self) -> [u8; TAG] {
        *self.daemon
    }

    /// Whether the device knows the code. Takes the same time whatever is wrong.
    pub(crate) fn is_device(&self, tag: &[u8; TAG]) -> bool {
        self.device.ct_eq(tag).into()
    }

    /// Whether the daemon does.
    pub(crate) fn is_daemon(&self, tag: &[u8; TAG]) -> bool {
        self.daemon.ct_eq(tag).into()
    }

    pub(crate) fn words(&self) -> MatchingWords {
        self.words
    }
}

/// `MAC(mac_key, lv_cat(Y, AD))` over a message that ends in its share.
fn tag(mac_key: &[u8], message: &[u8]) -> [u8; TAG] {
    let (associated, share) = message.split_at(associated(message).len());
    // HMAC takes keys of any length.
    let Ok(mac) = Hmac::<Sha512>::new_from_slice(mac_key) else { return [0; TAG] };
    mac.chain_update(lv_cat(&[share, associated])).finalize().into_bytes().into()
}

/// The draft's `lv_cat`: every part with its length in front, as LEB128.
pub(super) fn lv_cat(parts: &[&[u8]]) -> Vec<u8> {
    let mut joined = Vec::new();
    for part in parts {
        let mut length = part.len();
        while length >= 0x80 {
            joined.push(length as u8 & 0x7f | 0x80);
            length >>= 7;
        }
        joined.push(length as u8);
        joined.extend_from_slice(part);
    }
    joined
}
