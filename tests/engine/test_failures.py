"""Errors are kept with their types, and stored data that names a type can neither import nor call anything."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import errors
from holdfast.codec import Codec
from holdfast.engine.workflow import failures
from holdfast.engine.workflow.failures import describe, revive, summary
from holdfast.errors import AnswerRefused, HoldfastError, NotStorable, RunNotFound, StepFailed
from holdfast.secret import Secret

CALLED: list[str] = []  # what of the classes below ran


class Plain(Exception):
    pass


class Demanding(Exception):
    """Its constructor needs arguments that are not its args."""

    def __init__(self, code: int, *, where: str) -> None:
        CALLED.append("__init__")
        super().__init__(f"code {code} at {where}")
        self.code = code
        self.where = where


class Slotted(ValueError):
    __slots__ = ("__hidden", "code", "empty")

    def __init__(self, code: Any) -> None:
        super().__init__(code)
        self.code = code
        self.__hidden = [code]

    def hidden(self) -> Any:
        return self.__hidden


class Told(Exception):
    """Its text is made from what it has."""

    def __init__(self, code: Any) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"told {self.code.bit_length()}"


class DiskError(OSError):
    """With a constructor of its own, CPython leaves the fields of an OSError to it."""

    def __init__(self, place: str) -> None:
        super().__init__(28, "No space left", place)
        self.place = place


class Watchful(Exception):
    """Everything of its own that making an error could touch."""

    def __new__(cls, *args: Any) -> Watchful:
        CALLED.append("__new__")
        return super().__new__(cls, *args)

    def __setattr__(self, name: str, value: Any) -> None:
        CALLED.append("__setattr__")
        super().__setattr__(name, value)

    def __getattribute__(self, name: str) -> Any:
        CALLED.append("__getattribute__")
        return super().__getattribute__(name)

    @property
    def code(self) -> int:
        CALLED.append("code")
        return 1

    @code.setter
    def code(self, value: int) -> None:
        CALLED.append("code=")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Outer:
    class Nested(Plain):
        pass


class Team(ExceptionGroup[Exception]):
    pass


@pytest.fixture
def codec() -> Codec:
    return Codec()


def again(error: BaseException, codec: Codec | None = None) -> Exception:
    """The error after a way through JSON, as another process would see it."""
    codec = codec or Codec()
    return revive(json.loads(json.dumps(describe(error, codec))), codec)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1, (2, b"3")),
        KeyError("name"),
        KeyError(("a", 1)),
        Exception(),
        OSError("just text"),
        OSError(5, "I/O error"),
        OSError(None, "no number"),
        FileNotFoundError(2, "No such file", "a.txt"),
        OSError(18, "Cross-device", "a", None, "b"),
        BlockingIOError(11, "later", 5),
        UnicodeDecodeError("utf-8", b"a\xffb", 1, 2, "invalid start byte"),
        UnicodeEncodeError("ascii", "aéb", 1, 2, "not in range"),
        StopIteration(7),
        ImportError("no", name="shop", path="/shop"),
        SyntaxError("bad", ("f.py", 1, 2, "x =", 1, 3)),
        NameError("x", name="x"),
        ZeroDivisionError("division by zero"),
        Plain("one", ["two"]),
        Outer.Nested("deep"),
        Demanding(3, where="here"),
        DiskError("/data"),
        Slotted(4),
        Told(255),
        sqlite3.OperationalError("locked"),
        json.JSONDecodeError("bad", "{}", 1),
        subprocess.CalledProcessError(3, ["ls"], b"out"),
        HoldfastError(),
        RunNotFound("r1"),
        AnswerRefused("r1", ("too small", "no name")),
        NotStorable("value.a", "a socket cannot be stored"),
        StepFailed("shop:Gone", "sold out"),
    ],
    ids=repr,
)
def test_errors_come_back_as_what_they_were(error: Exception) -> None:
    back = again(error)
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)
    assert vars(back) == vars(error)
    for name in ("errno", "strerror", "filename", "filename2", "object", "start", "value", "name", "path", "lineno"):
        assert getattr(back, name, None) == getattr(error, name, None)
    assert describe(back, Codec()) == describe(error, Codec())


def test_every_error_of_holdfast_comes_back() -> None:
    for cls in vars(errors).values():
        if isinstance(cls, type):
            error = cls("place", ("problem",)) if cls is AnswerRefused else _made(cls)
            back = again(error)
            assert (type(back), str(back), vars(back)) == (cls, str(error), vars(error))


def _made(cls: Any) -> Exception:
    for count in (2, 1, 3, 4):
        try:
            return cls(*["place", "text", "field", "problem"][-count:])  # type: ignore[no-any-return]
        except (TypeError, ValueError):
            continue
    raise AssertionError(f"{cls} takes other arguments")


def test_slots_come_back() -> None:
    back = again(Slotted("x"))
    assert isinstance(back, Slotted)
    assert (back.code, back.hidden()) == ("x", ["x"])
    assert not hasattr(back, "empty")


values = st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.binary()
values = values | st.lists(values, max_size=3) | st.tuples(values, values)
names = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
classes = st.sampled_from([Exception, ValueError, KeyError, RuntimeError, OSError, LookupError, Plain, Outer.Nested])


@given(classes, st.lists(values, max_size=4), st.dictionaries(names, values, max_size=4), st.lists(st.text(max_size=9)))
def test_any_error_comes_back(cls: type[Exception], args: list[Any], attributes: dict[str, Any], notes: Any) -> None:
    error = cls(*args)
    error.__dict__.update(attributes)
    back = again(error)
    assert type(back) is type(error)
    assert (back.args, str(back), vars(back)) == (error.args, str(error), vars(error))
    for note in notes:
        error.add_note(note)
    describe(error, Codec())


@given(st.text(), st.text())
def test_any_text_is_kept_as_json(text: str, name: str) -> None:
    error = Exception(text)
    error.__dict__[name] = text
    json.dumps(describe(error, Codec())).encode()
    assert len(str(again(error))) >= len(text)


# --- what cannot be kept


def test_what_cannot_be_stored_is_left_out(codec: Codec) -> None:
    error = Plain("text", object())
    error.kept, error.lost = [1], object()  # type: ignore[attr-defined]
    data = describe(error, codec)
    assert "args" not in data
    assert data["attributes"] == {"kept": [1]}
    back = revive(data, codec)
    assert type(back) is Plain
    assert str(back) == str(error)  # which shows the args
    assert vars(back) == {"kept": [1]}


class Odd:
    def bit_length(self) -> int:
        return 7


@pytest.mark.parametrize(
    "error",
    [KeyError(object()), Told(Odd()), UnicodeDecodeError("utf-8", b"\xff" * 300_000, 0, 1, "invalid")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_would_lose_its_text_is_not_made(error: Exception, codec: Codec) -> None:
    back = again(error, codec)
    assert isinstance(back, StepFailed)
    assert str(back) == back.message == str(error)[:2_000]
    assert back.type == f"{type(error).__module__}:{type(error).__qualname__}"


def test_a_failure_is_never_too_large(codec: Codec) -> None:
    error = Plain("x" * 1_000_000)
    error.body = b"x" * 1_000_000  # type: ignore[attr-defined]
    error.add_note("n" * 1_000_000)
    assert len(json.dumps(describe(error, codec))) < 5_000
    back = again(error)
    assert type(back) is Plain
    assert str(back) == "x" * 2_000


def test_an_error_without_a_text(codec: Codec) -> None:
    data = describe(Silent("a"), codec)
    assert data["message"] == "<its text cannot be made: RuntimeError>"
    assert type(revive(data, codec)) is Silent


def test_a_local_class_is_not_found() -> None:
    class Local(Exception):
        pass

    back = again(Local("text"))
    assert isinstance(back, StepFailed)
    assert back.type.endswith("<locals>.Local")
    assert str(back) == "text"


def test_an_argument_of_an_unknown_class(codec: Codec) -> None:
    unknown = {"$": "obj", "t": "shop:Order", "f": {}}
    data = {"type": "builtins:ValueError", "message": "text", "args": [unknown], "attributes": {"a": unknown, "b": 1}}
    back = revive(data, codec)
    assert (type(back), str(back), vars(back)) == (ValueError, "text", {"b": 1})


# --- tracebacks, notes, causes, groups


def test_the_traceback_is_a_note_and_only_once(codec: Codec) -> None:
    error = raised(Plain("text"))
    error.add_note("mine")
    data = describe(error, codec)
    assert "in raised" in data["traceback"]
    first = revive(data, codec)
    assert first.__notes__ == ["mine", "The original traceback:\n" + data["traceback"]]
    second = again(raised(first))
    assert second.__notes__ == first.__notes__


def deep(n: int) -> None:
    if n:
        deeper(n - 1)
    raise Plain("deep")


def deeper(n: int) -> None:
    deep(n)


def test_a_long_traceback_keeps_the_innermost_frames(codec: Codec) -> None:
    with pytest.raises(Plain) as caught:
        deep(200)
    trace = describe(caught.value, codec)["traceback"]
    assert 4_000 < len(trace) <= 8_000
    assert trace.startswith("  File")
    assert 'raise Plain("deep")' in trace.splitlines()[-1]


def test_of_the_frames_the_users_are_kept(codec: Codec) -> None:
    @holdfast.step(timeout=60)
    def load() -> None:
        raise Plain("no")

    @holdfast.workflow(name="seen-from-outside")
    def flow() -> None:
        load()

    with holdfast.open("memory://frames") as hf:
        run = hf.start(flow)
        traces = [one.contents["failure"]["traceback"] for one in run.entries() if "failure" in one.contents]
    files = [[line.split('"')[1] for line in trace.splitlines() if "File " in line] for trace in traces]
    assert files == [[__file__], [__file__, __file__]]


def test_an_error_of_holdfast_alone_keeps_its_frames(codec: Codec) -> None:
    try:
        revive({}, codec)
    except ValueError as error:
        caught = error
    assert caught.__traceback__ is not None
    caught.__traceback__ = caught.__traceback__.tb_next  # without this very function
    assert "in revive" in describe(caught, codec)["traceback"]


def test_causes_and_contexts(codec: Codec) -> None:
    with pytest.raises(Plain) as caught:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904
        except ValueError as error:
            raise Plain("third") from error
    back = again(caught.value)
    assert isinstance(back.__cause__, ValueError)
    assert isinstance(back.__cause__.__context__, KeyError)
    assert back.__cause__.__cause__ is None


def test_a_hidden_context_stays_hidden() -> None:
    with pytest.raises(Plain) as caught:
        try:
            raise KeyError("first")
        except KeyError:
            raise Plain("second") from None
    assert again(caught.value).__context__ is None


def test_a_chain_ends_after_five(codec: Codec) -> None:
    error = Plain("0")
    error.__cause__ = error  # even one that never ends
    data: Any = describe(error, codec)
    found = 0
    while "cause" in data:
        data, found = data["cause"], found + 1
    assert found == 5


def test_groups() -> None:
    inner = ExceptionGroup("inner", [KeyError("k")])
    back = again(Team("many", [ValueError("v"), inner, *[Plain(str(n)) for n in range(30)]]))
    assert type(back) is Team
    assert back.message == "many"
    assert len(back.exceptions) == 20
    assert repr(back.exceptions[0]) == "ValueError('v')"
    assert repr(back.exceptions[1]) == repr(inner)


def test_groups_of_groups_are_bounded(codec: Codec) -> None:
    error: Exception = Plain("leaf")
    for _ in range(8):
        error = ExceptionGroup("level", [error] * 20)
    data = describe(error, codec)
    assert json.dumps(data).count('"message"') == 100
    assert isinstance(revive(data, codec), ExceptionGroup)


def test_summary(codec: Codec) -> None:
    assert summary(describe(ValueError("text"), codec)) == "ValueError: text"
    assert summary(describe(Outer.Nested(), codec)) == "Nested"


# --- data that somebody else wrote


def test_nothing_of_the_class_runs(codec: Codec) -> None:
    watchful, demanding = describe(Watchful("a"), codec), describe(Demanding(1, where="x"), codec)
    watchful["attributes"] = {"code": 5, "__class__": 1, "__dict__": 2, "note": 3}
    watchful["cause"] = demanding
    CALLED.clear()
    back = revive(watchful, codec)
    assert CALLED == []
    assert type(back) is Watchful
    assert back.note == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "builtins:SystemExit",
        "builtins:KeyboardInterrupt",
        "builtins:BaseException",
        "builtins:eval",
        "builtins:int",
        "builtins:ValueError.__init__",
        "builtins:ValueError.mro",
        "builtins:",
        ":",
        "os:path.join",
        "antigravity:anything",
        "holdfast:nonsense",
        f"{__name__}:CALLED.append",
    ],
)
def test_other_names_are_never_called(codec: Codec, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_named: Any) -> None:
        raise AssertionError("it was called")

    monkeypatch.setattr("os.system", refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    loaded = set(sys.modules)
    CALLED.clear()
    back = revive({"type": name, "message": "text", "args": ["touch /tmp/x"]}, codec)
    assert isinstance(back, StepFailed)
    assert (back.type, str(back)) == (name, "text")
    assert set(sys.modules) == loaded
    assert CALLED == []


def test_a_lazy_module_stays_lazy(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("it was loaded")

    monkeypatch.setitem(sys.modules, "lazy_shop", Lazy("lazy_shop"))
    assert isinstance(revive({"type": "lazy_shop:Gone", "message": ""}, codec), StepFailed)
    monkeypatch.delitem(sys.modules, "lazy_shop")


def test_fields_that_do_not_fit(codec: Codec) -> None:
    unicode = {"type": "builtins:UnicodeDecodeError", "message": "text"}
    for args in (["utf-8", "text", 0, 1, "r"], [1], ["utf-8", {"$": "bytes", "v": ""}, -9, -8, "r"], [1, 2, 3, 4, 5]):
        assert isinstance(revive({**unicode, "args": args}, codec), StepFailed)
    fine = ["utf-8", {"$": "bytes", "v": "/w=="}, 0, 1, "r"]
    back = revive({**unicode, "args": fine, "attributes": {"object": 5, "start": -7}}, codec)
    assert str(back) == "'utf-8' codec can't decode byte 0xff in position 0: r"
    empty = revive({"type": "builtins:ExceptionGroup", "message": "m", "group": "m", "args": []}, codec)
    assert isinstance(empty, StepFailed)


GOOD: dict[str, Any] = {"type": "builtins:ValueError", "message": "text"}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "text",
        {},
        {"type": "builtins:ValueError"},
        {**GOOD, "type": 1},
        {**GOOD, "type": "ValueError"},
        {**GOOD, "message": 1},
        {**GOOD, "args": {"a": 1}},
        {**GOOD, "args": [{"$": "tuple"}]},
        {**GOOD, "attributes": []},
        {**GOOD, "attributes": {"a": {"$": "bytes", "v": "!"}}},
        {**GOOD, "traceback": 1},
        {**GOOD, "notes": "text"},
        {**GOOD, "notes": [1]},
        {**GOOD, "cause": 1},
        {**GOOD, "cause": {**GOOD, "type": "x"}},
        {**GOOD, "members": {}},
    ],
)
def test_damaged_data(codec: Codec, data: Any) -> None:
    with pytest.raises(ValueError, match=r"damaged"):
        revive(data, codec)


def test_data_that_is_too_deep(codec: Codec) -> None:
    data = GOOD
    for _ in range(100_000):
        data = {**GOOD, "cause": data}
    with pytest.raises(ValueError, match=r"damaged|too deeply"):
        revive(data, codec)


# --- secrets


def test_the_value_of_a_secret_is_nowhere(codec: Codec) -> None:
    key = Secret("s3cr3t-value", "API_KEY")
    other = Secret(b"\xffbytes-value", "BLOB")
    error = raised(Plain(f"GET /?key={key.reveal()}", [key.reveal()], b"<" + other.reveal() + b">", key))
    error.url = {"q": ("s3cr3t-value",), "key": key}  # type: ignore[attr-defined]
    error.add_note("it was s3cr3t-value")
    error.__cause__ = raised(KeyError("x" * 1_995 + key.reveal()))
    data = describe(error, codec)
    stored = json.dumps(data)
    assert "s3cr3t" not in stored
    assert "bytes-value" not in stored
    back = revive(data, codec)
    assert back.args == ("GET /?key=***", ["***"], b"<***>", key)
    assert back.url == {"q": ("***",), "key": key}  # type: ignore[attr-defined]
    assert "'s3cr3t-value'" not in failures.summary(data)


def test_a_secret_in_the_source_of_a_frame(codec: Codec) -> None:
    with pytest.raises(Plain) as caught:
        raise Plain(Secret("in-the-source").reveal())
    kept = Secret("in-the-source")
    assert "***" in describe(caught.value, codec)["traceback"]
    assert kept.name == "secret"


def test_a_secret_that_is_the_name_of_a_tag(codec: Codec) -> None:
    secrets = [Secret(text) for text in ("tuple", "builtins", "ValueError")]
    back = again(ValueError(("tuple", 1)), codec)
    assert back.args == ("('***', 1)",)  # the tag is taken out as well, so the tuple can only be told as text
    assert len(secrets) == 3
