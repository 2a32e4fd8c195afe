//! Secrets and their versions: get, put, delete, list.
//!
//! A put makes a new current version. The one before it stays readable by its number until its grace ends; with no
//! grace it is gone at once. Every change is one replacement of one blob, so a crash leaves the secret as it was or as
//! it becomes.

use super::{State, Vault};
use crate::backend::BlobId;
use crate::envelope::{self, Envelope, EnvelopeFault, Head, Kek, MAX_HEAD, MAX_VERSIONS, Part, Version, VersionStamp};
use crate::error::VaultError;
use crate::value::SecretValue;
use palyra_protocol::{Digest, SecretRef, Timestamp, VaultScope};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// How much of a blob is read first when only its header is wanted: enough for a few versions.
const USUAL_HEAD: usize = 1024;

/// How many values are put at once.
const BATCH: usize = 1024;

/// A secret that was released.
#[expect(missing_debug_implementations, reason = "it holds the value of a secret")]
pub struct OpenedSecret {
    /// Which version.
    pub version: u64,
    /// When that version was put.
    pub created_at: Timestamp,
    /// The value.
    pub value: SecretValue,
}

/// What is known of a secret without opening it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretMetadata {
    /// Which secret.
    pub reference: SecretRef,
    /// The current version.
    pub version: u64,
    /// Its versions, the current one last.
    pub versions: Vec<VersionMetadata>,
}

/// What is known of a version without opening it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionMetadata {
    /// Its number.
    pub version: u64,
    /// When it was put.
    pub created_at: Timestamp,
    /// When its grace ends; nothing for the current version.
    pub expires_at: Option<Timestamp>,
    /// How many bytes its value has.
    pub bytes: u32,
}

/// All secrets, and blobs that cannot be read as one.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// In order of their references.
    pub secrets: Vec<SecretMetadata>,
    /// What is damaged.
    pub damaged: Vec<DamagedBlob>,
}

/// A blob that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedBlob {
    /// Its id.
    pub blob: BlobId,
    /// What it says it is, where that can be read. It may be a lie.
    pub alleged: Option<SecretRef>,
    /// How it shows.
    pub reason: String,
}

/// How a value is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// How long the version before stays readable by its number.
    pub grace: Duration,
    /// What must be there for the put to happen.
    pub replaces: Replaces,
}

/// What a put may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replaces {
    /// Whatever is there, or nothing.
    #[default]
    Anything,
    /// Nothing: the secret must be new.
    Nothing,
    /// This current version.
    Version(u64),
}

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutReceipt {
    /// The version that the value became.
    pub version: u64,
    /// SHA-256 of the encrypted blob. It shows nothing; recorded elsewhere, it tells an older blob that somebody put
    /// back.
    pub blob: Digest,
}

impl Vault {
    /// The current value of a secret.
    ///
    /// # Errors
    /// There is none, its blob is damaged, or the backend cannot be read.
    pub fn get(&self, reference: &SecretRef) -> Result<OpenedSecret, VaultError> {
        self.opened(reference, None)
    }

    /// One version of a secret.
    ///
    /// # Errors
    /// As for [`Vault::get`], and when there is no such version or its grace is over.
    pub fn get_version(&self, reference: &SecretRef, version: u64) -> Result<OpenedSecret, VaultError> {
        self.opened(reference, Some(version))
    }

    fn opened(&self, reference: &SecretRef, number: Option<u64>) -> Result<OpenedSecret, VaultError> {
        let now = self.surroundings.clock.now();
        self.with_blob(reference, |state, bytes| {
            let (envelope, kek) = state.envelope(reference, bytes)?;
            let version = match number {
                None => envelope.head.current(),
                Some(number) => envelope.head.versions.iter().find(|v| v.number == number && v.is_live(now)),
            };
            let version = version.ok_or_else(|| VaultError::NoSuchVersion {
                reference: reference.clone(),
                version: number.unwrap_or_default(),
            })?;
            let value = envelope.value(kek, version.number);
            let value = value.map_err(|fault| VaultError::damaged_blob(reference, fault))?;
            let value = value.ok_or(VaultError::Internal { what: "a version has no value" })?;
            Ok(OpenedSecret { version: version.number, created_at: version.created_at, value })
        })
    }

    /// Reads a blob and lets `read` look at it. If that fails and the vault has another key or backend by then, once
    /// more.
    fn with_blob<T>(
        &self,
        reference: &SecretRef,
        read: impl Fn(&State, &[u8]) -> Result<T, VaultError>,
    ) -> Result<T, VaultError> {
        let attempt = |state: &State| {
            let bytes = state.backend.read(BlobId::of(reference))?;
            read(state, &bytes.ok_or_else(|| VaultError::NotFound { reference: reference.clone() })?)
        };
        let state = self.state();
        attempt(&state).or_else(|error| {
            let now = self.state();
            if Arc::ptr_eq(&now, &state) { Err(error) } else { attempt(&now) }
        })
    }

    /// Puts a value: a new current version.
    ///
    /// # Errors
    /// The secret is not what `replaces` says, too many versions are in their grace, the present blob is damaged, or it
    /// cannot be written. The secret is then as it was.
    pub fn put(
        &self,
        reference: &SecretRef,
        value: &SecretValue,
        options: PutOptions,
    ) -> Result<PutReceipt, VaultError> {
        let _writing = self.writing();
        let state = self.state();
        let (version, blob) = self.next_blob(&state, reference, value, options)?;
        state.backend.write(BlobId::of(reference), &blob)?;
        Ok(PutReceipt { version, blob: Digest::of(&blob) })
    }

    /// Puts many values, each as [`Vault::put`] does, but durable together: far cheaper than one after the other.
    ///
    /// # Errors
    /// As for [`Vault::put`], for any of them. Some may have been put then, each whole.
    pub fn put_all(&self, secrets: &[(SecretRef, SecretValue)], options: PutOptions) -> Result<(), VaultError> {
        let _writing = self.writing();
        let state = self.state();
        for secrets in secrets.chunks(BATCH) {
            let mut batch = Vec::with_capacity(secrets.len());
            for (reference, value) in secrets {
                let (_, blob) = self.next_blob(&state, reference, value, options)?;
                batch.push((BlobId::of(reference), blob));
            }
            state.backend.write_all(&batch)?;
        }
        Ok(())
    }

    /// What a secret's blob becomes when a value is put.
    fn next_blob(
        &self,
        state: &State,
        reference: &SecretRef,
        value: &SecretValue,
        options: PutOptions,
    ) -> Result<(u64, Vec<u8>), VaultError> {
        let now = self.surroundings.clock.now();
        let old = state.backend.read(BlobId::of(reference))?;
        let old = old.as_deref().map(|bytes| state.envelope(reference, bytes)).transpose()?;
        let found = old.as_ref().and_then(|(envelope, _)| envelope.head.current()).map(|version| version.number);
        check_replaced(reference, options.replaces, found)?;
        let mut parts = match &old {
            None => Vec::new(),
            Some((envelope, kek)) => envelope.parts(kek, &state.keys.present, |version| version.is_live(now))?,
        };
        if let Some(last) = parts.last_mut() {
            last.version.expires_at = Some(now.plus(options.grace).max(Timestamp::from_unix_ms(1)));
        }
        parts.retain(|part| part.version.is_live(now));
        if parts.len() >= MAX_VERSIONS {
            return Err(VaultError::TooManyVersions { limit: MAX_VERSIONS });
        }
        let number = found.map_or(Some(1), |number| number.checked_add(1));
        let number = number.ok_or(VaultError::Internal { what: "a secret has no further version numbers" })?;
        let stamp = VersionStamp { number, created_at: now, expires_at: None };
        parts.push(Part::seal(&state.header.vault, &state.keys.present, reference, stamp, value)?);
        Ok((number, state.sealed(reference, &parts)?))
    }

    /// Ends the grace of an old version now.
    ///
    /// # Errors
    /// There is no such version, or it is the current one.
    pub fn end_grace(&self, reference: &SecretRef, version: u64) -> Result<(), VaultError> {
        let _writing = self.writing();
        let state = self.state();
        let missing = || VaultError::NoSuchVersion { reference: reference.clone(), version };
        let bytes = state.backend.read(BlobId::of(reference))?;
        let bytes = bytes.ok_or_else(|| VaultError::NotFound { reference: reference.clone() })?;
        let (envelope, kek) = state.envelope(reference, &bytes)?;
        let old = |v: &Version| v.number == version && v.expires_at.is_some();
        if !envelope.head.versions.iter().any(old) {
            return Err(missing());
        }
        let parts = envelope.parts(kek, &state.keys.present, |version| !old(version))?;
        state.backend.write(BlobId::of(reference), &state.sealed(reference, &parts)?)
    }

    /// Deletes a secret with all its versions and bindings.
    ///
    /// # Errors
    /// There is none, or it cannot be deleted.
    pub fn delete(&self, reference: &SecretRef) -> Result<(), VaultError> {
        let _writing = self.writing();
        // First the bindings: a later secret of the same name must not find itself bound.
        self.remove_bindings_of(reference)?;
        if self.state().backend.remove(BlobId::of(reference))? {
            Ok(())
        } else {
            Err(VaultError::NotFound { reference: reference.clone() })
        }
    }

    /// What is known of a secret without opening it.
    ///
    /// # Errors
    /// There is none, or its header is damaged.
    pub fn metadata(&self, reference: &SecretRef) -> Result<SecretMetadata, VaultError> {
        self.with_blob(reference, |state, bytes| {
            let (envelope, _) = state.envelope(reference, bytes)?;
            Ok(describe(&envelope.head, self.surroundings.clock.now()))
        })
    }

    /// All secrets, or those of one scope. Headers are read and checked; nothing is decrypted.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub fn list(&self, scope: Option<&VaultScope>) -> Result<Listing, VaultError> {
        let state = self.state();
        let now = self.surroundings.clock.now();
        let mut listing = Listing::default();
        for blob in state.backend.list()? {
            match self.head(&state, blob)? {
                None => {}
                Some(Ok(head)) if scope.is_none_or(|scope| scope == head.reference.scope()) => {
                    listing.secrets.push(describe(&head, now));
                }
                Some(Ok(_)) => {}
                Some(Err(damaged)) => listing.damaged.push(damaged),
            }
        }
        listing.secrets.sort_by(|a, b| a.reference.cmp(&b.reference));
        Ok(listing)
    }

    /// The authentic header of a blob; nothing if the blob has gone meanwhile.
    pub(crate) fn head(
        &self,
        state: &Arc<State>,
        blob: BlobId,
    ) -> Result<Option<Result<Head, DamagedBlob>>, VaultError> {
        let read = |length| state.backend.read_beginning(blob, length);
        let Some(mut bytes) = read(USUAL_HEAD)? else { return Ok(None) };
        let mut parsed = Head::parse(&bytes);
        if matches!(parsed, Err(EnvelopeFault::Truncated)) && bytes.len() >= USUAL_HEAD {
            let Some(more) = read(MAX_HEAD)? else { return Ok(None) };
            bytes = more;
            parsed = Head::parse(&bytes);
        }
        let alleged = parsed.as_ref().ok().map(|head| head.reference.clone());
        let checked = parsed.and_then(|head| {
            // A rekey may have come in between.
            let fresh = state.keys.find(head.kek).is_none().then(|| self.state());
            let keys = fresh.as_ref().map_or(&state.keys, |fresh| &fresh.keys);
            head.verify(&state.header.vault, keys.find(head.kek).ok_or(EnvelopeFault::UnknownKey)?, &bytes)?;
            if BlobId::of(&head.reference) == blob { Ok(head) } else { Err(EnvelopeFault::OtherSecret) }
        });
        Ok(Some(checked.map_err(|fault| DamagedBlob { blob, alleged, reason: fault.to_string() })))
    }
}

impl State {
    /// Opens a blob that must be this secret's.
    pub(crate) fn envelope<'a>(
        &'a self,
        reference: &SecretRef,
        bytes: &'a [u8],
    ) -> Result<(Envelope<'a>, &'a Kek), VaultError> {
        let damaged = |fault| VaultError::damaged_blob(reference, fault);
        let head = Head::parse(bytes).map_err(damaged)?;
        let kek = self.keys.find(head.kek).ok_or_else(|| damaged(EnvelopeFault::UnknownKey))?;
        let envelope = Envelope::open(&self.header.vault, kek, reference, head, bytes).map_err(damaged)?;
        Ok((envelope, kek))
    }

    /// A secret's blob under the present KEK, if the backend can keep it.
    pub(crate) fn sealed(&self, reference: &SecretRef, parts: &[Part<'_>]) -> Result<Vec<u8>, VaultError> {
        let blob = envelope::write(&self.header.vault, &self.keys.present, reference, parts)?;
        let limit = self.backend.limit();
        if blob.len() > limit {
            return Err(VaultError::BackendLimit { backend: self.backend.kind(), bytes: blob.len(), limit });
        }
        Ok(blob)
    }
}

fn describe(head: &Head, now: Timestamp) -> SecretMetadata {
    let live = head.versions.iter().filter(|version| version.is_live(now));
    let versions = live.map(|version| VersionMetadata {
        version: version.number,
        created_at: version.created_at,
        expires_at: version.expires_at,
        bytes: version.value_len,
    });
    SecretMetadata {
        reference: head.reference.clone(),
        version: head.current().map_or(0, |version| version.number),
        versions: versions.collect(),
    }
}

fn check_replaced(reference: &SecretRef, replaces: Replaces, found: Option<u64>) -> Result<(), VaultError> {
    let fits = match replaces {
        Replaces::Anything => true,
        Replaces::Nothing => found.is_none(),
        Replaces::Version(version) => found == Some(version),
    };
    if fits { Ok(()) } else { Err(VaultError::Conflict { reference: reference.clone(), found }) }
}
