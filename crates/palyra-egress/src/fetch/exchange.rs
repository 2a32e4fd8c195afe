//! One request and its answer over a connection that is there already.

use super::error::FetchError;
use super::request::FetchRequest;
use super::transport::{Pinned, Ready};
use super::{FetchLimits, FetchSink, Roots};
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::{Request, Response, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::transport::{Connector as _, RustlsConnector};

/// What one hop gave.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) truncated: bool,
}

impl Exchange {
    /// Where the server sends us on to, if it does.
    pub(super) fn location(&self) -> Option<&str> {
        let redirects = matches!(self.status, 301 | 302 | 303 | 307 | 308);
        let field = self.headers.iter().find(|(name, _)| name == "location").filter(|_| redirects);
        // A Location that is no text is an error where it is followed, not a reason to stay.
        field.map(|(_, value)| std::str::from_utf8(value).unwrap_or("\u{0}"))
    }
}

/// Sends the request over the connection and reads the answer. With a sink, the body goes there as it comes.
pub(super) fn exchange(
    request: &FetchRequest,
    limits: &FetchLimits,
    roots: &Roots,
    (ready, address): (Ready, SocketAddr),
    sink: Option<&mut dyn FetchSink>,
) -> Result<Exchange, FetchError> {
    let failed = |reason: String| FetchError::Exchange { host: request.url.host().to_string(), reason };
    let agent = Agent::with_parts(config(limits, roots), ready.chain(RustlsConnector::default()), Pinned(address));
    let mut head = Request::builder().method(request.method.as_str()).uri(request.url.to_string());
    for (name, value) in &request.headers {
        head = head.header(name, value);
    }
    if !request.headers.iter().any(|(name, _)| name == "accept-encoding") {
        head = head.header(header::ACCEPT_ENCODING, "identity");
    }
    head = head.header(header::CONNECTION, "close");
    let has_body = !request.body.is_empty() || matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    let answer = if has_body {
        let message = head.body(request.body.clone()).map_err(|error| failed(error.to_string()))?;
        agent.run(message)
    } else {
        let message = head.body(()).map_err(|error| failed(error.to_string()))?;
        agent.run(message)
    };
    let answer = answer.map_err(|error| failed(whole(&error)))?;
    match sink {
        None => read(answer, limits).map_err(failed),
        Some(sink) => pass_on(answer, limits, sink).map_err(failed),
    }
}

/// Hands the body on in the pieces in which it comes.
fn pass_on(answer: Response<ureq::Body>, limits: &FetchLimits, sink: &mut dyn FetchSink) -> Result<Exchange, String> {
    let (parts, body) = answer.into_parts();
    let status = parts.status.as_u16();
    let headers = fields(&parts.headers);
    sink.head(status, &headers);
    let mut reader = body.into_reader();
    let (mut buffer, mut total) = (vec![0; 16 << 10], 0_usize);
    let mut truncated = false;
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(whole(&error)),
        };
        total = total.saturating_add(count);
        if total > limits.max_body_bytes || !sink.piece(&buffer[..count]) {
            truncated = true;
            break;
        }
    }
    Ok(Exchange { status, headers, body: Vec::new(), truncated })
}

fn fields(headers: &ureq::http::HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

fn read(answer: Response<ureq::Body>, limits: &FetchLimits) -> Result<Exchange, String> {
    let (parts, body) = answer.into_parts();
    let headers = fields(&parts.headers);
    let most = limits.max_body_bytes as u64;
    let mut kept = Vec::new();
    body.into_reader().take(most.saturating_add(1)).read_to_end(&mut kept).map_err(|error| whole(&error))?;
    let truncated = kept.len() > limits.max_body_bytes;
    kept.truncate(limits.max_body_bytes);
    Ok(Exchange { status: parts.status.as_u16(), headers, body: kept, truncated })
}

fn config(limits: &FetchLimits, roots: &Roots) -> Config {
    let roots = match roots {
        Roots::System => RootCerts::PlatformVerifier,
        Roots::Only(certificates) => {
            let certificates = certificates.iter().map(|der| Certificate::from_der(der).to_owned());
            RootCerts::Specific(Arc::new(certificates.collect()))
        }
    };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        // Nothing from the environment, no redirect that was not asked about, no status that is an error.
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .max_idle_connections(0)
        .max_response_header_size(limits.max_header_bytes)
        .user_agent(concat!("palyra/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// An error with its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
