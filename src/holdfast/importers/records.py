"""What passes between the parts of an import: frozen records, and nothing that reads or writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from holdfast.views import Field

# --- what a run is made of: each of these becomes one entry of its journal


class Saved(Struct, frozen=True, kw_only=True):
    """A checkpoint: what `Run.save` takes."""

    state: Any
    node: str | None = None
    next: str | None = None
    queue: Any = None
    variables: Any = None


class MadeElsewhere(Struct, frozen=True, kw_only=True):
    """An effect that the other system made, and noted."""

    key: str
    tool: str
    target: str | None
    reversible: bool


class DoneElsewhere(Struct, frozen=True):
    """A call that the other system completed; nothing more is known of it."""

    key: str


class Asked(Struct, frozen=True):
    """An open question. It is the last of a run: a pause gives up the claim."""

    prompt: str
    fields: tuple[Field, ...]
    output_key: str


Part = Saved | MadeElsewhere | DoneElsewhere | Asked


# --- what an importer finds


class Found(Struct, frozen=True, kw_only=True):
    """A run that was read whole. ``source`` is the file or folder it stands in, ``digest`` that of what was read.

    ``kept`` is what else is remembered of it (see `Origin`), ``notes`` what a person should know.
    """

    source: str
    id: str
    digest: str
    parts: tuple[Part, ...]
    workflow: str | None = None
    definition: Any = None
    tags: dict[str, str] = {}
    kept: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


class Damaged(Struct, frozen=True):
    """A file, or a place in it, that cannot be read; the others are."""

    source: str
    place: str
    why: str


class Origin(Struct, frozen=True, kw_only=True):
    """Where an imported run comes from. ``entries`` is how many entries its import made, ``kept`` what was kept beside.

    Of CAR, ``kept`` has the ``workflow`` as it stood in the file, and whether the run was ``in_flight``.
    """

    system: str
    id: str
    source: str
    digest: str
    entries: int
    kept: dict[str, Any] = {}


# --- what became of it


class Refused(Struct, frozen=True):
    """A run that was read whole and cannot be taken in here."""

    source: str
    run: str
    why: str


class Note(Struct, frozen=True):
    """Something to know about a run that was read."""

    run: str
    text: str


class Progress(Struct, frozen=True):
    """How far an import has come: ``done`` of ``total`` files or folders, and how many ``runs`` were found in them.

    ``latest`` is the file or folder that is being read.
    """

    done: int
    total: int
    runs: int
    latest: str


class Summary(Struct, frozen=True, kw_only=True):
    """What an import did; with ``dry_run``, what it would have done. The runs are named by their ids here."""

    system: str
    dry_run: bool = False
    imported: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    damaged: tuple[Damaged, ...] = ()
    refused: tuple[Refused, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that was found is in the store."""
        return not self.damaged and not self.refused

    def __str__(self) -> str:
        would = "to be imported" if self.dry_run else "imported"
        counts = f"{len(self.imported)} {would}, {len(self.already)} already there, {len(self.damaged)} damaged"
        return f"{self.system}: {counts}" + (f", {len(self.refused)} refused" if self.refused else "")


Report = Callable[[Progress], None]
