"""What is missing in a SQLite file, and whether it was never there: damage that no checksum of a row can tell.

A row that is damaged fails its checksum. A page of an *index* that is damaged hides sound rows instead: the run is "not
there". So whoever finds nothing by one index asks a second one, which stands on other pages, before he believes it.
`examine` looks at everything, as `holdfast doctor` does; `glance` does so for a second at most.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.errors import HoldfastError, RunDamaged, StoreDamaged
from holdfast.kernel.model import Status
from holdfast.stores.sql_rows import item_of
from holdfast.stores.sqlite.rows import document_of, record_of, taken_of, term_of

REMEDY = "`holdfast doctor` tells more; restore it from a backup with `restore`"
TABLES = ("run", "inbox", "document", "link", "entry", "run_tag", "worker", "meta")  # those that matter most come first
MOST_ENTRIES = 10_000  # of the newest, that are looked through when a run is taken over from the dead
MOST_BYTES = 64 << 20  # of a file that is looked at when it is opened after an unclean end
STEPS = 2_000  # of SQLite's machine, between two looks at the clock
STATUSES = ", ".join(f"'{status}'" for status in Status)


def check_no_id(db: sqlite3.Connection | sqlite3.Cursor, record: str, place: str, id: str) -> None:
    """Raise if there is a run of this id after all, which the first index does not have. In a transaction."""
    query = record.replace("FROM run r", "FROM run r INDEXED BY run_by_any_id")
    for row in db.execute(f"{query} WHERE r.id = ?", (id,)).fetchall():
        if not record_of(row).hidden:
            raise StoreDamaged(place, f"an index is damaged and does not have the run {id!r}; {REMEDY}")


def is_known_id(db: sqlite3.Connection, id: str) -> bool:
    """Whether the second index of ids has a run of this id, hidden or not."""
    return db.execute("SELECT 1 FROM run INDEXED BY run_by_any_id WHERE id = ? LIMIT 1", (id,)).fetchone() is not None


def is_known_uid(db: sqlite3.Connection, uid: str) -> bool:
    """Whether the index by status has a run of this uid."""
    query = f"SELECT 1 FROM run INDEXED BY run_by_status WHERE status IN ({STATUSES}) AND uid = ?"
    return db.execute(query, (uid,)).fetchone() is not None


def check_inbox(db: sqlite3.Connection, number: int, id: str) -> None:
    """Raise `RunDamaged` if the two indexes of the run's inbox do not have the same items, by one statement."""
    counting = "SELECT count(*) a, count(*) FILTER (WHERE taken = 0) o, count(*) FILTER (WHERE taken = 1) t FROM inbox"
    [counts] = db.execute(
        f"SELECT x.a, x.o, x.t, y.a, y.o, y.t FROM ({counting} INDEXED BY inbox_by_key WHERE run = ?) x, "
        f"({counting} INDEXED BY inbox_again WHERE run = ?) y",
        (number, number),
    )
    if counts[:3] != counts[3:] or counts[0] != counts[1] + counts[2]:
        raise RunDamaged(id, f"items of its inbox are missing or damaged; {REMEDY}")


def is_posted(db: sqlite3.Connection, number: int, key: str) -> bool:
    """Whether the second index of inboxes has an item of this key, taken or not."""
    query = "SELECT 1 FROM inbox INDEXED BY inbox_again WHERE run = ? AND taken IN (0, 1) AND key = ?"
    return db.execute(query, (number, key)).fetchone() is not None


def is_known_document(db: sqlite3.Connection, kind: str, name: str) -> bool:
    """Whether the second index of documents has this one."""
    query = "SELECT 1 FROM document INDEXED BY document_by_name WHERE name = ? AND kind = ?"
    return db.execute(query, (name, kind)).fetchone() is not None


def check_documents(db: sqlite3.Connection, place: str, kind: str) -> None:
    """Raise if the two indexes of documents do not have as many of this kind, by one statement."""
    counting = "SELECT count(*) FROM document"
    [(found, again)] = db.execute(
        f"SELECT ({counting} NOT INDEXED WHERE kind = ?), ({counting} INDEXED BY document_by_name WHERE kind = ?)",
        (kind, kind),
    )
    if found != again:
        raise StoreDamaged(place, f"it has {found} documents of the kind {kind}, and by an index {again}; {REMEDY}")


def check_tail(db: sqlite3.Connection, number: int, id: str, newest: int) -> None:
    """Raise `RunDamaged` if the run has entries after the newest one that its index has.

    Entries stand in the table in the order of their commits, so those of a holder that died just now are near its end.
    """
    [begin] = db.execute("SELECT max(n) FROM entry WHERE run = ? AND seq = ?", (number, newest)).fetchone()
    later = "SELECT run, seq FROM entry NOT INDEXED WHERE n > ? ORDER BY n LIMIT ?"
    query = f"SELECT seq FROM ({later}) WHERE run = ? AND seq > ? LIMIT 1"
    row = db.execute(query, (begin or 0, MOST_ENTRIES, number, newest)).fetchone()
    if row is not None:
        raise RunDamaged(id, f"an index is damaged and does not have its entry {row[0]}; {REMEDY}")


# --- the whole file


def glance(db: sqlite3.Connection, seconds: float) -> str | None:
    """An index that does not have exactly the rows of its table, if one is found within this time; or tags, or forks.

    Other damage is left to whoever meets it: it concerns the run that it is in, and an index concerns all of them.
    """
    [(pages,)], [(size,)] = db.execute("PRAGMA page_count"), db.execute("PRAGMA page_size")
    if pages * size > MOST_BYTES:
        return None
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        return next((text for text in _structure(db) if " index " in text), None) or next(_missing(db), None)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        db.set_progress_handler(None, 0)


def examine(db: sqlite3.Connection, queries: dict[str, str], place: str) -> Iterator[str]:
    """Everything that is wrong with the tables, their indexes, and what belongs together in them."""
    for part in (_structure(db), _rows(db, queries, place), _missing(db)):
        try:
            yield from part
        except sqlite3.Error as error:
            yield str(error)


def _structure(db: sqlite3.Connection) -> Iterator[str]:
    """What SQLite says of each table, and of whether its indexes have exactly its rows."""
    for table in TABLES:
        for (text,) in db.execute(f"PRAGMA integrity_check({table})").fetchall():
            if text != "ok":
                yield f"table {table}: {text}"
    for (text,) in db.execute("PRAGMA quick_check(5)").fetchall():  # the list of free pages, and pages used twice
        if text != "ok":
            yield str(text)


def _rows(db: sqlite3.Connection, queries: dict[str, str], place: str) -> Iterator[str]:
    """Rows that are not what was written. Entries are checked with their journals."""
    runs = queries["record"].replace("FROM run r", "FROM run r NOT INDEXED")
    yield from _told(record_of, db.execute(runs), whole=True)
    items = "SELECT r.uid, i.key, i.kind, i.at, i.payload, i.wakes FROM inbox i JOIN run r ON r.n = i.run WHERE i.taken"
    yield from _told(item_of, db.execute(f"{items} = 0"))
    taken = "SELECT r.uid, i.key, i.payload FROM inbox i JOIN run r ON r.n = i.run WHERE i.taken IS NOT 0"
    yield from _told(taken_of, db.execute(taken))
    documents = "SELECT kind, ?, name, value, version, checksum FROM document"
    yield from _told(document_of, db.execute(documents, (place,)))
    yield from _told(term_of, db.execute("SELECT ?, name, until, boot, ends, checksum FROM worker", (place,)))


def _told(check: Callable[..., Any], rows: Iterable[tuple[Any, ...]], *, whole: bool = False) -> Iterator[str]:
    """What a check says of the rows that fail it."""
    for row in rows:
        try:
            check(row) if whole else check(*row)
        except HoldfastError as error:
            yield str(error)


def _missing(db: sqlite3.Connection) -> Iterator[str]:
    """What one table says of another, and is not there."""
    for what, query in _CROSS_CHECKS.items():
        [(count,)] = db.execute(query)
        if count:
            yield f"{count} {what}"


_TEXTS = "SELECT n, uid, {0} AS text FROM run NOT INDEXED WHERE typeof({0}) = 'text' AND json_valid({0})"
_CROSS_CHECKS = {
    "tags of runs are missing in the table of tags": f"""
        SELECT count(*) FROM ({_TEXTS.format("tags")}) r, json_each(r.text) j WHERE NOT EXISTS
        (SELECT 1 FROM run_tag t WHERE t.name = j.key AND t.value = j.value AND t.uid = r.uid)""",
    "tags belong to no run": "SELECT count(*) FROM run_tag WHERE uid NOT IN (SELECT uid FROM run)",
    "forks are missing in the table of forks, or the run that they were forked from is": f"""
        SELECT count(*) FROM ({_TEXTS.format("lineage")}) r, json_each(r.text) j WHERE NOT EXISTS
        (SELECT 1 FROM link l JOIN run a ON a.n = l.ancestor
         WHERE l.child = r.n AND a.uid = json_extract(j.value, '$[0]'))""",
    "rows of the table of forks name no run": """
        SELECT count(*) FROM link WHERE child NOT IN (SELECT n FROM run) OR ancestor NOT IN (SELECT n FROM run)""",
    "entries belong to no run": "SELECT count(*) FROM entry WHERE run NOT IN (SELECT n FROM run)",
    "items of inboxes belong to no run": "SELECT count(*) FROM inbox WHERE run NOT IN (SELECT n FROM run)",
}
