//! The host of guests for one command: compiled code is kept between commands, so that only a changed component is
//! compiled.

use super::refusal::Refusal;
use crate::printing::tell;
use palyra_api::command_line::Format;
use palyra_plugins::{CodeCacheSettings, CompileProgress, HostSettings, Plugin, PluginHost, WasmPluginRunnerPolicy};
use palyra_protocol::{DaemonKey, Digest, Secret};
use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The length of the secret that says which compiled code is ours.
const SECRET_BYTES: usize = 32;

/// A host under this policy.
pub(super) fn host(policy: WasmPluginRunnerPolicy) -> Result<PluginHost, Refusal> {
    let code_cache = cache_directory().and_then(|directory| {
        // Without a place of its own nothing is kept: every command compiles.
        let secret = secret_in(&directory)?;
        Some(CodeCacheSettings { directory: directory.join("code"), secret })
    });
    Ok(PluginHost::new(HostSettings { code_cache, ..HostSettings::new(policy) })?)
}

/// Loads a component, and says how far compiling is.
pub(super) fn load(host: &PluginHost, component: &Vec<u8>, format: Format) -> Result<Arc<Plugin>, Refusal> {
    let shows = format == Format::Text && std::io::stderr().is_terminal();
    let mut announced = false;
    let mut on_progress = |progress: CompileProgress| {
        if !shows {
            return;
        }
        if let CompileProgress::Compiled { done, functions } = progress {
            announced = true;
            let percent = (done * 100).checked_div(functions).unwrap_or(100).min(100);
            drop(write!(std::io::stderr(), "\rcompiling {percent:>3} %"));
        }
    };
    let loaded = host.load(Digest::of(component), component, &mut on_progress);
    if announced {
        tell("\rcompiled.      ");
    }
    Ok(loaded?)
}

fn cache_directory() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".cache")))?;
    let directory = base.join("palyra/skills");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    let status = directory.symlink_metadata().ok()?;
    let own = status.is_dir() && status.uid() == rustix::process::geteuid().as_raw() && status.mode() & 0o022 == 0;
    own.then_some(directory)
}

/// The secret of this user's cache; made by the first command.
fn secret_in(directory: &Path) -> Option<Secret> {
    let path = directory.join("key");
    if let Ok(mut file) = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        let made = DaemonKey::generate().ok()?.seed();
        if file.write_all(made.expose()).and_then(|()| file.sync_all()).is_err() {
            // A key that was cut off would be taken for one.
            drop(std::fs::remove_file(&path));
            return None;
        }
        return Some(made);
    }
    let file =
        OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(&path).ok()?;
    let status = file.metadata().ok()?;
    let private = status.is_file() && status.uid() == rustix::process::geteuid().as_raw() && status.mode() & 0o077 == 0;
    let mut bytes = Vec::new();
    file.take(SECRET_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
    (private && bytes.len() == SECRET_BYTES).then(|| Secret::new(bytes))
}
