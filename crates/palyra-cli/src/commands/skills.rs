//! `palyra skills`: what an author does is handed over to `palyrad`, which has compilers, packages and the host of
//! guests; the rest is the daemon's.

use super::managed_skills;
use crate::args::skills::Skills;
use crate::context::Context;
use crate::delegate::{become_daemon, words_after};
use crate::exit::Failure;
use std::ffi::OsString;

pub async fn run(context: &Context, command: Skills) -> Result<(), Failure> {
    match command {
        Skills::Author(_) => {
            let format = if context.json() { "json" } else { "text" };
            let mut words: Vec<OsString> = ["skills", "--output", format].map(OsString::from).into();
            words.extend(words_after("skills", std::env::args_os()));
            Err(become_daemon(context, words))
        }
        Skills::Manage(command) => managed_skills::run(context, command).await,
    }
}
