"""MUR Commander: a folder for each execution, and in it ``<step index>.json``, written before that step.

Each file becomes one saved checkpoint. They are in the order of their times: where an execution went back to a step
and on from there, files of higher steps are left over from before, and must not be taken for the latest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from holdfast.importers.reading import Count, Source, Unreadable, beside, decode, digest_of
from holdfast.importers.records import Damaged, Found, Saved

_TOLD = 20  # steps
_FILE = re.compile(r"([0-9]+)\.json", re.ASCII)


class Checkpoint(Struct, frozen=True):
    """Execution state before a step. What a `StepResult` looks like the source document does not show."""

    execution_id: UUID
    step_index: Count
    variables: dict[str, str]
    completed_steps: list[Any]
    created_at: Annotated[datetime, Meta(tz=True)]


class _Read(Struct, frozen=True):
    at: datetime
    step: int
    digest: str
    saved: Saved


def places(source: Source) -> Iterator[str]:
    """The folders of executions, or the one file or folder that was given."""
    if source.is_file or _files(source, source.path):
        yield source.path
        return
    for name in source.names(source.path):
        folder = os.path.join(source.path, name)
        if os.path.isdir(folder):
            yield folder


def read(source: Source, place: str) -> Iterator[Found | Damaged]:
    """The run of one execution, and the files of it that are damaged."""
    files = [os.path.basename(place)] if source.is_file else _files(source, place)
    folder = source.root if source.is_file else place
    id = _uuid(os.path.basename(folder))
    found: dict[int, _Read] = {}
    for name in files:
        path = os.path.join(folder, name)
        try:
            execution, one = _checkpoint(source, path, id)
            if one.step in found:
                raise Unreadable("$.step_index", f"there is another file of step {one.step}")
        except Unreadable as error:
            yield source.damaged(path, error)
            continue
        id = execution
        found[one.step] = one
    if found:
        yield _run(source.name(place), str(id), sorted(found.values(), key=lambda one: (one.at, one.step)))


def _files(source: Source, folder: str) -> list[str]:
    names = [name for name in source.names(folder) if _FILE.fullmatch(name)]
    return sorted(names, key=lambda name: (int(name[: -len(".json")]), len(name)))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _checkpoint(source: Source, path: str, id: UUID | None) -> tuple[UUID, _Read]:
    data = source.read(path)
    raw, checked = decode(data, Checkpoint)
    name = os.path.basename(path)
    named = _FILE.fullmatch(name)
    if named is not None and int(named[1]) != checked.step_index:
        raise Unreadable("$.step_index", f"it is {checked.step_index}, and the file is named {name}")
    if id is not None and id != checked.execution_id:
        raise Unreadable("$.execution_id", f"it is {checked.execution_id}, in the folder of execution {id}")
    state = {name: raw[name] for name in ("step_index", "completed_steps", "created_at")} | beside(raw, Checkpoint)
    saved = Saved(state=state, next=str(checked.step_index), variables=raw["variables"])
    return checked.execution_id, _Read(checked.created_at, checked.step_index, digest_of(data), saved)


def _run(source: str, id: str, checkpoints: list[_Read]) -> Found:
    steps = [one.step for one in checkpoints]
    lowest = list(accumulate(reversed(steps), min))[::-1]  # of the steps from there on
    older = [str(step) for step, low in zip(steps, lowest, strict=True) if step > low]
    notes: tuple[str, ...] = ()
    if older:
        which = ", ".join(older[:_TOLD]) + (", …" if len(older) > _TOLD else "")
        now = steps[-1]
        notes = (
            f"checkpoints of later steps ({which}) are older than that of step {now}: it went back, to step {now}",
        )
    return Found(
        source=source,
        id=id,
        digest=digest_of(*(one.digest.encode() for one in checkpoints)),
        parts=tuple(one.saved for one in checkpoints),
        notes=notes,
    )
