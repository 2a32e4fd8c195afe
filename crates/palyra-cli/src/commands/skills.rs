//! `palyra skills`.

use super::managed_skills;
use crate::args::skills::Skills;
use crate::context::Context;
use crate::exit::Failure;

pub async fn run(context: &Context, command: Skills) -> Result<(), Failure> {
    match command {
        Skills::Manage(command) => managed_skills::run(context, command).await,
    }
}
