"""The value of a secret that a program lets out by mistake: refused where it would be read again, else taken out.

Each place to which a program can give a text or a value is tried, on every store, and then the value is looked for in
all that the store holds: in its files or rows, and in each payload after it is expanded.
"""

import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict
from uuid import uuid4

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import (
    END,
    Graph,
    Holdfast,
    RunCancelled,
    Secret,
    Status,
    UsageError,
    ask,
    continue_as_new,
    emit,
    gather,
    note,
    send,
    step,
    workflow,
)
from holdfast.codec import expand
from holdfast.errors import NotStorable, UpdateRefused
from holdfast.kernel.model import Filter

VALUE = 'pass-word "7" é'  # what JSON writes in another way than it is
BLOB = b"\x00\xffbinary-pass"
LONG = "x" * 2000


@dataclass
class Data:
    text: str


class Struct(msgspec.Struct):
    text: str


class Model(pydantic.BaseModel):
    text: str


class Typed(TypedDict):
    text: str


def stored(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> bytes:
    """All that a store holds: raw, and each payload and item after it is expanded."""
    store, found = hf.client.store, [raw_bytes()]
    before = None
    while page := store.find(Filter(hidden=None), before=before, limit=100):
        before = page[-1].uid
        for record in page:
            found += [expand(entry.payload) for entry in store.read(record.uid, record.base, record.seq)]
            found += [expand(item.payload) for item in store.inbox(record.uid)]
            found.append(repr(record).encode())
    found += [document.value for kind in ("queue", "schedule", "hook") for document in store.documents(kind)]
    return b"\n".join(found)


def assert_nowhere(hf: Holdfast, raw_bytes: Callable[..., bytes], *texts: str) -> None:
    everything = stored(hf, raw_bytes)
    for spelling in (VALUE, msgspec.json.encode(VALUE).decode()[1:-1], repr(VALUE)[1:-1], ascii(VALUE)[1:-1]):
        assert spelling.encode() not in everything
        assert not any(spelling in text for text in texts)
    assert BLOB not in everything
    for shift in range(3):  # base64 of it, at each place in what is around it
        inner = base64.b64encode(b"\0" * shift + BLOB)[4:-4]
        assert inner not in everything


@pytest.fixture
def password() -> Secret:
    return Secret(VALUE, "password")


# --- what a workflow does


@step
def gives(made: str, password: Secret) -> Any:
    value = password.reveal()
    shapes: dict[str, Callable[[], Any]] = {
        "plain": lambda: value,
        "inside of a text": lambda: f"the password is {value}, or was",
        "long": lambda: LONG + value + LONG,
        "key": lambda: {value: 1},
        "dataclass": lambda: Data(value),
        "struct": lambda: Struct(value),
        "model": lambda: Model(text=value),
        "typed": lambda: Typed(text=value),
        "nested": lambda: [{"a": ({value},)}],
        "bytes": lambda: {"data": b"abc" + value.encode() + b"def"},
        "repr": lambda: repr(value),
    }
    return shapes[made]()


SHAPES = [
    "plain",
    "inside of a text",
    "long",
    "key",
    "dataclass",
    "struct",
    "model",
    "typed",
    "nested",
    "bytes",
    "repr",
]


@step
def takes(text: str) -> int:
    return len(text)


@step(at_most_once=True, target="the server")
def takes_once(text: str) -> int:
    return len(text)


@workflow
def child(text: str) -> int:
    return len(text)


@workflow
def other() -> str:
    return str(holdfast.receive())


@workflow
def step_gives(made: str, password: Secret) -> Any:
    return type(gives(made, password)).__name__


@workflow
async def async_step_gives(made: str, password: Secret) -> Any:
    return type(gives(made, password)).__name__


@workflow
def returns(password: Secret) -> str:
    return f"it is {password.reveal()}"


@workflow
async def returns_async(password: Secret) -> Any:
    return {"it is": [password.reveal()]}


@workflow
def emits(password: Secret) -> None:
    emit({"password": password.reveal()})


@workflow
def emits_to(password: Secret) -> None:
    emit(1, stream=password.reveal())


@workflow
def notes(password: Secret) -> None:
    note(f"logged in with {password.reveal()}")


@workflow
def asks(password: Secret) -> None:
    ask(f"Is {password.reveal()} right?", bool)


@workflow
async def asks_async(password: Secret) -> None:
    await ask(f"Is {password.reveal()} right?", bool)


@workflow
def asks_with_default(password: Secret) -> None:
    ask("What is it?", str, timeout=60, default=password.reveal())


@workflow
def gives_a_step(password: Secret) -> None:
    takes(password.reveal())


@workflow
def gives_a_guarded_step(password: Secret) -> None:
    takes_once(password.reveal())


@workflow
def gives_a_child(password: Secret) -> None:
    child(password.reveal())


@workflow
async def gives_children(password: Secret) -> None:
    await gather(child(password.reveal()), child("harmless"))


@workflow
def sends(password: Secret) -> None:
    send("other", password.reveal())


@workflow
def sends_about(password: Secret) -> None:
    send("other", 1, topic=password.reveal())


@workflow
def begins_anew(password: Secret, said: str = "") -> None:
    if not said:
        continue_as_new(password, said=password.reveal())


REFUSED = [
    returns,
    returns_async,
    emits,
    emits_to,
    notes,
    asks,
    asks_async,
    asks_with_default,
    gives_a_step,
    gives_a_guarded_step,
    gives_a_child,
    gives_children,
    sends,
    sends_about,
    begins_anew,
]


@pytest.mark.parametrize("does", REFUSED, ids=lambda one: one.name)
def test_what_a_workflow_lets_out_is_refused(
    hf: Holdfast, raw_bytes: Callable[..., bytes], caplog: pytest.LogCaptureFixture, password: Secret, does: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    hf.enqueue(other, id="other")
    run = hf.start(does, password, id="run")
    with pytest.raises(NotStorable, match="value of secret 'password'") as refused:
        run.result()
    assert run.status is Status.FAILED
    assert_nowhere(hf, raw_bytes, caplog.text, str(refused.value), repr(run.info()), repr(run.checkpoint()))


@pytest.mark.parametrize("made", SHAPES)
@pytest.mark.parametrize("gives", [step_gives, async_step_gives], ids=["sync", "async"])
def test_the_result_of_a_step_is_refused_whatever_its_shape(
    hf: Holdfast, raw_bytes: Callable[..., bytes], caplog: pytest.LogCaptureFixture, made: str, gives: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    run = hf.start(gives, made, Secret(VALUE, "password"), id="run")
    with pytest.raises(NotStorable, match=r"result of gives#1.*never stored; give the Secret itself"):
        run.result()
    assert_nowhere(hf, raw_bytes, caplog.text, repr(run.steps()))


# --- what is taken out


class Wrong(Exception):
    def __init__(self, text: str, data: bytes) -> None:
        super().__init__(text, data)
        self.text, self.data = text, data


@workflow
def raises(password: Secret, blob: Secret) -> None:
    error = Wrong(f"not {password.reveal()}", blob.reveal())
    error.add_note(f"tried {password.reveal()}")
    try:
        raise ValueError(password.reveal())
    except ValueError as cause:
        raise error from cause


@step
def raises_one_of_its_own(password: Secret) -> None:
    raise type(f"Bad_{password.reveal()}", (Exception,), {})("x")


@workflow
def meets_a_telling_class(password: Secret) -> None:
    raises_one_of_its_own(password)


@workflow
def has_a_telling_key(password: Secret) -> str:
    return refused_step.options(key=f"login-{password.reveal()}")("x")


@step
def refused_step(text: str) -> str:
    return text


@pytest.mark.parametrize("does", [meets_a_telling_class, has_a_telling_key])
def test_neither_the_name_of_an_error_nor_a_key_keeps_a_run_from_ending(
    hf: Holdfast, raw_bytes: Callable[..., bytes], caplog: pytest.LogCaptureFixture, password: Secret, does: Any
) -> None:
    run = hf.start(does, password, id="run")
    assert run.status is Status.FAILED
    assert_nowhere(hf, raw_bytes, caplog.text, repr(run.info()), repr(run.checkpoint()))


def test_what_errors_say_is_taken_out(
    hf: Holdfast, raw_bytes: Callable[..., bytes], caplog: pytest.LogCaptureFixture, password: Secret
) -> None:
    caplog.set_level(logging.DEBUG)
    run = hf.start(raises, password, Secret(BLOB, "blob"), id="run")
    with pytest.raises(Wrong, match=r"not \*\*\*"):
        hf.get("run").result()
    assert_nowhere(hf, raw_bytes, caplog.text, repr(run.info()), repr(run.checkpoint()))


# --- what is given from outside, and by hand


class State(TypedDict):
    text: str


def graph_that(password: Secret) -> Graph:
    graph = Graph(State, name="lets_out")

    @graph.node
    def tells(state: State) -> dict[str, Any]:
        return {"text": password.reveal()}

    graph.entry(tells)
    graph.edge(tells, END)
    return graph


GIVEN: dict[str, Callable[[Holdfast, str], Any]] = {
    "input": lambda hf, value: hf.start(child, value),
    "enqueued": lambda hf, value: hf.enqueue(child, value),
    "id": lambda hf, value: hf.start(child, "x", id=value),
    "id by hand": lambda hf, value: hf.run(value),
    "tag": lambda hf, value: hf.start(child, "x", tags={"a": value}),
    "tag's name": lambda hf, value: hf.start(child, "x", tags={value: "a"}),
    "tag by hand": lambda hf, value: hf.run("r", tags={"a": value}),
    "key": lambda hf, value: hf.enqueue(child, "x", key=value),
    "queue's name": lambda hf, value: hf.queue(value, limit=1),
    "who set a queue": lambda hf, value: hf.queue("q", limit=1, by=value),
    "schedule": lambda hf, value: hf.schedule(child, value, cron="0 0 * * *", id="s"),
    "schedule's id": lambda hf, value: hf.schedule(child, "x", cron="0 0 * * *", id=value),
    "schedule's tag": lambda hf, value: hf.schedule(child, "x", cron="0 0 * * *", id="s", tags={"a": value}),
    "message": lambda hf, value: hf.enqueue(other, id="o").send({"a": value}),
    "topic": lambda hf, value: hf.enqueue(other, id="o").send(1, topic=value),
    "answer": lambda hf, value: hf.start(answered, id="a").answer(value),
    "by": lambda hf, value: hf.start(answered, id="a").answer("yes", by=value),
    "fork": lambda hf, value: hf.start(answered, id="a").fork(input={"text": value}),
    "fork's id": lambda hf, value: hf.start(answered, id="a").fork(id=value),
    "state": lambda hf, value: hf.run("r").save({"a": [value]}),
    "next": lambda hf, value: hf.run("r").save({}, next=value),
    "once": lambda hf, value: hf.run("r").once("k", lambda: value),
    "once, argument": lambda hf, value: hf.run("r").once("k", len, value),
    "once, key": lambda hf, value: hf.run("r").once(value, int),
    "once, target": lambda hf, value: hf.run("r").once("k", int, target=value),
    "mark": lambda hf, value: hf.run("r").mark("k", value),
    "pause": lambda hf, value: hf.run("r").pause(value),
    "complete": lambda hf, value: hf.run("r").complete(value),
}


@workflow
def answered(text: str = "") -> str:
    return str(ask("Which?", str))


@pytest.mark.parametrize("where", GIVEN)
def test_what_is_given_from_outside_is_refused(
    hf: Holdfast, raw_bytes: Callable[..., bytes], password: Secret, where: str
) -> None:
    with pytest.raises((NotStorable, UsageError), match="value of secret 'password'") as refused:
        GIVEN[where](hf, password.reveal())
    assert_nowhere(hf, raw_bytes, str(refused.value))


def test_the_state_of_a_graph_is_refused(hf: Holdfast, raw_bytes: Callable[..., bytes], password: Secret) -> None:
    run = hf.start(graph_that(password), {"text": ""}, id="run")
    with pytest.raises(UpdateRefused, match="value of secret 'password'"):
        run.result()
    assert_nowhere(hf, raw_bytes)


def test_a_run_that_is_failed_by_hand(hf: Holdfast, raw_bytes: Callable[..., bytes], password: Secret) -> None:
    hf.run("r").fail(f"{password.reveal()} is wrong")
    assert_nowhere(hf, raw_bytes)
    assert hf.get("r").checkpoint().error == "*** is wrong"


def test_a_reason_to_cancel_is_taken_out(hf: Holdfast, raw_bytes: Callable[..., bytes], password: Secret) -> None:
    run = hf.start(other, id="run")
    run.cancel(f"{password.reveal()} leaked", by=f"{password.reveal()}!")
    assert (run.status, run.info().holder) == (Status.CANCELLED, None)
    assert run.entry(run.checkpoint().seq).contents == {"error": "*** leaked", "by": "***!"}
    assert_nowhere(hf, raw_bytes)


# --- what somebody left who did not know the secret: it was acknowledged, so it is taken in, without the value


@workflow
def asks_and_hears() -> list[Any]:
    return [ask("Which?", str), holdfast.receive()]


LEFT: dict[str, Callable[[holdfast.Run, Any], Any]] = {
    "message": lambda run, value: run.send(value),
    "answer": lambda run, value: run.answer(value),
    "by": lambda run, value: run.send("x", by=value),
}


@pytest.fixture
def value() -> str:
    """The value of a secret that no other test of this process has made known."""
    return f'pass-word "{uuid4().hex}" é'


def leave(hf: Holdfast, value: str, act: Callable[[holdfast.Run], Any]) -> tuple[holdfast.Run, Secret]:
    """Leave something in the inbox of a run that is held, before the value becomes that of a secret."""
    run, holder = hf.enqueue(asks_and_hears, id="run"), hf.get("run")
    hf.work(until_idle=True)
    with holder.claim():
        act(run)
        assert hf.client.store.inbox(run.uid)
        secret = Secret(value, "password")
    return run, secret


@pytest.mark.parametrize("kind", LEFT)
@pytest.mark.parametrize("shape", ["{}", "it is {}."])
def test_what_somebody_left_who_did_not_know_a_secret(hf: Holdfast, value: str, kind: str, shape: str) -> None:
    run, _secret = leave(hf, value, lambda run: LEFT[kind](run, shape.format(value)))
    assert run.info().holder is None
    if kind != "answer":
        run.answer("lamp")
    else:
        run.send("x")
    hf.work(until_idle=True)
    taken = shape.format("***")
    assert run.result(timeout=20) == {"message": ["lamp", taken], "answer": [taken, "x"]}.get(kind, ["lamp", "x"])
    assert value not in str([run.entry(entry.seq).contents for entry in run.history()])
    assert hf.client.store.inbox(run.uid) == []


def test_a_mark_that_somebody_left_who_did_not_know_a_secret(
    hf: Holdfast, opened: Callable[..., Holdfast], value: str
) -> None:
    run, other = hf.run("run"), opened().run("run")
    with run.claim():
        other.mark("tool", "tool", result=value)
        _secret = Secret(value, "password")
        assert run.fork(id="fork").checkpoint().results == {"tool": "***"}
    assert run.checkpoint().results == {"tool": "***"}


def test_what_cannot_be_taken_out_stops_nothing(hf: Holdfast) -> None:
    """A number that is the value of a secret."""
    number = uuid4().int % 10**15 + 10**15
    run, _secret = leave(hf, str(number), lambda run: run.send([number]))
    run.cancel("no more")
    assert (run.status, run.info().holder) == (Status.CANCELLED, None)


def test_a_cancel_that_somebody_left_who_did_not_know_a_secret(hf: Holdfast, value: str) -> None:
    run, _secret = leave(hf, value, lambda run: run.cancel(f"{value} leaked", by=value))
    hf.work(until_idle=True)
    with pytest.raises(RunCancelled, match=r"\*\*\* leaked"):
        run.result(timeout=20)
    assert (run.status, run.info().holder) == (Status.CANCELLED, None)
    assert value not in str(run.entry(run.checkpoint().seq).contents)


# --- what is not a value


def test_short_values_are_refused_only_as_a_whole_text(hf: Holdfast) -> None:
    pin = Secret("1234", "pin")
    run = hf.run("r")
    run.save({"n": 51234, "text": "room 12345"})
    with pytest.raises(NotStorable, match="secret 'pin'"):
        run.save({"text": pin.reveal()})
    assert run.checkpoint().state == {"n": 51234, "text": "room 12345"}


def test_a_value_that_another_process_looked_up_is_refused_too(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    hf.run("r").save({"key": Secret("made-elsewhere", "api")})
    [token] = [token for token in hf.client.codec.secrets if hf.client.codec.secrets[token].name == "api"]
    hf.client.codec.secrets.pop(token)
    reader = opened(secrets={"api": "looked-up-here"})
    revealed = reader.get("r").checkpoint().state["key"].reveal()
    with pytest.raises(NotStorable, match="secret 'api'"):
        reader.run("q").save({"text": f"it is {revealed}"})
