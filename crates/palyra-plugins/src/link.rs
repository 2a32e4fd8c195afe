//! Linking: which imports exist for a guest.
//!
//! Interfaces of WASI are always there, because toolchains import them by themselves; what they answer depends on the
//! grant. Our own `http`, `secrets` and `storage` are there only for a grant that names them. Nothing else exists.

use crate::bindings::{palyra, wasi};
use crate::denied;
use crate::error::PluginError;
use crate::grant::Interfaces;
use crate::guest::Guest;
use wasmtime::Engine;
use wasmtime::component::{Component, HasSelf, Linker};

/// Interfaces of WASI that the host answers, without their versions.
const SERVED: [&str; 22] = [
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:filesystem/types",
    "wasi:filesystem/preopens",
    "wasi:http/types",
    "wasi:http/outgoing-handler",
];

impl Interfaces {
    /// All of them: for asking a component to describe itself, which happens before anything is granted and with no
    /// door open.
    pub(crate) const ALL: Self = Self { http: true, secrets: true, storage: true };

    fn include(self, name: &str) -> Option<bool> {
        match name {
            "log" => Some(true),
            "http" => Some(self.http),
            "secrets" => Some(self.secrets),
            "storage" => Some(self.storage),
            _ => None,
        }
    }
}

/// Looks at every import of a component before anything is linked.
// INVARIANT (no_import_without_grant): a component that imports one of our interfaces is not linked unless its grant
// names that interface, and no import exists that is not listed here.
pub(crate) fn check_imports(component: &Component, engine: &Engine, granted: Interfaces) -> Result<(), PluginError> {
    for (import, _) in component.component_type().imports(engine) {
        let interface = import.split('@').next().unwrap_or(import);
        let known = match interface.strip_prefix("palyra:skill/") {
            Some(name) => granted.include(name),
            None => (SERVED.contains(&interface) || interface.starts_with(denied::DENIED)).then_some(true),
        };
        match known {
            Some(true) => {}
            Some(false) => return Err(PluginError::ImportNotGranted { import: import.to_owned() }),
            None => return Err(PluginError::UnknownImport { import: import.to_owned() }),
        }
    }
    Ok(())
}

/// Everything that exists for a guest with these interfaces.
pub(crate) fn linker(engine: &Engine, component: &Component, granted: Interfaces) -> wasmtime::Result<Linker<Guest>> {
    type Own = HasSelf<Guest>;
    fn own(guest: &mut Guest) -> &mut Guest {
        guest
    }
    let mut linker = Linker::new(engine);
    let to = &mut linker;
    wasi::io::error::add_to_linker::<_, Own>(to, own)?;
    wasi::io::poll::add_to_linker::<_, Own>(to, own)?;
    wasi::io::streams::add_to_linker::<_, Own>(to, own)?;
    wasi::clocks::monotonic_clock::add_to_linker::<_, Own>(to, own)?;
    wasi::clocks::wall_clock::add_to_linker::<_, Own>(to, own)?;
    wasi::random::random::add_to_linker::<_, Own>(to, own)?;
    wasi::random::insecure::add_to_linker::<_, Own>(to, own)?;
    wasi::random::insecure_seed::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::environment::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::exit::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::stdin::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::stdout::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::stderr::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::terminal_input::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::terminal_output::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::terminal_stdin::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::terminal_stdout::add_to_linker::<_, Own>(to, own)?;
    wasi::cli::terminal_stderr::add_to_linker::<_, Own>(to, own)?;
    wasi::filesystem::types::add_to_linker::<_, Own>(to, own)?;
    wasi::filesystem::preopens::add_to_linker::<_, Own>(to, own)?;
    wasi::http::types::add_to_linker::<_, Own>(to, &wasi::http::types::LinkOptions::default(), own)?;
    wasi::http::outgoing_handler::add_to_linker::<_, Own>(to, own)?;
    denied::link(to, component)?;
    palyra::skill::log::add_to_linker::<_, Own>(to, own)?;
    if granted.http {
        palyra::skill::http::add_to_linker::<_, Own>(to, own)?;
    }
    if granted.secrets {
        palyra::skill::secrets::add_to_linker::<_, Own>(to, own)?;
    }
    if granted.storage {
        palyra::skill::storage::add_to_linker::<_, Own>(to, own)?;
    }
    Ok(linker)
}
