//! Which credential goes with a request: a pure function of the bindings and the request.
//!
//! Only secrets that the call's permit covers take part. If none of them is bound to the host, the request goes on as
//! it is. If one is, the request must be covered by its binding: anything else is an endpoint mismatch, and the request
//! goes nowhere.

use super::{Binding, Scheme};
use palyra_protocol::{Digest, SecretRef};
use std::collections::HashMap;
use std::fmt;

/// A request, as the proxy understood it.
#[derive(Debug, Clone, Copy)]
pub struct CredentialRequest<'a> {
    /// Whether it goes to the server over TLS.
    pub scheme: Scheme,
    /// The host in its one spelling: lower case, no final dot, IPv6 in brackets.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The method.
    pub method: &'a str,
    /// The path, without its query.
    pub path: &'a str,
    /// SHA-256 of the file of the program that makes the request, as far as it is known.
    pub program: Option<Digest>,
    /// The secrets that the call's permit covers.
    pub permitted: &'a [SecretRef],
    /// The secrets whose placeholder the request holds.
    pub presented: &'a [SecretRef],
}

/// A request that a binding does not cover.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{secret}` does not go to this endpoint: {reason}")]
pub struct EndpointMismatch {
    /// The secret that would have gone there.
    pub secret: SecretRef,
    /// Why it does not.
    pub reason: MismatchReason,
}

impl EndpointMismatch {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "credential_endpoint_mismatch"
    }

    /// What to ask a person for, as a command that they can run.
    #[must_use]
    pub fn ask_for(&self) -> String {
        let name = self.secret.to_string();
        let name = name.trim_start_matches("vault://");
        match &self.reason {
            MismatchReason::NotPermitted => {
                format!("propose a call that names `{}`, and have it approved", self.secret)
            }
            MismatchReason::Ambiguous { other } => {
                format!(
                    "name only one of `{}` and `{other}` in the call, or bind one of them more narrowly",
                    self.secret
                )
            }
            MismatchReason::AmbiguousPath { .. } => {
                "write the path without dot segments and encoded separators".to_owned()
            }
            _ => format!("ask for a binding that covers this request: `palyra vault bind {name} …`"),
        }
    }
}

/// Why a secret does not go with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MismatchReason {
    /// The call's permit does not cover the secret.
    NotPermitted,
    /// The secret is not bound to this host and port.
    Host {
        /// Where it is bound to.
        bound: Vec<String>,
    },
    /// The binding demands TLS, or plain HTTP.
    Scheme,
    /// Another method.
    Method {
        /// The methods of the binding.
        bound: Vec<String>,
    },
    /// Another path.
    Path {
        /// The path of the binding.
        bound: String,
    },
    /// A path that servers read in different ways.
    AmbiguousPath {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another program, or one that nobody knows.
    Program {
        /// The program of the binding.
        bound: String,
    },
    /// Another secret is bound to the same header as narrowly.
    Ambiguous {
        /// The other.
        other: SecretRef,
    },
}

impl fmt::Display for MismatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("this call's permit does not cover it"),
            Self::Host { bound } if bound.is_empty() => f.write_str("it is bound to no host"),
            Self::Host { bound } => write!(f, "it is bound to {}", bound.join(", ")),
            Self::Scheme => f.write_str("the binding and the request do not agree on TLS"),
            Self::Method { bound } => write!(f, "it is bound to the methods {}", bound.join(", ")),
            Self::Path { bound } => write!(f, "it is bound to the path {bound}"),
            Self::AmbiguousPath { reason } => write!(f, "the path can be read in two ways: {reason}"),
            Self::Program { bound } => write!(f, "it is bound to the program {bound}"),
            Self::Ambiguous { other } => write!(f, "`{other}` is bound to the same header"),
        }
    }
}

/// All bindings of a vault, found by host.
#[derive(Debug, Default)]
pub struct Bindings {
    all: Vec<Binding>,
    by_host: HashMap<String, Vec<usize>>,
}

impl Bindings {
    /// Builds the index.
    #[must_use]
    pub fn new(all: Vec<Binding>) -> Self {
        let mut by_host: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, binding) in all.iter().enumerate() {
            for host in binding.hosts() {
                let found = by_host.entry(host.host().to_owned()).or_default();
                if found.last() != Some(&index) {
                    found.push(index);
                }
            }
        }
        Self { all, by_host }
    }

    /// Every binding, in the order they were made.
    #[must_use]
    pub fn all(&self) -> &[Binding] {
        &self.all
    }

    /// The bindings of one secret.
    pub fn of<'a>(&'a self, secret: &'a SecretRef) -> impl Iterator<Item = &'a Binding> {
        self.all.iter().filter(move |binding| binding.secret() == secret)
    }

    /// The hosts that these secrets are bound to: what the proxy terminates TLS for, and tunnels to no more.
    #[must_use]
    pub fn hosts<'a>(&'a self, permitted: &[SecretRef]) -> Vec<&'a super::BoundHost> {
        let relevant = self.all.iter().filter(|binding| permitted.contains(binding.secret()));
        let mut hosts: Vec<&super::BoundHost> = Vec::new();
        for host in relevant.flat_map(Binding::hosts) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }

    /// The bindings whose credentials go with a request, at most one for each header. None if the request concerns no
    /// binding.
    ///
    /// # Errors
    /// The request concerns a binding that does not cover it.
    pub fn credentials_for(&self, request: CredentialRequest<'_>) -> Result<Vec<&Binding>, EndpointMismatch> {
        if let Some(secret) = request.presented.iter().find(|secret| !request.permitted.contains(secret)) {
            return Err(EndpointMismatch { secret: secret.clone(), reason: MismatchReason::NotPermitted });
        }
        let at_host: Vec<&Binding> = self
            .by_host
            .get(request.host)
            .into_iter()
            .flatten()
            .filter_map(|index| self.all.get(*index))
            .filter(|binding| request.permitted.contains(binding.secret()))
            .collect();
        let (mut covering, mut refused) = (Vec::new(), Vec::new());
        for binding in at_host {
            match covers(binding, &request) {
                Ok(()) => covering.push(binding),
                Err(reason) => refused.push(EndpointMismatch { secret: binding.secret().clone(), reason }),
            }
        }
        if let Some(secret) = request.presented.iter().find(|secret| !covering.iter().any(|b| b.secret() == *secret)) {
            let known = refused.into_iter().find(|mismatch| mismatch.secret == *secret);
            return Err(known.unwrap_or_else(|| self.elsewhere(secret)));
        }
        if covering.is_empty() {
            return refused.into_iter().next().map_or(Ok(Vec::new()), Err);
        }
        one_for_each_header(&covering, request.presented)
    }

    /// A secret that is bound to other hosts, or to none.
    fn elsewhere(&self, secret: &SecretRef) -> EndpointMismatch {
        let bound = self.of(secret).flat_map(Binding::hosts).map(ToString::to_string).collect();
        EndpointMismatch { secret: secret.clone(), reason: MismatchReason::Host { bound } }
    }
}

/// Whether a binding of this host covers the request in every other respect.
fn covers(binding: &Binding, request: &CredentialRequest<'_>) -> Result<(), MismatchReason> {
    let texts = |hosts: &[super::BoundHost]| hosts.iter().map(ToString::to_string).collect();
    let mut at_port = binding.hosts().iter().filter(|host| host.host() == request.host && host.port() == request.port);
    let schemes: Vec<Scheme> = at_port.by_ref().map(super::BoundHost::scheme).collect();
    if schemes.is_empty() {
        return Err(MismatchReason::Host { bound: texts(binding.hosts()) });
    }
    if !schemes.contains(&request.scheme) {
        return Err(MismatchReason::Scheme);
    }
    let methods = binding.methods();
    if !methods.is_empty() && !methods.iter().any(|method| method.as_str() == request.method) {
        return Err(MismatchReason::Method { bound: methods.iter().map(ToString::to_string).collect() });
    }
    if let Some(pattern) = binding.path() {
        match pattern.covers(request.path) {
            Ok(true) => {}
            Ok(false) => return Err(MismatchReason::Path { bound: pattern.to_string() }),
            Err(reason) => return Err(MismatchReason::AmbiguousPath { reason }),
        }
    }
    match binding.program() {
        Some(program) if request.program != Some(program.sha256) => {
            Err(MismatchReason::Program { bound: format!("{} ({})", program.name, program.sha256.short()) })
        }
        _ => Ok(()),
    }
}

/// Of several bindings for one header those count whose placeholder the request holds, and of these the narrowest. Two
/// secrets that are bound alike cannot be told apart.
fn one_for_each_header<'a>(
    covering: &[&'a Binding],
    presented: &[SecretRef],
) -> Result<Vec<&'a Binding>, EndpointMismatch> {
    let mut chosen: Vec<&Binding> = Vec::new();
    for binding in covering {
        let same = |other: &&Binding| other.header().name().eq_ignore_ascii_case(binding.header().name());
        if chosen.iter().any(same) {
            continue;
        }
        let mut group: Vec<&Binding> = covering.iter().copied().filter(|other| same(other)).collect();
        if group.iter().any(|other| presented.contains(other.secret())) {
            group.retain(|other| presented.contains(other.secret()));
        }
        let narrowest = group.iter().map(|other| narrowness(other)).max();
        group.retain(|other| Some(narrowness(other)) == narrowest);
        let Some((first, others)) = group.split_first() else { continue };
        if let Some(other) = others.iter().find(|other| other.secret() != first.secret()) {
            let reason = MismatchReason::Ambiguous { other: other.secret().clone() };
            return Err(EndpointMismatch { secret: first.secret().clone(), reason });
        }
        chosen.push(first);
    }
    Ok(chosen)
}

/// How much a binding says about its requests: program, then path, then methods.
fn narrowness(binding: &Binding) -> (bool, Option<(bool, usize)>, bool) {
    let path = binding.path().map(super::PathPattern::narrowness);
    (binding.program().is_some(), path, !binding.methods().is_empty())
}

#[cfg(test)]
mod tests;
