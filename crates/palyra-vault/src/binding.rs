//! Bindings: which secret is attached to which requests.
//!
//! A binding says where a secret goes: to these hosts, in this header, optionally only from one program, for some
//! methods, below some path. The daemon's proxy attaches it, so that the process that makes the request never holds the
//! value. Whatever a binding does not cover is refused: a credential goes to no endpoint that was not named.

mod choose;
mod endpoint;
mod path;
mod template;

pub use choose::{Bindings, CredentialRequest, EndpointMismatch, MismatchReason};
pub use endpoint::{BoundHost, Scheme};
pub use path::PathPattern;
pub use template::{HeaderTemplate, RenderedHeader};

use crate::aead::random_array;
use crate::error::VaultError;
use palyra_protocol::{BindingId, Digest, SecretRef, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The most bindings of a vault.
pub const MAX_BINDINGS: usize = 1024;
/// The most hosts of a binding.
pub(crate) const MAX_HOSTS: usize = 16;
/// The most methods of a binding.
pub(crate) const MAX_METHODS: usize = 16;
/// The longest name of a program.
const MAX_PROGRAM: usize = 256;

/// Why a binding cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// The host is none.
    #[error(
        "`{given}` is not a host to bind to; write `api.example.com`, `api.example.com:8443`, or `http://localhost:8080` for \
         plain HTTP"
    )]
    Host {
        /// What was given.
        given: String,
    },
    /// No hosts, too many, or one twice.
    #[error("a binding has 1 to {MAX_HOSTS} different hosts")]
    Hosts,
    /// The header is none.
    #[error(
        "`{given}` is not a header to attach; write `Authorization: Bearer {{}}` or `Authorization: Basic {{basic:USER}}`"
    )]
    Header {
        /// What was given.
        given: String,
    },
    /// The header belongs to the connection.
    #[error("`{name}` is for the connection; a credential in it would change the request")]
    ReservedHeader {
        /// The header.
        name: String,
    },
    /// The method is none.
    #[error("`{given}` is not a method; write it in capital letters, as in `GET`")]
    Method {
        /// What was given.
        given: String,
    },
    /// Too many methods, or one twice.
    #[error("a binding has at most {MAX_METHODS} different methods")]
    Methods,
    /// The path is none.
    #[error("`{given}` is not a path to bind to; write `/repos/*` or `/user`: {reason}")]
    Path {
        /// What was given.
        given: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The program's name is none.
    #[error("the name of a program has 1 to {MAX_PROGRAM} characters, and none that a terminal obeys")]
    Program,
    /// Too many bindings.
    #[error("a vault has at most {limit} bindings, in a header of 1 MiB")]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// The value cannot be part of a header.
    #[error("the value of `{secret}` cannot be sent in a header: it holds a line end or a character outside of ASCII")]
    ValueUnsafe {
        /// The secret.
        secret: SecretRef,
    },
}

impl BindingError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host { .. } | Self::Hosts => "binding_host",
            Self::Header { .. } | Self::ReservedHeader { .. } => "binding_header",
            Self::Method { .. } | Self::Methods => "binding_method",
            Self::Path { .. } => "binding_path",
            Self::Program => "binding_program",
            Self::TooMany { .. } => "binding_too_many",
            Self::ValueUnsafe { .. } => "secret_not_a_header",
        }
    }
}

/// A method of HTTP, in capital letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Method(String);

impl Method {
    /// The method as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Method {
    type Err = BindingError;
    fn from_str(text: &str) -> Result<Self, BindingError> {
        // A tunnel shows nothing to attach a header to.
        let fits = (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase()) && text != "CONNECT";
        if fits { Ok(Self(text.to_owned())) } else { Err(BindingError::Method { given: excerpt(text) }) }
    }
}

impl TryFrom<String> for Method {
    type Error = BindingError;
    fn try_from(text: String) -> Result<Self, BindingError> {
        text.parse()
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The program that a secret is bound to: the content of its file, and what to call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundProgram {
    /// What the operator called it. For display alone.
    pub name: String,
    /// SHA-256 of its file.
    pub sha256: Digest,
}

/// What a new binding says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBinding {
    /// The secret that is attached.
    pub secret: SecretRef,
    /// The hosts that it goes to.
    pub hosts: Vec<BoundHost>,
    /// The header that it goes in.
    pub header: HeaderTemplate,
    /// The program that may use it; nothing for any.
    pub program: Option<BoundProgram>,
    /// The methods; none for any.
    pub methods: Vec<Method>,
    /// The paths; nothing for any.
    pub path: Option<PathPattern>,
}

/// A secret bound to requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawBinding")]
pub struct Binding {
    id: BindingId,
    created_at: Timestamp,
    secret: SecretRef,
    hosts: Vec<BoundHost>,
    header: HeaderTemplate,
    program: Option<BoundProgram>,
    methods: Vec<Method>,
    path: Option<PathPattern>,
}

/// A binding as it was read, before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBinding {
    id: BindingId,
    created_at: Timestamp,
    secret: SecretRef,
    hosts: Vec<BoundHost>,
    header: HeaderTemplate,
    program: Option<BoundProgram>,
    methods: Vec<Method>,
    path: Option<PathPattern>,
}

impl TryFrom<RawBinding> for Binding {
    type Error = BindingError;
    fn try_from(raw: RawBinding) -> Result<Self, BindingError> {
        let RawBinding { id, created_at, secret, hosts, header, program, methods, path } = raw;
        Self::new(id, created_at, NewBinding { secret, hosts, header, program, methods, path })
    }
}

impl Binding {
    /// Checks what the parts do not check by themselves.
    pub(crate) fn new(id: BindingId, created_at: Timestamp, new: NewBinding) -> Result<Self, BindingError> {
        let NewBinding { secret, hosts, header, program, methods, path } = new;
        if !(1..=MAX_HOSTS).contains(&hosts.len()) || has_twice(&hosts) {
            return Err(BindingError::Hosts);
        }
        if methods.len() > MAX_METHODS || has_twice(&methods) {
            return Err(BindingError::Methods);
        }
        let named = |program: &BoundProgram| {
            (1..=MAX_PROGRAM).contains(&program.name.len())
                && !program.name.chars().any(palyra_protocol::display::deceives)
        };
        if !program.as_ref().is_none_or(named) {
            return Err(BindingError::Program);
        }
        Ok(Self { id, created_at, secret, hosts, header, program, methods, path })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &BindingId {
        &self.id
    }

    /// When it was made.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// The secret that is attached.
    #[must_use]
    pub fn secret(&self) -> &SecretRef {
        &self.secret
    }

    /// The hosts that it goes to.
    #[must_use]
    pub fn hosts(&self) -> &[BoundHost] {
        &self.hosts
    }

    /// The header that it goes in.
    #[must_use]
    pub fn header(&self) -> &HeaderTemplate {
        &self.header
    }

    /// The program that may use it; nothing for any.
    #[must_use]
    pub fn program(&self) -> Option<&BoundProgram> {
        self.program.as_ref()
    }

    /// The methods; none for any.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The paths; nothing for any.
    #[must_use]
    pub fn path(&self) -> Option<&PathPattern> {
        self.path.as_ref()
    }

    /// What the binding says, without its id and time.
    #[must_use]
    pub fn terms(&self) -> NewBinding {
        let Self { id: _, created_at: _, secret, hosts, header, program, methods, path } = self.clone();
        NewBinding { secret, hosts, header, program, methods, path }
    }
}

/// A text that stands for a secret where a process would hold its value. It is random and opens nothing.
///
/// # Errors
/// The machine gives no randomness.
pub fn placeholder() -> Result<String, VaultError> {
    Ok(format!("palyra-placeholder-{}", hex::encode(random_array::<16>()?)))
}

fn has_twice<T: PartialEq>(items: &[T]) -> bool {
    items.iter().enumerate().any(|(at, item)| items[..at].contains(item))
}

/// Hostile text, cut to what a message can bear.
fn excerpt(text: &str) -> String {
    palyra_protocol::display::safe(&text.chars().take(80).collect::<String>())
}
