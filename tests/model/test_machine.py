"""Random histories on every store. `-m torture` with HOLDFAST_PROFILE=torture runs many more of them."""

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import StoreMachine
from sizes import size

from holdfast.stores import Store, open_store
from holdfast.stores.memory import _shared
from holdfast.testing import ManualClock

KINDS = ["memory", "sqlite", "files"]
EXAMPLES, STEPS = {"memory": size(12, 120), "sqlite": size(8, 50), "files": size(8, 50)}, 50


def machine(kind: str, folder: Path) -> Callable[[], StoreMachine]:
    numbers = count()

    class Machine(StoreMachine):
        def new_place(self) -> str:
            return f"{folder}/{next(numbers)}"

        def open_store(self, place: str, clock: ManualClock) -> Store:
            urls = {"memory": "memory://{}", "sqlite": "sqlite:///{}/runs.db", "files": "files:///{}"}
            if kind == "sqlite":
                os.makedirs(place, exist_ok=True)
            return open_store(urls[kind].format(place), clock=clock)

        def remove_place(self, place: str) -> None:
            _shared.pop(place, None)
            shutil.rmtree(place, ignore_errors=True)

    return Machine


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_does_what_the_model_says(kind: str, memdir: Path) -> None:
    sizes = settings(
        max_examples=EXAMPLES[kind],
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    run_state_machine_as_test(machine(kind, memdir), settings=sizes)


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_does_what_the_model_says_for_long(kind: str, memdir: Path) -> None:
    sizes = settings(stateful_step_count=80, suppress_health_check=list(HealthCheck), deadline=None)
    run_state_machine_as_test(machine(kind, memdir), settings=sizes)
