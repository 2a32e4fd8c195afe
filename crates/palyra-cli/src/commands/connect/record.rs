//! What a connection changed, kept so that it can be taken back: in the state directory, for nobody else to read.

use super::clients::{Put, Wanted};
use super::document::Document;
use crate::exit::{FAILED, Failure};
use palyra_protocol::{Principal, TokenId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub client: String,
    pub project: PathBuf,
    pub principal: Principal,
    /// The agent was registered for this connection.
    pub registered: bool,
    pub token_id: TokenId,
    pub exclusive: bool,
    #[serde(default)]
    pub hooks: bool,
    pub files: Vec<FileChange>,
}

/// A file that was changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileChange {
    pub path: PathBuf,
    /// What was there; nothing when there was no file.
    before: Option<String>,
    /// What we left there.
    after: String,
    /// Whether what was there is all that has to come back: nobody else wrote between two changes of ours.
    exact: bool,
    entries: Vec<Entry>,
}

/// One place that was changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    path: Vec<String>,
    before: Option<Value>,
    /// The same as its owner wrote it, where the value alone would lose something.
    #[serde(default)]
    written: Option<String>,
    after: Value,
    /// The items that were added to a list; none when the value was set as a whole.
    added: Option<Vec<Value>>,
}

/// Where connections are kept.
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("clients")
}

/// Where a connection's token is.
pub fn token_file(state_dir: &Path, name: &str) -> PathBuf {
    folder(state_dir).join(format!("{name}.token"))
}

fn record_file(state_dir: &Path, name: &str) -> PathBuf {
    folder(state_dir).join(format!("{name}.json"))
}

impl Record {
    /// The connection of this name, if there is one.
    pub fn read(state_dir: &Path, name: &str) -> Result<Option<Self>, Failure> {
        let path = record_file(state_dir, name);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| {
                Failure::new(FAILED, "record_malformed", format!("`{}` is not understood: {e}", path.display()), None)
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::io(&format!("`{}` cannot be read", path.display()), &e)),
        }
    }

    pub fn write(&self, state_dir: &Path) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| Failure::bug(&e))?;
        write_private(&record_file(state_dir, &self.name), &text)
    }
}

/// Forgets a connection, and its token.
pub fn forget(state_dir: &Path, name: &str) -> Result<(), Failure> {
    forget_token(state_dir, name)?;
    removed(&record_file(state_dir, name))
}

/// Forgets a connection's token, and keeps the connection.
pub fn forget_token(state_dir: &Path, name: &str) -> Result<(), Failure> {
    removed(&token_file(state_dir, name))
}

/// Removes a file, if it is there.
fn removed(file: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io(&format!("`{}` cannot be removed", file.display()), &e))
        }
        _ => Ok(()),
    }
}

/// Writes a file that only its owner can read, whole or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io(&format!("`{}` cannot be written", path.display()), &e);
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
    }
    replace(path, bytes, 0o600).map_err(failed)
}

/// Where a file is written before it takes its place.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".palyra-new");
    name.into()
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let fresh = unfinished(path);
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&fresh)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&fresh, path));
    if written.is_err() {
        // Half a file is of use to nobody.
        drop(std::fs::remove_file(&fresh));
    }
    written
}

/// Works out what a file becomes; nothing is written yet.
pub fn plan(wanted: &[Wanted]) -> Result<Vec<FileChange>, Failure> {
    let mut files: Vec<FileChange> = Vec::new();
    for want in wanted {
        let at = match files.iter().position(|file| file.path == want.file) {
            Some(at) => at,
            None => {
                let before = read(&want.file)?;
                let after = before.clone().unwrap_or_default();
                files.push(FileChange { path: want.file.clone(), before, after, exact: true, entries: Vec::new() });
                files.len() - 1
            }
        };
        files[at].add(want)?;
    }
    Ok(files)
}

/// The text of a configuration file; nothing if there is none. Only a file is read: a pipe would be waited for, and a
/// link that leads nowhere would become a file.
pub fn read(path: &Path) -> Result<Option<String>, Failure> {
    let failed = |e: std::io::Error| Failure::io(&format!("`{}` cannot be read", path.display()), &e);
    let refused = |what: &str| {
        let message = format!("`{}` is {what}", path.display());
        Failure::new(FAILED, "config_no_file", message, Some("put a file there, or nothing; nothing was changed"))
    };
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(refused("no regular file")),
        Ok(_) => std::fs::read_to_string(path).map(Some).map_err(failed),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => match std::fs::symlink_metadata(path) {
            Ok(_) => Err(refused("a link that leads nowhere")),
            Err(_) => Ok(None),
        },
        Err(e) => Err(failed(e)),
    }
}

impl FileChange {
    fn add(&mut self, want: &Wanted) -> Result<(), Failure> {
        let mut document = Document::parse(&self.path, &self.after)?;
        let before = document.get(&want.path);
        let blocked = || {
            Failure::new(
                FAILED,
                "config_in_the_way",
                format!("`{}` in `{}` is something else", want.path.join("."), self.path.display()),
                Some("change it first; nothing was changed"),
            )
        };
        let (after, added) = match (&want.put, &before) {
            (Put::Value(value), _) => (value.clone(), None),
            (Put::Among(items), None) => (Value::Array(items.clone()), Some(items.clone())),
            (Put::Among(items), Some(Value::Array(there))) => {
                let missing: Vec<_> = items.iter().filter(|item| !there.contains(item)).cloned().collect();
                (Value::Array([there.clone(), missing.clone()].concat()), Some(missing))
            }
            (Put::Among(_), Some(_)) => return Err(blocked()),
        };
        if before.as_ref().is_some_and(|before| satisfies(before, &after)) {
            return Ok(());
        }
        let written = document.as_written(&want.path);
        document.set(&want.path, &after).ok_or_else(blocked)?;
        self.after = document.text();
        self.entries.push(Entry { path: want.path.clone(), before, written, after, added });
        Ok(())
    }

    /// Adds a later change of ours to an earlier one; one that changes nothing tells what others wrote in between.
    pub fn then(&mut self, later: Self) {
        self.exact &= later.before.as_deref() == Some(&self.after);
        self.after = later.after;
        for entry in later.entries {
            match self.entries.iter_mut().find(|known| known.path == entry.path) {
                Some(known) => {
                    known.after = entry.after;
                    let more = entry.added.into_iter().flatten();
                    if let Some(added) = &mut known.added {
                        added.extend(more);
                    }
                }
                None => self.entries.push(entry),
            }
        }
    }

    /// Whether there is anything to write.
    pub fn is_change(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The places that change, for people.
    pub fn places(&self) -> String {
        self.entries.iter().map(|entry| entry.path.join(".")).collect::<Vec<_>>().join(", ")
    }

    /// The places where something else stood.
    pub fn replaced(&self) -> impl Iterator<Item = String> {
        let replaced = self.entries.iter().filter(|entry| entry.added.is_none() && entry.before.is_some());
        replaced.map(|entry| entry.path.join("."))
    }

    /// The file as it will be.
    pub fn text(&self) -> &str {
        &self.after
    }

    pub fn apply(&self) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::io(&format!("`{}` cannot be written", self.path.display()), &e);
        let made = self.path.parent().filter(|parent| !parent.exists());
        if let Some(parent) = made {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let written = self.write(self.after.as_bytes());
        if let (Err(_), Some(parent)) = (&written, made) {
            drop(std::fs::remove_dir(parent));
        }
        written.map_err(failed)
    }

    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        // A file that was there keeps its mode, and stays where its links lead.
        let real = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mode = std::fs::metadata(&real).map_or(0o644, |metadata| metadata.permissions().mode() & 0o777);
        replace(&real, bytes, mode)
    }

    /// Takes the change back: exactly when nobody touched the file since, else place by place. What others changed in
    /// our places stays, and is told.
    pub fn undo(&self) -> Result<Vec<String>, Failure> {
        let failed = |e: std::io::Error| Failure::io(&format!("`{}` cannot be written", self.path.display()), &e);
        let Some(now) = read(&self.path)? else { return Ok(Vec::new()) };
        if self.exact && now == self.after {
            return self.restore(self.before.as_deref()).map(|()| Vec::new()).map_err(failed);
        }
        let mut document = Document::parse(&self.path, &now)?;
        let mut left = Vec::new();
        for entry in self.entries.iter().rev() {
            if !entry.undo(&mut document) {
                left.push(entry.path.join("."));
            }
        }
        let text = (self.before.is_some() || !document.is_empty()).then(|| document.text());
        self.restore(text.as_deref()).map_err(failed)?;
        Ok(left)
    }

    fn restore(&self, text: Option<&str>) -> std::io::Result<()> {
        match text {
            Some(text) => self.write(text.as_bytes()),
            None => {
                std::fs::remove_file(&self.path)?;
                // A folder of ours that is empty now; one that is not stays.
                if let Some(parent) =
                    self.path.parent().filter(|p| p.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b".")))
                {
                    drop(std::fs::remove_dir(parent));
                }
                Ok(())
            }
        }
    }
}

/// Whether what is there does already. What its owner added to an object of ours is theirs.
fn satisfies(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| there.get(key) == Some(value))
        }
        _ => there == wanted,
    }
}

impl Entry {
    fn undo(&self, document: &mut Document) -> bool {
        match (document.get(&self.path), &self.added) {
            (None, _) => true,
            (Some(Value::Array(now)), Some(added)) => {
                let kept: Vec<_> = now.into_iter().filter(|item| !added.contains(item)).collect();
                if kept.is_empty() && self.before.is_none() {
                    document.remove(&self.path);
                    return true;
                }
                document.set(&self.path, &Value::Array(kept)).is_some()
            }
            (Some(now), None) if now == self.after => match (&self.written, &self.before) {
                (Some(written), _) => document.write_back(&self.path, written).is_some(),
                (None, Some(before)) => document.set(&self.path, before).is_some(),
                (None, None) => {
                    document.remove(&self.path);
                    true
                }
            },
            _ => false,
        }
    }
}
