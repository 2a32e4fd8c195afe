//! `skills build`: sources become the component that the manifest names.

use super::compare::{Difference, differences};
use super::refusal::Refusal;
use super::{for_people, guest, read_file, say_json, show};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::{Build, Compilers};
use palyra_plugins::WasmPluginRunnerPolicy;
use palyra_plugins_build::{Project, Toolchains};
use palyra_protocol::Digest;
use palyra_protocol::display::safe;
use palyra_skills::Manifest;
use palyra_skills::constants::{MANIFEST_ENTRY, MAX_MANIFEST_BYTES};
use palyra_skills::manifest::SkillKind;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// What compilers and packagers leave in a skill's directory, and no author writes.
pub(super) const MADE: [&str; 7] = ["target", "modules", "node_modules", ".venv", "__pycache__", ".git", "Cargo.lock"];

/// A skill's directory.
pub(super) struct Workshop {
    pub(super) directory: PathBuf,
    pub(super) manifest_text: Vec<u8>,
    pub(super) manifest: Manifest,
}

/// A component that was built.
pub(super) struct Component {
    /// Its entry: `modules/name.wasm`.
    pub(super) entry: String,
    pub(super) bytes: Vec<u8>,
}

impl Workshop {
    /// Reads the manifest of a skill's directory.
    pub(super) fn open(directory: &Path) -> Result<Self, Refusal> {
        let path = directory.join(MANIFEST_ENTRY);
        if !path.is_file() {
            return Err(Refusal::refused(
                "source_missing",
                format!("`{}` is missing", path.display()),
                Some("a skill's directory has a `skill.toml`; begin with `palyra skills new`".to_owned()),
            ));
        }
        let manifest_text = read_file(&path, MAX_MANIFEST_BYTES as u64)?;
        let manifest = Manifest::parse(&manifest_text)?;
        if manifest.kind == SkillKind::Instructions {
            return Err(Refusal::refused(
                "skill_is_instructions",
                "a skill of kind `instructions` has scripts and no component",
                Some("its scripts run as sandboxed processes, once a daemon has installed it".to_owned()),
            ));
        }
        Ok(Self { directory: directory.to_owned(), manifest_text, manifest })
    }

    /// The one module that sources are built into.
    fn entry(&self) -> Result<String, Refusal> {
        let entries = self.manifest.code_entries();
        match entries.iter().copied().collect::<Vec<_>>().as_slice() {
            [one] => Ok((*one).to_owned()),
            _ => Err(Refusal::refused(
                "skill_several_modules",
                "the manifest names several modules; sources are built into one",
                Some("build each module by itself and put it below `modules/`".to_owned()),
            )),
        }
    }

    /// Whether there are sources that are newer than the module, or a module is missing.
    pub(super) fn needs_building(&self) -> bool {
        let entries = self.manifest.code_entries();
        let missing = entries.iter().any(|entry| !self.directory.join(entry).is_file());
        let stale = || stale_module(&self.directory, &self.manifest).is_some();
        Project::find(&self.directory).is_ok() && (missing || stale())
    }

    /// Compiles the sources.
    pub(super) fn compile(&self, compilers: &Compilers) -> Result<Component, Refusal> {
        let entry = self.entry()?;
        let project = Project::find(&self.directory)?;
        let work = compilers.work.clone().unwrap_or_else(|| self.directory.join("target/palyra"));
        let toolchains = Toolchains {
            python_environment: compilers.tools.as_ref().map(|tools| tools.join("python")),
            node_directory: compilers.tools.clone(),
        };
        let bytes = palyra_plugins_build::build(&project, &work, &toolchains)?;
        Ok(Component { entry, bytes })
    }

    /// Puts a component where the manifest says; whole or not at all.
    pub(super) fn store(&self, component: &Component) -> Result<PathBuf, Refusal> {
        let path = self.directory.join(&component.entry);
        let failed = |error: std::io::Error| Refusal::io(&format!("`{}` cannot be written", path.display()), &error);
        let folder = path.parent().unwrap_or(&self.directory);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut prepared = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        std::io::Write::write_all(&mut prepared, &component.bytes).map_err(failed)?;
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        prepared.as_file().set_permissions(readable).map_err(failed)?;
        prepared.persist(&path).map_err(|error| failed(error.error))?;
        Ok(path)
    }
}

/// Builds, asks the component which tools it has, and compares them with the manifest.
pub(super) fn build(build: &Build, format: Format) -> Result<ExitCode, Refusal> {
    let workshop = Workshop::open(&build.directory)?;
    let component = workshop.compile(&build.compilers)?;
    let host = guest::host(WasmPluginRunnerPolicy::default())?;
    let plugin = guest::load(&host, &component.bytes, format)?;
    let described = host.describe(&plugin)?;
    let differences = differences(&workshop.manifest, &component.entry, &described);
    let path = workshop.store(&component)?;
    if format == Format::Json {
        say_json(&json!({
            "module": path,
            "bytes": component.bytes.len(),
            "sha256": Digest::of(&component.bytes),
            "tools": described.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
            "imports": plugin.interface().imports,
            "differences": differences,
        }))?;
    } else {
        let shown = safe(&path.display().to_string());
        for_people(format, &format!("{shown}: {}", show::size(component.bytes.len())));
        let tools: Vec<String> = described.iter().map(|tool| safe(&tool.name)).collect();
        for_people(format, &format!("tools       {}", tools.join(", ")));
        warn(&differences);
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells where code and manifest disagree.
pub(super) fn warn(differences: &[Difference]) {
    for difference in differences {
        crate::printing::tell(&format!("warning: {}", safe(&difference.message)));
        if let Some(snippet) = &difference.snippet {
            crate::printing::tell(&palyra_protocol::display::safe_lines(snippet));
        }
    }
}

/// A module that is older than a source beside it.
pub(super) fn stale_module(directory: &Path, manifest: &Manifest) -> Option<String> {
    Project::find(directory).ok()?;
    let sources = newest(directory, 0)?;
    let changed = |entry: &&str| directory.join(entry).metadata().and_then(|status| status.modified()).ok();
    let entries = manifest.code_entries();
    let stale = entries.iter().find(|entry| changed(entry).is_some_and(|built| built < sources))?;
    Some((*stale).to_owned())
}

/// When a source was last changed. The manifest is none: it is packed as it stands.
fn newest(directory: &Path, depth: usize) -> Option<SystemTime> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let is_source = |name: &std::ffi::OsStr| {
        let made = MADE.iter().any(|made| name == *made);
        !made && name != MANIFEST_ENTRY && !name.to_string_lossy().starts_with('.')
    };
    let changed = |entry: std::fs::DirEntry| {
        let status = entry.path().symlink_metadata().ok()?;
        match status.is_dir() {
            true if depth < 8 => newest(&entry.path(), depth + 1),
            true => None,
            false if entry.path().extension().is_some_and(|e| e == "palyra-skill" || e == "key") => None,
            false => status.modified().ok(),
        }
    };
    entries.filter(|entry| is_source(&entry.file_name())).filter_map(changed).max()
}
