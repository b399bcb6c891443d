"""What nodes get of a state: plain code reads, compares and copies it as ever, and nobody changes it."""

import copy
import dataclasses
import pickle
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from holdfast import Graph, Holdfast, append
from holdfast.errors import StateReadOnly, UpdateRefused


@dataclasses.dataclass(order=True)
class Data:
    score: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    score: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


class Struct(msgspec.Struct, order=True):
    score: int = 0
    items: list[int] = []


class Model(pydantic.BaseModel):
    score: int = 0
    items: list[int] = []


class Pair(NamedTuple):
    score: int
    items: list[int]


class Box(TypedDict, total=False):
    thing: Any
    log: Annotated[list[str], append]


KINDS: list[Any] = [Data, Slots, Struct, Model]


def called(hf: Holdfast, state: Any, given: Any, node: Callable[[Any], Any]) -> Any:
    graph = Graph(state, name="called")
    graph.node(name="n")(node)
    graph.entry("n")
    return hf.start(graph, given).result()


def made(kind: Any) -> Any:
    return kind(score=2, items=[1])


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.__name__))
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["state", "in it"])
def seen(request: pytest.FixtureRequest, memory: Holdfast, kind: Any) -> Callable[[Callable[[Any], Any]], Any]:
    """Calls something with an object of the kind, which is the state itself or a part of it."""

    def see(function: Callable[[Any], Any]) -> None:
        if request.param == "state":
            called(memory, kind, made(kind), lambda state: function(state) and None)
        else:
            called(memory, Box, {"thing": [made(kind)]}, lambda state: function(state["thing"][0]) and None)

    return see


def test_it_equals_a_plain_one(seen: Any, kind: Any) -> None:
    def look(thing: Any) -> None:
        assert thing == made(kind)
        assert made(kind) == thing
        assert thing != kind(score=3, items=[1])
        assert isinstance(thing, kind)
        assert thing.__class__ is kind
        match thing:
            case kind(score=score, items=[one]):
                assert (score, one) == (2, 1)
            case _:
                pytest.fail("it does not match")

    seen(look)


def test_it_is_ordered_like_a_plain_one(memory: Holdfast) -> None:
    def look(state: Box) -> None:
        for kind, thing in zip((Data, Struct), state["thing"], strict=True):
            assert thing < kind(3) <= kind(3)
            assert kind(1) < thing
            assert thing >= made(kind)
            assert sorted([thing, kind(1)]) == [kind(1), made(kind)]

    called(memory, Box, {"thing": [made(Data), made(Struct)]}, look)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_deep_copy_is_plain(seen: Any, kind: Any, how: Callable[[Any], Any]) -> None:
    def look(thing: Any) -> None:
        other = how(thing)
        assert type(other) is kind
        assert type(other.items) is list
        other.items.append(5)
        if kind is not Slots:
            other.score = 7
        assert thing == made(kind)

    seen(look)


def test_a_copy_can_be_set(seen: Any, kind: Any) -> None:
    def look(thing: Any) -> None:
        other = copy.copy(thing)
        assert type(other) is kind
        if kind is not Slots:
            other.score = 7
        if kind is Model:
            thing.model_copy().score = 7
        if dataclasses.is_dataclass(kind):
            assert dataclasses.replace(thing, score=9).score == 9
            dataclasses.asdict(thing)["items"].append(1)
        assert thing == made(kind)

    seen(look)


def test_its_parts_cannot_be_changed(seen: Any) -> None:
    def look(thing: Any) -> None:
        with pytest.raises(StateReadOnly, match="cannot be set; return an update instead"):
            thing.score = 4
        with pytest.raises(StateReadOnly, match="cannot be deleted"):
            del thing.score
        with pytest.raises(StateReadOnly, match="append would change it"):
            thing.items.append(1)

    seen(look)


@pytest.mark.parametrize(
    ("thing", "change"),
    [
        (deque([1], maxlen=3), lambda it: it.append(2)),
        (OrderedDict(a=1), lambda it: it.move_to_end("a")),
        (OrderedDict(a=1), lambda it: it.update(b=2)),
        (Pair(1, [1]), lambda it: it.items.append(2)),
        ([1], lambda it: it.__init__([2])),
        ({"a": 1}, lambda it: it.__init__(a=2)),
        ({1}, lambda it: it.__init__([2])),
    ],
    ids=["deque", "OrderedDict", "OrderedDict.update", "named tuple", "list", "dict", "set"],
)
def test_other_containers(memory: Holdfast, thing: Any, change: Callable[[Any], Any]) -> None:
    def look(state: Box) -> dict[str, Any]:
        with pytest.raises(StateReadOnly):
            change(state["thing"])
        assert state["thing"] == thing
        assert type(copy.deepcopy(state["thing"])) is type(thing)
        assert pickle.loads(pickle.dumps(state["thing"])) == thing
        return {"thing": state["thing"]}

    assert called(memory, Box, {"thing": thing}, look)["thing"] == thing


@pytest.mark.parametrize("kind", [list, dict, set, deque, OrderedDict])
def test_one_of_the_same_type_is_plain(memory: Holdfast, kind: Any) -> None:
    def look(state: Box) -> None:
        assert type(type(state["thing"])()) is kind
        assert type(copy.copy(state["thing"])) is kind

    called(memory, Box, {"thing": kind()}, look)


class Named:
    names: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        Named.names.append(cls.__name__)


@dataclasses.dataclass
class Plug(Named):
    size: int = 0


def test_a_class_that_lists_what_derives_from_it_does_not_see_this(memory: Holdfast) -> None:
    called(memory, Box, {"thing": Plug(1)}, lambda state: {"thing": Plug(state["thing"].size + 1)})
    assert Named.names == ["Plug"]


@pytest.mark.parametrize("whole", [lambda state: {**state, "thing": 2}, lambda state: state.copy()])
def test_what_a_list_has_already_is_not_appended_again(memory: Holdfast, whole: Callable[[Any], Any]) -> None:
    with pytest.raises(UpdateRefused, match="field 'log': it is what the state has already; return only what changes"):
        called(memory, Box, {"log": ["a"], "thing": 1}, whole)


@dataclasses.dataclass
class Logged:
    score: int = 0
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list)


def test_nor_by_a_changed_copy(memory: Holdfast) -> None:
    with pytest.raises(UpdateRefused, match="field 'log': it is what the state has already"):
        called(memory, Logged, Logged(log=["a"]), lambda state: dataclasses.replace(state, score=3))


class Unequal(msgspec.Struct, eq=False):
    score: int = 0


def test_what_is_equal_to_itself_alone_stays_so(memory: Holdfast) -> None:
    def look(state: Box) -> None:
        thing = state["thing"]
        assert thing == thing
        assert thing != Unequal(1)
        assert len({thing, thing}) == 1

    called(memory, Box, {"thing": Unequal(1)}, look)
