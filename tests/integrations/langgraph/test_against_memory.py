"""Whatever is done to it, the saver says the same as LangGraph's own saver in memory. By chance, and on every store."""

import random
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from holdfast.integrations.langgraph import HoldfastSaver

NAMESPACES = ("", "", "", "sub:1", "sub:1|deep:2", "kept")
CHANNELS = ("messages", "files", "count")
DELTAS = ("log", "notes")  # channels that have a value only now and then


class Twins:
    """The same calls to both; the threads of the one are compared with those of the other."""

    def __init__(self, saver_of: Any, source: random.Random) -> None:
        self.memory = InMemorySaver()
        self.savers: list[HoldfastSaver] = [saver_of(), saver_of()]
        self.source = source
        self.known: dict[tuple[str, str], list[str]] = {}
        self.values: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {}

    @property
    def saver(self) -> HoldfastSaver:
        """One of two holders: what the one has written, the other has to read."""
        return self.source.choice(self.savers)

    def config(self, thread: str, ns: str, id: str | None) -> Any:
        return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}

    def put(self, thread: str) -> None:
        source = self.source
        ns = source.choice(NAMESPACES)
        there = self.known.setdefault((thread, ns), [])
        parent = None if not there else there[-1] if source.random() < 0.8 else source.choice(there)
        values, versions = self.values.get((ns, parent or ""), ({}, {}))
        values, versions, changed = self.changed(dict(values), dict(versions))
        late = source.random() < 0.05  # a clock that went wrong: the id is older than others
        id = f"0{source.random()}" if late else str(uuid6())
        checkpoint = {**empty_checkpoint(), "id": id, "channel_values": values, "channel_versions": versions}
        checkpoint["versions_seen"] = {"node": dict(versions)}
        metadata: Any = {"source": "loop", "step": len(there), "run_id": source.choice("ab"), "parents": {}}
        config = self.config(thread, ns, parent)
        assert self.memory.put(config, checkpoint, metadata, changed) == self.saver.put(
            config, checkpoint, metadata, changed
        )
        there.append(id)
        self.values[ns, id] = values, versions

    def changed(self, values: dict[str, Any], versions: dict[str, Any]) -> tuple[Any, Any, Any]:
        source, changed = self.source, {}
        for name in (*CHANNELS, *DELTAS):
            if source.random() < 0.5 and name not in DELTAS:
                continue
            versions[name] = changed[name] = self.memory.get_next_version(versions.get(name), None)
            before = values.pop(name, None)
            if name in DELTAS and source.random() < 0.8:
                continue
            values[name] = self.value(name, before)
        return values, versions, changed

    def value(self, name: str, before: Any) -> Any:
        source = self.source
        if name == "messages":
            messages = list(before or [])
            match source.randrange(6):
                case 0 if messages:
                    messages.pop(source.randrange(len(messages)))
                case 1 if messages:
                    messages[source.randrange(len(messages))] = HumanMessage(f"other {source.random()}")
                case _:
                    messages.append(AIMessage(f"new {source.random()}", id=str(source.random())))
            return messages
        if name == "files":
            return {**(before or {}), f"f{source.randrange(5)}": [source.choice((1, True, 1.0, None, "1", b"1"))]}
        return source.choice((1, True, 1.0, [], (1, 2), {"$": "x"}, {3: 4}, "text"))

    def put_writes(self, thread: str) -> None:
        source = self.source
        ns = source.choice(NAMESPACES)
        there = self.known.get((thread, ns), [])
        id = source.choice(there[-2:]) if there and source.random() < 0.95 else str(uuid6())
        task = source.choice(("one", "two"))
        special = source.choice((ERROR, INTERRUPT, RESUME))
        some = [(source.choice(DELTAS), source.random()) for _ in range(source.randrange(3))]
        writes = [(special, source.random())] if source.random() < 0.2 else some
        path = source.choice(("", "~a", "~b"))
        self.memory.put_writes(self.config(thread, ns, id), writes, task, path)
        self.saver.put_writes(self.config(thread, ns, id), writes, task, path)

    def compare(self, thread: str) -> None:
        saver = self.saver
        for ns in set(NAMESPACES):
            there = self.known.get((thread, ns), [])
            for id in {None, *self.source.sample(there, min(3, len(there)))}:
                config = self.config(thread, ns, id)
                assert plain(saver.get_tuple(config)) == plain(self.memory.get_tuple(config))
                names = [*DELTAS, "messages", "no such"]
                assert saver.get_delta_channel_history(
                    config=config, channels=names
                ) == self.memory.get_delta_channel_history(config=config, channels=names)
            self.compare_lists(saver, thread, ns)

    def compare_lists(self, saver: HoldfastSaver, thread: str, ns: str) -> None:
        there = self.known.get((thread, ns), [])
        before = self.config(thread, ns, self.source.choice(there)) if there else None
        for how in (
            {},
            {"limit": 2},
            {"before": before},
            {"filter": {"run_id": "a"}},
            {"filter": {"step": 1}, "limit": 1},
        ):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ns}}
            ours, theirs = list(saver.list(config, **how)), list(self.memory.list(config, **how))
            assert [plain(one) for one in ours] == [plain(one) for one in theirs]


def plain(found: CheckpointTuple | None) -> Any:
    """In a form that tells 1 from True, and does not depend on the order of keys."""
    if found is None:
        return None
    checkpoint: Any = dict(found.checkpoint)
    parts = {name: sorted(part.items(), key=str) for name, part in checkpoint.items() if isinstance(part, dict)}
    rest = {name: part for name, part in checkpoint.items() if not isinstance(part, dict)}
    named = {name: value for name, value in found.config["configurable"].items() if value is not None}
    return repr((sorted(named.items()), sorted(parts.items()), sorted(rest.items()), found.metadata)), repr(
        (found.parent_config, found.pending_writes)
    )


@pytest.mark.parametrize("number", range(2))
def test_the_same_calls_give_the_same_answers(saver_of: Any, number: int) -> None:
    seed = time.time_ns() + number
    print(f"seed {seed}")
    source = random.Random(seed)
    twins = Twins(saver_of, source)
    for _ in range(40):
        thread = source.choice("tu")
        if source.random() < 0.5:
            twins.put(thread)
        else:
            twins.put_writes(thread)
        if source.random() < 0.08:
            twins.compare(thread)
    twins.compare("t")
    twins.compare("u")


def newest_of(saver: Any, twins: Twins, ns: str) -> Any:
    """The newest checkpoint, and what LangGraph rebuilds those channels from that it has no value of."""
    config = twins.config("t", ns, None)
    found = saver.get_tuple(config)
    missing = [name for name in DELTAS if found is not None and name not in found.checkpoint["channel_values"]]
    return plain(found), saver.get_delta_channel_history(config=config, channels=missing)


@pytest.mark.parametrize("number", range(2))
def test_pruning_leaves_the_newest_as_they_are(saver_of: Any, number: int) -> None:
    seed = time.time_ns() + number
    print(f"seed {seed}")
    source = random.Random(seed)
    twins = Twins(saver_of, source)
    for round in range(3):
        for _ in range(20):
            twins.put("t") if source.random() < 0.5 else twins.put_writes("t")
        twins.put("t")
        before = {ns: newest_of(twins.memory if not round else twins.saver, twins, ns) for ns in set(NAMESPACES)}
        twins.saver.prune(["t"])
        for saver in twins.savers:
            assert {ns: newest_of(saver, twins, ns) for ns in set(NAMESPACES)} == before
            assert len(list(saver.list({"configurable": {"thread_id": "t"}}))) == sum(
                found[0] is not None for found in before.values()
            )
        twins.known = {(thread, ns): ids[-1:] for (thread, ns), ids in twins.known.items()}
    twins.savers[0]._hf.audit("t")
