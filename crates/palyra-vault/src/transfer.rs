//! Export and import: all secrets in one file that a passphrase seals. `docs/formats/vault.md` has the format.
//!
//! ```text
//! magic 8 | header length 4 | header: canonical JSON | frames: length 4, ciphertext, tag 16
//! frame:  1, scope, name, version 8, created 8, expires 8, value | 2, binding: JSON | 3, count of frames before 8
//! ```
//!
//! Frames are numbered by their nonces and bound to the header, so none can be moved, taken from another file or left
//! out; the last says how many there are. An import reads the whole file before it changes anything.

mod frames;

use crate::aead::random_array;
use crate::backend::BlobId;
use crate::binding::{Binding, BindingError, MAX_BINDINGS, NewBinding};
use crate::envelope::{Part, VersionStamp};
use crate::error::VaultError;
use crate::slots::PassphraseCost;
use crate::value::SecretValue;
use crate::vault::{DamagedBlob, State, Vault};
pub(crate) use frames::ExportHeader;
use frames::{Frame, FrameReader, FrameWriter, SecretFrame};
use palyra_protocol::{BindingId, SecretRef, Timestamp};
use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom, Write};

/// How many blobs are written at once.
const BATCH: usize = 256;

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportReport {
    /// How many secrets.
    pub secrets: usize,
    /// How many bindings.
    pub bindings: usize,
    /// Blobs that could not be read, and are not in the export.
    pub damaged: Vec<DamagedBlob>,
}

/// What becomes of secrets that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportConflict {
    /// Nothing is imported.
    Refuse,
    /// They stay.
    Skip,
    /// The imported value becomes their new current version.
    Replace,
}

/// What an import did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// How many secrets were added.
    pub added: usize,
    /// How many were given a new version.
    pub replaced: usize,
    /// How many stayed as they were.
    pub skipped: usize,
    /// How many bindings were added.
    pub bindings: usize,
}

impl Vault {
    /// Writes all secrets and bindings, sealed by a passphrase.
    ///
    /// # Errors
    /// The passphrase cannot be used, or something cannot be read or written.
    pub fn export(
        &self,
        out: &mut dyn Write,
        passphrase: &SecretValue,
        cost: PassphraseCost,
    ) -> Result<ExportReport, VaultError> {
        let _writing = self.writing();
        let state = self.state();
        let now = self.surroundings.clock.now();
        let header = ExportHeader::new(&state.header.vault, now, cost.checked()?, random_array()?, random_array()?);
        let mut frames = FrameWriter::begin(out, header, passphrase)?;
        let mut report = ExportReport::default();
        for id in state.backend.list()? {
            match self.head(&state, id)? {
                None => {}
                Some(Err(damaged)) => report.damaged.push(damaged),
                Some(Ok(head)) => match opened(&state, id, &head.reference, now) {
                    Ok(versions) => {
                        versions.iter().try_for_each(|version| frames.secret(version))?;
                        report.secrets += 1;
                    }
                    Err(VaultError::Damaged { reason, .. }) => {
                        report.damaged.push(DamagedBlob { blob: id, alleged: Some(head.reference), reason });
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        for binding in state.bindings.all() {
            frames.binding(binding)?;
            report.bindings += 1;
        }
        frames.end()?;
        Ok(report)
    }

    /// Adds the secrets and bindings of an exported file. The whole file is read and checked before anything is
    /// changed.
    ///
    /// # Errors
    /// The passphrase is wrong, the file was changed or cut off, a secret is there already and `conflict` refuses that,
    /// or something cannot be written. Importing the same file again, with `Skip`, goes on where an import was
    /// interrupted.
    pub fn import(
        &self,
        file: &mut (impl Read + Seek),
        passphrase: &SecretValue,
        conflict: ImportConflict,
    ) -> Result<ImportReport, VaultError> {
        let _writing = self.writing();
        let state = self.state();
        let mut reader = FrameReader::begin(file, passphrase)?;
        let bindings = self.check_import(&state, &mut reader, conflict)?;
        reader.again()?;
        let mut report = self.import_secrets(&state, &mut reader, conflict)?;
        report.bindings = bindings.len();
        self.add_bindings(bindings)?;
        Ok(report)
    }

    /// The first reading: everything is authentic, in order, and may be imported. Returns the bindings that are new.
    fn check_import<F: Read + Seek>(
        &self,
        state: &State,
        reader: &mut FrameReader<'_, F>,
        conflict: ImportConflict,
    ) -> Result<Vec<Binding>, VaultError> {
        let present: Vec<NewBinding> = state.bindings.all().iter().map(Binding::terms).collect();
        let mut bindings = Vec::new();
        let (mut done, mut last) = (BTreeSet::new(), None);
        while let Some(frame) = reader.next()? {
            match frame {
                Frame::Secret(secret) => {
                    let follows = last.as_ref().is_some_and(|(reference, _)| *reference == secret.reference);
                    let ascends = last.as_ref().is_none_or(|(_, version)| *version < secret.stamp.number);
                    if if follows { !ascends } else { !done.insert(BlobId::of(&secret.reference)) } {
                        return Err(VaultError::damaged("the exported file", "its versions are out of order"));
                    }
                    if !follows {
                        check_present(state, &secret.reference, conflict)?;
                    }
                    last = Some((secret.reference, secret.stamp.number));
                }
                Frame::Binding(terms) if present.contains(&terms) => {}
                Frame::Binding(terms) => {
                    bindings.push(Binding::new(BindingId::mint(), self.surroundings.clock.now(), *terms)?);
                }
            }
        }
        if present.len() + bindings.len() > MAX_BINDINGS {
            return Err(BindingError::TooMany { limit: MAX_BINDINGS }.into());
        }
        Ok(bindings)
    }

    /// The second reading: secrets are written in batches, each whole.
    fn import_secrets<F: Read + Seek>(
        &self,
        state: &State,
        reader: &mut FrameReader<'_, F>,
        conflict: ImportConflict,
    ) -> Result<ImportReport, VaultError> {
        let now = self.surroundings.clock.now();
        let mut report = ImportReport::default();
        let (mut batch, mut versions): (Vec<(BlobId, Vec<u8>)>, Vec<SecretFrame>) = (Vec::new(), Vec::new());
        loop {
            let next = match reader.next()? {
                Some(Frame::Binding(_)) => continue,
                Some(Frame::Secret(secret)) => Some(*secret),
                None => None,
            };
            let reference = next.as_ref().map(|next| &next.reference);
            if let Some(first) = versions.first()
                && Some(&first.reference) != reference
            {
                batch.extend(imported(state, &versions, conflict, now, &mut report)?);
                versions.clear();
            }
            if batch.len() >= BATCH || next.is_none() {
                state.backend.write_all(&batch)?;
                batch.clear();
            }
            match next {
                Some(next) => versions.push(next),
                None => return Ok(report),
            }
        }
    }
}

/// Whether a secret that is there already is in the way.
fn check_present(state: &State, reference: &SecretRef, conflict: ImportConflict) -> Result<(), VaultError> {
    let Some(bytes) = state.backend.read(BlobId::of(reference))? else { return Ok(()) };
    match conflict {
        ImportConflict::Refuse => Err(VaultError::ImportConflict { reference: reference.clone() }),
        ImportConflict::Skip => Ok(()),
        ImportConflict::Replace => state.envelope(reference, &bytes).map(drop),
    }
}

/// The live versions of a secret, opened.
fn opened(state: &State, id: BlobId, reference: &SecretRef, now: Timestamp) -> Result<Vec<SecretFrame>, VaultError> {
    let missing = || VaultError::NotFound { reference: reference.clone() };
    let bytes = state.backend.read(id)?.ok_or_else(missing)?;
    let (envelope, kek) = state.envelope(reference, &bytes)?;
    let mut versions = Vec::new();
    for version in envelope.head.versions.iter().filter(|version| version.is_live(now)) {
        let value = envelope.value(kek, version.number).map_err(|fault| VaultError::damaged_blob(reference, fault))?;
        let value = value.ok_or(VaultError::Internal { what: "a version has no value" })?;
        let stamp =
            VersionStamp { number: version.number, created_at: version.created_at, expires_at: version.expires_at };
        versions.push(SecretFrame { reference: reference.clone(), stamp, value });
    }
    Ok(versions)
}

/// The blob that the versions of one secret become; nothing if the secret stays as it is.
fn imported(
    state: &State,
    versions: &[SecretFrame],
    conflict: ImportConflict,
    now: Timestamp,
    report: &mut ImportReport,
) -> Result<Option<(BlobId, Vec<u8>)>, VaultError> {
    let Some(last) = versions.last() else { return Ok(None) };
    let (reference, id) = (&last.reference, BlobId::of(&last.reference));
    let seal = |secret: &SecretFrame, stamp: VersionStamp| {
        Part::seal(&state.header.vault, &state.keys.present, reference, stamp, &secret.value)
    };
    let present = state.backend.read(id)?;
    let parts = match (present, conflict) {
        (None, _) => {
            report.added += 1;
            let (current, old) =
                versions.split_last().ok_or(VaultError::Internal { what: "a secret has no version" })?;
            let live = old.iter().filter(|old| old.stamp.expires_at.is_some_and(|at| now < at));
            let mut parts = live.map(|old| seal(old, old.stamp)).collect::<Result<Vec<_>, _>>()?;
            parts.push(seal(current, VersionStamp { expires_at: None, ..current.stamp })?);
            parts
        }
        (Some(_), ImportConflict::Refuse) => {
            return Err(VaultError::ImportConflict { reference: reference.clone() });
        }
        (Some(_), ImportConflict::Skip) => {
            report.skipped += 1;
            return Ok(None);
        }
        (Some(bytes), ImportConflict::Replace) => {
            report.replaced += 1;
            let (envelope, _) = state.envelope(reference, &bytes)?;
            let number = envelope.head.current().map_or(0, |version| version.number).saturating_add(1);
            vec![seal(last, VersionStamp { number, created_at: now, expires_at: None })?]
        }
    };
    Ok(Some((id, state.sealed(reference, &parts)?)))
}

/// Moves a file to its beginning.
fn rewind(file: &mut impl Seek) -> Result<(), VaultError> {
    file.seek(SeekFrom::Start(0)).map(drop).map_err(|source| VaultError::Transfer { source })
}
