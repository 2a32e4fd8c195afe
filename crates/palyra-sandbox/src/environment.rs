//! The environment of a process: built from nothing, never inherited.
//!
//! A few fixed variables, those of the daemon's that the operator named, then the caller's. The search path and what
//! the loader reads decide which program a name stands for, whatever the program is: with another one of those, the
//! program that was shown is not the program that runs. So a caller may set them only when the operator named them.
//! Every other variable is the caller's to set: rules see its name, and what a program does because of it, it does
//! behind the same walls.

use crate::error::SandboxError;
use crate::policy::{EgressEnforcementMode, SandboxProcessRunnerPolicy, SandboxTier};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Where programs are looked for unless the operator passes the daemon's own `PATH` on.
#[cfg(not(any(target_os = "macos", windows)))]
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
#[cfg(target_os = "macos")]
const DEFAULT_PATH: &str = "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Variables without which Windows programs do not start, such as those that tell where the system is; no secrets.
#[cfg(windows)]
const SYSTEM_VARIABLES: &[&str] = &[
    "SystemRoot",
    "SystemDrive",
    "windir",
    "ComSpec",
    "PATHEXT",
    "ProgramFiles",
    "ProgramFiles(x86)",
    "ProgramW6432",
    "CommonProgramFiles",
    "NUMBER_OF_PROCESSORS",
    "PROCESSOR_ARCHITECTURE",
    "OS",
];

/// What decides which program runs, whatever it is: by name, and by beginning.
const LOADER_NAMES: &[&str] = &["PATH", "PATHEXT", "GLIBC_TUNABLES"];
const LOADER_BEGINNINGS: &[&str] = &["LD_", "DYLD_"];

/// Whether a variable decides which program runs.
fn changes_program(name: &str) -> bool {
    let begins = |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| same_name(start, prefix));
    LOADER_NAMES.iter().any(|known| same_name(known, name)) || LOADER_BEGINNINGS.iter().any(begins)
}

/// Whether two names are the same variable: Windows does not look at their case.
fn same_name(a: &str, b: &str) -> bool {
    if cfg!(windows) { a.eq_ignore_ascii_case(b) } else { a == b }
}

/// Variables that lead programs to the proxy.
const PROXY_VARIABLES: &[&str] =
    &["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy", "NODE_USE_ENV_PROXY"];
/// Exceptions from it. A caller may set them.
const PROXY_EXCEPTIONS: &[&str] = &["NO_PROXY", "no_proxy"];
/// What is not asked of the proxy: the loopback device inside belongs to the run, and test suites talk to servers of
/// their own there.
const OWN_SERVERS: &str = "localhost,127.0.0.1,::1";

/// How a program inside finds the proxy on `port`.
fn proxy_value(name: &str, port: u16) -> String {
    match name {
        // Without it node's own `fetch` looks at none of the others.
        "NODE_USE_ENV_PROXY" => "1".to_owned(),
        // `ALL_PROXY` too: the port speaks SOCKS as well, but many clients refuse to start when they are told to and
        // cannot.
        _ => format!("http://127.0.0.1:{port}"),
    }
}

/// The search path inside the sandbox: the daemon's when the operator passes it on, the system's otherwise.
pub(crate) fn search_path(policy: &SandboxProcessRunnerPolicy) -> String {
    if policy.env_allowlist.iter().any(|name| same_name(name, "PATH"))
        && let Ok(path) = std::env::var("PATH")
    {
        return path;
    }
    #[cfg(windows)]
    return std::env::var("SystemRoot").map_or_else(|_| String::new(), |root| format!("{root}\\System32;{root}"));
    #[cfg(not(windows))]
    {
        let own = policy.home.search.iter().filter(|_| policy.tier == SandboxTier::C);
        let own = own.filter_map(|directory| directory.to_str()).filter(|directory| !directory.contains(':'));
        let own: Vec<&str> =
            own.filter(|directory| !DEFAULT_PATH.split(':').any(|known| known == *directory)).collect();
        own.into_iter().chain([DEFAULT_PATH]).collect::<Vec<_>>().join(":")
    }
}

/// Where a run's home directory is.
pub(crate) fn home<'p>(policy: &'p SandboxProcessRunnerPolicy, temporary: &'p Path) -> &'p Path {
    policy.home.path.as_deref().filter(|_| policy.tier == SandboxTier::C).unwrap_or(temporary)
}

/// The whole environment of a process whose private directory is `temporary`; with the port of its proxy, if it has
/// one.
pub(crate) fn compose(
    policy: &SandboxProcessRunnerPolicy,
    requested: &BTreeMap<String, String>,
    temporary: &Path,
    proxy: Option<u16>,
) -> Result<BTreeMap<OsString, OsString>, SandboxError> {
    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    let mut set = |name: &str, value: &OsStr| {
        if cfg!(windows) {
            // One variable has one name there, however it is written.
            env.retain(|known: &OsString, _| !known.eq_ignore_ascii_case(name));
        }
        env.insert(name.into(), value.to_owned());
    };
    set("PATH", search_path(policy).as_ref());
    set("HOME", home(policy, temporary).as_os_str());
    set("TMPDIR", temporary.as_os_str());
    set("LANG", OsStr::new("C.UTF-8"));
    #[cfg(windows)]
    {
        for name in ["TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA"] {
            set(name, temporary.as_os_str());
        }
        for name in SYSTEM_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                set(name, &value);
            }
        }
    }
    if policy.tier == SandboxTier::C {
        policy.home.variables.iter().for_each(|(name, value)| set(name, value.as_ref()));
    }
    for name in &policy.env_allowlist {
        if let Some(value) = std::env::var_os(name) {
            set(name, &value);
        }
    }
    if let Some(port) = proxy {
        for name in PROXY_VARIABLES {
            set(name, proxy_value(name, port).as_ref());
        }
        // Where a rule opens a port of the host's own loopback device, the proxy is the way to it.
        let exceptions = if policy.egress_rules.name_loopback() { "" } else { OWN_SERVERS };
        for name in PROXY_EXCEPTIONS {
            set(name, OsStr::new(exceptions));
        }
    }
    check_requested(policy, requested, proxy.is_some())?;
    for (name, value) in requested {
        set(name, OsStr::new(value));
    }
    Ok(env)
}

/// Whether runs under this policy have a proxy: their only way out of a network of their own.
pub(crate) fn has_proxy(policy: &SandboxProcessRunnerPolicy) -> bool {
    let strict = policy.tier == SandboxTier::C && policy.egress == EgressEnforcementMode::Strict;
    strict && policy.egress_rules.need_a_proxy()
}

/// Checks the variables that a caller asks for, as running the command would: so that what cannot run is refused before
/// anybody is asked about it.
///
/// # Errors
/// When a variable is not one, or is not the caller's to set.
pub fn check_environment(
    policy: &SandboxProcessRunnerPolicy,
    requested: &BTreeMap<String, String>,
) -> Result<(), SandboxError> {
    check_requested(policy, requested, has_proxy(policy))
}

fn check_requested(
    policy: &SandboxProcessRunnerPolicy,
    requested: &BTreeMap<String, String>,
    proxied: bool,
) -> Result<(), SandboxError> {
    for (name, value) in requested {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(SandboxError::NulByte { what: format!("environment variable {}", name.escape_default()) });
        }
        let named_by_operator = policy.env_allowlist.iter().any(|allowed| same_name(allowed, name));
        if changes_program(name) && !named_by_operator {
            return Err(SandboxError::EnvironmentRefused { name: name.clone() });
        }
        if proxied && PROXY_VARIABLES.contains(&name.as_str()) {
            return Err(SandboxError::ProxyVariable { name: name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::testing::policy;

    #[test]
    fn nothing_is_inherited_but_what_was_named() {
        let env = compose(&policy("/w"), &BTreeMap::new(), Path::new("/t"), None).unwrap();
        let names: Vec<_> = env.keys().filter_map(|k| k.to_str()).collect();
        assert_eq!(names, ["HOME", "LANG", "PATH", "TMPDIR"]);
        assert_eq!(env[OsStr::new("HOME")], "/t");
    }

    #[test]
    fn variables_that_exchange_the_program_need_the_operator() {
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES"] {
            let requested = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            let refused = compose(&policy("/w"), &requested, Path::new("/t"), None).unwrap_err();
            assert_eq!(refused.code(), "sandbox_environment_refused", "{name}");
            let mut named = policy("/w");
            named.env_allowlist.push(name.to_owned());
            assert!(compose(&named, &requested, Path::new("/t"), None).is_ok(), "{name}");
        }
        for name in ["PYTHONPATH", "HOME", "GIT_PAGER", "NODE_OPTIONS", "PATHS", "é"] {
            let requested = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            assert!(compose(&policy("/w"), &requested, Path::new("/t"), None).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_a_run_would_refuse_is_refused_beforehand() {
        let mut policy = policy("/w");
        let set = |name: &str| BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        let refused = |policy: &SandboxProcessRunnerPolicy, name: &str| {
            check_environment(policy, &set(name)).err().map(|refused| refused.code())
        };
        for name in ["LD_PRELOAD", "PATH"] {
            assert_eq!(refused(&policy, name), Some("sandbox_environment_refused"), "{name}");
        }
        assert_eq!(refused(&policy, "GREETING"), None);
        policy.tier = SandboxTier::C;
        policy.egress = EgressEnforcementMode::Strict;
        assert_eq!(refused(&policy, "HTTP_PROXY"), None);
        policy.egress_rules =
            std::sync::Arc::new(palyra_egress::EgressRules::new(vec!["example.org".parse().unwrap()]));
        assert_eq!(refused(&policy, "HTTP_PROXY"), Some("sandbox_proxy_variable"));
    }

    #[test]
    fn with_a_proxy_programs_are_led_to_it_and_a_caller_cannot_lead_them_away() {
        let env = compose(&policy("/w"), &BTreeMap::new(), Path::new("/t"), Some(3128)).unwrap();
        for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(env[OsStr::new(name)], "http://127.0.0.1:3128");
        }
        let set = |name: &str| BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        for name in PROXY_VARIABLES {
            let refused = compose(&policy("/w"), &set(name), Path::new("/t"), Some(3128)).unwrap_err();
            assert_eq!(refused.code(), "sandbox_proxy_variable", "{name}");
            assert!(compose(&policy("/w"), &set(name), Path::new("/t"), None).is_ok());
        }
        assert!(compose(&policy("/w"), &set("NO_PROXY"), Path::new("/t"), Some(3128)).is_ok());
    }

    #[test]
    fn a_runs_own_servers_are_not_asked_of_the_proxy_unless_a_rule_opens_the_hosts() {
        let mut policy = policy("/w");
        let mut exceptions = |rule: &str| {
            let rules = palyra_egress::EgressRules::new(vec![rule.parse().unwrap()]);
            policy.egress_rules = std::sync::Arc::new(rules);
            let env = compose(&policy, &BTreeMap::new(), Path::new("/t"), Some(3128)).unwrap();
            assert_eq!(env[OsStr::new("NO_PROXY")], env[OsStr::new("no_proxy")]);
            env[OsStr::new("NO_PROXY")].to_string_lossy().into_owned()
        };
        for rule in ["example.org", "10.0.0.1:80", "GET http://example.org/x"] {
            assert_eq!(exceptions(rule), "localhost,127.0.0.1,::1", "{rule}");
        }
        for rule in ["localhost:80", "127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "GET http://localhost:80/x"] {
            assert_eq!(exceptions(rule), "", "{rule}");
        }
    }

    #[test]
    fn malformed_names_are_refused() {
        for name in ["", "A=B", "A\0"] {
            let requested = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            assert!(compose(&policy("/w"), &requested, Path::new("/t"), None).is_err(), "{name:?}");
        }
    }
}
