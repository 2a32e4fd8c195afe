//! The vault's place in the daemon: where it is, what opens it, and the one opened vault.
//!
//! It is opened when it is first needed and then stays open. The first value that is put makes it. Everything here
//! blocks; the asynchronous half is `handle.rs`.

use palyra_protocol::Clock;
use palyra_vault::{
    BackendChoice, KeyCommand, KeySources, NewSlot, Pending, SecretValue, Surroundings, SystemBackends, Vault,
    VaultError,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The most that is read of a file that holds a passphrase.
const MAX_PASSPHRASE_FILE: u64 = 4096;

/// Where the vault is, and what opens it.
#[derive(Debug, Clone, Default)]
pub struct VaultSettings {
    /// The vault's directory. None: this daemon has no vault.
    pub directory: Option<PathBuf>,
    /// The key file: made with the vault, tried when it is opened.
    pub key_file: PathBuf,
    /// Where a new vault keeps its secrets.
    pub backend: BackendChoice,
    /// Whether the system's keyring is asked for a slot's key.
    pub keyring: bool,
    /// A file that holds a passphrase, for unattended starts.
    pub passphrase_file: Option<PathBuf>,
    /// Commands that can be named by key slots.
    pub commands: Vec<KeyCommand>,
}

impl VaultSettings {
    /// Where keys can be found, without what somebody types.
    fn sources(&self) -> Result<KeySources, VaultError> {
        let mut sources = KeySources::none().key_file(&self.key_file);
        if self.keyring {
            sources = sources.keyring();
        }
        if let Some(path) = &self.passphrase_file {
            sources = sources.passphrase(passphrase_in(path)?);
        }
        Ok(self.commands.iter().cloned().fold(sources, KeySources::command))
    }
}

/// A passphrase from a file; the line end after it does not count.
fn passphrase_in(path: &Path) -> Result<SecretValue, VaultError> {
    use std::io::Read as _;
    let failed = |source| VaultError::Io { path: path.to_owned(), what: "cannot be read", source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_PASSPHRASE_FILE).read_to_end(&mut bytes).map_err(failed)?;
    while bytes.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        bytes.pop();
    }
    SecretValue::new(bytes)
}

/// The daemon's vault.
#[derive(Debug)]
pub(crate) struct VaultStore {
    settings: VaultSettings,
    clock: Arc<dyn Clock>,
    opened: Mutex<Option<Arc<Vault>>>,
}

/// What happens where there is no vault yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    /// It is made.
    Make,
    /// Nothing: that there is none is the answer.
    Leave,
}

/// The opened vault, and whether it was made just now.
pub(super) struct Opened {
    pub(super) vault: Arc<Vault>,
    pub(super) made: bool,
}

impl VaultStore {
    pub(crate) fn new(settings: VaultSettings, clock: Arc<dyn Clock>) -> Self {
        Self { settings, clock, opened: Mutex::new(None) }
    }

    pub(super) fn settings(&self) -> &VaultSettings {
        &self.settings
    }

    /// Opens the vault if it is not open. Blocks.
    pub(super) fn open(&self, absent: Absent) -> Result<Option<Opened>, VaultError> {
        self.open_with(absent, None)
    }

    /// The same, with a passphrase that somebody typed.
    pub(super) fn open_with(&self, absent: Absent, typed: Option<SecretValue>) -> Result<Option<Opened>, VaultError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vault) = &*opened {
            return Ok(Some(Opened { vault: Arc::clone(vault), made: false }));
        }
        let Some(directory) = &self.settings.directory else {
            return Err(VaultError::NoVault { path: PathBuf::new() });
        };
        let mut sources = self.settings.sources()?;
        if let Some(passphrase) = typed {
            sources = sources.passphrase(passphrase);
        }
        let found = Vault::open(directory, &sources, self.surroundings());
        let (vault, made) = match (found, absent) {
            (Ok(vault), _) => (vault, false),
            (Err(VaultError::NoVault { .. }), Absent::Leave) => return Ok(None),
            (Err(VaultError::NoVault { .. }), Absent::Make) => (self.make(directory)?, true),
            (Err(error), _) => return Err(error),
        };
        let vault = Arc::new(vault);
        finish_what_was_cut_off(&vault);
        *opened = Some(Arc::clone(&vault));
        Ok(Some(Opened { vault, made }))
    }

    /// The vault, which must be there.
    pub(super) fn existing(&self) -> Result<Arc<Vault>, VaultError> {
        let none = || VaultError::NoVault { path: self.settings.directory.clone().unwrap_or_default() };
        Ok(self.open(Absent::Leave)?.ok_or_else(none)?.vault)
    }

    fn make(&self, directory: &Path) -> Result<Vault, VaultError> {
        let slot = ("default".to_owned(), NewSlot::KeyFile(self.settings.key_file.clone()));
        Vault::create(directory, self.settings.backend, vec![slot], self.surroundings())
    }

    /// The bindings; nothing if there is no vault, or it cannot be opened now.
    pub(crate) fn bindings(&self) -> Option<Arc<palyra_vault::Bindings>> {
        self.settings.directory.as_ref()?;
        let opened = self.open(Absent::Leave).ok().flatten()?;
        Some(opened.vault.bindings())
    }

    /// Whether a secret is there. Nothing is opened.
    pub(crate) fn has(&self, reference: &palyra_protocol::SecretRef) -> Result<bool, VaultError> {
        let Some(opened) = self.open(Absent::Leave)? else { return Ok(false) };
        match opened.vault.metadata(reference) {
            Ok(_) => Ok(true),
            Err(VaultError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The secrets that `SCOPE/KEY` or `SCOPE/*` stands for and that are there. Nothing is opened; a vault that cannot
    /// be opened now has none.
    pub(crate) fn matching(&self, pattern: &str) -> Vec<palyra_protocol::SecretRef> {
        let Some((scope, key)) = pattern.split_once('/') else { return Vec::new() };
        if key != "*" {
            let found = palyra_protocol::SecretRef::from_operator(pattern).ok();
            return found.into_iter().filter(|secret| self.has(secret).unwrap_or(false)).collect();
        }
        let Ok(scope) = scope.parse::<palyra_protocol::VaultScope>() else { return Vec::new() };
        let Ok(Some(opened)) = self.open(Absent::Leave) else { return Vec::new() };
        let listed = opened.vault.list(Some(&scope));
        listed.map_or_else(|_| Vec::new(), |listing| listing.secrets.into_iter().map(|known| known.reference).collect())
    }

    /// Keys that can be found now, and a passphrase that somebody typed.
    pub(super) fn sources(&self, typed: Vec<SecretValue>) -> Result<KeySources, VaultError> {
        Ok(typed.into_iter().fold(self.settings.sources()?, KeySources::passphrase))
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings { clock: Arc::clone(&self.clock), backends: Arc::new(SystemBackends::default()) }
    }
}

/// A rekey or a migration that a crash interrupted is finished. Where it cannot be, every secret can still be read.
fn finish_what_was_cut_off(vault: &Vault) {
    for pending in vault.status().pending {
        let done = match pending {
            Pending::Rekey => vault.resume_rekey().map(drop),
            Pending::CleaningOf(_) => vault.resume_migration().map(drop),
            Pending::MigrationTo(_) => Ok(()),
        };
        match done {
            Ok(()) => tracing::info!(?pending, "the vault: what was interrupted is finished"),
            Err(error) => tracing::warn!(%error, ?pending, "the vault: what was interrupted could not be finished"),
        }
    }
}
