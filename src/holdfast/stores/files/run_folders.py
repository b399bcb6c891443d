"""The folders of runs: finding, listing, making, hiding and removing them.

Where a run is, is remembered as a guess, and checked when it is used: others may have hidden or removed it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.errors import InvalidId, RunDamaged
from holdfast.kernel.model import Item, RunRecord, Status
from holdfast.stores.files.disk import Disk, remove_tree
from holdfast.stores.files.folder import RunFolder, build
from holdfast.stores.files.root import Root
from holdfast.stores.files.text import folder_name, id_in, uid_in

LOOK_ANYWAY = 10.0  # seconds


class RunFolders:
    """All run folders under one root."""

    def __init__(self, root: Root, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._in = root.within
        self._folders: dict[str, RunFolder] = {}  # by path
        self._paths: dict[str, str] = {}  # of the journals that were met, by uid: a guess, checked when it is used
        self._held: tuple[int, float, list[str]] | None = None  # see _held_ones

    def _folder(self, path: str, id: str | None = None) -> RunFolder:
        return self._folders.setdefault(path, RunFolder(path, self._disk, id))

    def _named(self, id: str) -> RunFolder:
        return self._folder(self._in("runs", folder_name(id)), id)

    @contextmanager
    def _run(self, uid: str, *, exclusive: bool) -> Iterator[RunFolder | None]:
        """The folder of this journal, locked; None if there is none."""
        while (path := self._paths.get(uid) or self._search(uid)) is not None:
            folder = self._folder(path)
            with folder.lock(exclusive=exclusive) as there:
                if there and self._holds(folder, uid):
                    yield folder
                    return
            self._forget(folder)
            self._paths.pop(uid, None)
        yield None

    def _holds(self, folder: RunFolder, uid: str) -> bool:
        """Whether the locked folder is that of this journal, as was guessed."""
        try:
            return self._loaded(folder).uid == uid
        except RunDamaged:
            if uid_at(folder.path) in (uid, None):
                raise
            return False

    def _search(self, uid: str) -> str | None:
        for path in (self._in("hidden", uid), *self._all("runs")):
            if os.sep not in uid and uid_at(path) == uid:
                return path
        return None

    def _all(self, *kinds: str) -> list[str]:
        return [self._in(kind, name) for kind in kinds for name in os.listdir(self._in(kind)) if name[0] != "."]

    def _loaded(self, folder: RunFolder) -> RunRecord:
        """The record in a locked folder. What it says of where others are is remembered."""
        record = folder.load().record
        self._paths[record.uid] = folder.path
        for link in record.lineage:
            if link.uid not in self._paths:
                self._paths[link.uid] = self._in("runs", folder_name(link.id))
        return record

    def _forget(self, folder: RunFolder) -> None:
        self._folders.pop(folder.path, None)

    def _get(self, id: str) -> RunRecord | None:
        folder = self._named(id)
        while os.path.isdir(folder.path):
            with folder.lock(exclusive=False) as there:
                if there:
                    record = self._loaded(folder)
                    if record.id != id:
                        raise RunDamaged(id, f"{folder.path} holds the run {record.id!r}; rename the folder back")
                    return None if record.hidden else record
        self._forget(folder)
        return None

    def _listed(self, path: str) -> RunRecord | None:
        """The record for a list: a damaged one is listed as such and does not hide the others."""
        folder = self._folder(path)
        try:
            with folder.lock(exclusive=False) as there:
                return self._loaded(folder) if there else None
        except RunDamaged as damage:
            text, name = text_of(path), os.path.basename(path)
            return RunRecord(
                uid=uid_in(text) or name,
                id=id_in(text, name) or name,
                created_at=0,
                root=b"",
                status=Status.BLOCKED,
                reason=str(damage),
                hidden=path.startswith(self._in("hidden", "")),
            )

    def _held_ones(self) -> list[str]:
        """The folders of runs that may be held. If nobody rang since the last look, they are the same.

        Who died before it could ring is found a little later.
        """
        heard, now = self._root.heard(), time.monotonic()
        known = self._held
        if known is None or known[0] != heard or now > known[1] + LOOK_ANYWAY:
            # Only a claim gives a run a worker, and a claim replaces run.json.
            paths = [path for path in self._all("runs") if b'"worker": null' not in text_of(path)]
            known = self._held = heard, now, paths
        return known[2]

    def _exists(self, uid: str) -> bool:
        with self._run(uid, exclusive=False) as folder:
            return folder is not None

    def _settle_in(
        self, record: RunRecord, lines: Sequence[bytes], items: Sequence[Item], taken: Sequence[str]
    ) -> None:
        """Make the folder of a new run and give it its name, under the root's lock."""
        for link in record.lineage:
            with self._run(link.uid, exclusive=True) as ancestor:
                if ancestor is not None:
                    ancestor.add_fork(record.uid, record.id)
        parent = self._in("hidden" if record.hidden else "runs")
        path = os.path.join(parent, record.uid if record.hidden else folder_name(record.id))
        if not record.hidden and os.path.isdir(path):
            left = self._named(record.id)  # of a run whose deletion was interrupted
            with left.lock(exclusive=True):
                left.settle()
                self._hide(left)
        passing = os.path.join(parent, f".new-{record.uid}")
        build(self._disk, passing, record, lines, items, taken)
        self._disk.rename(passing, path)
        self._disk.fsync_folder(parent)
        self._paths[record.uid] = path

    def _unhide(self, folder: RunFolder, record: RunRecord) -> None:
        """Give the folder of a hidden run the name of one that is to be seen. Its record says so only afterwards."""
        if record.hidden or not folder.path.startswith(self._in("hidden", "")):
            return
        path = self._in("runs", folder_name(record.id))
        self._disk.rename(folder.path, path)
        self._disk.fsync_folder(self._in("runs"))
        self._disk.fsync_folder(self._in("hidden"))
        self._forget(folder)
        folder.path = self._paths[record.uid] = path

    def _hide(self, folder: RunFolder) -> None:
        """Move the folder of a deleted run out of sight. If this is interrupted, its record still says so."""
        uid = folder.load().record.uid
        if folder.path == self._in("hidden", uid):
            return
        if os.path.isdir(inbox := os.path.join(folder.path, "inbox")):
            remove_tree(self._disk, inbox)
        if os.path.isdir(self._in("hidden", uid)):
            self._remove(folder)  # it was moved already, and only its old name came back
            return
        self._disk.rename(folder.path, self._in("hidden", uid))
        self._disk.fsync_folder(self._in("hidden"))
        self._disk.fsync_folder(self._in("runs"))
        self._forget(folder)
        self._paths[uid] = self._in("hidden", uid)

    def _sweep(self) -> None:
        """Remove the hidden runs that no fork shares any longer, descendants before their ancestors."""
        gone = True
        while gone:
            gone = False
            for path in self._all("hidden"):
                folder = self._folder(path)
                if uid_at(path) == os.path.basename(path) and not self._is_shared(folder, os.path.basename(path)):
                    with folder.lock(exclusive=True):
                        self._remove(folder)
                    gone = True

    def _is_shared(self, folder: RunFolder, own: str) -> bool:
        """Whether a run has entries of this one in its history. What cannot be read counts as if it had."""
        for uid, id in folder.forks():
            if (name := _name_of(id)) is not None:
                self._paths.setdefault(uid, self._in("runs", name))
            try:
                with self._run(uid, exclusive=False) as child:
                    if child is not None and any(link.uid == own for link in child.load().record.lineage):
                        return True
            except RunDamaged:
                return True
            folder.drop_fork(uid)
        return False

    def _remove(self, folder: RunFolder) -> None:
        """Remove a locked folder. It is gone from the moment at which it has a passing name."""
        parent, name = os.path.split(folder.path)
        passing = os.path.join(parent, f".gone-{name}")
        self._disk.rename(folder.path, passing)
        self._disk.fsync_folder(parent)
        self._forget(folder)
        remove_tree(self._disk, passing)

    def _tidy(self) -> None:
        """Remove what was being made or removed when its process died."""
        for parent in (self._in("runs"), self._in("hidden")):
            for name in os.listdir(parent):
                if name.startswith((".new-", ".gone-")):
                    remove_tree(self._disk, os.path.join(parent, name))


def text_of(path: str) -> bytes:
    """The run.json in a folder; nothing if it is not there."""
    try:
        with open(os.path.join(path, "run.json"), "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return b""


def uid_at(path: str) -> str | None:
    """The uid of the run in a folder, as its run.json says."""
    return uid_in(text_of(path))


def _name_of(id: str) -> str | None:
    try:
        return folder_name(id)
    except InvalidId:
        return None
