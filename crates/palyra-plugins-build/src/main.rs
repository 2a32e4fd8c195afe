//! Builds a directory of skills: what `cargo xtask skills` runs.
//!
//! `palyra-plugins-build SKILLS OUTPUT [--python DIR] [--node DIR]`: every directory below SKILLS with sources becomes
//! `OUTPUT/<name>.wasm`, and so does every `.wat` file of a directory that has no other sources. What is newer than its
//! sources is left as it is.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool for developers talks to them")]

use palyra_plugins_build::{BuildError, Language, Project, Toolchains, build, component_of_text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

/// What every component depends on, besides its own sources.
const SHARED: [&str; 3] = ["wit", "sdk", "crates/palyra-plugins-build/src"];

fn main() -> ExitCode {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [skills, output, options @ ..] = words.as_slice() else {
        eprintln!("usage: palyra-plugins-build SKILLS OUTPUT [--python DIR] [--node DIR]");
        return ExitCode::from(2);
    };
    let mut toolchains = Toolchains::default();
    for option in options.chunks(2) {
        match option {
            [name, value] if name.as_os_str() == "--python" => toolchains.python_environment = Some(value.clone()),
            [name, value] if name.as_os_str() == "--node" => toolchains.node_directory = Some(value.clone()),
            _ => {
                eprintln!("error: `{}` is no option", option[0].display());
                return ExitCode::from(2);
            }
        }
    }
    match build_all(skills, output, &toolchains) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("\nhint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build_all(skills: &Path, output: &Path, toolchains: &Toolchains) -> Result<(), BuildError> {
    fs::create_dir_all(output).map_err(io("create", output))?;
    let shared = SHARED.iter().filter_map(|path| newest(Path::new(path))).max();
    for directory in entries(skills)?.into_iter().filter(|path| path.is_dir()) {
        let name = file_stem(&directory);
        let own = newest(&directory).max(shared);
        match Project::find(&directory) {
            Ok(project) => {
                // Rust skills share their libraries, the standard one above all.
                let shared = project.language == Language::Rust;
                let work = output.join("work").join(if shared { "rust" } else { name.as_str() });
                let make = || build(&project, &work, toolchains);
                one(&output.join(format!("{name}.wasm")), own, make)?;
            }
            Err(_) => {
                for text in entries(&directory)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "wat"))
                {
                    let component = output.join(&name).join(format!("{}.wasm", file_stem(&text)));
                    let make = || {
                        fs::create_dir_all(output.join(&name)).map_err(io("create", output))?;
                        component_of_text(&fs::read_to_string(&text).map_err(io("read", &text))?)
                    };
                    one(&component, own, make)?;
                }
            }
        }
    }
    Ok(())
}

/// Builds one component, unless it is newer than everything that it is made from.
fn one(
    component: &Path,
    sources: Option<SystemTime>,
    make: impl FnOnce() -> Result<Vec<u8>, BuildError>,
) -> Result<(), BuildError> {
    let built = fs::metadata(component).and_then(|metadata| metadata.modified()).ok();
    if built.is_some() && built >= sources {
        return Ok(());
    }
    let started = Instant::now();
    let bytes = make()?;
    fs::write(component, &bytes).map_err(io("write", component))?;
    let (size, seconds) = (bytes.len().div_ceil(1024), started.elapsed().as_secs_f64());
    println!("{:<44} {size:>7} KiB {seconds:>6.1} s", component.display());
    Ok(())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let read = fs::read_dir(directory).map_err(io("read", directory))?;
    let mut found = Vec::new();
    for entry in read {
        found.push(entry.map_err(io("read", directory))?.path());
    }
    found.sort();
    Ok(found)
}

fn file_stem(path: &Path) -> String {
    path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// When anything below a path was last changed; what compilers leave behind does not count.
fn newest(path: &Path) -> Option<SystemTime> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_dir() {
        return metadata.modified().ok();
    }
    let skipped = ["target", "node_modules", ".venv", "__pycache__", "Cargo.lock"];
    let entries = fs::read_dir(path).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| !skipped.iter().any(|name| path.ends_with(name))).filter_map(|path| newest(&path)).max()
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Io { action, path, source }
}
