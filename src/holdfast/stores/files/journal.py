"""Reading a journal.jsonl: where it ends, and its lines from either side.

The newest entries are read backward from the end, so that resuming a long run does not read all of it. What is
asked for in the middle is looked for from the nearest place known: the beginning, the end, or a mark that an
earlier reading left.

The last line may be one that was never acknowledged, since its writer died in the act. It is told by what it
looks like: it has no newline, or it holds a run of zero bytes where the disk never got the text. Any other
line that does not add up is damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from holdfast.stores.files.text import Damage, Line, is_whole, read_line

BLOCK = 64 * 1024
TAIL_BLOCK = 4 * 1024  # the newest line is usually all that is wanted
HOLE = b"\0" * 8  # no flipped bit makes eight zero bytes of a text


class Damaged(Exception):
    """The journal is damaged at a byte."""

    def __init__(self, at: int, problem: str) -> None:
        self.at = at
        super().__init__(f"byte {at:,}: {problem}")


class Tail(Struct, frozen=True):
    """How a journal ends: its last line, where the good part ends, and whether that has its newline."""

    line: Line | None
    end: int
    closed: bool


def read_block(fd: int, size: int, at: int) -> bytes:
    """Bytes of the file; fewer only where it ends."""
    data = os.pread(fd, size, at)
    while len(data) < size and (more := os.pread(fd, size - len(data), at + len(data))):
        data += more
    return data


def back(fd: int, end: int, block: int = BLOCK) -> Iterator[tuple[int, bytes]]:
    """Where each line starts and its text without the newline, newest first, beginning with what stands before ``end``.

    The first one is what follows the last newline, and is empty in a journal that ends well.
    """
    rest, start = b"", end
    while start > 0:
        size = min(block, start)
        start -= size
        pieces = (read_block(fd, size, start) + rest).split(b"\n")
        at = start + sum(len(piece) + 1 for piece in pieces)
        for piece in reversed(pieces[1:]):
            at -= len(piece) + 1
            yield at, piece
        rest = pieces[0]
        block = min(block * 2, BLOCK * 64)  # a long line must not be put together from small blocks
    yield 0, rest


def onward(fd: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Where each line starts and its text without the newline, in order."""
    rest, at, block = b"", start, BLOCK
    while start < end:
        size = min(block, end - start)
        *pieces, rest = (rest + read_block(fd, size, start)).split(b"\n")
        start += size
        for piece in pieces:
            yield at, piece
            at += len(piece) + 1
        if not pieces:
            block = min(block * 2, BLOCK * 64)
    if rest:
        yield at, rest


def parsed(at: int, text: bytes) -> Line:
    """The line; raises `Damaged`."""
    try:
        return read_line(text)
    except Damage as damage:
        raise Damaged(at, f"the line is damaged: {damage}") from None


def tail(fd: int, size: int) -> Tail:
    """How the journal ends, whatever its last writer left; raises `Damaged`."""
    end = _before_zeros(fd, size)
    lines = back(fd, end, TAIL_BLOCK)
    at, rest = next(lines)
    if rest:
        if is_whole(rest):
            return Tail(parsed(at, rest), end, closed=False)
        if end == size and is_whole(rest[:-1]):
            raise Damaged(at + len(rest) - 1, "the newline of the last line is damaged")
        end = at  # it was cut off, so it was never acknowledged
    for start, text in lines:
        if not rest and start + len(text) + 1 == end and HOLE in text and not is_whole(text):
            end = start
            continue
        return Tail(parsed(start, text), end, closed=True)
    return Tail(None, 0, closed=True)


def sound_tail(fd: int, damaged: int) -> tuple[Tail, int]:
    """How the part of the journal ends that stands before a damaged line, and how many lines are lost."""
    lost = 1
    while True:
        try:
            return tail(fd, damaged), lost
        except Damaged as damage:
            damaged, lost = damage.at, lost + 1


def _before_zeros(fd: int, size: int) -> int:
    """Where the file ends, but for zero bytes: a crash can leave a file long whose text never reached the disk."""
    while size > 0 and read_block(fd, 1, size - 1) == b"\0":
        at = max(size - TAIL_BLOCK, 0)
        size = at + len(read_block(fd, size - at, at).rstrip(b"\0"))
    return size


def begins(fd: int, seq: int, at: int, end: int) -> bool:
    """Whether a line that begins with this entry starts there."""
    try:
        return any(parsed(*line).first == seq for line in islice(onward(fd, at, end), 1))
    except Damaged:
        return False


def lines_between(
    fd: int, end: int, first: int, last: int, *, newest: int, mark: tuple[int, int]
) -> Iterator[tuple[int, Line]]:
    """The lines that hold the entries ``first`` to ``last``, in order, with where each starts; raises `Damaged`.

    ``newest`` is the number of the newest entry. ``mark`` is the number of an entry, not after ``first``, that begins
    a line, and where that line starts.
    """
    if newest - first < first - mark[0]:
        try:
            backward = list(_lines_back(fd, end, first, last))
        except Damaged:
            pass  # perhaps only beyond what is asked for, so it is tried from the other side
        else:
            yield from reversed(backward)
            return
    for at, text in onward(fd, mark[1], end):
        line = parsed(at, text)
        if at == mark[1] and line.first != mark[0]:
            raise Damaged(at, f"entry {mark[0]} should be here, and it is {line.first}")
        if line.first > last:
            return
        yield at, line
        if line.last >= last:
            return  # what follows may be damaged, which is no matter here


def _lines_back(fd: int, end: int, first: int, last: int) -> Iterator[tuple[int, Line]]:
    for at, text in back(fd, end):
        if at == end and not text:
            continue  # behind the last newline
        line = parsed(at, text)
        if line.first <= last:
            yield at, line
        if line.first <= first:
            return
