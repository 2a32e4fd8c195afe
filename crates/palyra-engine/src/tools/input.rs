//! A call's input, as tools read it: valid against the tool's schema, with defaults for what is absent.

use base64::Engine as _;
use palyra_protocol::Problem;
use serde_json::Value;

/// An input that fits its tool's schema. Parts of it are named by JSON pointers.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    value: &'a Value,
}

impl<'a> Input<'a> {
    pub(crate) fn new(value: &'a Value) -> Self {
        Self { value }
    }

    /// The whole input.
    #[must_use]
    pub fn value(self) -> &'a Value {
        self.value
    }

    /// A text; empty when it is absent.
    #[must_use]
    pub fn text(self, pointer: &str) -> &'a str {
        self.optional(pointer).unwrap_or("")
    }

    /// A text, if it is there.
    #[must_use]
    pub fn optional(self, pointer: &str) -> Option<&'a str> {
        self.value.pointer(pointer).and_then(Value::as_str)
    }

    /// A whole number, if it is there.
    #[must_use]
    pub fn number(self, pointer: &str) -> Option<u64> {
        // `1e3` is an integer to the schema and a float to the parser.
        let value = self.value.pointer(pointer)?;
        value.as_u64().or_else(|| value.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|f| f as u64))
    }

    /// A number of things, if it is there.
    #[must_use]
    pub fn count(self, pointer: &str) -> Option<usize> {
        self.number(pointer).and_then(|n| usize::try_from(n).ok())
    }

    /// A flag; false when it is absent.
    #[must_use]
    pub fn flag(self, pointer: &str) -> bool {
        self.value.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A list of texts; empty when it is absent.
    #[must_use]
    pub fn texts(self, pointer: &str) -> Vec<String> {
        let texts = self.value.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        texts.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// An object of texts by name; empty when it is absent.
    pub fn pairs(self, pointer: &str) -> impl Iterator<Item = (String, String)> + use<'a> {
        let pairs = self.value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
        pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
    }

    /// Bytes: a text as it is, or base64, as the encoding says.
    ///
    /// # Errors
    /// It is said to be base64 and is not.
    pub fn bytes(self, pointer: &str, encoding: &str) -> Result<Vec<u8>, Problem> {
        let text = self.text(pointer);
        match self.text(encoding) {
            "base64" => base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| {
                Problem::plain("content_malformed", format!("`{}` is not base64: {e}", pointer.trim_start_matches('/')))
            }),
            _ => Ok(text.as_bytes().to_vec()),
        }
    }
}

/// Bytes as text where they are text, as base64 where they are not; and which of the two.
pub(super) fn printable(bytes: Vec<u8>) -> (String, &'static str) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, "utf-8"),
        Err(error) => (base64::engine::general_purpose::STANDARD.encode(error.as_bytes()), "base64"),
    }
}
