-- Until when the leases of a worker hold, by a clock that nobody can set: which boot of the machine, and its monotonic
-- clock, in microseconds.
--
-- The version before goes on beside this one: it judges by ``until``, the wall clock, which is still written. Its own
-- rows have no boot, and are judged by that too.
ALTER TABLE worker ADD COLUMN boot INTEGER;
ALTER TABLE worker ADD COLUMN ends INTEGER;
