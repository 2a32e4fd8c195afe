//! How a device is let in: a code that an owner makes, and an approval that a person answers at any door.

use crate::access::VerifiedPeer;
use crate::approvals::request::{ApprovalRequest, RequestedApproval};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_identity::pairing::{Address, CodeId, CodeRequest, NewCode, PendingView};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{
    ApprovalSubject, DigestBuilder, Facets, PairingDevice, Principal, PrincipalKind, Problem, RiskLevel, SessionId,
    ToolName, WorkspaceRole,
};
use serde_json::json;
use std::time::Duration;

/// What approvals call the act.
const ACT: &str = "palyra.device.pair";

/// What somebody wants a pairing code for.
#[derive(Debug, Clone)]
pub struct PairingOrder {
    /// For whom the device will act; whoever asks, where nobody is named.
    pub principal: Option<Principal>,
    /// With which role.
    pub role: WorkspaceRole,
    /// How long the code lives.
    pub life: Duration,
    /// A device that exists and gets a new key and certificate.
    pub device: Option<String>,
    /// Where the daemon waits, for a QR code; none for a PIN.
    pub address: Option<Address>,
}

impl Engine {
    /// Whether the peer may make pairing codes and withdraw them.
    ///
    /// # Errors
    /// It may not.
    pub fn may_pair(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::DevicePair, PolicyResource::Daemon, None)
    }

    /// Makes a pairing code.
    ///
    /// # Errors
    /// The peer may not, the role goes beyond the peer's or the principal's own, or too many codes live.
    pub async fn create_pairing_code(&self, peer: &VerifiedPeer, order: PairingOrder) -> Result<NewCode, EngineError> {
        self.may_pair(peer)?;
        let PairingOrder { principal, role, life, device, address } = order;
        let principal = principal.unwrap_or_else(|| peer.effective().clone());
        self.reaches(peer, role)?;
        self.stands_for(peer, &principal, role)?;
        let open = self.open_devices().await?;
        let device = match device {
            Some(name) => Some(open.identity().device(&name)?.device.device_id),
            None => None,
        };
        let request = CodeRequest { principal, role, by: peer.effective().clone(), life, device, address };
        Ok(open.desk().create_code(request)?)
    }

    /// Withdraws a pairing code; tells whether it lived.
    ///
    /// # Errors
    /// The peer may not.
    pub async fn withdraw_pairing_code(&self, peer: &VerifiedPeer, code: CodeId) -> Result<bool, EngineError> {
        self.may_pair(peer)?;
        Ok(self.known_devices().await?.is_some_and(|open| open.desk().withdraw_code(code)))
    }

    /// A device acts for a member with at most the member's role, or for itself.
    fn stands_for(&self, peer: &VerifiedPeer, principal: &Principal, role: WorkspaceRole) -> Result<(), EngineError> {
        if principal.kind() == PrincipalKind::Device {
            return Ok(());
        }
        match self.access().state().role(&self.standing_place(peer), principal) {
            Some(standing) if standing >= role => Ok(()),
            Some(standing) => {
                let message = format!("`{principal}` is only {standing} here, and the device would be {role}");
                Err(EngineError::invalid("role_too_high", message, &format!("choose `--role {standing}`")))
            }
            None => {
                let message = format!("`{principal}` is no member of this workspace");
                let hint = "add them first: `palyra access member add`";
                Err(EngineError::new(ErrorKind::NotFound, Problem::new("no_such_member", message, hint)))
            }
        }
    }

    /// Asks people whether a device that proved a code is to be let in.
    ///
    /// # Errors
    /// Too many approvals wait already, or it could not be recorded.
    pub async fn ask_about_pairing(&self, pending: &PendingView) -> Result<RequestedApproval, EngineError> {
        let words = pending.words.to_string();
        let subject = ApprovalSubject::DevicePairing(Box::new(PairingDevice {
            name: pending.name.to_string(),
            platform: pending.platform.as_str().to_owned(),
            key_sha256: pending.key,
            words: words.clone(),
        }));
        let input = json!({
            "device": pending.name, "platform": pending.platform.as_str(), "words": words, "from": pending.source,
            "acts_for": pending.principal, "role": pending.role, "key_sha256": pending.key,
            "pairs_again": pending.device,
        });
        let digest = DigestBuilder::new("palyra.pairing.approval.v1")
            .field(pending.pairing.to_string().as_bytes())
            .field(input.to_string().as_bytes())
            .finish();
        let tool: ToolName = ACT.parse().map_err(|_| EngineError::internal("the act has no name"))?;
        let why = format!(
            "A device at {} wants to act for {} with the role {}. Approve it only if it shows the same words.",
            palyra_protocol::display::safe(&pending.source),
            pending.principal,
            pending.role
        );
        self.request_approval(ApprovalRequest {
            subject,
            subject_id: format!("device:{}", pending.name),
            tool,
            digest,
            risk: if pending.role == WorkspaceRole::Owner { RiskLevel::Critical } else { RiskLevel::High },
            principal: pending.principal.clone(),
            proposed_by: pending.by.clone(),
            token: None,
            workspace: None,
            session: SessionId::mint(),
            input,
            facets: Facets::default(),
            why,
            people: 1,
            patience: Some(self.clock().now().until(pending.expires_at)),
        })
        .await
    }

    /// Lets everybody who watches rights look again: a device was let in.
    pub fn device_paired(&self) {
        self.announce_rights();
    }
}
