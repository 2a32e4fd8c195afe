//! `fields`: the headers of a request or reply.

use crate::bindings::wasi::http::types::{HeaderError, HostFields};
use crate::guest::{Guest, HostCallKind};
use crate::http_request::{is_connection_field, is_header_byte, is_header_name};
use wasmtime::component::Resource;

const MOST_FIELDS: usize = 256;
const MOST_BYTES: usize = 16 << 10;

/// Names in lower case, and values, in order.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    entries: Vec<(String, Vec<u8>)>,
    fixed: bool,
}

impl Fields {
    /// Headers that the guest may read and not change.
    pub(crate) fn fixed(headers: &[(String, String)]) -> Self {
        let entries = headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone().into_bytes()));
        Self { entries: entries.collect(), fixed: true }
    }

    /// The same, no longer to be changed.
    pub(crate) fn freeze(&self) -> Self {
        Self { entries: self.entries.clone(), fixed: true }
    }

    /// Values as text. What is no text becomes a control character, which the request's own check refuses.
    pub(crate) fn to_text(&self) -> Vec<(String, String)> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap_or_else(|_| "\u{1}".to_owned());
        self.entries.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }

    fn check(name: &str, value: &[u8]) -> Result<String, HeaderError> {
        let name = name.to_ascii_lowercase();
        if !is_header_name(&name) || !value.iter().all(|byte| is_header_byte(*byte)) {
            return Err(HeaderError::InvalidSyntax);
        }
        if is_connection_field(&name) { Err(HeaderError::Forbidden) } else { Ok(name) }
    }

    fn append(&mut self, name: &str, value: Vec<u8>) -> Result<(), HeaderError> {
        let name = Self::check(name, &value)?;
        let size: usize = self.entries.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.entries.len() >= MOST_FIELDS || size + name.len() + value.len() > MOST_BYTES {
            return Err(HeaderError::Forbidden);
        }
        self.entries.push((name, value));
        Ok(())
    }

    fn remove(&mut self, name: &str) {
        self.entries.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
    }
}

type Changed = wasmtime::Result<Result<(), HeaderError>>;

impl Guest {
    fn change_fields(
        &mut self,
        this: &Resource<Fields>,
        change: impl FnOnce(&mut Fields) -> Result<(), HeaderError>,
    ) -> Changed {
        self.count(HostCallKind::Http)?;
        let fields = self.table.get_mut(this)?;
        if fields.fixed {
            return Ok(Err(HeaderError::Immutable));
        }
        Ok(change(fields))
    }
}

impl HostFields for Guest {
    fn new(&mut self) -> wasmtime::Result<Resource<Fields>> {
        self.count(HostCallKind::Http)?;
        Ok(self.hand(Fields::default())?)
    }

    fn from_list(
        &mut self,
        entries: Vec<(String, Vec<u8>)>,
    ) -> wasmtime::Result<Result<Resource<Fields>, HeaderError>> {
        self.count(HostCallKind::Http)?;
        let mut fields = Fields::default();
        for (name, value) in entries {
            if let Err(error) = fields.append(&name, value) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(self.hand(fields)?))
    }

    fn get(&mut self, this: Resource<Fields>, name: String) -> wasmtime::Result<Vec<Vec<u8>>> {
        self.count(HostCallKind::Http)?;
        let entries = &self.table.get(&this)?.entries;
        let named = entries.iter().filter(|(own, _)| own.eq_ignore_ascii_case(&name));
        Ok(named.map(|(_, value)| value.clone()).collect())
    }

    fn has(&mut self, this: Resource<Fields>, name: String) -> wasmtime::Result<bool> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.entries.iter().any(|(own, _)| own.eq_ignore_ascii_case(&name)))
    }

    fn set(&mut self, this: Resource<Fields>, name: String, values: Vec<Vec<u8>>) -> Changed {
        self.change_fields(&this, |fields| {
            for value in &values {
                Fields::check(&name, value)?;
            }
            fields.remove(&name);
            values.into_iter().try_for_each(|value| fields.append(&name, value))
        })
    }

    fn delete(&mut self, this: Resource<Fields>, name: String) -> Changed {
        self.change_fields(&this, |fields| {
            fields.remove(&name);
            Ok(())
        })
    }

    fn append(&mut self, this: Resource<Fields>, name: String, value: Vec<u8>) -> Changed {
        self.change_fields(&this, |fields| fields.append(&name, value))
    }

    fn entries(&mut self, this: Resource<Fields>) -> wasmtime::Result<Vec<(String, Vec<u8>)>> {
        self.count(HostCallKind::Http)?;
        Ok(self.table.get(&this)?.entries.clone())
    }

    fn clone(&mut self, this: Resource<Fields>) -> wasmtime::Result<Resource<Fields>> {
        self.count(HostCallKind::Http)?;
        let fields = Fields { entries: self.table.get(&this)?.entries.clone(), fixed: false };
        Ok(self.hand(fields)?)
    }

    fn drop(&mut self, this: Resource<Fields>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
