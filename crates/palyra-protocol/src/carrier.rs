//! Who carries a call out once it is permitted.
//!
//! An agent's client that keeps its own tools asks Palyra by a hook. Its commands are handed to Palyra and run in the
//! sandbox when the client starts them; its file tools and fetches stay the client's, and Palyra decides about them and
//! records them.

use serde::{Deserialize, Serialize};

/// Who carries a call out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// The daemon, as soon as the call is permitted.
    #[default]
    Daemon,
    /// The daemon, when somebody redeems the call's one-time ticket.
    Ticket,
    /// The client that asked, with its own rights and outside of every sandbox of Palyra's.
    Client,
}

impl Carrier {
    /// Whether this is the usual way.
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        *self == Self::Daemon
    }
}

/// What is known of a call that the client carries out itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByClient {
    /// Paths among those written that nothing writes without consent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<String>,
    /// The client's tool, where it resembles none of Palyra's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// A one-time secret: whoever shows it starts the call that it was made for, once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Ticket(String);

/// A text that is no ticket, or no randomness to make one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It is not written like one.
    #[error("this is no ticket")]
    Malformed,
    /// The host gives no random bytes.
    #[error("the host gives no random bytes")]
    NoEntropy,
}

impl Ticket {
    const PREFIX: &str = "pt_";
    const DIGITS: usize = 32;

    /// Makes a new one.
    ///
    /// # Errors
    /// The host gives no random bytes.
    pub fn mint() -> Result<Self, TicketError> {
        let mut bytes = [0; Self::DIGITS / 2];
        getrandom::fill(&mut bytes).map_err(|_| TicketError::NoEntropy)?;
        let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(Self(format!("{}{digits}", Self::PREFIX)))
    }

    /// The text, for the one it was made for.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket(…)")
    }
}

impl std::str::FromStr for Ticket {
    type Err = TicketError;
    fn from_str(text: &str) -> Result<Self, TicketError> {
        let digits = text.strip_prefix(Self::PREFIX).ok_or(TicketError::Malformed)?;
        let hex = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if hex && digits.len() == Self::DIGITS { Ok(Self(text.to_owned())) } else { Err(TicketError::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_read_as_it_was_made_and_nothing_else_is_one() {
        let ticket = Ticket::mint().unwrap();
        assert_eq!(ticket.expose().parse::<Ticket>().as_ref(), Ok(&ticket));
        assert_ne!(Ticket::mint().unwrap(), ticket);
        let upper = ticket.expose().to_uppercase();
        for text in
            ["", "pt_", "pt_12", "x", &upper, &format!("{} ", ticket.expose()), "pt_$(reboot)000000000000000000000"]
        {
            assert_eq!(text.parse::<Ticket>(), Err(TicketError::Malformed), "{text}");
        }
        assert!(!format!("{ticket:?}").contains(&ticket.expose()[3..]));
    }
}
