//! The tools that agents' clients bring along: what is known of each.
//!
//! The list is data (`client_tools.txt`). The hook chooses by it what to propose, and the daemon holds the proposal to
//! it, so that no client can have a tool counted among the harmless ones.

/// What a client's tool does, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientToolKind {
    /// It runs a line of bash.
    Shell,
    /// It acts on nothing but the conversation.
    Conversation,
    /// The client asks its person by it.
    Person,
}

const LIST: &str = include_str!("client_tools.txt");

impl ClientToolKind {
    /// What is known of a tool; nothing of one that is not on the list.
    #[must_use]
    pub fn of(client: &str, tool: &str) -> Option<Self> {
        let lines = LIST.lines().filter(|line| !line.starts_with('#'));
        let mut words = lines.map(|line| line.split_whitespace());
        words.find_map(|mut line| match (line.next()?, line.next()?, line.next()?) {
            (of, kind, name) if of == client && name == tool => Self::named(kind),
            _ => None,
        })
    }

    /// Whether nothing is touched by it.
    #[must_use]
    pub fn is_harmless(self) -> bool {
        self != Self::Shell
    }

    fn named(kind: &str) -> Option<Self> {
        match kind {
            "shell" => Some(Self::Shell),
            "conversation" => Some(Self::Conversation),
            "person" => Some(Self::Person),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood_and_each_client_has_its_own() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        for line in lines {
            let words: Vec<_> = line.split_whitespace().collect();
            assert!(words.len() == 3 && ClientToolKind::of(words[0], words[2]).is_some(), "{line}");
        }
        assert_eq!(ClientToolKind::of("claude-code", "TodoWrite"), Some(ClientToolKind::Conversation));
        assert_eq!(ClientToolKind::of("claude-code", "update_plan"), None);
        assert_eq!(ClientToolKind::of("codex", "Monitor"), None);
        for tool in ["", "bash", "Bash ", "mcp__x__Agent", "NotebookEdit", "#"] {
            assert_eq!(ClientToolKind::of("claude-code", tool), None, "{tool}");
        }
    }
}
