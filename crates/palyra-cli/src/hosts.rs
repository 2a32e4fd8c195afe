//! The daemons that this machine was paired with: where their profiles and keys are, and how certificates are renewed.

use crate::device_keys;
use crate::exit::{Failure, REFUSED};
use crate::output::note;
use palyra_api::v1::{OwnDeviceRequest, RenewDeviceRequest};
use palyra_api::{Connection, RemoteHost};
use palyra_identity::pairing::PairingError;
use palyra_identity::{DeviceStore, DeviceStoreError, Issued, Profile, ProfileName, Renewal};
use palyra_protocol::{Clock as _, SystemClock, Timestamp};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What stands for this machine's own daemon.
pub const LOCAL: &str = "local";
/// Where the profiles are, in the state directory.
const PROFILES: &str = "hosts";
/// How often a command that goes on looks whether its certificate is due.
const LOOKING: Duration = Duration::from_secs(60);
/// The file that names the chosen one.
const CHOSEN: &str = "chosen";

/// A profile that cannot be used, as a command tells it.
pub fn failed(error: &DeviceStoreError) -> Failure {
    Failure::new(REFUSED, error.code(), error.to_string(), error.hint())
}

/// A pairing that failed, as a command tells it.
pub fn not_paired(error: &PairingError) -> Failure {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        message.push_str(&format!(": {deeper}"));
        cause = deeper.source();
    }
    Failure::new(REFUSED, error.code(), message, error.hint())
}

/// The profiles of this machine.
#[derive(Debug)]
pub struct Hosts {
    store: DeviceStore,
    dir: PathBuf,
}

impl Hosts {
    /// Opens them, and makes room for them if there is none.
    pub fn open(state_dir: &Path) -> Result<Self, Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(state_dir);
        made.map_err(|e| Failure::io(&format!("`{}` cannot be made", state_dir.display()), &e))?;
        let dir = state_dir.join(PROFILES);
        let store = DeviceStore::open(&dir, device_keys::open(state_dir, &dir)?).map_err(|error| failed(&error))?;
        Ok(Self { store, dir })
    }

    /// The same before a key is made: where keys are kept is decided by now.
    pub fn open_to_pair(state_dir: &Path) -> Result<Self, Failure> {
        let dir = Self::open(state_dir)?.dir;
        device_keys::decide(state_dir, &dir)?;
        Self::open(state_dir)
    }

    pub fn store(&self) -> &DeviceStore {
        &self.store
    }

    pub fn load(&self, name: &ProfileName) -> Result<Profile, Failure> {
        self.store.load(name).map_err(|error| failed(&error))
    }

    /// What this machine shows a daemon, and where that is.
    pub fn remote(&self, name: &ProfileName) -> Result<RemoteHost, Failure> {
        let profile = self.load(name)?;
        let credentials = profile.credentials().map_err(|error| failed(&error.into()))?;
        Ok(RemoteHost { address: profile.address().to_owned(), credentials })
    }

    /// Chooses the daemon that commands are for; none for this machine's own.
    pub fn choose(&self, name: Option<&ProfileName>) -> Result<(), Failure> {
        let path = self.dir.join(CHOSEN);
        let io = |e: &std::io::Error| Failure::io(&format!("`{}` cannot be written", path.display()), e);
        match name {
            Some(name) => {
                self.load(name)?;
                std::fs::write(&path, format!("{name}\n")).map_err(|e| io(&e))
            }
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(io(&error)),
                _ => Ok(()),
            },
        }
    }

    /// Forgets a daemon, and that it was chosen.
    pub fn forget(&self, name: &ProfileName) -> Result<(), Failure> {
        // What is not there cannot be forgotten, and saying so helps whoever mistyped it.
        if !self.store.list().map_err(|error| failed(&error))?.contains(name) {
            return Err(failed(&DeviceStoreError::Unknown { name: name.clone() }));
        }
        if chosen_in(&self.dir)?.as_ref() == Some(name) {
            self.choose(None)?;
        }
        self.store.forget(name).map_err(|error| failed(&error))
    }
}

/// The daemon that `palyra hosts use` chose.
pub fn chosen(state_dir: &Path) -> Result<Option<ProfileName>, Failure> {
    chosen_in(&state_dir.join(PROFILES))
}

fn chosen_in(dir: &Path) -> Result<Option<ProfileName>, Failure> {
    let path = dir.join(CHOSEN);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(256).read_to_string(&mut text)) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        // Who may not look into the state directory reaches no daemon there either; the connection says so.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !dir.parent().is_some_and(is_open_to_us) => {
            Ok(None)
        }
        Err(error) => Err(Failure::io(&format!("`{}` cannot be read", path.display()), &error)),
        Ok(_) => text.trim().parse().map(Some).map_err(|error| failed(&error)),
    }
}

/// Whether this user may look into a directory.
fn is_open_to_us(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok()
}

/// Gets the next certificate, if it is time. The connection goes on with the one that it was made with.
pub async fn renew_if_due(state_dir: &Path, host: &ProfileName, connection: &Connection) -> Result<(), Failure> {
    // Also the first question that the daemon answers: whoever is shut out hears of it here.
    let own = connection.devices().own(OwnDeviceRequest {}).await?.into_inner();
    if !own.renewal_due {
        return Ok(());
    }
    if let Err(failure) = renew(state_dir, host, connection).await {
        note!("warning: the certificate for `{host}` was not renewed: {}", failure.message);
    }
    Ok(())
}

/// Renews the certificate for as long as this command runs, so that one that watches for days does not end with it.
/// Whether it is due is looked at each minute: a machine that slept has lost hours that no timer counted.
pub fn keep_renewed(state_dir: &Path, host: &ProfileName) {
    static KEPT: AtomicBool = AtomicBool::new(false);
    if KEPT.swap(true, Ordering::Relaxed) {
        return;
    }
    let (state_dir, host) = (state_dir.to_owned(), host.clone());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOKING).await;
            // What fails is tried again; the command's own connection tells what is wrong.
            drop(renew_by_the_clock(&state_dir, &host).await);
        }
    });
}

/// Gets the next certificate, if this machine's clock says that it is time.
async fn renew_by_the_clock(state_dir: &Path, host: &ProfileName) -> Result<(), Failure> {
    let hosts = Hosts::open(state_dir)?;
    if hosts.load(host)?.renewal_due(SystemClock.now()) {
        let connection = Connection::open_remote(&hosts.remote(host)?, None).await?;
        renew(state_dir, host, &connection).await?;
    }
    Ok(())
}

/// Gets the next certificate and keeps it; tells until when it holds. Nothing where another command is doing so.
pub async fn renew(
    state_dir: &Path,
    host: &ProfileName,
    connection: &Connection,
) -> Result<Option<Timestamp>, Failure> {
    let hosts = Hosts::open(state_dir)?;
    let Some(_alone) = alone(&hosts.dir, host)? else { return Ok(None) };
    let profile = hosts.load(host)?;
    let bug = |error: &dyn std::error::Error| Failure::bug(error);
    let renewal = Renewal::begin(&profile).map_err(|error| bug(&error))?;
    let request = RenewDeviceRequest { signing_request: renewal.request().to_vec() };
    let issued = connection.devices().renew(request).await?.into_inner();
    let issued = issued_of(issued).map_err(|error| Failure::bug(&*error))?;
    hosts.store().renewed(&profile, &renewal, &issued).map_err(|error| failed(&error))?;
    Ok(Some(issued.not_after))
}

/// What the daemon issued, as it was sent.
pub fn issued_of(
    issued: palyra_api::v1::IssuedCertificate,
) -> Result<Issued, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Issued {
        device_id: issued.device_id.parse()?,
        principal: issued.principal.parse()?,
        role: issued.role.parse()?,
        certificate: issued.certificate.into(),
        not_after: Timestamp::from_unix_ms(issued.not_after_unix_ms),
        authorities: issued.authorities.into_iter().map(Into::into).collect(),
    })
}

/// Keeps other commands from renewing at the same time, until it is dropped.
fn alone(dir: &Path, host: &ProfileName) -> Result<Option<File>, Failure> {
    let path = dir.join(format!("{host}.lock"));
    let io = |e: &std::io::Error| Failure::io(&format!("`{}` cannot be locked", path.display()), e);
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|e| io(&e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(io(&error.into())),
    }
}
