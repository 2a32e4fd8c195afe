//! JSON from strangers, and the one canonical form of it.
//!
//! Two parsers that disagree about a document are a hole: the policy would see one call and the tool another. So input
//! is read once, strictly (I-JSON, RFC 7493: valid UTF-8, no duplicate keys, no number that a double cannot hold
//! exactly), within limits on size and depth, and from then on only its canonical form (RFC 8785) exists.

mod digits;

use serde::Serialize;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

/// The largest input of a tool call.
pub const MAX_INPUT_BYTES: usize = 1 << 20;
/// How deep objects and arrays may nest.
pub const MAX_DEPTH: usize = 64;
/// How many values a document may have: each costs memory many times its text, so a limit on bytes alone is none.
pub const MAX_VALUES: usize = 50_000;
/// The largest integer that every JSON reader agrees about.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonRejection {
    /// More bytes than the limit.
    #[error("the input has {bytes} bytes; at most {limit} are accepted")]
    TooLarge { bytes: usize, limit: usize },
    /// Nested beyond the limit.
    #[error("the input nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More values than the limit.
    #[error("the input has more than {MAX_VALUES} values")]
    TooMany,
    /// Not UTF-8.
    #[error("the input is not valid UTF-8 (byte {at})")]
    NotUtf8 { at: usize },
    /// Not JSON, or JSON that readers disagree about.
    #[error("the input is not acceptable JSON: {reason}")]
    Malformed { reason: String },
}

impl JsonRejection {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "input_too_large",
            Self::TooDeep => "input_too_deep",
            Self::TooMany => "input_too_many_values",
            Self::NotUtf8 { .. } => "input_not_utf8",
            Self::Malformed { .. } => "input_malformed",
        }
    }
}

/// A JSON document in its canonical form, with the parsed value beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct CanonicalJson {
    value: Value,
    text: String,
}

impl CanonicalJson {
    /// Reads untrusted bytes.
    ///
    /// # Errors
    /// The document is too large, too deep, not UTF-8, or not JSON that every reader understands alike.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonRejection> {
        Self::from_value(read(bytes, MAX_INPUT_BYTES, MAX_DEPTH)?)
    }

    /// Puts a value of our own into canonical form.
    ///
    /// # Errors
    /// The value holds a number that has no exact canonical form.
    pub fn from_value(value: Value) -> Result<Self, JsonRejection> {
        let text = canonical_value(&value)?;
        Ok(Self { value, text })
    }

    /// The parsed value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Takes the parsed value out.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.value
    }
}

/// Looks at a document of a door's own protocol that holds an input: as strict as an input is read, within the door's
/// own limits, and without building anything. Whoever parses it afterwards has been spared what is ambiguous or too
/// much.
///
/// # Errors
/// As for [`CanonicalJson::parse`].
pub fn check_envelope(bytes: &[u8], limit: usize, wrapping: usize) -> Result<(), JsonRejection> {
    walk(bytes, limit, MAX_DEPTH + wrapping, MAX_VALUES, Nothing)
}

/// Looks at a result in the same way. It may have as many values as it likes: it was made here, and whoever reads it
/// has room.
///
/// # Errors
/// As for [`CanonicalJson::parse`].
pub fn check_result(bytes: &[u8], limit: usize, wrapping: usize) -> Result<(), JsonRejection> {
    walk(bytes, limit, MAX_DEPTH + wrapping, usize::MAX, Nothing)
}

fn read(bytes: &[u8], limit: usize, deepest: usize) -> Result<Value, JsonRejection> {
    walk(bytes, limit, deepest, MAX_VALUES, Tree)
}

fn walk<B: Build>(
    bytes: &[u8],
    limit: usize,
    deepest: usize,
    most: usize,
    build: B,
) -> Result<B::Built, JsonRejection> {
    if bytes.len() > limit {
        return Err(JsonRejection::TooLarge { bytes: bytes.len(), limit });
    }
    let text = std::str::from_utf8(bytes).map_err(|e| JsonRejection::NotUtf8 { at: e.valid_up_to() })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let (values, huge) = (Cell::new(most), Cell::new(false));
    let built = Strict { left: deepest, values: &values, huge: &huge, build }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|e| rejection(&e))?;
    if huge.get() && digits::has_long_integer(text) {
        return Err(JsonRejection::Malformed { reason: INEXACT.to_owned() });
    }
    Ok(built)
}

/// The canonical text of anything serialisable.
///
/// # Errors
/// The value cannot be represented in JSON.
pub fn canonical_text<T: Serialize>(value: &T) -> Result<String, JsonRejection> {
    serde_json_canonicalizer::to_string(value).map_err(|e| JsonRejection::Malformed { reason: e.to_string() })
}

/// The canonical text of a value.
///
/// # Errors
/// It has no canonical form: a number that JSON cannot hold.
pub fn canonical_value(value: &Value) -> Result<String, JsonRejection> {
    if is_plain(value) {
        return serde_json::to_string(value).map_err(|e| JsonRejection::Malformed { reason: e.to_string() });
    }
    canonical_text(value)
}

/// A value's ordinary text, written into a buffer that has room for `expected` bytes.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn text(value: &impl Serialize, expected: usize) -> Result<String, serde_json::Error> {
    let mut text = Vec::with_capacity(expected);
    serde_json::to_writer(&mut text, value)?;
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// Whether a value's ordinary text is its canonical text already, which is cheaper to write: its keys are ASCII and in
/// order, so that bytes and UTF-16 units sort alike, and its numbers are integers that a double holds exactly.
pub(crate) fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(n), _) => n <= MAX_SAFE_INTEGER,
            (_, Some(n)) => n.unsigned_abs() <= MAX_SAFE_INTEGER,
            _ => false,
        },
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(map) => {
            map.keys().is_sorted() && map.iter().all(|(key, value)| key.is_ascii() && is_plain(value))
        }
    }
}

const TOO_DEEP: &str = "nested too deeply";
const TOO_MANY: &str = "too many values";
const INEXACT: &str = "an integer beyond ±(2^53-1) is not exact everywhere; send it as a string";

fn rejection(error: &serde_json::Error) -> JsonRejection {
    let reason = error.to_string();
    if reason.contains(TOO_DEEP) || reason.starts_with("recursion limit exceeded") {
        JsonRejection::TooDeep
    } else if reason.contains(TOO_MANY) {
        JsonRejection::TooMany
    } else {
        JsonRejection::Malformed { reason: crate::id::excerpt(&reason) }
    }
}

/// What becomes of the values that are read.
trait Build: Copy {
    type Built;
    type List: Default;
    type Map: Default;

    fn scalar(self, value: impl FnOnce() -> Value) -> Self::Built;
    fn push(self, list: &mut Self::List, item: Self::Built);
    fn has(self, map: &Self::Map, key: &str) -> bool;
    fn insert(self, map: &mut Self::Map, key: Cow<'_, str>, value: Self::Built);
    fn list(self, list: Self::List) -> Self::Built;
    fn map(self, map: Self::Map) -> Self::Built;
}

/// A tree of them.
#[derive(Clone, Copy)]
struct Tree;

impl Build for Tree {
    type Built = Value;
    type List = Vec<Value>;
    type Map = Map<String, Value>;

    fn scalar(self, value: impl FnOnce() -> Value) -> Value {
        value()
    }

    fn push(self, list: &mut Vec<Value>, item: Value) {
        list.push(item);
    }

    fn has(self, map: &Map<String, Value>, key: &str) -> bool {
        map.contains_key(key)
    }

    fn insert(self, map: &mut Map<String, Value>, key: Cow<'_, str>, value: Value) {
        map.insert(key.into_owned(), value);
    }

    fn list(self, list: Vec<Value>) -> Value {
        Value::Array(list)
    }

    fn map(self, map: Map<String, Value>) -> Value {
        Value::Object(map)
    }
}

/// Nothing: they are only looked at.
#[derive(Clone, Copy)]
struct Nothing;

impl Build for Nothing {
    type Built = ();
    type List = ();
    type Map = BTreeSet<String>;

    fn scalar(self, _: impl FnOnce() -> Value) {}

    fn push(self, (): &mut (), (): ()) {}

    fn has(self, keys: &BTreeSet<String>, key: &str) -> bool {
        keys.contains(key)
    }

    fn insert(self, keys: &mut BTreeSet<String>, key: Cow<'_, str>, (): ()) {
        keys.insert(key.into_owned());
    }

    fn list(self, (): ()) {}

    fn map(self, _: BTreeSet<String>) {}
}

/// Reads a value, counting levels and values, and refusing duplicate keys.
#[derive(Clone, Copy)]
struct Strict<'a, B> {
    /// How many levels there may still be.
    left: usize,
    /// How many values there may still be.
    values: &'a Cell<usize>,
    /// There was a number whose digits have to be looked at.
    huge: &'a Cell<bool>,
    build: B,
}

impl<B: Build> Strict<'_, B> {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        self.left.checked_sub(1).map(|left| Self { left, ..self }).ok_or_else(|| E::custom(TOO_DEEP))
    }

    fn integer<E: de::Error>(self, size: u64, number: impl FnOnce() -> Number) -> Result<B::Built, E> {
        if size > MAX_SAFE_INTEGER {
            return Err(E::custom(INEXACT));
        }
        Ok(self.build.scalar(|| Value::Number(number())))
    }
}

impl<'de, B: Build> DeserializeSeed<'de> for Strict<'_, B> {
    type Value = B::Built;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<B::Built, D::Error> {
        let left = self.values.get().checked_sub(1).ok_or_else(|| de::Error::custom(TOO_MANY))?;
        self.values.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de, B: Build> Visitor<'de> for Strict<'_, B> {
    type Value = B::Built;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<B::Built, E> {
        Ok(self.build.scalar(|| Value::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<B::Built, E> {
        self.integer(value.unsigned_abs(), || value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<B::Built, E> {
        self.integer(value, || value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<B::Built, E> {
        // Written as `1e16` or `9007199254740993.0` it is the same integer: rounded already, and beyond the limit in
        // its canonical form. From 1e21 on the canonical form has an exponent, which stays what it is; without one it
        // was a row of digits that no double holds, and only the text can tell.
        if value.fract() == 0.0 && value.abs() > MAX_SAFE_INTEGER as f64 && value.abs() < 1e21 {
            return Err(E::custom(INEXACT));
        }
        if value.abs() >= 1e21 {
            self.huge.set(true);
        }
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number out of range"))?;
        Ok(self.build.scalar(|| Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<B::Built, E> {
        Ok(self.build.scalar(|| Value::String(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<B::Built, E> {
        Ok(self.build.scalar(|| Value::String(value)))
    }

    fn visit_unit<E>(self) -> Result<B::Built, E> {
        Ok(self.build.scalar(|| Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<B::Built, A::Error> {
        let deeper = self.deeper()?;
        let mut list = B::List::default();
        while let Some(item) = items.next_element_seed(deeper)? {
            self.build.push(&mut list, item);
        }
        Ok(self.build.list(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<B::Built, A::Error> {
        let deeper = self.deeper()?;
        let mut map = B::Map::default();
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            if self.build.has(&map, &key) {
                return Err(de::Error::custom(format_args!("the key `{}` appears twice", crate::id::excerpt(&key))));
            }
            let value = entries.next_value_seed(deeper)?;
            self.build.insert(&mut map, key, value);
        }
        Ok(self.build.map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, canonical: &str) {
        assert_eq!(CanonicalJson::parse(text.as_bytes()).unwrap().as_str(), canonical);
    }

    fn refused(bytes: &[u8]) -> &'static str {
        CanonicalJson::parse(bytes).unwrap_err().code()
    }

    #[test]
    fn an_integer_is_inexact_however_it_is_written() {
        for text in ["9007199254740993", "9007199254740993.0", "1e16", "-1E+17", "123456789012345678901", "-1.0e18"] {
            assert_eq!(refused(text.as_bytes()), "input_malformed", "{text}");
        }
        for text in ["99999999999999999999999", "-100000000000000000000000", "99999999999999999999999.5"] {
            assert_eq!(refused(format!(r#"{{"a\\\"":[0.5,"1e5\"",{text}]}}"#).as_bytes()), "input_malformed", "{text}");
        }
        check(
            r#"["99999999999999999999999\\","\"99999999999999999999999",1e23]"#,
            r#"["99999999999999999999999\\","\"99999999999999999999999",1e+23]"#,
        );
        for text in ["9007199254740991.0", "1e15", "1e21", "-1e300", "0.1", "0.1234567890123456789012345", "1e23"] {
            let once = CanonicalJson::parse(text.as_bytes()).unwrap();
            assert_eq!(CanonicalJson::parse(once.as_str().as_bytes()).unwrap().as_str(), once.as_str(), "{text}");
        }
    }

    #[test]
    fn canonical_form_follows_rfc_8785() {
        check(r#"{ "b": 2, "a": [1.0, 1e2, -0] }"#, r#"{"a":[1,100,0],"b":2}"#);
        check(
            r#"{"\u20ac":"Euro","\r":"CR","1":"One","\ud83d\ude02":"Smiley"}"#,
            "{\"\\r\":\"CR\",\"1\":\"One\",\"€\":\"Euro\",\"😂\":\"Smiley\"}",
        );
        check(
            r#"[333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001]"#,
            "[333333333.3333333,1e+30,4.5,0.002,1e-27]",
        );
    }

    #[test]
    fn ambiguity_is_refused() {
        for bad in [
            &br#"{"a":1,"a":2}"#[..],
            br#"{"a":{"b":1,"b":1}}"#,
            b"",
            b"{",
            b"[1,]",
            b"nul",
            b"1 2",
            b"'a'",
            b"9007199254740993",
            b"-9007199254740993",
            b"1e999",
            b"NaN",
            b"\xef\xbb\xbf{}",
            br#""\ud800""#,
        ] {
            assert_eq!(refused(bad), "input_malformed", "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!(refused(b"\"\xff\""), "input_not_utf8");
        assert_eq!(refused(&vec![b' '; MAX_INPUT_BYTES + 1]), "input_too_large");
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(CanonicalJson::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(refused(nested(MAX_DEPTH + 1).as_bytes()), "input_too_deep");
        assert_eq!(refused("[".repeat(100_000).as_bytes()), "input_too_deep");
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let list = |n: usize| format!("[{}]", vec!["1"; n].join(","));
        assert!(CanonicalJson::parse(list(MAX_VALUES - 1).as_bytes()).is_ok());
        for many in [list(MAX_VALUES), list(400_000), format!("[{}]", vec!["{\"a\":[]}"; MAX_VALUES / 2].join(","))] {
            assert_eq!(refused(many.as_bytes()), "input_too_many_values");
            assert_eq!(check_envelope(many.as_bytes(), 4 << 20, 2), Err(JsonRejection::TooMany));
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|n| Value::from(n % (1 << 54))),
            any::<u32>().prop_map(Value::from),
            any::<f64>().prop_filter_map("JSON has it", |f| Number::from_f64(f).map(Value::Number)),
            any::<String>().prop_map(Value::String),
            "[\\x00-\\x1f\"\\\\a-c]{0,4}".prop_map(Value::String),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::btree_map("[a-c\u{e9}\u{ff5e}\u{1f600}]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_is_a_fixed_point(text in r#"\{"[a-z]{1,3}":(\[[1-9][0-9]{0,2}(,-?[0-9]\.[0-9]e[0-9])*\]|"[^"\\\p{Cc}]{0,8}"|null)\}"#) {
            let once = CanonicalJson::parse(text.as_bytes()).unwrap();
            let twice = CanonicalJson::parse(once.as_str().as_bytes()).unwrap();
            prop_assert_eq!(once.as_str(), twice.as_str());
        }

        /// However long it is.
        #[test]
        fn an_integer_that_no_double_holds_is_refused(sign in "-?", digits in "[1-9][0-9]{16,60}", end in r"(\.[0-9]{1,3})?") {
            let text = format!("[1e30,{sign}{digits}{end}]");
            let refused = CanonicalJson::parse(text.as_bytes()).map_err(|e| e.code());
            prop_assert_eq!(refused.map(drop), Err("input_malformed"));
        }

        /// The short way gives the bytes that the long way gives.
        #[test]
        fn plain_values_are_canonical_already(value in any_value()) {
            prop_assert_eq!(canonical_value(&value).unwrap(), canonical_text(&value).unwrap());
        }

        /// A look finds what reading finds.
        #[test]
        fn looking_is_as_strict_as_reading(text in r#"[\[\]{}:,"\\ua-b0-9eE.\-trfnl ]{0,40}"#) {
            let read = read(text.as_bytes(), MAX_INPUT_BYTES, MAX_DEPTH).map(drop);
            prop_assert_eq!(check_envelope(text.as_bytes(), MAX_INPUT_BYTES, 0), read);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            if let Ok(json) = CanonicalJson::parse(&bytes) {
                prop_assert!(CanonicalJson::parse(json.as_str().as_bytes()).is_ok());
            }
        }
    }
}
