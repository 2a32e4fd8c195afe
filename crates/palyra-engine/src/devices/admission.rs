//! Whether a device is let in, and how far: asked for every request.

use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_access::{Admitted, PairedDevice, TokenRefusal};
use palyra_identity::{CertificateRefusal, ConnectedDevice, DeviceState, DeviceView, Identity};
use palyra_protocol::{DeviceId, Digest, PrincipalKind, Problem};
use std::sync::Arc;

impl Engine {
    /// The identity that lets devices in; nothing before it was opened.
    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.devices().opened().map(|open| open.identity())
    }

    /// How far a connected device is let in now. What was revoked since its connection was made is revoked.
    pub(crate) fn admit_device(&self, device: &ConnectedDevice) -> Result<Admitted, EngineError> {
        let identity = self.identity().ok_or_else(unavailable)?;
        let source = format!("device {}", device.device_id());
        let standing = identity.check(device).map_err(|refusal| {
            identity.count_refusal(&source, refusal.code());
            refused(&refusal)
        })?;
        let paired = PairedDevice {
            device_id: standing.device_id().clone(),
            principal: standing.principal().clone(),
            role: standing.role(),
            issuers: standing.issuers().to_vec(),
            certificate: device.certificate(),
            expires_at: device.not_after(),
        };
        self.access().state().admit_device(paired).map_err(|refusal| match refusal {
            TokenRefusal::PrincipalGone => {
                identity.count_refusal(&source, "device_principal_gone");
                let message = "whom this device acts for is no longer here";
                let problem = Problem::new("device_principal_gone", message, "pair it again for somebody who is");
                EngineError::new(ErrorKind::Unauthenticated, problem)
            }
            other => self.refuse_token(other, &source),
        })
    }

    /// SHA-256 of the key that a connected device's certificate holds.
    pub(crate) fn certificate_key_of(&self, device: &ConnectedDevice) -> Option<Digest> {
        self.identity()?.key_of(device)
    }

    /// Comes when a device is not let in any more: it was revoked or removed, or its certificate is over.
    pub async fn cut_off(&self, device: &ConnectedDevice) {
        let mut changes = self.watch_rights();
        loop {
            let Some(identity) = self.identity() else { return };
            if identity.check(device).is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(self.clock().now().until(device.not_after())) => {}
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Why what a device proposed goes no further: it is not let in any more.
    pub(crate) fn device_gone(&self, id: &DeviceId) -> Option<Problem> {
        let Some(identity) = self.identity() else { return Some(unavailable().problem) };
        let (code, how) = match identity.device(id.as_str()) {
            Ok(DeviceView { state: DeviceState::Active, device, .. }) => {
                let here = self.access().state().role(&device.principal).is_some();
                if here || device.principal.kind() == PrincipalKind::Device {
                    return None;
                }
                ("device_principal_gone", "acts for somebody who is no longer here")
            }
            Ok(DeviceView { state: DeviceState::Revoked, .. }) => ("device_revoked", "was revoked"),
            Ok(DeviceView { state: DeviceState::Lapsed, .. }) => ("device_lapsed", "has no certificate that holds"),
            Err(_) => ("device_removed", "was removed"),
        };
        let message = format!("the device that the call was proposed from {how}");
        Some(Problem::new(code, message, "propose the call again, from a device that is let in"))
    }
}

fn refused(refusal: &CertificateRefusal) -> EngineError {
    let problem = match refusal.hint() {
        Some(hint) => Problem::new(refusal.code(), refusal.to_string(), hint),
        None => Problem::plain(refusal.code(), refusal.to_string()),
    };
    EngineError::new(ErrorKind::Unauthenticated, problem)
}

fn unavailable() -> EngineError {
    let message = "the device registry is not open, so no device is let in";
    EngineError::new(ErrorKind::Unavailable, Problem::new("devices_unavailable", message, "see `palyra doctor`"))
}
