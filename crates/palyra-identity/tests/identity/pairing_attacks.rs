//! Hostile devices, and machines in the middle.

use crate::world::{Program, World, introduction, owner, streams};
use palyra_identity::pairing::{
    self, ChannelBinding, DeviceChannel, FrameReader, HALF_OPEN_LIFE, MAX_FRAME, MAX_HALF_OPEN, PairingCode,
    PairingError, begin,
};
use palyra_identity::{DeviceKey, PairingServer, pairing_client_config};
use palyra_protocol::{DeviceId, Digest};
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A device that says what it likes, over a real pairing connection.
struct RawDevice {
    stream: StreamOwned<ClientConnection, UnixStream>,
    frames: FrameReader,
    served: JoinHandle<Result<DeviceId, PairingError>>,
}

impl RawDevice {
    fn connect(world: &World) -> Self {
        let (socket, served) = world.listen();
        let config = pairing_client_config(None, world.clock.clone()).unwrap();
        let mut stream = StreamOwned::new(client(config), socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        Self { stream, frames: FrameReader::default(), served }
    }

    fn channel(&self) -> DeviceChannel {
        DeviceChannel::of_client(&self.stream.conn).unwrap()
    }

    fn send(&mut self, frame: &[u8]) {
        self.stream.write_all(frame).unwrap();
        self.stream.flush().unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        receive(&mut self.stream, &mut self.frames)
    }

    /// Closes the connection; what the daemon made of it.
    fn end(self) -> PairingError {
        drop(self.stream);
        self.served.join().unwrap().unwrap_err()
    }

    fn refused(self) -> String {
        self.end().code().to_owned()
    }
}

fn client(config: rustls::ClientConfig) -> ClientConnection {
    ClientConnection::new(Arc::new(config), ServerName::try_from("pairing.example").unwrap()).unwrap()
}

fn receive(stream: &mut impl Read, frames: &mut FrameReader) -> Vec<u8> {
    let mut piece = [0; 4096];
    loop {
        if let Some(message) = frames.take().unwrap() {
            return message;
        }
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "the other side closed");
        frames.push(&piece[..length]).unwrap();
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// The daemon's side goes on serving: somebody who means it is paired.
fn still_serves(world: &World) {
    world.clock.advance(Duration::from_secs(600));
    assert_eq!(world.desk.half_open(), 0);
    world.pair(&format!("honest {}", world.clock_ms()));
}

impl World {
    fn clock_ms(&self) -> u64 {
        palyra_protocol::Clock::now(&*self.clock).unix_ms()
    }
}

/// A proof with another request in place of its own.
fn with_request(proof: &[u8], request: &[u8]) -> Vec<u8> {
    let tag_end = 2 + 1 + 64;
    let length = u16::try_from(request.len()).unwrap().to_be_bytes();
    framed(&[&proof[2..tag_end], &length[..], request].concat())
}

/// A device that knows the code and sends this request with its proof.
fn with_code(world: &World, key: DeviceKey, request: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let code = world.pin().code;
    let mut device = RawDevice::connect(world);
    let (offer, hello) = begin(device.channel(), &code, introduction("phone"), key, world.clock.clone()).unwrap();
    device.send(&hello);
    let answer = device.receive();
    let (_, proof) = offer.receive(&answer).unwrap();
    device.send(&request(&proof));
    let refusal = device.receive();
    assert_eq!(refusal[0], 6, "the device is told");
    device.refused()
}

#[test]
fn a_request_for_another_name_or_key_or_with_a_weak_key_is_refused() {
    let world = World::new();
    let key = || DeviceKey::generate().unwrap();
    let other = key();
    let foreign = other.signing_request("laptop").unwrap();
    assert_eq!(with_code(&world, key(), |proof| with_request(proof, &foreign)), "csr_foreign_name");
    let right_name = other.signing_request("phone").unwrap();
    assert_eq!(with_code(&world, key(), |proof| with_request(proof, &right_name)), "key_mismatch");
    let weak = include_bytes!("../../vectors/csr/rsa_1024.der");
    assert_eq!(with_code(&world, key(), |proof| with_request(proof, weak)), "key_not_accepted");
    assert_eq!(with_code(&world, key(), |proof| with_request(proof, b"")), "csr_malformed");
    assert_eq!(with_code(&world, key(), |proof| with_request(proof, &[0x30; 1025])), "pairing_message_malformed");
    let known = world.pair("laptop").paired.key;
    assert_eq!(with_code(&world, known, <[u8]>::to_vec), "key_repeated", "a key that a device has");
    assert_eq!(world.identity.devices().len(), 1);
    assert!(world.journal.refused("csr_foreign_name") >= 1, "an event each");
    still_serves(&world);
}

#[test]
fn a_transcript_replayed_on_another_connection_proves_nothing() {
    let world = World::new();
    let code = world.pin().code;
    // What the device said on a connection that the attacker held back.
    let mut held = RawDevice::connect(&world);
    let key = DeviceKey::generate().unwrap();
    let (offer, hello) = begin(held.channel(), &code, introduction("phone"), key, world.clock.clone()).unwrap();
    held.send(&hello);
    let answer = held.receive();
    let (_, proof) = offer.receive(&answer).unwrap();
    // The same on the attacker's own connection.
    let mut replayed = RawDevice::connect(&world);
    replayed.send(&hello);
    replayed.receive();
    replayed.send(&proof);
    replayed.receive();
    assert_eq!(replayed.refused(), "wrong_code");
    assert_eq!(held.refused(), "pairing_io");
    assert!(world.identity.devices().is_empty());
    still_serves(&world);
}

/// A machine in the middle: it speaks TLS to both sides, and may rewrite what it passes on.
struct Middle {
    server: PairingServer,
}

/// What the machine does with the daemon's offer.
enum Rewrite {
    /// Passes everything on as it is.
    Nothing,
    /// Puts its own zone and authority in front of the daemon's share.
    OwnIdentity(Box<World>),
}

impl Middle {
    /// Sits between the device's socket and the daemon's listener.
    fn relay(self, world: &World, rewrite: Rewrite) -> (UnixStream, JoinHandle<String>) {
        let (device, theirs) = streams();
        let (onward, served) = world.listen();
        let config = pairing_client_config(None, world.clock.clone()).unwrap();
        let handle = std::thread::spawn(move || {
            let mut to_device =
                StreamOwned::new(ServerConnection::new(Arc::clone(&self.server.config)).unwrap(), theirs);
            let mut to_daemon = StreamOwned::new(client(config), onward);
            let (mut from_device, mut from_daemon) = (FrameReader::default(), FrameReader::default());
            let hello = receive(&mut to_device, &mut from_device);
            to_daemon.write_all(&framed(&hello)).unwrap();
            let mut offer = receive(&mut to_daemon, &mut from_daemon);
            if let Rewrite::OwnIdentity(evil) = &rewrite {
                evil.pin();
                let channel = ChannelBinding::of_server(&to_device.conn, &self.server).unwrap();
                let own = evil.desk.accept(channel, "x").unwrap().receive(&hello).unwrap().1;
                offer = [&own[2..own.len() - 32], &offer[offer.len() - 32..]].concat();
            }
            to_device.write_all(&framed(&offer)).unwrap();
            to_device.flush().unwrap();
            // The device answers, or has seen through it and is gone.
            let mut piece = [0; 4096];
            let length = to_device.read(&mut piece).unwrap_or(0);
            if length > 0 {
                to_daemon.write_all(&piece[..length]).unwrap();
                to_daemon.flush().unwrap();
                let refusal = receive(&mut to_daemon, &mut from_daemon);
                to_device.write_all(&framed(&refusal)).unwrap();
                to_device.flush().unwrap();
            }
            drop((to_device, to_daemon));
            served.join().unwrap().unwrap_err().code().to_owned()
        });
        (device, handle)
    }
}

fn pair_through(world: &World, middle: Middle, rewrite: Rewrite, code: &PairingCode) -> (PairingError, String) {
    let (mut socket, relayed) = middle.relay(world, rewrite);
    let mut program = Program::default();
    let paired = pairing::pair(&mut socket, code, introduction("phone"), world.clock.clone(), &mut program);
    drop(socket);
    assert!(program.words.is_none() && !program.stored);
    (paired.unwrap_err(), relayed.join().unwrap())
}

#[test]
fn a_machine_in_the_middle_with_a_certificate_of_its_own_fails() {
    let world = World::new();
    let evil = World::new();
    let own = || Middle { server: evil.identity.pairing_server().unwrap() };
    // It passes everything on: the device sees that the certificate is not from the authority that the offer names.
    let code = world.pin().code;
    let (device, daemon) = pair_through(&world, own(), Rewrite::Nothing, &code);
    assert_eq!((device.code(), daemon.as_str()), ("authority_changed", "pairing_io"));
    // It puts itself into the offer: the PAKE comes out different, and the daemon counts a wrong guess.
    let evil2 = Box::new(World::new());
    let middle = Middle { server: evil2.identity.pairing_server().unwrap() };
    let (device, daemon) = pair_through(&world, middle, Rewrite::OwnIdentity(evil2), &code);
    assert_eq!((device.code(), daemon.as_str()), ("wrong_code", "wrong_code"));
    assert!(world.identity.devices().is_empty() && world.desk.pending().is_empty());
    assert_eq!(world.journal.refused("wrong_code"), 1);
    still_serves(&world);
}

#[test]
fn even_a_certificate_from_the_stolen_authority_does_not_help() {
    let world = World::new();
    // The attacker holds the authority's key and signs a server certificate for the daemon's own zone.
    let issuer = world.stolen_authority();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![world.identity.zone().to_string()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, world.identity.zone().as_str());
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let chain = vec![certificate.der().clone(), world.identity.trust_bundle()[0].clone()];
    let server_key = Digest::of(&rcgen::PublicKeyData::subject_public_key_info(&key));
    let der = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, der)
        .unwrap();
    config.alpn_protocols = vec![palyra_identity::PAIRING_ALPN.to_vec()];
    let middle = || Middle { server: PairingServer { config: Arc::new(config.clone()), server_key } };
    let pin = world.pin().code;
    let (device, daemon) = pair_through(&world, middle(), Rewrite::Nothing, &pin);
    assert_eq!((device.code(), daemon.as_str()), ("wrong_code", "wrong_code"), "two connections, two exporters");
    world.clock.advance(Duration::from_secs(10));
    let qr = world.qr().code;
    let (device, daemon) = pair_through(&world, middle(), Rewrite::Nothing, &qr);
    assert_eq!((device.code(), daemon.as_str()), ("wrong_code", "wrong_code"));
    assert!(world.identity.devices().is_empty());
}

#[test]
fn with_a_qr_code_a_foreign_daemon_is_not_even_greeted() {
    let world = World::new();
    let evil = World::new();
    let code = world.qr().code;
    evil.pin();
    let (mut socket, served) = evil.listen();
    let mut program = Program::default();
    let paired = pairing::pair(&mut socket, &code, introduction("phone"), world.clock, &mut program);
    assert_eq!(paired.unwrap_err().code(), "authority_changed");
    drop(socket);
    assert!(served.join().unwrap().is_err());
}

#[test]
fn a_daemon_that_does_not_know_the_code_is_found_out() {
    let world = World::new();
    let code = world.pin().code;
    let mut device = RawDevice::connect(&world);
    let key = DeviceKey::generate().unwrap();
    let (offer, hello) = begin(device.channel(), &code, introduction("phone"), key, world.clock.clone()).unwrap();
    device.send(&hello);
    let answer = device.receive();
    let (daemon, proof) = offer.receive(&answer).unwrap();
    device.send(&proof);
    let mut wait = device.receive();
    assert_eq!(wait[0], 4);
    wait[10] ^= 1;
    assert_eq!(daemon.receive(&wait).unwrap_err().code(), "wrong_code");
    let pairing = world.desk.pending()[0].pairing;
    world.desk.deny(pairing, &owner()).unwrap();
    assert_eq!(device.refused(), "pairing_denied");
}

#[test]
fn messages_that_make_no_sense_are_refused_by_name() {
    let world = World::new();
    let code = world.pin().code;
    let hello = |world: &World, device: &RawDevice| {
        let key = DeviceKey::generate().unwrap();
        begin(device.channel(), &code, introduction("phone"), key, world.clock.clone()).unwrap().1
    };
    let check = |make: &dyn Fn(&World, &RawDevice) -> Vec<u8>, expected: &str| {
        let mut device = RawDevice::connect(&world);
        let message = make(&world, &device);
        device.send(&message);
        let answer = device.receive();
        assert_eq!(answer[0], 6, "{expected}");
        assert_eq!(device.refused(), expected);
    };
    check(&|_, _| vec![0, 0], "pairing_message_malformed");
    check(&|_, _| vec![0xff; 2], "pairing_message_too_large");
    check(&|_, _| vec![0; MAX_FRAME + 100], "pairing_message_malformed");
    check(&|_, _| framed(&[9]), "pairing_message_malformed");
    check(&|_, _| framed(&[7]), "pairing_message_unexpected");
    check(&|world, device| framed(&[&hello(world, device)[2..], &[0]].concat()), "pairing_message_malformed");
    check(
        &|world, device| {
            let mut hello = hello(world, device);
            hello[3] = 2;
            hello
        },
        "pairing_version",
    );
    for share in [[0; 32], [0xff; 32]] {
        check(
            &|world, device| {
                let hello = hello(world, device);
                [&hello[..hello.len() - 32], &share[..]].concat()
            },
            "pairing_share",
        );
    }
    assert_eq!(world.desk.half_open(), 0);
    assert!(world.pair_with("phone", &code).is_ok(), "none of this was a guess");
}

#[test]
fn connections_cut_off_anywhere_leave_nothing_behind() {
    let world = World::new();
    let code = world.pin().code;
    // The TLS handshake itself, cut off after every kind of beginning.
    for length in [0, 1, 5, 60, 200] {
        let (mut socket, served) = world.listen();
        let mut hello = Vec::new();
        client(pairing_client_config(None, world.clock.clone()).unwrap()).write_tls(&mut hello).unwrap();
        socket.write_all(&hello[..length.min(hello.len())]).unwrap();
        drop(socket);
        assert_eq!(served.join().unwrap().unwrap_err().code(), "pairing_io", "after {length} bytes");
    }
    // The first message, cut off.
    for length in [0, 1, 2, 40] {
        let mut device = RawDevice::connect(&world);
        let key = DeviceKey::generate().unwrap();
        let hello = begin(device.channel(), &code, introduction("phone"), key, world.clock.clone()).unwrap().1;
        device.send(&hello[..length]);
        assert_eq!(device.refused(), "pairing_io", "after {length} bytes");
    }
    // After the offer, and while a person thinks.
    let mut device = RawDevice::connect(&world);
    let key = DeviceKey::generate().unwrap();
    let (offer, hello) = begin(device.channel(), &code, introduction("phone"), key, world.clock.clone()).unwrap();
    device.send(&hello);
    let answer = device.receive();
    drop(offer.receive(&answer).unwrap());
    assert_eq!(device.refused(), "pairing_io");
    assert_eq!(world.desk.half_open(), 0);
    assert!(world.pair_with("phone", &code).is_ok());
}

#[test]
fn ten_thousand_half_open_pairings_are_bounded_and_make_room() {
    let world = World::new();
    let code = world.pin().code;
    let channel = || {
        let (mut ours, mut theirs) = (client(pairing_client_config(None, world.clock.clone()).unwrap()), {
            let server = world.identity.pairing_server().unwrap();
            ServerConnection::new(server.config).unwrap()
        });
        handshake(&mut ours, &mut theirs);
        ChannelBinding::of_server(&theirs, &world.identity.pairing_server().unwrap()).unwrap()
    };
    let mut held = Vec::new();
    let mut refused = 0;
    for n in 0..10_000 {
        // A real connection for the first; the desk sees no difference.
        let binding = if n < 2 { channel() } else { channel_of_nobody(&world) };
        match world.desk.accept(binding, &format!("198.51.100.{}", n % 250)) {
            Ok(attempt) => held.push(attempt),
            Err(error) => {
                assert_eq!(error.code(), "pairing_busy");
                refused += 1;
            }
        }
    }
    assert_eq!((held.len(), refused), (MAX_HALF_OPEN, 10_000 - MAX_HALF_OPEN));
    assert_eq!(world.desk.half_open(), MAX_HALF_OPEN);
    world.identity.tend().unwrap();
    assert_eq!(world.journal.refused("pairing_busy"), 10_000 - MAX_HALF_OPEN as u64, "told in sums");
    assert!(world.journal.kinds().len() < 600, "{} events", world.journal.kinds().len());
    // Whoever has proved nothing for a while makes room for somebody who means it.
    world.clock.advance(Duration::from_secs(3));
    assert!(world.pair_with("phone", &code).is_ok());
    drop(held);
    assert_eq!(world.desk.half_open(), 0);
}

/// A binding that costs no handshake.
fn channel_of_nobody(world: &World) -> ChannelBinding {
    thread_local! { static PAIR: std::cell::RefCell<Option<ServerConnection>> = const { std::cell::RefCell::new(None) }; }
    PAIR.with_borrow_mut(|kept| {
        let server = world.identity.pairing_server().unwrap();
        let connection = kept.get_or_insert_with(|| {
            let mut theirs = ServerConnection::new(Arc::clone(&server.config)).unwrap();
            let mut ours = client(pairing_client_config(None, world.clock.clone()).unwrap());
            handshake(&mut ours, &mut theirs);
            theirs
        });
        ChannelBinding::of_server(connection, &server).unwrap()
    })
}

fn handshake(ours: &mut ClientConnection, theirs: &mut ServerConnection) {
    while ours.is_handshaking() || theirs.is_handshaking() {
        let mut bytes = Vec::new();
        ours.write_tls(&mut bytes).unwrap();
        theirs.read_tls(&mut &bytes[..]).unwrap();
        theirs.process_new_packets().unwrap();
        bytes.clear();
        theirs.write_tls(&mut bytes).unwrap();
        ours.read_tls(&mut &bytes[..]).unwrap();
        ours.process_new_packets().unwrap();
    }
}

#[test]
fn whoever_takes_too_long_is_refused_by_name() {
    let world = World::new();
    let code = world.pin().code;
    let attempt = world.desk.accept(channel_of_nobody(&world), "test").unwrap();
    world.clock.advance(HALF_OPEN_LIFE);
    assert_eq!(attempt.receive(&[1]).unwrap_err().code(), "pairing_too_slow");
    assert!(world.pair_with("phone", &code).is_ok());
}

#[test]
fn a_device_whose_clock_is_wrong_is_told_so() {
    let world = World::new();
    for wrong in [world.clock_ms() / 2, world.clock_ms() * 2] {
        let code = world.pin().code;
        let (mut socket, served) = world.listen();
        let clock = palyra_testkit::SetClock::at(wrong);
        let paired = pairing::pair(&mut socket, &code, introduction("phone"), clock, &mut Program::default());
        assert_eq!(paired.unwrap_err().code(), "wrong_clock");
        drop(socket);
        assert!(served.join().unwrap().is_err());
    }
    assert!(world.identity.devices().is_empty());
}

#[test]
fn the_device_proves_first_so_an_offer_alone_is_no_guess() {
    let world = World::new();
    let code = world.pin().code;
    let wrong: PairingCode = if code == "00000000".parse().unwrap() { "1" } else { "0" }.repeat(8).parse().unwrap();
    for _ in 0..10 {
        let mut device = RawDevice::connect(&world);
        let key = DeviceKey::generate().unwrap();
        let (offer, hello) = begin(device.channel(), &wrong, introduction("phone"), key, world.clock.clone()).unwrap();
        device.send(&hello);
        let answer = device.receive();
        assert_eq!(answer[0], 2, "an offer, and in it no proof");
        // Whatever the device computes from it, nothing tells it whether its code was right.
        assert!(offer.receive(&answer).is_ok());
        assert_eq!(device.refused(), "pairing_io");
    }
    assert!(world.pair_with("phone", &code).is_ok(), "none of them was a guess");
}
