//! The envelope: how one secret and its versions become bytes. `docs/formats/vault.md` is the same in words.
//!
//! Every version has a data key of its own, encrypted under the vault's key-encryption key (KEK). The header holds
//! everything but the values, and a seal over it: without the KEK nothing can change a byte, drop a version or put one
//! secret's blob in another's place. Listing reads and checks headers; it decrypts nothing.
//!
//! ```text
//! magic 8 | KEK id 16 | header length 4 | header | seal nonce 24 | seal tag 16 | body of each version
//! header:  scope | name | count 1 | for each version:
//!          number 8 | created 8 | expires 8 | key nonce 24 | wrapped key 48 | value nonce 24 | value length 4
//! body:    ciphertext | tag 16
//! ```
//!
//! Parsing is strict: lengths are checked before anything is allocated, every byte belongs to something, and a blob has
//! one spelling.

mod reader;

use crate::aead::{Key, NONCE, Nonce, TAG, Tag, Unauthentic, WRAPPED, associated, random_array};
use crate::error::VaultError;
use crate::value::{MAX_VALUE, SecretValue};
use palyra_protocol::{SecretRef, Timestamp, VaultId};
pub(crate) use reader::Reader;
use std::fmt;
use zeroize::Zeroizing;

pub(crate) const MAGIC: &[u8; 8] = b"PLYRSEC1";
/// Magic, KEK id, header length.
pub(crate) const PREFIX: usize = 8 + KekId::LEN + 4;
const SEAL: usize = NONCE + TAG;
/// The most versions that a secret has at once.
pub const MAX_VERSIONS: usize = 16;
/// The longest header: two names and sixteen versions fit.
pub(crate) const MAX_HEADER: usize = 4096;
/// The longest blob.
pub(crate) const MAX_BLOB: usize = PREFIX + MAX_HEADER + SEAL + MAX_VERSIONS * (MAX_VALUE + TAG);
/// Enough to read any header and its seal.
pub(crate) const MAX_HEAD: usize = PREFIX + MAX_HEADER + SEAL;

/// Which KEK something is encrypted under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KekId(pub(crate) [u8; Self::LEN]);

impl KekId {
    pub(crate) const LEN: usize = 16;
}

impl fmt::Debug for KekId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A key-encryption key with the keys that follow from it.
#[derive(Clone)]
pub(crate) struct Kek {
    pub(crate) id: KekId,
    pub(crate) key: Key,
    /// Encrypts data keys.
    wrapping: Key,
    /// Seals the headers of blobs.
    sealing: Key,
    /// Seals the vault's own header.
    pub(crate) vault_sealing: Key,
}

impl Kek {
    /// A fresh random KEK: derived from no other key.
    pub(crate) fn generate(vault: &VaultId) -> Result<Self, VaultError> {
        Self::new(vault, KekId(random_array()?), Key::generate()?)
    }

    pub(crate) fn new(vault: &VaultId, id: KekId, key: Key) -> Result<Self, VaultError> {
        let salt = vault.as_str().as_bytes();
        Ok(Self {
            id,
            wrapping: key.derive(salt, "palyra.vault.data-keys.v1")?,
            sealing: key.derive(salt, "palyra.vault.blob-headers.v1")?,
            vault_sealing: key.derive(salt, "palyra.vault.vault-header.v1")?,
            key,
        })
    }
}

/// Why bytes are not an envelope, or not the one that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvelopeFault {
    #[error("it ends too early")]
    Truncated,
    #[error("it is not a secret's blob of this format")]
    Magic,
    #[error("a length in it is out of bounds")]
    Length,
    #[error("bytes follow its end")]
    Trailing,
    #[error("its scope or name is none")]
    Reference,
    #[error("its versions are out of order")]
    Versions,
    #[error("it belongs to another secret")]
    OtherSecret,
    #[error("its key is not one of this vault's")]
    UnknownKey,
    #[error("its header was changed, or belongs to another vault")]
    HeaderSeal,
    #[error("its data key was changed")]
    DataKey,
    #[error("its value was changed")]
    Value,
}

/// One version of a secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) created_at: Timestamp,
    /// When a replaced version ends; nothing for the current one.
    pub(crate) expires_at: Option<Timestamp>,
    key_nonce: Nonce,
    wrapped_key: [u8; WRAPPED],
    value_nonce: Nonce,
    pub(crate) value_len: u32,
}

impl Version {
    /// Whether the version can be read: it is the current one, or its grace is not over.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }
}

/// What is written in a blob before the bodies: parsed, and not yet known to be authentic.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) kek: KekId,
    pub(crate) reference: SecretRef,
    pub(crate) versions: Vec<Version>,
    /// How many bytes magic, KEK id and header take.
    sealed_len: usize,
    seal_nonce: Nonce,
    seal_tag: Tag,
}

impl Head {
    /// Parses the beginning of a blob.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, EnvelopeFault> {
        let mut reader = Reader::new(bytes);
        if reader.array()? != *MAGIC {
            return Err(EnvelopeFault::Magic);
        }
        let kek = KekId(reader.array()?);
        let length = reader.u32()? as usize;
        if length > MAX_HEADER {
            return Err(EnvelopeFault::Length);
        }
        let (reference, versions) = parse_header(reader.take(length)?)?;
        let (seal_nonce, seal_tag) = (reader.array()?, reader.array()?);
        Ok(Self { kek, reference, versions, sealed_len: PREFIX + length, seal_nonce, seal_tag })
    }

    /// How many bytes come before the bodies.
    pub(crate) fn len(&self) -> usize {
        self.sealed_len + SEAL
    }

    /// How many bytes the whole blob has.
    pub(crate) fn blob_len(&self) -> usize {
        self.len() + self.versions.iter().map(|version| version.value_len as usize + TAG).sum::<usize>()
    }

    /// Checks that the header is what was written for this vault. `bytes` are those that it was parsed from.
    pub(crate) fn verify(&self, vault: &VaultId, kek: &Kek, bytes: &[u8]) -> Result<(), EnvelopeFault> {
        if self.kek != kek.id {
            return Err(EnvelopeFault::UnknownKey);
        }
        let sealed = bytes.get(..self.sealed_len).ok_or(EnvelopeFault::Truncated)?;
        let opened = kek.sealing.open(&self.seal_nonce, &header_data(vault, sealed), &mut [], &self.seal_tag);
        opened.map_err(|Unauthentic| EnvelopeFault::HeaderSeal)
    }

    /// The version that is in force.
    pub(crate) fn current(&self) -> Option<&Version> {
        self.versions.last()
    }
}

fn parse_header(bytes: &[u8]) -> Result<(SecretRef, Vec<Version>), EnvelopeFault> {
    let mut reader = Reader::new(bytes);
    let reference = reader.reference()?;
    let count = usize::from(reader.u8()?);
    if !(1..=MAX_VERSIONS).contains(&count) {
        return Err(EnvelopeFault::Versions);
    }
    let mut versions: Vec<Version> = Vec::with_capacity(count);
    for left in (0..count).rev() {
        let version = parse_version(&mut reader)?;
        let ascends = versions.last().map_or(0, |last| last.number) < version.number;
        if !ascends || version.expires_at.is_none() != (left == 0) {
            return Err(EnvelopeFault::Versions);
        }
        versions.push(version);
    }
    reader.end()?;
    Ok((reference, versions))
}

fn parse_version(reader: &mut Reader<'_>) -> Result<Version, EnvelopeFault> {
    let version = Version {
        number: reader.u64()?,
        created_at: Timestamp::from_unix_ms(reader.u64()?),
        expires_at: match reader.u64()? {
            0 => None,
            at => Some(Timestamp::from_unix_ms(at)),
        },
        key_nonce: reader.array()?,
        wrapped_key: reader.array()?,
        value_nonce: reader.array()?,
        value_len: reader.u32()?,
    };
    let fits = (1..=MAX_VALUE).contains(&(version.value_len as usize));
    if fits { Ok(version) } else { Err(EnvelopeFault::Length) }
}

/// A whole blob whose header is authentic.
#[derive(Debug)]
pub(crate) struct Envelope<'a> {
    vault: &'a VaultId,
    pub(crate) head: Head,
    bodies: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Checks that the header, parsed from these bytes, was sealed under this KEK, and that it is this secret's.
    pub(crate) fn open(
        vault: &'a VaultId,
        kek: &Kek,
        expected: &SecretRef,
        head: Head,
        bytes: &'a [u8],
    ) -> Result<Self, EnvelopeFault> {
        head.verify(vault, kek, bytes)?;
        if head.reference != *expected {
            return Err(EnvelopeFault::OtherSecret);
        }
        match bytes.len().cmp(&head.blob_len()) {
            std::cmp::Ordering::Less => Err(EnvelopeFault::Truncated),
            std::cmp::Ordering::Greater => Err(EnvelopeFault::Trailing),
            std::cmp::Ordering::Equal => Ok(Self { vault, bodies: &bytes[head.len()..], head }),
        }
    }

    /// The value of one version.
    pub(crate) fn value(&self, kek: &Kek, number: u64) -> Result<Option<SecretValue>, EnvelopeFault> {
        let Some((version, body)) = self.bodies().find(|(version, _)| version.number == number) else {
            return Ok(None);
        };
        let key = unwrap_key(self.vault, kek, &self.head.reference, version)?;
        let (ciphertext, tag) = body.split_at(body.len() - TAG);
        let tag = Tag::try_from(tag).map_err(|_| EnvelopeFault::Truncated)?;
        let mut value = Zeroizing::new(ciphertext.to_vec());
        let data = value_data(self.vault, &self.head.reference, version.number, version.created_at);
        key.open(&version.value_nonce, &data, &mut value, &tag).map_err(|Unauthentic| EnvelopeFault::Value)?;
        Ok(Some(SecretValue::from_envelope(value)))
    }

    /// The versions with their bodies; the lengths were checked against the blob's.
    fn bodies(&self) -> impl Iterator<Item = (&Version, &'a [u8])> {
        let mut rest = self.bodies;
        self.head.versions.iter().map(move |version| {
            let (body, after) = rest.split_at(version.value_len as usize + TAG);
            rest = after;
            (version, body)
        })
    }

    /// The versions that `keep` keeps, as parts of a new blob under `to`. Values stay as they are; data keys are
    /// wrapped anew where the KEK is another.
    pub(crate) fn parts(
        &self,
        from: &Kek,
        to: &Kek,
        keep: impl Fn(&Version) -> bool,
    ) -> Result<Vec<Part<'a>>, VaultError> {
        let mut parts = Vec::new();
        for (version, body) in self.bodies().filter(|(version, _)| keep(version)) {
            let mut version = version.clone();
            if from.id != to.id {
                let reference = &self.head.reference;
                let key = unwrap_key(self.vault, from, reference, &version)
                    .map_err(|fault| VaultError::damaged_blob(reference, fault))?;
                (version.key_nonce, version.wrapped_key) = wrap_key(self.vault, to, reference, version.number, &key)?;
            }
            parts.push(Part { version, body: body.into() });
        }
        Ok(parts)
    }
}

/// One version of a blob that is being written.
pub(crate) struct Part<'a> {
    pub(crate) version: Version,
    body: std::borrow::Cow<'a, [u8]>,
}

impl Part<'_> {
    /// Encrypts a value as a version, under a data key that is used for nothing else.
    pub(crate) fn seal(
        vault: &VaultId,
        kek: &Kek,
        reference: &SecretRef,
        stamp: VersionStamp,
        value: &SecretValue,
    ) -> Result<Self, VaultError> {
        let key = Key::generate()?;
        let value_nonce = random_array()?;
        let mut body = Vec::with_capacity(value.expose().len() + TAG);
        body.extend_from_slice(value.expose());
        let data = value_data(vault, reference, stamp.number, stamp.created_at);
        let tag = key.seal(&value_nonce, &data, &mut body)?;
        let value_len =
            u32::try_from(body.len()).map_err(|_| VaultError::ValueTooLarge { bytes: body.len(), limit: MAX_VALUE })?;
        body.extend_from_slice(&tag);
        let (key_nonce, wrapped_key) = wrap_key(vault, kek, reference, stamp.number, &key)?;
        let version = Version {
            number: stamp.number,
            created_at: stamp.created_at,
            expires_at: stamp.expires_at,
            key_nonce,
            wrapped_key,
            value_nonce,
            value_len,
        };
        Ok(Self { version, body: body.into() })
    }
}

/// Which version a value becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VersionStamp {
    pub(crate) number: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
}

/// Writes a blob: header, seal, bodies. The parts are in order of their versions, and the last is the current one.
pub(crate) fn write(
    vault: &VaultId,
    kek: &Kek,
    reference: &SecretRef,
    parts: &[Part<'_>],
) -> Result<Vec<u8>, VaultError> {
    let header = write_header(reference, parts)?;
    let bodies: usize = parts.iter().map(|part| part.body.len()).sum();
    let mut blob = Vec::with_capacity(PREFIX + header.len() + SEAL + bodies);
    blob.extend_from_slice(MAGIC);
    blob.extend_from_slice(&kek.id.0);
    blob.extend_from_slice(&(header.len() as u32).to_be_bytes());
    blob.extend_from_slice(&header);
    let nonce = random_array()?;
    let tag = kek.sealing.seal(&nonce, &header_data(vault, &blob), &mut [])?;
    blob.extend_from_slice(&nonce);
    blob.extend_from_slice(&tag);
    for part in parts {
        blob.extend_from_slice(&part.body);
    }
    Ok(blob)
}

/// A parsed head as it would be written: its bytes up to the bodies.
pub(crate) fn rewritten(head: &Head) -> Vec<u8> {
    let parts: Vec<Part<'_>> =
        head.versions.iter().map(|version| Part { version: version.clone(), body: (&[]).into() }).collect();
    let header = write_header(&head.reference, &parts).unwrap_or_default();
    let length = (header.len() as u32).to_be_bytes();
    [&MAGIC[..], &head.kek.0, &length, &header, &head.seal_nonce, &head.seal_tag].concat()
}

fn write_header(reference: &SecretRef, parts: &[Part<'_>]) -> Result<Vec<u8>, VaultError> {
    let mut header = Vec::new();
    for text in [reference.scope().to_string().as_str(), reference.name().as_str()] {
        header.extend_from_slice(&(text.len() as u16).to_be_bytes());
        header.extend_from_slice(text.as_bytes());
    }
    let count = u8::try_from(parts.len()).ok().filter(|count| usize::from(*count) <= MAX_VERSIONS);
    header.push(count.ok_or(VaultError::TooManyVersions { limit: MAX_VERSIONS })?);
    for Part { version, .. } in parts {
        header.extend_from_slice(&version.number.to_be_bytes());
        header.extend_from_slice(&version.created_at.unix_ms().to_be_bytes());
        header.extend_from_slice(&version.expires_at.map_or(0, Timestamp::unix_ms).to_be_bytes());
        header.extend_from_slice(&version.key_nonce);
        header.extend_from_slice(&version.wrapped_key);
        header.extend_from_slice(&version.value_nonce);
        header.extend_from_slice(&version.value_len.to_be_bytes());
    }
    Ok(header)
}

fn wrap_key(
    vault: &VaultId,
    kek: &Kek,
    reference: &SecretRef,
    number: u64,
    key: &Key,
) -> Result<(Nonce, [u8; WRAPPED]), VaultError> {
    let nonce = random_array()?;
    let wrapped = kek.wrapping.wrap(&nonce, &key_data(vault, kek.id, reference, number), key)?;
    Ok((nonce, wrapped))
}

fn unwrap_key(vault: &VaultId, kek: &Kek, reference: &SecretRef, version: &Version) -> Result<Key, EnvelopeFault> {
    let data = key_data(vault, kek.id, reference, version.number);
    kek.wrapping.unwrap(&version.key_nonce, &data, &version.wrapped_key).map_err(|Unauthentic| EnvelopeFault::DataKey)
}

fn header_data(vault: &VaultId, sealed: &[u8]) -> Vec<u8> {
    associated("palyra.vault.blob-header.v1", &[vault.as_str().as_bytes(), sealed])
}

fn key_data(vault: &VaultId, kek: KekId, reference: &SecretRef, number: u64) -> Vec<u8> {
    let scope = reference.scope().to_string();
    let fields: [&[u8]; 5] = [
        vault.as_str().as_bytes(),
        &kek.0,
        scope.as_bytes(),
        reference.name().as_str().as_bytes(),
        &number.to_be_bytes(),
    ];
    associated("palyra.vault.data-key.v1", &fields)
}

fn value_data(vault: &VaultId, reference: &SecretRef, number: u64, created_at: Timestamp) -> Vec<u8> {
    let scope = reference.scope().to_string();
    let fields: [&[u8]; 5] = [
        vault.as_str().as_bytes(),
        scope.as_bytes(),
        reference.name().as_str().as_bytes(),
        &number.to_be_bytes(),
        &created_at.unix_ms().to_be_bytes(),
    ];
    associated("palyra.vault.value.v1", &fields)
}

#[cfg(test)]
mod tests;
