//! Paired devices, as the engine knows them.
//!
//! `palyra-identity` holds the authority, the registry and pairing. Here they are bound to the journal
//! ([`journal_link`]) and the vault ([`authority_keys`]), opened when they are first needed, tended, and asked about callers ([`admission`]). [`manage`]
//! is what people do with devices, [`pairing`] how a new one is let in. The engine opens no socket: the daemon's remote
//! door does.

mod admission;
mod authority_keys;
mod journal_link;
mod manage;
mod pairing;

pub use manage::Exposed;
pub use pairing::PairingOrder;

use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use authority_keys::AuthorityKeys;
use journal_link::JournalLink;
use palyra_identity::pairing::PairingDesk;
use palyra_identity::{Host, Identity, IdentityError, IdentitySetup, REGISTRY_FILE};
use palyra_protocol::Problem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// How often what is due is done.
const TENDING: Duration = Duration::from_secs(60);
/// For how long a failure to open is answered without another try.
const FAILURE_STANDS: Duration = Duration::from_secs(5);

/// What the daemon's identity is opened with.
#[derive(Debug)]
pub struct DeviceSetup {
    /// Where the device registry is.
    pub state_dir: PathBuf,
    /// The hosts that a new authority is made for, besides its zone and this machine.
    pub hosts: Vec<Host>,
}

/// The daemon's identity, opened.
#[derive(Debug)]
pub struct OpenDevices {
    identity: Arc<Identity>,
    desk: Arc<PairingDesk>,
    link: Arc<JournalLink>,
}

impl OpenDevices {
    /// The authority and the devices.
    #[must_use]
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// The pairing desk.
    #[must_use]
    pub fn desk(&self) -> &Arc<PairingDesk> {
        &self.desk
    }
}

/// The devices of one engine: nothing, until something needs them.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    setup: OnceLock<DeviceSetup>,
    opened: OnceCell<Arc<OpenDevices>>,
    failed: Mutex<Option<(Instant, Problem)>>,
}

impl Devices {
    fn opened(&self) -> Option<&Arc<OpenDevices>> {
        self.opened.get()
    }

    /// What opening failed with a moment ago.
    fn failed_lately(&self) -> Option<Problem> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_STANDS).map(|(_, problem)| problem.clone())
    }
}

impl From<IdentityError> for EngineError {
    fn from(error: IdentityError) -> Self {
        use IdentityError as E;
        let kind = match &error {
            E::UnknownDevice { .. } => ErrorKind::NotFound,
            E::Revoked { .. } | E::NotRevoked { .. } | E::NameTaken { .. } | E::KeyRepeated => ErrorKind::Conflict,
            E::Name(_) | E::Principal { .. } | E::Reason { .. } | E::Duration { .. } | E::SigningRequest(_) => {
                ErrorKind::Invalid
            }
            E::TooMany { .. } | E::RenewedTooSoon { .. } => ErrorKind::Exhausted,
            E::Certificate(_) => ErrorKind::Unauthenticated,
            E::Io { .. }
            | E::RegistryRefused { .. }
            | E::AuthorityKeyMissing { .. }
            | E::AuthorityNotValid
            | E::Vault(_)
            | E::Journal(_) => ErrorKind::Unavailable,
            E::Entropy(_) | E::Key(_) | E::Certification { .. } | E::Tls(_) => ErrorKind::Internal,
        };
        if matches!(kind, ErrorKind::Unavailable | ErrorKind::Internal) {
            tracing::error!(error = &error as &dyn std::error::Error, "the device registry failed");
        }
        let refused = Self::new(kind, error.problem());
        match error {
            E::RenewedTooSoon { least } => refused.retry_after(least),
            _ => refused,
        }
    }
}

impl Engine {
    /// Says with what the daemon's identity is to be opened. The first word counts.
    pub fn prepare_devices(&self, setup: DeviceSetup) {
        if self.devices().setup.set(setup).is_err() {
            tracing::warn!("devices were prepared twice");
        }
    }

    /// The daemon's identity. The first to need it opens it, and makes it where there is none.
    ///
    /// # Errors
    /// It cannot be opened: devices are not let in then, and nothing else is affected.
    pub async fn open_devices(&self) -> Result<Arc<OpenDevices>, EngineError> {
        if let Some(open) = self.devices().opened() {
            return Ok(Arc::clone(open));
        }
        if let Some(problem) = self.devices().failed_lately() {
            return Err(EngineError::new(ErrorKind::Unavailable, problem));
        }
        let opened = self.devices().opened.get_or_try_init(|| self.open_identity()).await;
        opened.cloned().inspect_err(|error| {
            let mut failed = self.devices().failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some((Instant::now(), error.problem.clone()));
        })
    }

    /// The daemon's identity, if there is one: looking at devices makes no authority.
    ///
    /// # Errors
    /// There is one and it cannot be opened.
    pub async fn known_devices(&self) -> Result<Option<Arc<OpenDevices>>, EngineError> {
        let there = self.devices().setup.get().is_some_and(|setup| setup.state_dir.join(REGISTRY_FILE).exists());
        let recorded = there || journal_link::recorded(self).await?.is_some();
        if recorded { self.open_devices().await.map(Some) } else { Ok(None) }
    }

    async fn open_identity(&self) -> Result<Arc<OpenDevices>, EngineError> {
        let Some(setup) = self.devices().setup.get() else {
            let problem = Problem::plain("devices_unavailable", "this daemon has no device registry");
            return Err(EngineError::new(ErrorKind::Unavailable, problem));
        };
        let link = Arc::new(JournalLink::start(self.downgrade()));
        let (state_dir, hosts) = (setup.state_dir.clone(), setup.hosts.clone());
        let (vault, journal) = (Arc::new(AuthorityKeys::new(self.downgrade())), Arc::clone(&link));
        let clock = self.journal().clock();
        let opening = tokio::task::spawn_blocking(move || {
            Identity::open(IdentitySetup { state_dir: &state_dir, hosts, vault, journal, clock })
        });
        let identity =
            opening.await.map_err(|_| EngineError::internal("opening the device registry was cut off"))??;
        let desk = PairingDesk::new(Arc::clone(&identity));
        let open = Arc::new(OpenDevices { identity, desk, link });
        self.tend_devices(&open);
        Ok(open)
    }

    /// Does what is due once a minute, until the end.
    fn tend_devices(&self, open: &Arc<OpenDevices>) {
        let (open, closing) = (Arc::downgrade(open), self.closing().clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(TENDING) => {}
                    () = closing.cancelled() => return,
                }
                let Some(open) = open.upgrade() else { return };
                tend(open).await;
            }
        });
    }

    /// The last word before the end: counts and last visits are written down.
    pub(crate) async fn settle_devices(&self) {
        let Some(open) = self.devices().opened() else { return };
        tend(Arc::clone(open)).await;
        open.link.flush().await;
    }
}

async fn tend(open: Arc<OpenDevices>) {
    let tended = tokio::task::spawn_blocking(move || {
        open.desk.tend();
        open.identity.tend()
    });
    match tended.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "what is due for devices was not done");
        }
        Err(error) => tracing::warn!(%error, "tending devices was cut off"),
    }
}
