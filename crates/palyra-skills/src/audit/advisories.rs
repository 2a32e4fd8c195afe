//! Advisories about packages, in the OSV format: a local file or directory that an operator keeps.
//!
//! A package is affected if an advisory lists its version or has it in a range. Where versions cannot be compared the
//! answer is yes: an advisory that names the package deserves a look.

use super::versions::{Scheme, compare};
use crate::files::read_regular;
use crate::purl::{PackageKey, PackageUrl};
use crate::text::excerpt;
use palyra_protocol::{Digest, DigestBuilder};
use serde::Deserialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The largest file of advisories.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The most files of a directory.
const MAX_FILES: usize = 200_000;

/// Why advisories cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdvisoryError {
    /// The file or directory cannot be read.
    #[error("the advisories in `{}` cannot be read: {source}", path.display())]
    Disk {
        /// What was read.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not OSV.
    #[error("the advisories in {place} are not OSV: {reason}")]
    Malformed {
        /// Where.
        place: String,
        /// Why, with line and column.
        reason: String,
    },
    /// There are more files than anybody has advisories.
    #[error("`{}` has more than {MAX_FILES} files", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
}

impl AdvisoryError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk { .. } => "advisories_disk",
            Self::Malformed { .. } => "advisories_malformed",
            Self::TooMany { .. } => "advisories_too_many",
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawFile {
    Many(Vec<RawAdvisory>),
    Wrapped { vulns: Vec<RawAdvisory> },
    One(Box<RawAdvisory>),
}

#[derive(Deserialize)]
struct RawAdvisory {
    id: String,
    summary: Option<String>,
    withdrawn: Option<String>,
    #[serde(default)]
    affected: Vec<RawAffected>,
}

#[derive(Deserialize)]
struct RawAffected {
    package: Option<RawPackage>,
    #[serde(default)]
    ranges: Vec<RawRange>,
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct RawPackage {
    ecosystem: String,
    name: String,
    purl: Option<String>,
}

#[derive(Deserialize)]
struct RawRange {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    events: Vec<RawEvent>,
}

/// Each event has one of these keys.
#[derive(Deserialize)]
struct RawEvent {
    introduced: Option<String>,
    fixed: Option<String>,
    last_affected: Option<String>,
    limit: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    /// From this version on it is affected; `None` is from the beginning.
    Introduced(Option<String>),
    /// From this version on it is not.
    Fixed(String),
    /// Behind this version it is not.
    LastAffected(String),
}

#[derive(Debug, Clone)]
struct Affected {
    id: String,
    summary: String,
    ranges: Vec<Vec<Event>>,
    versions: Vec<String>,
}

/// An advisory that is about a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvisoryMatch {
    /// The advisory's id.
    pub id: String,
    /// What it is about, in one line.
    pub summary: String,
    /// Whether the versions could be compared; where not, the match is a precaution.
    pub is_certain: bool,
}

/// Every advisory that an operator keeps.
#[derive(Debug, Clone)]
pub struct Advisories {
    by_package: BTreeMap<PackageKey, Vec<Affected>>,
    digest: Digest,
    count: usize,
}

impl Default for Advisories {
    fn default() -> Self {
        Self { by_package: BTreeMap::new(), digest: Digest::of(b""), count: 0 }
    }
}

impl Advisories {
    /// Reads one document: an advisory, a list of them, or an object with a list named `vulns`.
    ///
    /// # Errors
    /// It is not OSV.
    pub fn parse(bytes: &[u8]) -> Result<Self, AdvisoryError> {
        let mut advisories = Self::default();
        advisories.add(bytes, "the document")?;
        Ok(advisories)
    }

    /// Reads a file, or every `.json` file of a directory. Nothing there is no advisory.
    ///
    /// # Errors
    /// A file cannot be read or is not OSV.
    pub fn read(path: &Path) -> Result<Self, AdvisoryError> {
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |source| AdvisoryError::Disk { path, source }
        };
        let mut files = vec![path.to_owned()];
        if path.is_dir() {
            files.clear();
            for entry in std::fs::read_dir(path).map_err(disk(path))? {
                let file = entry.map_err(disk(path))?.path();
                if file.extension().is_some_and(|extension| extension == "json") {
                    files.push(file);
                }
                if files.len() > MAX_FILES {
                    return Err(AdvisoryError::TooMany { path: path.to_owned() });
                }
            }
            files.sort();
        }
        let mut advisories = Self::default();
        for file in files {
            if let Some(bytes) = read_regular(&file, MAX_FILE_BYTES).map_err(disk(&file))? {
                advisories.add(&bytes, &format!("`{}`", file.display()))?;
            }
        }
        Ok(advisories)
    }

    /// How many advisories there are, withdrawn ones not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Changes whenever an advisory does.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Every advisory about this version of a package.
    #[must_use]
    pub fn about(&self, package: &PackageUrl) -> Vec<AdvisoryMatch> {
        let known = self.by_package.get(&package.key());
        let scheme = Scheme::of(package.kind());
        let matched = |affected: &Affected| {
            let is_certain = match package.version() {
                Some(version) => affected.covers(version, scheme)?,
                None => false,
            };
            Some(AdvisoryMatch { id: affected.id.clone(), summary: affected.summary.clone(), is_certain })
        };
        known.into_iter().flatten().filter_map(matched).collect()
    }

    fn add(&mut self, bytes: &[u8], place: &str) -> Result<(), AdvisoryError> {
        let malformed = |reason: String| AdvisoryError::Malformed { place: place.to_owned(), reason: excerpt(&reason) };
        let file: RawFile = serde_json::from_slice(bytes).map_err(|e| malformed(e.to_string()))?;
        let advisories = match file {
            RawFile::Many(many) | RawFile::Wrapped { vulns: many } => many,
            RawFile::One(one) => vec![*one],
        };
        for advisory in advisories.into_iter().filter(|advisory| advisory.withdrawn.is_none()) {
            self.count += 1;
            let summary = excerpt(advisory.summary.as_deref().unwrap_or_default());
            let id = excerpt(&advisory.id);
            for raw in advisory.affected {
                let Some(key) = raw.package.as_ref().and_then(key_of) else { continue };
                let ranges = raw.ranges.into_iter().filter(|range| range.kind != "GIT");
                let ranges = ranges.map(|range| {
                    events(range.events).ok_or_else(|| malformed(format!("`{id}` has an event without a version")))
                });
                let affected = Affected {
                    id: id.clone(),
                    summary: summary.clone(),
                    ranges: ranges.collect::<Result<_, _>>()?,
                    versions: raw.versions,
                };
                self.by_package.entry(key).or_default().push(affected);
            }
        }
        self.digest =
            DigestBuilder::new("palyra.skill.advisories.v1").field(self.digest.as_bytes()).field(bytes).finish();
        Ok(())
    }
}

fn key_of(package: &RawPackage) -> Option<PackageKey> {
    if let Some(purl) = package.purl.as_deref().and_then(|purl| purl.parse::<PackageUrl>().ok()) {
        return Some(purl.key());
    }
    let kind = match package.ecosystem.split(':').next()? {
        "crates.io" => "cargo",
        "npm" => "npm",
        "PyPI" => "pypi",
        "Palyra" => "palyra-skill",
        _ => return None,
    };
    Some(PackageKey::new(kind, &package.name))
}

fn events(raw: Vec<RawEvent>) -> Option<Vec<Event>> {
    raw.into_iter()
        .map(|event| {
            let introduced = event.introduced.map(|v| Event::Introduced((v != "0").then_some(v)));
            let fixed = event.fixed.or(event.limit).map(Event::Fixed);
            introduced.or(fixed).or(event.last_affected.map(Event::LastAffected))
        })
        .collect()
}

impl Affected {
    /// Whether a version is affected: `Some(true)` for certain, `Some(false)` where versions cannot be compared,
    /// nothing if not.
    fn covers(&self, version: &str, scheme: Scheme) -> Option<bool> {
        if self
            .versions
            .iter()
            .any(|listed| listed == version || compare(scheme, listed, version) == Some(Ordering::Equal))
        {
            return Some(true);
        }
        // An advisory that names no version at all is about every one.
        if self.versions.is_empty() && self.ranges.is_empty() {
            return Some(true);
        }
        let mut doubtful = false;
        for range in &self.ranges {
            match is_within(range, version, scheme) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => doubtful = true,
            }
        }
        doubtful.then_some(false)
    }
}

/// Whether a version is within a range; nothing if the versions cannot be compared.
fn is_within(range: &[Event], version: &str, scheme: Scheme) -> Option<bool> {
    let (mut start, mut end): (Option<&Event>, Option<&Event>) = (None, None);
    for event in range {
        let (text, after) = match event {
            Event::Introduced(None) => {
                start = start.or(Some(event));
                continue;
            }
            Event::Introduced(Some(text)) | Event::Fixed(text) => (text, Ordering::is_le as fn(Ordering) -> bool),
            Event::LastAffected(text) => (text, Ordering::is_lt as fn(Ordering) -> bool),
        };
        // Events at or before this version matter; of those, the last one decides.
        if !after(compare(scheme, text, version)?) {
            continue;
        }
        let slot = if matches!(event, Event::Introduced(_)) { &mut start } else { &mut end };
        let later = match slot.and_then(Event::version) {
            Some(known) => compare(scheme, text, known)?.is_ge(),
            None => true,
        };
        if later {
            *slot = Some(event);
        }
    }
    Some(match (start, end) {
        (None, _) => false,
        (Some(_), None) => true,
        // Introduced again after the last fix.
        (Some(start), Some(end)) => match (start.version(), end.version()) {
            (Some(start), Some(end)) => compare(scheme, start, end)?.is_gt(),
            _ => false,
        },
    })
}

impl Event {
    fn version(&self) -> Option<&str> {
        match self {
            Self::Introduced(version) => version.as_deref(),
            Self::Fixed(version) | Self::LastAffected(version) => Some(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEED: &str = r#"{ "vulns": [
      { "id": "OSV-1", "summary": "bad", "affected": [{
          "package": { "ecosystem": "crates.io", "name": "left_pad" },
          "ranges": [{ "type": "SEMVER", "events": [
              { "introduced": "0" }, { "fixed": "1.2.0" }, { "introduced": "2.0.0-rc.1" }, { "last_affected": "2.1.0" } ] }] }] },
      { "id": "OSV-2", "affected": [{
          "package": { "ecosystem": "PyPI", "name": "Some.Package" },
          "ranges": [{ "type": "ECOSYSTEM", "events": [ { "introduced": "1.0" }, { "fixed": "1.0.post2" } ] }],
          "versions": ["0.9b1"] }] },
      { "id": "OSV-3", "affected": [{ "package": { "ecosystem": "npm", "name": "@scope/evil" } }] },
      { "id": "OSV-4", "withdrawn": "2025-01-01T00:00:00Z", "affected": [{ "package": { "ecosystem": "npm", "name": "fine" } }] },
      { "id": "OSV-5", "affected": [{ "package": { "ecosystem": "x", "name": "y", "purl": "pkg:palyra-skill/acme.weather" },
          "ranges": [{ "type": "SEMVER", "events": [ { "introduced": "1.0.0" }, { "limit": "1.1.0" } ] }] }] },
      { "id": "OSV-6", "affected": [{ "package": { "ecosystem": "Debian:12", "name": "bash" } }] }
    ] }"#;

    #[test]
    fn versions_are_found_in_ranges_and_lists() {
        let advisories = Advisories::parse(FEED.as_bytes()).unwrap();
        assert_eq!(advisories.len(), 5);
        for (package, expect) in [
            ("pkg:cargo/left-pad@1.1.9", "OSV-1"),
            ("pkg:cargo/left-pad@1.2.0", ""),
            ("pkg:cargo/left-pad@1.2.0-rc.1", "OSV-1"),
            ("pkg:cargo/left-pad@2.0.0-beta.1", ""),
            ("pkg:cargo/left-pad@2.0.0", "OSV-1"),
            ("pkg:cargo/left-pad@2.1.0", "OSV-1"),
            ("pkg:cargo/left-pad@2.1.1", ""),
            ("pkg:cargo/left-pad@new", "OSV-1?"),
            ("pkg:cargo/left-pad", "OSV-1?"),
            ("pkg:pypi/some_package@1.0.post1", "OSV-2"),
            ("pkg:pypi/some-package@1.0.0", "OSV-2"),
            ("pkg:pypi/some-package@1.0.post2", ""),
            ("pkg:pypi/some-package@0.9b1", "OSV-2"),
            ("pkg:pypi/some-package@0.9", ""),
            ("pkg:npm/%40scope/evil@1.0.0", "OSV-3"),
            ("pkg:npm/fine@1.0.0", ""),
            ("pkg:npm/bash@1.0.0", ""),
            ("pkg:palyra-skill/acme.weather@1.0.5", "OSV-5"),
            ("pkg:palyra-skill/acme.weather@1.1.0", ""),
        ] {
            let found = advisories.about(&package.parse().unwrap());
            let shown: Vec<_> =
                found.iter().map(|m| format!("{}{}", m.id, if m.is_certain { "" } else { "?" })).collect();
            assert_eq!(shown.join(" "), expect, "{package}");
        }
    }

    #[test]
    fn files_and_directories_are_read_and_told_apart_by_digest() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Advisories::read(&dir.path().join("nothing")).unwrap().is_empty());
        let one = r#"{ "id": "A", "affected": [{ "package": { "ecosystem": "npm", "name": "a" } }] }"#;
        std::fs::write(dir.path().join("a.json"), one).unwrap();
        std::fs::write(dir.path().join("note.txt"), "no advisory").unwrap();
        let first = Advisories::read(dir.path()).unwrap();
        assert_eq!(first.len(), 1);
        std::fs::write(dir.path().join("b.json"), one.replace("\"A\"", "\"B\"")).unwrap();
        let second = Advisories::read(dir.path()).unwrap();
        assert_eq!((second.len(), second.digest() == first.digest()), (2, false));
        std::fs::write(dir.path().join("c.json"), "{").unwrap();
        assert_eq!(Advisories::read(dir.path()).unwrap_err().code(), "advisories_malformed");
        for bad in [
            "[1]",
            "{\"id\":1}",
            r#"{"id":"x","affected":[{"package":{"ecosystem":"npm","name":"a"},"ranges":[{"type":"SEMVER","events":[{}]}]}]}"#,
        ] {
            assert_eq!(Advisories::parse(bad.as_bytes()).unwrap_err().code(), "advisories_malformed", "{bad}");
        }
    }
}
