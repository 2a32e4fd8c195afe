//! What people and programs do with devices: list, rename, rotate, revoke, remove, renew.

use super::{ConnectedDevice, Identity, newest};
use crate::authority::{self, Term};
use crate::device_key::PublicKey;
use crate::error::IdentityError;
use crate::names::DeviceName;
use crate::registry::{
    CertificateRecord, Change, DeviceKind, DeviceRecord, DeviceView, Edit, LEAST_BETWEEN_RENEWALS, MAX_DEVICES,
    Revocation, SUPERSEDED_LIFE, State, is_reason,
};
use crate::signing_request;
use palyra_protocol::{DeviceId, Digest, Principal, PrincipalKind, Timestamp, WorkspaceRole};
use rustls::pki_types::CertificateDer;
use serde_json::json;

/// A certificate that was issued to a device, and what the device trusts from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The device.
    pub device_id: DeviceId,
    /// For whom it acts.
    pub principal: Principal,
    /// The role it is limited to.
    pub role: WorkspaceRole,
    /// Its certificate.
    pub certificate: CertificateDer<'static>,
    /// When the certificate ends.
    pub not_after: Timestamp,
    /// The authority's certificates that the device trusts, in place of those it trusted before.
    pub authorities: Vec<CertificateDer<'static>>,
}

/// A device that is to be let in.
#[derive(Debug, Clone)]
pub(crate) struct NewDevice {
    pub(crate) device_id: DeviceId,
    pub(crate) name: DeviceName,
    pub(crate) kind: DeviceKind,
    pub(crate) principal: Principal,
    pub(crate) role: WorkspaceRole,
    pub(crate) parent: Option<DeviceId>,
    pub(crate) invited_by: Option<Principal>,
}

impl Identity {
    /// Every device, by name; revoked ones last.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceView> {
        let (state, now) = (self.registry().look(), self.now());
        let mut views: Vec<_> = state.devices().map(|record| state.view(record, now)).collect();
        views.sort_by_cached_key(|view| {
            let device = &view.device;
            (device.revoked.is_some(), device.name.folded(), device.device_id.clone())
        });
        views
    }

    /// One device, by its id or its name.
    ///
    /// # Errors
    /// There is none.
    pub fn device(&self, id_or_name: &str) -> Result<DeviceView, IdentityError> {
        let state = self.registry().look();
        let record = known(&state, id_or_name)?;
        Ok(state.view(record, self.now()))
    }

    /// SHA-256 of the key in the certificate that a connection was made with; none when the certificate is gone.
    #[must_use]
    pub fn key_of(&self, device: &ConnectedDevice) -> Option<Digest> {
        let state = self.registry().look();
        let record = known(&state, device.device_id().as_str()).ok()?;
        let shown = device.certificate();
        record.certificates.iter().find(|held| held.sha256 == shown).map(|held| held.key_sha256)
    }

    /// Gives a device another name. Blocks.
    ///
    /// # Errors
    /// There is no such device, it is revoked, or the name is taken.
    pub fn rename(&self, by: &Principal, id_or_name: &str, name: DeviceName) -> Result<DeviceView, IdentityError> {
        self.edit(by, id_or_name, |state, record| {
            let own = record.name.folded() == name.folded();
            if !own && state.has_name(&name.folded()) {
                return Err(IdentityError::NameTaken { name: name.to_string() });
            }
            let (from, to) = (record.name.to_string(), name.to_string());
            record.name = name;
            Ok(json!({ "change": "device_renamed", "from": from, "to": to }))
        })
    }

    /// Gives a device another role, from its next request on. Blocks.
    ///
    /// # Errors
    /// There is no such device, or it is revoked.
    pub fn set_role(&self, by: &Principal, device: &str, role: WorkspaceRole) -> Result<DeviceView, IdentityError> {
        self.edit(by, device, |_, record| {
            let from = std::mem::replace(&mut record.role, role);
            Ok(json!({ "change": "device_role", "from": from, "to": role }))
        })
    }

    /// Makes a device ask for a new certificate, with a new key. The ones it has hold for another hour. Blocks.
    ///
    /// # Errors
    /// There is no such device, or it is revoked.
    pub fn rotate(&self, by: &Principal, id_or_name: &str) -> Result<DeviceView, IdentityError> {
        let now = self.now();
        self.edit(by, id_or_name, |_, record| {
            record.supersede(now.plus(SUPERSEDED_LIFE));
            record.rotated_at = Some(now);
            Ok(json!({ "change": "device_rotated" }))
        })
    }

    /// Revokes a device and those that belong to it. Their next request is refused. Blocks.
    ///
    /// # Errors
    /// There is no such device, it is revoked already, or the reason cannot be kept.
    pub fn revoke(&self, by: &Principal, id_or_name: &str, reason: &str) -> Result<DeviceView, IdentityError> {
        if !is_reason(reason) {
            return Err(IdentityError::Reason { most: Revocation::MAX_REASON });
        }
        let now = self.now();
        let id = self.registry().change(|state| {
            let record = in_use(known(state, id_or_name)?)?;
            let id = record.device_id.clone();
            let belongings = state.children(&id).filter(|child| child.revoked.is_none());
            let revoked = |record: &DeviceRecord| {
                let revocation = Revocation { at: now, by: by.clone(), reason: reason.to_owned() };
                Edit::Put(Box::new(DeviceRecord { revoked: Some(revocation), ..record.clone() }))
            };
            let edits: Vec<_> = std::iter::once(record).chain(belongings).map(revoked).collect();
            let what = json!({ "change": "device_revoked", "device": id, "reason": reason, "devices": edits.len() });
            Ok((Change::of(by, what, edits), id))
        })?;
        self.device(id.as_str())
    }

    /// Forgets a device that is revoked, and those that belong to it. Their certificates are then not known here.
    /// Blocks.
    ///
    /// # Errors
    /// There is no such device, or it is not revoked.
    pub fn remove(&self, by: &Principal, id_or_name: &str) -> Result<DeviceId, IdentityError> {
        self.registry().change(|state| {
            let record = known(state, id_or_name)?;
            let id = record.device_id.clone();
            if record.revoked.is_none() {
                return Err(IdentityError::NotRevoked { device: id });
            }
            let belongings = state.children(&id).map(|child| child.device_id.clone());
            let edits = std::iter::once(id.clone()).chain(belongings).map(Edit::Remove).collect();
            let what = json!({ "change": "device_removed", "device": id, "name": record.name });
            Ok((Change::of(by, what, edits), id))
        })
    }

    /// Issues the next certificate of a device that is connected. The one before holds for another hour, in case the
    /// device loses the new one. Blocks.
    ///
    /// The request names the device's id and brings a key that was never used before.
    ///
    /// # Errors
    /// The device is not let in any more, or its request is refused.
    pub fn renew(&self, device: &ConnectedDevice, request: &[u8]) -> Result<Issued, IdentityError> {
        let id = device.device_id().clone();
        let key = signing_request::read(request, id.as_str())?;
        let now = self.now();
        self.registry().change(|state| {
            state.standing(&device.presented, now)?;
            let record = known(state, id.as_str())?;
            if record.kind != DeviceKind::Program {
                return Err(IdentityError::UnknownDevice { device: id.to_string() });
            }
            let newest = record.newest().map_or(Timestamp::from_unix_ms(0), |newest| newest.issued_at);
            // Somebody asked for a new one since: that is no device that renews too often.
            let asked_for = record.rotated_at.is_some_and(|at| at >= newest);
            if newest.until(now) < LEAST_BETWEEN_RENEWALS && !asked_for {
                return Err(IdentityError::RenewedTooSoon { least: LEAST_BETWEEN_RENEWALS });
            }
            let holds = now.plus(SUPERSEDED_LIFE);
            self.certify(state, record.clone(), &key, holds, (&record.principal, "device_renewed"))
        })
    }

    /// Issues a certificate for a browser beside a connected device. It acts for the same principal with the same role,
    /// lives for a week, and is revoked with the device. Blocks.
    ///
    /// The request names the browser's `name`; the key is made, and packed for the browser, on the device's side.
    ///
    /// # Errors
    /// The device is not let in any more, the name is taken, or the request is refused.
    pub fn add_browser(
        &self,
        device: &ConnectedDevice,
        name: &DeviceName,
        request: &[u8],
    ) -> Result<Issued, IdentityError> {
        let key = signing_request::read(request, name.as_str())?;
        let now = self.now();
        self.registry().change(|state| {
            let standing = state.standing(&device.presented, now)?;
            if standing.kind() != DeviceKind::Program {
                return Err(IdentityError::UnknownDevice { device: device.device_id.to_string() });
            }
            let new = NewDevice {
                device_id: DeviceId::mint(),
                name: name.clone(),
                kind: DeviceKind::Browser,
                principal: standing.principal().clone(),
                role: standing.role(),
                parent: Some(standing.device_id().clone()),
                invited_by: None,
            };
            let record = self.admit(state, new, standing.principal())?;
            self.certify(state, record, &key, now, (standing.principal(), "browser_added"))
        })
    }

    /// Whether a key, and a name where there is one, are nobody's yet.
    ///
    /// # Errors
    /// One of them is taken.
    pub(crate) fn check_free(&self, key: &PublicKey, name: Option<&DeviceName>) -> Result<(), IdentityError> {
        let state = self.registry().look();
        if let Some(name) = name.filter(|name| state.has_name(&name.folded())) {
            return Err(IdentityError::NameTaken { name: name.to_string() });
        }
        self.check_key(&state, key)
    }

    fn check_key(&self, state: &State, key: &PublicKey) -> Result<(), IdentityError> {
        if state.has_key(&key.digest()) || self.server().has_key(&key.digest()) {
            return Err(IdentityError::KeyRepeated);
        }
        Ok(())
    }

    /// Lets a device in that proved a pairing code and was approved. Blocks.
    ///
    /// # Errors
    /// Its name or key is taken, or the change cannot be recorded.
    pub(crate) fn let_in(&self, new: NewDevice, key: &PublicKey, by: &Principal) -> Result<Issued, IdentityError> {
        let now = self.now();
        self.registry().change(|state| {
            let record = self.admit(state, new, by)?;
            self.certify(state, record, key, now, (by, "device_paired"))
        })
    }

    /// Gives a device that exists a new certificate because it was paired again. Those it had are over. Blocks.
    ///
    /// # Errors
    /// The device is gone or revoked, the key is taken, or the change cannot be recorded.
    pub(crate) fn pair_again(&self, id: &DeviceId, key: &PublicKey, by: &Principal) -> Result<Issued, IdentityError> {
        let now = self.now();
        self.registry().change(|state| {
            let record = in_use(known(state, id.as_str())?)?.clone();
            self.certify(state, record, key, now, (by, "device_paired_again"))
        })
    }

    /// A new record, if there is room for it and its name is free.
    fn admit(&self, state: &State, new: NewDevice, by: &Principal) -> Result<DeviceRecord, IdentityError> {
        let NewDevice { device_id, name, kind, principal, role, parent, invited_by } = new;
        check_principal(&principal)?;
        if state.count() >= MAX_DEVICES {
            return Err(IdentityError::TooMany { what: "devices", most: MAX_DEVICES });
        }
        if state.has_name(&name.folded()) {
            return Err(IdentityError::NameTaken { name: name.to_string() });
        }
        Ok(DeviceRecord {
            device_id,
            name,
            kind,
            principal,
            role,
            created_at: self.now(),
            by: by.clone(),
            invited_by,
            parent,
            rotated_at: None,
            revoked: None,
            certificates: vec![],
        })
    }

    /// Adds a certificate to a record: the change that does so, and the certificate.
    fn certify(
        &self,
        state: &State,
        mut record: DeviceRecord,
        key: &PublicKey,
        earlier_hold_until: Timestamp,
        (by, change): (&Principal, &str),
    ) -> Result<(Change, Issued), IdentityError> {
        self.check_key(state, key)?;
        let now = self.now();
        let signer = newest(&state.generations, now)?;
        let term = Term::new(now, record.kind.certificate_life(), Some(signer))?;
        let issuer = signer.issuer(self.vault.as_ref())?;
        let named = (&record.device_id, &record.principal);
        let certificate = authority::certify_device(&issuer, self.zone(), named, key, term)?;
        let issued = CertificateRecord {
            serial: term.serial,
            sha256: Digest::of(&certificate),
            key_sha256: key.digest(),
            authority: signer.record.generation,
            issued_at: now,
            not_after: term.until,
            superseded_at: None,
        };
        let what = json!({
            "change": change, "device": record.device_id, "name": record.name, "kind": record.kind,
            "principal": record.principal, "role": record.role, "serial": term.serial, "key": key.digest(),
        });
        record.add_certificate(issued, earlier_hold_until);
        let trusted = state.generations.iter().filter(|g| g.is_trusted(now));
        let made = Issued {
            device_id: record.device_id.clone(),
            principal: record.principal.clone(),
            role: record.role,
            certificate,
            not_after: term.until,
            authorities: trusted.map(|g| g.certificate.clone()).collect(),
        };
        Ok((Change::of(by, what, vec![Edit::Put(Box::new(record))]), made))
    }

    /// Changes the record of a device that is in use.
    fn edit(
        &self,
        by: &Principal,
        id_or_name: &str,
        edit: impl FnOnce(&State, &mut DeviceRecord) -> Result<serde_json::Value, IdentityError>,
    ) -> Result<DeviceView, IdentityError> {
        let id = self.registry().change(|state| {
            let mut record = in_use(known(state, id_or_name)?)?.clone();
            let id = record.device_id.clone();
            let mut what = edit(state, &mut record)?;
            what["device"] = json!(id);
            Ok((Change::of(by, what, vec![Edit::Put(Box::new(record))]), id))
        })?;
        self.device(id.as_str())
    }
}

fn known<'a>(state: &'a State, id_or_name: &str) -> Result<&'a DeviceRecord, IdentityError> {
    let unknown = || palyra_protocol::display::safe(&id_or_name.chars().take(80).collect::<String>());
    state.find(id_or_name).ok_or_else(|| IdentityError::UnknownDevice { device: unknown() })
}

fn in_use(record: &DeviceRecord) -> Result<&DeviceRecord, IdentityError> {
    if record.revoked.is_some() {
        return Err(IdentityError::Revoked { device: record.device_id.clone() });
    }
    Ok(record)
}

/// Devices act for people or for themselves. A program's certificate would be a token that nobody scoped.
pub(crate) fn check_principal(principal: &Principal) -> Result<(), IdentityError> {
    match principal.kind() {
        PrincipalKind::User | PrincipalKind::Device => Ok(()),
        PrincipalKind::Agent | PrincipalKind::System => Err(IdentityError::Principal { principal: principal.clone() }),
    }
}
