//! `wasi:io/streams`: bytes from replies and files, bytes to the log, to requests and to files.

use super::filesystem::OpenFile;
use super::http::BodyBuffer;
use super::{IoError, Pollable};
use crate::bindings::wasi::io::streams;
use crate::doors::FileFault;
use crate::error::Stop;
use crate::guest::{Guest, HostCallKind, Stream};
use std::sync::{Arc, Mutex, PoisonError};
use streams::StreamError;
use wasmtime::component::Resource;

/// The most that one read returns and one write takes.
const MOST: usize = 1 << 20;

/// Where bytes come from.
#[derive(Debug)]
pub enum InputStream {
    /// From memory.
    Bytes { bytes: Vec<u8>, at: usize },
    /// From a file.
    File { file: Arc<OpenFile>, offset: u64 },
}

/// Where bytes go.
#[derive(Debug)]
pub enum OutputStream {
    /// Into the log.
    Log(Stream),
    /// Into the body of a request.
    Body(Arc<Mutex<BodyBuffer>>),
    /// Into a file; at its end where there is no offset.
    File { file: Arc<OpenFile>, offset: Option<u64> },
}

impl InputStream {
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Self {
        Self::Bytes { bytes, at: 0 }
    }
}

type Streamed<T> = wasmtime::Result<Result<T, StreamError>>;

impl Guest {
    fn read_stream(&mut self, this: &Resource<InputStream>, length: u64) -> Streamed<Vec<u8>> {
        self.count(HostCallKind::Io)?;
        let length = usize::try_from(length).unwrap_or(MOST).min(MOST);
        match self.table.get_mut(this)? {
            InputStream::Bytes { bytes, at } => {
                let rest = &bytes[*at..];
                if rest.is_empty() {
                    return Ok(Err(StreamError::Closed));
                }
                let piece = rest[..length.min(rest.len())].to_vec();
                *at += piece.len();
                Ok(Ok(piece))
            }
            InputStream::File { file, offset } => {
                let (file, offset) = (Arc::clone(file), *offset);
                match self.read_file(&file, offset, length)? {
                    Ok((piece, end)) if piece.is_empty() && end => Ok(Err(StreamError::Closed)),
                    Ok((piece, _)) => {
                        if let InputStream::File { offset, .. } = self.table.get_mut(this)? {
                            *offset += piece.len() as u64;
                        }
                        Ok(Ok(piece))
                    }
                    Err(fault) => self.failed(fault),
                }
            }
        }
    }

    fn write_stream(&mut self, this: &Resource<OutputStream>, bytes: &[u8]) -> Streamed<()> {
        self.count(HostCallKind::Io)?;
        if bytes.len() > MOST {
            return Err(Stop::Misuse("more was written than the stream said that it takes").into());
        }
        match self.table.get_mut(this)? {
            OutputStream::Log(stream) => {
                let stream = *stream;
                self.log.print(stream, bytes)?;
                Ok(Ok(()))
            }
            OutputStream::Body(body) => {
                let body = Arc::clone(body);
                self.charge_http(bytes.len())?;
                let mut body = body.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(if body.write(bytes) { Ok(()) } else { Err(StreamError::Closed) })
            }
            OutputStream::File { file, offset } => {
                let (file, at) = (Arc::clone(file), *offset);
                match self.write_file(&file, at, bytes)? {
                    Ok(written) => {
                        if let OutputStream::File { offset: Some(offset), .. } = self.table.get_mut(this)? {
                            *offset += written;
                        }
                        Ok(Ok(()))
                    }
                    Err(fault) => self.failed(fault),
                }
            }
        }
    }

    fn failed<T>(&mut self, fault: FileFault) -> Streamed<T> {
        let error = self.hand(IoError(fault.to_string()))?;
        Ok(Err(StreamError::LastOperationFailed(error)))
    }

    fn copy_stream(&mut self, to: &Resource<OutputStream>, from: &Resource<InputStream>, length: u64) -> Streamed<u64> {
        match self.read_stream(from, length)? {
            Err(error) => Ok(Err(error)),
            Ok(bytes) => Ok(self.write_stream(to, &bytes)?.map(|()| bytes.len() as u64)),
        }
    }

    fn zeroes(&mut self, to: &Resource<OutputStream>, length: u64) -> Streamed<()> {
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST);
        let length = length.ok_or(Stop::Misuse("more was written than the stream said that it takes"))?;
        self.write_stream(to, &vec![0; length])
    }
}

impl streams::Host for Guest {}

impl streams::HostInputStream for Guest {
    fn read(&mut self, this: Resource<InputStream>, length: u64) -> Streamed<Vec<u8>> {
        self.read_stream(&this, length)
    }

    fn blocking_read(&mut self, this: Resource<InputStream>, length: u64) -> Streamed<Vec<u8>> {
        self.read_stream(&this, length)
    }

    fn skip(&mut self, this: Resource<InputStream>, length: u64) -> Streamed<u64> {
        Ok(self.read_stream(&this, length)?.map(|bytes| bytes.len() as u64))
    }

    fn blocking_skip(&mut self, this: Resource<InputStream>, length: u64) -> Streamed<u64> {
        Ok(self.read_stream(&this, length)?.map(|bytes| bytes.len() as u64))
    }

    fn subscribe(&mut self, _this: Resource<InputStream>) -> wasmtime::Result<Resource<Pollable>> {
        self.count(HostCallKind::Io)?;
        Ok(self.hand(Pollable::Always)?)
    }

    fn drop(&mut self, this: Resource<InputStream>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl streams::HostOutputStream for Guest {
    fn check_write(&mut self, _this: Resource<OutputStream>) -> Streamed<u64> {
        self.count(HostCallKind::Io)?;
        Ok(Ok(MOST as u64))
    }

    fn write(&mut self, this: Resource<OutputStream>, bytes: Vec<u8>) -> Streamed<()> {
        self.write_stream(&this, &bytes)
    }

    fn blocking_write_and_flush(&mut self, this: Resource<OutputStream>, bytes: Vec<u8>) -> Streamed<()> {
        self.write_stream(&this, &bytes)
    }

    fn flush(&mut self, _this: Resource<OutputStream>) -> Streamed<()> {
        self.count(HostCallKind::Io)?;
        Ok(Ok(()))
    }

    fn blocking_flush(&mut self, _this: Resource<OutputStream>) -> Streamed<()> {
        self.count(HostCallKind::Io)?;
        Ok(Ok(()))
    }

    fn subscribe(&mut self, _this: Resource<OutputStream>) -> wasmtime::Result<Resource<Pollable>> {
        self.count(HostCallKind::Io)?;
        Ok(self.hand(Pollable::Always)?)
    }

    fn write_zeroes(&mut self, this: Resource<OutputStream>, length: u64) -> Streamed<()> {
        self.zeroes(&this, length)
    }

    fn blocking_write_zeroes_and_flush(&mut self, this: Resource<OutputStream>, length: u64) -> Streamed<()> {
        self.zeroes(&this, length)
    }

    fn splice(&mut self, this: Resource<OutputStream>, source: Resource<InputStream>, length: u64) -> Streamed<u64> {
        self.copy_stream(&this, &source, length)
    }

    fn blocking_splice(
        &mut self,
        this: Resource<OutputStream>,
        source: Resource<InputStream>,
        length: u64,
    ) -> Streamed<u64> {
        self.copy_stream(&this, &source, length)
    }

    fn drop(&mut self, this: Resource<OutputStream>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
