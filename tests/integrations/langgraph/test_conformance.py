"""LangGraph's own conformance suite for checkpointers: all eight capabilities, on every store."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from holdfast import Keyring
from holdfast.integrations.langgraph import HoldfastSaver


def check(url: str, **how: Any) -> None:
    @checkpointer_test(name="HoldfastSaver")
    async def made() -> AsyncIterator[HoldfastSaver]:
        async with HoldfastSaver(url, **how) as saver:
            yield saver

    report = asyncio.run(validate(made))
    failures = {name: result.failures for name, result in report.results.items() if result.passed is not True}
    assert failures == {}
    assert len(report.results) == len(ALL_CAPABILITIES) == 8
    assert report.conformance_level() == "FULL"


def test_all_capabilities(any_store_url: str) -> None:
    check(any_store_url)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_all_capabilities_with_a_guard_and_keys(store_url: str) -> None:
    check(store_url, guard=True, keys=Keyring({"k": bytes(32)}, current="k"))
