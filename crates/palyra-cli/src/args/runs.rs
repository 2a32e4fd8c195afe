//! What can be typed after `palyra run`, `palyra chat`, `palyra runs` and `palyra models`.

use clap::{Args, Subcommand};
use palyra_protocol::{RunId, SessionId};

/// Have a model work on something with Palyra's tools, and watch it; Ctrl-C ends the run
///
/// Every tool call that the model asks for is decided, approved where policy says so, sandboxed, attested and recorded
/// like any other. What the model says goes to standard output, what happens to standard error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra run \"fix the failing test\" --agent coder
  palyra run \"what changed since yesterday?\" --session work
  palyra run \"as before\" --model replay:run_01K…")]
pub struct Run {
    /// What is to be done; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    pub prompt: String,
    #[command(flatten)]
    pub who: Who,
    /// Return as soon as the run is on record
    #[arg(long)]
    pub detach: bool,
}

/// Talk with a model that uses Palyra's tools; approvals are answered in place
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra chat
  palyra chat --agent coder --session work

An empty line or Ctrl-D ends the chat; Ctrl-C ends the run that is under way.")]
pub struct Chat {
    #[command(flatten)]
    pub who: Who,
}

#[derive(Debug, Args)]
pub struct Who {
    /// The model: an alias, `provider/model`, or `replay:RUN` [default: the agent's, or `[models] default`]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The configured agent: its instructions, tools and budget
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Go on in this session: the model sees what was said in it
    #[arg(long, value_name = "NAME")]
    pub session: Option<SessionId>,
}

#[derive(Debug, Subcommand)]
pub enum Runs {
    /// List runs, newest first
    List {
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20)]
        most: u32,
    },
    /// Show a run: what was said, what its calls gave, what it used
    Show {
        /// The run
        run: RunId,
    },
    /// Follow a run that goes on
    Follow {
        /// The run
        run: RunId,
    },
    /// End a run, and what it started
    Cancel {
        /// The run
        run: RunId,
    },
    /// Carry a run on that was interrupted or failed, from its newest record
    Resume {
        /// The run
        run: RunId,
    },
}

#[derive(Debug, Subcommand)]
pub enum Models {
    /// List the names that can be asked: agents, aliases, models
    List,
    /// Ask a model for one word, to see whether it answers
    Test {
        /// The model [default: `[models] default`]
        model: Option<String>,
    },
}
