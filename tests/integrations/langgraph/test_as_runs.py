"""A thread is an ordinary run: everything that can be done to a run can be done to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import RESUME
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

import holdfast
from holdfast import Keyring
from holdfast.engine.control import rollback
from holdfast.errors import (
    Claimed,
    DefinitionChanged,
    InvalidId,
    NotStorable,
    RunBlocked,
    RunEnded,
    RunExists,
    RunNotFound,
    TooLarge,
    UsageError,
)
from holdfast.integrations.langgraph import HoldfastSaver


def put(saver: HoldfastSaver, thread: str, values: dict[str, Any], parent: Any = None, **metadata: Any) -> Any:
    """One more checkpoint, as LangGraph puts it."""
    versions = {name: saver.get_next_version(None, None) for name in values}
    checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values, "channel_versions": versions}
    config = parent or {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    return saver.put(config, checkpoint, {"source": "loop", "step": 0, **metadata}, versions)  # type: ignore[typeddict-item]


def ids(saver: HoldfastSaver, thread: str) -> list[str]:
    return [one.checkpoint["id"] for one in saver.list({"configurable": {"thread_id": thread}})]


def test_history_state_steps_and_audit(saver: HoldfastSaver, asking: Any, thread: Any) -> None:
    asking(saver).invoke({"xs": ["in"]}, thread("chat"))
    [info] = saver._hf.runs(workflow="langgraph")
    assert (info.id, info.status, info.holder) == ("chat", "ready", None)
    run = saver._hf.get("chat")
    # What a task wrote is an entry of its own, unless a checkpoint came soon enough to take it along.
    assert {entry.kind for entry in run.history()} - {"done"} == {"created", "saved"}
    assert run.checkpoint().raw_state["xs"] == ["in", "first"]
    assert all(step.status == "done" for step in run.steps())
    assert run.audit().entries == info.seq + 1
    assert saver._hf.recover() == ()


def test_messages_are_readable_without_langgraph(saver: HoldfastSaver, thread: Any) -> None:
    put(saver, "t", {"messages": [HumanMessage("hello", id="1")]})
    [shown] = saver._hf.get("t").checkpoint().raw_state["messages"]
    assert shown["$type"] == "langchain_core.messages.human:HumanMessage"
    assert shown["content"] == "hello"


def test_writes_that_come_before_their_checkpoint(saver_of: Any) -> None:
    first = put(saver_of(), "t", {"a": 1})
    id = str(uuid6())
    coming: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": id}}
    version = {"a": "1"}
    values: Any = {"id": id, "channel_values": {"a": 2}, "channel_versions": version}
    one, written = saver_of(), []
    for saver in (one, one, saver_of()):  # the third time, another one puts it once more
        one.put_writes(coming, [("a", len(written))], f"task {len(written)}")
        written.append(len(written))
        saver.put(first, {**empty_checkpoint(), **values}, {"source": "loop", "step": 1}, version)
        for reader in (saver, saver_of()):
            found = reader.get_tuple({"configurable": {"thread_id": "t"}})
            assert [value for _, _, value in found.pending_writes] == written
    assert len(ids(one, "t")) == 2


def test_which_of_several_writes_counts(saver_of: Any) -> None:
    saver = saver_of()
    config = put(saver, "t", {"a": 1})
    for n in range(3):
        saver.put_writes(config, [("a", n), ("b", n)], "task", "~b")
        saver.put_writes(config, [(RESUME, n)], "task", "~b")
        saver.put_writes(config, [("a", n)], f"task {n}", "~a")
    found = saver_of().get_tuple(config)
    assert found.pending_writes == [
        ("task 0", "a", 0),
        ("task 1", "a", 1),
        ("task 2", "a", 2),
        ("task", RESUME, 2),
        ("task", "a", 0),
        ("task", "b", 0),
    ]


def test_a_thread_does_not_drag_along_what_its_tasks_have_done(saver: HoldfastSaver, nested: Any, thread: Any) -> None:
    graph = nested(saver)
    graph.invoke({"xs": ["in"]}, thread())
    while graph.get_state(thread()).next:
        graph.invoke(Command(resume="x"), thread())
    state = saver._threads.state(saver._hf.get("t").held.read_record())
    assert list(state["tops"]) == [""]
    assert len({one.config["configurable"]["checkpoint_ns"] for one in saver.list(thread())}) > 1


def test_a_copy_is_a_fork_that_costs_one_entry(saver: HoldfastSaver, asking: Any, thread: Any) -> None:
    graph = asking(saver)
    graph.invoke({"xs": ["in"]}, thread())
    saver.copy_thread("t", "copy")
    record = saver._hf.get("copy").held.read_record()
    assert record.base == record.seq, "nothing but the fork's own first entry was written"
    assert ids(saver, "copy") == ids(saver, "t")
    assert graph.invoke(Command(resume="here"), thread("copy"))["xs"][-1] == "here"
    assert graph.invoke(Command(resume="there"), thread())["xs"][-1] == "there"
    saver.delete_thread("t")
    assert graph.get_state(thread("copy")).values["xs"] == ["in", "first", "here"]
    assert ids(saver, "t") == []
    with pytest.raises(RunExists):
        saver.copy_thread("copy", "copy")
    with pytest.raises(RunNotFound):
        saver.copy_thread("nobody", "other")


def test_pruning_erases_and_spares_copies(
    saver_of: Any, raw_bytes: Callable[..., bytes], store_url: str, memdir: Path
) -> None:
    saver = saver_of()
    first = put(saver, "t", {"a": ["early secret"]})
    saver.put_writes(first, [("a", "early write")], "task")
    saver.copy_thread("t", "copy")
    second = put(saver, "t", {"a": ["later secret"]}, first)
    last = put(saver, "t", {"a": ["kept"]}, second)
    saver.put_writes(last, [("b", "kept write")], "task")
    saver.prune(["t"])
    assert ids(saver, "t") == [last["configurable"]["checkpoint_id"]]
    [kept] = saver.list({"configurable": {"thread_id": "t"}})
    assert kept.checkpoint["channel_values"] == {"a": ["kept"]}
    assert kept.pending_writes == [("task", "b", "kept write")]
    [copied] = saver.list({"configurable": {"thread_id": "copy"}})
    assert copied.checkpoint["channel_values"] == {"a": ["early secret"]}
    assert copied.pending_writes == [("task", "a", "early write")]
    saver.prune(["t"])
    for id in ("t", "copy"):
        saver._hf.audit(id)
    saver.close()
    assert b"later secret" not in raw_bytes()
    assert b"early secret" in raw_bytes(), "the copy has it"


def test_delete_for_runs_in_all_threads(saver: HoldfastSaver) -> None:
    one = put(saver, "t", {"a": 1}, run_id="keep")
    two = put(saver, "t", {"a": 2}, one, run_id="go")
    three = put(saver, "t", {"a": 3}, two, run_id="keep")
    saver.put_writes(two, [("a", 1)], "task")
    put(saver, "gone", {"a": 1}, run_id="go")
    saver.delete_for_runs(["go", "unknown"])
    assert ids(saver, "t") == [config["configurable"]["checkpoint_id"] for config in (three, one)]
    assert ids(saver, "gone") == []
    assert saver.get_tuple(two) is None
    assert [found.checkpoint["channel_values"] for found in saver.list(None)] == [{"a": 3}, {"a": 1}]
    put(saver, "t", {"a": 4}, three)
    assert len(ids(saver, "t")) == 3


def test_everything_is_encrypted(saver_of: Any, raw_bytes: Callable[..., bytes], thread: Any) -> None:
    keys = Keyring({"k": bytes(32)}, current="k")
    saver = saver_of(keys=keys)
    config = put(saver, "t", {"secretchannel": "plainsecret", "n": [HumanMessage("spokensecret")]}, note="metasecret")
    saver.put_writes(config, [("secretchannel", "writtensecret")], "secrettask", "secretpath")
    put(saver, "t", {"secretchannel": "plainsecret2"}, config)
    saver.close()
    assert b"secret" not in raw_bytes()
    found = saver_of(keys=keys).get_tuple(thread())
    assert found.checkpoint["channel_values"]["secretchannel"] == "plainsecret2"


def test_backup_and_restore(saver_of: Any, asking: Any, thread: Any, tmp_path: Path) -> None:
    saver = saver_of()
    asking(saver).invoke({"xs": ["in"]}, thread())
    saver.copy_thread("t", "copy")
    saver._hf.backup(str(tmp_path / "b"))
    with holdfast.open("memory://") as other:
        other.restore(str(tmp_path / "b"))
        restored = HoldfastSaver(other)
        assert ids(restored, "copy") == ids(saver, "copy")
        with pytest.raises(RunBlocked, match="backup"):
            put(restored, "t", {"a": 1})
        other.get("t").unblock()
        assert asking(restored).invoke(Command(resume="x"), thread())["xs"] == ["in", "first", "x"]


def test_what_people_do_to_the_run(saver: HoldfastSaver, asking: Any, thread: Any) -> None:
    graph = asking(saver)
    graph.invoke({"xs": ["in"]}, thread(), durability="sync")
    run = saver._hf.get("t")
    run.edit({"xs": "edited"})
    assert graph.get_state(thread()).values["xs"] == ["in", "first"], "an edit of the run is no checkpoint of the graph"
    run.save("something else")
    assert graph.get_state(thread()).values["xs"] == ["in", "first"]
    assert graph.invoke(Command(resume="x"), thread())["xs"] == ["in", "first", "x"]
    saver._threads.forget_thread("t")
    assert graph.get_state(thread()).values["xs"] == ["in", "first", "x"]
    seqs = [entry.seq for entry in run.history() if entry.kind == "saved"]
    run.rollback(to=seqs[1])
    assert graph.get_state(thread()).next == ("first",)
    assert graph.invoke(None, thread())["xs"] == ["in", "first"]
    run.complete()
    with pytest.raises(RunEnded):
        graph.invoke({"xs": ["more"]}, thread())


@pytest.mark.parametrize("guard", [False, True])
def test_a_rollback_that_was_broken_off_comes_first(
    saver_of: Any, opened: Any, kill: Any, guard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = saver_of(guard=guard)
    config = put(saver, "t", {"a": 1})
    put(saver, "t", {"a": 2}, config)
    dying = opened()
    run = dying.get("t")
    with monkeypatch.context() as patched:
        patched.setattr(rollback, "finish_rollback", _dies)
        with pytest.raises(ZeroDivisionError):
            run.rollback(to=1)
    kill(dying)
    if saver._hf.get("t").held.read_record().rollback is not None:
        with pytest.raises((RunBlocked, Claimed)):
            put(saver, "t", {"a": 3}, config)
        with saver._hf.get("t").claim():
            pass  # which finishes it
    put(saver, "t", {"a": 3}, config)
    assert [one.checkpoint["channel_values"]["a"] for one in saver.list({"configurable": {"thread_id": "t"}})] == [3, 1]


def _dies(*_: Any) -> Any:
    raise ZeroDivisionError
    yield


def test_ids_and_other_runs(saver: HoldfastSaver, thread: Any) -> None:
    put(saver, "a/b\0.é", {"a": 1})
    assert len(ids(saver, "a/b\0.é")) == 1
    number: Any = 7
    put(saver, number, {"a": 1})
    assert len(ids(saver, "7")) == 1
    saver._hf.run("mine", workflow="orders")
    with pytest.raises(DefinitionChanged, match="orders"):
        put(saver, "mine", {"a": 1})
    with pytest.raises(InvalidId):
        put(saver, "", {"a": 1})
    with pytest.raises(UsageError, match="thread"):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(UsageError, match="checkpoint_id"):
        saver.put_writes(thread(), [("a", 1)], "task")
    with pytest.raises(UsageError, match="keep_latest"):
        saver.prune(["t"], strategy="some")


def test_what_cannot_be_stored_is_told_with_its_channel(saver_of: Any) -> None:
    saver = saver_of(max_bytes=10_000)
    config = put(saver, "t", {"good": 1})
    with pytest.raises(NotStorable, match=r"channel 'bad' of thread 't': .*function"):
        put(saver, "t", {"good": 1, "bad": [lambda: 1]}, config)
    with pytest.raises(NotStorable, match=r"write to 'bad' of thread 't'"):
        saver.put_writes(config, [("bad", object())], "task")
    with pytest.raises(TooLarge):
        put(saver, "t", {"good": "x" * 20_000}, config)
    assert len(ids(saver, "t")) == 1
    put(saver, "t", {"good": 2}, config)
    assert len(ids(saver, "t")) == 2


def test_nothing_is_ever_pickled(store_url: str) -> None:
    import pickle

    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    pickling = JsonPlusSerializer(pickle_fallback=True)
    for serde in (pickling, EncryptedSerializer(None, pickling), pickle):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="never"):
            HoldfastSaver(store_url, serde=serde)  # type: ignore[arg-type]


def test_another_serializer(store_url: str, thread: Any) -> None:
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    class Backwards:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "backwards", plaintext[::-1]

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext[::-1]

    graph = StateGraph(MessagesState)
    graph.add_node("say", lambda state: {"messages": [HumanMessage("hello")]})
    graph.add_edge(START, "say")
    with HoldfastSaver(store_url, serde=EncryptedSerializer(Backwards())) as saver:
        compiled = graph.compile(checkpointer=saver)
        compiled.invoke({"messages": [HumanMessage("first")]}, thread(), durability="sync")
        saver.prune(["t"])
        assert [one.content for one in compiled.get_state(thread()).values["messages"]] == ["first", "hello"]
    with holdfast.open(store_url) as hf, pytest.raises(holdfast.errors.TypeMissing, match="backwards"):
        HoldfastSaver(hf).get_tuple(thread())
    with pytest.raises(UsageError, match="keys"), holdfast.open("memory://") as hf:
        HoldfastSaver(hf, keys=Keyring({"k": bytes(32)}, current="k"))
