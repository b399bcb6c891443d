"""LangGraph: its checkpointer interface on a Holdfast store.

    graph = builder.compile(checkpointer=HoldfastSaver("sqlite:///threads.db"))

A thread is an ordinary run: its checkpoints are the run's saves, and what its tasks wrote goes with them, or stands for
itself. So it has a history, and is audited, forked and backed up like any other. `saver` is the interface. `pen` writes
to one thread, and `layout` says how a thread lies in a run's state. `reading` and `listing` give checkpoints back, with
the help of `index` where it is not about the newest. `keeping` deletes and copies, `guard` lets one write at a time.
`cells` is the way of LangGraph's values to the journal and back, and `marks` sees what of a list has changed.
"""

from __future__ import annotations

from holdfast.errors import ExtraMissing

try:
    from holdfast.integrations.langgraph.saver import HoldfastSaver
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("langgraph", "langchain_core", "ormsgpack", "pydantic"):
        raise
    raise ExtraMissing("the checkpointer for LangGraph", "langgraph") from error

__all__ = ["HoldfastSaver"]
