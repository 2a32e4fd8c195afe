//! `palyrad skills`: what an author of skills does. No daemon, no journal.
//!
//! `palyra skills` becomes this. A guest runs here only when its author tries it, with what its own manifest asks for,
//! in a place that is thrown away. Everything that comes from a skill is shown inert.

mod audit;
mod build;
mod compare;
mod dev;
mod doors;
mod guest;
mod import;
mod interrupt;
mod keys;
mod package;
mod refusal;
mod registry;
mod report;
mod requested;
mod scaffold;
mod show;
mod throwaway;
mod tighter;
mod trial;
mod trust;

use crate::printing::say;
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::{AuthorCommand, Package, SkillsAuthor};
use refusal::Refusal;
use serde::Serialize;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

/// The largest file that is read whole: an artifact with all that it may hold fits.
const MAX_FILE: u64 = 128 << 20;

/// Does what was asked. Every refusal is told on standard error and has its exit code.
pub fn command(skills: SkillsAuthor) -> ExitCode {
    let format = skills.output;
    let done = match skills.command {
        AuthorCommand::New(new) => scaffold::new(&new, format),
        AuthorCommand::Build(build) => build::build(&build, format),
        AuthorCommand::Dev(dev) => dev::dev(dev, format),
        AuthorCommand::Try(attempt) => trial::attempt(attempt, format),
        AuthorCommand::Package(Package::Keygen { out }) => keys::keygen(&out, format),
        AuthorCommand::Package(Package::Build(build)) => package::build(&build, format),
        AuthorCommand::Package(Package::Verify(verify)) => package::verify(&verify, format),
        AuthorCommand::Package(Package::Inspect { file }) => package::inspect(&file, format),
        AuthorCommand::Package(Package::Index(index)) => registry::index(&index, format),
        AuthorCommand::Package(Package::Rotate(rotate)) => registry::rotate(&rotate, format),
        AuthorCommand::Package(Package::Audit(audit)) => audit::audit(&audit, format),
        AuthorCommand::Import(import) => import::import(&import, format),
    };
    done.unwrap_or_else(|refusal| {
        refusal.tell(format);
        ExitCode::from(refusal.exit)
    })
}

fn say_json<T: Serialize>(value: &T) -> Result<(), Refusal> {
    let text = serde_json::to_string(value).map_err(|error| Refusal::bug(&error))?;
    say(&text);
    Ok(())
}

/// A file's content, whatever kind of file it is, within a limit.
fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, Refusal> {
    let failed = |error: &std::io::Error| Refusal::io(&format!("`{}` cannot be read", path.display()), error);
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    read_within(file, limit, &format!("`{}`", path.display())).map_err(|error| match error {
        ReadFault::Io(error) => failed(&error),
        ReadFault::TooLarge(refusal) => refusal,
    })
}

/// What stands on standard input, within a limit.
fn read_input(limit: u64) -> Result<Vec<u8>, Refusal> {
    read_within(std::io::stdin().lock(), limit, "standard input").map_err(|error| match error {
        ReadFault::Io(error) => Refusal::io("standard input cannot be read", &error),
        ReadFault::TooLarge(refusal) => refusal,
    })
}

enum ReadFault {
    Io(std::io::Error),
    TooLarge(Refusal),
}

fn read_within(reader: impl std::io::Read, limit: u64, what: &str) -> Result<Vec<u8>, ReadFault> {
    let mut bytes = Vec::new();
    reader.take(limit + 1).read_to_end(&mut bytes).map_err(ReadFault::Io)?;
    if bytes.len() as u64 > limit {
        let message = format!("{what} has more than {limit} bytes");
        return Err(ReadFault::TooLarge(Refusal::refused("file_too_large", message, None)));
    }
    Ok(bytes)
}

/// Writes a file that must not be there; whole or not at all.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: &std::io::Error| Refusal::io(&format!("`{}` cannot be written", path.display()), error);
    let mut prepared = tempfile::NamedTempFile::new_in(directory).map_err(|error| failed(&error))?;
    std::io::Write::write_all(&mut prepared, bytes).map_err(|error| failed(&error))?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    prepared.as_file().set_permissions(readable).map_err(|error| failed(&error))?;
    prepared.as_file().sync_all().map_err(|error| failed(&error))?;
    match prepared.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(Refusal::refused(
            "file_exists",
            format!("`{}` is there already", path.display()),
            Some("choose another name with `--out`, or remove it first".to_owned()),
        )),
        Err(error) => Err(failed(&error.error)),
    }
}

/// Says something for people only.
fn for_people(format: Format, line: &str) {
    if format == Format::Text {
        say(line);
    }
}
