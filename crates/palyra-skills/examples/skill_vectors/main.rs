//! Writes the test vectors of the artifact format and the seeds of the fuzz targets, from the repository's root:
//! `cargo run -p palyra-skills --example skill_vectors`.
//!
//! The vectors are data that other implementations can use; `tests/vectors.rs` holds this one to them. Each has the
//! code with which it must be refused, or `ok`.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for developers that stops at the first surprise"
)]

mod archives;
mod artifacts;
mod curve;
mod manifests;
mod raw_zip;
mod seeds;
mod signatures;

use palyra_skills::archive::Entry;
use palyra_skills::package::{PackageSource, build};
use palyra_skills::signature::PublisherKey;
use serde_json::{Value, json};
use std::path::Path;

/// One vector: its file's name, what it shows, the code that it must give.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) shows: String,
    pub(crate) expect: String,
    pub(crate) bytes: Vec<u8>,
}

impl Vector {
    pub(crate) fn new(name: &str, shows: &str, expect: &str, bytes: Vec<u8>) -> Self {
        Self { name: name.to_owned(), shows: shows.to_owned(), expect: expect.to_owned(), bytes }
    }
}

/// The key of a number, as in the format document.
pub(crate) fn key(number: u8) -> PublisherKey {
    let text = format!("palyra-publisher-key-1:{}", format!("{number:02x}").repeat(32));
    PublisherKey::parse(&palyra_protocol::Secret::new(text.into_bytes())).unwrap()
}

pub(crate) fn component() -> Vec<u8> {
    wat::parse_str(include_str!("../../tests/components/echo.wat")).unwrap()
}

pub(crate) const MANIFEST: &str = include_str!("skill.toml");

pub(crate) fn source() -> PackageSource {
    PackageSource {
        manifest: MANIFEST.as_bytes().to_vec(),
        files: vec![
            Entry::new("modules/echo.wasm", component()),
            Entry::new("assets/texts/note.txt", b"A note, a note, a note.\n".to_vec()),
        ],
        ..PackageSource::default()
    }
}

/// The artifact that most negative vectors are made from.
pub(crate) fn artifact() -> Vec<u8> {
    build(&source(), &key(1)).unwrap().bytes
}

fn main() {
    let folder = Path::new("docs/formats/skill-vectors");
    let groups = [
        ("artifacts", "palyra-skill", [archives::vectors(), artifacts::vectors()].concat_all()),
        ("manifests", "toml", manifests::vectors()),
        ("signatures", "json", signatures::vectors()),
    ];
    let mut index = serde_json::Map::new();
    for (group, extension, vectors) in groups {
        let folder = folder.join(group);
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        let mut listed: Vec<Value> = Vec::new();
        for Vector { name, shows, expect, bytes } in &vectors {
            let file = format!("{name}.{extension}");
            std::fs::write(folder.join(&file), bytes).unwrap();
            listed.push(json!({ "file": format!("{group}/{file}"), "expect": expect, "shows": shows }));
        }
        println!("{group}: {} vectors", vectors.len());
        index.insert(group.to_owned(), listed.into());
    }
    for (file, document) in [
        ("vectors.json", Value::Object(index)),
        ("digests.json", signatures::digests()),
        ("ed25519.json", curve::vectors()),
    ] {
        std::fs::write(folder.join(file), format!("{document:#}\n")).unwrap();
    }
    seeds::write(Path::new("fuzz/seeds"), folder);
}

trait ConcatAll<T> {
    fn concat_all(self) -> Vec<T>;
}

impl<T, const N: usize> ConcatAll<T> for [Vec<T>; N] {
    fn concat_all(self) -> Vec<T> {
        self.into_iter().flatten().collect()
    }
}
