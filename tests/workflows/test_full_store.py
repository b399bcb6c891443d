"""A store that cannot be written for a while: no run is stranded by what could not be written."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast import Holdfast, Status, ask, step, workflow
from holdfast.errors import HoldfastError, LeaseLost, StoreFull
from holdfast.kernel.model import Post


@step
def double(n: int) -> int:
    return 2 * n


@workflow
def doubles() -> list[int]:
    return [double(n) for n in range(3)]


@workflow
def inner() -> int:
    return ask("how many?", int)


@workflow
def outer() -> int:
    return inner() + 1


def failing(hf: Holdfast, method: str, when: Callable[[Any], bool], make: Callable[[], HoldfastError]) -> list[str]:
    """Let a method of the store fail once, when it is called with such arguments; gives the list of when it did."""
    real, failed = getattr(hf.client.store, method), list[str]()

    def fail_once(*args: Any, **kwargs: Any) -> Any:
        if not failed and when(args):
            failed.append(method)
            raise make()
        return real(*args, **kwargs)

    setattr(hf.client.store, method, fail_once)
    return failed


def test_a_child_whose_parent_could_not_be_told_tells_it_later(hf: Holdfast) -> None:
    run = hf.enqueue(outer, id="outer")
    hf.work(until_idle=True)
    [child] = [hf.get(info.id) for info in hf.runs() if info.id != "outer"]
    assert (run.status, child.status) == (Status.WAITING, Status.WAITING)
    child.answer(3)
    failed = failing(
        hf,
        "apply",
        lambda args: isinstance(args[0][0], Post) and args[0][0].item.kind == "child",
        lambda: StoreFull(hf.client.store.place),
    )
    hf.work(until_idle=True)
    assert failed == ["apply"]
    assert (run.status, child.status) == (Status.COMPLETED, Status.COMPLETED)
    assert run.result(timeout=0) == 4
    run.audit()
    child.audit()


@pytest.mark.parametrize("place", range(1, 5))
def test_a_write_that_was_built_on_one_that_failed_does_not_keep_the_run(hf: Holdfast, place: int) -> None:
    """It is refused as one of a lost lease is, and yet the run is still held by this worker."""
    run = hf.enqueue(doubles, id="run")
    real, refused = hf.client.store.apply, list[int]()

    def apply(batch: Sequence[Any]) -> Any:
        entries = [entry.seq for write in batch for entry in write.entries]
        if not refused and place in entries:
            refused.extend(entries)
            return [LeaseLost("run", "it does not continue the journal") for _ in batch]
        return real(batch)

    hf.client.store.apply = apply  # type: ignore[method-assign]
    hf.work(until_idle=True)
    assert refused
    assert run.result(timeout=0) == [0, 2, 4]
    run.audit()
