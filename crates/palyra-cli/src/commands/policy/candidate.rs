//! The files of a policy directory, to be sent to the daemon as they are. What they mean is the daemon's to say.

use crate::exit::{FAILED, Failure};
use palyra_api::v1::PolicyFile;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The most bytes that are sent: a message has a limit.
const MOST_BYTES: u64 = 15 << 20;
/// The most files that are sent.
const MOST_FILES: usize = 1_000;

/// Every Cedar and TOML file in the directory and one level below.
pub fn files(directory: &Path) -> Result<Vec<PolicyFile>, Failure> {
    let mut files = Vec::new();
    let mut left = MOST_BYTES;
    collect(directory, "", &mut files, &mut left)?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn collect(directory: &Path, below: &str, files: &mut Vec<PolicyFile>, left: &mut u64) -> Result<(), Failure> {
    let unreadable =
        |path: &Path, error: &std::io::Error| Failure::io(&format!("`{}` cannot be read", path.display()), error);
    for entry in std::fs::read_dir(directory).map_err(|e| unreadable(directory, &e))? {
        let path = entry.map_err(|e| unreadable(directory, &e))?.path();
        let Some(file) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.')) else {
            continue;
        };
        let metadata = std::fs::metadata(&path).map_err(|e| unreadable(&path, &e))?;
        let name = if below.is_empty() { file.to_owned() } else { format!("{below}/{file}") };
        if metadata.is_dir() && below.is_empty() {
            collect(&path, &name, files, left)?;
        } else if metadata.is_file() && (file.ends_with(".cedar") || file.ends_with(".toml")) {
            let mut content = Vec::new();
            let read = File::open(&path).and_then(|file| file.take(*left + 1).read_to_end(&mut content));
            let read = read.map_err(|e| unreadable(&path, &e))? as u64;
            if read > *left || files.len() >= MOST_FILES {
                return Err(Failure::new(
                    FAILED,
                    "candidate_too_large",
                    format!("a candidate has at most {MOST_FILES} files of together {} MiB", MOST_BYTES >> 20),
                    Some("check it without the daemon: `palyra policy check DIR`"),
                ));
            }
            *left -= read;
            files.push(PolicyFile { name, content });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_cases_are_sent_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("cases")).unwrap();
        for name in ["b.cedar", "groups.toml", "cases/x.toml", "README.md", ".hidden.cedar"] {
            std::fs::write(at(name), name).unwrap();
        }
        let sent: Vec<_> = files(dir.path()).unwrap().into_iter().map(|file| file.name).collect();
        assert_eq!(sent, ["b.cedar", "cases/x.toml", "groups.toml"]);
        std::os::unix::fs::symlink("loop.cedar", at("loop.cedar")).unwrap();
        assert!(files(dir.path()).is_err());
        assert!(files(&at("nowhere")).is_err());
    }
}
