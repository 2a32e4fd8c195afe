//! What a guest hears: replies, their headers and their bodies.

use super::error_code;
use super::exchange::Exchange;
use super::fields::Fields;
use crate::bindings::wasi::http::types::{
    ErrorCode, HostFutureIncomingResponse, HostFutureTrailers, HostIncomingBody, HostIncomingResponse,
};
use crate::guest::{Guest, HostCallKind};
use crate::wasi::{InputStream, Pollable};
use std::sync::{Arc, Mutex, PoisonError};
use wasmtime::component::Resource;

/// A reply that may be there.
#[derive(Debug)]
pub struct FutureResponse(pub(super) Arc<Mutex<Exchange>>);

/// A reply.
#[derive(Debug)]
pub struct IncomingResponse {
    status: u16,
    headers: Fields,
    body: Option<Vec<u8>>,
}

/// The body of a reply.
#[derive(Debug)]
pub struct IncomingBody(Option<Vec<u8>>);

/// Trailers, of which there are none.
#[derive(Debug)]
pub struct FutureTrailers {
    taken: bool,
}

impl HostFutureIncomingResponse for Guest {
    fn subscribe(&mut self, this: Resource<FutureResponse>) -> wasmtime::Result<Resource<Pollable>> {
        self.count(HostCallKind::Http)?;
        let exchange = Arc::clone(&self.table.get(&this)?.0);
        Ok(self.hand(Pollable::Reply(exchange))?)
    }

    fn get(
        &mut self,
        this: Resource<FutureResponse>,
    ) -> wasmtime::Result<Option<Result<Result<Resource<IncomingResponse>, ErrorCode>, ()>>> {
        self.count(HostCallKind::Http)?;
        let exchange = Arc::clone(&self.table.get(&this)?.0);
        let taken = exchange.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(match taken {
            None => None,
            Some(Err(())) => Some(Err(())),
            Some(Ok(Err(fault))) => Some(Ok(Err(error_code(fault)))),
            Some(Ok(Ok(reply))) => {
                let headers = Fields::fixed(&reply.headers);
                let reply = IncomingResponse { status: reply.status, headers, body: Some(reply.body) };
                Some(Ok(Ok(self.hand(reply)?)))
            }
        })
    }

    fn drop(&mut self, this: Resource<FutureResponse>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostIncomingResponse for Guest {
    fn status(&mut self, this: Resource<IncomingResponse>) -> wasmtime::Result<u16> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.status)
    }

    fn headers(&mut self, this: Resource<IncomingResponse>) -> wasmtime::Result<Resource<Fields>> {
        self.count(HostCallKind::Http)?;
        let headers = self.table.get(&this)?.headers.freeze();
        Ok(self.hand(headers)?)
    }

    fn consume(&mut self, this: Resource<IncomingResponse>) -> wasmtime::Result<Result<Resource<IncomingBody>, ()>> {
        self.count(HostCallKind::Http)?;
        match self.table.get_mut(&this)?.body.take() {
            None => Ok(Err(())),
            Some(body) => Ok(Ok(self.hand(IncomingBody(Some(body)))?)),
        }
    }

    fn drop(&mut self, this: Resource<IncomingResponse>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostIncomingBody for Guest {
    fn stream(&mut self, this: Resource<IncomingBody>) -> wasmtime::Result<Result<Resource<InputStream>, ()>> {
        self.count(HostCallKind::Http)?;
        match self.table.get_mut(&this)?.0.take() {
            None => Ok(Err(())),
            Some(bytes) => Ok(Ok(self.hand(InputStream::of_bytes(bytes))?)),
        }
    }

    fn finish(&mut self, this: Resource<IncomingBody>) -> wasmtime::Result<Resource<FutureTrailers>> {
        self.count(HostCallKind::Http)?;
        self.table.delete(this)?;
        Ok(self.hand(FutureTrailers { taken: false })?)
    }

    fn drop(&mut self, this: Resource<IncomingBody>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostFutureTrailers for Guest {
    fn subscribe(&mut self, _this: Resource<FutureTrailers>) -> wasmtime::Result<Resource<Pollable>> {
        self.count(HostCallKind::Http)?;
        Ok(self.hand(Pollable::Always)?)
    }

    fn get(
        &mut self,
        this: Resource<FutureTrailers>,
    ) -> wasmtime::Result<Option<Result<Result<Option<Resource<Fields>>, ErrorCode>, ()>>> {
        self.count(HostCallKind::Http)?;
        let trailers = self.table.get_mut(&this)?;
        Ok(Some(if std::mem::replace(&mut trailers.taken, true) { Err(()) } else { Ok(Ok(None)) }))
    }

    fn drop(&mut self, this: Resource<FutureTrailers>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
