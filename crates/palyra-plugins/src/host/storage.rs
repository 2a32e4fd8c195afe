//! `palyra:skill/storage`.

use crate::bindings::palyra::skill::storage::{self, Error};
use crate::doors::{StorageDoor, StorageFault};
use crate::error::Stop;
use crate::guest::{Guest, HostCallKind, MISMATCH};
use crate::record::{Blob, HostAnswer};
use crate::storage::check_key;
use palyra_protocol::{Digest, DigestBuilder};
use std::sync::Arc;

fn told(fault: StorageFault) -> Error {
    match fault {
        StorageFault::QuotaExceeded(quota) => Error::QuotaExceeded(quota),
        StorageFault::InvalidKey => Error::InvalidKey,
        StorageFault::Unavailable(why) => Error::Unavailable(why),
    }
}

fn asked(what: &str, key: &str, value: &[u8]) -> Option<Digest> {
    let digest = DigestBuilder::new("palyra.plugins.storage.v1").field(what.as_bytes());
    Some(digest.field(key.as_bytes()).field(value).finish())
}

impl Guest {
    fn storage<T>(&self, work: impl FnOnce(&dyn StorageDoor) -> Result<T, StorageFault>) -> Result<T, StorageFault> {
        let door = self.doors.storage.as_ref().map(Arc::clone);
        door.map_or_else(
            || Err(StorageFault::Unavailable("no storage is open in this call".to_owned())),
            |door| work(&*door),
        )
    }
}

impl storage::Host for Guest {
    fn read(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, Error>> {
        self.count(HostCallKind::Storage)?;
        if check_key(&key).is_err() {
            return Ok(Err(Error::InvalidKey));
        }
        let live = |guest: &mut Self| {
            Ok(HostAnswer::Stored(guest.storage(|door| door.read(&key)).map(|value| value.map(Blob))))
        };
        match self.ask("stored", asked("read", &key, &[]), live)? {
            HostAnswer::Stored(answer) => Ok(answer.map(|value| value.map(|blob| blob.0)).map_err(told)),
            _ => Err(MISMATCH.into()),
        }
    }

    fn write(&mut self, key: String, value: Vec<u8>) -> wasmtime::Result<Result<(), Error>> {
        self.count(HostCallKind::Storage)?;
        if check_key(&key).is_err() {
            return Ok(Err(Error::InvalidKey));
        }
        let quota = self.grant.storage_bytes();
        let live = |guest: &mut Self| -> Result<HostAnswer, Stop> {
            guest.control.check()?;
            Ok(HostAnswer::StorageWritten(guest.storage(|door| door.write(&key, &value, quota))))
        };
        match self.ask("storage_written", asked("write", &key, &value), live)? {
            HostAnswer::StorageWritten(answer) => Ok(answer.map_err(told)),
            _ => Err(MISMATCH.into()),
        }
    }

    fn delete(&mut self, key: String) -> wasmtime::Result<Result<bool, Error>> {
        self.count(HostCallKind::Storage)?;
        if check_key(&key).is_err() {
            return Ok(Err(Error::InvalidKey));
        }
        let live = |guest: &mut Self| -> Result<HostAnswer, Stop> {
            guest.control.check()?;
            Ok(HostAnswer::StorageDeleted(guest.storage(|door| door.delete(&key))))
        };
        match self.ask("storage_deleted", asked("delete", &key, &[]), live)? {
            HostAnswer::StorageDeleted(answer) => Ok(answer.map_err(told)),
            _ => Err(MISMATCH.into()),
        }
    }

    fn keys(&mut self, prefix: String) -> wasmtime::Result<Result<Vec<String>, Error>> {
        self.count(HostCallKind::Storage)?;
        if prefix.len() > crate::storage::MOST_KEY_BYTES {
            return Ok(Ok(Vec::new()));
        }
        let live = |guest: &mut Self| Ok(HostAnswer::StorageKeys(guest.storage(|door| door.keys(&prefix))));
        match self.ask("storage_keys", asked("keys", &prefix, &[]), live)? {
            HostAnswer::StorageKeys(answer) => Ok(answer.map_err(told)),
            _ => Err(MISMATCH.into()),
        }
    }
}
