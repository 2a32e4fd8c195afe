//! The daemon's side of a pairing, message by message. Each state is a type, and every step takes the one before.
//!
//! ```text
//! AwaitingHello ─hello▶ AwaitingProof ─proof▶ Pending ─answer▶ AwaitingStored ─stored▶ the device
//! ```
//!
//! The states know no transport: a message comes in without its frame, what goes out has one. Every error ends the
//! pairing; what to send before closing is [`PairingError::refusal`].

use super::PairingError;
use super::channel::ChannelBinding;
use super::desk::{ChosenCode, CodeRequest, PENDING_LIFE, PairingDesk, PendingView, Slot};
use super::lifetime::Lifetime;
use super::message::{Hello, IssuedMessage, Message, Offer, PairingId, Proof, SHARE, Wait, associated};
use super::pake::{self, Keys};
use super::verdict::{Answer, AnswerArrival, AnswerSlot, Verdict};
use super::wire::MessageError;
use crate::device_key::PublicKey;
use crate::entropy;
use crate::identity::NewDevice;
use crate::registry::DeviceKind;
use crate::signing_request;
use palyra_protocol::DeviceId;
use std::sync::Arc;
use std::time::Duration;

/// A device is connected and has said nothing.
#[derive(Debug)]
pub struct AwaitingHello {
    slot: Slot,
    channel: ChannelBinding,
    source: String,
}

impl AwaitingHello {
    pub(super) fn new(slot: Slot, channel: ChannelBinding, source: String) -> Self {
        Self { slot, channel, source }
    }

    /// The device's hello: what to send, and what comes next.
    ///
    /// # Errors
    /// The message is none, no such code lives, or the device was too slow.
    pub fn receive(self, message: &[u8]) -> Result<(AwaitingProof, Vec<u8>), PairingError> {
        let Self { slot, channel, source } = self;
        counted(&slot, &source, || {
            slot.check()?;
            let Message::Hello(hello) = Message::read(message)? else { return Err(MessageError::Unexpected.into()) };
            let desk = &slot.desk;
            let code = desk.choose(hello.code)?;
            let identity = desk.identity();
            let pairing = PairingId(entropy::random()?);
            let mut offer = Offer {
                pairing,
                zone: identity.zone().clone(),
                authorities: identity.trust_bundle(),
                share: [0; SHARE],
            };
            let context = pake::Context { code: &code.verifier, channel: &channel, device_key: hello.key };
            let unshared = Message::Offer(offer.clone()).bytes();
            let (share, keys) = pake::answer(&context, message, associated(&unshared))?;
            offer.share = share;
            Ok((Proving { hello, code, pairing, keys }, Message::Offer(offer).framed()))
        })
        .map(|(proving, reply)| (AwaitingProof { slot, source, proving }, reply))
    }
}

/// Counts a refusal under the device's source.
fn counted<T>(slot: &Slot, source: &str, step: impl FnOnce() -> Result<T, PairingError>) -> Result<T, PairingError> {
    step().inspect_err(|error| slot.desk.identity().count_refusal(source, error.counted()))
}

#[derive(Debug)]
struct Proving {
    hello: Hello,
    code: ChosenCode,
    pairing: PairingId,
    keys: Keys,
}

/// The device has the daemon's share and has to prove that it knows the code.
#[derive(Debug)]
pub struct AwaitingProof {
    slot: Slot,
    source: String,
    proving: Proving,
}

impl AwaitingProof {
    /// The device's proof and request: what to send, and the pairing that waits for a person.
    ///
    /// # Errors
    /// The device does not know the code, or its request is refused.
    pub fn receive(self, message: &[u8]) -> Result<(Pending, Vec<u8>), PairingError> {
        let Self { slot, source, proving } = self;
        let pending = counted(&slot, &source, || {
            slot.check()?;
            let Message::Proof(proof) = Message::read(message)? else { return Err(MessageError::Unexpected.into()) };
            // INVARIANT (the_device_proves_first): before it has, nothing that depends on the code has left the daemon
            // but its share, which tells nothing. So a guess costs an attempt that is counted here.
            if !proving.keys.is_device(&proof.tag) {
                return Err(slot.desk.wrong_guess(proving.code.id));
            }
            let request = slot.desk.use_up(proving.code.id)?;
            Pending::new(&slot.desk, &source, proving, request, &proof)
        })?;
        let reply = Message::Wait(Wait { tag: pending.daemon_tag, until: pending.view.expires_at }).framed();
        Ok((pending, reply))
    }
}

/// A device proved the code. A person has to say yes.
#[derive(Debug)]
pub struct Pending {
    desk: Arc<PairingDesk>,
    view: PendingView,
    key: PublicKey,
    daemon_tag: [u8; super::message::TAG],
    lifetime: Lifetime,
    answer: AnswerSlot,
    over: bool,
}

impl Pending {
    fn new(
        desk: &Arc<PairingDesk>,
        source: &str,
        proving: Proving,
        request: CodeRequest,
        proof: &Proof,
    ) -> Result<Self, PairingError> {
        let Proving { hello, code, pairing, keys } = proving;
        let key = signing_request::read(&proof.request, hello.name.as_str())?;
        if key.digest() != hello.key {
            return Err(PairingError::KeyMismatch);
        }
        // Asked again when it is let in; asked here so that no person is asked in vain.
        desk.identity().check_free(&key, request.device.is_none().then_some(&hello.name))?;
        let lifetime = Lifetime::new(desk.now(), PENDING_LIFE);
        let view = PendingView {
            pairing,
            code: code.id,
            by: request.by,
            name: hello.name,
            platform: hello.platform,
            key: hello.key,
            words: keys.words(),
            principal: request.principal,
            role: request.role,
            device: request.device,
            source: source.to_owned(),
            expires_at: lifetime.until(),
        };
        let answer = desk.wait_for_answer(view.clone())?;
        Ok(Self { desk: Arc::clone(desk), view, key, daemon_tag: keys.daemon_tag(), lifetime, answer, over: false })
    }

    /// The pairing as it is shown.
    #[must_use]
    pub fn view(&self) -> &PendingView {
        &self.view
    }

    /// How long it still waits.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.lifetime.left(self.desk.now())
    }

    /// Comes when a person has answered: for a task, which waits for the end of the connection and of the time as well.
    #[must_use]
    pub fn answered(&self) -> AnswerArrival {
        self.answer.arrival()
    }

    /// Waits in this thread for an answer, as long as the pairing waits.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait(&self) -> Result<Answer, PairingError> {
        self.answer.wait(self.time_left()).ok_or(PairingError::Unanswered)
    }

    /// A person has answered: what to send. After a yes the device is in the registry, durably, before this returns.
    /// Blocks.
    ///
    /// # Errors
    /// The answer is no, too late or another pairing's; or the registry refuses.
    pub fn conclude(mut self, answer: Answer) -> Result<(AwaitingStored, Vec<u8>), PairingError> {
        self.over = true;
        let view = self.view.clone();
        let issued = self.let_in(answer).inspect_err(|error| self.desk.ended(view.pairing, error.counted(), None))?;
        let device = issued.device_id.clone();
        let message = Message::Issued(Box::new(IssuedMessage {
            device_id: issued.device_id,
            principal: issued.principal,
            role: issued.role,
            certificate: issued.certificate,
            authorities: issued.authorities,
        }));
        let stored = AwaitingStored { desk: Arc::clone(&self.desk), pairing: view.pairing, device, stored: false };
        Ok((stored, message.framed()))
    }

    fn let_in(&self, answer: Answer) -> Result<crate::identity::Issued, PairingError> {
        let Answer { pairing, by, yes } = answer;
        if pairing != self.view.pairing {
            return Err(PairingError::NotPending);
        }
        if yes == Verdict::Denied {
            return Err(PairingError::Denied);
        }
        if self.lifetime.is_over(self.desk.now()) {
            return Err(PairingError::Unanswered);
        }
        let view = &self.view;
        let identity = self.desk.identity();
        if let Some(device) = &view.device {
            return Ok(identity.pair_again(device, &self.key, &by)?);
        }
        let new = NewDevice {
            device_id: DeviceId::mint(),
            name: view.name.clone(),
            kind: DeviceKind::Program,
            principal: view.principal.clone(),
            role: view.role,
            parent: None,
            invited_by: Some(view.by.clone()),
        };
        Ok(identity.let_in(new, &self.key, &by)?)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.over {
            let how = if self.time_left().is_zero() { "expired" } else { "gone" };
            self.desk.ended(self.view.pairing, how, None);
        }
    }
}

/// The certificate is on its way. The device is paired; what is missing is its word that it has it.
#[derive(Debug)]
pub struct AwaitingStored {
    desk: Arc<PairingDesk>,
    pairing: PairingId,
    device: DeviceId,
    stored: bool,
}

impl AwaitingStored {
    /// The device that was let in.
    #[must_use]
    pub fn device(&self) -> &DeviceId {
        &self.device
    }

    /// The device's word: it is paired, and knows it.
    ///
    /// # Errors
    /// It is another message. The device is in the registry all the same, until its certificate is over.
    pub fn receive(mut self, message: &[u8]) -> Result<DeviceId, PairingError> {
        match Message::read(message)? {
            Message::Stored => {
                self.stored = true;
                Ok(self.device.clone())
            }
            _ => Err(MessageError::Unexpected.into()),
        }
    }
}

impl Drop for AwaitingStored {
    fn drop(&mut self) {
        let how = if self.stored { "paired" } else { "issued" };
        self.desk.ended(self.pairing, how, Some(self.device.clone()));
    }
}
