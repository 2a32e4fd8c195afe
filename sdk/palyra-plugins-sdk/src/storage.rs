//! A small store of this skill's own. It outlives calls; no other skill sees it.

use crate::ToolError;
use crate::bindings::palyra::skill::storage as wit;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn told(error: wit::Error) -> ToolError {
    match error {
        wit::Error::QuotaExceeded(quota) => {
            ToolError::new("storage_full", format!("the store holds at most {quota} bytes"))
        }
        wit::Error::InvalidKey => ToolError::new("storage_key", "a key is 1 to 100 bytes without control characters"),
        wit::Error::Unavailable(why) => ToolError::new("storage_unavailable", why),
    }
}

/// The value of a key.
///
/// # Errors
/// When the store cannot be used.
pub fn read(key: &str) -> Result<Option<Vec<u8>>, ToolError> {
    wit::read(key).map_err(told)
}

/// Puts a value in the place of whatever was there.
///
/// # Errors
/// When it does not fit.
pub fn write(key: &str, value: &[u8]) -> Result<(), ToolError> {
    wit::write(key, value).map_err(told)
}

/// Removes a key; says whether it was there.
///
/// # Errors
/// When the store cannot be used.
pub fn delete(key: &str) -> Result<bool, ToolError> {
    wit::delete(key).map_err(told)
}

/// Every key that begins like this, in order.
///
/// # Errors
/// When the store cannot be used.
pub fn keys(prefix: &str) -> Result<Vec<String>, ToolError> {
    wit::keys(prefix).map_err(told)
}

/// The value of a key, from JSON.
///
/// # Errors
/// When it is no such JSON.
pub fn read_json<T: DeserializeOwned>(key: &str) -> Result<Option<T>, ToolError> {
    let parse = |bytes: Vec<u8>| {
        serde_json::from_slice(&bytes).map_err(|error| ToolError::new("storage_not_json", error.to_string()))
    };
    read(key)?.map(parse).transpose()
}

/// Writes a value as JSON.
///
/// # Errors
/// When it does not fit.
pub fn write_json(key: &str, value: &impl Serialize) -> Result<(), ToolError> {
    let value = serde_json::to_vec(value).map_err(|error| ToolError::new("storage_not_json", error.to_string()))?;
    write(key, &value)
}
