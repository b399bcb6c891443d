-- name: append
INSERT OR IGNORE INTO entry (run, seq, kind, at, state, hash, payload) VALUES (
    -- What may not be written has no run here, or a number that is taken, and is ignored. In the form INSERT ... SELECT
    -- the row would first go into a temporary table, since the table that is written is read too.
    (SELECT r.n FROM run r WHERE r.n = ? AND +r.uid = ? AND r.epoch = ? AND ifnull(r.worker, '') = ? AND r.hidden = 0
     AND r.status <> 'away' AND (SELECT hash FROM entry WHERE run = r.n AND seq = ?) = ?),
    ?, ?, ?, ?, ?, ?)

-- name: insert_entry
INSERT INTO entry (run, seq, kind, at, state, hash, payload) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: entry
SELECT e.seq, e.kind, e.at, e.state, x'', e.hash, x'' FROM entry e JOIN run r ON r.n = e.run WHERE r.uid = ? AND e.seq = ?

-- name: record
SELECT r.uid, r.id, r.created_at, r.root, r.base, r.workflow, r.tags, r.lineage, r.key_id, r.key_blob,
       r.queue, r.priority, r.lane, r.parent, r.status, r.epoch, r.worker, r.rewinds, r.rollback, r.wake_at, r.reason,
       r.hidden, r.chapter, r.crashes, r.crashed_at, r.checksum,
       e.seq, e.hash, e.at, e.kind, e.state, r.away, r.was, r.newest
FROM run r
LEFT JOIN entry e ON e.n = (SELECT n FROM entry WHERE run = r.n ORDER BY seq DESC LIMIT 1)

-- name: from_tag
FROM run_tag t CROSS JOIN run r ON r.uid = t.uid

-- name: insert_run
INSERT INTO run (uid, id, created_at, root, base, workflow, tags, lineage, key_id, key_blob,
                 queue, priority, lane, parent, status, epoch, worker, rewinds, rollback, wake_at, reason, hidden,
                 chapter, crashes, crashed_at, checksum, away, was, newest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_run
-- Who a run is never changes. What is not named here keeps its index as it is.
UPDATE run SET root = ?, base = ?, workflow = ?, tags = ?, lineage = ?,
               key_id = ?, key_blob = ?, queue = ?, priority = ?, lane = ?, parent = ?, status = ?, epoch = ?, worker = ?, rewinds = ?,
               rollback = ?, wake_at = ?, reason = ?, hidden = ?, chapter = ?, crashes = ?, crashed_at = ?, checksum = ?,
               away = ?, was = ?, newest = ?
WHERE uid = ?

-- name: ready
-- Texts as bytes: of one that is damaged, the others are read all the same.
SELECT CAST(uid AS BLOB), CAST(lane AS BLOB), epoch, created_at FROM run INDEXED BY run_ready
WHERE queue = ? AND priority = ? AND status = 'ready' AND worker IS NULL AND hidden = 0
AND +workflow IN (%s)%s ORDER BY created_at, uid

-- name: waiting
SELECT CAST(uid AS BLOB), CAST(lane AS BLOB), epoch, wake_at FROM run INDEXED BY run_waiting
WHERE queue = ? AND priority = ? AND wake_at <= ? AND status = 'waiting' AND worker IS NULL AND hidden = 0
AND +workflow IN (%s)%s ORDER BY wake_at, uid

-- name: priority_of_ready
-- The highest of those below another: as many look-ups as there are priorities, however many runs have them.
SELECT priority FROM run INDEXED BY run_ready
WHERE queue = ? AND priority < ? AND status = 'ready' AND worker IS NULL AND hidden = 0
ORDER BY priority DESC LIMIT 1

-- name: priority_of_waiting
SELECT priority FROM run INDEXED BY run_waiting
WHERE queue = ? AND priority < ? AND status = 'waiting' AND worker IS NULL AND hidden = 0 AND wake_at IS NOT NULL
ORDER BY priority DESC LIMIT 1

-- name: holders
SELECT DISTINCT worker FROM run WHERE worker IS NOT NULL

-- name: held
SELECT worker, lane FROM run INDEXED BY run_held
WHERE queue = ? AND worker IS NOT NULL AND hidden = 0

-- name: left
SELECT r.uid, r.lane, r.queue, r.epoch, r.crashes, r.crashed_at, (SELECT max(seq) FROM entry WHERE run = r.n)
FROM run r WHERE r.worker = ? AND r.hidden = 0 AND r.status IN ('ready', 'running', 'waiting')
AND r.queue IN (%s) AND r.workflow IN (%s) ORDER BY r.uid

-- name: backlog
SELECT queue, 'ready', count(*), min(created_at) FROM run INDEXED BY run_ready
WHERE queue IS NOT NULL AND status = 'ready' AND worker IS NULL AND hidden = 0 GROUP BY queue
UNION ALL
SELECT queue, 'running', count(*), NULL FROM run INDEXED BY run_held
WHERE queue IS NOT NULL AND worker IS NOT NULL AND hidden = 0 GROUP BY queue
UNION ALL
SELECT queue, 'waiting', count(*), NULL FROM run
WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND hidden = 0 GROUP BY queue

-- name: next_wake
SELECT wake_at FROM run INDEXED BY run_wakes
WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND hidden = 0 AND wake_at > ?
AND +queue IN (%s) AND +workflow IN (%s) ORDER BY wake_at LIMIT 1

-- name: run_number
SELECT n FROM run WHERE uid = ?

-- name: insert_link
INSERT INTO link (ancestor, child) VALUES (?, ?)

-- name: is_shared
SELECT 1 FROM link WHERE ancestor = ? LIMIT 1

-- name: read
SELECT e.seq, e.kind, e.at, e.state, p.hash, e.hash, e.payload
FROM entry e LEFT JOIN entry p ON p.run = e.run AND p.seq = e.seq - 1
WHERE e.run = ? AND e.seq BETWEEN ? AND ?

-- name: read_headers
SELECT e.seq, e.kind, e.at, e.state, p.hash, e.hash, x''
FROM entry e LEFT JOIN entry p ON p.run = e.run AND p.seq = e.seq - 1
WHERE e.run = ? AND e.seq BETWEEN ? AND ?

-- name: mail
SELECT 1 FROM inbox i JOIN run r ON r.n = i.run WHERE r.uid = ? AND i.taken = 0 AND i.wakes = 1 LIMIT 1

-- name: inbox_sizes
SELECT r.n, (SELECT count(*) FROM inbox INDEXED BY inbox_by_key WHERE run = r.n),
       (SELECT count(*) FROM inbox INDEXED BY inbox_again WHERE run = r.n)
FROM run r WHERE r.uid = ?

-- name: inbox
SELECT key, kind, at, payload, wakes FROM inbox INDEXED BY inbox_again WHERE run = ? AND taken = 0 ORDER BY n

-- name: taken
SELECT key, payload FROM inbox INDEXED BY inbox_again WHERE run = ? AND taken = 1 ORDER BY key

-- name: post
INSERT INTO inbox (run, key, kind, at, payload, wakes, taken) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: take
UPDATE inbox SET taken = 1, payload = ? WHERE run = ? AND key = ?

-- name: redact
UPDATE entry SET payload = ? WHERE run = (SELECT n FROM run WHERE uid = ?) AND seq = ?

-- name: document
SELECT name, value, version, checksum FROM document WHERE kind = ? AND name = ?

-- name: documents
SELECT name, value, version, checksum FROM document WHERE kind = ? ORDER BY name

-- name: put_document
INSERT INTO document (kind, name, value, version, checksum) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value, version = excluded.version, checksum = excluded.checksum

-- name: delete_document
DELETE FROM document WHERE kind = ? AND name = ?

-- name: forks
r.n IN (SELECT l.child FROM link l JOIN run a ON a.n = l.ancestor WHERE a.uid = ?)

-- name: workers
SELECT name, until, boot, ends, checksum FROM worker ORDER BY name

-- name: count
SELECT count(*) FROM (SELECT 1 FROM run INDEXED BY run_by_status WHERE status = ? AND hidden = 0 LIMIT ?)

-- name: term
SELECT name, until, boot, ends, checksum FROM worker WHERE name = ?

-- name: beat
INSERT INTO worker (name, until, boot, ends, checksum) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE
SET until = excluded.until, boot = excluded.boot, ends = excluded.ends, checksum = excluded.checksum

-- name: retire
DELETE FROM worker WHERE name = ?
