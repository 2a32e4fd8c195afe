//! The whole story with the public interface alone, in the order in which a daemon goes through it: build, refuse a
//! stranger, trust on first use, install, audit again, notice what changed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use palyra_protocol::{Digest, Timestamp};
use palyra_skills::archive::Entry;
use palyra_skills::package::{self, PackageSource};
use palyra_skills::trust::{TrustLedger, TrustRecord};
use palyra_skills::{
    Advisories, AuditContext, AuditPolicy, CheckId, HostVersion, ManagedDirectory, PublisherKey, SkillDiff,
    SkillTrustStore, TrustChange, TrustDecision, TrustDocument, TrustQuestion, VerifyPurpose, VerifyRequest,
};

/// The journal's part: it remembers the digests, in order.
#[derive(Default)]
struct Journal(Vec<TrustRecord>);

impl TrustLedger for Journal {
    fn last(&self) -> std::io::Result<Option<Digest>> {
        Ok(self.0.last().map(|record| record.digest))
    }

    fn record(&mut self, record: &TrustRecord) -> std::io::Result<()> {
        self.0.push(record.clone());
        Ok(())
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_000_000)
}

fn source(version: &str, egress: &str) -> PackageSource {
    let manifest = format!(
        r#"format = 1
[metadata]
skill_id = "acme.echo"
version = "{version}"
publisher = "acme"
name = "Echo"
[entrypoints]
module = "modules/echo.wasm"
[[entrypoints.tools]]
id = "echo"
description = "Gives back what it is given."
risk = "high"
input_schema = {{ type = "object" }}
output_schema = {{ type = "object" }}
[capabilities.http]
egress = [{egress}]
[compat]
required_protocol_major = 1
min_palyra_version = "0.1.0"
"#
    );
    let import = "(import \"palyra:skill/http@1.0.0\" (instance))\n";
    let component = include_str!("components/echo.wat").replace(";; IMPORTS\n", import);
    let component = wat::parse_str(component).unwrap();
    let files = vec![Entry::new("modules/echo.wasm", component)];
    PackageSource { manifest: manifest.into_bytes(), files, ..PackageSource::default() }
}

fn request(purpose: VerifyPurpose, allow_tofu: bool) -> VerifyRequest {
    VerifyRequest { purpose, allow_tofu, now: now() }
}

/// The ids of the checks that fail for what is installed.
fn failing(managed: &ManagedDirectory, trust: &TrustDocument, policy: &str, purpose: VerifyPurpose) -> Vec<CheckId> {
    let (skill_id, version) = managed.list().unwrap().remove(0);
    let policy = AuditPolicy::parse(policy.as_bytes()).unwrap();
    let advisories = Advisories::default();
    let host = HostVersion { palyra: semver::Version::new(0, 1, 0), protocol_major: 1 };
    let trust = Some(TrustQuestion { document: trust, request: request(purpose, false) });
    let context = AuditContext { policy: &policy, advisories: &advisories, host, trust };
    let (entries, signature) = managed.load_entries(&skill_id, &version).unwrap();
    let report = palyra_skills::audit::audit_unpacked_skill(entries, signature, &context);
    report.with_status(palyra_skills::CheckStatus::Fail).map(|check| check.id).collect()
}

#[test]
fn a_skill_earns_trust_and_loses_it() {
    let dir = tempfile::tempdir().unwrap();
    let key = PublisherKey::generate().unwrap();
    let first = package::build(&source("1.0.0", "\"a.example.org\""), &key).unwrap();
    let mut journal = Journal::default();
    let mut store = SkillTrustStore::open_with(dir.path().join("skill_trust.json"), &journal).unwrap();
    let managed = ManagedDirectory::open(dir.path().join("skills-managed")).unwrap();

    // A stranger is refused; with trust on first use it is pinned, and the pin is on record before anything is
    // unpacked.
    let install = |allow_tofu| request(VerifyPurpose::Install, allow_tofu);
    let refused = package::verify(&first.bytes, store.document(), &install(false)).unwrap_err();
    assert_eq!(refused.code(), "trust_publisher_unknown");
    let (artifact, verification) = package::verify(&first.bytes, store.document(), &install(true)).unwrap();
    assert_eq!(verification.decision, TrustDecision::TofuNewlyPinned);
    store.change(&verification.changes, now(), &mut journal).unwrap();
    let installed = managed.install(&artifact).unwrap();
    assert_eq!(failing(&managed, store.document(), "format = 1", VerifyPurpose::Recheck), []);

    // The policy is tightened; mended again.
    let tight = "format = 1\n[limits]\nmax_wall_clock_ms = 10";
    assert_eq!(failing(&managed, store.document(), tight, VerifyPurpose::Recheck), [CheckId::LimitsQuotas]);

    // Somebody writes into the directory; the good file comes back.
    let module = installed.path.join("modules/echo.wasm");
    let good = std::fs::read(&module).unwrap();
    std::fs::write(&module, b"\0asm evil").unwrap();
    let found = failing(&managed, store.document(), "format = 1", VerifyPurpose::Recheck);
    assert!(found.contains(&CheckId::SignatureValid) && found.contains(&CheckId::WasmValid), "{found:?}");
    let (skill_id, version) = (&verification.skill_id, &verification.version);
    assert!(managed.check(skill_id, version, &verification.content_sha256).unwrap_err().is_drift());
    std::fs::write(&module, good).unwrap();
    assert!(managed.check(skill_id, version, &verification.content_sha256).is_ok());

    // An update that reaches another host says so.
    let second = package::build(&source("1.1.0", "\"a.example.org\", \"b.example.org\""), &key).unwrap();
    let (old, new) = (package::inspect(&first.bytes).unwrap(), package::inspect(&second.bytes).unwrap());
    let diff = SkillDiff::between(&old, &new);
    assert!(diff.widens);
    assert_eq!(diff.changes[0].after.as_deref(), Some("b.example.org"));

    // The key is revoked: nothing that it signed is good, now or after a restart.
    let revoke = TrustChange::Revoke { key_id: key.key_id(), reason: "lost laptop".to_owned() };
    store.change(&[revoke], now(), &mut journal).unwrap();
    let reopened = SkillTrustStore::open_with(store.path(), &journal).unwrap();
    assert_eq!(failing(&managed, reopened.document(), "format = 1", VerifyPurpose::Recheck), [CheckId::TrustPublisher]);
    let refused = package::verify(&second.bytes, reopened.document(), &install(true)).unwrap_err();
    assert_eq!(refused.code(), "trust_key_revoked");
}
