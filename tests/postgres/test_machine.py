"""Random histories on PostgreSQL, compared with the model. `-m torture` runs many more of them."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import StoreMachine
from pgserver import Schemas
from sizes import size

from holdfast.stores import Store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock

pytestmark = pytest.mark.usefixtures("deaths_are_known")


def machine(schemas: Schemas) -> Callable[[], StoreMachine]:
    class Machine(StoreMachine):
        def new_place(self) -> str:
            return schemas.take()

        def open_store(self, place: str, clock: ManualClock) -> Store:
            return PostgresStore(schemas.url(place), clock=clock)

        def remove_place(self, place: str) -> None:
            schemas.give_back(place)

    return Machine


def test_the_engine_does_what_the_model_says(postgres_schemas: Schemas) -> None:
    sizes = settings(
        max_examples=size(3, 25), stateful_step_count=40, suppress_health_check=list(HealthCheck), deadline=None
    )
    run_state_machine_as_test(machine(postgres_schemas), settings=sizes)


@pytest.mark.torture
def test_the_engine_does_what_the_model_says_for_long(postgres_schemas: Schemas) -> None:
    sizes = settings(stateful_step_count=80, suppress_health_check=list(HealthCheck), deadline=None)
    run_state_machine_as_test(machine(postgres_schemas), settings=sizes)
