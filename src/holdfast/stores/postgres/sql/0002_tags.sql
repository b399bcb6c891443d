-- The runs of each tag, newest last. By the digest of the tag, since it may be longer than what fits in an index. Kept
-- by the server, so that whoever makes or deletes a run need not know of it.
CREATE TABLE {schema}.run_tag (
    digest bytea NOT NULL,
    uid    text COLLATE "C" NOT NULL,
    PRIMARY KEY (digest, uid)
);

CREATE FUNCTION {schema}.tag_digests(tags jsonb) RETURNS SETOF bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT DISTINCT substr(sha256(convert_to(key || chr(31) || value, 'UTF8')), 1, 8) FROM jsonb_each_text(tags)
$$;

CREATE FUNCTION {schema}.add_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.run_tag (digest, uid) SELECT {schema}.tag_digests(NEW.tags), NEW.uid;
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.remove_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.run_tag WHERE digest IN (SELECT {schema}.tag_digests(OLD.tags)) AND uid = OLD.uid;
    RETURN NULL;
END $$;

CREATE TRIGGER run_made AFTER INSERT ON {schema}.run
    FOR EACH ROW WHEN (NEW.tags <> '{}') EXECUTE FUNCTION {schema}.add_tags();
CREATE TRIGGER run_removed AFTER DELETE ON {schema}.run
    FOR EACH ROW WHEN (OLD.tags <> '{}') EXECUTE FUNCTION {schema}.remove_tags();

INSERT INTO {schema}.run_tag (digest, uid) SELECT {schema}.tag_digests(tags), uid FROM {schema}.run WHERE tags <> '{}';

DROP INDEX {schema}.run_by_tag;

-- What is due of each priority is found without looking at what waits for later.
DROP INDEX {schema}.run_waiting;
CREATE INDEX run_waiting ON {schema}.run (queue, priority DESC, wake_at, uid)
    WHERE queue IS NOT NULL AND status = 'waiting' AND worker IS NULL AND NOT hidden AND wake_at IS NOT NULL;
