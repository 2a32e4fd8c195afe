//! The arguments that bubblewrap is started with.

use super::*;
use crate::linux::guards::guards;
use crate::testing::policy;
use tempfile::TempDir;

fn words(policy: &SandboxProcessRunnerPolicy) -> String {
    let roots = Roots::resolve(policy).unwrap();
    let blueprint = Blueprint {
        policy,
        roots: &roots,
        filled: &[],
        home: Path::new("/tmp"),
        binds: &[],
        parts: None,
        covers: &[],
        working_directory: &roots.workspace,
        environment: &BTreeMap::from([("A".into(), "b c".into())]),
        descriptors: Descriptors {
            seccomp: 10,
            status: 11,
            gate: None,
            files: &[(12, "/etc/passwd")],
            copies: &[],
            git: None,
            private: &[],
        },
    };
    let tops = super::super::opened_roots::Tops::open(&roots).unwrap();
    let words = arguments(&blueprint, &guards(&tops, &super::super::guarded_paths::all(&tops).unwrap()));
    words.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join("|")
}

#[test]
fn the_walls_are_there() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    policy.egress = EgressEnforcementMode::Strict;
    let line = words(&policy);
    for part in [
        "--unshare-user|--unshare-all|--disable-userns|--die-with-parent|--new-session|--cap-drop|ALL|--clearenv",
        "--proc|/proc|--ro-bind|/proc/sys|/proc/sys",
        "--setenv|A|b c",
        "--seccomp|10",
        "--remount-ro|/|",
        "--perms|0444|--file|12|/etc/passwd",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let workspace = dir.path().canonicalize().unwrap();
    assert!(line.contains(&format!("--bind|{0}|{0}", workspace.display())));
    for absent in ["--share-net", "|/etc|", "/etc/shadow", "|/home|", "|/root|", "|/var|", "|/run|"] {
        assert!(!line.contains(absent), "{absent} in {line}");
    }
}

#[test]
fn a_shared_network_is_a_choice() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    policy.egress = EgressEnforcementMode::None;
    assert!(words(&policy).contains("--share-net"));
}

#[test]
fn a_read_only_workspace_is_bound_read_only() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    policy.workspace_access = crate::policy::WorkspaceAccess::ReadOnly;
    assert!(words(&policy).contains(&format!("--ro-bind|{0}|{0}", dir.path().canonicalize().unwrap().display())));
}

#[test]
fn protected_paths_below_a_root_are_covered() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(root.join("state")).unwrap();
    let mut policy = policy(&root);
    policy.workspace_access = crate::policy::WorkspaceAccess::ReadOnly;
    policy.protected_paths = vec![root.join("state"), root.join("not-there")];
    let line = words(&policy);
    assert!(line.contains(&format!("--tmpfs|{}/state", root.display())), "{line}");
    assert!(!line.contains("not-there"));
}

#[test]
fn versions_and_status() {
    assert_eq!(parse_version("bubblewrap 0.8.0\n"), Some((0, 8)));
    assert_eq!(parse_version("bubblewrap"), None);
    assert_eq!(reported_exit("{ \"child-pid\": 12 }\n{ \"exit-code\": 7 }\n"), Some(7));
    assert_eq!(reported_exit("{ \"child-pid\": 12 }\n"), None);
}
