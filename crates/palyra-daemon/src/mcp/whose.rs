//! Which request a message is that cannot be read.
//!
//! A client waits for the answer to a request by its id. A message that is refused (a number that is not exact, a key
//! that stands there twice, more bytes than fit) still has one, and the refusal must carry it. So the outermost level
//! of its bytes is followed, and nothing is built of what lies deeper: pieces may be fed as they come, and nothing is
//! kept but a key and an id of bounded length.

use serde_json::value::RawValue;

/// The longest id that is told back.
const MAX_ID: usize = 4096;
/// The longest key that is looked at: those that matter are short, whatever escapes they are written with.
const MAX_KEY: usize = 64;

/// Where the bytes have led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    /// Before a key; `end` where the object may end instead.
    Key {
        end: bool,
    },
    /// In a key.
    InKey,
    Colon,
    Value,
    /// In a number, or a word.
    Word,
    /// In a text, which is the value or lies deeper.
    Text,
    /// In an object or a list, between texts.
    Deeper,
    /// After a value.
    Next,
    End,
    /// This is no object, so nothing in it can be named.
    Lost,
}

/// What a message's outermost level says, as far as it was fed.
#[derive(Debug)]
pub(super) struct Whose {
    at: At,
    /// The last byte of a text was a backslash that counts.
    escaped: bool,
    /// How many objects and lists are open within the value.
    depth: usize,
    key: Vec<u8>,
    /// The value of the key `id`, as it is written.
    id: Vec<u8>,
    /// How often there was such a key.
    ids: usize,
    /// Whether the value that is read is the id.
    is_id: bool,
    asks: bool,
    answers: bool,
}

impl Whose {
    pub(super) fn new() -> Self {
        let (key, id) = (Vec::new(), Vec::new());
        let at = At::Start;
        Self { at, escaped: false, depth: 0, key, id, ids: 0, is_id: false, asks: false, answers: false }
    }

    /// The id of a message that is there as a whole.
    pub(super) fn of(bytes: &[u8]) -> Option<Box<RawValue>> {
        let mut whose = Self::new();
        whose.feed(bytes);
        whose.told()
    }

    /// Follows further bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.at == At::Lost {
                return;
            }
            self.step(*byte);
        }
    }

    /// The id, if there is exactly one and it is one. An answer of the client's is none of its requests.
    pub(super) fn told(self) -> Option<Box<RawValue>> {
        let named = self.at == At::End && self.ids == 1 && (self.asks || !self.answers);
        let text = String::from_utf8(self.id).ok().filter(|text| named && text.len() <= MAX_ID)?;
        let is_one = match text.as_bytes().first()? {
            b'"' => serde_json::from_str::<String>(&text).is_ok(),
            byte => *byte == b'-' || byte.is_ascii_digit(),
        };
        RawValue::from_string(text).ok().filter(|_| is_one)
    }

    fn step(&mut self, byte: u8) {
        let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.at = match (self.at, byte) {
            (At::InKey | At::Text, _) => self.text(byte),
            (At::Deeper, _) => self.deeper(byte),
            // A word ends where something else begins.
            (At::Word, b',' | b'}') => next(byte),
            (At::Word, _) if blank => At::Next,
            (At::Word, _) => self.kept(byte, At::Word),
            (at, _) if blank => at,
            (At::Start, b'{') => At::Key { end: true },
            (At::Key { .. }, b'"') => {
                self.key.clear();
                self.key.push(byte);
                At::InKey
            }
            (At::Key { end: true }, b'}') => At::End,
            (At::Colon, b':') => At::Value,
            (At::Value, b'{' | b'[') => {
                self.depth = 1;
                self.kept(byte, At::Deeper)
            }
            (At::Value, b'"') => self.kept(byte, At::Text),
            (At::Value, b'-' | b'0'..=b'9' | b'a'..=b'z') => self.kept(byte, At::Word),
            (At::Next, b',' | b'}') => next(byte),
            _ => At::Lost,
        };
    }

    fn text(&mut self, byte: u8) -> At {
        let ends = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        match (self.at, ends) {
            (At::InKey, _) => {
                if self.key.len() < MAX_KEY {
                    self.key.push(byte);
                }
                if ends { self.keyed() } else { At::InKey }
            }
            (_, false) => self.kept(byte, At::Text),
            (_, true) if self.depth > 0 => At::Deeper,
            (_, true) => self.kept(byte, At::Next),
        }
    }

    fn deeper(&mut self, byte: u8) -> At {
        match byte {
            b'"' => return At::Text,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        if self.depth == 0 { At::Next } else { At::Deeper }
    }

    /// A key has ended. One that was cut off is no text, and so none of these.
    fn keyed(&mut self) -> At {
        let key: Option<String> = serde_json::from_slice(&self.key).ok();
        self.is_id = key.as_deref() == Some("id");
        self.ids += usize::from(self.is_id);
        self.asks |= key.as_deref() == Some("method");
        self.answers |= matches!(key.as_deref(), Some("result" | "error"));
        At::Colon
    }

    /// Keeps a byte of the id; one too many, so that an id that is too long is known for that.
    fn kept(&mut self, byte: u8, at: At) -> At {
        if self.is_id && self.ids == 1 && self.id.len() <= MAX_ID {
            self.id.push(byte);
        }
        at
    }
}

fn next(byte: u8) -> At {
    if byte == b',' { At::Key { end: false } } else { At::End }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn told(message: &str) -> Value {
        Whose::of(message.as_bytes()).map_or(Value::Null, |id| id.get().into())
    }

    #[test]
    fn the_id_is_found_whatever_lies_beside_it() {
        for (message, id) in [
            (r#"{"jsonrpc":"2.0","id":45,"method":"x","params":{"a":9007199254740993}}"#, "45"),
            (r#"{"method":"x","params":{"id":1,"id":2,"}":["\"{"]},"id":"a\u0062"}"#, r#""a\u0062""#),
            (r#" { "id" : -7 , "method" : "\ud800" } "#, "-7"),
            (r#"{"\u0069d":1,"method":"x"}"#, "1"),
            (r#"{"id":18446744073709551615,"method":"x"}"#, "18446744073709551615"),
            (r#"{"id":3}"#, "3"),
            (r#"{"id":3,"method":"x","result":{}}"#, "3"),
        ] {
            assert_eq!(told(message), json!(id), "{message}");
        }
        let deep = format!("{{\"params\":{}{},\"id\":1,\"method\":\"x\"}}", "[".repeat(900), "]".repeat(900));
        assert_eq!(told(&deep), "1");
        assert_eq!(Whose::of(b"{\"x\":\"\xff\",\"id\":1}").unwrap().get(), "1");
    }

    #[test]
    fn what_could_be_another_is_no_id() {
        let long = format!("{{\"id\":\"{}\"}}", "x".repeat(MAX_ID));
        for message in [
            "",
            "[]",
            "[{\"id\":1}]",
            "{",
            r#"{"id":1"#,
            r#"{"id":1,"method":"x","#,
            r#"{"id":1,"id":1}"#,
            r#"{"id":1,"\u0069d":2}"#,
            r#"{"id":1} {"id":2}"#,
            r#"{"id":null}"#,
            r#"{"id":true}"#,
            r#"{"id":{}}"#,
            r#"{"id":[1]}"#,
            r#"{"id":01}"#,
            r#"{"id":1x}"#,
            r#"{"id":"\ud800"}"#,
            r#"{"id":1,}"#,
            r#"{"id" 1}"#,
            r#"{"params":{"id":1}}"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"id":1,"error":{}}"#,
            &long,
        ] {
            assert_eq!(told(message), Value::Null, "{message}");
        }
    }

    proptest! {
        #[test]
        fn pieces_are_followed_like_the_whole(id in any::<i64>(), text in ".{0,20}", at in 0..64_usize) {
            let message = json!({ "a": [text, { "id": 0 }], "id": id, "method": text }).to_string();
            let at = at.min(message.len());
            let mut whose = Whose::new();
            whose.feed(&message.as_bytes()[..at]);
            whose.feed(&message.as_bytes()[at..]);
            let told = whose.told().unwrap();
            prop_assert_eq!(told.get(), id.to_string());
        }

        #[test]
        fn any_bytes_are_followed_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            drop(Whose::of(&bytes));
        }

        #[test]
        fn any_brackets_are_followed_without_harm(text in "[\\[\\]{}\",:\\\\id1 ]{0,80}") {
            let seen = Whose::of(text.as_bytes());
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                let there = value.get("id").filter(|id| id.is_number() || id.is_string());
                let seen = seen.map(|id| serde_json::from_str::<Value>(id.get()).unwrap());
                prop_assert!(seen.is_none() || seen.as_ref() == there, "{:?}", seen);
            }
        }
    }
}
