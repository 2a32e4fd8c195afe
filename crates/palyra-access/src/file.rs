//! The registry's file, replaced so that a crash at any instant leaves one that is whole.
//!
//! A change takes four steps: the new content is written beside the file and made durable; the journal records its
//! digest, which is the moment the change counts; the file is replaced; the directory is made durable. A start compares
//! with the newest digest of the journal. The file fits: all is well. The copy beside it fits: the crash came after the
//! record, and the replacement is finished. Neither fits: another program wrote the file, or put an old one back, and
//! the daemon refuses to start on it. An older registry is as bad as a forged one: it may hold a token that was
//! withdrawn.

use crate::document::MAX_BYTES;
use palyra_protocol::Digest;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The registry's name in the state directory.
pub const REGISTRY_FILE: &str = "access_registry.json";

/// The registry's file.
#[derive(Debug, Clone)]
pub struct RegistryFile {
    path: PathBuf,
}

/// What was found where the registry should be.
#[derive(Debug)]
pub struct Odd {
    /// SHA-256 of it, if there was something that could be read.
    pub found: Option<Digest>,
    /// Where it is now.
    pub aside: Option<PathBuf>,
}

impl RegistryFile {
    /// The registry of a state directory.
    #[must_use]
    pub fn within(state_dir: &Path) -> Self {
        Self { path: state_dir.join(REGISTRY_FILE) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next content is prepared.
    fn beside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        name.into()
    }

    /// The file's content; nothing when there is no file.
    pub fn read(&self) -> std::io::Result<Option<Vec<u8>>> {
        read(&self.path)
    }

    /// Step one: the next content, durable beside the file.
    pub fn prepare(&self, bytes: &[u8]) -> std::io::Result<()> {
        let beside = self.beside();
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        self.sync_directory()
    }

    /// Takes step one back.
    pub fn abandon(&self) -> std::io::Result<()> {
        match std::fs::remove_file(self.beside()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Steps three and four: the prepared content takes the file's place.
    pub fn replace(&self) -> std::io::Result<()> {
        std::fs::rename(self.beside(), &self.path)?;
        self.sync_directory()
    }

    /// Finishes a replacement that a crash has cut off; tells whether there was one.
    pub fn finish(&self, expected: Digest) -> std::io::Result<bool> {
        let prepared = read(&self.beside())?.is_some_and(|bytes| Digest::of(&bytes) == expected);
        if prepared {
            self.replace()?;
        }
        Ok(prepared)
    }

    /// Puts a file that is not accepted out of the way, under a name that says so.
    pub fn set_aside(&self, suffix: &str) -> std::io::Result<PathBuf> {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".refused-{suffix}"));
        let aside = PathBuf::from(name);
        std::fs::rename(&self.path, &aside)?;
        self.sync_directory()?;
        Ok(aside)
    }

    /// Puts aside what is not the content that was written last, before it is replaced. A directory is nobody's
    /// registry and stays where it is.
    pub fn set_aside_unless(&self, known: Option<Digest>, revision: u64) -> std::io::Result<Option<Odd>> {
        let meta = match self.path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(known.map(|_| Odd { found: None, aside: None }));
            }
            other => other?,
        };
        // What cannot be read, like a link, is not ours either.
        let found = self.read().ok().flatten().as_deref().map(Digest::of);
        if meta.is_dir() || found.is_some() && found == known {
            return Ok(None);
        }
        let aside = self.set_aside(&format!("before-{revision}"))?;
        Ok(Some(Odd { found, aside: Some(aside) }))
    }

    /// Takes others' rights to the file away; tells whether there were any.
    pub fn make_private(&self) -> std::io::Result<bool> {
        let meta = match self.path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let open = meta.is_file() && meta.permissions().mode() & 0o077 != 0;
        if open {
            std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(open)
    }

    fn sync_directory(&self) -> std::io::Result<()> {
        self.path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    // Not through a link: the state directory is ours alone, and a link in it leads somewhere that is not.
    let opened = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(Some(bytes))
}
