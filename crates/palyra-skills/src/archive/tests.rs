//! The writer and the reader agree; hostile archives are data files in `docs/formats/skill-vectors`.

use super::*;
use proptest::prelude::*;

fn entries(pairs: &[(&str, &[u8])]) -> Vec<Entry> {
    pairs.iter().map(|(name, content)| Entry::new(*name, content.to_vec())).collect()
}

fn packed(entries: &[Entry]) -> Vec<u8> {
    write::<ArchiveError>(entries, |digest| Ok(digest.to_string().into_bytes())).unwrap()
}

#[test]
fn the_same_entries_give_the_same_bytes_in_any_order() {
    let mut list = entries(&[("b/x", b"one"), ("a", b""), ("b/y", &[7; 9000])]);
    let bytes = packed(&list);
    list.reverse();
    assert_eq!(packed(&list), bytes);
    let read = Archive::read(&bytes).unwrap();
    assert_eq!(read.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["a", "b/x", "b/y"]);
    assert_eq!(read.entries[2].content, [7; 9000]);
    assert_eq!(read.signature, read.digest.to_string().into_bytes());
}

#[test]
fn other_readers_see_the_same_entries() {
    let bytes = packed(&entries(&[("a", b"one"), ("b/c", b"two")]));
    let mut other = zip::ZipArchive::new(std::io::Cursor::new(&bytes)).unwrap();
    let names: Vec<_> = (0..other.len()).map(|i| other.by_index(i).unwrap().name().unwrap().into_owned()).collect();
    assert_eq!(names, ["a", "b/c", "signature.json"]);
}

#[test]
fn limits_hold_before_anything_is_inflated() {
    let repetitive: Vec<u8> = (0..300_u64 << 10).map(|n| (n * n / 999) as u8).collect();
    let bytes = packed(&entries(&[("a", &repetitive), ("b", b"x")]));
    let check = |limits: ArchiveLimits| Archive::read_within(&bytes, &limits).unwrap_err().code();
    let all = ArchiveLimits::default();
    assert_eq!(check(ArchiveLimits { archive_bytes: 100, ..all }), "archive_too_large");
    assert_eq!(check(ArchiveLimits { entries: 2, ..all }), "archive_entry_count");
    assert_eq!(check(ArchiveLimits { entry_bytes: 1000, ..all }), "archive_entry_too_large");
    assert_eq!(check(ArchiveLimits { total_bytes: 300 << 10, ..all }), "archive_total_too_large");
    assert_eq!(check(ArchiveLimits { ratio: 1, ..all }), "archive_ratio");
    // Zeroes deflate to a thousandth, and are not even written.
    assert_eq!(write_error(&entries(&[("a", &[0; 300 << 10])])), "archive_ratio");
}

#[test]
fn names_that_are_refused_are_not_written() {
    let refused = |name: &str| write_error(&entries(&[(name, b"")]));
    assert_eq!(refused("../a"), "archive_name_traversal");
    assert_eq!(refused("signature.json"), "archive_duplicate");
    assert_eq!(write_error(&entries(&[("a", b""), ("A", b"")])), "archive_case_twin");
}

fn write_error(entries: &[Entry]) -> &'static str {
    write::<ArchiveError>(entries, |_| Ok(vec![])).unwrap_err().code()
}

proptest! {
    /// No byte of an archive can be exchanged unnoticed by somebody who keeps the digest that the signature covers.
    #[test]
    fn every_flipped_byte_is_noticed(at: prop::sample::Index, flip in 1_u8..) {
        let bytes = packed(&entries(&[("a/b", b"some content, some content"), ("c", b"more")]));
        let before = Archive::read(&bytes).unwrap();
        let mut forged = bytes.clone();
        forged[at.index(bytes.len())] ^= flip;
        if let Ok(read) = Archive::read(&forged) {
            prop_assert!(read.digest != before.digest || read.signature != before.signature);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Archive::read(&bytes).is_err());
    }
}
