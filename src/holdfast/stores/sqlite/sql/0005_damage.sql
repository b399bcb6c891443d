-- Second paths to what must not be overlooked. An index whose page is damaged says that a run, an item or a document
-- is not there; so whoever is told so asks a second index, on other pages, before he believes it.
CREATE INDEX run_by_any_id ON run (id);
CREATE INDEX inbox_again ON inbox (run, taken, key);
CREATE INDEX document_by_name ON document (name, kind);

-- The number of the newest entry when this row was last written: a journal that ends before it was cut short.
ALTER TABLE run ADD COLUMN newest INTEGER;

-- Over the rest of the row.
ALTER TABLE worker ADD COLUMN checksum BLOB;
