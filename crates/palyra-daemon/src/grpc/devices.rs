//! Paired devices.

use super::{Door, Reply, document, malformed, optional, parsed, refused};
use palyra_api::v1::devices_server::Devices;
use palyra_api::v1::{
    AddBrowserRequest, AuthorityReply, AuthorityRequest, CreateCodeRequest, DeviceDocument, DeviceDocuments,
    ExposureRequest, GetDeviceRequest, IssuedCertificate, ListDevicesRequest, OwnDevice, OwnDeviceRequest,
    PairingCodeReply, RemoveDeviceReply, RemoveDeviceRequest, RenameDeviceRequest, RenewDeviceRequest,
    RevokeDeviceRequest, RotateAuthorityRequest, RotateDeviceRequest, SetDeviceRoleRequest, WithdrawCodeReply,
    WithdrawCodeRequest,
};
use palyra_engine::{EngineError, PairingOrder};
use palyra_identity::pairing::{DEFAULT_CODE_LIFE, PairingCode};
use palyra_identity::{Host, Issued};
use palyra_protocol::WorkspaceRole;
use serde::Serialize;
use std::time::Duration;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Devices for Door {
    async fn list(&self, request: Request<ListDevicesRequest>) -> Reply<DeviceDocuments> {
        let peer = self.peer(&request)?;
        let devices = self.engine.device_list(&peer).await.map_err(refused)?;
        let documents_json = devices.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(DeviceDocuments { documents_json }))
    }

    async fn get(&self, request: Request<GetDeviceRequest>) -> Reply<DeviceDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.device(&peer, &request.get_ref().device).await)
    }

    async fn rename(&self, request: Request<RenameDeviceRequest>) -> Reply<DeviceDocument> {
        let peer = self.peer(&request)?;
        let RenameDeviceRequest { device, name } = request.into_inner();
        told(self.engine.rename_device(&peer, device, parsed(&name)?).await)
    }

    async fn set_role(&self, request: Request<SetDeviceRoleRequest>) -> Reply<DeviceDocument> {
        let peer = self.peer(&request)?;
        let SetDeviceRoleRequest { device, role } = request.into_inner();
        told(self.engine.set_device_role(&peer, device, parsed(&role)?).await)
    }

    async fn rotate(&self, request: Request<RotateDeviceRequest>) -> Reply<DeviceDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.rotate_device(&peer, request.into_inner().device).await)
    }

    async fn revoke(&self, request: Request<RevokeDeviceRequest>) -> Reply<DeviceDocument> {
        let peer = self.peer(&request)?;
        let RevokeDeviceRequest { device, reason } = request.into_inner();
        told(self.engine.revoke_device(&peer, device, reason).await)
    }

    async fn remove(&self, request: Request<RemoveDeviceRequest>) -> Reply<RemoveDeviceReply> {
        let peer = self.peer(&request)?;
        let removed = self.engine.remove_device(&peer, request.into_inner().device).await.map_err(refused)?;
        Ok(Response::new(RemoveDeviceReply { device_id: removed.to_string() }))
    }

    async fn own(&self, request: Request<OwnDeviceRequest>) -> Reply<OwnDevice> {
        let peer = self.peer(&request)?;
        let (standing, not_after) = self.engine.own_device(&peer).map_err(refused)?;
        Ok(Response::new(OwnDevice {
            device_id: standing.device_id().to_string(),
            name: standing.name().to_string(),
            principal: standing.principal().to_string(),
            role: standing.role().to_string(),
            not_after_unix_ms: not_after.unix_ms(),
            renewal_due: standing.renewal_due(),
        }))
    }

    async fn renew(&self, request: Request<RenewDeviceRequest>) -> Reply<IssuedCertificate> {
        let peer = self.peer(&request)?;
        issued(self.engine.renew_device(&peer, request.into_inner().signing_request).await)
    }

    async fn add_browser(&self, request: Request<AddBrowserRequest>) -> Reply<IssuedCertificate> {
        let peer = self.peer(&request)?;
        let AddBrowserRequest { name, signing_request } = request.into_inner();
        issued(self.engine.add_browser(&peer, parsed(&name)?, signing_request).await)
    }

    async fn authority(&self, request: Request<AuthorityRequest>) -> Reply<AuthorityReply> {
        let peer = self.peer(&request)?;
        let (generations, trusted) = self.engine.authorities(&peer).await.map_err(refused)?;
        let generations_json = generations.iter().map(document).collect::<Result<_, _>>()?;
        let zone = self.engine.open_devices().await.map_err(refused)?.identity().zone().to_string();
        Ok(Response::new(AuthorityReply { generations_json, trusted, zone }))
    }

    async fn rotate_authority(&self, request: Request<RotateAuthorityRequest>) -> Reply<DeviceDocument> {
        let peer = self.peer(&request)?;
        let RotateAuthorityRequest { overlap_ms, hosts, set_hosts } = request.into_inner();
        let hosts = hosts.iter().map(|host| parsed::<Host>(host)).collect::<Result<Vec<_>, _>>()?;
        let hosts = (set_hosts || !hosts.is_empty()).then_some(hosts);
        told(self.engine.rotate_authority(&peer, Duration::from_millis(overlap_ms), hosts).await)
    }

    async fn exposure(&self, request: Request<ExposureRequest>) -> Reply<DeviceDocument> {
        let peer = self.peer(&request)?;
        told(self.about.remote.exposure(&peer).await)
    }

    async fn create_code(&self, request: Request<CreateCodeRequest>) -> Reply<PairingCodeReply> {
        let peer = self.peer(&request)?;
        let CreateCodeRequest { role, principal, life_ms, device, qr, host } = request.into_inner();
        let order = PairingOrder {
            principal: optional(&principal)?,
            role: optional(&role)?.unwrap_or(WorkspaceRole::Operator),
            life: if life_ms == 0 { DEFAULT_CODE_LIFE } else { Duration::from_millis(life_ms) },
            device: (!device.is_empty()).then_some(device),
            address: None,
        };
        let host = optional::<Host>(&host)?;
        let made = self.about.remote.create_code(&peer, order, qr.then_some(host)).await.map_err(refused)?;
        // The one place where a code leaves the daemon.
        let (code, picture) = match &made.code.code {
            PairingCode::Pin(pin) => (pin.reveal().to_string(), String::new()),
            PairingCode::Qr(qr) => {
                let picture = qr.picture().map_err(|error| malformed(error.to_string()))?;
                (qr.reveal().to_string(), picture.to_string())
            }
        };
        Ok(Response::new(PairingCodeReply {
            code_id: made.code.id.to_string(),
            code,
            picture,
            expires_at_unix_ms: made.code.expires_at.unix_ms(),
            addresses: made.addresses,
            loopback_only: made.loopback_only,
        }))
    }

    async fn withdraw_code(&self, request: Request<WithdrawCodeRequest>) -> Reply<WithdrawCodeReply> {
        let peer = self.peer(&request)?;
        let code = parsed(&request.get_ref().code_id)?;
        let lived = self.about.remote.withdraw_code(&peer, code).await.map_err(refused)?;
        Ok(Response::new(WithdrawCodeReply { lived }))
    }
}

fn told<T: Serialize>(record: Result<T, EngineError>) -> Reply<DeviceDocument> {
    Ok(Response::new(DeviceDocument { document_json: document(&record.map_err(refused)?)? }))
}

fn issued(issued: Result<Issued, EngineError>) -> Result<Response<IssuedCertificate>, Status> {
    let Issued { device_id, principal, role, certificate, not_after, authorities } = issued.map_err(refused)?;
    Ok(Response::new(IssuedCertificate {
        device_id: device_id.to_string(),
        principal: principal.to_string(),
        role: role.to_string(),
        certificate: certificate.to_vec(),
        not_after_unix_ms: not_after.unix_ms(),
        authorities: authorities.iter().map(|der| der.to_vec()).collect(),
    }))
}
