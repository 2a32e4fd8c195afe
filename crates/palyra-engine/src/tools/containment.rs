//! What would hold a process: from the configuration and what its call asks for, to facts for policy and rules for its
//! proxy.
//!
//! The network is the call's own: a run gets the hosts that its call asked for and nothing else of the operator's list.
//! What a command line seems to name plays no part in it.

use palyra_egress::EgressRules;
use palyra_protocol::{Containment, ContainmentTier, NetworkReach, WorkspaceUse};
use palyra_sandbox::{
    CapturedStream, EgressEnforcementMode, NamedHost, ProcessOutcome, SandboxProcessRunnerPolicy, SandboxTier,
};
use std::sync::Arc;

/// Variables that tell programs about the machine and the person's habits, and hold no secret. Any other variable of
/// the daemon's that is passed on counts as one that may.
const SETTINGS: &[&str] = &[
    "PATH",
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "EDITOR",
    "PAGER",
    "JAVA_HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "GOMODCACHE",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CI",
    "NODE_ENV",
];

/// What a run may reach, and what holds it.
#[derive(Debug)]
pub(super) struct Walls {
    pub(super) facts: Containment,
    /// The rules of the run's own proxy.
    pub(super) egress_rules: Arc<EgressRules>,
}

/// The walls around a run that asked for these hosts.
pub(super) fn walls(policy: &SandboxProcessRunnerPolicy, asked: &[String], workspace: WorkspaceUse) -> Walls {
    let strict = policy.tier == SandboxTier::C && policy.egress == EgressEnforcementMode::Strict;
    let named: Vec<NamedHost> = asked.iter().map(|text| NamedHost::parse(text)).collect();
    let egress_rules = if strict {
        let hosts: Vec<_> = named.iter().filter_map(|named| Some((named.known()?, named.port))).collect();
        Arc::new(policy.egress_rules.narrowed_to(&hosts))
    } else {
        // Nothing enforces the list here, so there is nothing to narrow: the calls are compared with all of it
        // beforehand.
        Arc::clone(&policy.egress_rules)
    };
    let network = match (strict, named.is_empty()) {
        (false, _) => NetworkReach::Host,
        (true, true) => NetworkReach::None,
        (true, false) => NetworkReach::Filtered,
    };
    let facts = Containment {
        tier: match policy.tier {
            SandboxTier::B => ContainmentTier::B,
            SandboxTier::C => ContainmentTier::C,
        },
        network,
        hosts: sorted(&named),
        workspace,
        other_roots: !policy.read_roots.is_empty() || !policy.write_roots.is_empty(),
        reversible: workspace == WorkspaceUse::View && policy.write_roots.is_empty(),
        secrets: policy.env_allowlist.iter().any(|name| !is_setting(name)),
    };
    Walls { facts, egress_rules }
}

/// The walls that Palyra has unless an operator lowers them: what cases beside a policy are decided by.
pub(super) fn usual(asked: &[String], workspace: WorkspaceUse) -> Containment {
    let named: Vec<NamedHost> = asked.iter().map(|text| NamedHost::parse(text)).collect();
    Containment {
        tier: ContainmentTier::C,
        network: if named.is_empty() { NetworkReach::None } else { NetworkReach::Filtered },
        hosts: sorted(&named),
        workspace,
        other_roots: false,
        reversible: workspace == WorkspaceUse::View,
        secrets: false,
    }
}

/// How programs say that they reached no host. None of them can know why.
const NO_HOST: &[&str] = &[
    "resolve host",
    "name resolution",
    "Name or service not known",
    "Network is unreachable",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ENETUNREACH",
    "dial tcp",
    "dns error",
    "failed to lookup address",
    "Failed to establish a new connection",
];

/// What a run that failed for want of a network can do, where it was Palyra that held the network back.
pub(super) fn held_back(outcome: &ProcessOutcome) -> Option<String> {
    let strict = outcome.enforcement.egress == EgressEnforcementMode::Strict;
    let complains = |stream: &CapturedStream| {
        let text = String::from_utf8_lossy(&stream.bytes);
        NO_HOST.iter().any(|words| text.contains(words))
    };
    let failed = !outcome.exit.success() && (complains(&outcome.stderr) || complains(&outcome.stdout));
    let hint = "Palyra gives a run no network but the hosts that its call asks for: propose it again with \
                `requested_egress_hosts`: [\"HOST:443\"]";
    (strict && outcome.egress.allowed == 0 && failed).then(|| hint.to_owned())
}

fn sorted(named: &[NamedHost]) -> Vec<String> {
    let mut hosts: Vec<String> = named.iter().map(ToString::to_string).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

pub(super) fn is_setting(name: &str) -> bool {
    SETTINGS.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_egress::UnlistedHosts;

    fn policy(list: &[&str]) -> SandboxProcessRunnerPolicy {
        SandboxProcessRunnerPolicy {
            tier: SandboxTier::C,
            egress: EgressEnforcementMode::Strict,
            egress_rules: Arc::new(EgressRules::new(list.iter().map(|rule| rule.parse().unwrap()).collect())),
            ..crate::tools::tests::config(std::path::Path::new("/"), &[]).process_runner
        }
    }

    fn hosts(asked: &[&str]) -> Vec<String> {
        asked.iter().map(|host| (*host).to_owned()).collect()
    }

    #[test]
    fn a_run_reaches_what_its_call_asked_for_and_nothing_else_of_the_list() {
        let policy = policy(&["a.test", "b.test"]);
        let none = walls(&policy, &[], WorkspaceUse::View);
        assert_eq!((none.facts.network, none.egress_rules.is_empty()), (NetworkReach::None, true));
        assert!(none.facts.contained());
        let one = walls(&policy, &hosts(&["b.test:443", "b.test:443"]), WorkspaceUse::View);
        assert_eq!((one.facts.network, one.facts.hosts), (NetworkReach::Filtered, hosts(&["b.test:443"])));
        let rules: Vec<_> = one.egress_rules.rules().iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["b.test:443", "b.test:443"]);
    }

    #[test]
    fn every_weaker_setting_is_a_weaker_fact() {
        let strong = policy(&[]);
        let contained = |policy: &SandboxProcessRunnerPolicy| walls(policy, &[], WorkspaceUse::View).facts.contained();
        assert!(contained(&strong));
        assert!(!walls(&strong, &[], WorkspaceUse::Live).facts.contained());
        let weaker: [fn(&mut SandboxProcessRunnerPolicy); 6] = [
            |policy| policy.tier = SandboxTier::B,
            |policy| policy.egress = EgressEnforcementMode::Preflight,
            |policy| policy.egress = EgressEnforcementMode::None,
            |policy| policy.write_roots = vec!["/srv".into()],
            |policy| policy.read_roots = vec!["/srv".into()],
            |policy| policy.env_allowlist = vec!["PATH".into(), "API_KEY".into()],
        ];
        for weaken in weaker {
            let mut weak = strong.clone();
            weaken(&mut weak);
            assert!(!contained(&weak), "{weak:?}");
        }
        let tier_b = SandboxProcessRunnerPolicy { tier: SandboxTier::B, egress: EgressEnforcementMode::None, ..strong };
        assert_eq!(walls(&tier_b, &[], WorkspaceUse::View).facts.network, NetworkReach::Host);
    }

    #[test]
    fn an_unlisted_host_is_the_calls_alone() {
        let mut asking = policy(&["a.test"]);
        asking.egress_rules = Arc::new(EgressRules::default().with_unlisted(UnlistedHosts::Ask));
        let one = walls(&asking, &hosts(&["x.test"]), WorkspaceUse::View);
        let rules: Vec<_> = one.egress_rules.rules().iter().map(ToString::to_string).collect();
        assert_eq!((rules, one.facts.hosts), (hosts(&["x.test"]), hosts(&["x.test"])));
        assert!(walls(&asking, &[], WorkspaceUse::View).egress_rules.is_empty());
    }
}
