//! What can be typed after `palyra effects` and `palyra undo`.

use clap::{Args, Subcommand};
use palyra_protocol::SessionId;

#[derive(Debug, Subcommand)]
pub enum Effects {
    /// List what calls changed, newest last, as far as it is kept
    List {
        /// Only calls of this session
        #[arg(long, value_name = "NAME")]
        session: Option<SessionId>,
    },
    /// Show what a call changed: every path, which changes wait for an approval, which were dropped
    #[command(after_help = "Examples:
  palyra effects show call_01K…
  palyra effects show --session work")]
    Show(Which),
    /// Show what a call changed as a unified difference
    #[command(after_help = "Examples:
  palyra effects diff call_01K…
  palyra effects diff call_01K… --path src
  palyra effects diff --session work")]
    Diff {
        #[command(flatten)]
        which: Which,
        /// Only this path, and what lies beneath it
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// The call, the run or the undo
    #[arg(value_name = "CALL")]
    pub id: Option<String>,
    /// The sum of a session's calls
    #[arg(long, value_name = "NAME")]
    pub session: Option<SessionId>,
}

impl Which {
    /// What the daemon is asked about.
    pub fn id(self) -> String {
        self.session.map(String::from).or(self.id).unwrap_or_default()
    }
}

/// Put back what a call, a run or a session changed in the workspace.
///
/// Files that were replaced or deleted come back with their permissions and times; files that are new go. What was
/// changed since stays as it is and is named. An undo is recorded, and can be undone by its own id.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra undo call_01K… --dry-run
  palyra undo call_01K…
  palyra undo work                  the session `work`, newest call first

Exit codes:
  0   everything was put back
  1   something was not, because it was changed since
  10  nothing is kept for it, or it was undone already")]
pub struct Undo {
    /// A call, a run, a session, or an earlier undo
    #[arg(value_name = "CALL|RUN|SESSION")]
    pub id: String,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}
