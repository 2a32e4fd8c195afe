//! What the tests share: a daemon with a clock and a journal of its own, and devices that pair with it over real TLS.

use palyra_identity::pairing::{
    self, CodeRequest, DEFAULT_CODE_LIFE, DeviceIntroduction, MatchingWords, NewCode, Paired, PairingCode, PairingDesk,
    PairingError, PairingProgress, PendingView,
};
use palyra_identity::{
    ConnectedDevice, ConnectionFault, DeviceCredentials, Identity, IdentityError, IdentityEvent, IdentityJournal,
    IdentitySetup, JournalFailure, KeyDirectory, KeyName, KeyVault, RecordedRegistry, RegistryChange, client_config,
};
use palyra_protocol::{Clock, DeviceId, Principal, Timestamp, WorkspaceRole};
use palyra_testkit::SetClock;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) const START: u64 = 1_800_000_000_000;
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a test waits for the other side before it fails. Nothing is asserted about it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A journal in memory, which outlives the daemon and fails when it is told to.
#[derive(Debug, Default)]
pub(crate) struct MemoryJournal {
    pub(crate) changes: Mutex<Vec<RegistryChange>>,
    pub(crate) events: Mutex<Vec<IdentityEvent>>,
    pub(crate) fails: AtomicBool,
}

impl MemoryJournal {
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.events.lock().unwrap().iter().map(IdentityEvent::kind).collect()
    }

    pub(crate) fn take_events(&self) -> Vec<IdentityEvent> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// How often a refusal was told, with those that came in sums.
    pub(crate) fn refused(&self, code: &str) -> u64 {
        let of = |event: &IdentityEvent| match event {
            IdentityEvent::Refused { refused, .. } => refused.get(code).copied().unwrap_or(0),
            _ => 0,
        };
        self.events.lock().unwrap().iter().map(of).sum()
    }
}

impl IdentityJournal for MemoryJournal {
    fn newest(&self) -> Result<Option<RecordedRegistry>, JournalFailure> {
        let changes = self.changes.lock().unwrap();
        Ok(changes.last().map(|change| RecordedRegistry { revision: change.revision, digest: change.after }))
    }

    fn record(&self, change: &RegistryChange) -> Result<(), JournalFailure> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(JournalFailure("the disk is full".into()));
        }
        self.changes.lock().unwrap().push(change.clone());
        Ok(())
    }

    fn note(&self, event: IdentityEvent) {
        self.events.lock().unwrap().push(event);
    }
}

/// A daemon.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) journal: Arc<MemoryJournal>,
    pub(crate) vault: Arc<KeyDirectory>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) desk: Arc<PairingDesk>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::at(Timestamp::from_unix_ms(START))
    }

    /// A daemon whose clock begins here.
    pub(crate) fn at(now: Timestamp) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vault = Arc::new(KeyDirectory::open(&dir.path().join("keys")).unwrap());
        Self::start(dir, SetClock::at(now.unix_ms()), Arc::default(), vault).unwrap()
    }

    fn start(
        dir: tempfile::TempDir,
        clock: Arc<SetClock>,
        journal: Arc<MemoryJournal>,
        vault: Arc<KeyDirectory>,
    ) -> Result<Self, IdentityError> {
        let identity = Identity::open(IdentitySetup {
            state_dir: dir.path(),
            hosts: vec!["palyra.example.org".parse().unwrap(), "192.0.2.7".parse().unwrap()],
            vault: vault.clone(),
            journal: journal.clone(),
            clock: clock.clone(),
        })?;
        let desk = PairingDesk::new(Arc::clone(&identity));
        Ok(Self { dir, clock, journal, vault, identity, desk })
    }

    /// The same daemon after a restart.
    pub(crate) fn restart(self) -> Result<Self, IdentityError> {
        let Self { dir, clock, journal, vault, .. } = self;
        Self::start(dir, clock, journal, vault)
    }

    pub(crate) fn request(&self) -> CodeRequest {
        CodeRequest {
            principal: principal("user:ana"),
            role: WorkspaceRole::Operator,
            by: owner(),
            life: DEFAULT_CODE_LIFE,
            device: None,
            address: None,
        }
    }

    pub(crate) fn pin(&self) -> NewCode {
        self.desk.create_code(self.request()).unwrap()
    }

    pub(crate) fn qr(&self) -> NewCode {
        let address = Some("127.0.0.1:7444".parse().unwrap());
        self.desk.create_code(CodeRequest { address, ..self.request() }).unwrap()
    }

    /// The pairing listener with one connection: the device's end, and the daemon's work on the other.
    pub(crate) fn listen(&self) -> (UnixStream, JoinHandle<Result<DeviceId, PairingError>>) {
        let (ours, mut theirs) = streams();
        let (desk, server) = (Arc::clone(&self.desk), self.identity.pairing_server().unwrap());
        (ours, std::thread::spawn(move || pairing::serve(&desk, &server, &mut theirs, "test")))
    }

    /// Pairs a device from its hello to its certificate, a person saying yes.
    pub(crate) fn pair(&self, name: &str) -> Device {
        let code = self.pin();
        self.pair_with(name, &code.code).unwrap()
    }

    pub(crate) fn pair_with(&self, name: &str, code: &PairingCode) -> Result<Device, PairingError> {
        let (mut socket, served) = self.listen();
        let mut program = Program { desk: Some(Arc::clone(&self.desk)), ..Program::default() };
        let paired = pairing::pair(&mut socket, code, introduction(name), self.clock.clone(), &mut program);
        drop(socket);
        let served = served.join().unwrap();
        let paired = paired?;
        assert_eq!(served.unwrap(), paired.device_id);
        Ok(Device { credentials: credentials(&paired), paired })
    }

    /// A connection of a device to the daemon's listener for paired devices.
    pub(crate) fn connect(&self, device: &Device) -> Client {
        self.connect_with(client_config(&device.credentials, self.clock.clone(), &[b"h2"]).unwrap())
    }

    pub(crate) fn connect_with(&self, config: ClientConfig) -> Client {
        let (ours, theirs) = streams();
        let server = Arc::new(self.identity.server_config(&[b"h2"]).unwrap());
        let identity = Arc::clone(&self.identity);
        let served = std::thread::spawn(move || serve_requests(&identity, server, theirs));
        let name = self.identity.zone().server_name();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        Client { stream: BufReader::new(StreamOwned::new(tls, ours)), served: Some(served) }
    }

    /// The authority's key, as somebody who stole it would have it.
    pub(crate) fn stolen_authority(&self) -> rcgen::Issuer<'static, rcgen::KeyPair> {
        let newest = self.identity.authorities()[0].generation;
        let name: KeyName = format!("identity.authority.{newest}").parse().unwrap();
        let secret = self.vault.load(&name).unwrap().unwrap();
        let der = PrivatePkcs8KeyDer::from(secret.expose());
        let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        rcgen::Issuer::from_ca_cert_der(self.identity.trust_bundle().last().unwrap(), key).unwrap()
    }
}

pub(crate) fn principal(text: &str) -> Principal {
    text.parse().unwrap()
}

pub(crate) fn owner() -> Principal {
    Principal::local_owner()
}

pub(crate) fn introduction(name: &str) -> DeviceIntroduction {
    DeviceIntroduction { name: name.parse().unwrap(), platform: "linux".parse().unwrap() }
}

pub(crate) fn credentials(paired: &Paired) -> Arc<DeviceCredentials> {
    DeviceCredentials::new(paired.zone.clone(), &paired.certificate, &paired.key, &paired.authorities).unwrap()
}

pub(crate) fn streams() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    for stream in [&a, &b] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (a, b)
}

/// A device's program: it shows the words, and lets the person at the daemon say yes when they match.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) desk: Option<Arc<PairingDesk>>,
    pub(crate) words: Option<MatchingWords>,
    pub(crate) stored: bool,
}

impl PairingProgress for Program {
    fn show(&mut self, words: MatchingWords) {
        self.words = Some(words);
        if let Some(desk) = &self.desk {
            let waiting = waiting(desk, words);
            desk.approve(waiting.pairing, &owner()).unwrap();
        }
    }

    fn store(&mut self, _paired: &Paired) -> Result<(), PairingError> {
        self.stored = true;
        Ok(())
    }
}

/// The pairing that shows these words at the daemon.
pub(crate) fn waiting(desk: &PairingDesk, words: MatchingWords) -> PendingView {
    desk.pending().into_iter().find(|view| view.words == words).unwrap()
}

/// A paired device.
pub(crate) struct Device {
    pub(crate) paired: Paired,
    pub(crate) credentials: Arc<DeviceCredentials>,
}

/// A device's end of a connection, with the daemon's end in a thread.
pub(crate) struct Client {
    stream: BufReader<StreamOwned<ClientConnection, UnixStream>>,
    served: Option<JoinHandle<io::Result<ConnectedDevice>>>,
}

impl Client {
    /// One request: who the daemon takes the device for, or why not.
    ///
    /// A daemon that refuses the certificate does so after the device's handshake is over: what was written may have
    /// failed by then, and why is to be read.
    pub(crate) fn request(&mut self) -> io::Result<String> {
        let tls = self.stream.get_mut();
        if let Err(error) = tls.write_all(b"?\n").and_then(|()| tls.flush()) {
            return Err(ConnectionFault::last_word(&mut tls.conn, &mut tls.sock).map_or(error, io::Error::other));
        }
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// What the daemon's end came to, once the connection is closed.
    pub(crate) fn close(mut self) -> io::Result<ConnectedDevice> {
        let served = self.served.take();
        drop(self);
        served.unwrap().join().unwrap()
    }

    /// The certificate that the server showed.
    pub(crate) fn server_certificate(&self) -> Vec<u8> {
        self.stream.get_ref().conn.peer_certificates().unwrap()[0].to_vec()
    }
}

/// The daemon's end: every line is a request, and every request is checked.
fn serve_requests(identity: &Identity, config: Arc<ServerConfig>, socket: UnixStream) -> io::Result<ConnectedDevice> {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let device = identity.connected(stream.conn.peer_certificates()).map_err(io::Error::other)?;
    let mut piece = [0; 64];
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return Ok(device),
            Ok(_) => {}
        }
        let answer = match identity.check(&device) {
            Ok(standing) => {
                format!("{} {} {}\n", standing.name(), standing.principal(), standing.role())
            }
            Err(refusal) => format!("refused {}\n", refusal.code()),
        };
        stream.write_all(answer.as_bytes())?;
        stream.flush()?;
    }
}
