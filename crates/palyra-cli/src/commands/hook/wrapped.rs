//! The command that a client runs in place of the agent's: it shows a one-time ticket, and nothing else can be started
//! by it.

use crate::args::connect::Client;
use crate::exit::{FAILED, Failure};
use palyra_protocol::Ticket;
use palyra_protocol::facets::quote_words;
use std::path::Path;

/// The wrapped command. A client whose shell keeps its directory from one command to the next is taken where the
/// command ended.
pub fn command(client: Client, state_dir: &Path, ticket: &str) -> Result<String, Failure> {
    let not_text = || Failure::new(FAILED, "io", "a path is not text", None);
    let exe = std::env::current_exe().map_err(|e| Failure::io("this program does not know where it is", &e))?;
    let exe = exe.to_str().ok_or_else(not_text)?;
    let state_dir = state_dir.to_str().ok_or_else(not_text)?;
    let redeem = quote_words(&[exe, "redeem", ticket, "--state-dir", state_dir]);
    if client == Client::Codex {
        // A rule of Codex's names the beginning of this command: it must be plain.
        return Ok(redeem);
    }
    // The directory comes back by a descriptor of its own; output goes where it would have gone.
    Ok(format!(
        "{{ palyra_cd=\"$({redeem} --directory-fd 3 3>&1 >&4)\"; palyra_rc=$?; }} 4>&1; \
         [ -n \"$palyra_cd\" ] && cd \"$palyra_cd\"; (exit $palyra_rc)"
    ))
}

/// Whether a command is exactly what [`command`] makes for some ticket.
pub fn is_ours(client: Client, state_dir: &Path, text: &str) -> bool {
    let Some(at) = text.find(" redeem pt_").map(|at| at + " redeem ".len()) else { return false };
    let ticket: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    ticket.parse::<Ticket>().is_ok() && command(client, state_dir, &ticket).is_ok_and(|ours| ours == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_command_is_ours() {
        let state = Path::new("/s t");
        let ticket = Ticket::mint().unwrap();
        for client in [Client::ClaudeCode, Client::Codex] {
            let command = command(client, state, ticket.expose()).unwrap();
            assert!(is_ours(client, state, &command));
            for other in [format!("{command}; rm x"), format!("true; {command}"), command.replace("pt_", "pt-")] {
                assert!(!is_ours(client, state, &other), "{other}");
            }
            assert!(!is_ours(client, Path::new("/other"), &command));
        }
        assert!(command(Client::Codex, state, ticket.expose()).unwrap().ends_with("--state-dir '/s t'"));
    }
}
