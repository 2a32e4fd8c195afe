//! Package URLs: the names by which bills of materials and advisories know a package.
//!
//! Only what identifies a package is kept: type, namespace, name, version. Qualifiers and sub-paths are read and
//! dropped.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const MAX: usize = 512;

/// A package URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageUrl {
    kind: String,
    namespace: String,
    name: String,
    version: Option<String>,
}

/// A text that is no package URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is no package URL; one looks like `pkg:cargo/serde@1.0.200`")]
pub struct PackageUrlError {
    given: String,
}

/// Which package, whatever its version: what two package URLs are compared by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageKey {
    kind: String,
    name: String,
}

impl PackageUrl {
    /// A package of this type.
    #[must_use]
    pub fn new(kind: &str, namespace: &str, name: &str, version: Option<&str>) -> Self {
        let version = version.map(str::to_owned);
        Self { kind: kind.to_ascii_lowercase(), namespace: namespace.to_owned(), name: name.to_owned(), version }
    }

    /// The type: `cargo`, `npm`, `pypi`, …
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The version, if it names one.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The package without its version, in the spelling that its registry takes for one and the same.
    #[must_use]
    pub fn key(&self) -> PackageKey {
        let name =
            if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) };
        PackageKey { kind: self.kind.clone(), name: normal_name(&self.kind, &name) }
    }
}

impl PackageKey {
    /// A package by type and name.
    #[must_use]
    pub fn new(kind: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), name: normal_name(kind, name) }
    }
}

impl fmt::Display for PackageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} package `{}`", self.kind, crate::text::excerpt(&self.name))
    }
}

/// Registries treat several spellings as one name.
fn normal_name(kind: &str, name: &str) -> String {
    let lower = name.to_lowercase();
    match kind {
        // Runs of `-`, `_` and `.` are one `-`.
        "pypi" => {
            let parts: Vec<_> = lower.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
            parts.join("-")
        }
        "cargo" => lower.replace('_', "-"),
        _ => lower,
    }
}

impl FromStr for PackageUrl {
    type Err = PackageUrlError;
    fn from_str(text: &str) -> Result<Self, PackageUrlError> {
        parse(text).ok_or_else(|| PackageUrlError { given: crate::text::excerpt(text) })
    }
}

fn parse(text: &str) -> Option<PackageUrl> {
    if text.len() > MAX {
        return None;
    }
    let rest = text.strip_prefix("pkg:")?.trim_start_matches('/');
    let rest = rest.split(['?', '#']).next()?;
    let (kind, path) = rest.split_once('/')?;
    if kind.is_empty() || !kind.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-')) {
        return None;
    }
    // A version's `@` is the last one; a scope's is written `%40`, or stands at the beginning.
    let (path, version) = match path.rsplit_once('@') {
        Some((path, version)) if !path.is_empty() && !version.contains('/') => (path, Some(decode(version)?)),
        _ => (path, None),
    };
    let (namespace, name) = path.trim_matches('/').rsplit_once('/').unwrap_or(("", path.trim_matches('/')));
    let (namespace, name) = (decode(namespace)?, decode(name)?);
    (!name.is_empty()).then(|| PackageUrl::new(kind, &namespace, &name, version.as_deref().filter(|v| !v.is_empty())))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

fn encode(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~') {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl fmt::Display for PackageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pkg:{}/", self.kind)?;
        for part in self.namespace.split('/').filter(|part| !part.is_empty()) {
            encode(f, part)?;
            f.write_str("/")?;
        }
        encode(f, &self.name)?;
        if let Some(version) = &self.version {
            f.write_str("@")?;
            encode(f, version)?;
        }
        Ok(())
    }
}

impl Serialize for PackageUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn package_urls_are_read_and_written() {
        for (text, shown) in [
            ("pkg:cargo/serde@1.0.200", "pkg:cargo/serde@1.0.200"),
            ("pkg:npm/%40scope/name@2.0.0?arch=x#sub", "pkg:npm/%40scope/name@2.0.0"),
            ("pkg:npm/@scope/name", "pkg:npm/%40scope/name"),
            ("pkg:NPM/left-pad@1.0.0%2Bb", "pkg:npm/left-pad@1.0.0%2Bb"),
            ("pkg://pypi/Django@4.2", "pkg:pypi/Django@4.2"),
        ] {
            assert_eq!(text.parse::<PackageUrl>().unwrap().to_string(), shown);
        }
        for bad in ["", "cargo/x", "pkg:cargo", "pkg:cargo/", "pkg:/x", "pkg:c argo/x", "pkg:cargo/%zz", "pkg:cargo/%"]
        {
            assert!(bad.parse::<PackageUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn spellings_of_one_package_are_one_package() {
        let key = |text: &str| text.parse::<PackageUrl>().unwrap().key();
        assert_eq!(key("pkg:pypi/Zope.Interface@5"), key("pkg:pypi/zope-_interface@6"));
        assert_eq!(key("pkg:cargo/serde_json"), key("pkg:cargo/serde-json@1"));
        assert_eq!(key("pkg:npm/%40a/b"), PackageKey::new("npm", "@a/b"));
        assert_ne!(key("pkg:npm/a-b"), key("pkg:npm/a_b"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_the_same(kind in "[a-z]{1,8}", scope in "(@?[a-zé]{1,5})?", name in "[^/\\x00]{1,12}", version in prop::option::of("[0-9a-z+.@ ]{1,8}")) {
            let url = PackageUrl::new(&kind, &scope, &name, version.as_deref());
            prop_assert_eq!(url.to_string().parse::<PackageUrl>().unwrap(), url);
        }
    }
}
