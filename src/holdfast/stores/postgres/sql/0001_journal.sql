-- A run's record, its journal, and its inbox.
--
--   run     who it is, who holds it, in what state it is. A plain step locks its row and leaves it as it is.
--   entry   the journals, in the order of their commits. Never rewritten, but for an erased payload.
--   link    which runs share the entries of which: a run with a link to it is hidden, not deleted.
--   inbox   what others than the holder left for it; a taken item keeps its key, so that the key is used once.
--   worker  who may hold runs, and until when, by the server's clock.
--   document  what the engine itself remembers: limits of queues, schedules.
--   pulse   counts the commits; asked for whether anything may have happened. See `version` in the queries.
--
-- Texts are escaped, since PostgreSQL keeps no NUL, and are compared byte by byte, whatever the database's language.

CREATE TABLE {schema}.run (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uid        text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    root       bytea NOT NULL,
    base       bigint NOT NULL,
    workflow   text COLLATE "C",
    tags       jsonb NOT NULL,
    lineage    text COLLATE "C" NOT NULL,
    key_id     text COLLATE "C",
    key_blob   bytea,
    queue      text COLLATE "C",
    priority   bigint NOT NULL,
    lane       text COLLATE "C",
    parent     text COLLATE "C",
    status     text COLLATE "C" NOT NULL,
    epoch      bigint NOT NULL,
    worker     text COLLATE "C",
    rewinds    text COLLATE "C" NOT NULL,
    rollback   bigint,
    wake_at    bigint,
    reason     text COLLATE "C",
    hidden     boolean NOT NULL,
    chapter    bigint NOT NULL,
    crashes    bigint NOT NULL,
    crashed_at bigint NOT NULL
);

CREATE UNIQUE INDEX run_by_uid ON {schema}.run (uid);
CREATE UNIQUE INDEX run_by_id ON {schema}.run (id) WHERE NOT hidden;
CREATE INDEX run_by_status ON {schema}.run (status, uid);
CREATE INDEX run_by_workflow ON {schema}.run (workflow, uid) WHERE workflow IS NOT NULL;
CREATE INDEX run_by_worker ON {schema}.run (worker) WHERE worker IS NOT NULL;
CREATE INDEX run_by_parent ON {schema}.run (parent, uid) WHERE parent IS NOT NULL;
CREATE INDEX run_by_tag ON {schema}.run USING gin (tags jsonb_path_ops) WHERE tags <> '{}';

-- What workers look for, in the order in which they take it. A run that is held or over stands in none of these.
CREATE INDEX run_ready ON {schema}.run (queue, priority DESC, created_at, uid)
    WHERE queue IS NOT NULL AND status = 'ready' AND worker IS NULL AND NOT hidden;
CREATE INDEX run_waiting ON {schema}.run (queue, wake_at, uid)
    WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND NOT hidden AND wake_at IS NOT NULL;
CREATE INDEX run_wakes ON {schema}.run (wake_at)
    WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND NOT hidden AND wake_at IS NOT NULL;

-- What counts against the limits of a queue.
CREATE INDEX run_held ON {schema}.run (queue, worker, lane)
    WHERE queue IS NOT NULL AND worker IS NOT NULL AND NOT hidden;

CREATE TABLE {schema}.entry (
    run     bigint NOT NULL,
    seq     bigint NOT NULL,
    at      bigint NOT NULL,
    state   bigint,
    kind    text COLLATE "C" NOT NULL,
    hash    bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (run, seq)
);

-- What is large was compressed before it came here.
ALTER TABLE {schema}.entry ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE {schema}.link (
    ancestor bigint NOT NULL,
    child    bigint NOT NULL,
    PRIMARY KEY (ancestor, child)
);

CREATE INDEX link_by_child ON {schema}.link (child);

CREATE TABLE {schema}.inbox (
    n       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run     bigint NOT NULL,
    digest  bytea NOT NULL,
    key     text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    payload bytea,
    wakes   boolean NOT NULL,
    taken   boolean NOT NULL
);

-- By the digest of the key, since a key may be longer than what fits in an index.
CREATE UNIQUE INDEX inbox_by_key ON {schema}.inbox (run, digest);

CREATE TABLE {schema}.worker (
    name  text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL
);

-- A row that is locked by whoever takes runs of a queue that has limits, so that all together stay within them.
CREATE TABLE {schema}.queue (
    name text COLLATE "C" PRIMARY KEY
);

CREATE TABLE {schema}.document (
    kind    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    value   bytea NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE SEQUENCE {schema}.pulse;
