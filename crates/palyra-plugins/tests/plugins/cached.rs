//! Compiled code on the disk: used again if we wrote it, compiled again in every other case.

use crate::support::{bytes_of, call_of, guest, hostile, output};
use palyra_plugins::{
    CodeCacheSettings, CompileProgress, Doors, HostSettings, Plugin, PluginHost, RequestedCapabilities,
    RequestedLimits, WasmPluginRunnerPolicy,
};
use palyra_protocol::{Digest, Secret};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

fn host_with(directory: &Path, secret: &[u8]) -> PluginHost {
    let code_cache = Some(CodeCacheSettings { directory: directory.to_owned(), secret: Secret::new(secret.to_vec()) });
    PluginHost::new(HostSettings { code_cache, ..HostSettings::new(WasmPluginRunnerPolicy::default()) }).unwrap()
}

/// Loads the echo guest; says whether it was compiled.
fn load(host: &PluginHost, bytes: &Vec<u8>) -> (Arc<Plugin>, bool) {
    let mut compiled = false;
    let mut told = |progress| compiled |= matches!(progress, CompileProgress::Started { .. });
    let plugin = host.load(Digest::of(bytes), bytes, &mut told).unwrap();
    (plugin, compiled)
}

fn answers(host: &PluginHost, plugin: &Arc<Plugin>) {
    let grant = host.grant(&RequestedCapabilities::default());
    let execution = host.call(call_of(plugin, grant, "1", Doors::default())).unwrap().wait().unwrap();
    assert_eq!(output(&execution), "1");
}

/// The one file of compiled code.
fn code_file(directory: &Path) -> PathBuf {
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// Fills a cache, lets somebody meddle with its file, and says whether the next start compiled again.
fn compiled_after(meddle: impl FnOnce(&Path, &Path)) -> bool {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("code");
    let bytes = bytes_of(guest!("echo"));
    let host = host_with(&directory, b"ours");
    assert!(load(&host, &bytes).1);
    drop(host);
    meddle(&code_file(&directory), place.path());
    let host = host_with(&directory, b"ours");
    let (plugin, compiled) = load(&host, &bytes);
    answers(&host, &plugin);
    // Whatever was there, a good file is there now.
    let again = host_with(&directory, b"ours");
    assert!(!load(&again, &bytes).1);
    compiled
}

fn make_writable(file: &Path) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn code_is_compiled_once() {
    assert!(!compiled_after(|_, _| {}));
    let place = tempfile::tempdir().unwrap();
    let bytes = bytes_of(guest!("echo"));
    let host = host_with(&place.path().join("code"), b"ours");
    let (plugin, compiled) = load(&host, &bytes);
    let (same, again) = load(&host, &bytes);
    assert!(compiled && !again && Arc::ptr_eq(&plugin, &same));
}

#[test]
fn code_is_authenticated_before_it_is_mapped() {
    // Every part of the file: its beginning, its code, its seal.
    for place in [0.0, 0.1, 0.5, 0.9, 0.9999] {
        let flipped = compiled_after(|file, _| {
            make_writable(file);
            let mut bytes = std::fs::read(file).unwrap();
            let at = ((bytes.len() - 1) as f64 * place) as usize;
            bytes[at] ^= 0x40;
            std::fs::write(file, bytes).unwrap();
        });
        assert!(flipped, "{place}");
    }
    assert!(compiled_after(|file, _| {
        make_writable(file);
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }));
    assert!(compiled_after(|file, _| {
        make_writable(file);
        std::fs::write(file, b"").unwrap();
    }));
}

#[test]
fn code_of_another_component_is_not_taken() {
    assert!(compiled_after(|file, place| {
        let other = place.join("other");
        let host = host_with(&other, b"ours");
        load(&host, &bytes_of(hostile!("infinite-loop")));
        std::fs::rename(code_file(&other), file).unwrap();
    }));
}

#[test]
fn code_that_somebody_else_sealed_is_not_taken() {
    assert!(compiled_after(|file, place| {
        let theirs = place.join("theirs");
        load(&host_with(&theirs, b"theirs"), &bytes_of(guest!("echo")));
        std::fs::rename(code_file(&theirs), file).unwrap();
    }));
}

#[test]
fn links_are_not_followed() {
    assert!(compiled_after(|file, place| {
        let away = place.join("away");
        std::fs::rename(file, &away).unwrap();
        symlink(&away, file).unwrap();
    }));
    assert!(compiled_after(|file, place| std::fs::hard_link(file, place.join("second-name")).unwrap()));
    assert!(compiled_after(|file, _| {
        std::fs::remove_file(file).unwrap();
        symlink("/dev/zero", file).unwrap();
    }));
}

#[test]
fn a_file_that_others_may_touch_is_not_taken() {
    assert!(compiled_after(|file, _| {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }));
}

#[test]
fn a_file_of_another_user_is_not_taken() {
    // Giving a file away takes root, like the other tests that need another user.
    assert!(compiled_after(|file, _| std::os::unix::fs::chown(file, Some(65_534), None).unwrap()));
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("code");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    let bytes = bytes_of(guest!("echo"));
    let refused = host_with(&directory, b"ours").load(Digest::of(&bytes), &bytes, &mut |_| {}).unwrap_err();
    assert_eq!(refused.code(), "plugin_io");
    let link = place.path().join("link");
    symlink(place.path(), &link).unwrap();
    assert!(host_with(&link, b"ours").load(Digest::of(&bytes), &bytes, &mut |_| {}).is_err());
}

#[test]
fn code_that_is_no_longer_needed_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("code");
    let host = host_with(&directory, b"ours");
    let (echo, oracle) = (bytes_of(guest!("echo")), bytes_of(guest!("oracle")));
    load(&host, &echo);
    load(&host, &oracle);
    host.retain(&[Digest::of(&echo)]).unwrap();
    code_file(&directory);
    host.forget(Digest::of(&echo)).unwrap();
    host.forget(Digest::of(&echo)).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn progress_is_told() {
    let host = PluginHost::new(HostSettings::new(WasmPluginRunnerPolicy::default())).unwrap();
    let bytes = many_functions(500);
    let mut told = Vec::new();
    host.load(Digest::of(&bytes), &bytes, &mut |progress| told.push(progress)).unwrap();
    let (first, last) = (told.first().unwrap(), told.last().unwrap());
    assert!(matches!(first, CompileProgress::Started { functions: 500.., .. }), "{first:?}");
    assert!(matches!(last, CompileProgress::Writing { .. }), "{last:?}");
    let steps = told.iter().filter(|progress| matches!(progress, CompileProgress::Compiled { .. })).count();
    assert!(steps >= 7, "{told:?}");
}

/// The echo guest with so many functions more.
fn many_functions(count: usize) -> Vec<u8> {
    let mut text = guest!("echo").trim_end().strip_suffix(')').unwrap().to_owned();
    for number in 0..count {
        text.push_str(&format!("(func $f{number} (export \"f{number}\") (param i32) (result i32) (i32.mul (local.get 0) (i32.const {number})))\n"));
    }
    text.push(')');
    bytes_of(&text)
}

const CHILD: &str = "PALYRA_TEST_COMPILES_IN";

/// Not a test by itself: what the next one kills in the middle of compiling.
#[test]
#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn compiles_where_it_is_told() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let host = host_with(Path::new(&directory), b"ours");
    let bytes = many_functions(2_000);
    let mut told = |progress| {
        // The word is read by the parent, which kills this process while the compiler or the writer works.
        println!("{progress:?}");
    };
    host.load(Digest::of(&bytes), &bytes, &mut told).unwrap();
}

#[test]
fn a_daemon_that_is_killed_while_it_compiles_leaves_nothing_that_runs() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("code");
    for word in ["Started", "Compiled", "Writing"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "cached::compiles_where_it_is_told", "--nocapture"]);
        let mut child = child.env(CHILD, &directory).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.find(|line| line.as_ref().unwrap().contains(word));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said.is_some(), "{word}");
        // Either nothing is there under its name, or all of it: the seal says so.
        let host = host_with(&directory, b"ours");
        let bytes = bytes_of(guest!("echo"));
        let (plugin, _) = load(&host, &bytes);
        answers(&host, &plugin);
        let left =
            std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(left.into_iter().all(|name| name.ends_with(".code")), "{word}");
    }
}

#[test]
fn a_limit_changes_no_code() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("code");
    let bytes = bytes_of(guest!("echo"));
    load(&host_with(&directory, b"ours"), &bytes);
    let mut settings =
        HostSettings::new(WasmPluginRunnerPolicy { max_concurrent_calls: 3, ..WasmPluginRunnerPolicy::default() });
    settings.code_cache = Some(CodeCacheSettings { directory, secret: Secret::new(b"ours".to_vec()) });
    let host = PluginHost::new(settings).unwrap();
    let (plugin, compiled) = load(&host, &bytes);
    assert!(!compiled);
    let limits = RequestedLimits { fuel: Some(100_000), ..RequestedLimits::default() };
    let grant = host.grant(&RequestedCapabilities { limits, ..RequestedCapabilities::default() });
    let execution = host.call(call_of(&plugin, grant, "1", Doors::default())).unwrap().wait().unwrap();
    assert_eq!(output(&execution), "1");
}
