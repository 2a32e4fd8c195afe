//! The whole suite again as an ordinary user: a daemon that is not root has other means, and must hold the same.

use palyra_containment::{ORDINARY, TAKE_ROOT, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn everything_holds_for_an_ordinary_user_too() {
    if !is_root() {
        // Then every other test here is that test.
        return;
    }
    let dir = tempfile::Builder::new().prefix("palyra-ordinary-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let test = dir.path().join("suite");
    fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
    fs::set_permissions(&test, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv")
        .args([
            "--reuid",
            ORDINARY,
            "--regid",
            ORDINARY,
            "--clear-groups",
            "env",
            "-i",
            "PATH=/usr/bin:/bin",
            "HOME=/nonexistent",
        ])
        .arg(format!("TMPDIR={}", dir.path().display()))
        .arg(&test)
        // One after the other: without a control group processes are counted by user, and a fork bomb would starve its
        // neighbours.
        .args(["--test-threads", "1", "--skip", "cargo_builds"])
        .args(TAKE_ROOT.iter().flat_map(|name| ["--skip", name]))
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test result: ok."), "{said}");
    // Those that only an ordinary user can try.
    assert!(said.contains("without_a_namespace_attributes_cannot_be_changed_by_path_at_all ... ok"), "{said}");
}
