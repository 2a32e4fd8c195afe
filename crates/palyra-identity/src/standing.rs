//! A device that was let in: the proof, and what it may count on until the next request.

use crate::names::DeviceName;
use crate::registry::{DeviceKind, DeviceRecord};
use palyra_protocol::{DeviceId, Principal, WorkspaceRole};

/// How a device stands at this moment. Made only by looking into the registry; asked for anew with every request.
#[derive(Debug, PartialEq, Eq)]
pub struct Standing {
    device_id: DeviceId,
    name: DeviceName,
    kind: DeviceKind,
    principal: Principal,
    role: WorkspaceRole,
    issuers: Vec<Principal>,
    renewal_due: bool,
}

impl Standing {
    pub(crate) fn new(record: &DeviceRecord, renewal_due: bool) -> Self {
        Self {
            device_id: record.device_id.clone(),
            name: record.name.clone(),
            kind: record.kind,
            principal: record.principal.clone(),
            role: record.role,
            issuers: std::iter::once(&record.by).chain(&record.invited_by).cloned().collect(),
            renewal_due: renewal_due && record.kind == DeviceKind::Program,
        }
    }

    /// The device.
    #[must_use]
    pub fn device_id(&self) -> &DeviceId {
        &self.device_id
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// What sort of device it is.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// For whom it acts.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The role it is limited to.
    #[must_use]
    pub fn role(&self) -> WorkspaceRole {
        self.role
    }

    /// Everybody who had a hand in letting it in: who approved it, and who made its code.
    #[must_use]
    pub fn issuers(&self) -> &[Principal] {
        &self.issuers
    }

    /// Whether the device should ask for a new certificate now.
    #[must_use]
    pub fn renewal_due(&self) -> bool {
        self.renewal_due
    }
}
