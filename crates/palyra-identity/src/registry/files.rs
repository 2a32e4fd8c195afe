//! The registry's files, replaced so that a crash at any instant leaves a registry that is whole.
//!
//! A change takes four steps. The shards that it touches are written as new files, named by their digests; the new root
//! is written beside the old one; all of it is made durable. Then the journal records the root's digest, which is the
//! moment the change counts. Then the new root takes the old one's place, and the shards that no root names any more
//! are removed.
//!
//! A start compares with the newest digest of the journal. The root fits: all is well. The copy beside it fits: the
//! crash came after the record, and the replacement is finished. Neither fits: somebody else wrote the file, or put an
//! old one back, and it is refused: an old registry may hold a device that was revoked.

use super::document::{MAX_ROOT_BYTES, MAX_SHARD_BYTES, ShardId};
use crate::private_file;
use palyra_protocol::Digest;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The root's name in the state directory.
pub const REGISTRY_FILE: &str = "identity_registry.json";
/// The name of the directory with the shards.
pub const SHARDS_DIRECTORY: &str = "identity_devices";

/// The registry's files.
#[derive(Debug, Clone)]
pub(crate) struct RegistryFiles {
    root: PathBuf,
    shards: PathBuf,
}

/// What was found where the root should be.
#[derive(Debug)]
pub(crate) struct Odd {
    /// SHA-256 of it, if there was something that could be read.
    pub(crate) found: Option<Digest>,
    /// Where it is now.
    pub(crate) aside: Option<PathBuf>,
}

impl RegistryFiles {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self { root: state_dir.join(REGISTRY_FILE), shards: state_dir.join(SHARDS_DIRECTORY) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where a shard is.
    pub(crate) fn shard(&self, shard: ShardId, digest: Digest) -> PathBuf {
        self.shards.join(format!("{shard}-{digest}.json"))
    }

    pub(crate) fn read_root(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(private_file::read(&self.root, MAX_ROOT_BYTES)?.map(|(bytes, _)| bytes))
    }

    pub(crate) fn read_shard(&self, shard: ShardId, digest: Digest) -> io::Result<Option<Vec<u8>>> {
        Ok(private_file::read(&self.shard(shard, digest), MAX_SHARD_BYTES)?.map(|(bytes, _)| bytes))
    }

    /// Step one: new shards and the next root, durable beside what is in place.
    pub(crate) fn prepare(&self, shards: &[(ShardId, Digest, Vec<u8>)], root: &[u8]) -> io::Result<()> {
        if !shards.is_empty() {
            private_file::directory(&self.shards)?;
            for (shard, digest, bytes) in shards {
                private_file::write(&self.shard(*shard, *digest), bytes)?;
            }
            std::fs::File::open(&self.shards)?.sync_all()?;
        }
        private_file::write(&private_file::beside(&self.root), root)?;
        private_file::sync_parent(&self.root)
    }

    /// Takes step one back.
    pub(crate) fn abandon(&self, shards: impl Iterator<Item = (ShardId, Digest)>) -> io::Result<()> {
        private_file::remove(&private_file::beside(&self.root))?;
        self.discard(shards)
    }

    /// Steps three and four: the prepared root takes its place.
    pub(crate) fn replace(&self) -> io::Result<()> {
        std::fs::rename(private_file::beside(&self.root), &self.root)?;
        private_file::sync_parent(&self.root)
    }

    /// Removes shards that no root names any more.
    pub(crate) fn discard(&self, mut shards: impl Iterator<Item = (ShardId, Digest)>) -> io::Result<()> {
        shards.try_for_each(|(shard, digest)| private_file::remove(&self.shard(shard, digest)))
    }

    /// Finishes a replacement that a crash has cut off; tells whether there was one.
    pub(crate) fn finish(&self, expected: Digest) -> io::Result<bool> {
        let prepared = private_file::read(&private_file::beside(&self.root), MAX_ROOT_BYTES)?;
        let fits = prepared.is_some_and(|(bytes, _)| Digest::of(&bytes) == expected);
        if fits {
            self.replace()?;
        }
        Ok(fits)
    }

    /// Removes what a crash has left: a root that never counted, and shards that no root names. Other files stay.
    pub(crate) fn sweep(&self, named: &BTreeMap<ShardId, Digest>) -> io::Result<()> {
        private_file::remove(&private_file::beside(&self.root))?;
        let entries = match std::fs::read_dir(&self.shards) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let shard = name.to_str().and_then(shard_of_name);
            if let Some((shard, digest)) = shard.filter(|(shard, digest)| named.get(shard) != Some(digest)) {
                private_file::remove(&self.shard(shard, digest))?;
            }
        }
        Ok(())
    }

    /// Puts a root aside that is not the one that was written last, before it is replaced. A directory is nobody's
    /// registry and stays where it is.
    pub(crate) fn set_aside_unless(&self, known: &[u8], revision: u64) -> io::Result<Option<Odd>> {
        let meta = match self.root.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(Odd { found: None, aside: None })),
            other => other?,
        };
        // What cannot be read, like a link, is not ours either.
        let found = self.read_root().ok().flatten();
        if meta.is_dir() || found.as_deref() == Some(known) {
            return Ok(None);
        }
        let found = found.as_deref().map(Digest::of);
        let mut name = self.root.clone().into_os_string();
        name.push(format!(".refused-before-{revision}"));
        let aside = PathBuf::from(name);
        std::fs::rename(&self.root, &aside)?;
        private_file::sync_parent(&self.root)?;
        Ok(Some(Odd { found, aside: Some(aside) }))
    }

    /// Takes others' rights to the root away; tells whether there were any.
    pub(crate) fn make_private(&self) -> io::Result<bool> {
        private_file::make_private(&self.root)
    }
}

fn shard_of_name(name: &str) -> Option<(ShardId, Digest)> {
    let (shard, digest) = name.strip_suffix(".json")?.split_once('-')?;
    Some((shard.parse().ok()?, digest.parse().ok()?))
}
