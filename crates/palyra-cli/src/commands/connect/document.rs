//! A configuration file of somebody else's program, changed in the places that are ours and nowhere else: comments, order
//! and spacing stay as their owner wrote them.

use crate::exit::{FAILED, Failure};
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;
use std::path::Path;
use toml_edit::{DocumentMut, Item, Table};

/// A parsed file.
#[derive(Debug)]
pub enum Document {
    Json(CstRootNode),
    Toml(Box<DocumentMut>),
}

impl Document {
    /// Reads the text that a file has; an empty one is an empty document.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
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
        let text = if text.trim().is_empty() { "{\n}\n" } else { text };
        let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|e| refused(e.to_string()))?;
        match root.object_value() {
            Some(_) => Ok(Self::Json(root)),
            None => Err(refused("it is not an object".to_owned())),
        }
    }

    /// The text with all changes.
    pub fn text(&self) -> String {
        match self {
            Self::Json(root) => root.to_string(),
            Self::Toml(document) => document.to_string(),
        }
    }

    /// What is at a path.
    pub fn get(&self, path: &[String]) -> Option<Value> {
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
            Self::Toml(document) => {
                let mut item = document.as_item();
                for key in path {
                    item = item.get(key)?;
                }
                from_toml(item)
            }
        }
    }

    /// Puts a value at a path; objects on the way are made. Nothing when something else stands in the way.
    pub fn set(&mut self, path: &[String], value: &Value) -> Option<()> {
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
            Self::Toml(document) => {
                let mut table: &mut Table = document.as_table_mut();
                for key in parents {
                    table = table.entry(key).or_insert_with(|| Item::Table(implicit())).as_table_mut()?;
                }
                table.insert(last, to_toml(value)?);
            }
        }
        Some(())
    }

    /// Removes what is at a path, and the objects above it that this leaves empty.
    pub fn remove(&mut self, path: &[String]) {
        match self {
            Self::Json(root) => {
                if let Some(object) = root.object_value() {
                    remove_json(&object, path);
                }
            }
            Self::Toml(document) => remove_toml(document.as_table_mut(), path),
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Json(root) => root.object_value().is_some_and(|object| object.properties().is_empty()),
            Self::Toml(document) => document.as_table().is_empty(),
        }
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

fn remove_toml(table: &mut Table, path: &[String]) {
    match path {
        [last] => drop(table.remove(last)),
        [first, rest @ ..] => {
            if let Some(inner) = table.get_mut(first).and_then(Item::as_table_mut) {
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

fn from_toml(item: &Item) -> Option<Value> {
    match item {
        Item::Value(toml_edit::Value::String(s)) => Some(Value::String(s.value().clone())),
        Item::Value(toml_edit::Value::Integer(n)) => Some(Value::from(*n.value())),
        Item::Value(toml_edit::Value::Boolean(b)) => Some(Value::Bool(*b.value())),
        Item::Value(toml_edit::Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map(|s| Value::String(s.to_owned()))).collect()
        }
        Item::Table(table) => {
            let entries = table.iter().map(|(key, item)| from_toml(item).map(|value| (key.to_owned(), value)));
            entries.collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
        }
        _ => None,
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
    fn what_stands_in_the_way_is_not_overwritten() {
        for (file, text) in [("a.json", "{ \"mcpServers\": [] }"), ("a.toml", "mcpServers = 1\n")] {
            let mut document = Document::parse(Path::new(file), text).unwrap();
            assert_eq!(document.set(&path(&["mcpServers", "palyra"]), &json!({})), None);
        }
        for (file, text) in [("a.json", "["), ("a.json", "[]"), ("a.json", "{} x"), ("a.toml", "x =")] {
            assert!(Document::parse(Path::new(file), text).is_err(), "{text}");
        }
    }
}
