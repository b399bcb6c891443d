"""Graphs: nodes over a typed state, and the ways between them.

`Graph` (`define`) collects declarations into a `Definition` (`model`), which `verify` checks before the first step. A
run of it is one `Running` (`running`), which calls the nodes and saves what became of the state, and is driven by
`drivers`; `plan` and `ways` decide, without waiting or writing anything, what comes next. `state` and `reducers` know
how an update changes a state, and what of that is stored; `fits` and `models` check what it brings. `gates` holds a
run up: guards, interrupts, a definition that changed.

What a run keeps of its graph is the `topology`, which `mermaid` and `svg` draw: `sketch` says what is drawn, and
`layout` where.
"""

from __future__ import annotations

from holdfast.graph.declare import Graph
from holdfast.graph.model import END
from holdfast.graph.nodes import NodeContext, quorum
from holdfast.graph.reducers import add, append, keep_last, merge, union

__all__ = ["END", "Graph", "NodeContext", "add", "append", "keep_last", "merge", "quorum", "union"]
