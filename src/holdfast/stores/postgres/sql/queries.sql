-- Every statement names the schema, since a connection behind a pooler has no settings of its own. Those that change
-- what is stored count in the pulse, but for removals, which are counted beside them.

-- name: append_one
WITH held AS (
    SELECT n FROM {schema}.run WHERE uid = %s AND epoch = %s AND coalesce(worker, '') = %s AND NOT hidden
    AND status <> 'away'
    FOR NO KEY UPDATE
)
INSERT INTO {schema}.entry (run, seq, at, state, kind, hash, payload)
SELECT held.n, %s::bigint, %s::bigint, %s::bigint, %s, %b, %b FROM held
WHERE EXISTS (SELECT 1 FROM {schema}.entry WHERE run = held.n AND seq = %s AND hash = %b)
RETURNING nextval({pulse})

-- name: append_many
-- Rows are locked in the order of their uids, so that batches of several processes never wait for each other in a
-- circle. A run whose fence or whose end is another one gives no row. Each entry names the end of the journal before
-- the batch; that its own entries follow each other was checked before.
WITH given AS (
    SELECT * FROM unnest(%b::text[], %b::bigint[], %b::text[], %b::bigint[], %b::bytea[],
                         %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::bytea[], %b::bytea[])
    AS given (uid, epoch, worker, before, prev, seq, at, state, kind, hash, payload)
), held AS (
    SELECT n, uid, epoch, worker FROM {schema}.run WHERE uid = ANY(%b::text[]) AND NOT hidden AND status <> 'away' ORDER BY uid
    FOR NO KEY UPDATE
), added AS (
    INSERT INTO {schema}.entry (run, seq, at, state, kind, hash, payload)
    SELECT held.n, given.seq, given.at, given.state, given.kind, given.hash, given.payload
    FROM given
    JOIN held ON held.uid = given.uid AND held.epoch = given.epoch AND coalesce(held.worker, '') = given.worker
    WHERE EXISTS (SELECT 1 FROM {schema}.entry e WHERE e.run = held.n AND e.seq = given.before AND e.hash = given.prev)
    RETURNING run
)
SELECT uid, (SELECT nextval({pulse})) FROM held WHERE n IN (SELECT run FROM added)

-- name: record
SELECT r.n, r.uid, r.id, r.created_at, r.root, r.base, r.workflow, r.tags::text, r.lineage, r.key_id, r.key_blob,
       r.queue, r.priority, r.lane, r.parent, r.status, r.epoch, r.worker, r.rewinds, r.rollback, r.wake_at, r.reason,
       r.hidden, r.chapter, r.crashes, r.crashed_at, e.seq, e.hash, e.at, e.kind, e.state, r.away, r.was
FROM {schema}.run r
LEFT JOIN LATERAL (
    SELECT seq, hash, at, kind, state FROM {schema}.entry WHERE run = r.n ORDER BY seq DESC LIMIT 1
) e ON true

-- name: tagged
SELECT uid FROM {schema}.run_tag WHERE digest = %b

-- name: lock
SELECT n FROM {schema}.run WHERE uid = ANY(%s::text[]) ORDER BY uid FOR NO KEY UPDATE

-- name: lock_to_delete
SELECT n FROM {schema}.run WHERE uid = ANY(%s::text[]) ORDER BY uid FOR UPDATE

-- name: ancestors
SELECT uid, n FROM {schema}.run WHERE uid = ANY(%s::text[]) ORDER BY uid FOR KEY SHARE

-- name: mail
SELECT r.uid, i.key, i.wakes FROM {schema}.inbox i JOIN {schema}.run r ON r.n = i.run
WHERE r.uid = ANY(%s::text[]) AND NOT i.taken

-- name: insert_run
INSERT INTO {schema}.run (uid, id, created_at, root, base, workflow, tags, lineage, key_id, key_blob,
                          queue, priority, lane, parent, status, epoch, worker, rewinds, rollback, wake_at, reason,
                          hidden, chapter, crashes, crashed_at, away, was)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: create_one
-- A run with its entries; nothing, if there is one that has its id.
WITH made AS ({insert_run} ON CONFLICT DO NOTHING RETURNING n)
INSERT INTO {schema}.entry (run, seq, at, state, kind, hash, payload)
SELECT made.n, e.* FROM made, {entries}
RETURNING nextval({pulse})

-- name: end_one
-- A run that ends: its last entries, and its release; nothing, if its fence or the end of its journal is another one, or
-- if its inbox holds an item. The run is locked by a statement before this one: what a lock waits for, a statement sees
-- only if it began after the wait.
WITH held AS (
    SELECT n FROM {schema}.run WHERE uid = %s AND epoch = %s AND coalesce(worker, '') = %s AND NOT hidden
    AND status <> 'away'
    FOR NO KEY UPDATE
), added AS (
    INSERT INTO {schema}.entry (run, seq, at, state, kind, hash, payload)
    SELECT held.n, e.* FROM held, {entries}
    WHERE EXISTS (SELECT 1 FROM {schema}.entry WHERE run = held.n AND seq = %s AND hash = %b)
    AND NOT EXISTS (SELECT 1 FROM {schema}.inbox WHERE run = held.n AND NOT taken)
    RETURNING run
)
UPDATE {schema}.run SET status = %s, wake_at = %s, reason = %s, worker = NULL, crashes = 0
WHERE n IN (SELECT run FROM added)
RETURNING nextval({pulse})

-- name: entries
unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::bytea[], %b::bytea[])
    AS e (seq, at, state, kind, hash, payload)

-- name: update_run
UPDATE {schema}.run SET key_id = %s, key_blob = %b, status = %s, epoch = %s, worker = %s, rewinds = %s, rollback = %s,
                        wake_at = %s, reason = %s, hidden = %s, chapter = %s, crashes = %s, crashed_at = %s,
                        away = %s, was = %s
WHERE uid = %s
RETURNING nextval({pulse})

-- name: insert_entries
INSERT INTO {schema}.entry (run, seq, at, state, kind, hash, payload)
SELECT r.n, e.seq, e.at, e.state, e.kind, e.hash, e.payload
FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::bytea[], %b::bytea[])
     AS e (uid, seq, at, state, kind, hash, payload)
JOIN {schema}.run r ON r.uid = e.uid
RETURNING nextval({pulse})

-- name: insert_links
INSERT INTO {schema}.link (ancestor, child)
SELECT a.n, c.n FROM unnest(%s::text[], %s::text[]) AS l (ancestor, child)
JOIN {schema}.run a ON a.uid = l.ancestor JOIN {schema}.run c ON c.uid = l.child

-- name: take
UPDATE {schema}.inbox i SET taken = true, payload = NULL
FROM unnest(%b::text[], %b::bytea[]) AS t (uid, digest) JOIN {schema}.run r ON r.uid = t.uid
WHERE i.run = r.n AND i.digest = t.digest
RETURNING nextval({pulse})

-- name: redact
UPDATE {schema}.entry e SET payload = t.payload
FROM unnest(%b::text[], %b::bigint[], %b::bytea[]) AS t (uid, seq, payload) JOIN {schema}.run r ON r.uid = t.uid
WHERE e.run = r.n AND e.seq = t.seq
RETURNING nextval({pulse})

-- name: pulse
SELECT nextval({pulse})

-- name: version
-- The pulse is counted before its transaction is visible. So who asks is told also who is about to commit: whoever
-- counted before this question and is not visible yet has a lock on a table of ours, until it is. The pulse is read
-- first: what is counted after that is another pulse the next time. Heartbeats are neither counted nor looked for.
SELECT p.last_value, l.writing FROM {schema}.pulse p, LATERAL (
    SELECT string_agg(virtualtransaction, ' ' ORDER BY virtualtransaction) AS writing FROM pg_locks
    WHERE p.last_value > 0 AND locktype = 'relation' AND mode = 'RowExclusiveLock'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relation = ANY(%s::oid[])
) l

-- name: tables
SELECT c.oid::bigint, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = ANY(%s::text[])

-- name: levels
-- The priorities of what waits in a queue: as many look-ups as there are, however many runs have them. Of each, what is
-- due is found without looking at what waits for later. The time is asked for once, else no index could be used.
LATERAL (
    WITH RECURSIVE down (priority) AS (
        SELECT max(priority) FROM {schema}.run
        WHERE queue = q.name AND status = 'waiting' AND worker IS NULL AND NOT hidden AND wake_at IS NOT NULL
        UNION ALL
        SELECT (SELECT max(priority) FROM {schema}.run
                WHERE queue = q.name AND priority < down.priority
                AND status = 'waiting' AND worker IS NULL AND NOT hidden AND wake_at IS NOT NULL)
        FROM down WHERE down.priority IS NOT NULL
    )
    SELECT priority FROM down WHERE priority IS NOT NULL
) level

-- name: ready
SELECT n FROM {schema}.run
WHERE queue = q.name AND status = 'ready' AND worker IS NULL AND NOT hidden AND workflow = ANY(%(workflows)s::text[])
ORDER BY priority DESC, created_at, uid LIMIT %(limit)s

-- name: waiting
SELECT w.n FROM {levels}, LATERAL (
    SELECT n FROM {schema}.run
    WHERE queue = q.name AND priority = level.priority AND status = 'waiting' AND worker IS NULL AND NOT hidden
    AND wake_at <= (SELECT {now}) AND workflow = ANY(%(workflows)s::text[])
    ORDER BY wake_at, uid LIMIT %(limit)s
) w

-- name: due
SELECT d.n FROM unnest(%(queues)s::text[]) q (name), LATERAL (({ready}) UNION ALL ({waiting})) d

-- name: take_due
-- Those that somebody else is about to take are passed over. What a full lane has need not be looked at.
SELECT d.n FROM unnest(%(queues)s::text[]) q (name), LATERAL (
    SELECT n FROM {schema}.run
    WHERE queue = q.name AND status = 'ready' AND worker IS NULL AND NOT hidden
    AND workflow = ANY(%(workflows)s::text[]) AND uid <> ALL(%(leave)s::text[])
    AND (lane IS NULL OR q.name || E'\x1f' || lane <> ALL(%(full)s::text[]))
    ORDER BY priority DESC, created_at, uid LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
) d

-- name: take_waiting
SELECT d.n FROM unnest(%(queues)s::text[]) q (name), {levels}, LATERAL (
    SELECT n FROM {schema}.run
    WHERE queue = q.name AND priority = level.priority AND status = 'waiting' AND worker IS NULL AND NOT hidden
    AND wake_at <= (SELECT {now}) AND workflow = ANY(%(workflows)s::text[]) AND uid <> ALL(%(leave)s::text[])
    AND (lane IS NULL OR q.name || E'\x1f' || lane <> ALL(%(full)s::text[]))
    ORDER BY wake_at, uid LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
) d

-- name: take_left
-- What the dead left is found first, and as a whole: a server that has no statistics yet would go through all runs, and
-- look for the dead at each of them.
SELECT n FROM {schema}.run WHERE n = ANY(ARRAY(
    SELECT l.n FROM unnest(ARRAY({orphans})) o (n), LATERAL (
        SELECT n, uid, crashes FROM {schema}.run
        WHERE n = o.n AND queue = ANY(%(queues)s::text[]) AND workflow = ANY(%(workflows)s::text[]) AND NOT hidden
        AND status IN ('ready', 'running', 'waiting') AND uid <> ALL(%(leave)s::text[]) OFFSET 0
    ) l ORDER BY l.crashes < {suspect}, l.crashes, l.uid LIMIT %(limit)s
)) FOR NO KEY UPDATE SKIP LOCKED

-- name: make_queues
INSERT INTO {schema}.queue (name) SELECT name FROM unnest(%s::text[]) AS q (name) ORDER BY name ON CONFLICT DO NOTHING

-- name: lock_queues
SELECT name FROM {schema}.queue WHERE name = ANY(%s::text[]) ORDER BY name FOR UPDATE

-- name: lock_free_queues
SELECT name FROM {schema}.queue WHERE name = ANY(%s::text[]) ORDER BY name FOR UPDATE SKIP LOCKED

-- name: held
SELECT r.queue, r.worker, r.lane FROM {schema}.run r JOIN {schema}.worker w ON w.name = r.worker
WHERE r.queue = ANY(%(queues)s::text[]) AND r.worker IS NOT NULL AND NOT r.hidden AND w.until > {now}

-- name: forks
r.n IN (SELECT l.child FROM {schema}.link l JOIN {schema}.run a ON a.n = l.ancestor WHERE a.uid = %s)

-- name: counts
-- By rows in the order of the index, so that a status that few runs have is not looked for among all of them.
SELECT s.status, (SELECT count(*) FROM (
    SELECT 1 FROM {schema}.run r
    WHERE (r.status, r.uid) >= (s.status, '') AND (r.status, r.uid) < (s.status || E'\x01', '') AND NOT r.hidden
    ORDER BY r.status, r.uid LIMIT %(upto)s) counted)
FROM unnest(%(statuses)s::text[]) s (status)

-- name: workers
SELECT name, until, until > {now} FROM {schema}.worker ORDER BY name

-- name: backlog
SELECT queue, CASE WHEN worker IS NULL THEN status ELSE 'running' END AS state, count(*),
       min(created_at) FILTER (WHERE worker IS NULL AND status = 'ready')
FROM {schema}.run
WHERE queue IS NOT NULL AND NOT hidden AND (worker IS NOT NULL OR status = 'ready' OR status = 'waiting')
GROUP BY 1, 2

-- name: document
SELECT name, value, version FROM {schema}.document WHERE kind = %s AND name = %s

-- name: documents
SELECT name, value, version FROM {schema}.document WHERE kind = %s

-- name: make_document
INSERT INTO {schema}.document (kind, name, value, version) VALUES (%s, %s, %b, %s) ON CONFLICT DO NOTHING
RETURNING nextval({pulse})

-- name: replace_document
UPDATE {schema}.document SET value = %b, version = %s WHERE kind = %s AND name = %s AND version = %s
RETURNING nextval({pulse})

-- name: delete_document
DELETE FROM {schema}.document WHERE kind = %s AND name = %s AND version = %s RETURNING nextval({pulse})

-- name: next_wake
SELECT wake_at FROM {schema}.run
WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND NOT hidden AND wake_at > (SELECT {now})
AND queue = ANY(%(queues)s::text[]) AND workflow = ANY(%(workflows)s::text[])
ORDER BY wake_at LIMIT 1

-- name: orphans
-- Goes from holder to holder, so that it looks at no run of one that lives.
WITH RECURSIVE holder (name) AS (
    SELECT min(worker) FROM {schema}.run WHERE worker IS NOT NULL
    UNION ALL
    SELECT (SELECT min(worker) FROM {schema}.run WHERE worker IS NOT NULL AND worker > h.name)
    FROM holder h WHERE h.name IS NOT NULL
), dead AS (
    SELECT h.name FROM holder h WHERE h.name IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.worker w WHERE w.name = h.name AND w.until > {now})
)
SELECT r.n FROM dead, LATERAL (
    SELECT n FROM {schema}.run WHERE worker = dead.name AND worker IS NOT NULL OFFSET 0
) r

-- name: lapse
SELECT min(w.until) FROM {schema}.worker w
WHERE w.until > {now} AND EXISTS (SELECT 1 FROM {schema}.run r WHERE r.worker = w.name AND r.worker IS NOT NULL)

-- name: read
SELECT e.seq, e.kind, e.at, e.state, coalesce(p.hash, r.root), e.hash, e.payload
FROM {schema}.run r JOIN {schema}.entry e ON e.run = r.n
LEFT JOIN {schema}.entry p ON p.run = e.run AND p.seq = e.seq - 1
WHERE r.uid = %s AND e.seq BETWEEN %s AND %s

-- name: read_headers
SELECT e.seq, e.kind, e.at, e.state, coalesce(p.hash, r.root), e.hash, ''::bytea
FROM {schema}.run r JOIN {schema}.entry e ON e.run = r.n
LEFT JOIN {schema}.entry p ON p.run = e.run AND p.seq = e.seq - 1
WHERE r.uid = %s AND e.seq BETWEEN %s AND %s

-- name: count
SELECT r.id, r.base, max(e.seq), count(*) FILTER (WHERE e.seq BETWEEN %s AND %s)
FROM {schema}.run r JOIN {schema}.entry e ON e.run = r.n WHERE r.uid = %s GROUP BY r.n

-- name: hash
SELECT e.hash FROM {schema}.entry e JOIN {schema}.run r ON r.n = e.run WHERE r.uid = %s AND e.seq = %s

-- name: inbox
SELECT i.key, i.kind, i.at, i.payload, i.wakes FROM {schema}.inbox i JOIN {schema}.run r ON r.n = i.run
WHERE r.uid = %s AND NOT i.taken ORDER BY i.n

-- name: taken
SELECT i.key FROM {schema}.inbox i JOIN {schema}.run r ON r.n = i.run WHERE r.uid = %s AND i.taken ORDER BY i.key

-- name: posted
SELECT p.uid, p.digest, i.at FROM unnest(%b::text[], %b::bytea[]) AS p (uid, digest)
JOIN {schema}.run r ON r.uid = p.uid JOIN {schema}.inbox i ON i.run = r.n AND i.digest = p.digest

-- name: post
INSERT INTO {schema}.inbox (run, digest, key, kind, at, payload, wakes, taken)
SELECT r.n, i.digest, i.key, i.kind, i.at, i.payload, i.wakes, i.taken
FROM unnest(%b::text[], %b::bytea[], %b::text[], %b::text[], %b::bigint[], %b::bytea[], %b::boolean[], %b::boolean[])
     WITH ORDINALITY AS i (uid, digest, key, kind, at, payload, wakes, taken, place)
JOIN {schema}.run r ON r.uid = i.uid ORDER BY i.place
RETURNING nextval({pulse})

-- name: alive
SELECT EXISTS (
    SELECT 1 FROM {schema}.run r JOIN {schema}.worker w ON w.name = r.worker WHERE r.uid = %(uid)s AND w.until > {now}
)

-- name: beat
-- And what there was before, what there is now, and whether there is something to end.
WITH before AS (SELECT until FROM {schema}.worker WHERE name = %(worker)s)
INSERT INTO {schema}.worker (name, until) VALUES (%(worker)s, {now} + %(lease)s)
ON CONFLICT (name) DO UPDATE SET until = excluded.until
RETURNING {now}, (SELECT until FROM before), until, EXISTS (SELECT 1 FROM {stale})

-- name: forget_the_dead
DELETE FROM {schema}.worker WHERE until < {now} - 86400000000

-- name: as_news
-- By which `version` knows of a transaction that writes to the table of workers alone.
LOCK TABLE {schema}.run IN ROW EXCLUSIVE MODE

-- name: retire
DELETE FROM {schema}.worker WHERE name = ANY(%s::text[])

-- name: chain
-- Of a run and its ancestors: whether it is hidden, whether another run shares its entries, and which of these do.
SELECT a.uid, a.hidden,
       EXISTS (SELECT 1 FROM {schema}.link l JOIN {schema}.run c ON c.n = l.child
               WHERE l.ancestor = a.n AND c.uid <> ALL(%(uids)s::text[])),
       ARRAY(SELECT c.uid FROM {schema}.link l JOIN {schema}.run c ON c.n = l.child
             WHERE l.ancestor = a.n AND c.uid = ANY(%(uids)s::text[]))
FROM {schema}.run a WHERE a.uid = ANY(%(uids)s::text[])

-- name: remove_runs
WITH gone AS (DELETE FROM {schema}.run WHERE uid = ANY(%s::text[]) RETURNING n),
     entries AS (DELETE FROM {schema}.entry e USING gone WHERE e.run = gone.n)
DELETE FROM {schema}.link l USING gone WHERE l.child = gone.n

-- name: lock_to_sweep
SELECT n FROM {schema}.run WHERE uid = ANY(%s::text[]) ORDER BY uid FOR UPDATE SKIP LOCKED

-- name: which
SELECT uid FROM {schema}.run WHERE uid = ANY(%s::text[])

-- name: sweep
-- Only of those that were locked before, so that it sees every fork that was begun: whoever forks locks what it shares.
WITH given AS (
    SELECT * FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::text[]) AS given (uid, epoch, seq, status)
), alone AS (
    SELECT r.n, r.uid FROM given JOIN {schema}.run r
    ON r.uid = given.uid AND r.epoch = given.epoch AND r.status = given.status
    WHERE r.n = ANY(%b::bigint[]) AND r.worker IS NULL AND NOT r.hidden AND r.was IS NULL
    AND given.seq = (SELECT e.seq FROM {schema}.entry e WHERE e.run = r.n ORDER BY e.seq DESC LIMIT 1)
    AND NOT EXISTS (SELECT 1 FROM {schema}.link l WHERE l.ancestor = r.n)
), items AS (
    DELETE FROM {schema}.inbox i USING alone WHERE i.run = alone.n
), entries AS (
    DELETE FROM {schema}.entry e USING alone WHERE e.run = alone.n
)
DELETE FROM {schema}.run r USING alone WHERE r.n = alone.n RETURNING r.uid

-- name: empty_inbox
DELETE FROM {schema}.inbox i USING {schema}.run r WHERE r.n = i.run AND r.uid = %s

-- name: empty_journal
DELETE FROM {schema}.entry e USING {schema}.run r WHERE r.n = e.run AND r.uid = %s

-- name: own_xid
SELECT pg_current_xact_id()::text, pg_backend_pid()

-- name: at_work
SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active'

-- name: stale
-- The sessions of Holdfast that keep locks on tables of ours in a transaction and wait for their client, of which
-- nothing was heard for so long: it stands still, or cannot be reached. No transaction of ours waits for its client that
-- long, but one of a user's step, which has no locks on these tables until it is about to be committed.
pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = current_user AND a.application_name ~ '^holdfast( |$)'
AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND a.wait_event_type = 'Client'
AND a.state_change < clock_timestamp() - make_interval(secs => %(still)s) AND EXISTS (
    SELECT 1 FROM pg_locks l
    WHERE l.pid = a.pid AND l.locktype = 'relation' AND l.mode <> 'AccessShareLock'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.relation = ANY(%(tables)s::oid[]) OFFSET 0
)

-- name: end_stale
SELECT pg_terminate_backend(a.pid, 1000) FROM {stale}

-- name: weaknesses
SELECT current_setting('fsync'), current_setting('synchronous_commit')

-- name: own_locks
-- The number of the transaction, and a table of ours that it has written to, or locked in order to.
SELECT pg_current_xact_id()::text, (
    SELECT relation::regclass::text FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode <> 'AccessShareLock'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relation = ANY(%s::oid[]) LIMIT 1
)

-- name: made
-- Goes on behind an INSERT of a run, as ``made``: its first entry, and word for the others at the commit.
INSERT INTO {schema}.entry (run, seq, at, state, kind, hash, payload)
SELECT made.n, %s::bigint, %s::bigint, %s::bigint, %s, %b, %b FROM made
RETURNING nextval({pulse}), pg_notify(%s, %s)
