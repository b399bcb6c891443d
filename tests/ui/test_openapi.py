"""The API against its own description: whatever fits it, and whatever does not, no answer breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import office
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sizes import PROFILE
from starlette.testclient import TestClient

import holdfast
from holdfast.ui import create_app
from holdfast.ui.api.openapi import document
from holdfast.ui.api.operations import TABLE, Operation
from holdfast.ui.paths import part
from holdfast.ui.security import Tokens

TOKEN = "a-token-for-those-who-act"
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = {"quick": 1, "all": 3, "torture": 100}[PROFILE]
RUNS = ("orders/A 17%", "broken", "by hand", "..")


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    """The description of a server whose store has runs of several kinds."""
    with holdfast.open("memory://described") as hf:
        app = create_app(hf, tokens=Tokens(TOKEN), hosts=["testserver", "localhost"])
        headers = {"Authorization": f"Bearer {TOKEN}"}
        hf.schedule(office.broken, cron="0 3 * * *", id="nightly")
        yield schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=headers), hf


def made(hf: holdfast.Holdfast) -> None:
    """The runs again that may have been deleted."""
    hf.start(office.fulfil, "A-17", 4200, id=RUNS[0])
    hf.start(office.broken, id=RUNS[1])
    for id in RUNS[2:]:
        hf.run(id).save({"n": 1})


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("operation", [one for one in TABLE if not one.streams], ids=lambda one: one.name)
def test_no_answer_breaks_the_description(schema: Any, operation: Operation, mode: GenerationMode) -> None:
    loaded, hf = schema
    described = loaded.find_operation_by_id(operation.name)
    real: dict[str, list[str]] = {"run": [part(id) for id in RUNS], "schedule": ["nightly"], "seq": ["0", "1", "2"]}

    @given(described.as_strategy(generation_mode=mode), st.data())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    def check(case: Any, data: st.DataObject) -> None:
        made(hf)
        for name in operation.params:
            if name in real and data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(real[name]))
        given = {name: value for name, value in (case.headers or {}).items() if name.lower() != "authorization"}
        case.headers = {**given, "Authorization": f"Bearer {TOKEN}"}  # a wrong one would lead nowhere
        answer = case.call_and_validate(checks=CHECKS)
        assert answer.status_code not in (401, 421)  # it reached the operation
        if mode is GenerationMode.POSITIVE and operation.method == "GET" and not operation.params:
            assert answer.status_code == 200

    check()


def test_every_operation_is_described_with_its_summary() -> None:
    paths = document()["paths"]
    described = {one["operationId"]: one for path in paths.values() for one in path.values()}
    assert described.keys() == {one.name for one in TABLE}
    assert all(one["summary"].endswith(".") for one in described.values())


def test_the_document_is_given(api: TestClient) -> None:
    assert api.get("/api/openapi.json").json()["openapi"] == "3.1.0"
