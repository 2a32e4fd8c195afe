//! `palyra:skill/http`.

use crate::bindings::palyra::skill::http::{self, Error, Request, Response};
use crate::doors::HttpFault;
use crate::guest::{Guest, HostCallKind};
use crate::http_request::HttpRequest;
use std::time::Duration;

impl http::Host for Guest {
    fn send(&mut self, request: Request) -> wasmtime::Result<Result<Response, Error>> {
        self.count(HostCallKind::Http)?;
        self.charge_http(request.body.len())?;
        let timeout = request.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let checked = HttpRequest::new(&request.method, &request.url, request.headers, request.body);
        Ok(match self.send(checked, timeout)? {
            Ok(reply) => Ok(Response { status: reply.status, headers: reply.headers, body: reply.body }),
            Err(HttpFault::Denied(why)) => Err(Error::Denied(why)),
            Err(HttpFault::Invalid(why)) => Err(Error::Invalid(why)),
            Err(HttpFault::Unreachable(why)) => Err(Error::Unreachable(why)),
            Err(HttpFault::TimedOut) => Err(Error::TimedOut),
            Err(HttpFault::TooLarge(most)) => Err(Error::TooLarge(most)),
        })
    }
}
