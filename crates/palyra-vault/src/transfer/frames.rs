//! The bytes of an exported file: header and frames.

use super::rewind;
use crate::aead::{Key, NONCE, TAG, Unauthentic, associated};
use crate::binding::{Binding, NewBinding};
use crate::envelope::{EnvelopeFault, Reader, VersionStamp};
use crate::error::VaultError;
use crate::slots::PassphraseCost;
use crate::value::{MAX_VALUE, SecretValue};
use palyra_protocol::json::canonical_text;
use palyra_protocol::{CanonicalJson, SecretRef, Timestamp, VaultId};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Seek, Write};
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"PLYREXP1";
pub(crate) const FORMAT: &str = "palyra-vault-export-1";
const WHAT: &str = "the exported file";
const MAX_HEADER: usize = 1024;
/// The longest frame: a value with its reference, or a binding.
const MAX_FRAME: usize = MAX_VALUE + 16 * 1024;

const SECRET: u8 = 1;
const BINDING: u8 = 2;
const END: u8 = 3;

/// What is written in clear at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportHeader {
    format: String,
    /// The vault that was exported. For the reader alone.
    vault: VaultId,
    created_at: Timestamp,
    cost: PassphraseCost,
    #[serde(with = "hex::serde")]
    salt: [u8; 32],
    #[serde(with = "hex::serde")]
    nonce: [u8; 16],
}

impl ExportHeader {
    pub(super) fn new(
        vault: &VaultId,
        created_at: Timestamp,
        cost: PassphraseCost,
        salt: [u8; 32],
        nonce: [u8; 16],
    ) -> Self {
        Self { format: FORMAT.to_owned(), vault: vault.clone(), created_at, cost, salt, nonce }
    }

    /// Reads the header's text: exactly the bytes that we would write.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, VaultError> {
        let json = CanonicalJson::parse(bytes).map_err(|error| VaultError::damaged(WHAT, error))?;
        let found = json.value().get("format").and_then(|format| format.as_str()).unwrap_or_default();
        if found != FORMAT {
            let found = palyra_protocol::display::safe(&found.chars().take(40).collect::<String>());
            return Err(VaultError::Format { what: WHAT, found, expected: FORMAT });
        }
        let header: Self =
            serde_json::from_value(json.value().clone()).map_err(|error| VaultError::damaged(WHAT, error))?;
        header.cost.checked().map_err(|error| VaultError::damaged(WHAT, error))?;
        if header.text()?.as_bytes() == bytes {
            Ok(header)
        } else {
            Err(VaultError::damaged(WHAT, "its header is not in canonical form"))
        }
    }

    fn text(&self) -> Result<String, VaultError> {
        canonical_text(self).map_err(|_| VaultError::Internal { what: "a header has no text form" })
    }

    fn key(&self, passphrase: &SecretValue) -> Result<Key, VaultError> {
        self.cost.stretch(passphrase, &self.salt)?.derive(&self.salt, "palyra.vault.export.v1")
    }

    fn frame_nonce(&self, index: u64) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        let (random, counter) = nonce.split_at_mut(self.nonce.len());
        random.copy_from_slice(&self.nonce);
        counter.copy_from_slice(&index.to_be_bytes());
        nonce
    }
}

/// One version of a secret.
pub(super) struct SecretFrame {
    pub(super) reference: SecretRef,
    pub(super) stamp: VersionStamp,
    pub(super) value: SecretValue,
}

/// What a frame holds.
pub(super) enum Frame {
    Secret(Box<SecretFrame>),
    Binding(Box<NewBinding>),
}

/// A binding without what belongs to one vault.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BindingFrame {
    secret: SecretRef,
    hosts: Vec<crate::binding::BoundHost>,
    header: crate::binding::HeaderTemplate,
    program: Option<crate::binding::BoundProgram>,
    methods: Vec<crate::binding::Method>,
    path: Option<crate::binding::PathPattern>,
}

/// Writes frames.
pub(super) struct FrameWriter<'a> {
    out: &'a mut dyn Write,
    header: ExportHeader,
    text: String,
    key: Key,
    index: u64,
}

impl<'a> FrameWriter<'a> {
    pub(super) fn begin(
        out: &'a mut dyn Write,
        header: ExportHeader,
        passphrase: &SecretValue,
    ) -> Result<Self, VaultError> {
        let text = header.text()?;
        let key = header.key(passphrase)?;
        let mut beginning = MAGIC.to_vec();
        beginning.extend_from_slice(&(text.len() as u32).to_be_bytes());
        beginning.extend_from_slice(text.as_bytes());
        out.write_all(&beginning).map_err(|source| VaultError::Transfer { source })?;
        Ok(Self { out, header, text, key, index: 0 })
    }

    pub(super) fn secret(&mut self, secret: &SecretFrame) -> Result<(), VaultError> {
        let value = secret.value.expose();
        // Long enough from the beginning: a frame that grew would leave a copy of the value behind.
        let mut frame = Zeroizing::new(Vec::with_capacity(value.len() + SecretRef::MAX + 64));
        frame.push(SECRET);
        for text in [secret.reference.scope().to_string().as_str(), secret.reference.name().as_str()] {
            frame.extend_from_slice(&(text.len() as u16).to_be_bytes());
            frame.extend_from_slice(text.as_bytes());
        }
        let VersionStamp { number, created_at, expires_at } = secret.stamp;
        for time in [number, created_at.unix_ms(), expires_at.map_or(0, Timestamp::unix_ms)] {
            frame.extend_from_slice(&time.to_be_bytes());
        }
        frame.extend_from_slice(value);
        self.write(frame)
    }

    pub(super) fn binding(&mut self, binding: &Binding) -> Result<(), VaultError> {
        let NewBinding { secret, hosts, header, program, methods, path } = binding.terms();
        let text = canonical_text(&BindingFrame { secret, hosts, header, program, methods, path })
            .map_err(|_| VaultError::Internal { what: "a binding has no text form" })?;
        self.write(Zeroizing::new([&[BINDING], text.as_bytes()].concat()))
    }

    pub(super) fn end(mut self) -> Result<(), VaultError> {
        let frame = [&[END][..], &self.index.to_be_bytes()].concat();
        self.write(Zeroizing::new(frame))?;
        self.out.flush().map_err(|source| VaultError::Transfer { source })
    }

    fn write(&mut self, mut frame: Zeroizing<Vec<u8>>) -> Result<(), VaultError> {
        let data = frame_data(&self.text, self.index);
        let tag = self.key.seal(&self.header.frame_nonce(self.index), &data, &mut frame)?;
        self.index += 1;
        let length = ((frame.len() + TAG) as u32).to_be_bytes();
        for part in [&length[..], &frame, &tag] {
            self.out.write_all(part).map_err(|source| VaultError::Transfer { source })?;
        }
        Ok(())
    }
}

fn frame_data(header: &str, index: u64) -> Vec<u8> {
    associated("palyra.vault.export-frame.v1", &[header.as_bytes(), &index.to_be_bytes()])
}

/// Reads frames.
pub(super) struct FrameReader<'a, F> {
    file: &'a mut F,
    header: ExportHeader,
    text: String,
    key: Key,
    index: u64,
}

impl<'a, F: Read + Seek> FrameReader<'a, F> {
    pub(super) fn begin(file: &'a mut F, passphrase: &SecretValue) -> Result<Self, VaultError> {
        rewind(file)?;
        let text = read_header(file)?;
        let header = ExportHeader::parse(text.as_bytes())?;
        let key = header.key(passphrase)?;
        Ok(Self { file, header, text, key, index: 0 })
    }

    /// Begins anew; the key need not be made anew.
    pub(super) fn again(&mut self) -> Result<(), VaultError> {
        rewind(self.file)?;
        self.index = 0;
        if read_header(self.file)? == self.text {
            Ok(())
        } else {
            Err(VaultError::damaged(WHAT, "it was changed while it was read"))
        }
    }

    /// The next frame; nothing at the end, which must be where the file ends.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, VaultError> {
        let mut length = [0; 4];
        fill(self.file, &mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if !(TAG + 1..=MAX_FRAME + TAG).contains(&length) {
            return Err(VaultError::damaged(WHAT, "a length in it is out of bounds"));
        }
        let mut frame = Zeroizing::new(vec![0; length]);
        fill(self.file, &mut frame)?;
        let (body, tag) = frame.split_at_mut(length - TAG);
        let tag = <[u8; TAG]>::try_from(&*tag).map_err(|_| VaultError::damaged(WHAT, EnvelopeFault::Truncated))?;
        let data = frame_data(&self.text, self.index);
        let opened = self.key.open(&self.header.frame_nonce(self.index), &data, body, &tag);
        opened.map_err(|Unauthentic| match self.index {
            0 => VaultError::ExportPassphrase,
            _ => VaultError::damaged(WHAT, "a part of it was changed"),
        })?;
        self.index += 1;
        match body.split_first() {
            Some((&SECRET, rest)) => Ok(Some(Frame::Secret(Box::new(parse_secret(rest)?)))),
            Some((&BINDING, rest)) => Ok(Some(Frame::Binding(Box::new(parse_binding(rest)?)))),
            Some((&END, rest)) if rest == (self.index - 1).to_be_bytes() => self.at_end().map(|()| None),
            _ => Err(VaultError::damaged(WHAT, "a part of it is of no known kind")),
        }
    }

    fn at_end(&mut self) -> Result<(), VaultError> {
        match self.file.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(VaultError::damaged(WHAT, EnvelopeFault::Trailing)),
            Err(source) => Err(VaultError::Transfer { source }),
        }
    }
}

fn read_header(file: &mut impl Read) -> Result<String, VaultError> {
    let (mut magic, mut length) = ([0; MAGIC.len()], [0; 4]);
    fill(file, &mut magic)?;
    if magic != *MAGIC {
        let found = palyra_protocol::display::safe(&String::from_utf8_lossy(&magic));
        return Err(VaultError::Format { what: WHAT, found, expected: FORMAT });
    }
    fill(file, &mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_HEADER {
        return Err(VaultError::damaged(WHAT, "a length in it is out of bounds"));
    }
    let mut text = vec![0; length];
    fill(file, &mut text)?;
    String::from_utf8(text).map_err(|_| VaultError::damaged(WHAT, "its header is no text"))
}

fn fill(file: &mut impl Read, buffer: &mut [u8]) -> Result<(), VaultError> {
    file.read_exact(buffer).map_err(|source| match source.kind() {
        ErrorKind::UnexpectedEof => VaultError::damaged(WHAT, EnvelopeFault::Truncated),
        _ => VaultError::Transfer { source },
    })
}

fn parse_secret(bytes: &[u8]) -> Result<SecretFrame, VaultError> {
    let damaged = |fault: EnvelopeFault| VaultError::damaged(WHAT, fault);
    let mut reader = Reader::new(bytes);
    let reference = reader.reference().map_err(damaged)?;
    let mut number = || reader.u64().map_err(damaged);
    let (number, created_at, expires_at) = (number()?, number()?, number()?);
    let value = SecretValue::new(reader.rest().to_vec())?;
    let stamp = VersionStamp {
        number,
        created_at: Timestamp::from_unix_ms(created_at),
        expires_at: (expires_at != 0).then(|| Timestamp::from_unix_ms(expires_at)),
    };
    Ok(SecretFrame { reference, stamp, value })
}

fn parse_binding(bytes: &[u8]) -> Result<NewBinding, VaultError> {
    let BindingFrame { secret, hosts, header, program, methods, path } =
        serde_json::from_slice(bytes).map_err(|error| VaultError::damaged(WHAT, error))?;
    Ok(NewBinding { secret, hosts, header, program, methods, path })
}
