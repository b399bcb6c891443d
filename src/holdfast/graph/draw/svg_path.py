"""The path that a run took through its graph, as far as a drawing shows it."""

from __future__ import annotations

from msgspec import Struct


class Path(Struct, frozen=True, kw_only=True):
    """Where a run has been, and where it is."""

    visits: dict[str, int] = {}  # how often each node was done
    edges: frozenset[tuple[str, str]] = frozenset()  # the ways that were taken, from node to node or to END
    current: frozenset[str] = frozenset()  # nodes that run, are queued, or wait for others to arrive
    failed: frozenset[str] = frozenset()
