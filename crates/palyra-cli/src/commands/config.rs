//! `palyra config`: where the configuration is, what it says, and whether the daemon would start on it.

use super::up::daemon_binary;
use crate::args::Config;
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use crate::output::{self, DIM, GOOD, note, say, styled};
use crate::text::{safe, safe_lines};
use palyra_api::LastStart;
use palyra_api::v1::StatusRequest;
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;

/// The largest file that is shown.
const MAX_SHOWN: u64 = 1 << 20;

pub async fn run(context: &Context, command: Config) -> Result<(), Failure> {
    match command {
        Config::Path { config } => {
            let (path, why) = path(context, config).await?;
            if context.json() {
                return output::json(&json!({ "path": path, "exists": path.exists(), "because": why }));
            }
            say!("{}", safe(&path.to_string_lossy()));
            note!(
                "{}",
                styled(DIM, if path.exists() { why } else { "there is no such file; everything is at its default" })
            );
            Ok(())
        }
        Config::Show { config } => show(context, path(context, config).await?.0),
        Config::Check { config, workspace } => check(context, path(context, config).await?.0, workspace),
    }
}

/// The file that counts: the one that was named, the running daemon's, or the one that a start would read.
async fn path(context: &Context, named: Option<PathBuf>) -> Result<(PathBuf, &'static str), Failure> {
    if let Some(path) = named {
        return Ok((path, "this one was named"));
    }
    if let Ok(connection) = context.connect().await
        && let Ok(status) = connection.daemon().status(StatusRequest { probe_sandbox: false }).await
        && let path = status.into_inner().config_path
        && !path.is_empty()
    {
        return Ok((PathBuf::from(path), "the running daemon read this one"));
    }
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let base = base.ok_or_else(|| {
        Failure::new(FAILED, "no_home", "there is no home directory", Some("say where the file is: `--config FILE`"))
    })?;
    Ok((base.join("palyra/palyra.toml"), "a start reads this one"))
}

fn show(context: &Context, path: PathBuf) -> Result<(), Failure> {
    let size = std::fs::metadata(&path).map_or(0, |file| file.len());
    if size > MAX_SHOWN {
        return Err(Failure::new(FAILED, "io", format!("`{}` has {size} bytes", safe(&path.to_string_lossy())), None));
    }
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::io(&format!("`{}`", safe(&path.to_string_lossy())), &error)),
    };
    if context.json() {
        return output::json(&json!({ "path": path, "text": text }));
    }
    match text {
        Some(text) => say!("{}", safe_lines(text.trim_end())),
        None => note!("there is no `{}`; everything is at its default", safe(&path.to_string_lossy())),
    }
    Ok(())
}

/// Has `palyrad` read and check the file, and the rules that it names.
fn check(context: &Context, path: PathBuf, workspace: Option<PathBuf>) -> Result<(), Failure> {
    let mut command = Command::new(daemon_binary()?);
    command.arg("--state-dir").arg(&context.state_dir);
    // A last start that cannot be read decides nothing here.
    let last = || LastStart::read(&context.state_dir).ok().flatten().map(|last| last.workspace);
    if let Some(workspace) = workspace.or_else(last) {
        command.arg("--workspace").arg(workspace);
    }
    if path.exists() {
        command.arg("--config").arg(&path);
    }
    let done = command.arg("check").output().map_err(|e| Failure::io("`palyrad` cannot be started", &e))?;
    let said = String::from_utf8_lossy(if done.status.success() { &done.stdout } else { &done.stderr }).into_owned();
    if !done.status.success() {
        let why = said.trim().trim_start_matches("error: ");
        let message = format!("the daemon would not start on `{}`: {why}", path.display());
        let hint = path.exists().then_some("mend the file, then check it again");
        return Err(Failure::new(FAILED, "config_refused", message, hint));
    }
    if context.json() {
        return output::json(&json!({ "path": path, "ok": true, "said": said.trim() }));
    }
    say!("{} {}", styled(GOOD, "✔"), safe(&path.to_string_lossy()));
    if !said.trim().is_empty() {
        note!("{}", styled(DIM, safe_lines(said.trim())));
    }
    Ok(())
}
