//! Routines: calls and prompts on a schedule.

mod schedule;

pub use schedule::{CATCH_UP, Due, Schedule, ScheduleError};
