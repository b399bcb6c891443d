"""wesichain: checkpoints as lines of JSON, each with its thread. A thread's lines, in order, are its history.

A line that is torn or damaged is told, and the others are read. Lines are read twice, once to find the threads and
once for each thread, so that a long file need not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from holdfast.importers.reading import (
    MAX_BYTES,
    Count,
    Source,
    Unreadable,
    beside,
    decode,
    digest_of,
    files_named,
    lines,
)
from holdfast.importers.records import Damaged, Found, Saved


class Checkpoint(Struct, frozen=True):
    """The state of a thread after a step, and the work that is left."""

    thread_id: str
    state: Any
    step: Count
    node: str
    queue: list[tuple[str, Count]]
    created_at: str


_Place = tuple[int, int]  # where a line begins, and its length


def places(source: Source) -> Iterator[str]:
    """The files of lines."""
    return files_named(source, ".jsonl")


def read(source: Source, place: str) -> Iterator[Found | Damaged]:
    """The threads of a file, in the order of their first lines, after the lines that are damaged."""
    threads: dict[str, list[_Place]] = {}
    try:
        yield from _index(source, place, threads)
    except (Unreadable, OSError) as error:
        yield _failed(source, place, error)
    for thread, found in threads.items():
        try:
            yield _run(source, place, thread, found)
        except (Unreadable, OSError) as error:
            yield _failed(source, place, error)


def _failed(source: Source, path: str, error: Unreadable | OSError) -> Damaged:
    if isinstance(error, OSError):
        error = Unreadable("the file", f"it cannot be read: {error.strerror}")
    return source.damaged(path, error)


def _index(source: Source, path: str, threads: dict[str, list[_Place]]) -> Iterator[Damaged]:
    with source.open(path) as file:
        for number, offset, line in lines(file):
            try:
                if line is None:
                    raise Unreadable("$", f"it is longer than {MAX_BYTES:,} bytes")
                _, checked = decode(line, Checkpoint)
            except Unreadable as error:
                yield Damaged(source.name(path), f"line {number}, {error.place}", error.why)
                continue
            threads.setdefault(checked.thread_id, []).append((offset, len(line)))


def _run(source: Source, path: str, thread: str, found: list[_Place]) -> Found:
    texts = []
    with source.open(path) as file:
        for offset, length in found:
            file.seek(offset)
            texts.append(file.read(length))
    return Found(
        source=source.name(path),
        id=thread,
        digest=digest_of(*(text.strip() for text in texts)),
        parts=tuple(_saved(text, thread) for text in texts),
    )


def _saved(line: bytes, thread: str) -> Saved:
    raw, checked = decode(line, Checkpoint)
    if checked.thread_id != thread:
        raise Unreadable("the file", "it was changed while it was read; import it again")
    return Saved(
        state=raw["state"],
        node=checked.node,
        queue=checked.queue,
        variables={"step": checked.step, "created_at": checked.created_at} | beside(raw, Checkpoint),
    )
