//! Archives: one for every trick that the reader refuses by name.

use crate::raw_zip::{Piece, assemble, assemble_with, deflated, pieces};
use crate::{Vector, artifact};

/// A change of the second entry of the artifact, `modules/echo.wasm`.
type Change = fn(&mut Piece);

pub(crate) fn vectors() -> Vec<Vector> {
    let good = artifact();
    let base = pieces(&good);
    let changed = |change: Change| {
        let mut pieces = base.clone();
        change(&mut pieces[1]);
        assemble(&pieces)
    };
    let mut gap = base.clone();
    gap[0].before = b"gap".to_vec();
    let mut all = vec![
        Vector::new(
            "leading-gap",
            "bytes before the first entry, offsets corrected",
            "archive_leading_data",
            assemble(&gap),
        ),
        Vector::new("good", "an artifact", "ok", good.clone()),
        Vector::new("empty", "no bytes at all", "archive_not_a_zip", vec![]),
        Vector::new(
            "not-a-zip",
            "something else",
            "archive_not_a_zip",
            b"#!/bin/sh\necho this is no archive\n".to_vec(),
        ),
        Vector::new("cut-off", "the second half is missing", "archive_not_a_zip", good[..good.len() / 2].to_vec()),
        Vector::new(
            "trailing-data",
            "bytes behind the end record",
            "archive_trailing_data",
            [&good[..], b"more"].concat(),
        ),
        Vector::new(
            "leading-data",
            "a program before the archive",
            "archive_leading_data",
            [b"#!/bin/sh\n", &good[..]].concat(),
        ),
    ];
    all.extend(end_records(&base));
    all.extend(names(&base));
    all.extend(pairs(&base));
    for (name, shows, expect, change) in CHANGES {
        all.push(Vector::new(name, shows, expect, changed(change)));
    }
    all
}

const CHANGES: [(&str, &str, &str, Change); 33] = [
    ("gap", "bytes between two entries", "archive_gap", |p| p.before = b"gap".to_vec()),
    ("overlap", "two entries share bytes", "archive_overlap", |p| p.offset = Some(4)),
    ("offset-beyond", "an offset behind everything", "archive_gap", |p| p.offset = Some(1 << 24)),
    ("entry-comment", "a comment on an entry", "archive_comment", |p| p.comment = b"hidden".to_vec()),
    ("entry-other-disk", "an entry on another disk", "archive_multi_disk", |p| p.disk = 1),
    ("symlink", "a symbolic link", "archive_symlink", |p| p.attributes = 0o120_777 << 16),
    ("fifo", "a pipe", "archive_special_file", |p| p.attributes = 0o010_644 << 16),
    ("set-uid", "a file with the set-uid bit", "archive_special_file", |p| p.attributes = 0o104_755 << 16),
    ("directory-bit", "a file that says to be a directory", "archive_special_file", |p| p.attributes |= 0x10),
    ("encrypted", "an encrypted entry", "archive_encrypted", |p| p.both(|h| h.flags = 1)),
    ("strongly-encrypted", "an entry with strong encryption", "archive_encrypted", |p| p.both(|h| h.flags = 0x41)),
    ("aes", "an entry with the AES method", "archive_encrypted", |p| p.both(|h| h.method = 99)),
    ("stored", "content that is stored", "archive_method", |p| {
        *p = Piece::new("modules/echo.wasm", &crate::component(), true);
    }),
    ("bzip2", "another compression", "archive_method", |p| p.both(|h| h.method = 12)),
    ("data-descriptor", "sizes behind the content", "archive_data_descriptor", |p| p.both(|h| h.flags = 8)),
    ("utf8-flag", "a flag that is not needed", "archive_not_canonical", |p| p.both(|h| h.flags = 0x800)),
    ("extra-field", "an extra field", "archive_extra_field", |p| p.both(|h| h.extra = vec![0x55, 0x54, 1, 0, 0])),
    ("unicode-path", "a second name in an extra field", "archive_extra_field", |p| {
        p.both(|h| h.extra = [&[0x75, 0x70, 9, 0, 1, 0, 0, 0, 0][..], b"evil"].concat());
    }),
    ("zip64-extra", "a 64-bit size in an extra field", "archive_zip64", |p| {
        p.both(|h| h.extra = [&[1, 0, 16, 0][..], &[0; 16]].concat());
    }),
    ("zip64-size", "a size that says: look in the extra field", "archive_zip64", |p| p.both(|h| h.size = u32::MAX)),
    ("huge", "an entry of 65 MiB, as it says", "archive_entry_too_large", |p| p.both(|h| h.size = 65 << 20)),
    ("bomb", "a megabyte of zeroes in a kilobyte", "archive_ratio", |p| {
        *p = Piece::new("modules/echo.wasm", &[0; 1 << 20], false);
    }),
    ("other-name", "header and directory disagree about the name", "archive_header_mismatch", |p| {
        p.local.name = b"modules/evil.wasm".to_vec();
    }),
    ("other-size", "header and directory disagree about the size", "archive_header_mismatch", |p| p.local.size += 1),
    ("other-checksum", "header and directory disagree about the checksum", "archive_header_mismatch", |p| {
        p.local.checksum ^= 1;
    }),
    ("other-method", "header and directory disagree about the method", "archive_header_mismatch", |p| {
        p.local.method = 0;
    }),
    ("other-time", "an entry with a time", "archive_not_canonical", |p| p.both(|h| h.time = 77)),
    ("made-by-dos", "an archive made elsewhere", "archive_not_canonical", |p| p.made_by = 20),
    ("internal-attributes", "an entry that says to be text", "archive_not_canonical", |p| p.internal = 1),
    ("wrong-checksum", "a checksum of something else", "archive_checksum", |p| p.both(|h| h.checksum ^= 1)),
    ("wrong-size", "a size that the content does not have", "archive_content", |p| p.both(|h| h.size -= 1)),
    ("not-deflated", "content that is no deflated stream", "archive_content", |p| p.data.fill(0xff)),
    ("bytes-behind-stream", "bytes behind the deflated stream", "archive_content", |p| {
        p.data.extend(b"more");
        p.both(|h| h.compressed += 4);
    }),
];

fn end_records(base: &[Piece]) -> Vec<Vector> {
    let locator = [&[0x50, 0x4b, 0x06, 0x07][..], &[0; 16]].concat();
    vec![
        Vector::new(
            "comment",
            "a comment on the archive",
            "archive_comment",
            assemble_with(base, |e| e.comment = b"hi".to_vec()),
        ),
        Vector::new("multi-disk", "one of several files", "archive_multi_disk", assemble_with(base, |e| e.disk = 1)),
        Vector::new(
            "two-counts",
            "two numbers of entries",
            "archive_directory",
            assemble_with(base, |e| e.entries_here -= 1),
        ),
        Vector::new(
            "fewer-entries",
            "fewer entries than the directory has",
            "archive_directory",
            assemble_with(base, |e| {
                (e.entries_here, e.entries) = (e.entries - 1, e.entries - 1);
            }),
        ),
        Vector::new(
            "more-entries",
            "more entries than the directory has",
            "archive_directory",
            assemble_with(base, |e| {
                (e.entries_here, e.entries) = (e.entries + 1, e.entries + 1);
            }),
        ),
        Vector::new("no-entries", "an empty archive", "archive_entry_count", assemble(&[])),
        Vector::new(
            "zip64-count",
            "a count that says: look in the 64-bit record",
            "archive_zip64",
            assemble_with(base, |e| {
                (e.entries_here, e.entries) = (u16::MAX, u16::MAX);
            }),
        ),
        Vector::new(
            "zip64-locator",
            "a 64-bit record before the end record",
            "archive_zip64",
            assemble_with(base, |e| e.before.clone_from(&locator)),
        ),
        Vector::new(
            "directory-elsewhere",
            "the directory is not where it should be",
            "archive_directory",
            assemble_with(base, |e| e.directory_start += 1),
        ),
        Vector::new(
            "directory-too-large",
            "a directory larger than the archive",
            "archive_directory",
            assemble_with(base, |e| e.directory_size = 1 << 30),
        ),
        Vector::new(
            "bytes-before-end",
            "bytes between directory and end record",
            "archive_directory",
            assemble_with(base, |e| e.before = b"more".to_vec()),
        ),
    ]
}

fn names(base: &[Piece]) -> Vec<Vector> {
    let bad: [(&str, &str, &[u8], &str); 14] = [
        ("traversal", "a name that leads out", b"assets/../../../etc/cron.d/x", "archive_name_traversal"),
        ("dot", "a name with a dot as a part", b"assets/./x", "archive_name_traversal"),
        ("absolute", "a name that begins at the root", b"/etc/passwd", "archive_name_absolute"),
        ("backslash", "a name with backslashes", b"assets\\..\\x", "archive_name_windows"),
        ("drive", "a name with a drive", b"C:/x", "archive_name_windows"),
        ("stream", "a name with a stream", b"assets/x:hidden", "archive_name_windows"),
        ("device", "a name of a device", b"assets/NUL.txt", "archive_name_windows"),
        ("final-dot", "a name that Windows shortens", b"assets/x.", "archive_name_windows"),
        ("directory", "a directory as an entry", b"assets/", "archive_name_directory"),
        ("empty-part", "a name with an empty part", b"assets//x", "archive_name_directory"),
        ("empty-name", "no name", b"", "archive_name_empty"),
        ("control", "a name with a line end", b"assets/a\nb", "archive_name_characters"),
        ("not-ascii", "a name in another script", "assets/\u{fc}".as_bytes(), "archive_name_characters"),
        ("not-utf8", "a name that is no text", b"assets/\xff", "archive_name_characters"),
    ];
    let named = |name: &[u8]| {
        let mut pieces = base.to_vec();
        pieces[0].both(|header| header.name = name.to_vec());
        assemble(&pieces)
    };
    let mut all: Vec<_> =
        bad.map(|(name, shows, raw, code)| Vector::new(&format!("name-{name}"), shows, code, named(raw))).into();
    let long = [b"assets/".to_vec(), vec![b'a'; 300]].concat();
    all.push(Vector::new("name-long", "a name that is too long", "archive_name_too_long", named(&long)));
    all
}

/// Entries that cannot stand side by side.
fn pairs(base: &[Piece]) -> Vec<Vector> {
    let with = |extra: &[&str]| {
        let mut pieces: Vec<Piece> = extra.iter().map(|name| Piece::new(name, b"x", false)).collect();
        pieces.extend(base.iter().cloned());
        assemble(&pieces)
    };
    let mut shuffled = base.to_vec();
    shuffled.swap(0, 1);
    let mut unsigned = base.to_vec();
    unsigned.pop();
    let mut recompressed = base.to_vec();
    // One stored block inside the deflated stream: the same content in other bytes.
    let content = crate::component();
    let stored =
        [&[1][..], &(content.len() as u16).to_le_bytes(), &(!(content.len() as u16)).to_le_bytes(), &content].concat();
    recompressed[1].both(|header| header.compressed = stored.len() as u32);
    recompressed[1].data = stored;
    assert_ne!(recompressed[1].data, deflated(&content));
    vec![
        Vector::new("duplicate", "the same name twice", "archive_duplicate", with(&["assets/a", "assets/a"])),
        Vector::new("case-twin", "names that differ in case", "archive_case_twin", with(&["assets/A", "assets/a"])),
        Vector::new(
            "case-twin-directory",
            "directories that differ in case",
            "archive_case_twin",
            with(&["Assets/x", "assets/y"]),
        ),
        Vector::new(
            "file-and-directory",
            "a name that is a file and a directory",
            "archive_file_and_directory",
            with(&["assets/a", "assets/a/b"]),
        ),
        Vector::new("unsorted", "entries in another order", "archive_not_canonical", assemble(&shuffled)),
        Vector::new("unsigned", "no signature", "archive_unsigned", assemble(&unsigned)),
        Vector::new(
            "recompressed",
            "the same content, compressed otherwise",
            "signature_archive",
            assemble(&recompressed),
        ),
    ]
}
