"""Graphs: nodes over a typed state, and the ways between them.

`declare` has `Graph`, which collects declarations into a `Definition` (`model`) that `verify` checks before the first
step. `execution` is one run of a graph: it calls the nodes and saves the state. `execute` drives it in threads or on an
event loop. `plan` and `ways` decide what comes next, without I/O. `state` and `reducers` apply updates, `fits` and
`models` check them, and `interrupts` stops a run at guards, breakpoints and changed definitions. `draw` draws it.
"""

from __future__ import annotations

from holdfast.graph.declare import Graph
from holdfast.graph.model import END
from holdfast.graph.nodes import NodeContext, quorum
from holdfast.graph.reducers import add, append, keep_last, merge, union

__all__ = ["END", "Graph", "NodeContext", "add", "append", "keep_last", "merge", "quorum", "union"]
