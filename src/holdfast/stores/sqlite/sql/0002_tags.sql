-- The runs of each tag, newest last. Kept by the database, so that whoever makes or deletes a run need not know of it.
CREATE TABLE run_tag (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    uid   TEXT NOT NULL,
    PRIMARY KEY (name, value, uid)
) WITHOUT ROWID;

CREATE TRIGGER run_made AFTER INSERT ON run WHEN NEW.tags <> '{}' BEGIN
    INSERT INTO run_tag (name, value, uid) SELECT key, value, NEW.uid FROM json_each(NEW.tags) WHERE true
    ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER run_removed AFTER DELETE ON run WHEN OLD.tags <> '{}' AND json_valid(OLD.tags) BEGIN
    DELETE FROM run_tag WHERE (name, value, uid) IN (SELECT key, value, OLD.uid FROM json_each(OLD.tags));
END;

-- A damaged run has tags that cannot be read, and is found by none.
INSERT OR IGNORE INTO run_tag (name, value, uid)
SELECT j.key, j.value, r.uid FROM (SELECT tags, uid FROM run WHERE tags <> '{}' AND json_valid(tags)) r, json_each(r.tags) j;
