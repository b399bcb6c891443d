"""The arguments of a workflow: as they are stored with its run, and as values again."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.codec import Codec, Tree
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.workflow.declare import Workflow
from holdfast.errors import Redacted

QUEUE = "default"


class Place(Struct, frozen=True):
    """Where a new run stands: in which queue, how far in front, in which lane, from when on, and below which parent."""

    queue: str = QUEUE
    priority: int = 0
    lane: str | None = None
    wake_at: int | None = None
    tags: dict[str, str] = {}
    parent: dict[str, Any] | None = None
    depth: int = 0


PLACE = Place()


class Input(Struct, frozen=True):
    """The arguments of a workflow as they are stored, and a digest of them."""

    args: list[Tree]
    kwargs: dict[str, Tree]
    digest: str

    @classmethod
    def of(cls, codec: Codec, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Input:
        trees, named = codec.encode_call(workflow.name, args, kwargs)
        return cls(trees, named, codec.digest([workflow.name, trees, named]))


class Beginning(Struct, frozen=True):
    """What a run of a workflow begins with, as it is stored. Of the workflow no more is needed to make the run."""

    workflow: str
    version: str | None
    module: str
    given: Input
    deadline: float | None = None  # seconds

    @classmethod
    def of(cls, workflow: Workflow[..., Any], given: Input, deadline: float | None) -> Beginning:
        seconds = workflow.deadline if deadline is None else deadline
        return cls(workflow.name, workflow.version, workflow.__module__, given, seconds)


def arguments_of(run: HeldRun, lease: Lease, workflow: Workflow[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """The stored arguments as values."""
    if workflow.keeps_place and lease.record.state is not None:
        return [None], {}  # they are not asked for any more
    given = lease.fold.input
    if given.get("args") is None:
        raise Redacted(run.id, "its input was erased on request")
    types = workflow.types()
    names = [name for name, one in workflow.signature.parameters.items() if one.kind is not one.KEYWORD_ONLY]
    value = run.journals.value
    args = [
        value(run.id, tree, f"argument {n}", types.get(names[n]) if n < len(names) else None)
        for n, tree in enumerate(given["args"])
    ]
    kwargs = {name: value(run.id, tree, f"argument {name}", types.get(name)) for name, tree in given["kwargs"].items()}
    workflow.bind(tuple(args[1:] if workflow.instance is not None else args), kwargs)
    return args, kwargs
