//! What can be typed after `palyra routines`.

use clap::{Args, Subcommand};
use palyra_protocol::Principal;

#[derive(Debug, Subcommand)]
pub enum Routines {
    /// Add a routine: a tool call or a task on a schedule, in an agent's name
    Add(Box<Add>),
    /// List the routines, and when each is due
    List,
    /// Show one routine: its plan, when it is due, which of its calls wait
    Show(Which),
    /// Have a routine not run by itself
    Pause {
        #[command(flatten)]
        which: Which,
        /// Why
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Have a paused routine run by itself again; what it missed stays missed
    Resume(Which),
    /// Run a routine now and follow it
    Run {
        #[command(flatten)]
        which: Which,
        /// Do not wait for its end
        #[arg(long)]
        detach: bool,
    },
    /// Run a routine once under watch: what you approve is allowed to it from then on
    #[command(after_help = "A yes to a rehearsed call is a grant for this routine as it is, by its plan's digest.
A routine that would do anything else asks again. `palyra grants list` shows the grants.")]
    Rehearse(Which),
    /// Remove a routine
    Remove(Which),
    /// Show what became of a routine's slots
    History {
        #[command(flatten)]
        which: Which,
        /// How many slots at most
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
        limit: u32,
    },
}

#[derive(Debug, Args)]
pub struct Which {
    /// The routine's name or id
    #[arg(value_name = "ROUTINE")]
    pub routine: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra routines add nightly --schedule '30 2 * * *' --zone Europe/Prague --agent agent:reporter \\
      --call palyra.process.run --input '{\"argv\":[\"make\",\"report\"]}'
  palyra routines add review --schedule '0 9 * * mon-fri' --agent agent:coder --prompt 'Read the new commits.' --max-tokens 50000
  palyra routines add ping --schedule @hourly --agent agent:probe --call palyra.http.fetch --input @fetch.json

Schedules have five fields: minute, hour, day of the month, month, day of the week.
Where the clock jumps over a time, the routine runs right after the jump. A fixed time that
comes twice runs once; a pattern with `*` in minutes or hours runs both times.")]
pub struct Add {
    /// What to call it
    pub name: String,
    /// When: a cron pattern of five fields, or @hourly, @daily, @weekly, @monthly
    #[arg(long, value_name = "CRON")]
    pub schedule: String,
    /// The time zone, by its name; UTC where nothing is said
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub zone: String,
    /// The agent in whose name it runs
    #[arg(long, value_name = "AGENT")]
    pub agent: Principal,
    /// The tool to call
    #[arg(long, value_name = "TOOL", required_unless_present = "prompt")]
    pub call: Option<String>,
    /// The tool's input: JSON, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "JSON", default_value = "{}", requires = "call")]
    pub input: String,
    /// A task for the agent instead of a call
    #[arg(long, value_name = "TEXT", conflicts_with = "call")]
    pub prompt: Option<String>,
    /// The model for the task
    #[arg(long, value_name = "MODEL", requires = "prompt")]
    pub model: Option<String>,
    /// The most slots that run in 24 hours
    #[arg(long, value_name = "N", default_value_t = 1440, value_parser = clap::value_parser!(u32).range(1..))]
    pub slots_per_day: u32,
    /// The most tool calls of one prompt; never more than the agent's own budget
    #[arg(long, value_name = "N", requires = "prompt")]
    pub max_calls: Option<u64>,
    /// The most calls to the model of one prompt
    #[arg(long, value_name = "N", requires = "prompt")]
    pub max_model_calls: Option<u64>,
    /// The most tokens of one prompt
    #[arg(long, value_name = "N", requires = "prompt")]
    pub max_tokens: Option<u64>,
    /// The most seconds of one prompt, without the time in which a person is asked
    #[arg(long, value_name = "N", requires = "prompt")]
    pub max_seconds: Option<u64>,
}
