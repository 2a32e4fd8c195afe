//! One generation of the authority follows another, and devices that come in the meantime notice nothing.

use crate::world::{DAY, Device, HOUR, World, owner};
use palyra_identity::{ConnectionFault, DeviceKey, DeviceWarning, KeyName, KeyVault as _, MAX_OVERLAP};
use std::time::Duration;

fn renew(world: &World, device: &mut Device) {
    let connected = world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).unwrap();
    let key = DeviceKey::generate().unwrap();
    let request = key.signing_request(device.paired.device_id.as_str()).unwrap();
    let issued = world.identity.renew(&connected, &request).unwrap();
    device.credentials.replace(&issued.certificate, &key, &issued.authorities).unwrap();
    (device.paired.certificate, device.paired.key) = (issued.certificate, key);
}

fn comes_in(world: &World, device: &Device) -> bool {
    world.connect(device).request().is_ok_and(|answer| !answer.starts_with("refused"))
}

#[test]
fn a_rotation_with_overlap_loses_no_device_that_comes() {
    let world = World::new();
    let mut phone = world.pair("phone");
    let mut away = world.pair("away");
    let mut open = world.connect(&phone);
    open.request().unwrap();
    let view = world.identity.rotate_authority(&owner(), 7 * DAY, None).unwrap();
    assert_eq!((view.generation, world.identity.trust_bundle().len()), (2, 2));
    assert!(comes_in(&world, &phone) && comes_in(&world, &away), "old certificates are good");
    assert_eq!(open.request().unwrap(), "phone user:ana operator");
    let warned = world.identity.device("phone").unwrap().warnings;
    assert!(warned.contains(&DeviceWarning::AuthorityRetiring), "{warned:?}");

    // Both are trusted: devices renew under the new one, new devices pair, and a restart changes nothing.
    world.clock.advance(HOUR);
    renew(&world, &mut phone);
    let world = world.restart().unwrap();
    assert!(comes_in(&world, &phone) && comes_in(&world, &away));
    let mut tablet = world.pair("tablet");
    assert!(comes_in(&world, &tablet));
    let qr = world.qr();
    assert_eq!(qr.code.authority(), Some(world.identity.authorities()[1].fingerprint), "what the server shows");

    // Days pass; who comes renews, who does not lapses.
    for _ in 0..13 {
        world.clock.advance(13 * HOUR);
        world.identity.tend().unwrap();
        renew(&world, &mut phone);
        renew(&world, &mut tablet);
    }
    assert_eq!(world.identity.trust_bundle().len(), 1, "the old one is retired");
    let first: KeyName = "identity.authority.1".parse().unwrap();
    assert!(world.vault.load(&first).unwrap().is_none(), "and its key is gone");
    assert!(comes_in(&world, &phone) && comes_in(&world, &tablet), "they trust the new one");
    let error = world.connect(&away).request().unwrap_err();
    assert_eq!(ConnectionFault::of(&error).unwrap().code(), "authority_changed", "it never heard of the new one");
    away = {
        let request =
            palyra_identity::pairing::CodeRequest { device: Some(away.paired.device_id.clone()), ..world.request() };
        let code = world.desk.create_code(request).unwrap().code;
        world.pair_with("away", &code).unwrap()
    };
    assert!(comes_in(&world, &away));
}

#[test]
fn a_rotation_without_overlap_cuts_everybody_off_at_once() {
    let world = World::new();
    let phone = world.pair("phone");
    let mut open = world.connect(&phone);
    open.request().unwrap();
    world.identity.rotate_authority(&owner(), Duration::ZERO, None).unwrap();
    assert_eq!(open.request().unwrap(), "refused certificate_authority_retired");
    let error = world.connect(&phone).request().unwrap_err();
    assert_eq!(ConnectionFault::of(&error).unwrap().code(), "authority_changed");
    let certificate = [phone.paired.certificate.clone()];
    assert_eq!(world.identity.connected(Some(&certificate)).unwrap_err().code(), "certificate_authority_retired");
    let request =
        palyra_identity::pairing::CodeRequest { device: Some(phone.paired.device_id.clone()), ..world.request() };
    let code = world.desk.create_code(request).unwrap().code;
    assert!(comes_in(&world, &world.pair_with("phone", &code).unwrap()));
}

#[test]
fn a_new_generation_may_be_for_other_hosts() {
    let world = World::new();
    let hosts = vec!["other.example.org".parse().unwrap()];
    world.identity.rotate_authority(&owner(), DAY, Some(hosts.clone())).unwrap();
    let views = world.identity.authorities();
    assert_eq!((views[0].hosts.clone(), views[1].hosts.len()), (hosts, 2));
    let too_many = vec!["x.example.org".parse().unwrap(); 17];
    assert_eq!(world.identity.rotate_authority(&owner(), DAY, Some(too_many)).unwrap_err().code(), "too_many");
}

#[test]
fn rotations_are_bounded() {
    let world = World::new();
    let long = MAX_OVERLAP + Duration::from_secs(1);
    assert_eq!(world.identity.rotate_authority(&owner(), long, None).unwrap_err().code(), "duration_out_of_range");
    for _ in 0..3 {
        world.identity.rotate_authority(&owner(), DAY, None).unwrap();
    }
    assert_eq!(world.identity.rotate_authority(&owner(), DAY, None).unwrap_err().code(), "too_many");
    for _ in 0..10 {
        world.clock.advance(2 * DAY);
        world.identity.rotate_authority(&owner(), DAY, None).unwrap();
    }
    assert_eq!(world.identity.authorities().len(), 8, "what is remembered is bounded");
    let world = world.restart().unwrap();
    assert_eq!(world.identity.authorities()[0].generation, 14);
}

#[test]
fn an_authority_near_its_end_is_followed_by_the_next() {
    let world = World::new();
    world.clock.advance(5 * 365 * DAY - 100 * DAY);
    world.identity.tend().unwrap();
    let views = world.identity.authorities();
    assert_eq!(views.len(), 2);
    assert!(views[1].retires_at.is_some());
    world.identity.tend().unwrap();
    assert_eq!(world.identity.authorities().len(), 2, "once");
}

#[test]
fn without_its_key_the_authority_signs_nothing_and_says_so() {
    let world = World::new();
    let phone = world.pair("phone");
    let name: KeyName = "identity.authority.1".parse().unwrap();
    let key = world.vault.load(&name).unwrap().unwrap();
    world.vault.remove(&name).unwrap();
    let connected = world.identity.connected(Some(std::slice::from_ref(&phone.paired.certificate))).unwrap();
    assert!(world.identity.check(&connected).is_ok(), "devices still come in");
    world.clock.advance(HOUR);
    let request = DeviceKey::generate().unwrap().signing_request(phone.paired.device_id.as_str()).unwrap();
    assert_eq!(world.identity.renew(&connected, &request).unwrap_err().code(), "authority_key_missing");
    assert_eq!(world.identity.renew_server_certificate().unwrap_err().code(), "authority_key_missing");
    // Somebody else's key in its place is no better.
    let other = World::new().vault.load(&name).unwrap().unwrap();
    world.vault.store(&name, &other).unwrap();
    assert_eq!(world.identity.renew(&connected, &request).unwrap_err().code(), "authority_key_missing");
    world.vault.store(&name, &key).unwrap();
    assert!(world.identity.renew(&connected, &request).is_ok());
}
