//! What can be typed after `palyra memory`.

use clap::Subcommand;
use palyra_protocol::{MemoryId, MemoryTrust};

#[derive(Debug, Subcommand)]
pub enum Memory {
    /// List what is remembered, newest last
    #[command(after_help = "Examples:
  palyra memory list
  palyra memory list --scope workspace
  palyra memory list --scope principal:agent:demo")]
    List {
        /// Only this scope: `principal` (your own), `workspace`, or a scope in full
        #[arg(long, value_name = "SCOPE", default_value = "")]
        scope: String,
    },
    /// Find entries by words, parts of words and identifiers
    #[command(after_help = "Examples:
  palyra memory search database tests
  palyra memory search resolve_with --limit 3")]
    Search {
        /// What to look for
        #[arg(required = true, value_name = "WORDS")]
        query: Vec<String>,
        /// Only this scope: `principal` (your own), `workspace`, or a scope in full
        #[arg(long, value_name = "SCOPE", default_value = "")]
        scope: String,
        /// How many entries at most
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=50))]
        limit: u32,
    },
    /// Show one entry: its text, who retained it, from which sources, and whether the journal agrees
    Show {
        /// The entry
        entry: MemoryId,
    },
    /// Have something remembered
    #[command(after_help = "Examples:
  palyra memory add 'The tests need a running database.' --scope workspace
  palyra memory add 'Prefers tea.' --scope principal:agent:demo
  palyra memory add 'The API allows 60 requests a minute.' --source https://api.example.com/docs

An entry with a source outside is trusted as `external`. `--trust` can lower the trust
further, and never raise it.")]
    Add {
        /// What to remember
        text: String,
        /// For whom: `principal` (you), `workspace`, or a scope in full
        #[arg(long, value_name = "SCOPE", default_value = "principal")]
        scope: String,
        /// Where it comes from
        #[arg(long, value_name = "TEXT")]
        source: Option<String>,
        /// How far it is trusted at most: external, agent or person
        #[arg(long, value_name = "TRUST")]
        trust: Option<MemoryTrust>,
    },
    /// Destroy an entry: its key and every copy of its text. The journal still verifies
    Forget {
        /// The entry
        entry: MemoryId,
    },
}
