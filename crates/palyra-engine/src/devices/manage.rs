//! What people do with devices, and what a device does with its own identity.

use super::OpenDevices;
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_identity::{
    AuthorityView, ConnectedDevice, DeviceName, DeviceState, DeviceView, Host, Identity, IdentityError, Issued,
    Standing,
};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{DeviceId, Principal, Problem, Timestamp, WorkspaceRole};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Who could come in from elsewhere now, for `doctor`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Exposed {
    /// How many devices are let in, by role.
    pub active: BTreeMap<String, usize>,
    /// How many are known and not let in: their certificates are over, or they are revoked.
    pub shut_out: usize,
    /// How many have something worth a look.
    pub with_warnings: usize,
    /// Until when a pairing code lives.
    pub pairing_until: Option<Timestamp>,
    /// How many pairings wait for a person.
    pub pairings_pending: usize,
}

impl Engine {
    /// Every device, by name; revoked ones last.
    ///
    /// # Errors
    /// The peer may not see them, or the registry cannot be opened.
    pub async fn device_list(&self, peer: &VerifiedPeer) -> Result<Vec<DeviceView>, EngineError> {
        self.authorize(peer, PolicyAction::DeviceList, PolicyResource::Daemon, None)?;
        Ok(self.known_devices().await?.map_or_else(Vec::new, |open| open.identity().devices()))
    }

    /// One device, by its id or its name.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn device(&self, peer: &VerifiedPeer, id_or_name: &str) -> Result<DeviceView, EngineError> {
        self.authorize(peer, PolicyAction::DeviceList, PolicyResource::Daemon, None)?;
        Ok(self.registered(id_or_name).await?.identity().device(id_or_name)?)
    }

    /// Who could come in from elsewhere now.
    ///
    /// # Errors
    /// The peer may not know, or the registry cannot be opened.
    pub async fn exposed(&self, peer: &VerifiedPeer) -> Result<Exposed, EngineError> {
        self.authorize(peer, PolicyAction::DeviceList, PolicyResource::Daemon, None)?;
        let Some(open) = self.known_devices().await? else { return Ok(Exposed::default()) };
        let mut exposed = Exposed {
            pairing_until: open.desk().open_until(),
            pairings_pending: open.desk().pending().len(),
            ..Exposed::default()
        };
        for view in open.identity().devices() {
            match view.state {
                DeviceState::Active => *exposed.active.entry(view.device.role.to_string()).or_default() += 1,
                DeviceState::Lapsed | DeviceState::Revoked => exposed.shut_out += 1,
            }
            exposed.with_warnings += usize::from(!view.warnings.is_empty());
        }
        Ok(exposed)
    }

    /// Gives a device another name.
    ///
    /// # Errors
    /// There is no such device, the name is taken, or the peer may not.
    pub async fn rename_device(
        &self,
        peer: &VerifiedPeer,
        device: String,
        name: DeviceName,
    ) -> Result<DeviceView, EngineError> {
        self.change_device(peer, device, move |identity, by, id| identity.rename(by, id.as_str(), name)).await
    }

    /// Gives a device another role, from its next request on.
    ///
    /// # Errors
    /// There is no such device, the role is above the peer's own, or the peer may not.
    pub async fn set_device_role(
        &self,
        peer: &VerifiedPeer,
        device: String,
        role: WorkspaceRole,
    ) -> Result<DeviceView, EngineError> {
        self.reaches(peer, role)?;
        self.change_device(peer, device, move |identity, by, id| identity.set_role(by, id.as_str(), role)).await
    }

    /// Makes a device ask for a new certificate with a new key. The ones it has hold for another hour.
    ///
    /// # Errors
    /// There is no such device, or the peer may not.
    pub async fn rotate_device(&self, peer: &VerifiedPeer, device: String) -> Result<DeviceView, EngineError> {
        self.change_device(peer, device, move |identity, by, id| identity.rotate(by, id.as_str())).await
    }

    /// Revokes a device and those that belong to it. Their next request is refused, and what they proposed does not
    /// start.
    ///
    /// # Errors
    /// There is no such device, it is revoked already, or the peer may not.
    pub async fn revoke_device(
        &self,
        peer: &VerifiedPeer,
        device: String,
        reason: String,
    ) -> Result<DeviceView, EngineError> {
        self.change_device(peer, device, move |identity, by, id| identity.revoke(by, id.as_str(), &reason)).await
    }

    /// Forgets a device that is revoked.
    ///
    /// # Errors
    /// There is no such device, it is not revoked, or the peer may not.
    pub async fn remove_device(&self, peer: &VerifiedPeer, device: String) -> Result<DeviceId, EngineError> {
        self.change_device(peer, device, move |identity, by, id| identity.remove(by, id.as_str())).await
    }

    /// How the device that asks stands, and until when its certificate holds.
    ///
    /// # Errors
    /// The peer is no device, or not let in any more.
    pub fn own_device(&self, peer: &VerifiedPeer) -> Result<(Standing, Timestamp), EngineError> {
        let device = own_device(peer)?;
        let standing = self.identity().map(|identity| identity.check(&device)).transpose();
        let standing = standing.map_err(IdentityError::from)?;
        let standing = standing.ok_or_else(|| EngineError::internal("a device came without a registry"))?;
        Ok((standing, device.not_after()))
    }

    /// The next certificate of the device that asks.
    ///
    /// # Errors
    /// The peer is no device, or its request is refused.
    pub async fn renew_device(&self, peer: &VerifiedPeer, request: Vec<u8>) -> Result<Issued, EngineError> {
        let device = own_device(peer)?;
        self.with_identity(move |identity| identity.renew(&device, &request)).await
    }

    /// A certificate for a browser beside the device that asks.
    ///
    /// # Errors
    /// The peer is no device, the name is taken, or the request is refused.
    pub async fn add_browser(
        &self,
        peer: &VerifiedPeer,
        name: DeviceName,
        request: Vec<u8>,
    ) -> Result<Issued, EngineError> {
        let device = own_device(peer)?;
        self.with_identity(move |identity| identity.add_browser(&device, &name, &request)).await
    }

    /// The generations of the authority, the newest first, with their certificates (DER) where they are trusted.
    ///
    /// # Errors
    /// The peer may not see them.
    pub async fn authorities(&self, peer: &VerifiedPeer) -> Result<(Vec<AuthorityView>, Vec<Vec<u8>>), EngineError> {
        self.authorize(peer, PolicyAction::DeviceList, PolicyResource::Daemon, None)?;
        let open = self.open_devices().await?;
        let bundle = open.identity().trust_bundle().iter().map(|der| der.to_vec()).collect();
        Ok((open.identity().authorities(), bundle))
    }

    /// Lets a new generation of the authority follow.
    ///
    /// # Errors
    /// The overlap is too long, or the peer may not.
    pub async fn rotate_authority(
        &self,
        peer: &VerifiedPeer,
        overlap: Duration,
        hosts: Option<Vec<Host>>,
    ) -> Result<AuthorityView, EngineError> {
        self.authorize(peer, PolicyAction::DevicePair, PolicyResource::Daemon, None)?;
        let by = peer.effective().clone();
        let rotated = self.with_identity(move |identity| identity.rotate_authority(&by, overlap, hosts)).await?;
        self.announce_rights();
        Ok(rotated)
    }

    /// Nobody gives a role above their own.
    pub(super) fn reaches(&self, peer: &VerifiedPeer, role: WorkspaceRole) -> Result<(), EngineError> {
        let own = self.role_of(peer);
        let own = own.map(|own| peer.token().map_or(own, |token| own.min(token.role())));
        if own.is_some_and(|own| own >= role) {
            return Ok(());
        }
        let message = format!("a device with the role {role} would be above you");
        let problem = Problem::new("role_too_high", message, "ask an owner, or choose a lower role: `--role operator`");
        Err(EngineError::new(ErrorKind::Forbidden, problem))
    }

    /// The registry, where it could hold this device.
    async fn registered(&self, id_or_name: &str) -> Result<Arc<OpenDevices>, EngineError> {
        let unknown = || IdentityError::UnknownDevice { device: palyra_protocol::display::safe(id_or_name) };
        Ok(self.known_devices().await?.ok_or_else(unknown)?)
    }

    /// Changes a device, whole or not at all, and lets the change take effect: streams end, what was proposed does not
    /// start.
    async fn change_device<T: Send + 'static>(
        &self,
        peer: &VerifiedPeer,
        device: String,
        change: impl FnOnce(&Identity, &Principal, &DeviceId) -> Result<T, IdentityError> + Send + 'static,
    ) -> Result<T, EngineError> {
        // Asked in general first: whoever may not, does not learn which devices there are.
        let any = PolicyResource::Device("any".to_owned());
        self.authorize(peer, PolicyAction::DeviceRevoke, any, None)?;
        let id = self.registered(&device).await?.identity().device(&device)?.device.device_id;
        self.authorize(peer, PolicyAction::DeviceRevoke, PolicyResource::Device(id.to_string()), None)?;
        let by = peer.effective().clone();
        let changed = self.with_identity(move |identity| change(identity, &by, &id)).await?;
        self.announce_rights();
        if let Err(error) = self.end_orphaned_questions().await {
            // Nobody can answer them with a yes any more; they end at the latest when their time is over.
            tracing::error!(error = &error as &dyn std::error::Error, "approvals of revoked devices were not ended");
        }
        Ok(changed)
    }

    /// Does something that writes files and waits for the journal, in a thread that may.
    pub(super) async fn with_identity<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Identity) -> Result<T, IdentityError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let open = self.open_devices().await?;
        let done = tokio::task::spawn_blocking(move || work(open.identity())).await;
        Ok(done.map_err(|_| EngineError::internal("a change of the device registry was cut off"))??)
    }
}

/// The device that asks about itself.
fn own_device(peer: &VerifiedPeer) -> Result<Arc<ConnectedDevice>, EngineError> {
    peer.device().cloned().ok_or_else(|| {
        let message = "only a paired device can ask for a certificate of its own";
        let hint = "run this on a paired machine: `palyra --host NAME …`";
        EngineError::new(ErrorKind::Invalid, Problem::new("not_a_device", message, hint))
    })
}
