//! Certificates of every kind at the listener for paired devices: one lets in, the others are refused by name.

use crate::world::{DAY, Device, HOUR, World, owner};
use palyra_identity::{ConnectionFault, DeviceCredentials, DeviceKey, client_config};
use palyra_protocol::{Clock as _, Secret};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType, SerialNumber};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::sync::Arc;
use std::time::Duration;

/// A certificate like a device's, to be spoilt.
struct Forged {
    params: CertificateParams,
    key: KeyPair,
}

impl Forged {
    fn like(world: &World, device: &Device) -> Self {
        let mut params = CertificateParams::default();
        let zone = world.identity.zone();
        let uri = format!("palyra://{zone}/device/{}/{}", device.paired.device_id, device.paired.principal);
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, device.paired.device_id.as_str());
        let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_millis(world.clock.now().unix_ms());
        (params.not_before, params.not_after) = (now - HOUR, now + HOUR);
        let record = &world.identity.device(device.paired.device_id.as_str()).unwrap().device.certificates[0];
        params.serial_number = Some(SerialNumber::from_slice(&hex::decode(record.serial.to_string()).unwrap()));
        Self { params, key: KeyPair::generate().unwrap() }
    }

    fn edit(mut self, edit: impl FnOnce(&mut CertificateParams)) -> Self {
        edit(&mut self.params);
        self
    }

    fn signed(self, world: &World) -> (CertificateDer<'static>, KeyPair) {
        let certificate = self.params.signed_by(&self.key, &world.stolen_authority()).unwrap();
        (certificate.der().clone(), self.key)
    }
}

/// What the daemon says to whoever comes with this certificate, and what its journal has.
fn refused(world: &World, (certificate, key): (CertificateDer<'static>, KeyPair)) -> &'static str {
    let authorities = world.identity.trust_bundle();
    let key = DeviceKey::from_secret(&Secret::new(key.serialize_der())).unwrap();
    let zone = world.identity.zone().clone();
    let credentials = DeviceCredentials::new(zone, &certificate, &key, &authorities).unwrap();
    let before = world.journal.refused_codes();
    let mut client = world.connect_with(client_config(&credentials, world.clock.clone(), &[b"h2"]).unwrap());
    client.request().unwrap_err();
    client.close().unwrap_err();
    world.identity.tend().unwrap();
    let after = world.journal.refused_codes();
    let code = after.into_iter().find(|code| !before.contains(code)).unwrap_or_default();
    world.journal.take_events();
    code.leak()
}

impl crate::world::MemoryJournal {
    fn refused_codes(&self) -> Vec<String> {
        let of = |event: &palyra_identity::IdentityEvent| match event {
            palyra_identity::IdentityEvent::Refused { refused, .. } => refused.keys().cloned().collect(),
            _ => vec![],
        };
        self.events.lock().unwrap().iter().flat_map(of).collect()
    }
}

#[test]
fn only_a_certificate_that_was_issued_lets_in() {
    let world = World::new();
    let device = world.pair("phone");
    let forged = || Forged::like(&world, &device);
    let check = |forged: Forged, expected: &str| assert_eq!(refused(&world, forged.signed(&world)), expected);

    // Whoever stole the authority's key can make everything but an entry in the registry.
    check(forged(), "certificate_not_issued");
    check(forged().edit(|p| p.serial_number = Some(SerialNumber::from_slice(&[0x41; 16]))), "certificate_not_issued");
    check(forged().edit(|p| p.serial_number = Some(SerialNumber::from(7_u64))), "certificate_not_issued");

    // What path validation finds.
    let at = |p: &mut CertificateParams, from: i64, until: i64| {
        let now = p.not_before + HOUR;
        p.not_before = if from < 0 { now - HOUR * from.unsigned_abs() as u32 } else { now + HOUR * from as u32 };
        p.not_after = if until < 0 { now - HOUR * until.unsigned_abs() as u32 } else { now + HOUR * until as u32 };
    };
    check(forged().edit(|p| at(p, -3, -1)), "certificate_expired");
    check(forged().edit(|p| at(p, 1, 3)), "certificate_not_yet_valid");
    check(forged().edit(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]), "certificate_purpose");

    // What it does not.
    check(forged().edit(|p| p.extended_key_usages = vec![]), "certificate_purpose");
    check(forged().edit(|p| p.extended_key_usages.push(ExtendedKeyUsagePurpose::Any)), "certificate_purpose");
    check(forged().edit(|p| p.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth)), "certificate_purpose");
    check(forged().edit(|p| p.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained)), "certificate_is_authority");
    check(forged().edit(|p| p.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign]), "certificate_is_authority");
    check(forged().edit(|p| p.subject_alt_names = vec![]), "certificate_name");
    let host = || SanType::DnsName(world.identity.zone().as_str().try_into().unwrap());
    check(forged().edit(|p| p.subject_alt_names = vec![host()]), "certificate_name");
    check(forged().edit(|p| p.subject_alt_names.push(host())), "certificate_name");
    check(
        forged().edit(|p| p.subject_alt_names = vec![SanType::DnsName("example.org".try_into().unwrap())]),
        "certificate_name",
    );
    let other = World::new();
    let uri = format!("palyra://{}/device/{}/user:ana", other.identity.zone(), device.paired.device_id);
    check(forged().edit(|p| p.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())]), "certificate_name");

    assert_eq!(world.connect(&device).request().unwrap(), "phone user:ana operator", "the real one goes on");
}

#[test]
fn foreign_and_self_signed_certificates_are_refused() {
    let world = World::new();
    let device = world.pair("phone");
    let Forged { params, key } = Forged::like(&world, &device);
    let own = params.self_signed(&key).unwrap().der().clone();
    assert_eq!(refused(&world, (own, key)), "certificate_self_signed");

    let other = World::new();
    let foreign = Forged::like(&world, &device).signed(&other);
    assert_eq!(refused(&world, foreign), "certificate_foreign", "another daemon's authority");

    // An authority that calls itself as ours does, with a key of its own.
    let key = KeyPair::generate().unwrap();
    let impostor = rcgen::Issuer::from_ca_cert_der(&world.identity.trust_bundle()[0], key).unwrap();
    let Forged { params, key } = Forged::like(&world, &device);
    let signed = params.signed_by(&key, &impostor).unwrap().der().clone();
    assert_eq!(refused(&world, (signed, key)), "certificate_signature");
}

#[test]
fn every_changed_byte_of_a_certificate_is_refused() {
    let world = World::new();
    let device = world.pair("phone");
    let der = device.paired.certificate.to_vec();
    for at in 0..der.len() {
        let mut changed = der.clone();
        changed[at] ^= 1;
        let chain = [CertificateDer::from(changed)];
        assert!(world.identity.connected(Some(&chain)).is_err(), "byte {at}");
    }
    assert!(world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).is_ok());
    assert_eq!(world.identity.connected(None).unwrap_err().code(), "certificate_missing");
    assert_eq!(world.identity.connected(Some(&[])).unwrap_err().code(), "certificate_missing");
}

#[test]
fn other_kinds_of_keys_do_not_come_in() {
    let world = World::new();
    let device = world.pair("phone");
    let Forged { params, .. } = Forged::like(&world, &device);
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let certificate = params.signed_by(&key, &world.stolen_authority()).unwrap().der().clone();
    assert_eq!(
        world.identity.connected(Some(std::slice::from_ref(&certificate))).unwrap_err().code(),
        "certificate_key"
    );
    // In a handshake the signature alone is refused: the scheme was not offered.
    let der = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_details(provider, world.clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots(&world))
        .with_client_auth_cert(vec![certificate], der)
        .unwrap();
    assert!(world.connect_with(config).request().is_err());
}

fn roots(world: &World) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(world.identity.trust_bundle());
    roots
}

#[test]
fn without_a_certificate_nobody_comes_in() {
    let world = World::new();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_details(provider, world.clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots(&world))
        .with_no_client_auth();
    let error = world.connect_with(config).request().unwrap_err();
    assert_eq!(ConnectionFault::of(&error), Some(ConnectionFault::CertificateRequired));
}

#[test]
fn a_clock_that_jumps_refuses_and_recovers() {
    let world = World::new();
    let device = world.pair("phone");
    let connected = world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).unwrap();
    assert!(world.identity.check(&connected).is_ok());
    let now = world.clock.now().unix_ms();
    world.clock.advance(DAY);
    assert_eq!(
        world.identity.check(&connected).unwrap_err().code(),
        "certificate_expired",
        "on the open connection too"
    );
    world.clock.set(now - 2 * 24 * 3600 * 1000);
    let chain = [device.paired.certificate.clone()];
    assert!(world.identity.connected(Some(&chain)).is_err(), "before the authority and the certificate began");
    world.clock.set(now - 10 * 60 * 1000);
    assert_eq!(world.identity.connected(Some(&chain)).unwrap_err().code(), "certificate_not_yet_valid");
    world.clock.set(now);
    assert_eq!(world.connect(&device).request().unwrap(), "phone user:ana operator");
    // What was revoked stays revoked whatever the clock says.
    world.identity.revoke(&owner(), "phone", "lost").unwrap();
    world.clock.set(now - 1000);
    assert_eq!(world.identity.check(&connected).unwrap_err().code(), "device_revoked");
}
