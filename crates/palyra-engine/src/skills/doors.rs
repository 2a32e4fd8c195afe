//! What the code of a skill reaches the world through, for one call.
//!
//! Each door asks again after the grant did: egress rules and policy about every request, the vault about every secret.
//! Files have a module of their own ([`super::files`]). What a door hands out was recorded before: connections as they end, secrets as they are
//! released.

use super::super::tools::http_fetch::Hops;
use crate::flow::execute::Running;
use crate::tools::Place;
use crate::vault::{OpenValue, Released, RunCredentials};
use palyra_egress::{
    Credentials as _, FetchError, FetchLimits, FetchRequest, FetchSink, FetchUrl, FetchWatch as _, Fetcher,
};
use palyra_plugins::{
    CallControl, Doors, FilesDoor, Grant, HttpAllowance, HttpDoor, HttpFault, HttpReply, HttpRequest, SecretFault,
    SecretsDoor, StorageDirectory,
};
use palyra_protocol::{Problem, Secret, SecretDelivery, SecretRef, SecretUse};
use palyra_sandbox::CancelSignal;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What the doors of one call are made of.
pub(super) struct CallDoors<'a> {
    pub(super) grant: &'a Grant,
    pub(super) released: Option<&'a Released>,
    pub(super) files: Option<Arc<dyn FilesDoor>>,
    pub(super) storage: Option<Arc<StorageDirectory>>,
    pub(super) signal: CancelSignal,
}

impl CallDoors<'_> {
    /// Opens what the grant names, and nothing else.
    pub(super) async fn open(self, run: &Running<'_>) -> Result<Doors, Problem> {
        let Self { grant, released, files, storage, signal } = self;
        let mut doors = Doors::default();
        if !grant.http().is_empty() {
            let credentials = released.map(Released::credentials).transpose()?.flatten();
            if let Some(redactor) = run.engine().released().of(run.call()) {
                run.egress().redact(&redactor);
            }
            let hops = Hops::of(run, credentials.clone(), "the skill asks for").await;
            let fetcher = Arc::clone(run.engine().fetcher());
            doors.http = Some(Arc::new(EgressDoor { hops, fetcher, credentials, signal }));
        }
        if !grant.secrets().is_empty() {
            let readable = released.into_iter().flat_map(Released::values);
            let readable = readable.filter(|(found, _)| found.via == SecretDelivery::Guest);
            let values = readable.map(|(found, value)| (found.secret.clone(), value.clone())).collect();
            doors.secrets = Some(Arc::new(VaultDoor { values }));
        }
        doors.files = files;
        doors.storage = storage.map(|storage| storage as Arc<dyn palyra_plugins::StorageDoor>);
        Ok(doors)
    }
}

/// A host pattern as facets name endpoints: with its port, or with those of the web.
pub(super) fn endpoints(pattern: &str) -> Vec<String> {
    let has_port = pattern.rfind(':').is_some_and(|at| !pattern[at..].contains(']'));
    if has_port { vec![pattern.to_owned()] } else { vec![format!("{pattern}:443"), format!("{pattern}:80")] }
}

/// The secrets of the vault that a grant opens. One that is bound to endpoints is attached there and never shown; any
/// other is handed to the code that asks for it. What is not in the vault is left out: the code is told that it is not
/// there.
pub(super) fn secret_uses(grant: &Grant, place: &Place<'_>) -> Vec<SecretUse> {
    let Some(vault) = place.vault else { return Vec::new() };
    let bindings = vault.bindings();
    let mut uses: Vec<SecretUse> = Vec::new();
    for secret in grant.secrets().iter().flat_map(|pattern| vault.matching(&pattern.to_string())) {
        let endpoints: Vec<String> = bindings.as_ref().map_or_else(Vec::new, |bindings| {
            bindings.of(&secret).flat_map(palyra_vault::Binding::hosts).map(ToString::to_string).collect()
        });
        let via = if endpoints.is_empty() { SecretDelivery::Guest } else { SecretDelivery::Proxy };
        if uses.iter().all(|known| known.secret != secret) {
            uses.push(SecretUse { secret, via, name: None, endpoints });
        }
    }
    uses
}

/// Other hosts, through the egress rules.
struct EgressDoor {
    hops: Hops,
    fetcher: Arc<Fetcher>,
    credentials: Option<Arc<RunCredentials>>,
    signal: CancelSignal,
}

impl fmt::Debug for EgressDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressDoor").finish_non_exhaustive()
    }
}

impl HttpDoor for EgressDoor {
    fn send(
        &self,
        request: &HttpRequest,
        allowance: HttpAllowance,
        _call: &CallControl,
    ) -> Result<HttpReply, HttpFault> {
        let invalid = |error: String| HttpFault::Invalid(error);
        let url = FetchUrl::parse(&request.url()).map_err(|error| invalid(error.to_string()))?;
        let headers = request.headers().iter().cloned();
        let request = FetchRequest::new(request.method(), url, headers, request.body().to_vec())
            .map_err(|error| invalid(error.to_string()))?;
        // Policy is asked about each request, as about a redirect: the call was approved for patterns, not for every
        // host.
        self.hops.may_go(&request).map_err(|denial| HttpFault::Denied(denial.message))?;
        let most = usize::try_from(allowance.reply_bytes).unwrap_or(usize::MAX);
        let limits = FetchLimits { timeout: allowance.timeout, max_body_bytes: most, ..FetchLimits::default() };
        let mut reply = Reply { most, ..Reply::default() };
        let whole = self.fetcher.stream(&request, &limits, &self.signal, &self.hops, &mut reply);
        match whole {
            Ok(_) if reply.over => Err(HttpFault::TooLarge(allowance.reply_bytes)),
            Ok(false) => Err(HttpFault::TooLarge(allowance.reply_bytes)),
            Ok(true) => Ok(self.cleaned(reply)),
            Err(error) => Err(fault(&error)),
        }
    }
}

impl EgressDoor {
    /// The reply without any value that was attached to the request: a server that echoes it tells the guest nothing.
    fn cleaned(&self, reply: Reply) -> HttpReply {
        let clean = |bytes: Vec<u8>| match &self.credentials {
            None => bytes,
            Some(credentials) => {
                let (mut filter, mut out) = (credentials.filter(), Vec::with_capacity(bytes.len()));
                filter.push(&bytes, &mut out);
                filter.finish(&mut out);
                out
            }
        };
        let field = |(name, value): (String, Vec<u8>)| {
            (name.to_ascii_lowercase(), String::from_utf8_lossy(&clean(value)).into_owned())
        };
        HttpReply {
            status: reply.status,
            headers: reply.headers.into_iter().map(field).collect(),
            body: clean(reply.body),
        }
    }
}

fn fault(error: &FetchError) -> HttpFault {
    match error {
        FetchError::Denied(denial) => HttpFault::Denied(denial.message.clone()),
        FetchError::Url(_) | FetchError::Request { .. } => HttpFault::Invalid(error.to_string()),
        FetchError::TimedOut { .. } => HttpFault::TimedOut,
        other => HttpFault::Unreachable(other.to_string()),
    }
}

/// A reply as it comes.
#[derive(Default)]
struct Reply {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    most: usize,
    over: bool,
}

impl FetchSink for Reply {
    fn head(&mut self, status: u16, headers: &[(String, Vec<u8>)]) {
        self.status = status;
        self.headers = headers.to_vec();
    }

    fn piece(&mut self, bytes: &[u8]) -> bool {
        self.over = self.body.len().saturating_add(bytes.len()) > self.most;
        if !self.over {
            self.body.extend_from_slice(bytes);
        }
        !self.over
    }
}

/// The secrets that were released to this call.
struct VaultDoor {
    values: HashMap<SecretRef, OpenValue>,
}

impl fmt::Debug for VaultDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VaultDoor").field("secrets", &self.values.len()).finish()
    }
}

impl SecretsDoor for VaultDoor {
    fn read(&self, scope: &str, key: &str, _call: &CallControl) -> Result<Secret, SecretFault> {
        let reference = SecretRef::from_operator(&format!("{scope}/{key}")).map_err(|_| SecretFault::NotFound)?;
        let value = self.values.get(&reference).ok_or(SecretFault::NotFound)?;
        Ok(Secret::new(value.value().expose().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_endpoints() {
        assert_eq!(endpoints("a.example"), ["a.example:443", "a.example:80"]);
        assert_eq!(endpoints("*.a.example:8443"), ["*.a.example:8443"]);
        assert_eq!(endpoints("[::1]:80"), ["[::1]:80"]);
        assert_eq!(endpoints("a.example:*"), ["a.example:*"]);
    }
}
