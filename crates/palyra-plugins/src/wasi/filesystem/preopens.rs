//! `wasi:filesystem/preopens`: the directories that a guest begins with.

use super::Descriptor;
use crate::bindings::wasi::filesystem::preopens;
use crate::guest::{Guest, HostCallKind};
use crate::names::WorkspacePath;
use std::sync::Arc;
use wasmtime::component::Resource;

/// Where the workspace is for a guest.
const WORKSPACE: &str = "/workspace";

fn guest_path(root: &WorkspacePath) -> String {
    root.names().fold(WORKSPACE.to_owned(), |path, name| format!("{path}/{name}"))
}

impl preopens::Host for Guest {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        self.count(HostCallKind::Files)?;
        let mut directories = Vec::new();
        for root in self.open_roots()? {
            let path = guest_path(&root.path);
            directories.push((self.hand(Descriptor(Arc::new(root)))?, path));
        }
        Ok(directories)
    }
}
