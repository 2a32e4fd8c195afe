//! The file itself: what may be one, and what is said about a word in it that nobody knows.

use super::error::ConfigError;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The largest configuration.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text of a regular file: a pipe would be waited for, and a device may have no end.
pub(super) fn text_of(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(nonblocking).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(ConfigError::NotAFile { path: path.to_owned(), what: "not a regular file" });
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::NotAFile { path: path.to_owned(), what: "too large" });
    }
    Ok(text)
}

/// Adds the nearest known name to serde's list of what it expected.
pub(super) fn with_nearest(message: &str) -> String {
    let message = message.trim();
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return message.to_owned();
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(unknown) = quoted.next() else { return message.to_owned() };
    let what = if message.starts_with("unknown field") { "key" } else { "value" };
    format!("there is no {what} `{unknown}`{}", did_you_mean(unknown, quoted))
}

/// Names the nearest of what there is, if something is near; otherwise all of it.
fn did_you_mean<'k>(given: &str, known: impl Iterator<Item = &'k str>) -> String {
    let known: Vec<_> = known.collect();
    let nearest = known.iter().map(|known| (strsim::damerau_levenshtein(given, known), known)).min();
    match nearest {
        // A third of its letters may be wrong; more is another word.
        Some((wrong, nearest)) if wrong <= given.chars().count().div_ceil(3) => format!("; did you mean `{nearest}`?"),
        Some(_) => format!("; there are {}", known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::RawConfig;
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn only_a_file_of_some_size_is_a_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        std::fs::write(at("large"), "#".repeat((1 << 20) + 1)).unwrap();
        for path in [at("pipe"), at("large"), dir.path().to_owned(), PathBuf::from("/dev/zero")] {
            for required in [true, false] {
                let refused = RawConfig::read(&path, required).unwrap_err();
                assert!(matches!(refused, ConfigError::NotAFile { .. }), "{refused}");
            }
        }
        assert!(matches!(RawConfig::read(&at("nowhere"), true), Err(ConfigError::Unreadable { .. })));
        assert!(RawConfig::read(&at("nowhere"), false).is_ok());
    }
}
