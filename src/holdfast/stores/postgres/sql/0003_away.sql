-- Where a run lives that was moved, or is being moved (its status is ``away``), and what it is there in the end.
--
-- The version before names its columns, so it goes on beside this one. It does not know the status, takes no such run,
-- and refuses to read or write it.
ALTER TABLE {schema}.run ADD COLUMN away text COLLATE "C", ADD COLUMN was text COLLATE "C";
