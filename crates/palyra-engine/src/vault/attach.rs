//! What the proxy attaches to the requests of one run: the vault's bindings, asked about each request.

use super::release::OpenValue;
use palyra_egress::{AnswerFilter, Attached, Credentials, Denial, DenialCode, InspectionAuthority, OutgoingRequest};
use palyra_protocol::{Digest, Secret, SecretRef};
use palyra_vault::{Bindings, CredentialRequest, Mask, RedactionStream, Redactor, Scheme, StreamEnd, placeholder};
use std::collections::HashMap;
use std::sync::Arc;

/// The credentials of one run.
#[derive(Debug)]
pub(crate) struct RunCredentials {
    bindings: Arc<Bindings>,
    permitted: Vec<SecretRef>,
    values: HashMap<SecretRef, OpenValue>,
    /// What stands for each secret where the process would hold it.
    placeholders: Vec<(SecretRef, String)>,
    /// The files that run, by their content.
    programs: Vec<Digest>,
    redactor: Arc<Redactor>,
    authority: Option<InspectionAuthority>,
}

impl RunCredentials {
    pub(super) fn new(
        bindings: Arc<Bindings>,
        values: HashMap<SecretRef, OpenValue>,
        programs: Vec<Digest>,
        redactor: Arc<Redactor>,
    ) -> Result<Self, String> {
        let mut permitted: Vec<SecretRef> = values.keys().cloned().collect();
        permitted.sort();
        let hosts = bindings.hosts(&permitted);
        let over_tls: Vec<&str> =
            hosts.iter().filter(|host| host.scheme() == Scheme::Https).map(|host| host.host()).collect();
        let authority = match over_tls.as_slice() {
            [] => None,
            hosts => Some(InspectionAuthority::for_hosts(hosts.iter().copied()).map_err(|e| e.to_string())?),
        };
        let mut placeholders = Vec::with_capacity(permitted.len());
        for secret in &permitted {
            placeholders.push((secret.clone(), placeholder().map_err(|e| e.to_string())?));
        }
        Ok(Self { bindings, permitted, values, placeholders, programs, redactor, authority })
    }

    /// What stands for a secret where the process would hold it.
    pub(crate) fn placeholder(&self, secret: &SecretRef) -> Option<&str> {
        self.placeholders.iter().find(|(known, _)| known == secret).map(|(_, text)| text.as_str())
    }

    /// The secrets whose placeholder a request shows.
    fn presented(&self, values: &[&[u8]]) -> Vec<SecretRef> {
        let shows =
            |text: &str| values.iter().any(|value| value.windows(text.len()).any(|window| window == text.as_bytes()));
        self.placeholders.iter().filter(|(_, text)| shows(text)).map(|(secret, _)| secret.clone()).collect()
    }

    /// The file of this run that a binding of these secrets names, if one does.
    fn program(&self) -> Option<Digest> {
        let named = self.permitted.iter().flat_map(|secret| self.bindings.of(secret)).filter_map(|b| b.program());
        let named: Vec<Digest> = named.map(|program| program.sha256).collect();
        self.programs.iter().find(|digest| named.contains(digest)).copied()
    }
}

impl Credentials for RunCredentials {
    fn is_bound(&self, host: &str, port: u16) -> bool {
        self.bindings.hosts(&self.permitted).iter().any(|bound| bound.host() == host && bound.port() == port)
    }

    fn attach(&self, request: &OutgoingRequest<'_>) -> Result<Attached, Denial> {
        let presented = self.presented(request.values);
        let chosen = self.bindings.credentials_for(CredentialRequest {
            scheme: if request.tls { Scheme::Https } else { Scheme::Http },
            host: request.host,
            port: request.port,
            method: request.method,
            path: request.path,
            program: self.program(),
            permitted: &self.permitted,
            presented: &presented,
        });
        let target = (request.host, request.port);
        let chosen = chosen.map_err(|mismatch| {
            Denial::of(DenialCode::CredentialEndpointMismatch, target, mismatch.to_string(), mismatch.ask_for())
        })?;
        let mut attached = Attached::default();
        for binding in chosen {
            let Some(value) = self.values.get(binding.secret()) else { continue };
            let header = binding.header().render(binding.secret(), value.value()).map_err(|error| {
                let hint = "put a value that fits into a header";
                Denial::of(DenialCode::CredentialEndpointMismatch, target, error.to_string(), hint)
            })?;
            attached.fields.push((header.name().to_ascii_lowercase(), Secret::new(header.expose().to_vec())));
            attached.secrets.push(binding.secret().clone());
        }
        Ok(attached)
    }

    fn filter(&self) -> Box<dyn AnswerFilter> {
        Box::new(Filter(RedactionStream::new(Arc::clone(&self.redactor), Mask::SameLength)))
    }

    fn authority(&self) -> Option<&InspectionAuthority> {
        self.authority.as_ref()
    }
}

/// Replaces released values in an answer, byte for byte, so that lengths stay what they are.
struct Filter(RedactionStream);

impl AnswerFilter for Filter {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.0.push(bytes, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.finish(StreamEnd::Whole, out);
    }
}
