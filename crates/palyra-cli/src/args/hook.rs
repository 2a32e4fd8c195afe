//! `palyra hook` and `palyra redeem`: what a connected client runs. People type neither.

use super::connect::Client;
use clap::Args;
use palyra_protocol::Ticket;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Hook {
    /// The client that asks
    #[arg(long, value_enum)]
    pub client: Client,
    /// A file that holds the agent's token and nothing else
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// The directory that the client was connected in
    #[arg(long, value_name = "DIR")]
    pub workspace: PathBuf,
}

#[derive(Debug, Args)]
pub struct Redeem {
    /// The ticket that the hook was given for an allowed command
    pub ticket: String,
    /// Write the directory that the command ended in to this descriptor
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(3..=9))]
    pub directory_fd: Option<i32>,
}

impl Redeem {
    /// The ticket, if it is one.
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket.parse().ok()
    }
}
