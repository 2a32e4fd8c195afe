//! Console sessions, passkeys and devices as their events tell them, and the signatures of decisions.
//!
//! A decision of the console is signed by a browser's key, and one of a paired device by the device's. Replaying checks
//! the signature, and that the key is the one that the session was opened with, or that the device's certificate holds,
//! by the person who decided, before the session ended or the device was revoked. Where a passkey confirmed a decision,
//! that is checked as well.

use palyra_protocol::{
    ApprovalDecision, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, ConsoleKey, DecisionSignature,
    DecisionStatement, Digest, GivenApproval, GrantMatcher, Passkey, Principal, Signer, Timestamp,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// As much of `console.opened` as is needed.
#[derive(Deserialize)]
pub(crate) struct Opened {
    session: String,
    principal: Principal,
    key: ConsoleKey,
}

/// As much of `console.ended` as is needed.
#[derive(Deserialize)]
pub(crate) struct EndedSession {
    session: String,
}

/// As much of `console.passkey_added` as is needed.
#[derive(Deserialize)]
pub(crate) struct AddedPasskey {
    passkey: Box<Passkey>,
}

/// As much of `console.passkey_removed` as is needed.
#[derive(Deserialize)]
pub(crate) struct RemovedPasskey {
    principal: Principal,
    passkey: String,
}

/// As much of `devices.changed` as is needed.
#[derive(Deserialize)]
pub(crate) struct ChangedDevices {
    change: Value,
}

/// A change that gives a device a certificate, or takes a device away; others have none of this.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DeviceChange {
    change: String,
    device: Option<String>,
    principal: Option<Principal>,
    key: Option<Digest>,
}

/// Every session, passkey and device of the journal.
#[derive(Debug, Default)]
pub(crate) struct Consoles {
    sessions: HashMap<String, Session>,
    /// By principal and id.
    passkeys: HashMap<(Principal, String), (Passkey, Option<Timestamp>)>,
    devices: HashMap<String, Device>,
}

/// The keys of a device's certificates, for whom it acts, and when it was taken away.
#[derive(Debug, Default)]
struct Device {
    keys: Vec<Digest>,
    principal: Option<Principal>,
    gone: Option<Timestamp>,
}

#[derive(Debug)]
struct Session {
    principal: Principal,
    key: ConsoleKey,
    ended: Option<Timestamp>,
}

impl Consoles {
    pub(crate) fn opened(&mut self, opened: Opened) -> Result<(), &'static str> {
        let Opened { session, principal, key } = opened;
        match self.sessions.insert(session, Session { principal, key, ended: None }) {
            None => Ok(()),
            Some(_) => Err("the session was opened before"),
        }
    }

    pub(crate) fn ended(&mut self, ended: &EndedSession, at: Timestamp) -> Result<(), &'static str> {
        match self.sessions.get_mut(&ended.session) {
            Some(session) if session.ended.is_none() => {
                session.ended = Some(at);
                Ok(())
            }
            _ => Err("there is no such session that is open"),
        }
    }

    pub(crate) fn passkey_added(&mut self, added: AddedPasskey) -> Result<(), &'static str> {
        let passkey = *added.passkey;
        match self.passkeys.insert((passkey.principal.clone(), passkey.id.clone()), (passkey, None)) {
            Some((_, None)) => Err("the passkey was added before"),
            _ => Ok(()),
        }
    }

    pub(crate) fn passkey_removed(&mut self, removed: RemovedPasskey, at: Timestamp) -> Result<(), &'static str> {
        match self.passkeys.get_mut(&(removed.principal, removed.passkey)) {
            Some((_, gone @ None)) => {
                *gone = Some(at);
                Ok(())
            }
            _ => Err("there is no such passkey"),
        }
    }

    pub(crate) fn devices_changed(&mut self, changed: ChangedDevices, at: Timestamp) {
        // What is read as no key gives nobody one: a signature by it is then refused.
        let Ok(DeviceChange { change, device, principal, key }) = serde_json::from_value(changed.change) else {
            return;
        };
        let Some(id) = device else { return };
        let device = self.devices.entry(id).or_default();
        match (change.as_str(), key) {
            (_, Some(key)) => {
                device.keys.push(key);
                (device.principal, device.gone) = (principal, None);
            }
            ("device_revoked" | "device_removed", None) => device.gone = device.gone.or(Some(at)),
            _ => {}
        }
    }

    /// Checks the signature of an answer, where it has one. `known` says whether sessions were followed from the
    /// beginning.
    pub(crate) fn check_answer(
        &self,
        asked: &ApprovalRecord,
        state: ApprovalState,
        end: &ApprovalResolution,
        known: bool,
    ) -> Result<(), &'static str> {
        let Some(signed) = &end.signature else { return Ok(()) };
        let decision = match state {
            ApprovalState::Allowed => ApprovalDecision::Allow,
            ApprovalState::Denied => ApprovalDecision::Deny,
            _ => return Err("nobody signs such an end"),
        };
        let said = DecisionStatement {
            approval_id: &asked.approval_id,
            shown: &asked.call_digest,
            policy_hash: &asked.policy_hash,
            decision,
            scope: end.scope,
            matcher: &end.matcher,
            reason: end.reason.as_deref().unwrap_or(""),
        };
        self.check(&said, signed, (&end.by, end.at), known)
    }

    /// Checks the signature of one yes of several.
    pub(crate) fn check_given(
        &self,
        asked: &ApprovalRecord,
        given: &GivenApproval,
        known: bool,
    ) -> Result<(), &'static str> {
        let Some(signed) = &given.signature else { return Ok(()) };
        let said = DecisionStatement {
            approval_id: &asked.approval_id,
            shown: &asked.call_digest,
            policy_hash: &asked.policy_hash,
            decision: ApprovalDecision::Allow,
            scope: ApprovalScope::Once,
            matcher: &GrantMatcher::ExactCall,
            reason: given.reason.as_deref().unwrap_or(""),
        };
        self.check(&said, signed, (&given.by, given.at), known)
    }

    fn check(
        &self,
        said: &DecisionStatement<'_>,
        signed: &DecisionSignature,
        (by, at): (&Principal, Timestamp),
        known: bool,
    ) -> Result<(), &'static str> {
        said.verify(signed).map_err(|_| "the signature of the answer does not fit it")?;
        if !known {
            return Ok(());
        }
        match &signed.signer {
            Signer::Session(session) => self.by_session(session.as_str(), signed, (by, at))?,
            Signer::Device(device) => self.by_device(device.as_str(), signed, (by, at))?,
        }
        let Some(assertion) = &signed.assertion else { return Ok(()) };
        let found = self.passkeys.get(&(by.clone(), assertion.passkey.clone()));
        let held = found.filter(|(_, gone)| gone.is_none_or(|gone| at <= gone));
        let (passkey, _) = held.ok_or("the answer was confirmed with a passkey that the person did not have")?;
        let digest = said.digest().map_err(|_| "the answer has no canonical form")?;
        assertion.verify(passkey, &digest).map(drop).map_err(|_| "the passkey has confirmed something else")
    }

    fn by_session(
        &self,
        session: &str,
        signed: &DecisionSignature,
        (by, at): (&Principal, Timestamp),
    ) -> Result<(), &'static str> {
        match self.sessions.get(session) {
            // An answer that was on its way when its session ended is recorded after that, and was given before.
            Some(session) if session.ended.is_some_and(|ended| at > ended) => {
                Err("the answer was signed in a session that had ended")
            }
            Some(session) if session.principal == *by && session.key == signed.key => Ok(()),
            Some(_) => Err("the answer was signed by another key than its session has, or for somebody else"),
            None => Err("the answer was signed in a session that was not open"),
        }
    }

    fn by_device(
        &self,
        device: &str,
        signed: &DecisionSignature,
        (by, at): (&Principal, Timestamp),
    ) -> Result<(), &'static str> {
        let Some(device) = self.devices.get(device) else {
            return Err("the answer was signed by a device that was not paired");
        };
        if device.gone.is_some_and(|gone| at > gone) {
            return Err("the answer was signed by a device that was revoked");
        }
        let holds = signed.key.certificate_key().is_some_and(|key| device.keys.contains(&key));
        if !holds || device.principal.as_ref() != Some(by) {
            return Err("the answer was signed by another key than the device has, or for somebody else");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::{ApprovalId, ConsoleId, ConsoleSignature, DaemonKey, DeviceId};
    use serde_json::json;

    struct Signed {
        consoles: Consoles,
        approval: ApprovalId,
        signed: DecisionSignature,
    }

    impl Signed {
        fn new() -> Self {
            let (key, approval, session) = (DaemonKey::generate().unwrap(), ApprovalId::mint(), ConsoleId::mint());
            let mut consoles = Consoles::default();
            let public = ConsoleKey::Ed25519(key.public());
            consoles.opened(opened(&session, public)).unwrap();
            let digest = said(&approval, ApprovalDecision::Allow).digest().unwrap();
            let signature = key.sign(&digest).to_string().parse().unwrap();
            let signed =
                DecisionSignature { signer: Signer::Session(session), key: public, signature, assertion: None };
            Self { consoles, approval, signed }
        }

        fn check(&self, decision: ApprovalDecision, by: &str, at: u64) -> Result<(), &'static str> {
            let by: Principal = by.parse().unwrap();
            let at = Timestamp::from_unix_ms(at);
            self.consoles.check(&said(&self.approval, decision), &self.signed, (&by, at), true)
        }
    }

    fn opened(session: &ConsoleId, key: ConsoleKey) -> Opened {
        Opened { session: session.to_string(), principal: Principal::local_owner(), key }
    }

    fn said(approval_id: &ApprovalId, decision: ApprovalDecision) -> DecisionStatement<'_> {
        const ZERO: Digest = Digest::ZERO;
        DecisionStatement {
            approval_id,
            shown: &ZERO,
            policy_hash: &ZERO,
            decision,
            scope: ApprovalScope::Once,
            matcher: &GrantMatcher::ExactCall,
            reason: "",
        }
    }

    #[test]
    fn a_signature_counts_by_its_sessions_key_for_its_person_and_until_its_end() {
        let mut world = Signed::new();
        assert_eq!(world.check(ApprovalDecision::Allow, "user:local", 5), Ok(()));
        assert!(world.check(ApprovalDecision::Deny, "user:local", 5).is_err(), "another decision");
        assert!(world.check(ApprovalDecision::Allow, "user:mia", 5).is_err(), "somebody else");
        let Signer::Session(session) = world.signed.signer.clone() else { unreachable!("a session signed") };
        let ended = EndedSession { session: session.to_string() };
        world.consoles.ended(&ended, Timestamp::from_unix_ms(10)).unwrap();
        assert_eq!(world.check(ApprovalDecision::Allow, "user:local", 10), Ok(()), "it was on its way");
        assert!(world.check(ApprovalDecision::Allow, "user:local", 11).is_err(), "after its end");
        assert!(world.consoles.ended(&ended, Timestamp::from_unix_ms(12)).is_err(), "it ends once");
        assert!(world.consoles.opened(opened(&session, world.signed.key)).is_err(), "it is opened once");
    }

    #[test]
    fn another_key_is_not_the_sessions() {
        let (mut world, other) = (Signed::new(), Signed::new());
        let signer = world.signed.signer.clone();
        world.signed = DecisionSignature { signer, ..other.signed };
        world.approval = other.approval;
        assert!(world.check(ApprovalDecision::Allow, "user:local", 5).is_err());
    }

    /// A key of P-256, as PKCS#8.
    const DEVICE_KEY: &str = "308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721a1440342000460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb67903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299";

    #[test]
    fn a_devices_signature_counts_by_its_certificates_key_until_it_is_revoked() {
        let mut world = Signed::new();
        let (device, digest) = (DeviceId::mint(), said(&world.approval, ApprovalDecision::Allow).digest().unwrap());
        let (key, signature) = ConsoleSignature::by_device(&hex::decode(DEVICE_KEY).unwrap(), &digest).unwrap();
        world.signed = DecisionSignature { signer: Signer::Device(device.clone()), key, signature, assertion: None };
        let yes = ApprovalDecision::Allow;
        assert!(world.check(yes, "user:local", 5).is_err(), "it was not paired");
        let change = |change: serde_json::Value| -> ChangedDevices {
            serde_json::from_value(json!({ "change": change, "revision": 1 })).unwrap()
        };
        let paired = |key: Digest| {
            change(json!({ "change": "device_paired", "device": device, "principal": "user:local", "key": key }))
        };
        world.consoles.devices_changed(paired(Digest::of(b"another key")), Timestamp::from_unix_ms(1));
        assert!(world.check(yes, "user:local", 5).is_err(), "another key");
        world.consoles.devices_changed(paired(key.certificate_key().unwrap()), Timestamp::from_unix_ms(2));
        assert_eq!(world.check(yes, "user:local", 5), Ok(()));
        assert!(world.check(yes, "user:mia", 5).is_err(), "somebody else");
        let revoked = change(json!({ "change": "device_revoked", "device": device, "reason": "lost", "devices": 1 }));
        world.consoles.devices_changed(revoked, Timestamp::from_unix_ms(10));
        assert_eq!(world.check(yes, "user:local", 10), Ok(()), "it was on its way");
        assert!(world.check(yes, "user:local", 11).is_err(), "after it was revoked");
    }
}
