"""Moving in: what other systems leave on disk becomes runs of Holdfast.

Each system has a module that knows its files: ``places`` finds them, ``read`` gives a `Found` for each run and a
`Damaged` for whatever cannot be read (`reading` is how files are opened and checked). `import_from` passes what was
found to `writing`, which makes runs of it with the calls that everybody uses, so any store will do. Nothing is ever
written where the files are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from holdfast.engine.access.operations import Async
from holdfast.engine.app import Holdfast
from holdfast.engine.argument_checks import check_texts
from holdfast.errors import InvalidId, KeyMissing, RunError, UsageError
from holdfast.importers import brainwires, car, mur, simple_agents, wesichain
from holdfast.importers.car_drawing import drawing
from holdfast.importers.origins import origin
from holdfast.importers.reading import Source, Unreadable
from holdfast.importers.records import Damaged, Found, Note, Origin, Progress, Refused, Report, Summary
from holdfast.importers.writing import Conflict, plan, standing, write

__all__ = [
    "SYSTEMS",
    "Damaged",
    "Note",
    "Origin",
    "Progress",
    "Refused",
    "Summary",
    "System",
    "drawing",
    "import_from",
    "origin",
]


class Importer(Protocol):
    """What the module of a system has."""

    def places(self, source: Source) -> Iterator[str]:
        """The files or folders that may hold runs; raises `Unreadable` if the folder itself cannot be read."""

    def read(self, source: Source, place: str) -> Iterator[Found | Damaged]:
        """What is in one of them; raises `Unreadable` if that cannot be said at all."""


class System(NamedTuple):
    """A system to import from: ``run(path, hf, dry_run=, progress=, prefix=)`` gives a `Summary`."""

    name: str
    help: str
    run: Callable[..., Summary]


def import_from(
    system: str,
    path: str | os.PathLike[str],
    hf: Holdfast,
    *,
    dry_run: bool = False,
    progress: Report | None = None,
    prefix: str = "",
) -> Summary:
    """Take in the runs that another system left under a path: a folder, or one file of it.

    Runs keep their ids, after the ``prefix``. A run that is there already is left alone, one whose import was broken
    off is finished, a damaged file is told and the others are read. With ``dry_run`` nothing is written; ``progress``
    is called with a `Progress` after each run and each file. Raises `UsageError` for an unknown system or path; what is
    wrong with the store itself is raised, and a second call goes on from there.
    """
    if system not in SYSTEMS:
        raise UsageError(f"system={system!r}: known are {', '.join(SYSTEMS)}")
    check_texts(prefix=prefix)
    if isinstance(hf, Async):
        raise UsageError("import_from() is not awaited: give it what holdfast.open() gave, in a thread if you must")
    return SYSTEMS[system].run(path, hf, dry_run=dry_run, progress=progress, prefix=prefix)


def _import(
    system: str,
    importer: Importer,
    path: str | os.PathLike[str],
    hf: Holdfast,
    *,
    dry_run: bool = False,
    progress: Report | None = None,
    prefix: str = "",
) -> Summary:
    source = Source(path)
    try:
        places = list(importer.places(source))
    except Unreadable as error:
        raise UsageError(f"{source.path}: {error.why}") from None
    told = _Told(system, dry_run)
    report = progress or (lambda _: None)
    for done, place in enumerate(places):
        name = source.name(place)
        for one in _read(importer, source, place):
            if isinstance(one, Damaged):
                told.damaged.append(one)
                continue
            _take(hf, system, one, prefix, told)
            report(Progress(done, len(places), len(told.seen), name))
        report(Progress(done + 1, len(places), len(told.seen), name))
    if not told.seen and not told.damaged and not told.refused:
        told.notes.append(Note("", f"there is nothing of {system} in {os.fspath(path)!r}"))
    return told.summary()


def _read(importer: Importer, source: Source, place: str) -> Iterator[Found | Damaged]:
    try:
        yield from importer.read(source, place)
    except Unreadable as error:
        yield source.damaged(place, error)


class _Told:
    """What a summary is made of, while it grows."""

    def __init__(self, system: str, dry_run: bool) -> None:
        self.system = system
        self.dry_run = dry_run
        self.imported: list[str] = []
        self.already: list[str] = []
        self.damaged: list[Damaged] = []
        self.refused: list[Refused] = []
        self.notes: list[Note] = []
        self.seen: dict[str, str] = {}  # where each id was found

    def summary(self) -> Summary:
        return Summary(
            system=self.system,
            dry_run=self.dry_run,
            imported=tuple(self.imported),
            already=tuple(self.already),
            damaged=tuple(self.damaged),
            refused=tuple(self.refused),
            notes=tuple(self.notes),
        )


def _take(hf: Holdfast, system: str, found: Found, prefix: str, told: _Told) -> None:
    try:
        planned = plan(system, found, prefix)
        if (first := told.seen.setdefault(planned.id, found.source)) != found.source:
            raise Conflict(f"there is a run of the same id in {first}")
        there = standing(hf, planned)
        if there.state != "there" and not told.dry_run:
            write(hf, planned)
    except (Conflict, InvalidId, KeyMissing, RunError) as error:  # about this run alone; the others go on
        told.refused.append(Refused(found.source, prefix + found.id, str(error)))
        return
    (told.already if there.state == "there" else told.imported).append(planned.id)
    notes = (there.note,) if there.note else () if there.state == "there" else found.notes
    told.notes += [Note(planned.id, text) for text in notes]


def _system(name: str, help: str, importer: Importer) -> tuple[str, System]:
    return name, System(name, help, partial(_import, name, importer))


SYSTEMS: dict[str, System] = dict(
    [
        _system("mur", "MUR Commander: a folder of executions, each with files <step index>.json.", mur),
        _system("car", "CAR: a folder of paused workflows, <run>.json and <run>.inflight.", car),
        _system("simple-agents", "SimpleAgents: a folder of checkpoints, <run>.json.", simple_agents),
        _system("wesichain", "wesichain: checkpoints as lines of JSON, in files *.jsonl.", wesichain),
        _system("brainwires", "brainwires: a folder of tasks, <safe id>.json.", brainwires),
    ]
)
