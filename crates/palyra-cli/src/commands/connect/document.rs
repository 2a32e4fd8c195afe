//! A configuration file of somebody else's program, changed in the places that are ours and nowhere else: comments,
//! order and spacing stay as their owner wrote them.

use crate::exit::{FAILED, Failure};
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{CollectOptions, ParseOptions, ast, parse_to_ast};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use toml_edit::{DocumentMut, Item, Table, TableLike};

/// Stands before the text of files that some editors write.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A parsed file.
#[derive(Debug)]
pub struct Document {
    body: Body,
    /// The file began with a byte order mark, and keeps it.
    marked: bool,
}

#[derive(Debug)]
enum Body {
    Json(CstRootNode),
    Toml(Box<DocumentMut>),
    /// A file of lines, which is one list under the key `lines`.
    Lines(Vec<String>),
}

impl Document {
    /// Reads the text that a file has; an empty one is an empty document.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let unmarked = text.strip_prefix(BYTE_ORDER_MARK);
        let body = Body::parse(path, unmarked.unwrap_or(text))?;
        Ok(Self { body, marked: unmarked.is_some() })
    }

    /// The text with all changes.
    pub fn text(&self) -> String {
        let text = match &self.body {
            Body::Json(root) => root.to_string(),
            Body::Toml(document) => document.to_string(),
            Body::Lines(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
        };
        if self.marked { format!("{BYTE_ORDER_MARK}{text}") } else { text }
    }

    /// What is at a path.
    pub fn get(&self, path: &[String]) -> Option<Value> {
        self.body.get(path)
    }

    /// What is at a path as its owner wrote it, where a value would lose something of that.
    pub fn as_written(&self, path: &[String]) -> Option<String> {
        let Body::Toml(document) = &self.body else { return None };
        let mut alone = DocumentMut::new();
        put(alone.as_table_mut(), path, item_at(document, path)?.clone())?;
        Some(alone.to_string())
    }

    /// Puts a value at a path; objects on the way are made. Nothing when something else stands in the way.
    pub fn set(&mut self, path: &[String], value: &Value) -> Option<()> {
        self.body.set(path, value)
    }

    /// Puts back at a path what [`Self::as_written`] told.
    pub fn write_back(&mut self, path: &[String], written: &str) -> Option<()> {
        let Body::Toml(document) = &mut self.body else { return None };
        let alone: DocumentMut = written.parse().ok()?;
        put(document.as_table_mut(), path, item_at(&alone, path)?.clone())
    }

    /// Removes what is at a path, and the objects above it that this leaves empty.
    pub fn remove(&mut self, path: &[String]) {
        match &mut self.body {
            Body::Json(root) => {
                if let Some(object) = root.object_value() {
                    remove_json(&object, path);
                }
            }
            Body::Toml(document) => remove_toml(document.as_table_mut(), path),
            Body::Lines(lines) => lines.clear(),
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        match &self.body {
            Body::Json(root) => root.object_value().is_some_and(|object| object.properties().is_empty()),
            Body::Toml(document) => document.as_table().is_empty(),
            Body::Lines(lines) => lines.is_empty(),
        }
    }
}

impl Body {
    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let refused = |why: String| {
            Failure::new(
                FAILED,
                "config_malformed",
                format!("`{}` is not understood: {why}", path.display()),
                Some("mend it first; nothing was changed"),
            )
        };
        if path.extension().is_some_and(|ext| ext == "toml") {
            return text
                .parse()
                .map(|doc| Self::Toml(Box::new(doc)))
                .map_err(|e: toml_edit::TomlError| refused(e.to_string()));
        }
        if path.extension().is_some_and(|ext| ext == "rules") || path.ends_with("info/exclude") {
            return Ok(Self::Lines(text.lines().map(str::to_owned).collect()));
        }
        let text = if text.trim().is_empty() { "{\n}\n" } else { text };
        let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|e| refused(e.to_string()))?;
        let tree = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
        let tree = tree.map_err(|e| refused(e.to_string()))?;
        // Readers disagree about which of the two counts, so changing either may change nothing.
        if let Some(key) = tree.value.as_ref().and_then(twice) {
            return Err(refused(format!("the key `{key}` stands there twice")));
        }
        match root.object_value() {
            Some(_) => Ok(Self::Json(root)),
            None => Err(refused("it is not an object".to_owned())),
        }
    }

    fn get(&self, path: &[String]) -> Option<Value> {
        match self {
            Self::Json(root) => {
                let (last, parents) = path.split_last()?;
                let mut object = root.object_value()?;
                for key in parents {
                    object = object.object_value(key)?;
                }
                let text = object.get(last)?.value()?.to_string();
                let parsed = parse_to_ast(&text, &CollectOptions::default(), &ParseOptions::default()).ok()?;
                parsed.value.map(Value::from)
            }
            Self::Toml(document) => Some(from_toml(item_at(document, path)?)),
            Self::Lines(lines) => (!lines.is_empty()).then(|| Value::from(lines.clone())),
        }
    }

    fn set(&mut self, path: &[String], value: &Value) -> Option<()> {
        let (last, parents) = path.split_last()?;
        match self {
            Self::Json(root) => {
                let mut object = root.object_value()?;
                for key in parents {
                    object = match object.get(key) {
                        Some(_) => object.object_value(key)?,
                        None => object.object_value_or_set(key),
                    };
                }
                match object.get(last) {
                    Some(property) => property.set_value(input(value)),
                    None => drop(object.append(last, input(value))),
                }
            }
            Self::Toml(document) => put(document.as_table_mut(), path, to_toml(value)?)?,
            Self::Lines(lines) => {
                let wanted = value.as_array()?.iter().map(|line| line.as_str().map(str::to_owned));
                *lines = wanted.collect::<Option<_>>()?;
            }
        }
        Some(())
    }
}

/// A key that an object has twice, and the keys that lead there.
fn twice(value: &ast::Value<'_>) -> Option<String> {
    match value {
        ast::Value::Object(object) => {
            let mut seen = BTreeSet::new();
            object.properties.iter().find_map(|property| {
                let key = property.name.as_str();
                if !seen.insert(key) {
                    return Some(key.to_owned());
                }
                twice(&property.value).map(|inner| format!("{key}.{inner}"))
            })
        }
        ast::Value::Array(list) => list.elements.iter().find_map(twice),
        _ => None,
    }
}

fn remove_json(object: &CstObject, path: &[String]) {
    match path {
        [last] => {
            if let Some(property) = object.get(last) {
                property.remove();
            }
        }
        [first, rest @ ..] => {
            if let Some(inner) = object.object_value(first) {
                remove_json(&inner, rest);
                if inner.properties().is_empty()
                    && let Some(property) = object.get(first)
                {
                    property.remove();
                }
            }
        }
        [] => {}
    }
}

fn item_at<'a>(document: &'a DocumentMut, path: &[String]) -> Option<&'a Item> {
    path.iter().try_fold(document.as_item(), |item, key| item.get(key))
}

/// Puts an item at a path. Tables on the way are made, and may be written either way.
fn put(table: &mut dyn TableLike, path: &[String], item: Item) -> Option<()> {
    match path {
        [last] => {
            table.insert(last, item);
            Some(())
        }
        [first, rest @ ..] => {
            if !table.contains_key(first) {
                table.insert(first, Item::Table(implicit()));
            }
            put(table.get_mut(first)?.as_table_like_mut()?, rest, item)
        }
        [] => None,
    }
}

fn remove_toml(table: &mut dyn TableLike, path: &[String]) {
    match path {
        [last] => drop(table.remove(last)),
        [first, rest @ ..] => {
            if let Some(inner) = table.get_mut(first).and_then(Item::as_table_like_mut) {
                remove_toml(inner, rest);
                if inner.is_empty() {
                    table.remove(first);
                }
            }
        }
        [] => {}
    }
}

/// A table that is written only through what is in it.
fn implicit() -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(b) => CstInputValue::Bool(*b),
        Value::Number(n) => CstInputValue::Number(n.to_string()),
        Value::String(s) => CstInputValue::String(s.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(map) => CstInputValue::Object(map.iter().map(|(k, v)| (k.clone(), input(v))).collect()),
    }
}

/// A value of ours as TOML; objects become tables.
fn to_toml(value: &Value) -> Option<Item> {
    Some(match value {
        Value::Bool(b) => toml_edit::value(*b),
        Value::Number(n) => toml_edit::value(n.as_i64()?),
        Value::String(s) => toml_edit::value(s),
        Value::Array(items) => {
            let items: Option<toml_edit::Array> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            toml_edit::value(items?)
        }
        Value::Object(map) => {
            let mut table = Table::new();
            for (key, value) in map {
                table.insert(key, to_toml(value)?);
            }
            Item::Table(table)
        }
        Value::Null => return None,
    })
}

/// An item as a value to compare with. Dates become their text.
fn from_toml(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => from_toml_value(value),
        Item::Table(table) => table.iter().map(|(key, item)| (key.to_owned(), from_toml(item))).collect(),
        Item::ArrayOfTables(tables) => tables
            .iter()
            .map(|table| table.iter().map(|(key, item)| (key.to_owned(), from_toml(item))).collect::<Value>())
            .collect(),
    }
}

fn from_toml_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(s) => Value::String(s.value().clone()),
        toml_edit::Value::Integer(n) => Value::from(*n.value()),
        toml_edit::Value::Float(n) => Value::from(*n.value()),
        toml_edit::Value::Boolean(b) => Value::Bool(*b.value()),
        toml_edit::Value::Datetime(date) => Value::String(date.value().to_string()),
        toml_edit::Value::Array(items) => items.iter().map(from_toml_value).collect(),
        toml_edit::Value::InlineTable(table) => {
            table.iter().map(|(key, value)| (key.to_owned(), from_toml_value(value))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|k| (*k).to_owned()).collect()
    }

    fn round(file: &str, text: &str, keys: &[&str], value: Value) -> String {
        let mut document = Document::parse(Path::new(file), text).unwrap();
        let keys = path(keys);
        assert_eq!(document.get(&keys), None);
        document.set(&keys, &value).unwrap();
        let changed = document.text();
        let mut again = Document::parse(Path::new(file), &changed).unwrap();
        assert_eq!(again.get(&keys), Some(value), "{changed}");
        again.remove(&keys);
        assert_eq!(again.text().trim_end(), text.trim_end(), "taken back exactly");
        changed
    }

    #[test]
    fn what_others_wrote_stays_as_it_is() {
        let json = "{\n  // mine\n  \"mcpServers\": {\n    \"z\": { \"command\": \"z\" },\n    \"a\": {}\n  },\n  \"b\": [1,2]\n}\n";
        let changed = round("a.json", json, &["mcpServers", "palyra"], json!({ "command": "p", "args": ["x"] }));
        assert!(changed.contains("// mine") && changed.find("\"z\"") < changed.find("\"a\""), "{changed}");
        let toml = "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"o\" # theirs\n";
        let changed = round("a.toml", toml, &["mcp_servers", "palyra"], json!({ "command": "p", "args": ["x"] }));
        assert!(changed.starts_with(toml), "{changed}");
        round("a.toml", "", &["mcp_servers", "palyra"], json!({ "command": "p" }));
        round("a.toml", "x = 1\n", &["features", "shell_tool"], json!(false));
    }

    #[test]
    fn what_was_replaced_comes_back_as_it_was_written() {
        for own in [
            "[mcp_servers.palyra]\nenv = { A = \"1\" } # mine\nstartup_timeout_sec = 10.5\n",
            "mcp_servers.palyra = { since = 2026-01-02, ports = [1, 2] }\n",
            "mcp_servers = { palyra = { command = \"x\" }, other = {} }\n",
            "[[mcp_servers.palyra]]\na = 1\n",
        ] {
            let keys = path(&["mcp_servers", "palyra"]);
            let mut document = Document::parse(Path::new("a.toml"), own).unwrap();
            let written = document.as_written(&keys).unwrap();
            document.set(&keys, &json!({ "command": "p", "args": ["x"] })).unwrap();
            let mut again = Document::parse(Path::new("a.toml"), &document.text()).unwrap();
            assert_eq!(again.get(&keys), Some(json!({ "command": "p", "args": ["x"] })), "{}", document.text());
            again.write_back(&keys, &written).unwrap();
            let back = Document::parse(Path::new("a.toml"), &again.text()).unwrap();
            assert_eq!(
                back.get(&keys),
                Document::parse(Path::new("a.toml"), own).unwrap().get(&keys),
                "{}",
                back.text()
            );
            assert_eq!(back.text().contains("# mine"), own.contains("# mine"));
        }
    }

    #[test]
    fn a_byte_order_mark_is_kept() {
        for (file, text) in [("a.json", "\u{feff}{\n  \"a\": 1\n}\n"), ("a.toml", "\u{feff}a = 1\n")] {
            let mut document = Document::parse(Path::new(file), text).unwrap();
            document.set(&path(&["b"]), &json!(2)).unwrap();
            assert!(document.text().starts_with(BYTE_ORDER_MARK));
            document.remove(&path(&["b"]));
            assert_eq!(document.text().trim_end(), text.trim_end());
        }
    }

    #[test]
    fn what_stands_in_the_way_is_not_overwritten() {
        for (file, text) in [("a.json", "{ \"mcpServers\": [] }"), ("a.toml", "mcpServers = 1\n")] {
            let mut document = Document::parse(Path::new(file), text).unwrap();
            assert_eq!(document.set(&path(&["mcpServers", "palyra"]), &json!({})), None);
        }
        for (file, text) in [("a.json", "["), ("a.json", "[]"), ("a.json", "{} x"), ("a.toml", "x =")] {
            assert!(Document::parse(Path::new(file), text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_that_stands_there_twice_is_named() {
        for (file, text, key) in [
            ("a.json", "{ \"hooks\": {}, \"b\": 1, \"hooks\": {} }", "`hooks`"),
            ("a.json", "{ \"permissions\": { \"deny\": [], /* x */ \"d\\u0065ny\": [] } }", "`permissions.deny`"),
            ("a.json", "{ \"a\": [{ \"b\": 1, \"b\": 1 }] }", "`a.b`"),
            ("a.toml", "x = 1\nx = 2\n", "x"),
        ] {
            let refused = Document::parse(Path::new(file), text).unwrap_err();
            assert_eq!(refused.code, "config_malformed");
            assert!(refused.message.contains(key), "{}", refused.message);
        }
        assert!(Document::parse(Path::new("a.json"), "{ \"a\": { \"b\": 1 }, \"b\": { \"a\": 1 } }").is_ok());
    }
}
