"""An answer was accepted, and then the code was changed: the run is blocked with the difference; nothing is undone."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import Graph, Holdfast, Keyring, RunBlocked, Status, ask, step, workflow

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@step
def book(what: str) -> str:
    done.append(f"book {what}")
    return what


@book.undo
def unbook(result: str, what: str) -> None:
    done.append(f"unbook {what}")


@dataclasses.dataclass
class Plain:
    carrier: str


@dataclasses.dataclass
class PlainMore:
    carrier: str
    weight: int


class Packed(msgspec.Struct):
    carrier: str


class PackedOther(msgspec.Struct):
    carrier: int


class Model(pydantic.BaseModel):
    carrier: str


class ModelStrict(pydantic.BaseModel):
    carrier: str = pydantic.Field(min_length=10)


class ModelOwn(pydantic.BaseModel):
    carrier: str

    @pydantic.field_validator("carrier")
    @classmethod
    def none_takes_it(cls, value: str) -> str:
        raise ValueError("nobody ships any more")


class Typed(TypedDict):
    carrier: str


class TypedLess(TypedDict):
    haulier: str


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Paler(enum.Enum):
    BLUE = "blue"


CHANGES: dict[str, tuple[Any, Any, Any, str]] = {
    "dataclass": (Plain, {"carrier": "post"}, PlainMore, "field 'weight' is new"),
    "msgspec": (Packed, {"carrier": "post"}, PackedOther, "field 'carrier': type was text, and is now integer"),
    "pydantic": (Model, {"carrier": "post"}, ModelStrict, "field 'carrier': min_length was none, and is now 10"),
    "validator": (Model, {"carrier": "post"}, ModelOwn, "what its own validators take"),
    "typeddict": (Typed, {"carrier": "post"}, TypedLess, "field 'carrier' was removed; field 'haulier' is new"),
    "enum": (Colour, "red", Paler, "the answer: options was red, blue, and is now blue"),
    "literal": (Literal["a", "b"], "a", Literal["b"], "the answer: options was a, b, and is now b"),
    "simple": (str, "post", int, "the answer: type was text, and is now integer"),
    "other": (Plain, {"carrier": "post"}, int, ":Plain, and is now int"),
}


def declare(kind: Any, *, is_async: bool = False) -> Any:
    """The workflow as it is from now on, as after a deploy."""

    def plain() -> str:
        book("hotel")
        return str(ask("Which?", kind))

    async def awaited() -> str:
        book("hotel")
        return str(await ask("Which?", kind))

    return workflow(name="changed form", on_failure="rollback")(awaited if is_async else plain)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_form_that_changed_after_the_answer_blocks_the_run(hf: Holdfast, change: str, is_async: bool) -> None:
    before, answer, after, difference = CHANGES[change]
    run = hf.start(declare(before, is_async=is_async), id="asks")
    run.answer(answer)
    declare(after, is_async=is_async)
    hf.work(until_idle=True)
    assert run.status is Status.BLOCKED
    reason = run.info().reason or ""
    assert "the answer to 'ask#1' at entry" in reason
    assert difference in reason
    assert "test_changed_forms.py:" in reason
    assert done == ["book hotel"]  # nothing is undone
    with pytest.raises(RunBlocked, match="does not fit what is asked for now"):
        run.result()

    declare(before, is_async=is_async)  # one of the remedies: put it back
    run.unblock()
    hf.work(until_idle=True)
    assert run.status is Status.COMPLETED
    assert done == ["book hotel"]


def test_it_may_be_rolled_back_and_asked_anew(hf: Holdfast) -> None:
    run = hf.start(declare(Plain), id="asks")
    run.answer({"carrier": "post"})
    declare(PlainMore)
    hf.work(until_idle=True)
    [asked] = [entry.seq for entry in run.history() if entry.kind == "asked"]
    assert f"roll back to entry {asked - 1}" in (run.info().reason or "")
    run.rollback(asked - 1)
    hf.work(until_idle=True)
    run.answer({"carrier": "post", "weight": 3})
    assert run.result() == "PlainMore(carrier='post', weight=3)"
    assert done == ["book hotel"]


def test_a_fork_may_have_another_answer(hf: Holdfast) -> None:
    run = hf.start(declare(Plain), id="asks")
    run.answer({"carrier": "post"})
    declare(PlainMore)
    hf.work(until_idle=True)
    fork = run.fork(results={"ask#1": {"carrier": "rail", "weight": 1}})
    hf.work(until_idle=True)
    assert fork.result() == "PlainMore(carrier='rail', weight=1)"


def test_the_reason_of_an_encrypted_run_shows_nothing_of_it() -> None:
    with holdfast.open("memory://", keys=Keyring({"one": bytes(range(32))}, current="one")) as hf:
        run = hf.start(declare(Literal["secret one", "b"]), id="asks")
        run.answer("secret one")
        declare(Literal["b"])
        hf.work(until_idle=True)
        assert run.status is Status.BLOCKED
        assert "secret one" not in (run.info().reason or "")
        assert "options" not in (run.info().reason or "")


class State(TypedDict, total=False):
    carrier: str


def test_in_a_node_of_a_graph(hf: Holdfast) -> None:
    def build(kind: Any) -> Any:
        graph = Graph(State, name="changed form in a node", on_failure="rollback")

        @graph.node
        def first(state: State) -> State:
            book("hotel")
            return {}

        @graph.node
        def choose(state: State) -> State:
            return {"carrier": str(ask("Which?", kind))}

        graph.entry("first")
        graph.edge("first", "choose")
        return graph

    run = hf.start(build(Literal["a", "b"]), {}, id="asks")
    run.answer("a")
    build(Literal["b"])
    hf.work(until_idle=True)
    assert run.status is Status.BLOCKED
    assert "options was a, b, and is now b" in (run.info().reason or "")
    assert done == ["book hotel"]


SCRIPT = """
    import sys
    from typing import Literal
    import holdfast

    url, form, way = sys.argv[1:]

    @holdfast.step
    def book(what: str) -> str:
        print("booked")
        return what

    @book.undo
    def unbook(result: str, what: str) -> None:
        print("unbooked")

    @holdfast.workflow(on_failure="rollback")
    def trip() -> str:
        book("hotel")
        return holdfast.ask("Which?", Literal["a", "b"] if form == "old" else Literal["b"])

    with holdfast.open(url) as hf:
        if way == "start":
            run = hf.start(trip, id="trip")
            run.answer("a")
        else:
            hf.work(until_idle=True)
            run = hf.get("trip")
        print(run.status, run.info().reason)
"""


def test_in_another_process(shared_url: str, python: Callable[..., str]) -> None:
    assert python(SCRIPT, shared_url, "old", "start") == "booked\nready None\n"
    said = python(SCRIPT, shared_url, "new", "work")
    assert said.startswith("blocked ")
    assert "options was a, b, and is now b" in said
    assert "booked" not in said
