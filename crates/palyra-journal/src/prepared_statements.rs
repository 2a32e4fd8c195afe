//! The statements that every call needs, prepared once for the life of the writer.
//!
//! The connection's own cache looks a statement up by its text, takes it out and puts it back each time. For the half
//! dozen that are part of every commit that is a noticeable share of the work. Everything rarer uses that cache.

use rusqlite::{Connection, Statement, ToSql};

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hot {
    Begin,
    Commit,
    Append,
    InsertCall,
    MoveCall,
    CountCall,
}

impl Hot {
    const ALL: [Self; 6] = [Self::Begin, Self::Commit, Self::Append, Self::InsertCall, Self::MoveCall, Self::CountCall];

    const fn sql(self) -> &'static str {
        match self {
            Self::Begin => "BEGIN IMMEDIATE",
            Self::Commit => "COMMIT",
            Self::Append => {
                "INSERT INTO events (seq, at, kind, call_id, body, prev, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
            }
            Self::InsertCall => {
                "INSERT INTO calls (call_id, principal, session, run, tool, digest, key, state, opened_seq, ended_seq)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
            }
            Self::MoveCall => "UPDATE calls SET state = ?3, ended_seq = ?4 WHERE call_id = ?1 AND state = ?2",
            Self::CountCall => {
                "INSERT INTO runs (principal, run, calls) VALUES (?1, ?2, 1)
                 ON CONFLICT DO UPDATE SET calls = calls + 1 WHERE calls < ?3"
            }
        }
    }
}

/// Runs one of them and tells how many rows it changed.
pub(crate) trait Execute {
    fn execute(&mut self, which: Hot, parameters: &[&dyn ToSql]) -> rusqlite::Result<usize>;
}

/// All of them, in the order of [`Hot::ALL`].
#[derive(Debug)]
pub(crate) struct HotStatements<'c>([Statement<'c>; Hot::ALL.len()]);

impl<'c> HotStatements<'c> {
    pub(crate) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |which: Hot| connection.prepare(which.sql());
        let [begin, commit, append, insert, step, count] = Hot::ALL.map(prepare);
        Ok(Self([begin?, commit?, append?, insert?, step?, count?]))
    }
}

impl Execute for HotStatements<'_> {
    fn execute(&mut self, which: Hot, parameters: &[&dyn ToSql]) -> rusqlite::Result<usize> {
        self.0[which as usize].execute(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_stands_where_its_name_says() {
        for (place, which) in Hot::ALL.into_iter().enumerate() {
            assert_eq!(which as usize, place);
        }
    }
}
