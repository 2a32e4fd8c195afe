//! Trust decisions, changes of the store, and the store's file.

use super::*;
use crate::testing::{at, key, sample, signed_by};
use palyra_protocol::Digest;
use std::fs;

const NOW: u64 = 1000;

fn request(allow_tofu: bool) -> VerifyRequest {
    VerifyRequest { purpose: VerifyPurpose::Install, allow_tofu, now: at(NOW) }
}

fn recheck() -> VerifyRequest {
    VerifyRequest { purpose: VerifyPurpose::Recheck, ..request(true) }
}

fn allow(number: u8) -> TrustChange {
    TrustChange::Allowlist { publisher: "acme".parse().unwrap(), public_key: key(number).public(), expires_at: None }
}

fn rotate(old: u8, new: u8) -> TrustChange {
    TrustChange::Rotate(RotationStatement::create(&"acme".parse().unwrap(), &key(old), &key(new)))
}

fn revoke(number: u8) -> TrustChange {
    TrustChange::Revoke { key_id: key(number).key_id(), reason: "stolen".to_owned() }
}

/// A store after these changes.
fn store(changes: &[TrustChange]) -> TrustDocument {
    TrustDocument::empty().changed(changes, at(NOW)).unwrap()
}

fn ask(
    trust: &TrustDocument,
    version: &str,
    number: u8,
    request: &VerifyRequest,
) -> Result<TrustDecision, &'static str> {
    let artifact = signed_by(version, number).artifact;
    verify_skill_artifact(&artifact, trust, request).map(|v| v.decision).map_err(|e| e.code())
}

/// Verifies and records what the answer depends on.
fn admit(trust: &TrustDocument, version: &str, number: u8) -> TrustDocument {
    let verification = verify_skill_artifact(&signed_by(version, number).artifact, trust, &request(true)).unwrap();
    trust.changed(&verification.changes, at(NOW)).unwrap()
}

#[test]
fn the_three_decisions() {
    let nobody = TrustDocument::empty();
    assert_eq!(ask(&nobody, "1.0.0", 1, &request(false)), Err("trust_publisher_unknown"));
    assert_eq!(ask(&nobody, "1.0.0", 1, &request(true)), Ok(TrustDecision::TofuNewlyPinned));
    let pinned = admit(&nobody, "1.0.0", 1);
    assert_eq!(ask(&pinned, "1.0.0", 1, &request(false)), Ok(TrustDecision::TofuPinned));
    let allowed = pinned.changed(&[allow(1)], at(NOW)).unwrap();
    assert_eq!(ask(&allowed, "1.0.0", 1, &request(false)), Ok(TrustDecision::Allowlisted));
    assert!(ask(&nobody, "1.0.0", 1, &recheck()).is_err(), "what is installed is never pinned by a second look");
}

#[test]
fn known_publisher_is_never_pinned_again() {
    let trust = admit(&TrustDocument::empty(), "1.0.0", 1);
    assert_eq!(ask(&trust, "1.1.0", 2, &request(true)), Err("trust_key_unknown"));
    let pin = TrustChange::Pin { publisher: "acme".parse().unwrap(), public_key: key(2).public() };
    assert_eq!(trust.changed(&[pin], at(NOW)).unwrap_err().code(), "trust_publisher_known");
    // Not even when every key of it was revoked.
    let revoked = trust.changed(&[revoke(1)], at(NOW)).unwrap();
    assert_eq!(ask(&revoked, "1.1.0", 2, &request(true)), Err("trust_key_unknown"));
}

#[test]
fn a_key_speaks_for_one_publisher() {
    let other =
        TrustChange::Allowlist { publisher: "other".parse().unwrap(), public_key: key(1).public(), expires_at: None };
    let trust = store(&[other]);
    assert_eq!(ask(&trust, "1.0.0", 1, &request(true)), Err("trust_key_foreign"));
    assert_eq!(trust.changed(&[allow(1)], at(NOW)).unwrap_err().code(), "trust_key_foreign");
}

#[test]
fn versions_never_go_back_and_never_change() {
    let trust = admit(&store(&[allow(1)]), "1.1.0", 1);
    assert_eq!(ask(&trust, "1.0.0", 1, &request(false)), Err("trust_downgrade"));
    assert_eq!(ask(&trust, "1.1.0", 1, &request(false)), Ok(TrustDecision::Allowlisted));
    assert_eq!(ask(&trust, "1.2.0", 1, &request(false)), Ok(TrustDecision::Allowlisted));
    // The same version with another content, by a key that is trusted.
    let mut source = crate::testing::source(&crate::testing::manifest("1.1.0"), crate::testing::component(&[]));
    source.files[1] = crate::archive::Entry::new("assets/note.txt", b"other".to_vec());
    let other = crate::package::build(&source, &key(1)).unwrap().artifact;
    let refused = verify_skill_artifact(&other, &trust, &request(false)).unwrap_err();
    assert_eq!(refused.code(), "trust_version_reused");
    // Also after the version was removed.
    let (skill_id, version) = ("acme.echo".parse().unwrap(), "1.1.0".parse().unwrap());
    let removed = trust.changed(&[TrustChange::Forget { skill_id, version }], at(NOW)).unwrap();
    assert_eq!(verify_skill_artifact(&other, &removed, &request(false)).unwrap_err().code(), "trust_version_reused");
    assert_eq!(ask(&removed, "1.0.0", 1, &request(false)), Err("trust_downgrade"));
    assert_eq!(ask(&removed, "1.1.0", 1, &recheck()), Err("trust_not_admitted"));
    let reset = TrustChange::ResetVersions { skill_id: "acme.echo".parse().unwrap() };
    assert!(ask(&removed.changed(&[reset], at(NOW)).unwrap(), "1.0.0", 1, &request(false)).is_ok());
}

#[test]
fn several_versions_stay_good_side_by_side() {
    let trust = admit(&admit(&store(&[allow(1)]), "1.0.0", 1), "2.0.0", 1);
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(ask(&trust, version, 1, &recheck()), Ok(TrustDecision::Allowlisted), "{version}");
    }
    assert_eq!(ask(&trust, "1.5.0", 1, &recheck()), Err("trust_not_admitted"));
}

#[test]
fn rotation_needs_both_keys_and_keeps_what_was_admitted() {
    let trust = admit(&store(&[allow(1)]), "1.0.0", 1);
    let rotated = trust.changed(&[rotate(1, 2)], at(NOW)).unwrap();
    assert_eq!(ask(&rotated, "1.1.0", 1, &request(true)), Err("trust_key_rotated"));
    assert_eq!(ask(&rotated, "1.1.0", 2, &request(false)), Ok(TrustDecision::Allowlisted));
    assert_eq!(ask(&rotated, "1.0.0", 1, &recheck()), Ok(TrustDecision::Allowlisted));
    for (change, code) in [
        (rotate(1, 3), "trust_key_inactive"),
        (rotate(3, 4), "trust_key_unknown"),
        (rotate(2, 1), "trust_key_known"),
        (rotate(2, 2), "rotation_same_key"),
    ] {
        assert_eq!(rotated.changed(&[change], at(NOW)).unwrap_err().code(), code);
    }
    let good = RotationStatement::create(&"acme".parse().unwrap(), &key(2), &key(3));
    for forged in [
        RotationStatement { old_signature: good.new_signature, ..good.clone() },
        RotationStatement { new_signature: good.old_signature, ..good.clone() },
        RotationStatement { new_key: key(4).public(), ..good.clone() },
        RotationStatement { publisher: "other".parse().unwrap(), ..good },
    ] {
        let refused = rotated.changed(&[TrustChange::Rotate(forged)], at(NOW)).unwrap_err();
        assert_eq!(refused.code(), "rotation_signature");
    }
    let bytes = serde_json::to_vec(&good).unwrap();
    assert_eq!(RotationStatement::parse(&bytes), Ok(good));
    assert_eq!(RotationStatement::parse(b"{}").unwrap_err().code(), "rotation_form");
}

#[test]
fn a_revoked_key_is_good_for_nothing_and_stays_on_record() {
    let trust = admit(&store(&[allow(1)]), "1.0.0", 1);
    let revoked = trust.changed(&[revoke(1)], at(NOW)).unwrap();
    for request in [request(true), recheck()] {
        assert_eq!(ask(&revoked, "1.0.0", 1, &request), Err("trust_key_revoked"));
    }
    let remove = TrustChange::Remove { key_id: key(1).key_id() };
    for change in [remove, allow(1), rotate(1, 2), revoke(1)] {
        assert_eq!(revoked.changed(&[change], at(NOW)).unwrap_err().code(), "trust_key_revoked");
    }
    let unsaid = TrustChange::Revoke { key_id: key(1).key_id(), reason: " ".to_owned() };
    assert_eq!(trust.changed(&[unsaid], at(NOW)).unwrap_err().code(), "trust_store_inconsistent");
    assert_eq!(trust.changed(&[revoke(9)], at(NOW)).unwrap_err().code(), "trust_key_unknown");
}

#[test]
fn a_key_expires_and_its_successor_with_it() {
    let until = |end| match allow(1) {
        TrustChange::Allowlist { publisher, public_key, .. } => {
            TrustChange::Allowlist { publisher, public_key, expires_at: Some(at(end)) }
        }
        other => other,
    };
    let trust = store(&[until(NOW + 1), rotate(1, 2)]);
    assert!(ask(&trust, "1.0.0", 2, &request(false)).is_ok());
    let later = VerifyRequest { now: at(NOW + 1), ..request(false) };
    assert_eq!(ask(&trust, "1.0.0", 2, &later), Err("trust_key_expired"));
    let expired = store(&[until(NOW)]);
    assert_eq!(expired.changed(&[rotate(1, 2)], at(NOW)).unwrap_err().code(), "trust_key_inactive");
    let removed = store(&[allow(1)]).changed(&[TrustChange::Remove { key_id: key(1).key_id() }], at(NOW)).unwrap();
    assert_eq!(ask(&removed, "1.0.0", 1, &request(false)), Err("trust_publisher_unknown"));
}

#[test]
fn documents_that_contradict_themselves_are_refused() {
    let trust = admit(&store(&[allow(1)]), "1.0.0", 1);
    let text = String::from_utf8(trust.bytes().unwrap()).unwrap();
    assert_eq!(TrustDocument::parse(text.as_bytes()), Ok(trust));
    let key_id = key(1).key_id().to_string();
    for (from, to, code) in [
        ("\"format\": 1", "\"format\": 2", "trust_store_format"),
        ("\"revision\"", "\"revisions\"", "trust_store_malformed"),
        ("\"allowlisted\"", "\"trusted\"", "trust_store_malformed"),
        (key_id.as_str(), "00000000000000000000000000000000", "trust_store_inconsistent"),
        ("\"highest\": \"1.0.0\"", "\"highest\": \"0.9.0\"", "trust_store_inconsistent"),
        ("\"skill_id\"", "\"extra\": 1, \"skill_id\"", "trust_store_malformed"),
    ] {
        assert!(text.contains(from), "{from}");
        assert_eq!(TrustDocument::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().code(), code, "{to}");
    }
}

/// A ledger in memory, which can be made to fail.
#[derive(Default)]
struct Ledger {
    records: Vec<TrustRecord>,
    fails: bool,
}

impl TrustLedger for Ledger {
    fn last(&self) -> std::io::Result<Option<Digest>> {
        Ok(self.records.last().map(|record| record.digest))
    }

    fn record(&mut self, record: &TrustRecord) -> std::io::Result<()> {
        if self.fails {
            return Err(std::io::Error::other("full"));
        }
        self.records.push(record.clone());
        Ok(())
    }
}

#[test]
fn the_file_is_what_the_ledger_says_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skill_trust.json");
    let mut ledger = Ledger::default();
    let mut store = SkillTrustStore::open_with(&path, &ledger).unwrap();
    store.change(&[allow(1)], at(NOW), &mut ledger).unwrap();
    let old = fs::read(&path).unwrap();
    store.change(&[revoke(1)], at(NOW), &mut ledger).unwrap();
    assert_eq!(ledger.records[1].changes, [format!("revoke the key {}: stolen", key(1).key_id())]);
    let open = || SkillTrustStore::open_with(&path, &ledger).map(|store| store.document().revision);
    assert_eq!(open().unwrap(), 2);
    let good = fs::read(&path).unwrap();
    // An older store, an edited one, none at all, a link: refused.
    for bytes in [old, [good.as_slice(), b" "].concat(), vec![]] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(open().unwrap_err().code(), "trust_store_tampered");
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(open().unwrap_err().code(), "trust_store_tampered");
    fs::write(dir.path().join("real"), &good).unwrap();
    std::os::unix::fs::symlink(dir.path().join("real"), &path).unwrap();
    assert_eq!(open().unwrap_err().code(), "trust_store_disk");
    fs::remove_file(&path).unwrap();
    fs::write(&path, &good).unwrap();
    assert_eq!(open().unwrap(), 2);
    assert_eq!(SkillTrustStore::open(&path, None).unwrap_err().code(), "trust_store_tampered");
}

#[test]
fn a_crash_at_any_step_leaves_the_old_store_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skill_trust.json");
    let mut ledger = Ledger::default();
    let mut store = SkillTrustStore::open_with(&path, &ledger).unwrap();
    store.change(&[allow(1)], at(NOW), &mut ledger).unwrap();
    let reopened = |ledger: &Ledger| SkillTrustStore::open_with(&path, ledger).unwrap().document().revision;
    // Before the record: the change never happened, whatever lies beside the file.
    let prepared = store.prepare(&[revoke(1)], at(NOW)).unwrap();
    assert_eq!(reopened(&ledger), 1);
    let beside = |prepared: &PreparedTrust| {
        dir.path().join(format!("skill_trust.json.{}.new", prepared.record().digest.short()))
    };
    fs::write(beside(&prepared), b"cut of").unwrap();
    assert_eq!(reopened(&ledger), 1);
    store.abandon(prepared).unwrap();
    // After the record: opening finishes it.
    let prepared = store.prepare(&[revoke(1)], at(NOW)).unwrap();
    let other = store.prepare(&[allow(2)], at(NOW)).unwrap();
    ledger.record(prepared.record()).unwrap();
    drop((prepared, other));
    assert_eq!(reopened(&ledger), 2);
    assert_eq!(reopened(&ledger), 2);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "what was prepared and does not count is gone");
}

#[test]
fn a_change_that_is_not_recorded_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skill_trust.json");
    let mut ledger = Ledger { fails: true, ..Ledger::default() };
    let mut store = SkillTrustStore::open_with(&path, &ledger).unwrap();
    assert_eq!(store.change(&[allow(1)], at(NOW), &mut ledger).unwrap_err().code(), "trust_store_ledger");
    assert_eq!(store.document(), &TrustDocument::empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // Two changes were prepared from the same store: the second one is too late.
    ledger.fails = false;
    let (first, second) = (store.prepare(&[allow(1)], at(NOW)).unwrap(), store.prepare(&[allow(2)], at(NOW)).unwrap());
    ledger.record(second.record()).unwrap();
    store.commit(second).unwrap();
    assert_eq!(store.commit(first).unwrap_err().code(), "trust_store_stale");
    assert_eq!(store.change(&[allow(2)], at(NOW), &mut ledger).unwrap_err().code(), "trust_key_known");
    // A directory that is gone is a disk that fails.
    drop(dir);
    assert_eq!(store.change(&[allow(1)], at(NOW), &mut ledger).unwrap_err().code(), "trust_store_disk");
    assert_eq!(sample("1.0.0").artifact.manifest().metadata.publisher.as_str(), "acme");
}
