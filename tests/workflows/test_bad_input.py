"""What cannot be: each a typed error that names the thing and the remedy, and the run goes on once it is mended."""

import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, RunBlocked, Status, UsageError, Workflow, sleep, step, workflow
from holdfast.engine.workflow import declare as define
from holdfast.errors import NotStorable, StepFailed, TooLarge, UndoRefused, WorkflowMissing
from holdfast.testing import ManualClock

Opener = Callable[..., Holdfast]
ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@step
def paid() -> str:
    ran.append("paid")
    return "paid"


@step
def show(value: Any) -> Any:
    ran.append("show")
    return value


@step
async def fetch() -> str:
    return "fetched"


def declared(body: Callable[[], Any], name: str) -> Any:
    """The workflow of that name, as the code now says: declaring it again is what a deploy does."""

    @workflow(name=name)
    def flow() -> Any:
        return paid(), body()

    return flow


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Odd(Exception):
    def __init__(self) -> None:
        super().__init__(object(), "\ud800")
        self.connection = object()


@step
def unspeakable() -> None:
    raise Unspeakable(object())


@step
def odd() -> None:
    raise Odd


@step
def calls_a_step() -> Any:
    return show(1)


@step
def sleeps() -> None:
    sleep(1)


@step
def calls_a_workflow() -> Any:
    return harmless()


@workflow
def harmless() -> int:
    return 1


@step
def gives(what: str) -> Any:
    return {"generator": (n for n in [1]), "object": object(), "big": "x" * 3000}[what]


@step
def gives_a_coroutine() -> Any:
    return fetch.function()


@step
def recursive() -> Any:
    return recursive.function()


def cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "argument": (lambda: show(object()), NotStorable, r"show\.args\[0\]: object cannot be stored"),
    "named argument": (lambda: show(value={"a": [lambda: 1]}), NotStorable, r"show\.value\.a\[0\]: function cannot"),
    "result": (lambda: gives("object"), NotStorable, r"result of gives#1: object cannot be stored"),
    "generator": (lambda: gives("generator"), NotStorable, r"result of gives#1: generator .*; make a list of it"),
    "cycle": (lambda: show(cycle()), NotStorable, r"show\.args\[0\]\[0\]: it contains itself"),
    "large argument": (lambda: show.options(target="t")("x" * 3000), TooLarge, r"arguments of show#1: .* of 2,000"),
    "large result": (lambda: gives("big"), TooLarge, r"result of gives#1: .* more than the limit of 2,000; keep large"),
    "step in step": (calls_a_step, UsageError, r"step show is called inside of step 'calls_a_step#1' .* call it from"),
    "sleep in step": (sleeps, UsageError, r"sleep\(\) is called inside of step 'sleeps#1' of run 'r'"),
    "workflow in step": (calls_a_workflow, UsageError, r"workflow harmless is called inside of step"),
    "text of error": (unspeakable, StepFailed, r"its text cannot be made: RuntimeError"),
    "error": (odd, Odd, r"<object object at"),
    "coroutine given": (gives_a_coroutine, UsageError, r"gives_a_coroutine .* declare it with async def"),
    "async step": (fetch, UsageError, r"step fetch is async, and workflow bad-async step is not.* with async def"),
    "recursion": (recursive, RecursionError, r"maximum recursion depth"),
    "wrong arguments": (lambda: show(1, 2), TypeError, r"show\(\) takes 1 positional argument but 2 were given"),  # type: ignore[call-arg]
    "result of the workflow": (lambda: object(), NotStorable, r"result of bad-result of the workflow\[1\]: object"),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_named_and_the_run_goes_on_when_it_is_mended(opened: Opener, what: str) -> None:
    body, error, match = BAD[what]
    hf = opened(max_bytes=2000 if "large" in what else 10_000_000)
    run = hf.start(declared(body, f"bad-{what}"), id="r")
    assert run.status is Status.FAILED
    with pytest.raises(error, match=match):
        run.result()
    declared(lambda: show("fine"), f"bad-{what}")
    run.retry()
    assert run.result() == ("paid", "fine")
    assert ran.count("paid") == 1


def test_what_is_wrong_with_the_code_is_not_tried_again(hf: Holdfast) -> None:
    tried: list[int] = []

    @step(retries=5, delay=0)
    def wrong() -> Any:
        tried.append(1)
        return object()

    @workflow
    def flow() -> Any:
        return wrong()

    with pytest.raises(NotStorable):
        hf.start(flow).result()
    assert tried == [1]


def test_a_run_is_not_started_inside_of_a_step(hf: Holdfast) -> None:
    @step
    def nested() -> Any:
        return hf.start(harmless, id="inner")

    @workflow
    def flow() -> Any:
        return nested()

    with pytest.raises(UsageError, match=r"harmless is started inside of step 'nested#1' of run 'r'; call it from the"):
        hf.start(flow, id="r").result()
    assert [run.id for run in hf.runs()] == ["r"]


def test_arguments_that_cannot_be_stored_make_no_run(opened: Opener) -> None:
    hf = opened(max_bytes=2000)

    @workflow
    def flow(a: Any, *, b: Any = None) -> None: ...

    with pytest.raises(NotStorable, match=r"flow\.args\[0\]: object cannot be stored"):
        hf.start(flow, object())
    with pytest.raises(NotStorable, match=r"flow\.b: generator cannot be stored"):
        hf.enqueue(flow, 1, b=(n for n in [1]))
    with pytest.raises(TooLarge, match=r"arguments of .*flow: .* limit of 2,000"):
        hf.start(flow, "x" * 3000)
    with pytest.raises(UsageError, match=r"flow\(a: Any, \*, b: Any = None\) -> None does not take these arguments: "):
        hf.start(flow, 1, 2)
    with pytest.raises(UsageError, match=r"is not a workflow; declare the function with @holdfast.workflow"):
        hf.start(paid)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"None is not a workflow; .*, and give it here uncalled, then its arguments"):
        hf.start(None)  # type: ignore[arg-type]
    assert list(hf.runs()) == []


def test_size_is_warned_of_before_it_is_refused(opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    hf = opened(max_bytes=4000)
    flow = declared(lambda: gives("big"), "early-warning")
    with caplog.at_level(logging.WARNING, "holdfast"):
        hf.start(flow)
    assert "result of gives#1: 3,0" in caplog.text
    assert "the limit is 4,000" in caplog.text


def test_an_async_call_that_nobody_awaited(hf: Holdfast) -> None:
    kept: list[Any] = []

    @workflow
    async def flow() -> Any:
        kept.append(fetch())
        return show(kept[-1])

    with pytest.raises(NotStorable, match=r"show\.args\[0\]: coroutine cannot be stored; await it first"):
        hf.start(flow).result()
    kept.pop().close()


def test_a_run_whose_arguments_no_longer_fit_is_parked_until_they_do(timed: Opener, clock: ManualClock) -> None:
    def declare(function: Callable[..., Any]) -> Any:
        return workflow(name="signature")(function)

    def before(order: str, cents: int) -> str:
        paid()
        sleep(3600)
        return f"{order} {cents}"

    def renamed(order: str, cents: int, currency: str) -> str:
        return "never"

    def mended(order: str, cents: int, currency: str = "EUR") -> str:
        return f"{before(order, cents)} {currency}"

    run = timed().start(declare(before), "A", 5, id="r")
    declare(renamed)
    clock.advance(3600)
    with pytest.raises(RunBlocked, match=r"arguments do not fit workflow signature .*missing .*'currency'"):
        run.result()
    declare(mended)
    run.retry()
    assert run.result() == "A 5 EUR"
    assert ran == ["paid"]


# --- declarations


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Callee:
    def __call__(self) -> None: ...


@pytest.mark.parametrize("declare", [step, workflow], ids=["step", "workflow"])
@pytest.mark.parametrize(
    ("function", "match"),
    [
        (generator, "generator: a generator cannot be kept and gone on with; (use holdfast.emit|return a list)"),
        (async_generator, "async_generator: a generator cannot be kept"),
        (Callee, "is for functions, not for <class"),
        (Callee(), "is for functions, not for <.*wrap it in a function"),
        (functools.partial(print, 1), "is for functions, not for functools.partial"),
        ("name", "is for functions, not for 'name'"),
        (paid, "<step paid> cannot be a (step|workflow) too; a workflow calls steps, each its own function"),
        (harmless, "<workflow harmless> cannot be a (step|workflow) too"),
    ],
)
def test_what_cannot_be_a_step_or_workflow_is_refused_at_once(declare: Any, function: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        declare(function)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"retries": -1}, "retries=-1: a count is wanted"),
        ({"retries": True}, "retries=True: a count is wanted"),
        ({"delay": "1s"}, "delay='1s': a number"),
        ({"timeout": -1}, "timeout=-1: a number"),
        ({"retry_on": "Exception"}, "retry_on='Exception': takes an Exception class"),
        ({"retry_on": (ValueError, KeyboardInterrupt)}, "retry_on=.*: takes an Exception class"),
        ({"check": print}, "check= is for at_most_once steps"),
        ({"undo": lambda result: None}, "is a lambda or lives inside another function"),
        ({"undo": print}, "is not a Python function"),
        ({"name": 3}, "name=3: text is wanted"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(options: Any, match: str) -> None:
    declare: Callable[..., Any] = step
    with pytest.raises(UsageError, match=match):
        declare(**options)(harmless.function)


def test_an_undo_that_could_not_be_found_by_its_name_is_refused() -> None:
    @step
    def one() -> None: ...

    @step
    def two() -> None: ...

    with pytest.raises(UndoRefused, match="the undo of step one is a lambda, which has no name to find it by; use def"):
        one.undo(lambda result: None)

    @one.undo
    def _(result: None) -> None: ...

    with pytest.raises(UndoRefused, match=r"undo of step two is named .*, and so is that of .*one; .* give each its"):

        @two.undo
        def _(result: None) -> None: ...

    with pytest.raises(UsageError, match="only an at_most_once step has a check"):
        one.check(lambda: None)


def declared_in(module: str, gives: str) -> Workflow[[], str]:
    def namesake() -> str:
        return gives

    namesake.__module__ = module
    return workflow(name="namesake")(namesake)


def test_workflows_of_one_name_are_told_apart_by_their_modules(hf: Holdfast) -> None:
    one, other = declared_in("asyncio.runners", "one"), declared_in("asyncio.queues", "other")
    assert hf.start(one).result() == "one"
    assert hf.start(other).result() == "other"


def test_a_run_of_none_of_the_namesakes_says_so(hf: Holdfast) -> None:
    moved = declared_in("asyncio.runners", "moved")
    run = hf.enqueue(moved)
    del define._workflows["namesake"]
    declared_in("asyncio.queues", "one")
    declared_in("asyncio.events", "other")
    with pytest.raises(WorkflowMissing, match=r"declared in asyncio.events, asyncio.queues, and .* name them apart"):
        run.resume()


def test_an_undo_that_cannot_take_its_arguments_is_refused_where_it_is_declared() -> None:
    @step
    def pay(order: str, cents: int, *, fast: bool = False) -> str:
        return order

    with pytest.raises(
        UndoRefused, match=r"as refund\(result, order, cents, \*, fast\); refund\(order: str, cents: int\)"
    ):

        @pay.undo
        def refund(order: str, cents: int) -> None: ...


def test_a_key_used_twice_with_other_arguments_says_that_it_is_the_key(hf: Holdfast) -> None:
    @step
    def tool(n: int) -> int:
        return n

    @workflow(name="one-key-twice")
    def twice() -> None:
        tool.options(key="toolu_1")(1)
        tool.options(key="toolu_1")(2)

    with pytest.raises(RunBlocked, match="the key 'toolu_1' was used before in this run, with other arguments"):
        hf.start(twice).result()


def test_a_forgotten_await_names_the_step() -> None:
    @step
    async def tick() -> None: ...

    @workflow(name="forgets-to-await")
    async def forgets() -> None:
        tick()

    with holdfast.open("memory://") as hf, pytest.warns(RuntimeWarning, match="coroutine 'tick' was never awaited"):
        hf.start(forgets)
