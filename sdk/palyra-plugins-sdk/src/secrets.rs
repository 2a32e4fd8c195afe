//! Secrets that the grant names.

use crate::ToolError;
use crate::bindings::palyra::skill::secrets as wit;

/// Reads one secret as text.
///
/// # Errors
/// When the grant does not name it, it is not there, or it is no text.
pub fn read(scope: &str, key: &str) -> Result<String, ToolError> {
    let bytes = read_bytes(scope, key)?;
    String::from_utf8(bytes).map_err(|_| ToolError::new("secret_not_text", format!("`{scope}/{key}` is not text")))
}

/// Reads one secret.
///
/// # Errors
/// When the grant does not name it, or it is not there.
pub fn read_bytes(scope: &str, key: &str) -> Result<Vec<u8>, ToolError> {
    wit::read(scope, key).map_err(|error| match error {
        wit::Error::Denied => ToolError::new("secret_denied", format!("`{scope}/{key}` is not granted")),
        wit::Error::NotFound => ToolError::new("secret_not_found", format!("there is no secret `{scope}/{key}`")),
        wit::Error::Unavailable(why) => ToolError::new("secret_unavailable", why),
    })
}
