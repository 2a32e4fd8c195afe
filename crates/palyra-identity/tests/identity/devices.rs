//! What people do with devices.

use crate::world::{DAY, Device, World, owner, principal};
use palyra_identity::pairing::CodeRequest;
use palyra_identity::{
    BrowserRequest, ConnectedDevice, ConnectionFault, DeviceKind, DeviceName, DeviceState, DeviceWarning,
};
use palyra_protocol::WorkspaceRole;

fn name(text: &str) -> DeviceName {
    text.parse().unwrap()
}

fn connected(world: &World, device: &Device) -> ConnectedDevice {
    world.identity.connected(Some(std::slice::from_ref(&device.paired.certificate))).unwrap()
}

#[test]
fn devices_are_listed_with_what_is_worth_a_look() {
    let world = World::new();
    let boss = CodeRequest { role: WorkspaceRole::Owner, principal: principal("device:kiosk"), ..world.request() };
    let code = world.desk.create_code(boss).unwrap().code;
    world.pair_with("kiosk", &code).unwrap();
    let phone = world.pair("Phone");
    world.pair("laptop");
    world.identity.revoke(&owner(), "laptop", "stolen").unwrap();
    world.connect(&phone).request().unwrap();
    let list = world.identity.devices();
    let names: Vec<_> = list.iter().map(|view| view.device.name.as_str()).collect();
    assert_eq!(names, ["kiosk", "Phone", "laptop"], "by name, revoked ones last");
    assert_eq!(list[0].warnings, [DeviceWarning::NeverSeen, DeviceWarning::OwnerRole]);
    assert_eq!((list[1].warnings.len(), list[1].last_seen.is_some()), (0, true));
    assert_eq!(list[2].state, DeviceState::Revoked);
    assert_eq!(list[2].device.revoked.as_ref().unwrap().reason, "stolen");
    world.clock.advance(31 * DAY);
    let view = world.identity.device("phone").unwrap();
    assert_eq!(view.state, DeviceState::Lapsed);
    assert_eq!(view.warnings, [DeviceWarning::LongUnseen, DeviceWarning::Lapsed]);
    assert_eq!(view.certificate_age_seconds, Some(31 * 24 * 3600));
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["name"], "Phone");
    assert_eq!(json["state"], "lapsed");
}

#[test]
fn when_a_device_last_came_survives_a_restart() {
    let world = World::new();
    let phone = world.pair("phone");
    world.connect(&phone).request().unwrap();
    let seen = world.identity.device("phone").unwrap().last_seen;
    world.identity.tend().unwrap();
    let world = world.restart().unwrap();
    assert_eq!(world.identity.device("phone").unwrap().last_seen, seen);
    std::fs::write(world.dir.path().join(palyra_identity::LAST_SEEN_FILE), b"rubbish").unwrap();
    let world = world.restart().unwrap();
    assert_eq!(world.identity.device("phone").unwrap().last_seen, None, "forgotten, and nothing else");
}

#[test]
fn names_are_unique_and_ids_work_everywhere() {
    let world = World::new();
    let phone = world.pair("phone");
    world.pair("laptop");
    let refuse = |new: &str| world.identity.rename(&owner(), "phone", name(new)).unwrap_err().code();
    assert_eq!(refuse("Laptop"), "device_name_taken");
    world.identity.rename(&owner(), "phone", name("PHONE")).unwrap();
    world.identity.rename(&owner(), phone.paired.device_id.as_str(), name("Ana's phone")).unwrap();
    assert_eq!(world.identity.device("phone").unwrap_err().code(), "device_unknown");
    world.identity.rename(&owner(), "laptop", name("phone")).unwrap();
    assert!(world.identity.device("nobody\u{202e}").unwrap_err().to_string().contains("\\u{202e}"));
}

#[test]
fn a_revoked_device_is_final_and_can_be_removed() {
    let world = World::new();
    let phone = world.pair("phone");
    let id = phone.paired.device_id.as_str();
    assert_eq!(world.identity.remove(&owner(), "phone").unwrap_err().code(), "device_not_revoked");
    assert_eq!(world.identity.revoke(&owner(), "phone", "a\u{7}b").unwrap_err().code(), "device_reason");
    assert_eq!(world.identity.revoke(&owner(), "phone", &"x".repeat(201)).unwrap_err().code(), "device_reason");
    world.identity.revoke(&owner(), "phone", "lost").unwrap();
    assert_eq!(world.identity.device("phone").unwrap_err().code(), "device_unknown", "its name is free");
    assert_eq!(world.identity.revoke(&owner(), id, "again").unwrap_err().code(), "device_revoked");
    assert_eq!(world.identity.rename(&owner(), id, name("x")).unwrap_err().code(), "device_revoked");
    assert_eq!(world.identity.rotate(&owner(), id).unwrap_err().code(), "device_revoked");
    let request = CodeRequest { device: Some(phone.paired.device_id.clone()), ..world.request() };
    assert_eq!(world.desk.create_code(request).unwrap_err().code(), "device_revoked");
    world.identity.remove(&owner(), id).unwrap();
    assert!(world.identity.devices().is_empty());
    let changes: Vec<_> = world.journal.changes.lock().unwrap().iter().map(|c| c.change["change"].clone()).collect();
    assert_eq!(changes, ["authority_made", "device_paired", "device_revoked", "device_removed"]);
}

#[test]
fn a_browser_comes_in_beside_its_device_and_goes_with_it() {
    let world = World::new();
    let laptop = world.pair("laptop");
    let at = connected(&world, &laptop);
    let request = BrowserRequest::begin(name("firefox on laptop")).unwrap();
    let issued = world.identity.add_browser(&at, request.name(), request.request()).unwrap();
    let view = world.identity.device("firefox on laptop").unwrap();
    assert_eq!((view.device.kind, view.device.parent), (DeviceKind::Browser, Some(laptop.paired.device_id)));
    let browser = world.identity.connected(Some(std::slice::from_ref(&issued.certificate))).unwrap();
    world.clock.advance(3 * DAY);
    assert!(!world.identity.check(&browser).unwrap().renewal_due(), "nothing in a browser renews it");
    assert_eq!(world.identity.renew(&browser, request.request()).unwrap_err().code(), "csr_foreign_name");
    let again = BrowserRequest::begin(name("another")).unwrap();
    let refused = world.identity.add_browser(&browser, again.name(), again.request()).unwrap_err();
    assert_eq!(refused.code(), "device_unknown", "a browser adds no browsers");
    assert_eq!(
        world.identity.add_browser(&at, again.name(), again.request()).unwrap_err().code(),
        "certificate_expired",
        "the laptop did not renew"
    );
    world.clock.advance(4 * DAY);
    assert_eq!(world.identity.check(&browser).unwrap_err().code(), "certificate_expired", "after a week");

    world.identity.tend().unwrap();
    let phone = world.pair("phone");
    let at = connected(&world, &phone);
    let request = BrowserRequest::begin(name("safari")).unwrap();
    let issued = world.identity.add_browser(&at, request.name(), request.request()).unwrap();
    let browser = world.identity.connected(Some(&[issued.certificate])).unwrap();
    world.identity.revoke(&owner(), "phone", "lost").unwrap();
    assert_eq!(world.identity.check(&browser).unwrap_err().code(), "device_revoked");
    let error = world.connect(&phone).request().unwrap_err();
    assert_eq!(ConnectionFault::of(&error), Some(ConnectionFault::Revoked));
    world.identity.remove(&owner(), phone.paired.device_id.as_str()).unwrap();
    assert_eq!(world.identity.check(&browser).unwrap_err().code(), "certificate_not_issued", "removed with it");
}
