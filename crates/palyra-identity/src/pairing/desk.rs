//! The daemon's pairing desk: which codes live, who is pairing, who waits for a person.
//!
//! Everything here is in memory and bounded. A restart forgets codes and pairings that wait; a device is paired from
//! the moment its certificate is in the registry, and not before. So a restart in the middle of a pairing leaves a
//! paired device or none.

use super::code::{Address, CodeId, CodeKind, CodeVerifier, PairingCode, Pin, QrCode};
use super::daemon::AwaitingHello;
use super::lifetime::Lifetime;
use super::message::{CodeSelector, PairingId, Platform};
use super::verdict::{Answer, AnswerSlot, Verdict};
use super::words::MatchingWords;
use super::{ChannelBinding, PairingError};
use crate::error::IdentityError;
use crate::identity::{Identity, check_principal};
use crate::journal::IdentityEvent;
use crate::names::DeviceName;
use palyra_protocol::{DeviceId, Digest, Principal, Timestamp, WorkspaceRole};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a code lives unless somebody says otherwise.
pub const DEFAULT_CODE_LIFE: Duration = Duration::from_secs(5 * 60);
/// The shortest and the longest life of a code.
pub const CODE_LIFE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));
/// How many wrong guesses burn a code.
pub const GUESSES: u32 = 3;
/// How many codes of QR codes live at once, beside one PIN.
pub const MAX_SECRETS: usize = 16;
/// How many devices may be pairing at once without having proved a code.
pub const MAX_HALF_OPEN: usize = 64;
/// How long a device has to prove a code.
pub const HALF_OPEN_LIFE: Duration = Duration::from_secs(30);
/// From this age on one that has proved nothing makes room for another.
const MAKES_ROOM_AFTER: Duration = Duration::from_secs(3);
/// How many pairings wait for a person at once.
pub const MAX_PENDING: usize = 16;
/// How long a pairing waits for a person.
pub const PENDING_LIFE: Duration = Duration::from_secs(10 * 60);
/// The longest time for which wrong guesses close the desk.
pub const MAX_BACK_OFF: Duration = Duration::from_secs(300);
/// After so long without a wrong guess all is forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(3600);

/// Who is to be let in by a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRequest {
    /// For whom the device will act.
    pub principal: Principal,
    /// With which role.
    pub role: WorkspaceRole,
    /// Who asks for the code.
    pub by: Principal,
    /// How long the code lives.
    pub life: Duration,
    /// A device that exists and gets a new key and certificate, where its own were lost or are over. It keeps its
    /// principal and role, whatever is asked for here.
    pub device: Option<DeviceId>,
    /// Where the daemon waits, for a QR code; none for a PIN.
    pub address: Option<Address>,
}

/// A code that was made. It is shown once.
#[derive(Debug)]
pub struct NewCode {
    /// Its id.
    pub id: CodeId,
    /// The code itself.
    pub code: PairingCode,
    /// Until when it lives.
    pub expires_at: Timestamp,
    /// The PIN that it took the place of.
    pub replaced: Option<CodeId>,
}

/// A pairing that waits for a person, as every door shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingView {
    /// The pairing.
    pub pairing: PairingId,
    /// The code that it proved.
    pub code: CodeId,
    /// Who made the code.
    pub by: Principal,
    /// What the device calls itself.
    pub name: DeviceName,
    /// What it says that it runs on.
    pub platform: Platform,
    /// SHA-256 of its key.
    pub key: Digest,
    /// The words that the device shows too.
    pub words: MatchingWords,
    /// For whom it would act.
    pub principal: Principal,
    /// With which role.
    pub role: WorkspaceRole,
    /// The device that it would be, where it exists already.
    pub device: Option<DeviceId>,
    /// From where it came.
    pub source: String,
    /// Until when it waits.
    pub expires_at: Timestamp,
}

/// The desk.
#[derive(Debug)]
pub struct PairingDesk {
    identity: Arc<Identity>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    codes: Vec<LiveCode>,
    half_open: BTreeMap<u64, Lifetime>,
    next_slot: u64,
    pending: BTreeMap<PairingId, (PendingView, AnswerSlot)>,
    back_off: BackOff,
}

#[derive(Debug)]
struct LiveCode {
    id: CodeId,
    kind: CodeKind,
    verifier: CodeVerifier,
    lifetime: Lifetime,
    wrong: u32,
    request: CodeRequest,
}

/// A code that a device says it knows, for the length of its attempt.
#[derive(Debug)]
pub(super) struct ChosenCode {
    pub(super) id: CodeId,
    pub(super) verifier: CodeVerifier,
}

/// Wrong guesses of late, whatever codes they were for: each doubles the time for which the desk is closed.
#[derive(Debug, Default)]
struct BackOff {
    failures: u32,
    since: Option<Timestamp>,
}

impl BackOff {
    fn wait(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        Duration::from_secs(1 << doublings).min(MAX_BACK_OFF)
    }

    fn fail(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.since = Some(now);
    }

    /// How long the desk is still closed. A clock that was set back makes the time begin anew, and no longer.
    fn left(&mut self, now: Timestamp) -> Option<Duration> {
        let since = self.since?;
        if since.until(now) >= FORGIVEN_AFTER {
            *self = Self::default();
            return None;
        }
        let since = *self.since.insert(since.min(now));
        let left = now.until(since.plus(self.wait()));
        (!left.is_zero()).then_some(left)
    }
}

impl PairingDesk {
    /// A desk for this daemon.
    #[must_use]
    pub fn new(identity: Arc<Identity>) -> Arc<Self> {
        Arc::new(Self { identity, open: Mutex::default() })
    }

    /// The daemon's identity.
    #[must_use]
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.identity.now()
    }

    /// Makes a code. One PIN lives at a time: a second one takes the place of the first.
    ///
    /// # Errors
    /// The principal is none that devices act for, the life is out of range, the device is not there, or too many codes
    /// live.
    pub fn create_code(&self, mut request: CodeRequest) -> Result<NewCode, IdentityError> {
        check_principal(&request.principal)?;
        let (least, most) = CODE_LIFE;
        if !(least..=most).contains(&request.life) {
            return Err(IdentityError::Duration { what: "the life of a pairing code", least, most });
        }
        if let Some(device) = &request.device {
            let known = self.identity.device(device.as_str())?.device;
            if known.revoked.is_some() {
                return Err(IdentityError::Revoked { device: device.clone() });
            }
            // It keeps what it is, and that is what the person who approves sees.
            (request.principal, request.role) = (known.principal, known.role);
        }
        self.tend();
        let id = CodeId::mint()?;
        let code = match &request.address {
            None => PairingCode::Pin(Pin::generate()?),
            Some(address) => {
                let shown = self.identity.server().current().ok_or(IdentityError::AuthorityNotValid)?;
                PairingCode::Qr(Box::new(QrCode::generate(address.clone(), shown.authority, id)?))
            }
        };
        self.open_code(id, code, request)
    }

    fn open_code(&self, id: CodeId, code: PairingCode, request: CodeRequest) -> Result<NewCode, IdentityError> {
        let lifetime = Lifetime::new(self.now(), request.life);
        let (kind, verifier, expires_at) = (code.kind(), code.verifier(), lifetime.until());
        let event = IdentityEvent::CodeCreated {
            code: id,
            by: request.by.clone(),
            principal: request.principal.clone(),
            role: request.role,
            device: request.device.clone(),
            expires_at,
        };
        let mut open = self.lock();
        let same_kind = |code: &LiveCode| code.kind == kind;
        let replaced = match kind {
            CodeKind::Pin => open.codes.iter().position(same_kind).map(|at| open.codes.remove(at).id),
            CodeKind::Secret if open.codes.iter().filter(|code| same_kind(code)).count() >= MAX_SECRETS => {
                return Err(IdentityError::TooMany { what: "pairing codes", most: MAX_SECRETS });
            }
            CodeKind::Secret => None,
        };
        open.codes.push(LiveCode { id, kind, verifier, lifetime, wrong: 0, request });
        drop(open);
        if let Some(code) = replaced {
            self.code_ended(code, "replaced");
        }
        self.identity.note(event);
        Ok(NewCode { id, code, expires_at, replaced })
    }

    /// Withdraws a code; tells whether it lived.
    pub fn withdraw_code(&self, id: CodeId) -> bool {
        let mut open = self.lock();
        let before = open.codes.len();
        open.codes.retain(|code| code.id != id);
        let lived = open.codes.len() < before;
        drop(open);
        if lived {
            self.code_ended(id, "withdrawn");
        }
        lived
    }

    /// Until when the pairing listener has to be open; nothing when no code lives. The listener opens when a code is
    /// made and closes when this says nothing: to be asked after every attempt, and when that time has come.
    #[must_use]
    pub fn open_until(&self) -> Option<Timestamp> {
        let now = self.now();
        let open = self.lock();
        open.codes.iter().filter(|code| !code.lifetime.is_over(now)).map(|code| code.lifetime.until()).max()
    }

    /// Ends what is over. To be called about once a minute, and when [`PairingDesk::open_until`] has come.
    pub fn tend(&self) {
        let now = self.now();
        let mut open = self.lock();
        open.half_open.retain(|_, lifetime| !lifetime.is_over(now));
        let over: Vec<_> = open.codes.iter().filter(|c| c.lifetime.is_over(now)).map(|c| c.id).collect();
        open.codes.retain(|code| !over.contains(&code.id));
        drop(open);
        over.into_iter().for_each(|code| self.code_ended(code, "expired"));
    }

    /// A device connected to the pairing listener and its handshake is over. `source` says where it comes from, as
    /// exactly as the listener knows.
    ///
    /// # Errors
    /// No code lives, wrong guesses have closed the desk for a while, or too many are pairing. The device is told with
    /// [`PairingError::refusal`].
    pub fn accept(self: &Arc<Self>, channel: ChannelBinding, source: &str) -> Result<AwaitingHello, PairingError> {
        let slot = self.take_slot().inspect_err(|error| self.identity.count_refusal(source, error.counted()))?;
        let slot = Slot { desk: Arc::clone(self), number: slot };
        Ok(AwaitingHello::new(slot, channel, source.to_owned()))
    }

    fn take_slot(&self) -> Result<u64, PairingError> {
        let now = self.now();
        let mut open = self.lock();
        if let Some(wait) = open.back_off.left(now) {
            return Err(PairingError::BackOff { wait });
        }
        if open.codes.iter().all(|code| code.lifetime.is_over(now)) {
            return Err(PairingError::NoCode);
        }
        if open.half_open.len() >= MAX_HALF_OPEN {
            // The oldest have the lowest numbers. A device that means it is done within a second or two.
            let oldest = open.half_open.first_key_value().filter(|(_, life)| life.age(now) >= MAKES_ROOM_AFTER);
            let oldest = oldest.map(|(slot, _)| *slot).ok_or(PairingError::Busy)?;
            open.half_open.remove(&oldest);
        }
        let slot = open.next_slot;
        open.next_slot += 1;
        open.half_open.insert(slot, Lifetime::new(now, HALF_OPEN_LIFE));
        Ok(slot)
    }

    /// Whether an attempt may go on.
    pub(super) fn check_slot(&self, slot: u64) -> Result<(), PairingError> {
        let now = self.now();
        let open = self.lock();
        let alive = open.half_open.get(&slot).is_some_and(|lifetime| !lifetime.is_over(now));
        if alive { Ok(()) } else { Err(PairingError::TooSlow) }
    }

    /// The code that a device says it was given.
    pub(super) fn choose(&self, selector: CodeSelector) -> Result<ChosenCode, PairingError> {
        let now = self.now();
        let open = self.lock();
        let fits = |code: &&LiveCode| match selector {
            CodeSelector::Pin => code.kind == CodeKind::Pin,
            CodeSelector::Secret(id) => code.kind == CodeKind::Secret && code.id == id,
        };
        let code = open.codes.iter().filter(fits).find(|code| !code.lifetime.is_over(now));
        let code = code.ok_or(PairingError::NoCode)?;
        let verifier = CodeVerifier(Zeroizing::new(*code.verifier.0));
        Ok(ChosenCode { id: code.id, verifier })
    }

    /// A device proved that it does not know the code.
    pub(super) fn wrong_guess(&self, id: CodeId) -> PairingError {
        let now = self.now();
        let mut open = self.lock();
        open.back_off.fail(now);
        let Some(code) = open.codes.iter_mut().find(|code| code.id == id) else { return PairingError::CodeBurned };
        code.wrong += 1;
        if code.wrong < GUESSES {
            return PairingError::WrongCode;
        }
        open.codes.retain(|code| code.id != id);
        drop(open);
        self.code_ended(id, "burned");
        PairingError::CodeBurned
    }

    /// A device proved that it knows the code. INVARIANT (a_code_is_used_once): the first to prove it has it, and
    /// nobody after.
    pub(super) fn use_up(&self, id: CodeId) -> Result<CodeRequest, PairingError> {
        let now = self.now();
        let mut open = self.lock();
        let at = open.codes.iter().position(|code| code.id == id && !code.lifetime.is_over(now));
        let code = at.map(|at| open.codes.remove(at)).ok_or(PairingError::NoCode)?;
        open.back_off = BackOff::default();
        drop(open);
        self.code_ended(id, "used");
        Ok(code.request)
    }

    /// Puts a pairing before the people.
    pub(super) fn wait_for_answer(&self, view: PendingView) -> Result<AnswerSlot, PairingError> {
        let mut open = self.lock();
        if open.pending.len() >= MAX_PENDING {
            return Err(PairingError::Busy);
        }
        let slot = AnswerSlot::default();
        let event = IdentityEvent::PairingPending {
            pairing: view.pairing,
            code: view.code,
            name: view.name.to_string(),
            key: view.key,
            source: view.source.clone(),
        };
        open.pending.insert(view.pairing, (view, slot.clone()));
        drop(open);
        self.identity.note(event);
        Ok(slot)
    }

    /// The pairings that wait for a person.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingView> {
        let now = self.now();
        let open = self.lock();
        open.pending.values().map(|(view, _)| view).filter(|view| now < view.expires_at).cloned().collect()
    }

    /// A person says yes. The certificate is made when the device collects it, which it does at once if it is still
    /// there.
    ///
    /// # Errors
    /// No such pairing waits.
    pub fn approve(&self, pairing: PairingId, by: &Principal) -> Result<PendingView, PairingError> {
        self.answer(pairing, by, Verdict::Approved)
    }

    /// A person says no.
    ///
    /// # Errors
    /// No such pairing waits.
    pub fn deny(&self, pairing: PairingId, by: &Principal) -> Result<PendingView, PairingError> {
        self.answer(pairing, by, Verdict::Denied)
    }

    fn answer(&self, pairing: PairingId, by: &Principal, yes: Verdict) -> Result<PendingView, PairingError> {
        let now = self.now();
        let waiting = self.lock().pending.remove(&pairing).filter(|(view, _)| now < view.expires_at);
        let (view, slot) = waiting.ok_or(PairingError::NotPending)?;
        slot.put(Answer { pairing, by: by.clone(), yes });
        Ok(view)
    }

    /// A pairing is over, however it ended.
    pub(super) fn ended(&self, pairing: PairingId, how: &str, device: Option<DeviceId>) {
        drop(self.lock().pending.remove(&pairing));
        self.identity.note(IdentityEvent::PairingEnded { pairing, how: how.to_owned(), device });
    }

    fn code_ended(&self, code: CodeId, how: &str) {
        self.identity.note(IdentityEvent::CodeEnded { code, how: how.to_owned() });
    }

    /// How many attempts are half open, for tests and `doctor`.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.lock().half_open.len()
    }
}

/// A place among those that are pairing; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) desk: Arc<PairingDesk>,
    number: u64,
}

impl Slot {
    pub(super) fn check(&self) -> Result<(), PairingError> {
        self.desk.check_slot(self.number)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.desk.lock().half_open.remove(&self.number);
    }
}
