"""One run's folder, from its first transaction to its last.

A run is **built** under a passing name and renamed, so it is there as a whole or not at all. From then on each
transaction is one **line** of journal.jsonl, written and synced; that line is the moment at which it counts. A plain
step is nothing but its line. A transaction that does more (it changes the record, takes inbox items, erases
payloads) has this in its line too; only then is the rest **finished**: journal.jsonl is rewritten without what was
erased, taken items become markers, and run.json is replaced by the record as it is after that line.

So after a crash only the last line can be ahead of run.json. Whoever reads adds it to what run.json says; whoever
writes **settles** the folder first: a line that was cut off is removed, one that nobody synced is synced, what was
not finished is finished. Transactions without entries (claims, wakes, posted items) are replacements of run.json,
which always names the newest entry, so a line never undoes them.

All methods but `RunFolder.lock` and `build` need the run's lock: shared to read, exclusive to write.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import InboxNotEmpty, LeaseLost, RunDamaged
from holdfast.kernel.model import Append, Entry, Item, Kind, RunRecord, Status
from holdfast.kernel.rules import appended, conflict, continues, end_refusal, ends
from holdfast.stores.files import text
from holdfast.stores.files.disk import Disk, File, remove_tree, replace_file, sync_file, write_file
from holdfast.stores.files.journal import Damaged, begins, lines_between, onward, parsed, sound_tail, tail
from holdfast.stores.files.text import Damage, Erasures, Line, RunFile, StoredEntry
from holdfast.stores.lock_holder import take_folder
from holdfast.stores.locks import LockFile

MAX_MARKS = 1024
_BEYOND = 1 << 62


class Contents(Struct, frozen=True):
    """What a folder holds. ``took`` and ``redact`` are what its last transaction has not finished yet."""

    record: RunRecord
    posted: int
    took: tuple[str, ...]
    redact: Erasures
    behind: bool  # run.json does not say yet what the last line says
    end: int  # where the good part of the journal ends
    closed: bool  # whether that has its newline
    raw: bytes  # run.json as it was read,
    journal: tuple[int, int]  # and the journal's inode and size: while all three stay, so does the rest
    damage: str | None = None  # why nothing may be written; what stands before the damage can still be read


class RunFolder:
    """The folder of one run. One object may be used by many threads."""

    def __init__(self, path: str, disk: Disk, id: str | None = None) -> None:
        self.path = path
        self._disk = disk
        self._id = id
        self._known: Contents | None = None
        self._synced: tuple[bytes, tuple[int, int]] | None = None  # what is known to be on the disk
        self._marks: dict[int, int] = {}  # where the lines start that begin with these entries

    def _in(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    @contextmanager
    def lock(self, *, exclusive: bool) -> Iterator[bool]:
        """Hold the run's lock. False if the folder is gone, or was renamed while this waited."""
        try:
            lock = LockFile(self._open_lock())
        except (FileNotFoundError, NotADirectoryError):
            yield False
            return
        try:
            take_folder(lock, self._in("lock"), fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield self._is_lock(lock.fd)
        finally:
            lock.free()  # closing is not enough: a child that was forked just now may have the descriptor too
            lock.close()

    def _open_lock(self) -> int:
        try:
            return os.open(self._in("lock"), os.O_RDONLY)
        except FileNotFoundError:
            if not os.path.exists(self._in("run.json")):
                raise
            return self._disk.create(self._in("lock")).fd  # somebody tidied it away

    def _is_lock(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._in("lock")))
        except (FileNotFoundError, NotADirectoryError):
            return False

    # --- what the folder says

    def load(self) -> Contents:
        """What the folder holds now; raises `RunDamaged`."""
        raw = self._read_bytes("run.json")
        try:
            stat = os.stat(self._in("journal.jsonl"))
        except FileNotFoundError:
            raise self._damaged("journal.jsonl", "it is missing") from None
        known, journal = self._known, (stat.st_ino, stat.st_size)
        if known is not None and known.raw == raw and known.journal == journal:
            return known
        try:
            run = text.read_run(raw)
        except Damage as damage:
            raise self._damaged("run.json", str(damage)) from None
        self._id = run.record.id
        contents = self._add_tail(run, raw, journal)
        # A line that was cut off may give way to another one of the same length, so it is looked at again.
        self._known = contents if contents.end == stat.st_size else None
        return contents

    def _add_tail(self, run: RunFile, raw: bytes, journal: tuple[int, int]) -> Contents:
        problem, lost = None, 0
        with self._reading() as fd:
            try:
                found = tail(fd, journal[1])
            except Damaged as damage:
                problem = str(damage)
                found, lost = sound_tail(fd, damage.at)
        record, line = run.record, found.line
        last = line.last if line is not None else record.base - 1
        if problem is not None:
            return self._before_damage(run, raw, journal, problem, max(record.seq, last + lost))
        if last < record.seq:
            raise self._damaged("journal.jsonl", f"it was cut short: it ends at entry {last}, not at {record.seq}")
        took, behind = run.took, bool(run.took or run.redact)
        redact = tuple((seq, bytes.fromhex(payload)) for seq, payload in run.redact)
        if line is not None and last == record.seq and line.entries[-1].hash != record.hash.hex():
            raise self._damaged("journal.jsonl", f"its entry {last} is not the one that run.json names")
        if line is not None and last > record.seq:
            record = appended(record, _as_write(line), mail=line.mail)
            took, redact = took + line.took, redact + line.redact
            behind = behind or bool(line.change or took or redact)
        return Contents(record, run.posted, took, redact, behind, found.end, found.closed, raw, journal)

    def _before_damage(self, run: RunFile, raw: bytes, journal: tuple[int, int], problem: str, newest: int) -> Contents:
        """A run whose newest entry cannot be read: it is parked, and its earlier entries are still there."""
        parked = str(self._damaged("journal.jsonl", problem))
        record = replace(run.record, seq=newest, hash=b"", state=newest, status=Status.BLOCKED, reason=parked)
        return Contents(record, run.posted, run.took, (), False, journal[1], True, raw, journal, problem)

    def entries(
        self, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        """Entries with lo <= seq <= hi, in order, as `Store.read` does; raises `RunDamaged` if one is missing."""
        contents = self.load()
        lo, hi = max(lo, contents.record.base), min(hi, contents.record.seq)
        if lo > hi or (limit is not None and limit <= 0):
            return []
        found: list[Entry] = []
        erased = dict(contents.redact)
        for prev, stored in self._stored(contents, lo, hi):
            if saved is None or (stored.kind == Kind.SAVED) is saved:
                entry = stored.entry(prev, payload=payloads)
                if payloads and entry.seq in erased:
                    entry = replace(entry, payload=erased[entry.seq])
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    def _stored(self, contents: Contents, lo: int, hi: int) -> Iterator[tuple[bytes, StoredEntry]]:
        """The entries lo to hi, each with the hash before it."""
        prev, expected = contents.record.root, None
        first = max(lo - 1, contents.record.base)  # the entry before is needed for its hash
        with self._reading() as fd:
            for at, line in self._lines(fd, contents, first, hi):
                if expected is not None and line.first != expected:
                    raise Damaged(at, f"entry {expected} should be here, and it is {line.first}")
                for stored in line.entries:
                    if lo <= stored.seq <= hi:
                        yield prev, stored
                    prev = bytes.fromhex(stored.hash)
                expected = line.last + 1
            if expected is None or expected <= hi:
                raise Damaged(contents.end, f"entry {lo if expected is None else expected} is missing")

    def _lines(self, fd: int, contents: Contents, first: int, last: int) -> Iterator[tuple[int, Line]]:
        """The lines that hold the entries first to last, looked for from the nearest place known."""
        seq = max((seq for seq in list(self._marks) if seq <= first), default=contents.record.base)
        mark = (seq, self._marks.get(seq, 0))
        if self._marks and not begins(fd, *mark, contents.end):
            self._marks.clear()  # the journal was rewritten since
            mark = (contents.record.base, 0)
        try:
            for at, line in lines_between(fd, contents.end, first, last, newest=contents.record.seq, mark=mark):
                mark = (line.first, at)
                yield at, line
        finally:
            if len(self._marks) >= MAX_MARKS:
                self._marks.clear()
            self._marks[mark[0]] = mark[1]  # where the reading of the next page goes on

    @contextmanager
    def _reading(self) -> Iterator[int]:
        """The journal's file descriptor; damage that is found names file and place."""
        fd = os.open(self._in("journal.jsonl"), os.O_RDONLY)
        try:
            yield fd
        except Damaged as damage:
            raise self._damaged("journal.jsonl", str(damage)) from None
        finally:
            os.close(fd)

    def _read_bytes(self, *names: str) -> bytes:
        try:
            with open(self._in(*names), "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            raise self._damaged(os.path.join(*names), "it is missing") from None

    def _damaged(self, name: str, problem: str) -> RunDamaged:
        id = self._id or os.path.basename(self.path)
        remedy = "restore the run from a backup, or fork it before the damage"
        return RunDamaged(id, f"{self._in(name)}: {problem}; {remedy}")

    # --- writing

    def settle(self) -> Contents:
        """Repair and finish what a crash has left, and make sure that what is built upon is on the disk."""
        contents = self.load()
        if contents.damage is not None:
            raise self._damaged("journal.jsonl", contents.damage)
        if self._synced != (contents.raw, contents.journal):
            self._repair(contents)
            sync_file(self._disk, self._in("journal.jsonl"))
            self._disk.fsync_folder(self.path)
            self._disk.fsync_folder(os.path.dirname(self.path))
            contents = self.load()
            self._synced = (contents.raw, contents.journal)
        if contents.behind:
            self.finish(contents)
            contents = self.load()
        return contents

    def _repair(self, contents: Contents) -> None:
        if contents.end == contents.journal[1] and contents.closed:
            return
        self._known = self._synced = None
        with self._journal() as file:
            if contents.end < contents.journal[1]:
                self._disk.truncate(file, contents.end)
            if not contents.closed:
                self._disk.write(file, b"\n")

    @contextmanager
    def _journal(self) -> Iterator[File]:
        file = self._disk.open(self._in("journal.jsonl"))
        try:
            yield file
        finally:
            self._disk.close(file)

    def commit(self, contents: Contents, write: Append) -> LeaseLost | InboxNotEmpty | None:
        """Carry out a write that the lease allows, in a settled folder. When this returns, it will last.

        What is left to be finished is in the contents that `load` gives now.
        """
        if write.entries and not continues(contents.record, write):
            last = write.entries[-1].seq
            return conflict(write, self.entries(last, last, payloads=False))
        if ends(write) and (unread := end_refusal(write, [item.key for item in self.items()])):
            return unread
        mail = self._has_mail(contents, write)
        record = appended(contents.record, write, mail=mail)
        if not write.entries:
            erased = tuple((seq, payload.hex()) for seq, payload in write.redact)
            self.put(RunFile(record, contents.posted, write.took, erased))
            return None
        line = text.line_text(write.epoch, write.worker, write.entries, write.change, write.took, write.redact, mail)
        self._append(line, contents)
        inode, size = contents.journal
        after = Contents(
            record,
            contents.posted,
            write.took,
            write.redact,
            bool(write.change or write.took or write.redact),
            contents.end + len(line),
            True,
            contents.raw,
            (inode, size + len(line)),
        )
        self._known, self._synced = after, (after.raw, after.journal)
        return None

    def _has_mail(self, contents: Contents, write: Append) -> bool:
        """Whether an item wakes the run that goes to wait with this write."""
        status = write.change.status if write.change else None
        if Status.WAITING not in (status, contents.record.status):
            return False
        return any(item.wakes and item.key not in write.took for item in self.items())

    def _append(self, line: bytes, contents: Contents) -> None:
        with self._journal() as file:
            self._known = self._synced = None
            try:
                self._disk.write(file, line)
                self._disk.fsync(file)
            except OSError:
                # Nobody is told that it was written, so it should not be there. Where this fails too, the system
                # reports the failure of the disk, and the handle is given up.
                self._disk.truncate(file, contents.end)
                self._disk.fsync(file)
                raise

    def finish(self, contents: Contents) -> None:
        """Do what the last transaction left to do after its line. May be repeated."""
        if contents.redact:
            self._erase(dict(contents.redact))
        for key in contents.took:
            self._take(key)
        if contents.took:
            self._disk.fsync_folder(self._in("inbox", "taken"))
            self._remove_taken()
            self._disk.fsync_folder(self._in("inbox"))
        self.put(RunFile(contents.record, contents.posted))

    def put(self, run: RunFile) -> None:
        """Replace run.json."""
        raw, synced = text.run_text(run), self._synced
        self._known = self._synced = None
        replace_file(self._disk, self._in("run.json"), raw)
        self._synced = (raw, synced[1]) if synced is not None else None

    def replace(self, record: RunRecord, lines: Sequence[bytes], items: Sequence[Item], taken: Sequence[str]) -> None:
        """Put a newer copy of the run in the place of one that nobody lives in, in a settled folder.

        Wherever this is broken off, run.json says that nobody lives in it, and so it can be done again.
        """
        self._known = self._synced = None
        self._marks.clear()
        replace_file(self._disk, self._in("journal.jsonl"), b"".join(lines))
        if os.path.isdir(self._in("inbox")):
            remove_tree(self._disk, self._in("inbox"))
        build_inbox(self._disk, self.path, items, taken)
        self.put(RunFile(record, len(items)))

    def _erase(self, erased: dict[int, bytes]) -> None:
        """Rewrite the journal without these payloads."""
        with self._reading() as fd:
            lines = list(onward(fd, 0, os.fstat(fd).st_size))
            new = []
            for at, old in lines:
                line = parsed(at, old)
                touched = any(entry.seq in erased for entry in line.entries)
                new.append(text.erased_line(line, erased) if touched else old + b"\n")
        after = b"".join(new)
        if after == b"".join(old + b"\n" for _, old in lines):
            return
        self._known = self._synced = None
        replace_file(self._disk, self._in("journal.jsonl"), after)

    # --- the inbox

    def items(self) -> list[Item]:
        """Items that were not taken, oldest first."""
        contents = self.load()
        found = []
        for name in self._posted(contents):
            try:
                item = text.read_item(self._read_bytes("inbox", name))
            except Damage as damage:
                raise self._damaged(os.path.join("inbox", name), str(damage)) from None
            if item.key not in contents.took:
                found.append(item)
        return found

    def _posted(self, contents: Contents) -> list[str]:
        """The files of the items, oldest first. One with a greater number was never accepted."""
        names = [name for name in _listed(self._in("inbox")) if _item_number(name) <= contents.posted]
        taken = set(_listed(self._in("inbox", "taken"))) if names else ()
        return sorted(name for name in names if name.partition("-")[2] not in taken)

    def taken(self) -> list[str]:
        """Keys of the items that were taken."""
        contents = self.load()
        keys = set(contents.took)
        unfinished = {text.marker_name(key) for key in keys}
        for name in _listed(self._in("inbox", "taken")):
            if name not in unfinished:
                try:
                    keys.add(text.read_marker(self._read_bytes("inbox", "taken", name)))
                except Damage as damage:
                    raise self._damaged(os.path.join("inbox", "taken", name), str(damage)) from None
        return sorted(keys)

    def is_used(self, contents: Contents, key: str) -> bool:
        """Whether an item of this key was ever posted or taken."""
        marker = text.marker_name(key)
        if os.path.exists(self._in("inbox", "taken", marker)):
            return True
        return any(name.endswith("-" + marker) for name in self._posted(contents))

    def post(self, contents: Contents, item: Item, record: RunRecord) -> None:
        """Add an item. It counts from the moment at which run.json names its number."""
        number = contents.posted + 1
        for name in _listed(self._in("inbox")):
            if number <= _item_number(name) < _BEYOND:
                self._disk.unlink(self._in("inbox", name))  # its writer died before it was accepted
        self._make("inbox")
        write_file(self._disk, self._in("inbox", text.item_name(number, item.key)), text.item_text(item))
        self._disk.fsync_folder(self._in("inbox"))
        self.put(RunFile(record, number))

    def _take(self, key: str) -> None:
        self._make("inbox")
        self._make("inbox", "taken")
        write_file(self._disk, self._in("inbox", "taken", text.marker_name(key)), text.marker_text(key))

    def _remove_taken(self) -> None:
        """Remove the files of items that have a marker."""
        taken = set(_listed(self._in("inbox", "taken")))
        for name in _listed(self._in("inbox")):
            if name.partition("-")[2] in taken:
                self._disk.unlink(self._in("inbox", name))

    def _make(self, *names: str) -> None:
        path = self._in(*names)
        if not os.path.isdir(path):
            self._disk.mkdir(path)

    # --- forks

    def forks(self) -> list[tuple[str, str]]:
        """The runs that were forked from this one, as (uid, id); a fork may have gone, or never have come to be."""
        found = []
        for uid in _listed(self._in("forks")):
            with suppress(FileNotFoundError), open(self._in("forks", uid), "rb") as file:
                found.append((uid, file.read().decode(errors="replace")))  # only a hint: the uid is its name
        return found

    def add_fork(self, uid: str, id: str) -> None:
        """Remember that a run shares entries of this one, before it does."""
        self._make("forks")
        write_file(self._disk, self._in("forks", uid), id.encode())
        self._disk.fsync_folder(self._in("forks"))
        self._disk.fsync_folder(self.path)
        sync_file(self._disk, self._in("journal.jsonl"))  # a fork must not stand on what a power failure takes away

    def drop_fork(self, uid: str) -> None:
        """Forget a fork."""
        with suppress(FileNotFoundError):
            self._disk.unlink(self._in("forks", uid))


def build(
    disk: Disk, path: str, record: RunRecord, lines: Sequence[bytes], items: Sequence[Item], taken: Sequence[str]
) -> None:
    """Make a run's folder with all that is in it, lasting but for its own name."""
    disk.mkdir(path)
    build_inbox(disk, path, items, taken)
    write_file(disk, os.path.join(path, "journal.jsonl"), b"".join(lines))
    write_file(disk, os.path.join(path, "run.json"), text.run_text(RunFile(record, len(items))))
    write_file(disk, os.path.join(path, "lock"), b"", sync=False)
    disk.fsync_folder(path)


def build_inbox(disk: Disk, path: str, items: Sequence[Item], taken: Sequence[str]) -> None:
    """Make the inbox of a run's folder that has none."""
    if not (items or taken):
        return
    disk.mkdir(os.path.join(path, "inbox"))
    disk.mkdir(os.path.join(path, "inbox", "taken"))
    for number, item in enumerate(items, 1):
        write_file(disk, os.path.join(path, "inbox", text.item_name(number, item.key)), text.item_text(item))
    for key in taken:
        write_file(disk, os.path.join(path, "inbox", "taken", text.marker_name(key)), text.marker_text(key))
    disk.fsync_folder(os.path.join(path, "inbox", "taken"))
    disk.fsync_folder(os.path.join(path, "inbox"))


def _as_write(line: Line) -> Append:
    entries = tuple(stored.entry(b"") for stored in line.entries[-1:])
    return Append("", "", line.epoch, line.worker or "", entries, line.change, line.took, line.redact)


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _item_number(name: str) -> int:
    """The number of an item's file; of any other file one that is never reached."""
    number, _, rest = name.partition("-")
    return int(number) if rest and number.isascii() and number.isdigit() else _BEYOND
