//! Publishers' keys: made here, read from a file or standard input, and never shown.

use super::refusal::Refusal;
use super::{for_people, read_file, read_input, say_json};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::SigningKey;
use palyra_protocol::Secret;
use palyra_protocol::display::safe;
use palyra_skills::PublisherKey;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::ExitCode;

/// A key is one line.
const MAX_KEY: u64 = 4096;

/// Makes a key.
pub(super) fn keygen(out: &Path, format: Format) -> Result<ExitCode, Refusal> {
    let shown = safe(&out.display().to_string());
    let failed = |error: &std::io::Error| Refusal::io(&format!("`{shown}` cannot be written"), error);
    let key = PublisherKey::generate()?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(out);
    let mut file = file.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Refusal::refused(
            "file_exists",
            format!("`{shown}` is there already"),
            Some("a key that is replaced is lost: choose another name".to_owned()),
        ),
        _ => failed(&error),
    })?;
    file.write_all(key.to_text().expose()).and_then(|()| file.sync_all()).map_err(|error| failed(&error))?;
    let (key_id, public_key) = (key.key_id(), key.public());
    if format == Format::Json {
        say_json(&json!({ "key_id": key_id, "public_key": public_key.to_string(), "file": out }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for_people(format, &format!("The key is in {shown}. Keep it to yourself; it cannot be made again."));
    for_people(format, &format!("key id      {key_id}"));
    for_people(format, &format!("public key  {public_key}"));
    for_people(format, "\nTell people who install your skills the public key. They trust it with:");
    for_people(format, &format!("  palyra skills package verify FILE --trust PUBLISHER={public_key}"));
    Ok(ExitCode::SUCCESS)
}

/// Reads the key that signs.
pub(super) fn read(key: &SigningKey) -> Result<PublisherKey, Refusal> {
    let text = if key.key.as_os_str() == "-" {
        read_input(MAX_KEY)?
    } else {
        private(&key.key)?;
        read_file(&key.key, MAX_KEY)?
    };
    Ok(PublisherKey::parse(&Secret::new(text))?)
}

/// Refuses a key that others can read: whoever has it signs as this publisher.
fn private(path: &Path) -> Result<(), Refusal> {
    let shown = safe(&path.display().to_string());
    let status = std::fs::metadata(path).map_err(|error| Refusal::io(&format!("`{shown}` cannot be read"), &error))?;
    if status.is_file() && status.mode() & 0o077 != 0 {
        let mode = status.mode() & 0o777;
        return Err(Refusal::refused(
            "publisher_key_exposed",
            format!("`{shown}` can be read or changed by other users (mode {mode:o})"),
            Some(format!("run `chmod 600 {shown}`; if others may have read it, make a new key")),
        ));
    }
    Ok(())
}
