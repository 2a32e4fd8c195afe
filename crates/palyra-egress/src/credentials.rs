//! Credentials that go with a request and that its sender never holds.
//!
//! The caller of a proxy or a fetch may hand in [`Credentials`]: they say which hosts are bound, what is attached to a
//! request, and they clean answers of what was attached. This crate knows no vault; it asks before a request goes out
//! and sends what it is given to that endpoint and to no other. For a bound host nothing opaque passes: a tunnel there
//! ends at the proxy, which shows a certificate of an authority that exists for one run, names the bound hosts alone,
//! and whose key never leaves this memory.

use super::denial::Denial;
use palyra_protocol::{Secret, SecretRef};
use std::fmt;

/// A request that is about to go out.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingRequest<'a> {
    /// Whether it goes over TLS.
    pub tls: bool,
    /// The host in its one spelling.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The method.
    pub method: &'a str,
    /// The path, without its query.
    pub path: &'a str,
    /// The values of its header fields, as the sender wrote them.
    pub values: &'a [&'a [u8]],
}

/// What goes with a request.
#[derive(Debug, Default)]
pub struct Attached {
    /// Header fields; each takes the place of those of its name.
    pub fields: Vec<(String, Secret)>,
    /// The secrets that they hold.
    pub secrets: Vec<SecretRef>,
}

impl Attached {
    /// Whether nothing goes along.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// Cleans the bytes of one answer of what was attached.
pub trait AnswerFilter: Send {
    /// Takes the next bytes, appends what may be passed on.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>);
    /// Appends what was held back.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Says what goes with which request.
pub trait Credentials: fmt::Debug + Send + Sync {
    /// Whether anything is bound to this host and port.
    fn is_bound(&self, host: &str, port: u16) -> bool;

    /// What goes with a request; nothing if it concerns no binding.
    ///
    /// # Errors
    /// The request concerns a binding that does not cover it, or shows a placeholder where it does not belong.
    fn attach(&self, request: &OutgoingRequest<'_>) -> Result<Attached, Denial>;

    /// A filter for one answer.
    fn filter(&self) -> Box<dyn AnswerFilter>;

    /// Who speaks for the bound hosts inside a sandbox.
    #[cfg(target_os = "linux")]
    fn authority(&self) -> Option<&super::inspection::InspectionAuthority>;
}
