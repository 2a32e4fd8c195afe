-- The memory's tables. Everything here can be destroyed, entry by entry; the journal beside it never changes.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- `key` opens the ciphertext in the journal's event `seq`. An entry is pending until the journal has it.
CREATE TABLE entries (
    n        INTEGER PRIMARY KEY,
    entry_id TEXT NOT NULL UNIQUE,
    scope    TEXT NOT NULL,
    holder   TEXT NOT NULL,
    pending  INTEGER NOT NULL,
    seq      INTEGER NOT NULL DEFAULT 0,
    record   TEXT NOT NULL,
    text     TEXT NOT NULL,
    key      BLOB NOT NULL
) STRICT;

CREATE INDEX entries_by_scope ON entries (scope, n);
CREATE INDEX entries_pending ON entries (n) WHERE pending = 1;

-- How much there is, by scope and by who retained it.
CREATE TABLE usage (
    name    TEXT PRIMARY KEY,
    entries INTEGER NOT NULL,
    bytes   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Where the content of a session may come from.
CREATE TABLE sources (
    principal TEXT NOT NULL,
    session   TEXT NOT NULL,
    source    TEXT NOT NULL,
    trust     TEXT NOT NULL,
    recalled  INTEGER NOT NULL,
    PRIMARY KEY (principal, session, source)
) STRICT, WITHOUT ROWID;

CREATE VIRTUAL TABLE words USING fts5 (text, content = 'entries', content_rowid = 'n', tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE grams USING fts5 (text, content = 'entries', content_rowid = 'n', tokenize = 'trigram');
-- A deleted text leaves no tokens behind.
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
INSERT INTO grams (grams, rank) VALUES ('secure-delete', 1);
INSERT INTO meta VALUES ('format', '1'), ('applied', '0');
