"""`once_per`: a second start with the same key gives the run that there is, for as long as it counts."""

import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.stores import open_store
from holdfast.testing import ManualClock

FLOW = """
vars: {{v: 1, other: x, fail: false}}
once_per: {once}
steps:
  - {{id: a, run: 'test {{{{ vars.fail | quote }}}} = false'}}
"""
SHORT = "'{{ vars.v }}'"
LONG = "{key: '{{ vars.v }}', ttl: 1h}"


def test_the_same_key_gives_the_same_run(load: Any, hf: Holdfast) -> None:
    flow = load(FLOW.format(once=SHORT))
    first = flow.start(hf, {"v": 1})
    assert first.id == "sample(1)#1"
    assert first.status is Status.COMPLETED
    assert flow.start(hf, {"v": 1, "other": "y"}).uid == first.uid  # other variables do not make another key
    assert flow.enqueue(hf, {"v": 1}).uid == first.uid
    assert flow.start(hf, {"v": 2}).id == "sample(2)#1"
    assert flow.start(hf, {"v": 1}, id="mine").id == "mine"  # an id of one's own says which run it is
    assert len(hf.runs()) == 3


def test_a_run_counts_for_its_time_to_live(load: Any) -> None:
    clock = ManualClock()
    flow = load(FLOW.format(once=LONG))
    with holdfast.open("memory://", store=open_store("memory://", clock=clock)) as hf:
        first = flow.start(hf)
        clock.advance(3599)
        assert flow.start(hf).uid == first.uid
        clock.advance(1)
        second = flow.start(hf)
        assert second.id == "sample(1)#2"
        clock.advance(3599)
        assert flow.start(hf).uid == second.uid


def test_a_run_that_failed_or_was_given_up_does_not_count(load: Any, mem: Holdfast) -> None:
    flow = load(FLOW.format(once=SHORT))
    assert flow.start(mem, {"fail": True}).status is Status.FAILED
    again = flow.start(mem)
    assert (again.id, again.status) == ("sample(1)#2", Status.COMPLETED)


def test_children_do_not_stand_in_the_way(load: Any, mem: Holdfast, memdir: Path) -> None:
    """Their ids begin like that of the run, and they are newer."""
    (memdir / "inner.yaml").write_text("name: inner\nsteps:\n  - {id: a, set: {x: 1}}\n")
    text = (
        "vars: {fail: true}\nonce_per: key\nsteps:\n  - {id: a, for_each: '{{ range(45) | list }}', flow: inner.yaml}\n"
    )
    flow = load(text + "  - {id: b, run: 'test {{ vars.fail }} = false'}\n")
    first = flow.start(mem)
    assert first.status is Status.FAILED
    second = flow.start(mem, {"fail": False})
    assert second.status is Status.COMPLETED
    assert flow.start(mem).uid == second.uid
    assert len(mem.runs(limit=200)) == 2 * 46


def test_keys_do_not_meet(load: Any, mem: Holdfast) -> None:
    flow = load(FLOW.format(once="'{{ vars.other }}'"))
    keys = ["a", "a)#1", "a b", "ä", "(", "", "x" * 300, "x" * 301, "a\n"]
    runs = [flow.start(mem, {"other": key}) for key in keys]
    assert len({run.uid for run in runs}) == len(keys)
    assert [flow.start(mem, {"other": key}).uid for key in keys] == [run.uid for run in runs]


def test_of_many_that_start_at_once_one_makes_the_run(load: Any, hf: Holdfast) -> None:
    flow = load(FLOW.format(once=SHORT))
    found: list[str] = []
    gate = threading.Barrier(6)

    def start(n: int) -> None:
        gate.wait()
        found.append(flow.enqueue(hf, {"other": str(n)}).uid)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1


def test_a_key_is_made_of_variables(load: Any) -> None:
    with pytest.raises(holdfast.errors.FlowInvalid, match="`run` is not known before the run begins"):
        load(FLOW.format(once="'{{ run.id }}'"))
