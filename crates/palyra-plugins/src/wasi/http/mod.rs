//! `wasi:http`: requests to other hosts, as toolchains send them. A guest cannot be a server here.
//!
//! Without a grant every request is answered with `HTTP-request-denied`. With one, a request waits until its body is
//! finished and somebody waits for its reply; then it goes the same way as one of `palyra:skill/http`.

mod exchange;
mod fields;
mod outgoing;
mod replies;

pub(crate) use exchange::{BodyBuffer, Exchange};
pub use fields::Fields;
pub use outgoing::{OutgoingBody, OutgoingRequest, RequestOptions};
pub use replies::{FutureResponse, FutureTrailers, IncomingBody, IncomingResponse};

use super::{IoError, Nothing};
use crate::bindings::wasi::http::types::{self, ErrorCode};
use crate::doors::HttpFault;
use crate::error::Stop;
use crate::guest::{Guest, HostCallKind};
use wasmtime::component::Resource;

const NO_SERVER: Stop = Stop::Misuse("a guest cannot answer HTTP requests");

/// A fault in the words of WASI.
fn error_code(fault: HttpFault) -> ErrorCode {
    match fault {
        HttpFault::Denied(_) => ErrorCode::HttpRequestDenied,
        HttpFault::Invalid(why) => ErrorCode::InternalError(Some(why)),
        HttpFault::Unreachable(_) => ErrorCode::DestinationUnavailable,
        HttpFault::TimedOut => ErrorCode::HttpResponseTimeout,
        HttpFault::TooLarge(most) => ErrorCode::HttpResponseBodySize(Some(most)),
    }
}

impl types::Host for Guest {
    fn http_error_code(&mut self, _error: Resource<IoError>) -> wasmtime::Result<Option<ErrorCode>> {
        self.count(HostCallKind::Http)?;
        Ok(None)
    }
}

impl types::HostIncomingRequest for Guest {
    fn method(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<types::Method> {
        Err(NO_SERVER.into())
    }

    fn path_with_query(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<Option<String>> {
        Err(NO_SERVER.into())
    }

    fn scheme(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<Option<types::Scheme>> {
        Err(NO_SERVER.into())
    }

    fn authority(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<Option<String>> {
        Err(NO_SERVER.into())
    }

    fn headers(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<Resource<Fields>> {
        Err(NO_SERVER.into())
    }

    fn consume(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<Result<Resource<IncomingBody>, ()>> {
        Err(NO_SERVER.into())
    }

    fn drop(&mut self, this: Resource<Nothing>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl types::HostOutgoingResponse for Guest {
    fn new(&mut self, _headers: Resource<Fields>) -> wasmtime::Result<Resource<Nothing>> {
        Err(NO_SERVER.into())
    }

    fn status_code(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<u16> {
        Err(NO_SERVER.into())
    }

    fn set_status_code(&mut self, _this: Resource<Nothing>, _status: u16) -> wasmtime::Result<Result<(), ()>> {
        Err(NO_SERVER.into())
    }

    fn headers(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<Resource<Fields>> {
        Err(NO_SERVER.into())
    }

    fn body(&mut self, _this: Resource<Nothing>) -> wasmtime::Result<Result<Resource<OutgoingBody>, ()>> {
        Err(NO_SERVER.into())
    }

    fn drop(&mut self, this: Resource<Nothing>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl types::HostResponseOutparam for Guest {
    fn send_informational(
        &mut self,
        _this: Resource<Nothing>,
        _status: u16,
        _headers: Resource<Fields>,
    ) -> wasmtime::Result<Result<(), ErrorCode>> {
        Err(NO_SERVER.into())
    }

    fn set(
        &mut self,
        _this: Resource<Nothing>,
        _response: Result<Resource<Nothing>, ErrorCode>,
    ) -> wasmtime::Result<()> {
        Err(NO_SERVER.into())
    }

    fn drop(&mut self, this: Resource<Nothing>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
