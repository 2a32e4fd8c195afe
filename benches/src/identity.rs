//! Devices: a handshake against the same without our checks, a pairing as devices become many, and the check of every
//! request.

use crate::Result;
use crate::report::{Report, alternate};
use palyra_identity::pairing::{
    ChannelBinding, CodeRequest, DEFAULT_CODE_LIFE, DeviceChannel, DeviceIntroduction, Paired, PairingDesk, begin,
};
use palyra_identity::{
    DeviceCredentials, DeviceKey, Identity, IdentityEvent, IdentityJournal, IdentitySetup, JournalFailure,
    KeyDirectory, PairingServer, RecordedRegistry, RegistryChange, client_config, pairing_client_config,
};
use palyra_protocol::{Clock, Principal, SystemClock, WorkspaceRole};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, SupportedCipherSuite};
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const HANDSHAKES: usize = 400;
const PAIRINGS: usize = 40;
const BATCH: usize = 1000;

/// The newest change, in memory: what the journal costs is measured elsewhere.
#[derive(Debug, Default)]
struct Newest(Mutex<Option<RecordedRegistry>>);

impl IdentityJournal for Newest {
    fn newest(&self) -> std::result::Result<Option<RecordedRegistry>, JournalFailure> {
        Ok(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record(&self, change: &RegistryChange) -> std::result::Result<(), JournalFailure> {
        let recorded = RecordedRegistry { revision: change.revision, digest: change.after };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorded);
        Ok(())
    }

    fn note(&self, _event: IdentityEvent) {}
}

/// A daemon with its files in a directory of its own.
struct Daemon {
    _dir: tempfile::TempDir,
    identity: Arc<Identity>,
    desk: Arc<PairingDesk>,
    server: PairingServer,
    paired: usize,
}

impl Daemon {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let identity = Identity::open(IdentitySetup {
            state_dir: dir.path(),
            hosts: vec![],
            vault: Arc::new(KeyDirectory::open(&dir.path().join("keys"))?),
            journal: Arc::new(Newest::default()),
            clock: Arc::new(SystemClock),
        })?;
        let (desk, server) = (PairingDesk::new(Arc::clone(&identity)), identity.pairing_server()?);
        Ok(Self { _dir: dir, identity, desk, server, paired: 0 })
    }

    /// A whole pairing over TLS, both sides and the person in this thread.
    fn pair(&mut self) -> Result<Paired> {
        self.paired += 1;
        let owner = Principal::local_owner();
        let code = self.desk.create_code(CodeRequest {
            principal: owner.clone(),
            role: WorkspaceRole::Operator,
            by: owner.clone(),
            life: DEFAULT_CODE_LIFE,
            device: None,
            address: None,
        })?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let config = Arc::new(pairing_client_config(None, Arc::clone(&clock))?);
        let (device, daemon) = handshake(&config, &self.server.config, ServerName::try_from("x")?)?;
        let introduction =
            DeviceIntroduction { name: format!("bench {}", self.paired).parse()?, platform: "linux".parse()? };
        let (channel, key) = (DeviceChannel::of_client(&device)?, DeviceKey::generate()?);
        let (offered, hello) = begin(channel, &code.code, introduction, key, clock)?;
        let accepted = self.desk.accept(ChannelBinding::of_server(&daemon, &self.server)?, "bench")?;
        let (proving, offer) = accepted.receive(&hello[2..])?;
        let (proved, proof) = offered.receive(&offer[2..])?;
        let (pending, wait) = proving.receive(&proof[2..])?;
        let approval = proved.receive(&wait[2..])?;
        self.desk.approve(pending.view().pairing, &owner)?;
        let answer = pending.wait()?;
        let (stored, issued) = pending.conclude(answer)?;
        let paired = approval.receive(&issued[2..])?;
        stored.receive(&Paired::stored()[2..])?;
        Ok(paired)
    }
}

/// A handshake between two ends in memory.
fn handshake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: ServerName<'static>,
) -> Result<(ClientConnection, ServerConnection)> {
    let mut ours = ClientConnection::new(Arc::clone(client), name)?;
    let mut theirs = ServerConnection::new(Arc::clone(server))?;
    let mut bytes = Vec::with_capacity(4096);
    while ours.is_handshaking() || theirs.is_handshaking() {
        bytes.clear();
        ours.write_tls(&mut bytes)?;
        theirs.read_tls(&mut &bytes[..])?;
        theirs.process_new_packets()?;
        bytes.clear();
        theirs.write_tls(&mut bytes)?;
        ours.read_tls(&mut &bytes[..])?;
        ours.process_new_packets()?;
    }
    Ok((ours, theirs))
}

/// The same certificates and suites, with the library's own verifiers.
fn raw_configs(daemon: &Daemon, paired: &Paired) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>)> {
    let mut provider: CryptoProvider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| matches!(suite, SupportedCipherSuite::Tls13(_)));
    let provider = Arc::new(provider);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(paired.authorities.iter().cloned());
    let roots = Arc::new(roots);
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build()?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(&daemon.server.config.cert_resolver));
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    let key = PrivatePkcs8KeyDer::from(paired.key.to_secret().expose().to_vec());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![paired.certificate.clone()], key.into())?;
    client.resumption = Resumption::disabled();
    Ok((Arc::new(client), Arc::new(server)))
}

fn handshakes(report: &mut Report) -> Result {
    let mut daemon = Daemon::new()?;
    daemon.identity.stock(10_000, false)?;
    let paired = daemon.pair()?;
    let name = || daemon.identity.zone().server_name();
    let (raw_client, raw_server) = raw_configs(&daemon, &paired)?;
    let credentials =
        DeviceCredentials::new(paired.zone.clone(), &paired.certificate, &paired.key, &paired.authorities)?;
    let client = Arc::new(client_config(&credentials, Arc::new(SystemClock), &[])?);
    let server = Arc::new(daemon.identity.server_config(&[])?);
    handshake(&client, &server, name())?;
    handshake(&raw_client, &raw_server, name())?;
    let (ours, raw) = alternate(
        HANDSHAKES,
        || drop(black_box(handshake(&client, &server, name()))),
        || drop(black_box(handshake(&raw_client, &raw_server, name()))),
    );
    report.at_most("mTLS handshake against the library alone", ours, raw, 1.3);
    Ok(())
}

fn pairings(report: &mut Report) -> Result {
    let (mut few, mut many) = (Daemon::new()?, Daemon::new()?);
    few.identity.stock(10, false)?;
    many.identity.stock(10_000, false)?;
    for daemon in [&mut few, &mut many] {
        daemon.pair()?;
    }
    let mut failed = None;
    let mut note = |paired: Result<Paired>| {
        if let Err(error) = paired {
            failed = Some(error);
        }
    };
    let note = std::cell::RefCell::new(&mut note);
    let (ours, raw) = alternate(PAIRINGS, || (note.borrow_mut())(many.pair()), || (note.borrow_mut())(few.pair()));
    if let Some(error) = failed {
        return Err(error);
    }
    report.at_most("pairing with 10,000 devices against 10", ours, raw, 1.2);
    Ok(())
}

fn checks(report: &mut Report) -> Result {
    for revoked in [10, 100_000] {
        let mut daemon = Daemon::new()?;
        daemon.identity.stock(revoked, true)?;
        let devices = (0..8).map(|_| daemon.pair()).collect::<Result<Vec<_>>>()?;
        let connected: Vec<_> = devices
            .iter()
            .map(|paired| daemon.identity.connected(Some(std::slice::from_ref(&paired.certificate))))
            .collect::<std::result::Result<_, _>>()?;
        daemon.identity.revoke(&Principal::local_owner(), devices[0].device_id.as_str(), "measured")?;
        let refused = daemon.identity.check(&connected[0]).is_err();
        if !refused || daemon.identity.check(&connected[1]).is_err() {
            return Err("a check does not say what it should".into());
        }
        let (check, refusal) = alternate(
            200,
            || {
                for device in connected[1..].iter().cycle().take(BATCH) {
                    drop(black_box(daemon.identity.check(black_box(device))));
                }
            },
            || {
                for _ in 0..BATCH {
                    drop(black_box(daemon.identity.check(black_box(&connected[0]))));
                }
            },
        );
        let batch = u32::try_from(BATCH)?;
        let slower = (check / batch).max(refusal / batch);
        report.at_most(&format!("check of a request, {revoked} revoked"), slower, Duration::from_micros(1), 1.0);
    }
    Ok(())
}

pub fn run(report: &mut Report) -> Result {
    handshakes(report)?;
    pairings(report)?;
    checks(report)
}
