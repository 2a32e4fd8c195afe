//! What can be typed after `palyra workspaces`.

use clap::Subcommand;
use std::path::PathBuf;

/// What every help of these commands begins with.
pub const ABOUT: &str = "Say in which directories agents may work

A workspace is a directory that is registered with the daemon. Each has tools, effects, sessions, grants and tokens of its
own: a client that was connected in one never works in another. `palyra` in a directory means the workspace that the
directory lies in; `palyra --workspace DIR …` names another one.

`palyra up`, `palyra init` and `palyra connect` register the directory that they are used in.";

#[derive(Debug, Subcommand)]
pub enum Workspaces {
    /// Register a directory
    ///
    /// Registering one again is safe. Where another directory has taken the place of a workspace's, this accepts the one
    /// that is there now. Refused are directories that hold the daemon's state, its rules or another workspace, and
    /// those that lie in one.
    #[command(after_help = "Examples:
  palyra workspaces add
  palyra workspaces add ~/projects/shop")]
    Add {
        /// The directory
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
    },
    /// List the registered workspaces, each with what is wrong there
    List,
    /// Remove a workspace: its tokens are revoked, and its files stay
    ///
    /// Refused while a call is under way there or an approval waits, and for the workspace that the daemon was started
    /// with.
    #[command(after_help = "Examples:
  palyra workspaces remove ~/projects/shop
  palyra workspaces remove ws_01K…")]
    Remove {
        /// The workspace, by its directory or its id
        #[arg(value_name = "WORKSPACE")]
        workspace: String,
    },
}
