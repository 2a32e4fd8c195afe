//! Open connections and the daemon's own certificate: revoked on the next request, renewed without a restart, faults
//! that tell what to do.

use crate::world::{Client, DAY, Device, HOUR, World, owner};
use palyra_identity::{
    ConnectionFault, DeviceCredentials, DeviceKey, DeviceState, DeviceWarning, Issued, client_config,
};
use palyra_protocol::{Clock as _, WorkspaceRole};
use std::io;
use std::time::Duration;

fn fault(error: &io::Error) -> ConnectionFault {
    ConnectionFault::of(error).unwrap_or_else(|| panic!("no fault in {error:?}"))
}

/// Renews a device's certificate over its own connection, as its program does.
fn renew(world: &World, device: &mut Device) -> Issued {
    let connected = world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).unwrap();
    let key = DeviceKey::generate().unwrap();
    let request = key.signing_request(device.paired.device_id.as_str()).unwrap();
    let issued = world.identity.renew(&connected, &request).unwrap();
    device.credentials.replace(&issued.certificate, &key, &issued.authorities).unwrap();
    device.paired.certificate = issued.certificate.clone();
    device.paired.key = key;
    issued
}

#[test]
fn revoked_on_next_request_of_an_open_connection() {
    let world = World::new();
    let device = world.pair("phone");
    let mut open = world.connect(&device);
    assert_eq!(open.request().unwrap(), "phone user:ana operator");
    world.identity.revoke(&owner(), "phone", "left on a train").unwrap();
    assert_eq!(open.request().unwrap(), "refused device_revoked");
    let error = world.connect(&device).request().unwrap_err();
    assert_eq!(fault(&error), ConnectionFault::Revoked);
    let world = world.restart().unwrap();
    assert_eq!(fault(&world.connect(&device).request().unwrap_err()), ConnectionFault::Revoked, "after a restart too");
    world.identity.remove(&owner(), device.paired.device_id.as_str()).unwrap();
    assert_eq!(fault(&world.connect(&device).request().unwrap_err()), ConnectionFault::NotKnown);
}

#[test]
fn names_and_roles_change_on_the_next_request_too() {
    let world = World::new();
    let device = world.pair("phone");
    let mut open = world.connect(&device);
    world.identity.rename(&owner(), "phone", "old phone".parse().unwrap()).unwrap();
    world.identity.set_role(&owner(), "old phone", WorkspaceRole::Admin).unwrap();
    assert_eq!(open.request().unwrap(), "old phone user:ana admin");
}

#[test]
fn a_device_renews_well_before_the_end_and_the_old_certificate_fades() {
    let world = World::new();
    let mut device = world.pair("phone");
    let old = Device { credentials: crate::world::credentials(&device.paired), paired: world.pair("x").paired };
    let standing = |device: &Device| {
        let connected = world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).unwrap();
        world.identity.check(&connected).unwrap().renewal_due()
    };
    assert!(!standing(&device));
    world.clock.advance(8 * HOUR + Duration::from_secs(1));
    assert!(standing(&device), "two thirds of its life before the end");
    let mut open = world.connect(&device);
    open.request().unwrap();
    let issued = renew(&world, &mut device);
    assert_eq!(issued.not_after.unix_ms(), (world.clock.now().unix_ms() + 24 * 3600 * 1000) / 1000 * 1000);
    assert_eq!(open.request().unwrap(), "phone user:ana operator", "the open connection goes on");
    assert_eq!(world.connect(&device).request().unwrap(), "phone user:ana operator");
    world.connect(&old).request().unwrap();
    world.clock.advance(HOUR);
    assert_eq!(open.request().unwrap(), "refused certificate_superseded");
    assert_eq!(fault(&world.connect(&old).request().unwrap_err()), ConnectionFault::NotKnown);
    assert_eq!(world.connect(&device).request().unwrap(), "phone user:ana operator");
}

#[test]
fn a_renewal_brings_a_new_key_for_the_own_name_and_not_too_often() {
    let world = World::new();
    let mut device = world.pair("phone");
    let other = world.pair("laptop");
    let connected = |d: &Device| world.identity.connected(Some(std::slice::from_ref(&d.paired.certificate))).unwrap();
    let code = |device: &Device, key: &DeviceKey, name: &str| {
        let request = key.signing_request(name).unwrap();
        world.identity.renew(&connected(device), &request).map(drop).map_err(|e| e.code()).unwrap_err()
    };
    let fresh = DeviceKey::generate().unwrap();
    let id = device.paired.device_id.as_str();
    assert_eq!(code(&device, &fresh, id), "renewed_too_soon");
    world.clock.advance(HOUR);
    assert_eq!(code(&device, &device.paired.key, id), "key_repeated");
    assert_eq!(code(&device, &other.paired.key, id), "key_repeated");
    assert_eq!(code(&device, &fresh, other.paired.device_id.as_str()), "csr_foreign_name");
    assert_eq!(code(&device, &fresh, "phone"), "csr_foreign_name");
    let before = connected(&device);
    for _ in 0..12 {
        world.clock.advance(HOUR);
        renew(&world, &mut device);
    }
    let view = world.identity.device("phone").unwrap();
    assert_eq!(view.device.certificates.len(), 8, "what is remembered is bounded");
    assert_eq!(world.identity.check(&before).unwrap_err().code(), "certificate_not_issued");
    world.identity.revoke(&owner(), "phone", "").unwrap();
    let late = connected_error(&world, &device);
    assert_eq!(late, "device_revoked");
}

fn connected_error(world: &World, device: &Device) -> &'static str {
    world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).unwrap_err().code()
}

#[test]
fn a_rotated_device_has_an_hour_to_renew() {
    let world = World::new();
    let mut device = world.pair("phone");
    let lazy = world.pair("laptop");
    world.clock.advance(HOUR);
    for name in ["phone", "laptop"] {
        let view = world.identity.rotate(&owner(), name).unwrap();
        assert!(view.warnings.contains(&DeviceWarning::RenewalOverdue));
    }
    let connected = world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).unwrap();
    assert!(world.identity.check(&connected).unwrap().renewal_due(), "it is told with its next request");
    renew(&world, &mut device);
    world.clock.advance(HOUR);
    assert_eq!(world.connect(&device).request().unwrap(), "phone user:ana operator");
    assert_eq!(connected_error(&world, &lazy), "certificate_superseded");
    assert_eq!(world.identity.device("laptop").unwrap().state, DeviceState::Lapsed);
}

#[test]
fn the_server_changes_its_certificate_without_dropping_anybody() {
    let world = World::new();
    let device = world.pair("phone");
    let mut open = world.connect(&device);
    open.request().unwrap();
    let first = open.server_certificate();
    world.identity.tend().unwrap();
    let shown = |client: &mut Client| {
        client.request().unwrap();
        client.server_certificate()
    };
    assert_eq!(shown(&mut world.connect(&device)), first, "nothing is due yet");
    world.identity.renew_server_certificate().unwrap();
    assert_eq!(open.request().unwrap(), "phone user:ana operator", "the stream goes on");
    assert_ne!(shown(&mut world.connect(&device)), first, "the next connection sees the new one");
    world.clock.advance(DAY + HOUR);
    world.identity.tend().unwrap();
    let events = world.journal.kinds();
    // Two each time: one with addresses and one without.
    assert_eq!(events.iter().filter(|kind| **kind == "identity.server_certificate").count(), 6);
}

#[test]
fn faults_tell_a_device_what_to_do() {
    let world = World::new();
    let device = world.pair("phone");
    let config = |credentials, clock| client_config(credentials, clock, &[b"h2"]).unwrap();

    // Another daemon at the same address.
    let other = World::new();
    let error = other.connect(&device).request().unwrap_err();
    let found = fault(&error);
    assert_eq!(found.code(), "authority_changed");
    let ConnectionFault::AuthorityChanged { known, presented } = found else { panic!("{found:?}") };
    assert_eq!(known, [world.identity.authorities()[0].fingerprint]);
    assert_eq!(presented, Some(other.identity.authorities()[0].fingerprint));

    // A clock that is wrong here.
    for wrong in [0, world.clock.now().unix_ms() * 2] {
        let mut client = world.connect_with(config(&device.credentials, palyra_testkit::SetClock::at(wrong)));
        assert_eq!(fault(&client.request().unwrap_err()).code(), "wrong_clock");
    }

    // A certificate that is over.
    world.clock.advance(DAY);
    world.identity.renew_server_certificate().unwrap();
    let error = world.connect(&device).request().unwrap_err();
    assert_eq!(fault(&error), ConnectionFault::CertificateTime);

    // A certificate of the right authority that is no server's: another device in the daemon's place.
    let laptop = world.pair("laptop");
    let impostor = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![laptop.paired.certificate.clone()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(laptop.paired.key.to_secret().expose().to_vec()).into(),
        )
        .unwrap();
    let error = handshake_with(impostor, config(&device.credentials, world.clock.clone()), &world);
    assert_eq!(fault(&error), ConnectionFault::ForeignCertificate { code: "certificate_purpose" });

    // No TLS at all, and a network that is down.
    let error = handshake_with_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n", config(&device.credentials, world.clock));
    assert_eq!(fault(&error), ConnectionFault::NotTheDaemon);
    assert_eq!(ConnectionFault::of(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    for fault in [ConnectionFault::Revoked, ConnectionFault::NotKnown, ConnectionFault::AuthorityRetired] {
        assert!(!fault.hint().is_empty());
    }
}

fn handshake_with(server: rustls::ServerConfig, client: rustls::ClientConfig, world: &World) -> io::Error {
    let (mut ours, mut theirs) = crate::world::streams();
    let served = std::thread::spawn(move || {
        let mut tls = rustls::ServerConnection::new(server.into()).unwrap();
        drop(tls.complete_io(&mut theirs));
    });
    let mut tls = rustls::ClientConnection::new(client.into(), world.identity.zone().server_name()).unwrap();
    let error = tls.complete_io(&mut ours).unwrap_err();
    drop(ours);
    served.join().unwrap();
    error
}

fn handshake_with_bytes(answer: &'static [u8], client: rustls::ClientConfig) -> io::Error {
    use std::io::Write as _;
    let (mut ours, mut theirs) = crate::world::streams();
    theirs.write_all(answer).unwrap();
    let mut tls = rustls::ClientConnection::new(client.into(), "x.example".try_into().unwrap()).unwrap();
    let error = tls.complete_io(&mut ours).unwrap_err();
    drop(theirs);
    error
}

#[test]
fn a_device_refuses_credentials_that_do_not_fit() {
    let world = World::new();
    let (phone, laptop) = (world.pair("phone"), world.pair("laptop"));
    let zone = || world.identity.zone().clone();
    let bundle = world.identity.trust_bundle();
    let wrong_key = DeviceCredentials::new(zone(), &phone.paired.certificate, &laptop.paired.key, &bundle);
    assert!(wrong_key.is_err());
    let no_authority = DeviceCredentials::new(zone(), &phone.paired.certificate, &phone.paired.key, &[]);
    assert!(no_authority.is_err());
    let leaf = [laptop.paired.certificate.clone()];
    assert!(DeviceCredentials::new(zone(), &phone.paired.certificate, &phone.paired.key, &leaf).is_err());
}
