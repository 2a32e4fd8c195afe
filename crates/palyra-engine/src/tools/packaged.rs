//! What a script of an installed package has of what other programs get: no further directories, no variables of the
//! daemon's but settings, and no more memory than the package was granted.

use super::containment;
use palyra_sandbox::{Package, SandboxProcessRunnerPolicy};

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_gets_no_more_than_it_was_granted() {
        let mut usual = crate::tools::tests::config(std::path::Path::new("/"), &[]).process_runner;
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
