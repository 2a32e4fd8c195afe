//! Installing and updating: the artifact goes to the daemon in pieces, and progress comes back.

use super::{done, show, text, told};
use crate::args::managed_skills::{Install, Update};
use crate::commands::vault::prompt;
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use crate::output::{self, DIM, WARN, note, say, styled};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{InstallSkillNews, SkillChunk};
use serde_json::Value;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

/// The size of a piece.
const PIECE: usize = 1 << 20;
/// The largest artifact that is read.
const MOST_BYTES: u64 = 128 << 20;

fn artifact(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::io(&format!("`{}`", path.display()), &error);
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        std::fs::File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Failure::usage(format!("an artifact has at most {} MiB", MOST_BYTES >> 20), "name another file"));
    }
    Ok(bytes)
}

/// The pieces of an artifact; the first carries the options.
fn pieces(bytes: &[u8], allow_tofu: bool, accept_changes: bool) -> Vec<SkillChunk> {
    let mut pieces: Vec<SkillChunk> =
        bytes.chunks(PIECE).map(|piece| SkillChunk { bytes: piece.to_vec(), ..SkillChunk::default() }).collect();
    if pieces.is_empty() {
        pieces.push(SkillChunk::default());
    }
    if let Some(first) = pieces.first_mut() {
        (first.allow_tofu, first.accept_changes) = (allow_tofu, accept_changes);
    }
    pieces
}

/// What the daemon says about a file that is not installed.
pub(super) async fn examined(connection: &Connection, path: &Path) -> Result<Value, Failure> {
    let bytes = artifact(path)?;
    told(connection.skills().examine(tokio_stream::iter(pieces(&bytes, false, false))).await?)
}

pub(super) async fn install(context: &Context, connection: &Connection, command: Install) -> Result<(), Failure> {
    let Install { file, allow_tofu, accept_changes } = command;
    let bytes = artifact(&file)?;
    let info = sent(context, connection, pieces(&bytes, allow_tofu, accept_changes)).await?;
    installed(context, &info)
}

pub(super) async fn update(context: &Context, connection: &Connection, command: Update) -> Result<(), Failure> {
    let Update { file, accept_changes } = command;
    let bytes = artifact(&file)?;
    let looked = told(connection.skills().examine(tokio_stream::iter(pieces(&bytes, false, false))).await?)?;
    let changes = &looked["changes"];
    if changes.is_null() {
        let hint = "`palyra skills install` installs a skill, `palyra skills list` shows which run";
        let message = "no other version of this skill runs, so there is nothing to update";
        return Err(Failure::new(FAILED, "skill_nothing_to_update", message, Some(hint)));
    }
    let mut accepted = accept_changes;
    if !context.json() {
        show::diff(context, changes)?;
        let widens = changes["widens"].as_bool().unwrap_or(true);
        if widens && !accepted && std::io::stdin().is_terminal() {
            accepted = prompt::confirmed("This version may do more than the one that runs. Accept that?")?;
            if !accepted {
                return Err(Failure::new(FAILED, "skill_update_declined", "nothing was changed", None));
            }
        }
    }
    let info = sent(context, connection, pieces(&bytes, false, accepted)).await?;
    installed(context, &info)
}

/// Sends an artifact and shows how far its installation is; gives what is known of it at the end.
async fn sent(context: &Context, connection: &Connection, pieces: Vec<SkillChunk>) -> Result<Value, Failure> {
    let mut news = connection.skills().install(tokio_stream::iter(pieces)).await?.into_inner();
    let shows = !context.json() && std::io::stderr().is_terminal();
    let (mut step_before, mut tenth_before) = (String::new(), u64::MAX);
    while let Some(InstallSkillNews { step, module, done, functions, document_json }) = news.message().await? {
        if !document_json.is_empty() {
            return super::read(&document_json);
        }
        let tenth = (done * 10).checked_div(functions).unwrap_or(0);
        if shows && (step != step_before || tenth != tenth_before) {
            let progress = if functions > 0 {
                format!(" {} {done} of {functions} functions", safe(&module))
            } else {
                String::new()
            };
            note!("{}", styled(DIM, format!("{}{progress}", safe(&step))));
        }
        (step_before, tenth_before) = (step, tenth);
    }
    Err(Failure::new(FAILED, "skill_install_cut_off", "the daemon did not say how the installation ended", None))
}

/// Says what was installed, and what is missing before its tools can be called.
fn installed(context: &Context, info: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(info);
    }
    if text(info, "/runtime_status") == "quarantined" {
        let reason = safe(text(info, "/reason"));
        say!(
            "{} {} {} is installed and quarantined: {reason}",
            styled(WARN, "!"),
            safe(text(info, "/skill")),
            safe(text(info, "/version"))
        );
        return Ok(());
    }
    done(context, info, "is installed and eligible")?;
    let tools = info["tools_listed"].as_array().map_or(&[][..], Vec::as_slice);
    for tool in tools {
        let allowed = tool["allowed"].as_bool().unwrap_or(false);
        let hint = if allowed { "" } else { "  not in `allowed_tools` of palyra.toml, so policy denies it" };
        say!("  {}{}", safe(text(tool, "/name")), styled(WARN, hint));
    }
    for withheld in info.pointer("/grant/withheld").and_then(Value::as_array).into_iter().flatten() {
        say!("  {} {}", styled(WARN, "withheld"), show::withheld(withheld));
    }
    Ok(())
}
