"""The documents of a files store: one file each, replaced as a whole, in a folder for each kind."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from holdfast.errors import StoreDamaged
from holdfast.kernel.clock import Clock
from holdfast.kernel.model import Document
from holdfast.kernel.rules import new_version
from holdfast.stores.files.disk import Disk, replace_file
from holdfast.stores.files.root import Root
from holdfast.stores.files.text import Damage, document_text, marker_name, read_document


class Documents:
    """What the engine itself remembers in the folder."""

    def __init__(self, root: Root, disk: Disk, clock: Clock) -> None:
        self._root = root
        self._disk = disk
        self._clock = clock

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock under which documents are changed, and runs are taken from queues."""
        self._root.make(self._root.within("documents"))
        return self._root.holding("documents", ".lock")

    def get(self, kind: str, name: str) -> Document | None:
        """The document of this kind and name."""
        return self._read(self._path(kind, name))

    def all(self, kind: str) -> list[Document]:
        """All of a kind, by name."""
        folder = self._root.within("documents", _folder(kind))
        names = os.listdir(folder) if os.path.isdir(folder) else []
        found = [self._read(os.path.join(folder, name)) for name in names if name.endswith(".json")]
        return sorted((one for one in found if one is not None), key=lambda one: one.name)

    def put(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        """Replace or delete it, if its version is the expected one."""
        path = self._path(kind, name)
        with self.locked():
            known = self._read(path)
            if (known.version if known else None) != expected:
                return False
            self._root.make(os.path.dirname(path))
            for folder in (self._root.path, self._root.within("documents")):
                self._disk.fsync_folder(folder)  # whoever made what is in there may have died before it was lasting
            if value is not None:
                replace_file(self._disk, path, document_text(Document(name, value, new_version(self._clock))))
            elif known is not None:
                self._disk.unlink(path)
                self._disk.fsync_folder(os.path.dirname(path))
            return True

    def _path(self, kind: str, name: str) -> str:
        return self._root.within("documents", _folder(kind), marker_name(name))

    def _read(self, path: str) -> Document | None:
        try:
            with open(path, "rb") as file:
                return read_document(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Damage as damage:
            problem = f"{path}: {damage}; remove it and declare the queue or schedule again, or restore it"
            raise StoreDamaged(self._root.place, problem) from None


def _folder(kind: str) -> str:
    return marker_name(kind).removesuffix(".json") if not (kind.isascii() and kind.isalnum()) else kind
