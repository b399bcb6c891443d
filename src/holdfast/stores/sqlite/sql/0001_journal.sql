-- A run's record, its journal, and its inbox.
--
--   run     who it is, who holds it, in what state it is. A plain step does not touch it.
--   entry   the journals, in the order of their commits; found by (run, seq). Never rewritten, but for an erased payload.
--   link    which runs share the entries of which: a run with a link to it is hidden, not deleted.
--   inbox   what others than the holder left for it; a taken item keeps its key, so that the key is used once.
--   worker  who may hold runs, and until when.
--   document  what the engine itself remembers: limits of queues, schedules.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('oldest_reader', 1), ('oldest_writer', 1);

CREATE TABLE run (
    n          INTEGER PRIMARY KEY,
    uid        TEXT NOT NULL UNIQUE,
    id         TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    root       BLOB NOT NULL,
    base       INTEGER NOT NULL,
    workflow   TEXT,
    tags       TEXT NOT NULL,
    lineage    TEXT NOT NULL,
    key_id     TEXT,
    key_blob   BLOB,
    queue      TEXT,
    priority   INTEGER NOT NULL,
    lane       TEXT,
    parent     TEXT,
    status     TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    worker     TEXT,
    rewinds    TEXT NOT NULL,
    rollback   INTEGER,
    wake_at    INTEGER,
    reason     TEXT,
    hidden     INTEGER NOT NULL,
    chapter    INTEGER NOT NULL,
    crashes    INTEGER NOT NULL,
    crashed_at INTEGER NOT NULL,
    checksum   BLOB NOT NULL
);

CREATE UNIQUE INDEX run_by_id ON run (id) WHERE hidden = 0;
CREATE INDEX run_by_status ON run (status, uid);
CREATE INDEX run_by_workflow ON run (workflow, uid) WHERE workflow IS NOT NULL;
CREATE INDEX run_by_worker ON run (worker) WHERE worker IS NOT NULL;
CREATE INDEX run_by_parent ON run (parent, uid) WHERE parent IS NOT NULL;

-- What workers look for, in the order in which they take it. A run that is held or over stands in none of these.
CREATE INDEX run_ready ON run (queue, priority DESC, created_at, uid, workflow, lane, epoch, status, worker, hidden)
    WHERE queue IS NOT NULL AND status = 'ready' AND worker IS NULL AND hidden = 0;
CREATE INDEX run_waiting ON run (queue, priority DESC, wake_at, uid, workflow, lane, epoch, status, worker, hidden)
    WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND hidden = 0 AND wake_at IS NOT NULL;
CREATE INDEX run_wakes ON run (wake_at)
    WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND hidden = 0 AND wake_at IS NOT NULL;

-- What counts against the limits of a queue.
CREATE INDEX run_held ON run (queue, worker, lane, hidden)
    WHERE queue IS NOT NULL AND worker IS NOT NULL AND hidden = 0;

CREATE TABLE entry (
    n       INTEGER PRIMARY KEY,
    run     INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    state   INTEGER,
    hash    BLOB NOT NULL,
    payload BLOB NOT NULL
);

CREATE UNIQUE INDEX entry_by_seq ON entry (run, seq);

CREATE TABLE link (
    ancestor INTEGER NOT NULL,
    child    INTEGER NOT NULL,
    PRIMARY KEY (ancestor, child)
) WITHOUT ROWID;

CREATE INDEX link_by_child ON link (child);

CREATE TABLE inbox (
    n       INTEGER PRIMARY KEY,
    run     INTEGER NOT NULL,
    key     TEXT NOT NULL,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    payload BLOB,
    wakes   INTEGER NOT NULL,
    taken   INTEGER NOT NULL
);

CREATE UNIQUE INDEX inbox_by_key ON inbox (run, key);

CREATE TABLE worker (
    name  TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE document (
    kind     TEXT NOT NULL,
    name     TEXT NOT NULL,
    value    BLOB NOT NULL,
    version  INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
