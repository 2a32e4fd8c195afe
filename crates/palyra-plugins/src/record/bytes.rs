//! Bytes in JSON: text where they are text, Base64 behind a mark where they are not.
//!
//! Most of what guests hear is text, and a record that shows it can be read by people.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Form<'a> {
    #[serde(borrow)]
    Text(std::borrow::Cow<'a, str>),
    Base64(std::borrow::Cow<'a, str>),
}

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Form::Text(text.into()).serialize(serializer),
        Err(_) => Form::Base64(STANDARD.encode(bytes).into()).serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    match Form::deserialize(deserializer)? {
        Form::Text(text) => Ok(text.into_owned().into_bytes()),
        Form::Base64(text) => STANDARD.decode(text.as_bytes()).map_err(D::Error::custom),
    }
}
