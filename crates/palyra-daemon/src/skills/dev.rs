//! `skills dev`: builds and calls a tool again whenever a source changes.

use super::build::MADE;
use super::interrupt::{Interrupt, interruptible};
use super::refusal::{Refusal, USAGE};
use super::{for_people, trial};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::Dev;
use palyra_protocol::display::safe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// An editor writes a file in several steps; they count as one change.
const QUIET: Duration = Duration::from_millis(150);

enum News {
    Changed,
    End,
}

/// Builds and calls until Ctrl-C.
pub(super) fn dev(dev: Dev, format: Format) -> Result<ExitCode, Refusal> {
    if dev.trial.input == "-" {
        let hint = "give the input itself, or `--input @FILE`, which is read again for every call";
        return Err(Refusal::usage("standard input can be read only once", hint));
    }
    interruptible(move |interrupt| {
        let directory = dev
            .directory
            .canonicalize()
            .map_err(|error| Refusal::io(&format!("`{}` cannot be found", dev.directory.display()), &error))?;
        let (sender, news) = channel();
        let mut watch = Watch::new(directory, sender.clone())?;
        while !interrupt.is_told() {
            // A directory that was made since is watched too.
            watch.attach();
            if let Err(refusal) = cycle(&dev, format, interrupt) {
                if refusal.exit == USAGE {
                    return Err(refusal);
                }
                refusal.tell(format);
            }
            for_people(format, &format!("\nwatching {} …", safe(&watch.directory.display().to_string())));
            let own = sender.clone();
            interrupt.during(move || drop(own.send(News::End)), || wait(&news));
        }
        Err(Refusal::interrupted())
    })
}

/// One build and one call.
fn cycle(dev: &Dev, format: Format, interrupt: &Interrupt) -> Result<(), Refusal> {
    let input = trial::input_of(&dev.trial)?;
    let subject = trial::Subject::read(&dev.directory, &dev.compilers)?;
    let outcome = trial::call(&subject, &dev.trial, &input, format, interrupt)?;
    trial::print(&subject, &outcome, format)?;
    outcome.output.map(drop)
}

/// Waits for a change, and until nothing has changed for a moment.
fn wait(news: &Receiver<News>) {
    let Ok(News::Changed) = news.recv() else { return };
    loop {
        match news.recv_timeout(QUIET) {
            Ok(News::Changed) => {}
            Ok(News::End) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The kernel's watch over what an author writes.
struct Watch {
    directory: PathBuf,
    watcher: RecommendedWatcher,
}

impl Watch {
    fn new(directory: PathBuf, sender: Sender<News>) -> Result<Self, Refusal> {
        let base = directory.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let matters = match &event {
                Ok(Event { kind: EventKind::Access(_), .. }) => false,
                Ok(event) => event.need_rescan() || event.paths.iter().any(|path| is_source(&base, path)),
                Err(_) => true,
            };
            if matters {
                // The command may have ended.
                drop(sender.send(News::Changed));
            }
        });
        let watcher =
            watcher.map_err(|error| Refusal::new(super::refusal::FAILED, "watch", error.to_string(), None))?;
        Ok(Self { directory, watcher })
    }

    /// Watches the directory and every one in it that an author writes.
    fn attach(&mut self) {
        let inside = std::fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let inside: Vec<PathBuf> =
            inside.filter(|path| is_source(&self.directory, path) && !path.is_symlink() && path.is_dir()).collect();
        let places = std::iter::once((self.directory.clone(), RecursiveMode::NonRecursive))
            .chain(inside.into_iter().map(|path| (path, RecursiveMode::Recursive)));
        for (path, mode) in places {
            if let Err(error) = self.watcher.watch(&path, mode) {
                crate::printing::tell(&format!(
                    "warning: `{}` is not watched: {}",
                    safe(&path.display().to_string()),
                    safe(&error.to_string())
                ));
            }
        }
    }
}

/// Whether a path is something that an author writes.
fn is_source(base: &Path, path: &Path) -> bool {
    let Ok(inside) = path.strip_prefix(base) else { return false };
    let mut names = inside.components().map(|name| name.as_os_str());
    let made = names.clone().any(|name| MADE.iter().any(|made| name == *made));
    let hidden = names.any(|name| name.to_string_lossy().starts_with('.'));
    let packed = path.extension().is_some_and(|extension| extension == "palyra-skill" || extension == "key");
    !made && !hidden && !packed && !inside.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_author_writes_counts_as_a_change() {
        let base = Path::new("/s");
        for source in ["skill.c", "src/lib.rs", "skill.toml", "assets/a/b.txt"] {
            assert!(is_source(base, &base.join(source)), "{source}");
        }
        for made in ["modules/x.wasm", "target/a", ".git/index", "src/.x.swp", "a.palyra-skill", "Cargo.lock", ""] {
            assert!(!is_source(base, &base.join(made)), "{made}");
        }
        assert!(!is_source(base, Path::new("/other/skill.c")));
    }
}
