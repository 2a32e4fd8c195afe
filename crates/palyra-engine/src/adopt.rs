//! Adopting a file of rules: written into the operator's directory after it was tried, and then read like any other change.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::reload::Reloaded;
use palyra_policy::{PolicyAction, PolicyFile, PolicyResource};
use palyra_protocol::{Digest, Problem};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The longest name of a file.
const MAX_NAME: usize = 64;

impl Engine {
    /// Whether the peer could adopt a file of rules. Nothing is recorded.
    #[must_use]
    pub fn may_adopt_policy(&self, peer: &VerifiedPeer) -> bool {
        self.policy_directory().is_some() && self.may(peer, PolicyAction::PolicyReload, PolicyResource::PolicySet)
    }

    /// Puts a file into the operator's directory and reads the rules anew. The directory as it would be is checked
    /// first, with every case; what may not run is not written.
    ///
    /// # Errors
    /// The peer may not, no directory is configured, the set may not run, or the disk fails.
    pub async fn adopt_policy(&self, peer: &VerifiedPeer, file: PolicyFile) -> Result<Reloaded, EngineError> {
        self.authorize(peer, PolicyAction::PolicyReload, PolicyResource::PolicySet, None)?;
        let directory = self.policy_directory().ok_or_else(|| {
            let hint = "write `policy_dir` in the configuration";
            let problem = Problem::new("policy_no_directory", "no directory for rules is configured", hint);
            EngineError::new(ErrorKind::Conflict, problem)
        })?;
        if !is_name(&file.name) {
            let message = "a file is called NAME.cedar or cases/NAME.toml, of letters, digits, `-` and `_`";
            return Err(EngineError::invalid("policy_file_name", message, "choose another name"));
        }
        let mut files = self.policy_files(peer).await?;
        files.retain(|known| known.name != file.name);
        files.push(file.clone());
        self.compare_policy(peer, files).await?;
        let (path, bytes) = (directory.join(&file.name), file.bytes);
        let digest = Digest::of(&bytes);
        let written = tokio::task::spawn_blocking(move || write(&path, &bytes));
        let written = written.await.map_err(|_| EngineError::internal("writing a file of rules was cut off"))?;
        written.map_err(|error| {
            let message = format!("`{}` cannot be written: {error}", file.name);
            EngineError::new(ErrorKind::Unavailable, Problem::new("policy_disk", message, "see the directory's rights"))
        })?;
        tracing::info!(by = %peer.effective(), file = file.name, sha256 = %digest, "a file of rules was adopted");
        // Asked above: the rules that were adopted may be against it by now.
        self.reload(peer.effective().clone()).await
    }
}

/// A file that rules are read from, and nothing else.
fn is_name(name: &str) -> bool {
    let plain = |stem: &str| {
        (1..=MAX_NAME).contains(&stem.len()) && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    match name.strip_prefix("cases/") {
        Some(case) => case.strip_suffix(".toml").is_some_and(plain),
        None => name.strip_suffix(".cedar").is_some_and(plain),
    }
}

/// Writes beside the file and renames, so that no half of it is ever read. A link in its place is replaced, not followed.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let Some(parent) = path.parent() else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    if !parent.exists() {
        std::fs::create_dir(parent)?;
    }
    let beside: PathBuf = parent.join(format!(".adopting-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // What is left of it is no file of rules.
        drop(std::fs::remove_file(&beside));
    }
    written?;
    std::fs::File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_rules_and_cases_have_names() {
        for good in ["console.cedar", "a-b_1.cedar", "cases/console.toml"] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "",
            ".cedar",
            "../x.cedar",
            "/x.cedar",
            "a/b.cedar",
            "cases/../x.toml",
            "x.toml",
            "groups.toml",
            "x.cedar ",
            "é.cedar",
        ] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "mine").unwrap();
        let link = dir.path().join("x.cedar");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        write(&link, b"rules").unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"mine");
        assert_eq!(std::fs::read(&link).unwrap(), b"rules");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
    }
}
