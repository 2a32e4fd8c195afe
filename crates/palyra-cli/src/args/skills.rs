//! `palyra skills`.

use super::managed_skills::Manage;
use clap::Subcommand;
use palyra_api::command_line::skills::AuthorCommand;

#[derive(Debug, Subcommand)]
pub enum Skills {
    /// What needs no daemon: `palyrad` does it.
    #[command(flatten)]
    Author(AuthorCommand),
    /// What the daemon does.
    #[command(flatten)]
    Manage(Manage),
}
