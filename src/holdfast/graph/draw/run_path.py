"""The path that a run took through its graph, read from what it has saved, for a drawing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.graph.draw.svg_path import Path
from holdfast.graph.plan import ITEM
from holdfast.graph.topology import Topology
from holdfast.kernel.model import Status

if TYPE_CHECKING:
    from holdfast.engine.run.handle import Run


def drawn(run: Run) -> tuple[Topology, Path] | None:
    """What is drawn of a run, from what it saved itself; None if it saved nothing, or is no run of a graph."""
    record = run.held.read_record()
    saved = run.held.journals.state(record)
    if saved is None or "graph" not in saved.tree:
        return None
    return topology_of(saved.tree), path_of(saved.tree, failed=record.status is Status.FAILED)


def path_of(tree: dict[str, Any], *, failed: bool = False) -> Path:
    """Where a run has been, and where it is. ``tree`` is what it saved last; of a failed one, it failed there."""
    book = tree["graph"]
    queued = {name.partition(ITEM)[0] for name in tree["queue"]}
    done = Counter(book["visits"])
    done.subtract(queued)
    waiting, trod = frozenset(book.get("waiting", ())), book.get("trod", {})
    ended = {*trod, *(name.partition(ITEM)[0] for name in book.get("pending", ()))}  # what was given up is not among it
    return Path(
        visits={name: count for name, count in done.items() if count > 0 and name in ended},
        edges=frozenset((source, target) for source, targets in trod.items() for target in targets),
        current=waiting if failed else waiting | queued,
        failed=frozenset(queued) if failed else frozenset(),
    )


def topology_of(tree: dict[str, Any]) -> Topology:
    """The topology of the graph that a run was saved with."""
    return tree["graph"]["topology"]  # type: ignore[no-any-return]
