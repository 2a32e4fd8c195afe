//! A hand that tampers with the journal behind the daemon's back, as somebody with the file could.
//!
//! It works through Python's SQLite, not through ours: nothing of the code under test takes part.

use crate::Host;
use crate::cli::{Ran, run};
use std::process::Command;

const RUN_SQL: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('PRAGMA busy_timeout = 60000')
for statement in sys.argv[2:]:
    for row in db.execute(statement):
        print(*row, sep='|')
";

/// Rewrites the whole chain from scratch after the statements, so that it fits together again.
const REWRITE: &str = "
import hashlib, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('PRAGMA busy_timeout = 60000')
def field(h, data):
    h.update(len(data).to_bytes(8, 'big')); h.update(data)
[(trigger,)] = db.execute(\"SELECT sql FROM sqlite_master WHERE name = 'events_are_never_updated'\").fetchall()
db.execute('DROP TRIGGER events_are_never_updated')
for statement in sys.argv[2:]:
    db.execute(statement)
prev = bytes(32)
for seq, at, kind, call, body in db.execute('SELECT seq, at, kind, call_id, body FROM events ORDER BY seq').fetchall():
    h = hashlib.sha256()
    field(h, b'palyra.journal-event.v1'); field(h, prev)
    field(h, seq.to_bytes(8, 'big')); field(h, at.to_bytes(8, 'big'))
    for text in (kind, call, body): field(h, text.encode())
    db.execute('UPDATE events SET prev = ?, hash = ? WHERE seq = ?', (prev, h.digest(), seq))
    prev = h.digest()
db.execute(trigger)
";

/// Lifts the protection against changes.
pub const UNPROTECT: &str = "DROP TRIGGER events_are_never_updated";
/// Lifts the protection against deletion.
pub const UNPROTECT_DELETE: &str = "DROP TRIGGER events_are_never_deleted";
/// Puts the protection against deletion back, so that nobody sees that it was gone.
pub const PROTECT_DELETE: &str = "CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN
    SELECT RAISE(FAIL, 'the journal is append-only');
END";

impl Host {
    /// Runs SQL on the journal's file and returns the rows.
    #[must_use]
    pub fn sql(&self, statements: &[&str]) -> Ran {
        self.python(RUN_SQL, statements)
    }

    /// Runs SQL that must succeed and returns the rows, one a line.
    pub fn tamper(&self, statements: &[&str]) -> String {
        self.sql(statements).exits(0).stdout
    }

    /// Runs SQL that changes events, then makes the chain fit again.
    pub fn rewrite(&self, statements: &[&str]) {
        self.python(REWRITE, statements).exits(0).done();
    }

    /// The number of the first event of a kind.
    #[must_use]
    pub fn seq_of(&self, kind: &str) -> u64 {
        let query = format!("SELECT min(seq) FROM events WHERE kind = '{kind}'");
        self.tamper(&[&query]).trim().parse().expect("there is such an event")
    }

    fn python(&self, script: &str, args: &[&str]) -> Ran {
        let mut command = Command::new("python3");
        command.arg("-c").arg(script).arg(self.state().join("journal.db")).args(args);
        run(command, &[])
    }
}
