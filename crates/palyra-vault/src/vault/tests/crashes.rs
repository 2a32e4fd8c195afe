//! SIGKILL at every point of every change: nothing is lost, nothing is half.
//!
//! A test starts itself again as a child that sends itself SIGKILL after a number of crash points. Its parent then
//! looks at what was left, for one number after the other, until a child gets through.

use super::*;
use crate::crash::counting;
use crate::slots::PassphraseCost;
use crate::transfer::ImportConflict;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

const SCENE: &str = "PALYRA_VAULT_TEST_SCENE";
const SECRETS: usize = 4;

/// What a child does between being started and its end.
fn act(scene: &str, fixture: &Fixture) {
    match scene {
        "create" => drop(fixture.create()),
        "put-new" => drop(fixture.open().put(&secret("new"), &value("new"), PutOptions::default()).unwrap()),
        "put-over" => drop(fixture.open().put(&secret("s0"), &value("new"), PutOptions::default()).unwrap()),
        "delete" => fixture.open().delete(&secret("s0")).unwrap(),
        "rekey" => drop(fixture.open().rekey(&fixture.sources()).unwrap()),
        "migrate" => drop(fixture.open().migrate(BackendKind::SecretService).unwrap()),
        "slots" => drop(fixture.open().add_slot("", NewSlot::KeyFile(fixture.path().join("other.key"))).unwrap()),
        "import" => {
            let mut file = std::fs::File::open(fixture.root.join("export")).unwrap();
            fixture.open().import(&mut file, &value("pass"), ImportConflict::Skip).unwrap();
        }
        other => panic!("no scene {other}"),
    }
}

/// The child's part; nothing when the tests are run as usual.
#[test]
fn child() {
    let Ok(scene) = std::env::var(SCENE) else { return };
    let mut words = scene.splitn(3, ' ');
    let (scene, count) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
    let fixture = Fixture::over(Path::new(words.next().unwrap()));
    if scene == "puts" {
        return put_forever(&fixture);
    }
    if scene == "hold" {
        return hold(&fixture);
    }
    counting::end_after(count);
    act(scene, &fixture);
    counting::end_after(-1);
}

fn child_command(scene: &str, count: usize, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "vault::tests::crashes::child", "--nocapture", "--test-threads=1"]);
    command.env(SCENE, format!("{scene} {count} {}", directory.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Ends a child at every point of a scene and looks at what is left.
fn at_every_point(scene: &str, prepare: impl Fn(&Fixture), look: impl Fn(&Fixture, usize)) {
    for count in 0.. {
        let fixture = Fixture::new();
        prepare(&fixture);
        let output = child_command(scene, count, &fixture.root).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        look(&fixture, count);
        if output.status.success() {
            assert!(count >= 4, "{scene} has only {count} points");
            return;
        }
        assert_eq!(output.status.signal(), Some(9), "{scene} at {count}: {said}");
    }
}

/// A closed vault with some secrets.
fn stored(fixture: &Fixture) {
    let vault = fixture.create();
    for n in 0..SECRETS {
        put(&vault, &format!("s{n}"), &format!("value {n}"));
    }
}

/// Every secret but `s0` is as it was.
fn others_are_whole(vault: &Vault, at: usize) {
    for n in 1..SECRETS {
        assert_eq!(shown(vault, &format!("s{n}")), format!("value {n}"), "at {at}");
    }
    assert!(vault.list(None).unwrap().damaged.is_empty(), "at {at}");
}

fn nothing_temporary(fixture: &Fixture) {
    assert_eq!(std::fs::read_dir(fixture.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_put_that_is_cut_off_leaves_the_old_value_or_the_new() {
    at_every_point("put-over", stored, |fixture, at| {
        let vault = fixture.open();
        assert!(["value 0", "new"].contains(&shown(&vault, "s0").as_str()), "at {at}");
        others_are_whole(&vault, at);
        nothing_temporary(fixture);
        put(&vault, "s0", "after");
        assert_eq!(shown(&vault, "s0"), "after");
    });
    at_every_point("put-new", stored, |fixture, at| {
        let vault = fixture.open();
        assert!(["secret_not_found", "new"].contains(&shown(&vault, "new").as_str()), "at {at}");
        others_are_whole(&vault, at);
    });
}

#[test]
fn a_delete_that_is_cut_off_leaves_the_secret_or_nothing() {
    let bound = |fixture: &Fixture| {
        stored(fixture);
        let new = crate::binding::NewBinding {
            secret: secret("s0"),
            hosts: vec!["api.example.com".parse().unwrap()],
            header: "X: {}".parse().unwrap(),
            program: None,
            methods: Vec::new(),
            path: None,
        };
        fixture.open().bind(new).unwrap();
    };
    at_every_point("delete", bound, |fixture, at| {
        let vault = fixture.open();
        let left = shown(&vault, "s0");
        assert!(["value 0", "secret_not_found"].contains(&left.as_str()), "at {at}");
        // A binding never outlives its secret.
        assert!(left == "value 0" || vault.bindings().all().is_empty(), "at {at}");
        others_are_whole(&vault, at);
    });
}

#[test]
fn a_rekey_that_is_cut_off_loses_nothing_and_goes_on() {
    at_every_point("rekey", stored, |fixture, at| {
        let vault = fixture.open();
        let readable = |vault: &Vault| {
            assert_eq!(shown(vault, "s0"), "value 0", "at {at}");
            others_are_whole(vault, at);
        };
        readable(&vault);
        // Life goes on before anybody resumes.
        put(&vault, "more", "value");
        assert!(vault.resume_rekey().unwrap().is_complete());
        assert!(vault.status().pending.is_empty());
        readable(&vault);
        drop(vault);
        let vault = fixture.open();
        readable(&vault);
        assert_eq!(shown(&vault, "more"), "value");
        nothing_temporary(fixture);
    });
}

#[test]
fn a_move_that_is_cut_off_has_every_secret_somewhere() {
    at_every_point("migrate", stored, |fixture, at| {
        let vault = fixture.open();
        assert_eq!(shown(&vault, "s0"), "value 0", "at {at}");
        others_are_whole(&vault, at);
        vault.migrate(BackendKind::SecretService).unwrap();
        assert!(vault.status().pending.is_empty());
        assert_eq!(shown(&vault, "s0"), "value 0", "at {at}");
        others_are_whole(&vault, at);
        assert!(FileBackend::open(&fixture.path()).unwrap().list().unwrap().is_empty());
    });
}

#[test]
fn a_slot_that_is_cut_off_is_there_or_not() {
    at_every_point("slots", stored, |fixture, at| {
        let vault = fixture.open();
        others_are_whole(&vault, at);
        let slots = vault.slots().len();
        drop(vault);
        let by_other = KeySources::none().key_file(fixture.path().join("other.key"));
        let opened = code(Vault::open(&fixture.path(), &by_other, fixture.surroundings()));
        assert_eq!(opened == "ok", slots == 2, "at {at}: {opened}");
    });
}

#[test]
fn a_vault_whose_making_is_cut_off_can_be_made() {
    at_every_point(
        "create",
        |_| {},
        |fixture, at| {
            let vault = match fixture.try_open() {
                Ok(vault) => vault,
                Err(VaultError::NoVault { .. }) => fixture.create(),
                Err(error) => panic!("at {at}: {error}"),
            };
            put(&vault, "a", "value");
            assert_eq!(shown(&vault, "a"), "value");
        },
    );
}

#[test]
fn an_import_that_is_cut_off_goes_on() {
    let source = Fixture::new();
    stored(&source);
    let mut file = Vec::new();
    source.open().export(&mut file, &value("pass"), PassphraseCost::LEAST).unwrap();
    let prepare = |fixture: &Fixture| {
        drop(fixture.create());
        std::fs::write(fixture.root.join("export"), &file).unwrap();
    };
    at_every_point("import", prepare, |fixture, at| {
        let vault = fixture.open();
        assert!(vault.list(None).unwrap().damaged.is_empty(), "at {at}");
        let report = vault.import(&mut std::io::Cursor::new(&file), &value("pass"), ImportConflict::Skip).unwrap();
        assert_eq!(report.added + report.skipped, SECRETS, "at {at}");
        others_are_whole(&vault, at);
    });
}

/// Puts numbers under one name, rekeys now and then, and says each number once its put has returned.
fn put_forever(fixture: &Fixture) {
    let vault = fixture.open();
    let mut out = std::io::stderr();
    for n in 1_u64.. {
        put(&vault, "counter", &n.to_string());
        if n % 5 == 0 {
            vault.rekey(&fixture.sources()).unwrap();
        }
        writeln!(out, "{n}").unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let fixture = Fixture::new();
    stored(&fixture);
    put(&fixture.open(), "counter", "0");
    for round in 0..12_u64 {
        let mut child = child_command("puts", 0, &fixture.root).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut acknowledged = 0;
        // The child goes on while it is being killed, so where it is hit is a matter of chance.
        for line in lines.take(1 + (round * 7 % 13) as usize) {
            acknowledged = line.unwrap().parse::<u64>().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let vault = fixture.open();
        let found: u64 = shown(&vault, "counter").parse().unwrap();
        assert!(found >= acknowledged, "{found} after {acknowledged} was acknowledged");
        vault.resume_rekey().unwrap();
        others_are_whole(&vault, round as usize);
    }
}

/// Holds the vault until its input ends.
fn hold(fixture: &Fixture) {
    let vault = fixture.open();
    writeln!(std::io::stderr(), "held").unwrap();
    drop(std::io::stdin().lines().next());
    drop(vault);
}

#[test]
fn two_processes_do_not_have_a_vault_at_once() {
    let fixture = Fixture::new();
    stored(&fixture);
    let mut command = child_command("hold", 0, &fixture.root);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "held");
    assert_eq!(code(fixture.try_open()), "vault_in_use");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    others_are_whole(&fixture.open(), 0);
}
