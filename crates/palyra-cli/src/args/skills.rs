//! `palyra skills`.

use super::managed_skills::Manage;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Skills {
    /// What the daemon does.
    #[command(flatten)]
    Manage(Manage),
}
