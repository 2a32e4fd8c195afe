//! Reviewed lists of paths: data files of patterns, to which operators add lines.
//!
//! One pattern a line, as the lists themselves explain. A path is compared as the most forgiving file system would
//! compare it, because a second spelling of a name must not lead past a list.

use crate::path::folded;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Patterns, and those that take paths out again.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathList {
    listed: GlobSet,
    excepted: GlobSet,
}

/// A line that is no pattern.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a pattern for paths: {reason}")]
pub struct PathListError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The lines of a list that are patterns.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

impl PathList {
    /// A list of these lines; `!` takes paths out.
    pub(crate) fn new<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, PathListError> {
        let (mut listed, mut excepted) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for line in lines {
            match line.strip_prefix('!') {
                Some(exception) => add(&mut excepted, exception)?,
                None => add(&mut listed, line)?,
            }
        }
        let build = |set: GlobSetBuilder| {
            set.build().map_err(|e| PathListError { pattern: "the whole list".to_owned(), reason: e.to_string() })
        };
        Ok(Self { listed: build(listed)?, excepted: build(excepted)? })
    }

    /// Whether a path in the form of [`comparable`] is on the list.
    pub(crate) fn lists(&self, comparable: &str) -> bool {
        self.listed.is_match(comparable) && !self.excepted.is_match(comparable)
    }

    /// Whether a path is taken out of it, whether it is on the list or not.
    pub(crate) fn excepts(&self, comparable: &str) -> bool {
        self.excepted.is_match(comparable)
    }

    /// Whether a pattern names a path, also one that is taken out again.
    pub(crate) fn names(&self, comparable: &str) -> bool {
        self.listed.is_match(comparable)
    }
}

/// A path as the most forgiving file system compares it.
pub(crate) fn comparable(path: &str) -> String {
    path.split('/').map(folded).collect::<Vec<_>>().join("/")
}

fn add(set: &mut GlobSetBuilder, line: &str) -> Result<(), PathListError> {
    let wrong = |reason: String| PathListError { pattern: line.to_owned(), reason };
    let (anchored, pattern) = line.strip_prefix('/').map_or((false, line), |rest| (true, rest));
    let (directory, pattern) = pattern.strip_suffix('/').map_or((false, pattern), |rest| (true, rest));
    if pattern.is_empty() || pattern.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(wrong("a pattern is a relative path of plain names".to_owned()));
    }
    let lower = pattern.to_lowercase();
    let mut places = vec![lower.clone()];
    if !anchored {
        places.push(format!("**/{lower}"));
    }
    for place in places {
        for form in [Some(place.clone()), directory.then(|| format!("{place}/**"))].into_iter().flatten() {
            let glob = GlobBuilder::new(&form).literal_separator(true).backslash_escape(true).build();
            set.add(glob.map_err(|e| wrong(e.kind().to_string()))?);
        }
    }
    Ok(())
}
