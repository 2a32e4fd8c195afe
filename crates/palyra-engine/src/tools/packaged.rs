//! What a script of an installed package has of what other programs get: no further directories, no variables of the
//! daemon's but settings, and no more memory than the package was granted.

use super::containment;
use crate::config::ToolCallConfig;
use palyra_sandbox::{Package, SandboxProcessRunnerPolicy, WithheldFile};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A package whose script is to run.
#[derive(Debug, Clone)]
pub(crate) struct Packaged {
    /// The parts of the workspace that it was granted; its files are read when it runs.
    pub(crate) parts: Package,
    /// How much memory it was granted.
    pub(crate) memory_bytes: u64,
}

impl Packaged {
    /// The policy of its runs.
    pub(super) fn policy(&self, usual: &SandboxProcessRunnerPolicy) -> SandboxProcessRunnerPolicy {
        let mut policy = usual.clone();
        policy.read_roots.clear();
        policy.write_roots.clear();
        policy.env_allowlist.retain(|name| containment::is_setting(name));
        policy.memory_limit_bytes = policy.memory_limit_bytes.min(self.memory_bytes);
        policy
    }

    /// Keeps those of the withheld files that its runs would see: the ones in parts of the workspace that it was granted.
    pub(super) fn keep_seen(&self, withheld: &mut Vec<WithheldFile>, root: &Path) {
        let parts = self.parts.read.iter().chain(&self.parts.write);
        let parts: Vec<PathBuf> = parts.map(|part| root.join(part).components().collect()).collect();
        withheld.retain(|file| parts.iter().any(|part| file.path.starts_with(part)));
    }
}

/// The configured policy, or what a package has of it.
pub(super) fn policy_for<'c>(
    config: &'c ToolCallConfig,
    package: Option<&Packaged>,
) -> Cow<'c, SandboxProcessRunnerPolicy> {
    match package {
        Some(package) => Cow::Owned(package.policy(&config.process_runner)),
        None => Cow::Borrowed(&config.process_runner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_gets_no_more_than_it_was_granted() {
        let mut usual = crate::tools::tests::config(Path::new("/"), &[]).process_runner;
        usual.read_roots = vec!["/srv".into()];
        usual.write_roots = vec!["/data".into()];
        usual.env_allowlist = vec!["LANG".into(), "API_KEY".into()];
        let packaged = |memory_bytes| Packaged { parts: Package::default(), memory_bytes };
        let policy = packaged(1).policy(&usual);
        assert!(policy.read_roots.is_empty() && policy.write_roots.is_empty());
        assert_eq!((policy.env_allowlist, policy.memory_limit_bytes), (vec!["LANG".to_owned()], 1));
        assert_eq!(packaged(u64::MAX).policy(&usual).memory_limit_bytes, usual.memory_limit_bytes);
    }
}
