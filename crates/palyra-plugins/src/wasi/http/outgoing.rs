//! What a guest sends: requests, their options and their bodies.

use super::exchange::{BodyBuffer, Exchange};
use super::fields::Fields;
use super::replies::FutureResponse;
use crate::bindings::wasi::http::outgoing_handler;
use crate::bindings::wasi::http::types::{
    ErrorCode, HostOutgoingBody, HostOutgoingRequest, HostRequestOptions, Method, Scheme,
};
use crate::guest::{Guest, HostCallKind};
use crate::http_request::{MOST_URL_BYTES, check_method};
use crate::wasi::OutputStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wasmtime::component::Resource;

/// A host name with its port is never longer.
const MOST_AUTHORITY_BYTES: usize = 512;

/// A request that is being put together.
#[derive(Debug)]
pub struct OutgoingRequest {
    pub(crate) method: String,
    scheme: Option<Scheme>,
    authority: Option<String>,
    target: Option<String>,
    pub(crate) headers: Fields,
    pub(crate) body: Option<Arc<Mutex<BodyBuffer>>>,
}

/// How long to wait.
#[derive(Debug, Default)]
pub struct RequestOptions {
    connect: Option<u64>,
    first_byte: Option<u64>,
    between_bytes: Option<u64>,
}

/// The body of a request.
#[derive(Debug)]
pub struct OutgoingBody {
    buffer: Arc<Mutex<BodyBuffer>>,
    handed_out: bool,
}

impl OutgoingRequest {
    /// The URL; whatever is missing makes it one that the request's check refuses.
    pub(crate) fn url(&self) -> String {
        let scheme = match &self.scheme {
            None | Some(Scheme::Https) => "https",
            Some(Scheme::Http) => "http",
            Some(Scheme::Other(other)) => other,
        };
        let (authority, target) = (self.authority.as_deref().unwrap_or(""), self.target.as_deref().unwrap_or("/"));
        let slash = if target.starts_with('/') { "" } else { "/" };
        format!("{scheme}://{authority}{slash}{target}")
    }
}

fn method_name(method: &Method) -> &str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(other) => other,
    }
}

fn method_of(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

type Set = wasmtime::Result<Result<(), ()>>;

impl HostOutgoingRequest for Guest {
    fn new(&mut self, headers: Resource<Fields>) -> wasmtime::Result<Resource<OutgoingRequest>> {
        self.count(HostCallKind::Http)?;
        let headers = self.table.delete(headers)?;
        let (scheme, authority, target, body) = (None, None, None, None);
        Ok(self.hand(OutgoingRequest { method: "GET".to_owned(), scheme, authority, target, headers, body })?)
    }

    fn body(&mut self, this: Resource<OutgoingRequest>) -> wasmtime::Result<Result<Resource<OutgoingBody>, ()>> {
        self.count(HostCallKind::Http)?;
        let request = self.table.get_mut(&this)?;
        if request.body.is_some() {
            return Ok(Err(()));
        }
        let buffer = Arc::new(Mutex::new(BodyBuffer::default()));
        request.body = Some(Arc::clone(&buffer));
        Ok(Ok(self.hand(OutgoingBody { buffer, handed_out: false })?))
    }

    fn method(&mut self, this: Resource<OutgoingRequest>) -> wasmtime::Result<Method> {
        self.count(HostCallKind::Http)?;
        Ok(method_of(&self.table.get(&this)?.method))
    }

    fn set_method(&mut self, this: Resource<OutgoingRequest>, method: Method) -> Set {
        self.count(HostCallKind::Http)?;
        let name = method_name(&method);
        if check_method(name).is_err() {
            return Ok(Err(()));
        }
        self.table.get_mut(&this)?.method = name.to_owned();
        Ok(Ok(()))
    }

    fn path_with_query(&mut self, this: Resource<OutgoingRequest>) -> wasmtime::Result<Option<String>> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.target.clone())
    }

    fn set_path_with_query(&mut self, this: Resource<OutgoingRequest>, target: Option<String>) -> Set {
        self.count(HostCallKind::Http)?;
        if target.as_ref().is_some_and(|target| target.len() > MOST_URL_BYTES) {
            return Ok(Err(()));
        }
        self.table.get_mut(&this)?.target = target;
        Ok(Ok(()))
    }

    fn scheme(&mut self, this: Resource<OutgoingRequest>) -> wasmtime::Result<Option<Scheme>> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.scheme.clone())
    }

    fn set_scheme(&mut self, this: Resource<OutgoingRequest>, scheme: Option<Scheme>) -> Set {
        self.count(HostCallKind::Http)?;
        if matches!(scheme, Some(Scheme::Other(_))) {
            return Ok(Err(()));
        }
        self.table.get_mut(&this)?.scheme = scheme;
        Ok(Ok(()))
    }

    fn authority(&mut self, this: Resource<OutgoingRequest>) -> wasmtime::Result<Option<String>> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.authority.clone())
    }

    fn set_authority(&mut self, this: Resource<OutgoingRequest>, authority: Option<String>) -> Set {
        self.count(HostCallKind::Http)?;
        if authority.as_ref().is_some_and(|authority| authority.len() > MOST_AUTHORITY_BYTES) {
            return Ok(Err(()));
        }
        self.table.get_mut(&this)?.authority = authority;
        Ok(Ok(()))
    }

    fn headers(&mut self, this: Resource<OutgoingRequest>) -> wasmtime::Result<Resource<Fields>> {
        self.count(HostCallKind::Http)?;
        let headers = self.table.get(&this)?.headers.freeze();
        Ok(self.hand(headers)?)
    }

    fn drop(&mut self, this: Resource<OutgoingRequest>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostRequestOptions for Guest {
    fn new(&mut self) -> wasmtime::Result<Resource<RequestOptions>> {
        self.count(HostCallKind::Http)?;
        Ok(self.hand(RequestOptions::default())?)
    }

    fn connect_timeout(&mut self, this: Resource<RequestOptions>) -> wasmtime::Result<Option<u64>> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.connect)
    }

    fn set_connect_timeout(&mut self, this: Resource<RequestOptions>, duration: Option<u64>) -> Set {
        self.count(HostCallKind::Http)?;
        self.table.get_mut(&this)?.connect = duration;
        Ok(Ok(()))
    }

    fn first_byte_timeout(&mut self, this: Resource<RequestOptions>) -> wasmtime::Result<Option<u64>> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.first_byte)
    }

    fn set_first_byte_timeout(&mut self, this: Resource<RequestOptions>, duration: Option<u64>) -> Set {
        self.count(HostCallKind::Http)?;
        self.table.get_mut(&this)?.first_byte = duration;
        Ok(Ok(()))
    }

    fn between_bytes_timeout(&mut self, this: Resource<RequestOptions>) -> wasmtime::Result<Option<u64>> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.between_bytes)
    }

    fn set_between_bytes_timeout(&mut self, this: Resource<RequestOptions>, duration: Option<u64>) -> Set {
        self.count(HostCallKind::Http)?;
        self.table.get_mut(&this)?.between_bytes = duration;
        Ok(Ok(()))
    }

    fn drop(&mut self, this: Resource<RequestOptions>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostOutgoingBody for Guest {
    fn write(&mut self, this: Resource<OutgoingBody>) -> wasmtime::Result<Result<Resource<OutputStream>, ()>> {
        self.count(HostCallKind::Http)?;
        let body = self.table.get_mut(&this)?;
        if std::mem::replace(&mut body.handed_out, true) {
            return Ok(Err(()));
        }
        let stream = OutputStream::Body(Arc::clone(&body.buffer));
        Ok(Ok(self.hand(stream)?))
    }

    fn finish(
        &mut self,
        this: Resource<OutgoingBody>,
        trailers: Option<Resource<Fields>>,
    ) -> wasmtime::Result<Result<(), ErrorCode>> {
        self.count(HostCallKind::Http)?;
        let body = self.table.delete(this)?;
        if let Some(trailers) = trailers {
            self.table.delete(trailers)?;
            return Ok(Err(ErrorCode::InternalError(Some("trailers are not sent".to_owned()))));
        }
        body.buffer.lock().unwrap_or_else(PoisonError::into_inner).finish();
        Ok(Ok(()))
    }

    fn drop(&mut self, this: Resource<OutgoingBody>) -> wasmtime::Result<()> {
        // A body that is dropped and not finished is never sent: half a body is not what the guest meant.
        self.table.delete(this)?;
        Ok(())
    }
}

impl outgoing_handler::Host for Guest {
    fn handle(
        &mut self,
        request: Resource<OutgoingRequest>,
        options: Option<Resource<RequestOptions>>,
    ) -> wasmtime::Result<Result<Resource<FutureResponse>, ErrorCode>> {
        self.count(HostCallKind::Http)?;
        let request = self.table.delete(request)?;
        let options = options.map(|options| self.table.delete(options)).transpose()?.unwrap_or_default();
        if !self.grant.interfaces().http {
            self.observed.denied("http", request.authority.as_deref().unwrap_or(""));
            return Ok(Err(ErrorCode::HttpRequestDenied));
        }
        let timeouts = [options.connect, options.first_byte, options.between_bytes];
        let timeout = timeouts.into_iter().flatten().max().map(Duration::from_nanos);
        let exchange = Exchange::new(request, timeout);
        Ok(Ok(self.hand(FutureResponse(exchange))?))
    }
}
