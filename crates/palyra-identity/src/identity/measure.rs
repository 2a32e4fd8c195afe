//! A registry with many devices at once, for measuring.

use super::Identity;
use crate::error::IdentityError;
use crate::registry::{CertificateRecord, Change, DEVICE_LIFE, DeviceKind, DeviceRecord, Edit, Revocation, Serial};
use palyra_protocol::{DeviceId, DigestBuilder, Principal, WorkspaceRole};
use serde_json::json;

impl Identity {
    /// Adds so many devices in one change. Nobody holds their certificates.
    ///
    /// # Errors
    /// The change cannot be recorded.
    #[doc(hidden)]
    pub fn stock(&self, count: usize, revoked: bool) -> Result<(), IdentityError> {
        let now = self.now();
        let by = Principal::local_owner();
        self.registry().change(|_| {
            let device = |_| -> Result<Edit, IdentityError> {
                let device_id = DeviceId::mint();
                let digest = |what: &str| DigestBuilder::new(what).field(device_id.as_str().as_bytes()).finish();
                let certificate = CertificateRecord {
                    serial: Serial::from_random(crate::entropy::random()?),
                    sha256: digest("certificate"),
                    key_sha256: digest("key"),
                    authority: 1,
                    issued_at: now,
                    not_after: now.plus(DEVICE_LIFE),
                    superseded_at: None,
                };
                let revocation = || Revocation { at: now, by: by.clone(), reason: "measured".to_owned() };
                Ok(Edit::Put(Box::new(DeviceRecord {
                    name: format!("device {}", &device_id.as_str()[4..]).parse()?,
                    device_id,
                    kind: DeviceKind::Program,
                    principal: by.clone(),
                    role: WorkspaceRole::Operator,
                    created_at: now,
                    by: by.clone(),
                    invited_by: None,
                    parent: None,
                    rotated_at: None,
                    revoked: revoked.then(revocation),
                    certificates: vec![certificate],
                })))
            };
            let edits = (0..count).map(device).collect::<Result<_, _>>()?;
            Ok((Change::of(&by, json!({ "change": "stocked", "devices": count }), edits), ()))
        })
    }
}
