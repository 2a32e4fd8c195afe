//! Pairing as people do it, and what becomes of codes.

use crate::world::{DAY, Program, START, World, credentials, introduction, owner, waiting};
use palyra_identity::pairing::{
    self, CODE_LIFE, CodeRequest, GUESSES, MAX_BACK_OFF, MAX_SECRETS, PENDING_LIFE, PairingCode, PairingError,
};
use palyra_identity::{DeviceState, IdentityEvent};
use palyra_protocol::WorkspaceRole;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_device_pairs_by_pin_and_comes_in() {
    let world = World::new();
    let device = world.pair("Ana's phone");
    assert_eq!(world.connect(&device).request().unwrap(), "Ana's phone user:ana operator");
    let view = world.identity.device("ana's PHONE").unwrap();
    assert_eq!((view.state, view.device.device_id), (DeviceState::Active, device.paired.device_id));
    let kinds = world.journal.kinds();
    for kind in ["pairing.code_created", "pairing.code_ended", "pairing.pending", "pairing.ended"] {
        assert_eq!(kinds.iter().filter(|k| **k == kind).count(), 1, "{kind}: {kinds:?}");
    }
    assert_eq!(world.desk.open_until(), None, "the listener closes");
    assert_eq!(world.desk.half_open(), 0);
}

#[test]
fn a_device_pairs_by_the_text_of_a_qr_code() {
    let world = World::new();
    let made = world.qr();
    let PairingCode::Qr(qr) = &made.code else { panic!("{made:?}") };
    let typed: PairingCode = qr.reveal().parse().unwrap();
    assert_eq!(typed.authority(), Some(world.identity.authorities()[0].fingerprint));
    let device = world.pair_with("tablet", &typed).unwrap();
    assert_eq!(world.connect(&device).request().unwrap(), "tablet user:ana operator");
}

#[test]
fn a_pin_is_typed_as_it_is_read() {
    let world = World::new();
    let made = world.pin();
    let PairingCode::Pin(pin) = &made.code else { panic!("{made:?}") };
    let typed: PairingCode = pin.reveal().replace(' ', "-").parse().unwrap();
    assert!(world.pair_with("phone", &typed).is_ok());
}

#[test]
fn nobody_is_let_in_before_a_person_says_yes_and_not_after_a_no() {
    let world = World::new();
    let code = world.pin().code;
    let (mut socket, served) = world.listen();
    let (clock, desk) = (world.clock.clone(), Arc::clone(&world.desk));
    let device = std::thread::spawn(move || {
        let mut program = Program::default();
        let paired = pairing::pair(&mut socket, &code, introduction("phone"), clock, &mut program);
        (paired.map(|paired| paired.device_id), program.words.unwrap(), program.stored)
    });
    let view = loop {
        match desk.pending().pop() {
            Some(view) => break view,
            None => std::thread::yield_now(),
        }
    };
    assert!(world.identity.devices().is_empty());
    assert_eq!((view.name.as_str(), view.platform.as_str(), view.source.as_str()), ("phone", "linux", "test"));
    world.desk.deny(view.pairing, &owner()).unwrap();
    let (paired, words, stored) = device.join().unwrap();
    assert_eq!(words, view.words, "both screens show the same words");
    assert_eq!(paired.unwrap_err().code(), "pairing_denied");
    assert!(!stored && world.identity.devices().is_empty());
    assert_eq!(served.join().unwrap().unwrap_err().code(), "pairing_denied");
    assert_eq!(world.desk.approve(view.pairing, &owner()).unwrap_err().code(), "pairing_not_pending", "no is final");
}

#[test]
fn a_wrong_pin_is_refused_and_three_burn_the_code() {
    let world = World::new();
    let right = world.pin().code;
    let wrong: PairingCode =
        if right == "00000000".parse().unwrap() { "00000001" } else { "00000000" }.parse().unwrap();
    for guess in 1..=GUESSES {
        let refused = world.pair_with("phone", &wrong).err().unwrap();
        let expected = if guess < GUESSES { "wrong_code" } else { "code_burned" };
        assert_eq!(refused.code(), expected, "guess {guess}");
        let closed = world.pair_with("phone", &right).err().unwrap();
        assert!(matches!(closed.code(), "pairing_back_off"), "after a wrong guess the desk is closed: {closed}");
        assert!(closed.retry_after() > Duration::ZERO);
        world.clock.advance(Duration::from_secs(1 << guess));
    }
    assert_eq!(world.pair_with("phone", &right).err().unwrap().code(), "no_code", "the right one is void as well");
    assert_eq!(world.desk.open_until(), None);
    assert!(world.identity.devices().is_empty());
    world.identity.tend().unwrap();
    assert_eq!(world.journal.refused("wrong_code"), u64::from(GUESSES) - 1);
    assert_eq!(world.journal.refused("code_burned"), 1);
    let burned = |event: &IdentityEvent| matches!(event, IdentityEvent::CodeEnded { how, .. } if how == "burned");
    assert!(world.journal.take_events().iter().any(burned));
}

#[test]
fn wrong_guesses_close_the_desk_for_longer_each_time_and_are_forgotten() {
    let world = World::new();
    let mut waits = Vec::new();
    for _ in 0..12 {
        let right = world.pin().code;
        let wrong: PairingCode =
            if right == "00000000".parse().unwrap() { "1" } else { "0" }.repeat(8).parse().unwrap();
        assert_eq!(world.pair_with("phone", &wrong).err().unwrap().code(), "wrong_code");
        let closed = world.pair_with("phone", &right).err().unwrap();
        assert_eq!(closed.code(), "pairing_back_off", "whatever code is tried next");
        waits.push(closed.retry_after());
        world.clock.advance(closed.retry_after());
    }
    assert!(waits.is_sorted() && waits[0] <= Duration::from_secs(1), "{waits:?}");
    assert_eq!(waits.last(), Some(&MAX_BACK_OFF));
    let right = world.pin().code;
    assert!(world.pair_with("phone", &right).is_ok(), "whoever knows the code is let in when the time is over");
    let refused = world.pair_with("phone", &"0".repeat(8).parse().unwrap()).err().unwrap();
    assert_eq!(refused.code(), "no_code", "and nothing is held against the next");
}

#[test]
fn a_code_is_used_once() {
    let world = World::new();
    let code = world.pin().code;
    world.pair_with("phone", &code).unwrap();
    assert_eq!(world.pair_with("laptop", &code).err().unwrap().code(), "no_code");
    assert_eq!(world.identity.devices().len(), 1);
}

#[test]
fn of_two_who_know_the_code_one_is_let_in() {
    let world = World::new();
    let code = world.pin().code;
    let pair = |name: &'static str| {
        let (mut socket, served) = world.listen();
        let (clock, code, desk) = (world.clock.clone(), code.clone(), Arc::clone(&world.desk));
        let device = std::thread::spawn(move || {
            let mut program = Program { desk: Some(desk), ..Program::default() };
            pairing::pair(&mut socket, &code, introduction(name), clock, &mut program).map(drop)
        });
        (device, served)
    };
    let both = [pair("one"), pair("two")];
    let ends: Vec<_> =
        both.into_iter().map(|(device, served)| (device.join().unwrap(), served.join().unwrap())).collect();
    assert_eq!(ends.iter().filter(|(device, _)| device.is_ok()).count(), 1, "{ends:?}");
    assert_eq!(world.identity.devices().len(), 1);
}

#[test]
fn a_code_expires_and_a_clock_that_jumps_revives_none() {
    let world = World::new();
    let code = world.pin().code;
    world.clock.advance(Duration::from_secs(5 * 60));
    assert_eq!(world.pair_with("phone", &code).err().unwrap().code(), "no_code");
    assert_eq!(world.desk.open_until(), None);
    world.desk.tend();
    world.clock.set(START);
    assert_eq!(world.pair_with("phone", &code).err().unwrap().code(), "no_code", "it stays over");
    let code = world.pin().code;
    world.clock.set(START - 1000);
    assert_eq!(
        world.pair_with("phone", &code).err().unwrap().code(),
        "no_code",
        "a clock before its beginning ends it"
    );
}

#[test]
fn a_second_pin_takes_the_place_of_the_first_and_codes_are_bounded() {
    let world = World::new();
    let first = world.pin();
    let second = world.pin();
    assert_eq!(second.replaced, Some(first.id));
    assert!(matches!(world.pair_with("phone", &first.code).err().unwrap().code(), "wrong_code"));
    world.clock.advance(Duration::from_secs(1));
    assert!(world.pair_with("phone", &second.code).is_ok());
    let codes: Vec<_> = (0..MAX_SECRETS).map(|_| world.qr()).collect();
    let request = CodeRequest { address: Some("127.0.0.1:7444".parse().unwrap()), ..world.request() };
    assert_eq!(world.desk.create_code(request).unwrap_err().code(), "too_many");
    assert!(world.desk.withdraw_code(codes[0].id) && !world.desk.withdraw_code(codes[0].id));
    assert_eq!(world.pair_with("x", &codes[0].code).err().unwrap().code(), "no_code");
    assert!(world.pair_with("tablet", &codes[1].code).is_ok(), "each has an id and is found by it");
}

#[test]
fn codes_are_made_within_limits_and_for_people() {
    let world = World::new();
    let (least, most) = CODE_LIFE;
    for life in [Duration::ZERO, least - Duration::from_secs(1), most + Duration::from_secs(1)] {
        let refused = world.desk.create_code(CodeRequest { life, ..world.request() }).unwrap_err();
        assert_eq!(refused.code(), "duration_out_of_range");
    }
    for who in ["agent:coder", "system:palyrad"] {
        let request = CodeRequest { principal: who.parse().unwrap(), ..world.request() };
        assert_eq!(world.desk.create_code(request).unwrap_err().code(), "device_principal");
    }
    let request = CodeRequest { device: Some("dev_01K".parse().unwrap()), ..world.request() };
    assert_eq!(world.desk.create_code(request).unwrap_err().code(), "device_unknown");
}

#[test]
fn a_pairing_that_nobody_answers_ends() {
    let world = World::new();
    let code = world.pin().code;
    let (mut socket, served) = world.listen();
    let clock = world.clock.clone();
    // The person says yes a moment too late.
    struct Late<'a>(&'a World);
    impl pairing::PairingProgress for Late<'_> {
        fn show(&mut self, words: pairing::MatchingWords) {
            let view = waiting(&self.0.desk, words);
            self.0.desk.approve(view.pairing, &owner()).unwrap();
            self.0.clock.advance(PENDING_LIFE);
        }
        fn store(&mut self, _: &pairing::Paired) -> Result<(), PairingError> {
            Ok(())
        }
    }
    let paired = pairing::pair(&mut socket, &code, introduction("phone"), clock, &mut Late(&world));
    let served = served.join().unwrap();
    // The daemon may have concluded before the clock moved; either way both sides agree.
    assert_eq!(paired.is_ok(), served.is_ok());
    if let Err(error) = paired {
        assert_eq!(error.code(), "pairing_unanswered");
        assert!(world.identity.devices().is_empty());
    }
}

#[test]
fn a_lapsed_device_is_paired_again_as_itself() {
    let world = World::new();
    let device = world.pair("phone");
    world.connect(&device).request().unwrap();
    world.clock.advance(2 * DAY);
    world.identity.tend().unwrap();
    assert_eq!(world.identity.device("phone").unwrap().state, DeviceState::Lapsed);
    let request = CodeRequest {
        device: Some(device.paired.device_id.clone()),
        // What the code says of principal and role is not asked: the device keeps its own.
        role: WorkspaceRole::Owner,
        ..world.request()
    };
    let code = world.desk.create_code(request).unwrap().code;
    let again = world.pair_with("phone", &code).unwrap();
    assert_eq!(again.paired.device_id, device.paired.device_id);
    assert_eq!(world.connect(&again).request().unwrap(), "phone user:ana operator");
    let old = world.connect(&device).request().unwrap_err();
    assert_eq!(palyra_identity::ConnectionFault::of(&old).unwrap().code(), "device_certificate_time");
    assert_eq!(world.identity.devices().len(), 1);
}

#[test]
fn a_restart_in_the_middle_leaves_a_paired_device_or_none() {
    // Before the yes: none.
    let world = World::new();
    let code = world.pin().code;
    let (mut socket, served) = world.listen();
    let clock = world.clock.clone();
    let device = std::thread::spawn(move || {
        pairing::pair(&mut socket, &code, introduction("phone"), clock, &mut Program::default()).map(drop)
    });
    while world.desk.pending().is_empty() {
        std::thread::yield_now();
    }
    let pairing = world.desk.pending()[0].pairing;
    // The journal cannot record: what the person said yes to does not happen.
    world.journal.fails.store(true, std::sync::atomic::Ordering::SeqCst);
    world.desk.approve(pairing, &owner()).unwrap();
    assert_eq!(device.join().unwrap().unwrap_err().code(), "identity_journal");
    assert!(served.join().unwrap().is_err());
    world.journal.fails.store(false, std::sync::atomic::Ordering::SeqCst);
    let world = world.restart().unwrap();
    assert!(world.identity.devices().is_empty() && world.desk.pending().is_empty());

    // After the record: the device has its certificate and comes in.
    let device = world.pair("phone");
    let world = world.restart().unwrap();
    assert_eq!(world.connect(&device).request().unwrap(), "phone user:ana operator");
}

#[test]
fn a_device_that_loses_its_certificate_leaves_no_ghost() {
    struct Full;
    impl pairing::PairingProgress for Full {
        fn show(&mut self, _: pairing::MatchingWords) {}
        fn store(&mut self, _: &pairing::Paired) -> Result<(), PairingError> {
            Err(std::io::Error::other("no space left").into())
        }
    }
    let world = World::new();
    let code = world.pin().code;
    let (mut socket, served) = world.listen();
    let (desk, clock) = (Arc::clone(&world.desk), world.clock.clone());
    let person = std::thread::spawn(move || {
        while desk.pending().is_empty() {
            std::thread::yield_now();
        }
        desk.approve(desk.pending()[0].pairing, &owner()).unwrap();
    });
    let paired = pairing::pair(&mut socket, &code, introduction("phone"), clock, &mut Full);
    drop(socket);
    person.join().unwrap();
    assert_eq!(paired.unwrap_err().code(), "pairing_io");
    assert!(served.join().unwrap().is_err(), "the device never said that it has it");
    let world = world.restart().unwrap();
    assert_eq!(world.identity.devices().len(), 1, "the daemon cannot know yet");
    world.clock.advance(DAY);
    world.identity.tend().unwrap();
    assert!(
        world.identity.devices().is_empty(),
        "a certificate that nobody ever came with is over, and so is the device"
    );
    world.pair("phone");
}

#[test]
fn a_name_or_key_of_another_device_is_refused() {
    let world = World::new();
    let phone = world.pair("phone");
    for name in ["phone", "PHONE"] {
        let code = world.pin().code;
        assert_eq!(world.pair_with(name, &code).err().unwrap().code(), "device_name_taken", "{name}");
    }
    world.identity.revoke(&owner(), "phone", "lost").unwrap();
    let second = world.pair("phone");
    assert_ne!(second.paired.device_id, phone.paired.device_id, "a revoked device leaves its name free");
    let _both = credentials(&second.paired);
}
