//! Secret files of the workspace: which of them a call would be given, and which are withheld from a process.
//!
//! A file tool names the file that it reads. A command is looked at for words that name one, so that a person can be
//! asked and the command gets what it needs; nothing depends on finding them all, because a process finds a notice in
//! the place of every secret file that its call does not name.

use super::{Input, Place};
use crate::flow::resolve::Refusal;
use palyra_protocol::Facets;
use palyra_sandbox::WithheldFile;
use palyra_workspace::{FileError, ResolvedPath, Workspace};
use std::path::Path;

/// How programs say that they could not read, replace or remove a notice.
const REFUSALS: &[&str] =
    &["Permission denied", "Read-only file system", "Device or resource busy", "EACCES", "EROFS", "EBUSY"];
/// The most words of a command that are looked up.
const MAX_LOOKED_UP: usize = 64;

/// The secret files that a file tool's call would be given.
pub(crate) fn read_by(facets: &Facets, input: Input<'_>, place: &Place<'_>) -> Result<Vec<String>, Refusal> {
    let workspace = place.workspace;
    // A link with the name of a secret file makes one of what it leads to.
    let by_name = input.optional("/path").is_some_and(|text| workspace.may_name_secret(text));
    let linked = facets.paths_read.iter().filter(|path| by_name && !workspace.may_name_secret(path));
    let is_secret = |path: &&String| workspace.resolve(path).is_ok_and(|path| workspace.is_secret(&path));
    // A tree that Palyra reads is read without them; a client reads all of it.
    let by_client = facets.by_client.is_some();
    let single = facets.paths_read.iter().filter(|path| !facets.trees_read.contains(path));
    // A client reads a file before it changes it.
    let changed = facets.paths_written.iter().filter(|_| by_client);
    let mut found: Vec<String> = single.chain(changed).filter(is_secret).chain(linked).cloned().collect();
    // Searching one file is reading it.
    found.extend(facets.trees_read.iter().filter(is_secret).cloned());
    if by_client && !facets.trees_read.is_empty() {
        let below = |path: &str| facets.trees_read.iter().any(|tree| tree == "." || Path::new(path).starts_with(tree));
        found.extend(workspace.secret_files()?.into_iter().map(|file| file.path).filter(|path| below(path)));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The secret files that a command names: in so many words, or in the words of its line.
pub(super) fn named(input: Input<'_>, directory: &ResolvedPath, place: &Place<'_>) -> Result<Vec<String>, Refusal> {
    let workspace = place.workspace;
    let mut found = Vec::new();
    for text in input.texts("/secret_files") {
        let path = workspace.resolve(&text)?;
        found.extend(workspace.is_secret(&path).then(|| path.as_str().to_owned()));
    }
    let words = input.texts("/argv");
    let candidates = words.iter().flat_map(|word| names_in(word)).filter(|name| workspace.may_name_secret(name));
    for name in candidates.take(MAX_LOOKED_UP) {
        let below = if directory.is_root() { name.to_owned() } else { format!("{directory}/{name}") };
        let places = [below.as_str(), name].into_iter().filter_map(|text| workspace.resolve(text).ok());
        found.extend(places.filter(|path| workspace.is_secret(path)).map(|path| path.as_str().to_owned()));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The parts of a text that could be paths, as far as shells and programs write them.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || "._/-+@~%".contains(c);
    text.split(move |c| !is_part(c)).map(|part| part.trim_end_matches('.')).filter(|part| !part.is_empty())
}

/// What a process finds a notice in the place of: every secret file but those that its call names.
pub(super) fn withheld(workspace: &Workspace, given: &[String]) -> Result<Vec<WithheldFile>, FileError> {
    let files = workspace.secret_files()?.into_iter().filter(|file| !given.contains(&file.path));
    let of = |file: palyra_workspace::SecretFile| WithheldFile {
        path: workspace.root().join(file.path),
        // Git would take the notice for a new content, and commit it.
        is_unreadable: file.is_tracked,
    };
    Ok(files.map(of).collect())
}

/// What to say to a process that seems to have met such a notice.
pub(super) fn note(withheld: &[WithheldFile], said: &[&[u8]]) -> Option<String> {
    let said: Vec<_> = said.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    let met = |file: &&WithheldFile| {
        let name = file.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let refused = |text: &str| REFUSALS.iter().any(|words| text.contains(words)) && text.contains(&name);
        said.iter().any(|text| text.contains("# Palyra withholds this file") || refused(text))
    };
    let file = withheld.iter().find(met)?;
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    Some(format!(
        "Palyra withholds `{name}` from this command, because such files hold secrets. A command that names it in \
         `secret_files`, or in its words, is put before a person"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_a_path_is_found_in_a_line() {
        let found: Vec<_> = names_in("export $(cat ./.env | xargs) && x --file=a/prod.env; open('b.pem').").collect();
        for name in ["./.env", "a/prod.env", "b.pem"] {
            assert!(found.contains(&name), "{name}: {found:?}");
        }
    }

    #[test]
    fn a_process_finds_a_notice_where_no_word_of_its_call_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".env"), "KEY=1\n").unwrap();
        std::fs::write(dir.path().join("b.env"), "KEY=1\n").unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let all = withheld(&workspace, &[]).unwrap();
        assert_eq!(all.len(), 2);
        let rest = withheld(&workspace, &[".env".to_owned()]).unwrap();
        assert!(rest.len() == 1 && rest[0].path.ends_with("b.env") && !rest[0].is_unreadable);
        assert!(note(&rest, &[b"cat: b.env: Permission denied"]).unwrap().contains("`b.env`"));
        assert!(note(&rest, &[b"all is well"]).is_none() && note(&rest, &[b"b.env"]).is_none());
    }
}
