//! What can be typed after `palyra console`.

use clap::{Args, Subcommand};
use palyra_protocol::ConsoleId;

/// Open the console in a browser: what waits, calls, grants, rules, the journal
///
/// The daemon makes a code that opens once, within two minutes. The page makes a key that never leaves its browser, and
/// signs with it everything it asks and everything you decide there. There is no password and no cookie.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra console                         open it in the default browser
  palyra console --print                 only print the address, for another browser
  palyra console sessions list           which browsers are in
  palyra console sessions revoke con_01K…
  palyra console sessions revoke --all")]
pub struct Console {
    /// Only print the address; its code opens once, within two minutes
    #[arg(long)]
    pub print: bool,
    #[command(subcommand)]
    pub command: Option<ConsoleCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ConsoleCommand {
    /// See which browsers are in, and end their sessions
    #[command(subcommand)]
    Sessions(Sessions),
    /// See the passkeys that confirm decisions, and take one away; they are added in the console
    #[command(subcommand)]
    Passkeys(Passkeys),
}

#[derive(Debug, Subcommand)]
pub enum Passkeys {
    /// List them
    List,
    /// Take one away: it confirms nothing from then on
    Remove {
        /// The passkey, by its id
        #[arg(value_name = "PASSKEY")]
        passkey: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Sessions {
    /// List the sessions that are open
    List,
    /// End sessions: their pages get nothing from then on
    Revoke {
        /// The sessions
        #[arg(value_name = "SESSION", required_unless_present = "all")]
        sessions: Vec<ConsoleId>,
        /// All of them
        #[arg(long, conflicts_with = "sessions")]
        all: bool,
    },
}
