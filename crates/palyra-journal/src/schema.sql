-- The journal's tables. `events` is the record; every other table is a projection of it, kept in the same transaction.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    call_id TEXT NOT NULL,
    body    TEXT NOT NULL,
    prev    BLOB NOT NULL,
    hash    BLOB NOT NULL
) STRICT;

-- FAIL, not ABORT: nothing has changed yet when a trigger speaks, and SQLite need not prepare to undo every append.
CREATE TRIGGER events_are_never_updated BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(FAIL, 'the journal is append-only');
END;

CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN
    SELECT RAISE(FAIL, 'the journal is append-only');
END;

-- REPLACE deletes without asking the trigger above.
CREATE TRIGGER events_are_never_replaced BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq)
BEGIN
    SELECT RAISE(FAIL, 'the journal is append-only');
END;

-- A row a call. Its events lie between `opened_seq` and `ended_seq`; ids grow with time, so rows are added at the right edge.
CREATE TABLE calls (
    call_id      TEXT PRIMARY KEY,
    principal    TEXT NOT NULL,
    session      TEXT NOT NULL,
    run          TEXT NOT NULL,
    tool         TEXT NOT NULL,
    digest       BLOB NOT NULL,
    key          TEXT,
    state        TEXT NOT NULL,
    opened_seq   INTEGER NOT NULL,
    ended_seq    INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX calls_by_key ON calls (principal, key) WHERE key IS NOT NULL;

-- Which workspace a session belongs to is where its first call was made.
CREATE INDEX calls_by_session ON calls (principal, session);

CREATE TABLE runs (
    principal TEXT NOT NULL,
    run       TEXT NOT NULL,
    calls     INTEGER NOT NULL,
    PRIMARY KEY (principal, run)
) STRICT, WITHOUT ROWID;

CREATE VIEW sessions AS
    SELECT principal, session, min(opened_seq) AS first_seq, max(opened_seq) AS last_seq, count(*) AS calls
    FROM calls GROUP BY principal, session;

-- How each installed version of a skill stands: the newest of its events.
CREATE VIEW skill_status AS
    SELECT skill_id, version, status, reason, checks, at FROM (
        SELECT json_extract(body, '$.skill') AS skill_id, json_extract(body, '$.version') AS version,
            coalesce(json_extract(body, '$.change.to'), 'removed') AS status,
            json_extract(body, '$.change.reason') AS reason, json_extract(body, '$.change.checks') AS checks,
            at, max(seq)
        FROM events WHERE kind = 'skill.status' OR kind = 'skill.removed' GROUP BY 1, 2
    ) WHERE status <> 'removed';

CREATE TABLE approvals (
    approval_id TEXT PRIMARY KEY,
    call_id     TEXT NOT NULL UNIQUE,
    state       TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    record      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE grants (
    grant_id    TEXT PRIMARY KEY,
    principal   TEXT NOT NULL,
    session     TEXT,
    match_key   BLOB NOT NULL,
    policy_hash BLOB NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER,
    uses        INTEGER NOT NULL,
    record      TEXT NOT NULL,
    created_seq INTEGER,
    void        TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX grants_by_match ON grants (principal, match_key) WHERE revoked_at IS NULL;
