//! Blobs that another implementation made, by the written format.

use super::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    vault: VaultId,
    kek_id: String,
    kek: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    reference: SecretRef,
    blob: String,
    versions: Option<Vec<Expected>>,
    fault: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Expected {
    version: u64,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    value: String,
}

fn vectors() -> (Vectors, Kek) {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../../../../docs/formats/vectors/vault/blobs.json")).unwrap();
    let id = KekId(hex::decode(&vectors.kek_id).unwrap().try_into().unwrap());
    let kek = Kek::new(&vectors.vault, id, Key::from_slice(&hex::decode(&vectors.kek).unwrap()).unwrap()).unwrap();
    (vectors, kek)
}

/// All versions of a blob.
fn opened(vault: &VaultId, kek: &Kek, reference: &SecretRef, blob: &[u8]) -> Result<Vec<Expected>, EnvelopeFault> {
    let head = Head::parse(blob)?;
    let envelope = Envelope::open(vault, kek, reference, head, blob)?;
    let versions = envelope.head.versions.iter().map(|version| {
        let value = envelope.value(kek, version.number)?.ok_or(EnvelopeFault::Versions)?;
        Ok(Expected {
            version: version.number,
            created_at: version.created_at,
            expires_at: version.expires_at,
            value: hex::encode(value.expose()),
        })
    });
    versions.collect()
}

/// `HeaderSeal` as the vectors write it.
fn word(fault: EnvelopeFault) -> String {
    let mut word = String::new();
    for c in format!("{fault:?}").chars() {
        if c.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(c.to_ascii_lowercase());
    }
    word
}

#[test]
fn blobs_of_another_implementation_open_or_are_refused() {
    let (vectors, kek) = vectors();
    let (mut good, mut bad) = (0, 0);
    for case in vectors.cases {
        let blob = hex::decode(&case.blob).unwrap();
        let found = opened(&vectors.vault, &kek, &case.reference, &blob);
        match (case.versions, case.fault) {
            (Some(versions), None) => {
                assert_eq!(found, Ok(versions), "{}", case.name);
                good += 1;
            }
            (None, Some(fault)) => {
                assert_eq!(found.map_err(word), Err(fault), "{}", case.name);
                bad += 1;
            }
            _ => panic!("{}: versions or a fault", case.name),
        }
    }
    assert!(good >= 3 && bad > good, "{good} good, {bad} bad");
}

#[test]
fn what_is_written_is_read() {
    let (vectors, kek) = vectors();
    let (vault, reference) = (&vectors.vault, "vault://global/github".parse().unwrap());
    let value = |text: &str| SecretValue::new(text.as_bytes().to_vec()).unwrap();
    let at = Timestamp::from_unix_ms;
    let parts = [
        (VersionStamp { number: 3, created_at: at(1), expires_at: Some(at(9)) }, "old"),
        (VersionStamp { number: 7, created_at: at(2), expires_at: None }, "new"),
    ];
    let parts: Vec<Part<'_>> =
        parts.iter().map(|(stamp, text)| Part::seal(vault, &kek, &reference, *stamp, &value(text)).unwrap()).collect();
    let blob = write(vault, &kek, &reference, &parts).unwrap();
    let found = opened(vault, &kek, &reference, &blob).unwrap();
    let shown: Vec<_> = found.iter().map(|v| (v.version, v.value.as_str())).collect();
    assert_eq!(shown, [(3, "6f6c64"), (7, "6e6577")]);

    // Under another KEK the values are the same bytes.
    let other = Kek::generate(vault).unwrap();
    let head = Head::parse(&blob).unwrap();
    let envelope = Envelope::open(vault, &kek, &reference, head, &blob).unwrap();
    let again = write(vault, &other, &reference, &envelope.parts(&kek, &other, |_| true).unwrap()).unwrap();
    assert_eq!(opened(vault, &other, &reference, &again).unwrap(), found);
    assert_eq!(opened(vault, &kek, &reference, &again).map_err(word), Err("unknown_key".to_owned()));
    let bodies = 2 * (3 + TAG);
    assert_eq!(again[again.len() - bodies..], blob[blob.len() - bodies..]);
}

#[test]
fn the_largest_header_fits() {
    let vault = VaultId::mint();
    let kek = Kek::generate(&vault).unwrap();
    let longest = format!("vault://principal:device:{}/{}", "a".repeat(64), "b".repeat(128)).parse().unwrap();
    let value = SecretValue::new(vec![7; MAX_VALUE]).unwrap();
    let parts: Vec<Part<'_>> = (1..=MAX_VERSIONS as u64)
        .map(|number| {
            let expires_at = (number < MAX_VERSIONS as u64).then(|| Timestamp::from_unix_ms(u64::MAX));
            let stamp = VersionStamp { number, created_at: Timestamp::from_unix_ms(u64::MAX), expires_at };
            Part::seal(&vault, &kek, &longest, stamp, &value).unwrap()
        })
        .collect();
    let blob = write(&vault, &kek, &longest, &parts).unwrap();
    assert!(blob.len() <= MAX_BLOB);
    let head = Head::parse(&blob).unwrap();
    assert!(head.len() <= MAX_HEAD);
    assert_eq!(opened(&vault, &kek, &longest, &blob).unwrap().len(), MAX_VERSIONS);
}
