//! The few questions that are asked on a terminal. Enter takes what was found.

use super::Plan;
use crate::args::connect::Client;
use crate::exit::{FAILED, Failure};
use clap::ValueEnum as _;
use std::io::{BufRead as _, Write as _};
use std::path::Path;

pub fn ask(plan: &mut Plan) -> Result<(), Failure> {
    loop {
        let answer = line("Workspace", &plan.workspace.display().to_string())?;
        match Path::new(&answer).canonicalize().ok().filter(|path| path.is_dir()) {
            Some(path) => break plan.workspace = path,
            None => crate::output::note!("`{answer}` is no directory"),
        }
    }
    plan.toolchains = list("Toolchains that runs may see, read-only", &plan.toolchains)?;
    loop {
        let known: Vec<String> = plan.clients.iter().map(|client| client.name().to_owned()).collect();
        let answer = list("Clients to connect (claude-code, codex, cursor)", &known)?;
        let clients: Result<Vec<Client>, String> = answer.iter().map(|name| Client::from_str(name, true)).collect();
        match clients {
            Ok(clients) => break plan.clients = clients,
            Err(_) => crate::output::note!("choose of claude-code, codex, cursor, or `none`"),
        }
    }
    let (name, email) = plan.git.clone().unwrap_or_default();
    let (name, email) = (line("Commit as", &name)?, line("with the address", &email)?);
    plan.git = (!name.is_empty() && !email.is_empty()).then_some((name, email));
    Ok(())
}

pub fn agreed(question: &str) -> Result<bool, Failure> {
    Ok(matches!(line(&format!("{question} [Y/n]"), "y")?.to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Words between commas; `none` for none.
fn list(question: &str, found: &[String]) -> Result<Vec<String>, Failure> {
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    let answer = line(question, &found)?;
    let words = answer.split([',', ' ']).filter(|word| !word.is_empty() && *word != "none");
    Ok(words.map(str::to_owned).collect())
}

fn line(question: &str, found: &str) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure::io("the terminal", &e);
    let mut out = std::io::stdout().lock();
    let shown = if question.ends_with(']') { String::new() } else { format!(" [{found}]") };
    write!(out, "{question}{shown}: ").and_then(|()| out.flush()).map_err(failed)?;
    let mut answer = String::new();
    if std::io::stdin().lock().read_line(&mut answer).map_err(failed)? == 0 {
        return Err(Failure::new(FAILED, "not_wanted", "nothing was changed", None));
    }
    let answer = answer.trim();
    Ok(if answer.is_empty() { found.to_owned() } else { answer.to_owned() })
}
