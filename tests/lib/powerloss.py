"""A power failure at every point: what a disk may hold that forgets everything that was not synced.

A `PowerLossDisk` works on real files and keeps account beside them, in a `Platter`: what of a file was synced, and
which names of a folder were. From that, `Platter.leftovers` gives the folders that may be found when the power is
back. What was synced is there. Of what was not, a file may hold the old contents, the new ones, the first half of
them, or the new length filled with zeros; a folder may have its names as they were at any moment since its last sync.
Only a rename from one folder to another is taken to be in both of them or in neither, as every journaling file system
has it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from holdfast.stores.files.disk import Disk, File

Tree = dict[str, bytes | None]  # by relative path; None: a folder
_Moment = dict[str, "_Content | _Names"]  # the names in a folder
_Case = tuple[str, Callable[["_Names"], _Moment], Callable[["_Content"], bytes]]


class _Content:
    """A file: what it holds, and what of that is on the disk."""

    def __init__(self, data: bytes = b"", synced: bytes = b"") -> None:
        self.data = data
        self.synced = synced

    def versions(self) -> dict[str, bytes]:
        """What may be found after a power failure."""
        if self.data == self.synced:
            return {"synced": self.synced}
        kept = len(self.synced) if self.data.startswith(self.synced) else 0
        grown = self.data[:kept] + bytes(len(self.data) - kept)
        half = self.data[: kept + (len(self.data) - kept) // 2]
        return {"synced": self.synced, "written": self.data, "zeros": grown, "half": half}


class _Names:
    """A folder: the names in it, now and at every moment since the last sync."""

    def __init__(self) -> None:
        self.moments: list[_Moment] = [{}]

    @property
    def now(self) -> _Moment:
        return self.moments[-1]

    def put(self, name: str, node: _Content | _Names) -> None:
        self.moments.append({**self.now, name: node})

    def drop(self, name: str) -> _Content | _Names | None:
        kept = dict(self.now)
        node = kept.pop(name, None)
        self.moments.append(kept)
        return node

    def sync(self, since: _Moment | None = None) -> None:
        """From now on nothing before the given moment, or before now, can come back."""
        place = next((n for n, moment in enumerate(self.moments) if moment is since), len(self.moments) - 1)
        self.moments = self.moments[place:]

    def has(self, chosen: _Moment, moment: _Moment) -> bool:
        """Whether the chosen moment is the given one or a later one."""
        order = [id(one) for one in self.moments]
        return id(moment) not in order or order.index(id(chosen)) >= order.index(id(moment))


class Platter:
    """What is on the disk below a folder, which itself is."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.top = _Names()
        self.moves: list[tuple[_Names, _Moment, _Names, _Moment]] = []  # between folders: out of one, into another

    def sync(self, names: _Names) -> None:
        """The names of a folder are on the disk, and so is the other side of each rename into it or out of it."""
        names.sync()
        for source, removed, target, added in self.moves:
            if source is names:
                target.sync(added)
            elif target is names:
                source.sync(removed)

    def names(self, path: str) -> _Names:
        node: _Content | _Names = self.top
        relative = os.path.relpath(path, self.root)
        for part in relative.split(os.sep) if relative != "." else ():
            assert isinstance(node, _Names)
            node = node.now[part]
        assert isinstance(node, _Names)
        return node

    def content(self, path: str) -> _Content:
        """The file at a path; one that was made in another way is taken as it is."""
        folder, name = os.path.split(path)
        node = self.names(folder).now.get(name)
        if node is None:
            with open(path, "rb") as file:
                data = file.read()
            node = _Content(data, data)
            self.names(folder).put(name, node)
        assert isinstance(node, _Content)
        return node

    def leftovers(self, *, every: bool) -> Iterator[tuple[str, Tree]]:
        """What may be found after a power failure, named. The three worst cases, or every combination."""
        for how, names_of, data_of in self._combinations() if every else self._worst():
            if all(
                source.has(names_of(source), removed) == target.has(names_of(target), added)
                for source, removed, target, added in self.moves
            ):
                yield how, self._tree(names_of, data_of)

    def _worst(self) -> Iterator[_Case]:
        def first(names: _Names) -> _Moment:
            return names.moments[0]

        def last(names: _Names) -> _Moment:
            return names.now

        yield "nothing unsynced survived", first, lambda file: file.synced
        yield "names survived, contents did not", last, lambda file: file.synced
        yield "names survived, contents are zeros", last, lambda file: file.versions().get("zeros", file.synced)

    def _combinations(self, most: int = 512) -> Iterator[_Case]:
        folders: list[_Names] = []
        files: list[_Content] = []
        for node in self._all(self.top):
            if isinstance(node, _Names) and len(node.moments) > 1:
                folders.append(node)
            elif isinstance(node, _Content) and node.data != node.synced:
                files.append(node)
        choices = [list(range(len(folder.moments))) for folder in folders]
        versions = [list(file.versions()) for file in files]
        for chosen in itertools.islice(itertools.product(*choices, *versions), most):
            moment = {id(folder): pick for folder, pick in zip(folders, chosen, strict=False)}
            version = {id(file): pick for file, pick in zip(files, chosen[len(folders) :], strict=False)}

            def names_of(names: _Names, moment: dict[int, Any] = moment) -> _Moment:
                return names.moments[int(moment.get(id(names), 0))]

            def data_of(file: _Content, version: dict[int, Any] = version) -> bytes:
                return file.versions()[version.get(id(file), "synced")]

            yield " ".join(map(str, chosen)), names_of, data_of

    def _all(self, node: _Content | _Names) -> Iterator[_Content | _Names]:
        seen: dict[int, _Content | _Names] = {}
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen[id(node)] = node
                if isinstance(node, _Names):
                    waiting += [child for moment in node.moments for child in moment.values()]
        return iter(seen.values())

    def _tree(self, names_of: Callable[[_Names], _Moment], data_of: Callable[[_Content], bytes]) -> Tree:
        tree: Tree = {}
        waiting: list[tuple[str, _Content | _Names]] = list(names_of(self.top).items())
        while waiting:
            path, node = waiting.pop()
            if isinstance(node, _Content):
                tree[path] = data_of(node)
            else:
                tree[path] = None
                waiting += [(os.path.join(path, name), child) for name, child in names_of(node).items()]
        return tree


def fingerprint(tree: Tree) -> bytes:
    """The same for the same contents."""
    digest = sha256()
    for path in sorted(tree):
        data = tree[path]
        digest.update(repr((path, None if data is None else sha256(data).digest())).encode())
    return digest.digest()


class PowerLossDisk(Disk):
    """A disk for `FilesStore` that keeps account on a platter. ``moment`` is called before each call."""

    def __init__(self, platter: Platter, moment: Callable[[str], None]) -> None:
        self.platter = platter
        self.moment = moment
        self._open: dict[int, _Content] = {}

    def create(self, path: str) -> File:
        self.moment(f"create {path}")
        file = super().create(path)
        names, name = self.platter.names(os.path.dirname(path)), os.path.basename(path)
        node = names.now.get(name)
        if isinstance(node, _Content):
            node.data = b""
        else:
            node = _Content()
            names.put(name, node)
        self._open[file.fd] = node
        return file

    def open(self, path: str) -> File:
        file = super().open(path)
        self._open[file.fd] = self.platter.content(path)
        return file

    def write(self, file: File, data: bytes) -> None:
        self.moment(f"write {file.path}")
        super().write(file, data)
        self._open[file.fd].data += data

    def truncate(self, file: File, size: int) -> None:
        self.moment(f"truncate {file.path}")
        super().truncate(file, size)
        node = self._open[file.fd]
        node.data = node.data[:size]

    def fsync(self, file: File) -> None:
        self.moment(f"fsync {file.path}")
        super().fsync(file)
        node = self._open[file.fd]
        node.synced = node.data

    def close(self, file: File) -> None:
        super().close(file)
        self._open.pop(file.fd, None)

    def fsync_folder(self, path: str) -> None:
        self.moment(f"fsync {path}/")
        super().fsync_folder(path)
        if path.startswith(self.platter.root):
            self.platter.sync(self.platter.names(path))

    def replace(self, old: str, new: str) -> None:
        self.moment(f"replace {new}")
        super().replace(old, new)
        self._move(old, new)

    def rename(self, old: str, new: str) -> None:
        self.moment(f"rename {old}")
        super().rename(old, new)
        self._move(old, new)

    def _move(self, old: str, new: str) -> None:
        source, target = self.platter.names(os.path.dirname(old)), self.platter.names(os.path.dirname(new))
        node = source.now[os.path.basename(old)]
        if source is target:  # one change, as every file system makes it
            kept = {name: child for name, child in source.now.items() if name != os.path.basename(old)}
            source.moments.append({**kept, os.path.basename(new): node})
        else:
            target.put(os.path.basename(new), node)
            source.drop(os.path.basename(old))
            self.platter.moves.append((source, source.now, target, target.now))

    def mkdir(self, path: str) -> None:
        self.moment(f"mkdir {path}")
        super().mkdir(path)
        self.platter.names(os.path.dirname(path)).put(os.path.basename(path), _Names())

    def unlink(self, path: str) -> None:
        self.moment(f"unlink {path}")
        super().unlink(path)
        self.platter.names(os.path.dirname(path)).drop(os.path.basename(path))

    def rmdir(self, path: str) -> None:
        self.moment(f"rmdir {path}")
        super().rmdir(path)
        self.platter.names(os.path.dirname(path)).drop(os.path.basename(path))
